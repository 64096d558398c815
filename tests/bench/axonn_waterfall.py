#!/usr/bin/python3
"""Which terms part our prediction of AxoNN's runs (Singh & Bhatele, IPDPS 2022) from what the paper measured: of-peak figures,
step by step, each with its source.

    tests/bench/axonn_waterfall.py [--models gpt-12b,gpt-24b] [--profiles v100-datasheet,v100] [--out waterfall]
                                                                                            (make axonn-waterfall)

The first step is the plan as AxoNN ran it with nothing but ranvier's own kernels (--like axonn-2021 --without kernels), by the
first profile; the next the same by each further one; then the terms of axonn-2021 that change prices, one after the other in the
order of its file (ranvier frameworks axonn-2021). Nothing here is fitted: what is left over is printed as not explained.

Percent of peak is counted as the paper counts it: 96 B s l h^2 (1 + s/6h + V/16lh) flops a batch (Narayanan et al. 2021), of 125
Tflop/s a GPU. The paper's abstract has a band over its four models, 49.4 to 54.78 %, not which is whose.
"""
import argparse
import csv
import json
import os
import subprocess
import sys

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(HERE, "..", "cli"))
import ranvier

ROOT = os.path.realpath(os.path.join(HERE, "..", ".."))
# GPUs, stages, replicas, micro-batch. 24B: the authors' public script; the others' grids are not published, and these are what a
# sweep finds fastest (make paper).
PLANS = {"gpt-12b": (48, 6, 8, 8), "gpt-24b": (96, 12, 8, 4), "gpt-50b": (192, 24, 8, 4), "gpt-100b": (384, 48, 8, 4)}
BATCH, LENGTH, PEAK, BAND = 16384, 512, 125e12, (49.4, 54.78)
LIKE = "axonn-2021"


def terms_that_price():
    """The terms of the framework's file that change what kernels or launches take."""
    with open(os.path.join(ROOT, "runtime", "plan", "frameworks", LIKE + ".json")) as file:
        terms = json.load(file)["terms"]
    return [term for term in terms if any(key in term for key in ("kernels", "host_seconds_a_kernel", "gpu"))]


def simulate(model, profile, left_out, folder):
    """Seconds of a batch."""
    gpus, stages, replicas, micro_batch = PLANS[model]
    report = os.path.join(folder, "report.json")
    command = ["simulate", model, "--gpus", gpus, "--pp", stages, "--dp", replicas, "--micro-batch-size", micro_batch,
               "--batch-size", BATCH, "--offload", "--profile", profile, "--platform", "summit", "--like", LIKE, "--ignore-memory",
               "--report", report]
    status, _, err = ranvier.run(command + (["--without", ",".join(left_out)] if left_out else []), timeout=3600)
    if status:
        sys.exit(err)
    with open(report) as file:
        return json.load(file)["batch_seconds"]["median"]


def percent_of_peak(model, seconds):
    with open(os.path.join(ROOT, "models", "presets", model + ".json")) as file:
        shape = json.load(file)
    layers, width, words = shape["n_layer"], shape["n_embd"], shape["vocab_size"]
    flops = 96.0 * BATCH * LENGTH * layers * width**2 * (1 + LENGTH / (6 * width) + words / (16 * layers * width))
    return 100 * flops / (seconds * PLANS[model][0] * PEAK)


def waterfall(model, profiles, folder):
    """[(step, percent of peak, seconds, source)]"""
    terms = terms_that_price()
    names = [term["name"] for term in terms]
    steps = []
    for i, profile in enumerate(profiles):
        seconds = simulate(model, profile, names, folder)
        what = "ranvier's own kernels" if i == 0 else f"kernels of {profile}"
        steps.append((what, percent_of_peak(model, seconds), seconds, f"profile {profile}"))
    for i, term in enumerate(terms):
        seconds = simulate(model, profiles[-1], names[i + 1:], folder)
        source = term.get("source", "") + ("; assumed: " if "source" in term and "assumption" in term else "") + term.get(
            "assumption", "")
        steps.append((term["name"], percent_of_peak(model, seconds), seconds, source))
    return steps


def show(model, steps):
    gpus, stages, replicas, micro_batch = PLANS[model]
    print(f"\n## {model} on {gpus} V100 ({stages} stages x {replicas} replicas, micro-batch {micro_batch}, offloaded)\n")
    print("| step | % of peak | step, points | seconds a batch | source |\n|---|---|---|---|---|")
    for i, (step, percent, seconds, source) in enumerate(steps):
        change = f"{percent - steps[i - 1][1]:+.2f}" if i else ""
        print(f"| {step} | {percent:.2f} | {change} | {seconds:.2f} | {source} |")
    last = steps[-1][1]
    print(f"| published, of all four models | {BAND[0]} to {BAND[1]} | {min(0, BAND[1] - last):+.2f} at least | | the abstract |")
    more = [100 * (last / edge - 1) for edge in reversed(BAND)]
    print(f"\nNot explained: a batch takes {max(0, more[0]):.1f} to {max(0, more[1]):.1f} % longer in the paper than by all steps "
          f"({100 * (steps[0][1] / BAND[1] - 1):.1f} to {100 * (steps[0][1] / BAND[0] - 1):.1f} % longer than by the first).")


def draw(path, model, steps):
    """Falling bars, what is not explained, and the published band."""
    data = path + ".dat"
    with open(data, "w") as file:
        for i, (step, percent, _, _) in enumerate(steps):
            before = steps[i - 1][1] if i else 0
            file.write(f'"{step}" {before:.6g} {percent:.6g} "{percent - before if i else percent:{"+" if i else ""}.2f}" 1\n')
        last = steps[-1][1]
        if last > BAND[1]:
            file.write(f'"not explained" {last:.6g} {BAND[1]} "from {last:.2f}" 2\n')
    settings = (f'folder="{ROOT}/plots";format="png";out="{path}";data="{data}";model="{model}";low={BAND[0]};high={BAND[1]};'
                f"rows={len(steps) + (steps[-1][1] > BAND[1])}")
    subprocess.run(["gnuplot", "-e", settings, os.path.join(ROOT, "plots", "waterfall.gp")], check=True)
    os.unlink(data)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    measured = os.path.exists(os.path.join(ROOT, "calibrate", "profiles", "v100.json"))
    parser.add_argument("--models", default="gpt-12b,gpt-24b")
    parser.add_argument("--profiles", default="v100-datasheet" + (",v100" if measured else ""))
    parser.add_argument("--out", default="waterfall", help="the folder of tables and pictures")
    arguments = parser.parse_args()
    os.makedirs(arguments.out, exist_ok=True)
    rows = []
    for model in arguments.models.split(","):
        if model not in PLANS:
            sys.exit(f"--models: '{model}' is none of {', '.join(PLANS)}")
        steps = waterfall(model, arguments.profiles.split(","), arguments.out)
        show(model, steps)
        draw(os.path.join(arguments.out, model + ".png"), model, steps)
        rows += [(model, *step) for step in steps]
    with open(os.path.join(arguments.out, "waterfall.csv"), "w", newline="") as file:
        csv.writer(file).writerows([("model", "step", "percent_of_peak", "batch_seconds", "source"), *rows])


main()
