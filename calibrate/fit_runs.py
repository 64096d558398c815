#!/usr/bin/python3
"""Fits the free figures of a profile on a few measured runs: writes the profile that `ranvier validate` then takes.

    calibrate/fit_runs.py SPEC --table RUNS.csv [--table ...] --out PROFILE [--only TEXT] [flags of ranvier validate]

SPEC (calibrate/fits/*.json) has the profile's facts with their sources, its kernels in classes whose models name free
parameters ("$launch"), each parameter's start, bounds and reason, perhaps the standard error of what it predicts, and, by
the names that `ranvier validate` gives them, the runs to fit on: no other row of the tables is used. Least squares of log(predicted / measured) with soft l1 weights, by
Gauss and Newton with finite differences; every evaluation is `ranvier validate` itself, so what is fitted is what predicts.
A parameter with "sigma" is held to its start by a prior of that relative width, against 5 % for a run."""
import argparse
import csv
import json
import math
import os
import subprocess
import sys
import tempfile

TREE = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
RANVIER = os.path.join(os.environ.get("RANVIER_BIN", os.path.join(TREE, "build", "bin")), "ranvier")
RUN_SIGMA = 0.05
STEP = 0.02  # of a parameter's logarithm


def filled(value, figures):
    """`value` with every "$name" in it replaced by that figure."""
    if isinstance(value, dict):
        return {key: filled(inner, figures) for key, inner in value.items()}
    if isinstance(value, str) and value.startswith("$"):
        name, _, factor = value[1:].partition("*")
        return float(f"{figures[name] * float(factor or 1):.6g}")
    return value


def profile_of(spec, figures):
    profile = {"ranvier": "0.1.0", "kind": "profile", **spec["profile"], "measured": False}
    sources = dict(spec["sources"])
    for name, parameter in spec["parameters"].items():
        sources[name] = f"fitted, {figures[name]:.4g}: {parameter['why']}"
    error, kernels = {}, {}
    if "error" in spec:
        error = {"error": spec["error"]["value"]}
        sources["error"] = spec["error"]["why"]
    for one in spec["classes"].values():
        for kernel in one["kernels"]:
            model = one["models"].get(kernel, one["model"]) if "models" in one else one["model"]
            kernels[kernel] = {"model": {**error, **filled(model, figures)}}
    profile["sources"] = sources
    profile["fitted_on"] = spec["fitted_on"]
    profile["loads"] = [{**filled(spec["load"], figures), "kernels": kernels}]
    return profile


def write_json(path, document):
    with open(path, "w") as file:
        json.dump(document, file, indent=2, ensure_ascii=False)
        file.write("\n")


def validate(profile, tables, flags, folder):
    """Rows of the CSV of `ranvier validate`."""
    out = os.path.join(folder, "out.csv")
    command = [RANVIER, "validate", "--summary", "--profile", profile, "--csv", out, *flags]
    for table in tables:
        command += ["--table", table]
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode:
        sys.exit(f"{' '.join(command)}\n{done.stderr}")
    with open(out) as file:
        return list(csv.DictReader(file))


def only_named(spec, tables, flags, start, folder):
    """Tables with the rows that the spec names, and no others."""
    profile = os.path.join(folder, "start.json")
    write_json(profile, profile_of(spec, start))
    names, kept = set(spec["fitted_on"]), []
    found = validate(profile, tables, flags, folder)
    missing = names - {row["plan"] for row in found}
    if missing:
        sys.exit(f"not in the tables: {', '.join(sorted(missing))}")
    for number, table in enumerate(tables):
        lines = {int(row["line"]) for row in found if row["table"] == table and row["plan"] in names}
        with open(table) as file:
            text = file.readlines()
        first = min(int(row["line"]) for row in found if row["table"] == table)
        if lines:
            kept.append(os.path.join(folder, f"table-{number}.csv"))
            with open(kept[-1], "w") as file:
                file.writelines(line for i, line in enumerate(text, 1) if i < first or i in lines)
    return kept


def solve(matrix, right):
    """x of matrix x = right, by elimination with pivots."""
    n = len(right)
    rows = [list(row) + [r] for row, r in zip(matrix, right)]
    for i in range(n):
        pivot = max(range(i, n), key=lambda k: abs(rows[k][i]))
        rows[i], rows[pivot] = rows[pivot], rows[i]
        for k in range(i + 1, n):
            factor = rows[k][i] / rows[i][i]
            rows[k] = [a - factor * b for a, b in zip(rows[k], rows[i])]
    x = [0.0] * n
    for i in reversed(range(n)):
        x[i] = (rows[i][n] - sum(rows[i][k] * x[k] for k in range(i + 1, n))) / rows[i][i]
    return x


def only_with(tables, text, folder):
    """The tables without the rows that do not have `text`: their runs are on other GPUs."""
    kept = []
    for number, table in enumerate(tables):
        with open(table) as file:
            lines = file.readlines()
        header = next(i for i, line in enumerate(lines) if not line.startswith("#") or "GPUs" in line.split(",")[0])
        kept.append(os.path.join(folder, f"{number}-{os.path.basename(table)}"))
        with open(kept[-1], "w") as file:
            file.writelines(line for i, line in enumerate(lines) if i <= header or text in line)
    return kept


class Problem:
    def __init__(self, spec, tables, flags, folder):
        self.spec, self.folder, self.flags = spec, folder, flags
        self.parameters = spec["parameters"]
        self.names = list(self.parameters)
        self.start = {name: self.parameters[name]["start"] for name in self.names}
        self.tables = only_named(spec, tables, flags, self.start, folder)
        self.profile = os.path.join(folder, "trial.json")

    def figures(self, x):
        return {name: self.start[name] * math.exp(value) for name, value in zip(self.names, x)}

    def bounded(self, x):
        def limit(name, value):
            p = self.parameters[name]
            figure = min(max(self.start[name] * math.exp(value), p.get("least", 0) or 1e-300), p.get("most", math.inf))
            return math.log(figure / self.start[name])
        return [limit(name, value) for name, value in zip(self.names, x)]

    def errors(self, x):
        """log(predicted / measured) of seconds, a row."""
        write_json(self.profile, profile_of(self.spec, self.figures(x)))
        return [math.log(1 + float(row["error"])) * (-1 if row["unit"] in ("tflops_per_gpu", "percent_of_peak") else 1)
                for row in validate(self.profile, self.tables, self.flags, self.folder)]

    def priors(self, x):
        return [value / self.parameters[name].get("sigma", 3) for name, value in zip(self.names, x)]

    def cost(self, errors, x):
        return sum(2 * (math.sqrt(1 + (e / RUN_SIGMA) ** 2) - 1) for e in errors) + sum(p * p for p in self.priors(x))

    def step(self, x, errors, damping):
        """Gauss and Newton's step, weighted and damped."""
        n = len(x)
        slopes = []
        for i in range(n):
            moved = list(x)
            moved[i] -= STEP
            moved = self.bounded(moved)
            by = moved[i] - x[i] or -STEP
            slopes.append([(a - b) / by for a, b in zip(self.errors(moved), errors)])
        weights = [1 / RUN_SIGMA ** 2 / math.sqrt(1 + (e / RUN_SIGMA) ** 2) for e in errors]
        matrix = [[sum(w * a * b for w, a, b in zip(weights, slopes[i], slopes[j])) for j in range(n)] for i in range(n)]
        right = [-sum(w * a * e for w, a, e in zip(weights, slopes[i], errors)) for i in range(n)]
        for i, name in enumerate(self.names):
            prior = 1 / self.parameters[name].get("sigma", 3) ** 2
            matrix[i][i] = (matrix[i][i] + prior) * (1 + damping) + 1e-9
            right[i] -= prior * x[i]
        return solve(matrix, right)

    def fit(self, rounds):
        x, damping = [0.0] * len(self.names), 0.01
        errors = self.errors(x)
        cost = self.cost(errors, x)
        for number in range(rounds):
            step = self.step(x, errors, damping)
            for scale in (1, 0.5, 0.25, 0.1):
                trial = self.bounded([a + scale * max(-0.7, min(0.7, b)) for a, b in zip(x, step)])
                trial_errors = self.errors(trial)
                trial_cost = self.cost(trial_errors, trial)
                if trial_cost < cost:
                    break
            else:
                break
            gain, x, errors, cost = cost - trial_cost, trial, trial_errors, trial_cost
            mean = sum(abs(math.expm1(e)) for e in errors) / len(errors)
            print(f"round {number + 1}: mean |error| of the {len(errors)} runs {100 * mean:.2f} %, cost {cost:.3f}", flush=True)
            if gain < 1e-3 * cost:
                break
        return self.figures(x)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("spec")
    parser.add_argument("--table", action="append", required=True)
    parser.add_argument("--out", required=True)
    parser.add_argument("--only", metavar="TEXT", default="", help="rows with this text, such as a GPU's name, are the tables'")
    parser.add_argument("--rounds", type=int, default=8)
    known, flags = parser.parse_known_args()
    with open(known.spec) as file:
        spec = json.load(file)
    with tempfile.TemporaryDirectory() as folder:
        figures = {}
        if spec["parameters"]:
            tables = only_with(known.table, known.only, folder)
            figures = Problem(spec, tables, flags, folder).fit(known.rounds)
    write_json(known.out, profile_of(spec, figures))
    for name, figure in figures.items():
        print(f"{name} {figure:.4g}")


if __name__ == "__main__":
    main()
