#!/usr/bin/env python3
"""Whether `ranvier plan` finds what there is to find: its best plan against the best of so many random plans that fit, each
simulated. Prints how many were tried, how many fit, and the ratio of the two times. usage: random_plans.py RANVIER [COUNT]
[MODEL MACHINE GPUS] [SEED]"""

import json
import os
import random
import subprocess
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor

SCHEDULES = ("axonn", "1f1b", "eager-1f1b", "interleaved", "zero-bubble", "zero-bubble-h2", "reverse-first-k", "fast-forward", "gpipe")


def divisors(number):
    return [i for i in range(1, number + 1) if number % i == 0]


def random_plan(gpus, draw):
    """Flags of a grid of so many GPUs, or None where the numbers do not divide."""
    pp, tp, cp = draw.choice(divisors(gpus)), draw.choice((1, 2, 4, 8)), draw.choice((1, 1, 2, 4, 8))
    if gpus % (pp * tp * cp):
        return None
    flags = ["--pp", pp, "--tp", tp, "--cp", cp, "--dp", gpus // (pp * tp * cp), "--micro-batch-size", draw.choice((1, 2, 4, 8)),
             "--zero", draw.choice((0, 1, 2, 3)), "--recompute", draw.choice(("none", "full", "norms", "swiglu", "norms+swiglu"))]
    schedule = draw.choice(SCHEDULES) if pp > 1 else "axonn"
    flags += ["--schedule", schedule] + (["--virtual-stages", draw.choice((2, 4))] if schedule == "interleaved" else [])
    for flag, when in (("--offload", True), ("--offload-activations", True), ("--sequence-parallel", tp > 1), ("--overlap-allreduce", True)):
        flags += [flag] if when and draw.random() < 0.5 else []
    for flag, values in (("--order", ("stages", "replicas")), ("--cp-exchange", ("ring", "all-gather"))):
        flags += [flag, draw.choice(values)]
    return [str(flag) for flag in flags]


def simulated(ranvier, question, flags, folder, number):
    """Seconds of a batch, or None for what is no plan or does not fit."""
    report = os.path.join(folder, f"{number}.json")
    run = subprocess.run([ranvier, "simulate", *question, *flags, "--report", report], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    if run.returncode not in (0, 2):
        sys.exit(f"simulate ended with status {run.returncode}: {' '.join(flags)}")
    if run.returncode:
        return None
    with open(report) as file:
        return json.load(file)["batch_seconds"]["median"]


def main():
    ranvier, wanted = sys.argv[1], int(sys.argv[2]) if len(sys.argv) > 2 else 300
    model, machine, gpus = (sys.argv[3:6] + ["llama3-70b", "h100", "64"])[:3] if len(sys.argv) > 5 else ("llama3-70b", "h100", "64")
    draw = random.Random(int(sys.argv[6]) if len(sys.argv) > 6 else 1)
    began = time.monotonic()
    answer = json.loads(subprocess.run([ranvier, "plan", model, "--machine", machine, "--gpus", gpus, "--json"], check=True,
                                       stdout=subprocess.PIPE, stderr=subprocess.DEVNULL).stdout)
    took = time.monotonic() - began
    question = [model, "--machine", machine, "--gpus", gpus, "--batch-size", str(answer["question"]["batch_size"]),
                "--seq-len", str(answer["question"]["seq_len"])]
    best, fitting, tried, best_flags = None, 0, 0, None
    with tempfile.TemporaryDirectory() as folder, ThreadPoolExecutor(os.cpu_count()) as pool:
        while fitting < wanted:
            plans = [plan for plan in (random_plan(int(gpus), draw) for _ in range(200)) if plan]
            runs = pool.map(lambda item: (item[1], simulated(ranvier, question, item[1], folder, item[0])), enumerate(plans))
            for flags, seconds in runs:
                tried += 1
                if seconds is None or fitting == wanted:
                    continue
                fitting += 1
                if best is None or seconds < best:
                    best, best_flags = seconds, flags
    found = answer["best"]["batch_seconds"]["median"]
    print(f"{model} on {gpus} x {machine}: plan weighed {answer['search']['weighed']} in {answer['search']['seconds']:.1f} s, answered in {took:.1f} s: {found:.3f} s")
    print(f"best of {fitting} random plans that fit, of {tried} tried: {best:.3f} s, {' '.join(best_flags)}")
    print(f"plan / best of random: {found / best:.4f}")
    return 0 if found <= 1.02 * best else 1


sys.exit(main())
