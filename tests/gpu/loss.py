#!/usr/bin/env python3
"""The same 50 steps on the GPU and on the CPU device, of GPT-2 and of every other family that has a small preset, and as two
shards that share the GPU: losses within what the precision explains, memory to the byte, and the same bits without CUDA graphs.

    tests/gpu/loss.py [shards]        (shards: these alone)
"""
import json
import os
import sys
import tempfile

sys.path.insert(0, os.path.join(os.path.dirname(__file__), "..", "cli"))
import ranvier
import text

STEPS = int(os.environ.get("RANVIER_TEST_STEPS", "50"))
# Relative, of any one step. Both devices round the same sums in another order; what that makes of a step grows with the
# rounding: 2^-24, 2^-11 and 2^-8 of a number.
PRECISIONS = {"fp32": 1e-3, "mixed": 5e-3, "bf16": 2e-2}
FAMILIES = ("llama-tiny", "mixtral-tiny", "deepseek-tiny", "nemotron-tiny")


def train(folder, model, device, precision, fusion, *more):
    log, report = (os.path.join(folder, name) for name in ("log.csv", "report.json"))
    status, _, err = ranvier.run(
        ["train", model, "--data", os.path.join(folder, "text.txt"), "--device", device, "--precision", precision,
         "--fusion", fusion, "--micro-batch-size", 2, "--batch-size", 8, "--steps", STEPS, "--lr", 1e-3,
         "--validation-fraction", 0, "--log", log, "--report", report, *more], ranks=2 if "--tp" in more else 1)
    if status:
        return None, err
    return ranvier.losses(log), json.load(open(report))["memory"]


def check(tap, folder, model, precision, fusion, *more):
    tolerance, name = PRECISIONS[precision], " ".join(map(str, (f"{model}, {precision}, fusion {fusion}", *more)))
    cpu, memory = train(folder, model, "cpu", precision, fusion, *more)
    gpu, on_gpu = train(folder, model, "cuda", precision, fusion, *more)
    if cpu is None or gpu is None:
        tap.ok(False, f"{name}: both devices train", memory if cpu is None else on_gpu)
        return
    worst = max(abs(a / b - 1) for a, b in zip(gpu, cpu))
    print(f"# {name}: loss {cpu[0]:.4f} to {cpu[-1]:.4f}, largest difference {100 * worst:.4f} %", flush=True)
    tap.ok(len(gpu) == STEPS and worst <= tolerance and gpu[-1] < gpu[0],
           f"{name}: {STEPS} losses are the CPU device's within {100 * tolerance:g} %", f"{gpu}\n{cpu}")
    tap.ok(on_gpu["by_category"] == memory["by_category"], f"{name}: device memory is the same in every category",
           f"{on_gpu}\n{memory}")
    single, _ = train(folder, model, "cuda", precision, fusion, "--cuda-graphs", "off", *more)
    tap.ok(single == gpu, f"{name}: without CUDA graphs the losses are the same, bit for bit", single)


def main():
    tap = ranvier.Tap()
    with tempfile.TemporaryDirectory() as folder:
        text.write(os.path.join(folder, "text.txt"))
        for precision in PRECISIONS if sys.argv[1:] != ["shards"] else ():
            for fusion in ("on", "off"):
                check(tap, folder, "tiny", precision, fusion)
        for model in FAMILIES if sys.argv[1:] != ["shards"] else ():
            for precision in ("fp32", "bf16"):
                check(tap, folder, model, precision, "on")
        for model in ("tiny", "llama-tiny", "mixtral-tiny"):
            check(tap, folder, model, "bf16", "on", "--tp", 2)
            check(tap, folder, model, "fp32", "on", "--tp", 2, "--sequence-parallel")
    tap.end()


if __name__ == "__main__":
    main()
