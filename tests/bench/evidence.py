#!/usr/bin/python3
"""Everything that predictions were held against, by one command: validates every table there is, writes the tables that
docs/validation.md has between "make evidence" marks, and draws one figure of all runs, a colour a framework.

    tests/bench/evidence.py [--tables FOLDER] [--local FOLDER] [--out FOLDER] [--check]       (make evidence TABLES=FOLDER)

--tables: a folder with runs.csv and playbook.csv, published runs in the forms that `ranvier validate --help` describes; without
it only the tables that come with the program. --local: where `make bench-prediction...` left its reports, a folder each
(build/bench). Into --out (build/bench/evidence) go a CSV a table and evidence.png; docs/validation.md and the gallery are
changed in place, but for tables that were not validated. --check: nothing is changed, and the status is 1 if something would be.
"""
import argparse
import csv
import glob
import json
import os
import re
import statistics
import subprocess
import sys

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(HERE, "..", "cli"))
import ranvier

ROOT = os.path.realpath(os.path.join(HERE, "..", ".."))
DOCUMENT = os.path.join(ROOT, "docs", "validation.md")
PICTURE = os.path.join(ROOT, "plots", "gallery", "evidence.png")
LOCAL = "this machine"


class Run:
    """One run: seconds a batch, measured and predicted, whether a figure was fitted on it, and whether it lies in its interval
    (None: there is none)."""

    def __init__(self, group, measured, predicted, fitted, inside):
        self.group, self.measured, self.predicted, self.fitted, self.inside = group, measured, predicted, fitted, inside
        self.error = predicted / measured - 1


def validated(arguments, path):
    status, out, err = ranvier.run(["validate", *arguments, "--csv", path], timeout=1800)
    if status:
        sys.exit(f"evidence: validate {' '.join(arguments)} failed:\n{err or out}")
    with open(path) as file:
        for row in csv.DictReader(file):
            seconds, predicted = float(row["batch_seconds"]), float(row["predicted"])
            low, high = float(row["measured_low"]), float(row["measured_high"])
            measured = (low + high) / 2
            takes = "seconds" in row["unit"] and "per_second" not in row["unit"]
            inside = None
            if row["predicted_low"]:
                inside = float(row["predicted_low"]) <= high and low <= float(row["predicted_high"])
            name = os.path.basename(row["table"]).split(".")[0]
            group = f"{row['framework']}, {row['gpu']}, {row['model']}" if row["framework"] else name
            yield Run(group, seconds * (measured / predicted if takes else predicted / measured), seconds, row["fitted"] == "yes", inside)


def measured_here(folder):
    """What tests/bench/prediction.py left: of each configuration a prediction, and the median run of those measured."""
    for path in sorted(glob.glob(os.path.join(folder, "prediction*", "*-predicted.json"))):
        stem = path[:-len("-predicted.json")]
        with open(path) as file:
            predicted = json.load(file)["batch_seconds"]
        seconds = []
        for measured in glob.glob(stem + "-measured-*.json"):
            with open(measured) as file:
                seconds.append(json.load(file)["batch_seconds"]["median"])
        measured = statistics.median_low(seconds)
        suite = os.path.basename(os.path.dirname(path)).replace("prediction-", "")
        yield Run(f"{LOCAL}, {suite}", measured, predicted["median"], False, predicted["low"] <= measured <= predicted["high"])


def table_of(runs):
    """Of runs that nothing was fitted on, a row a group."""
    groups = {}
    for run in runs:
        groups.setdefault(run.group, []).append(run)
    lines = ["| runs | that nothing was fitted on | mean error | median | mean, signed | worst | in their interval |", "|---|---|---|---|---|---|---|"]

    def line(name, members):
        free = [run for run in members if not run.fitted]
        if not free:
            return
        errors = [abs(run.error) for run in free]
        worst = max(free, key=lambda run: abs(run.error)).error
        known = [run.inside for run in free if run.inside is not None]
        lines.append(f"| {name} | {len(free)} | {100 * statistics.mean(errors):.1f} % | {100 * statistics.median(errors):.1f} % | "
                     f"{100 * statistics.mean(run.error for run in free):+.1f} % | {100 * worst:+.1f} % | "
                     + (f"{sum(known)} of {len(known)} |" if known else "- |"))

    for name in sorted(groups):
        line(name, groups[name])
    if len(groups) > 1:
        line("all", [run for run in runs])
    return "\n".join(lines)


def replaced(text, name, table):
    mark = f"<!-- make evidence: {name} -->", "<!-- end -->"
    pattern = re.compile(re.escape(mark[0]) + r"\n.*?" + re.escape(mark[1]), re.S)
    if not pattern.search(text):
        sys.exit(f"evidence: docs/validation.md has no mark '{mark[0]}'")
    return pattern.sub(lambda _: f"{mark[0]}\n{table}\n{mark[1]}", text)


def draw(runs, path):
    series = {}
    for run in runs:
        series.setdefault(run.group.split(",")[0], []).append(run)
    names = sorted(series, key=lambda name: (name == LOCAL, -len(series[name])))
    data = path + ".data"
    with open(data, "w") as file:
        for name in names:
            for run in series[name]:
                file.write(f"{run.measured:.9g}\t{run.predicted:.9g}\n")
            file.write("\n\n")
    errors = [abs(run.error) for run in runs if not run.fitted]
    summary = (f"{len(runs)} runs, median error {100 * statistics.median(errors):.1f} %, mean {100 * statistics.mean(errors):.1f} %, "
               f"of {len(errors)} that nothing was fitted on")
    settings = [f"folder='{ROOT}/plots'", f"data='{data}'", f"out='{path}'", "format='png'", f"series={len(names)}", f"summary='{summary}'"]
    settings += [f"series_{i}='{name} ({len(series[name])})'" for i, name in enumerate(names, 1)]
    done = subprocess.run(["gnuplot", "-e", "; ".join(settings), os.path.join(ROOT, "plots", "evidence.gp")], capture_output=True, text=True)
    if done.returncode:
        sys.exit(f"evidence: gnuplot failed:\n{done.stderr}")
    os.remove(data)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tables")
    parser.add_argument("--local")
    parser.add_argument("--out", default="build/bench/evidence")
    parser.add_argument("--check", action="store_true")
    arguments = parser.parse_args()
    out = os.path.abspath(arguments.out)
    os.makedirs(out, exist_ok=True)
    asked = {"built-in": []}
    if arguments.tables:
        asked |= {name: ["--table", os.path.join(arguments.tables, name + ".csv")] for name in ("runs", "playbook")}
    found = {name: list(validated(words, os.path.join(out, name + ".csv"))) for name, words in asked.items()}
    if arguments.local:
        found["local"] = list(measured_here(arguments.local))
        if not found["local"]:
            sys.exit(f"evidence: --local {arguments.local} has no folder prediction* with reports: make bench-prediction leaves them")
    with open(DOCUMENT) as file:
        before = file.read()
    after = before
    for name, runs in found.items():
        after = replaced(after, name, table_of(runs))
        print(f"{name}\n\n{table_of(runs)}\n")
    if arguments.check:
        sys.exit(before != after)
    if after != before:
        with open(DOCUMENT + ".part", "w") as file:
            file.write(after)
        os.rename(DOCUMENT + ".part", DOCUMENT)
    image = os.path.join(out, "evidence.png")
    draw([run for runs in found.values() for run in runs], image)
    if arguments.tables:
        os.replace(image, PICTURE)
        print(f"docs/validation.md and {os.path.relpath(PICTURE)} are written")


if __name__ == "__main__":
    main()
