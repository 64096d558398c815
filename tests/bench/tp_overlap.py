#!/usr/bin/python3
"""Products of two tensor shards in pieces (`--tp-overlap`): how much of its all-reduce each hides, over a link (`--net-link`) that
is so fast that the all-reduce of a block's last product takes as long as that product. Measured, and predicted from a profile of
this machine, by the same reading of both worlds' traces: an all-reduce is exposed while a rank's compute lane waits for it.
Whole products and products in pieces take turns. The goal is 70 % hidden with 4 pieces, whose closed form is 75 %.

    tests/bench/tp_overlap.py [--runs N] [--pieces N] [--profile FILE]      (make bench-tp-overlap RUNS=5)
"""
import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(HERE, "..", "cli"))
import ranvier
import text

LAYERS, WIDTH, HEADS, LENGTH, MICRO_BATCHES, STEPS = 4, 512, 8, 256, 4, 8
MESSAGE = 4 * LENGTH * WIDTH  # bytes of what shards add up, all of which cross a link of two ranks
SHAPE = ["--micro-batch-size", 1, "--tp", 2, "--schedule", "1f1b"]
# Of each block, in the order in which they run; the last one's rate is the link's.
PRODUCTS = {"forward": ("attention's output", "MLP's output"), "backward": ("MLP's input", "attention's input")}
WARM_UP = 2  # batches that are not read


def plan_of(pieces, rate):
    return [*SHAPE, "--batch-size", MICRO_BATCHES, *(["--tp-overlap", pieces] if pieces > 1 else []), *(["--net-link", f"{rate:.0f}B/s"] if rate else [])]


def train(folder, pieces, rate):
    trace = os.path.join(folder, "measured.json")
    environment = dict(os.environ, OMPI_ALLOW_RUN_AS_ROOT="1", OMPI_ALLOW_RUN_AS_ROOT_CONFIRM="1")
    command = ["mpirun", "-n", "2", "--bind-to", "core", os.path.join(ranvier.BIN, "ranvier"), "train", os.path.join(folder, "model.json"), *plan_of(pieces, rate),
               "--data", os.path.join(folder, "text.txt"), "--steps", STEPS, "--threads", 1, "--validation-fraction", 0, "--trace", trace]
    done = subprocess.run([str(word) for word in command], env=environment, capture_output=True, text=True)
    if done.returncode:
        sys.exit(f"tp_overlap: {done.stderr}")
    return trace


def simulate(folder, profile, pieces, rate):
    trace = os.path.join(folder, "predicted.json")
    status, _, err = ranvier.run(["simulate", os.path.join(folder, "model.json"), *plan_of(pieces, rate), "--precision", "fp32", "--gpus", 2, "--profile", profile,
                                  "--platform", "local", "--trace", trace])
    if status:
        sys.exit(f"tp_overlap: {err}")
    return trace


def passes(path, skipped):
    """Of each pass of rank 0: its direction, and when its compute operations began and ended, in order."""
    found = {}
    for event in json.load(open(path))["traceEvents"]:
        what = event.get("args", {})
        if event.get("ph") == "X" and event["pid"] == 0 and what["kind"] in PRODUCTS and what["batch"] >= skipped:
            found.setdefault((what["batch"], what["micro_batch"], what["kind"]), []).append((event["ts"], event["ts"] + event["dur"]))
    return [(direction, sorted(computed)) for (_, _, direction), computed in found.items()]


def products(path, pieces, skipped):
    """Seconds of each product of a block, where it is in pieces, and exposed of its sum: medians."""
    times = {}
    for direction, computed in passes(path, skipped):
        # Behind the embedding's sum, or the head's. What a backward computes beside the last piece's sum is one operation more.
        beside = direction == "backward" and pieces > 1
        first = pieces + beside if direction == "backward" else 1
        for n in range(2 * LAYERS):
            at = range(first + n * (pieces + beside), first + (n + 1) * (pieces + beside))
            waits = sum(computed[s + 1][0] - computed[s][1] for s in at)
            made = sum(computed[s][1] - computed[s][0] for s in at[1:pieces])  # the first also has what is before the product
            name = f"{direction}, {PRODUCTS[direction][n % 2]}"
            product, exposed = times.setdefault(name, ([], []))
            product.append(made * pieces / max(1, pieces - 1))
            exposed.append(waits)
    return {name: tuple(1e-6 * statistics.median(values) for values in both) for name, both in times.items()}


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--runs", type=int, default=5)
    parser.add_argument("--pieces", type=int, default=4)
    parser.add_argument("--profile", help="of this machine and this model; default: measured now")
    a = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        text.write(os.path.join(folder, "text.txt"))
        model = os.path.join(folder, "model.json")
        with open(model, "w") as file:
            json.dump({"n_layer": LAYERS, "n_embd": WIDTH, "n_head": HEADS, "vocab_size": 256, "n_positions": LENGTH, "tie_word_embeddings": True}, file)
        profile = a.profile or os.path.join(folder, "profile.json")
        if not a.profile:
            status, _, err = ranvier.run(["calibrate", "--model", model, "--micro-batch-size", 1, "--tp", "1,2", "--ranks", 2, "--out", profile], timeout=1800)
            if status:
                sys.exit(f"tp_overlap: {err}")
        last = f"forward, {PRODUCTS['forward'][1]}"
        rate = MESSAGE / products(train(folder, a.pieces, 0), a.pieces, WARM_UP)[last][0]
        runs = [(products(train(folder, 1, rate), 1, WARM_UP), products(train(folder, a.pieces, rate), a.pieces, WARM_UP)) for _ in range(a.runs)]
        predicted = products(simulate(folder, profile, 1, rate), 1, 0), products(simulate(folder, profile, a.pieces, rate), a.pieces, 0)
        print(f"link {rate / 1e6:.0f} MB/s, {a.pieces} pieces; milliseconds: medians of {a.runs} runs; hidden: least, median, most")
        for name in runs[0][0]:
            whole, exposed, product = (1e3 * statistics.median(run[i][name][j] for run in runs) for i, j in ((0, 1), (1, 1), (1, 0)))
            hidden = sorted(1 - run[1][name][1] / run[0][name][1] for run in runs)
            print(f"{name + ':':32} product {product:.2f}, its sum {whole:.2f}, of which exposed in pieces {exposed:.2f}: hidden "
                  f"{100 * hidden[0]:.0f} {100 * statistics.median(hidden):.0f} {100 * hidden[-1]:.0f} %; predicted "
                  f"{100 * (1 - predicted[1][name][1] / predicted[0][name][1]):.0f} % of {1e3 * predicted[0][name][1]:.2f}", flush=True)


if __name__ == "__main__":
    main()
