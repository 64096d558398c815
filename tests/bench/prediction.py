#!/usr/bin/python3
"""Predicted against measured: calibrates this machine, trains 18 configurations (none of whose batch times any fit has
seen) and predicts each with the profile. Two passes over all of them in turn, so that a machine that drifts does so for
all. Exit status 1 if the median error of the time per batch is above 5 % or the worst above 12 %.

    tests/bench/prediction.py [--out FOLDER] [--steps K]        (make bench-prediction)
"""
import argparse
import json
import os
import statistics
import subprocess
import sys

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(HERE, "..", "cli"))
import ranvier
import text

MODELS = [os.path.join(HERE, "models", "small.json"), "demo", os.path.join(HERE, "models", "medium.json")]
GRIDS = [(1, 1), (2, 1), (1, 2)]
BATCHES = [(2, 24), (4, 16)]  # micro-batch size, batch size


def configurations():
    for model in MODELS:
        for pp, dp in GRIDS:
            for micro, batch in BATCHES:
                name = f"{os.path.basename(model).split('.')[0]}-{pp}x{dp}-b{micro}-{batch}"
                yield name, ["--pp", pp, "--dp", dp, "--micro-batch-size", micro, "--batch-size", batch], model, pp * dp


def check(status, what, err):
    if status:
        sys.exit(f"{what} failed:\n{err}")


def calibrate(profile):
    sizes = ",".join(sorted({str(micro) for micro, _ in BATCHES}))
    status, out, err = ranvier.run(["calibrate", "--ranks", 2, "--model", ",".join(MODELS), "--micro-batch-size", sizes,
                                    "--pp", "1,2", "--out", profile], timeout=600)
    check(status, "calibrate", err)
    print(out)


def train(folder, data, name, plan, model, ranks, steps, part):
    report = os.path.join(folder, f"{name}-measured-{part}.json")
    environment = dict(os.environ, OMPI_ALLOW_RUN_AS_ROOT="1", OMPI_ALLOW_RUN_AS_ROOT_CONFIRM="1")
    command = ["mpirun", "-n", str(ranks), "--bind-to", "core", os.path.join(ranvier.BIN, "ranvier"), "train", model,
               *map(str, plan), "--data", data, "--steps", str(steps), "--validation-fraction", "0", "--report", report]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=600)
    check(done.returncode, name, done.stderr)
    return report


def predict(folder, profile, measured, *more):
    """Predicts every configuration; returns the pairs of reports to compare."""
    pairs = []
    for name, plan, model, ranks in configurations():
        predicted = os.path.join(folder, f"{name}-predicted{''.join(more)}.json")
        status, _, err = ranvier.run(["simulate", model, *plan, "--gpus", ranks, "--profile", profile, "--platform",
                                      "local", *more, "--report", predicted])
        check(status, "simulate " + name, err)
        pairs += [path for report in measured[name] for path in (predicted, report)]
    return pairs


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--out", default="build/bench/prediction")
    parser.add_argument("--steps", type=int, default=9, help="batches of each run; the first two are not counted")
    folder = os.path.abspath(parser.parse_args().out)
    steps = parser.parse_args().steps
    os.makedirs(folder, exist_ok=True)
    data, profile = os.path.join(folder, "text.txt"), os.path.join(folder, "profile.json")
    text.write(data, 200000)
    calibrate(profile)
    measured = {}
    for part in (1, 2):
        for name, plan, model, ranks in configurations():
            measured.setdefault(name, []).append(train(folder, data, name, plan, model, ranks, steps, part))
    spread = []
    for reports in measured.values():
        seconds = [json.load(open(path))["batch_seconds"]["median"] for path in reports]
        spread.append(abs(seconds[0] - seconds[1]) / min(seconds))
    print(f"{len(spread)} configurations, each run twice; the two passes differ by {100 * statistics.median(spread):.1f} % "
          f"in the median, {100 * max(spread):.1f} % at most\n")
    fits = predict(folder, profile, measured, "--fits-only")
    _, out, err = ranvier.run(["compare", *fits])
    print("Were no shape timed, only fitted (simulate --fits-only):\n" + (out.strip() or err).splitlines()[-1] + "\n")
    status, out, err = ranvier.run(["compare", *predict(folder, profile, measured), "--plot",
                                    os.path.join(folder, "prediction.png"), "--csv",
                                    os.path.join(folder, "prediction.csv"), "--max-median-error", 5,
                                    "--max-worst-error", 12])
    print(out + err)
    sys.exit(status)


if __name__ == "__main__":
    main()
