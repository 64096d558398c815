#!/usr/bin/python3
"""Predicted against measured: calibrates this machine, trains configurations (none of whose batch times any fit has
seen) and predicts each with the profile. Two passes over all of them in turn, so that a machine that drifts does so for
all. Exit status 1 if the median error of the time per batch is above 5 % or the worst above 12 %, or if a byte of memory
differs.

    tests/bench/prediction.py [--suite fp32|offload] [--out FOLDER] [--steps K]
    (make bench-prediction, make bench-prediction-offload)
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
MIXED = ["--precision", "mixed"]
OFFLOAD = [*MIXED, "--offload"]
VARIANTS = [("mixed", MIXED), ("unclipped", [*OFFLOAD, "--clip", 0]),
            ("activations", [*OFFLOAD, "--offload-activations", "--schedule", "gpipe", "--recompute", "full"])]


def grid(pp, dp, micro, batch):
    return ["--pp", pp, "--dp", dp, "--micro-batch-size", micro, "--batch-size", batch]


def configurations(suite):
    """Yields (name, plan, model, ranks). offload: every plan of fp32 with offloading, and for the middle model others:
    mixed precision without offloading, without clipping, with offloaded and recomputed activations."""
    for model in MODELS:
        for pp, dp in GRIDS:
            for micro, batch in BATCHES:
                name = f"{os.path.basename(model).split('.')[0]}-{pp}x{dp}-b{micro}-{batch}"
                if suite == "fp32":
                    yield name, grid(pp, dp, micro, batch), model, pp * dp
                else:
                    yield name + "-offload", grid(pp, dp, micro, batch) + OFFLOAD, model, pp * dp
    for variant, flags in VARIANTS if suite == "offload" else []:
        for pp, dp in GRIDS:
            yield f"demo-{pp}x{dp}-{variant}", grid(pp, dp, 2, 24) + flags, "demo", pp * dp


def check(status, what, err):
    if status:
        sys.exit(f"{what} failed:\n{err}")


def calibrate(profile, suite):
    sizes = ",".join(sorted({str(micro) for micro, _ in BATCHES}))
    more = ["--precision", "mixed", "--offload"] if suite == "offload" else []
    status, out, err = ranvier.run(["calibrate", "--ranks", 2, "--model", ",".join(MODELS), "--micro-batch-size", sizes,
                                    "--pp", "1,2", *more, "--out", profile], timeout=900)
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


def predict(folder, suite, profile, measured, *more):
    """Predicts every configuration; returns the pairs of reports to compare."""
    pairs = []
    for name, plan, model, ranks in configurations(suite):
        predicted = os.path.join(folder, f"{name}-predicted{''.join(more)}.json")
        status, _, err = ranvier.run(["simulate", model, *plan, "--gpus", ranks, "--profile", profile, "--platform",
                                      "local", *more, "--report", predicted])
        check(status, "simulate " + name, err)
        pairs += [path for report in measured[name] for path in (predicted, report)]
    return pairs


def bytes_differ(pairs):
    """Ranks and categories, on the device and the host, whose predicted and measured bytes differ; and how many were
    compared."""
    wrong, compared = [], 0
    for predicted, measured in zip(pairs[::2], pairs[1::2]):
        for mine, theirs in zip(json.load(open(predicted))["ranks"], json.load(open(measured))["ranks"]):
            for space in ("bytes", "host_bytes"):
                for category, count in mine[space].items():
                    compared += 1
                    if theirs[space][category] != count:
                        wrong.append(f"{measured}: rank {mine['rank']} {space} {category} {theirs[space][category]}, "
                                     f"predicted {count}")
    return wrong, compared


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--suite", choices=["fp32", "offload"], default="fp32")
    parser.add_argument("--out", help="default: build/bench/prediction, build/bench/prediction-offload")
    parser.add_argument("--steps", type=int, default=9, help="batches of each run; the first two are not counted")
    arguments = parser.parse_args()
    suite, steps = arguments.suite, arguments.steps
    folder = os.path.abspath(arguments.out or "build/bench/prediction" + ("-offload" if suite == "offload" else ""))
    os.makedirs(folder, exist_ok=True)
    data, profile = os.path.join(folder, "text.txt"), os.path.join(folder, "profile.json")
    text.write(data, 200000)
    calibrate(profile, suite)
    measured = {}
    for part in (1, 2):
        for name, plan, model, ranks in configurations(suite):
            measured.setdefault(name, []).append(train(folder, data, name, plan, model, ranks, steps, part))
    spread = []
    for reports in measured.values():
        seconds = [json.load(open(path))["batch_seconds"]["median"] for path in reports]
        spread.append(abs(seconds[0] - seconds[1]) / min(seconds))
    print(f"{len(spread)} configurations, each run twice; the two passes differ by {100 * statistics.median(spread):.1f} % "
          f"in the median, {100 * max(spread):.1f} % at most\n")
    fits = predict(folder, suite, profile, measured, "--fits-only")
    _, out, err = ranvier.run(["compare", *fits])
    print("Were no shape timed, only fitted (simulate --fits-only):\n" + (out.strip() or err).splitlines()[-1] + "\n")
    pairs = predict(folder, suite, profile, measured)
    status, out, err = ranvier.run(["compare", *pairs, "--plot", os.path.join(folder, "prediction.png"), "--csv",
                                    os.path.join(folder, "prediction.csv"), "--max-median-error", 5,
                                    "--max-worst-error", 12])
    print(out + err)
    wrong, compared = bytes_differ(pairs)
    print(f"memory: {compared} figures (rank x category, device and host), {len(wrong)} differ")
    print("\n".join(wrong[:20]))
    sys.exit(status or len(wrong) > 0)


if __name__ == "__main__":
    main()
