#!/usr/bin/env python3
"""Makes a report, in Markdown, of what tests/gpu/visit.sh left in a folder: which steps ended how, what the GPU says of itself,
its rates, what each training run took against the matrix rate of the same visit, the largest kernels, and predictions.

    tests/gpu/read_visit.py FOLDER [> report.md]

Status 1 if a step failed, 2 if the folder is not a visit's.
"""
import csv
import json
import os
import re
import sys


def read_json(path):
    """None where there is none, or half of one."""
    try:
        with open(path) as file:
            return json.load(file)
    except (OSError, ValueError):
        return None


def last_line(path):
    try:
        with open(path, errors="replace") as file:
            lines = [line.strip() for line in file if line.strip()]
    except OSError:
        return "there is no log"
    bad = [line for line in lines if re.search(r"^not ok|error|failed|ranvier \w+:", line, re.I)]
    return (bad or lines or ["it said nothing"])[-1][:160]


def table(head, rows):
    print("| " + " | ".join(head) + " |\n|" + "---|" * len(head))
    for row in rows:
        print("| " + " | ".join(map(str, row)) + " |")
    print()


def figure(value, unit, scale):
    if isinstance(value, dict):
        return f"{value['median'] / scale:,.1f} {unit} ({value['p10'] / scale:,.1f} to {value['p90'] / scale:,.1f})"
    return f"{value / scale:,.1f} {unit}"


def show_rates(folder):
    """Returns the highest rate of products, or None."""
    rows, best = [], None
    for name in sorted(os.listdir(folder)):
        rate = read_json(os.path.join(folder, name)) if re.fullmatch(r"rate-\d+\.log", name) else None
        if not rate:
            continue
        products = rate["flops_per_second"]
        best = max(best or 0, products["median"] if isinstance(products, dict) else products)
        others = {key[:-len("bytes_per_second")].strip("_").replace("_", " ") or "memory": figure(rate[key], "GB/s", 1e9)
                  for key in rate if key.endswith("bytes_per_second")}
        rows.append([name[5:-4], figure(products, "Tflop/s", 1e12), *others.values()])
    if rows:
        print("## Rates\n")
        table(["size", "products in bf16", *others], rows)
    return best


def show_runs(folder, rate):
    rows = []
    for name in sorted(os.listdir(folder)):
        report = read_json(os.path.join(folder, name)) if name.endswith(".json") else None
        if not report or "batch_seconds" not in report:
            continue
        seconds, tokens = report["batch_seconds"], report.get("tokens_per_second")
        flops = report.get("flops_per_gpu_per_second")
        rows.append([name[:-5], f"{1e3 * seconds['median']:.2f} ms", f"{1e3 * seconds['p10']:.2f} to {1e3 * seconds['p90']:.2f}",
                     f"{tokens:,.0f}" if tokens else "-", f"{flops / 1e12:,.1f} Tflop/s" if flops else "-",
                     f"{100 * flops / rate:.1f} %" if flops and rate else "-"])
    if rows:
        print("## Training\n")
        table(["run", "a batch", "nine in ten", "tokens/s", "model flops", "of the matrix rate"], rows)


def show_kernels(folder, lines=24):
    for name in sorted(os.listdir(folder)):
        if not name.endswith(".log"):
            continue
        with open(os.path.join(folder, name), errors="replace") as file:
            text = file.read()
        at = text.find("kernels of a batch")
        if at >= 0:
            begin = text.rfind("\n", 0, at) + 1
            print(f"## Where the time goes: {name[:-4]}\n\n```\n" + "\n".join(text[begin:].splitlines()[:lines]) + "\n```\n")


def show_predictions(folder):
    found = read_json(os.path.join(folder, "bench-prediction", "gpu.json"))
    if found and found.get("prediction"):
        print("## Predicted against measured\n\n```\n" + json.dumps(found["prediction"], indent=1)[:4000] + "\n```\n")


def main():
    if len(sys.argv) != 2:
        print(__doc__.split("\n\n")[1].strip(), file=sys.stderr)
        return 2
    folder = sys.argv[1]
    try:
        with open(os.path.join(folder, "steps.tsv")) as file:
            steps = list(csv.reader(file, delimiter="\t"))
    except OSError:
        print(f"read_visit: {folder} has no steps.tsv: it is not a folder that tests/gpu/visit.sh wrote", file=sys.stderr)
        return 2
    failed = [step for step in steps if step[2] != "0"]
    print(f"# A visit to a GPU: {len(steps)} steps, {len(failed)} failed\n")
    for part in "abcdefg":
        described = read_json(os.path.join(folder, f"device-{part}.log"))
        if described:
            table(["device", ""], described.items())
            break
    if failed:
        print("## What failed\n")
        table(["part", "step", "status", "seconds", "it said"],
              [[*step, last_line(os.path.join(folder, step[1] + ".log"))] for step in failed])
    rate = show_rates(folder)
    show_runs(folder, rate)
    show_kernels(folder)
    show_predictions(folder)
    print("## All steps\n")
    table(["part", "step", "status", "seconds"], steps)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
