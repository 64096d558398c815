#!/usr/bin/python3
"""Models of fused causal attention, forward and backward, from measured times: what a profile that was written by hand says of
it until ranvier calibrate has measured the GPU.

    calibrate/fit_attention.py TABLE.csv --peak 312e12 --bandwidth 1616e9 --processors 108 [--half-k 28]
        [--training TRAINING.csv --gpu NAME[,NAME] [--ratio]]

TABLE has a line a time of forward: batch, seq_len, heads, kv_heads, head_dim, seconds (bf16 or fp16). TRAINING has kernel,
pass ("forward", "backward"), gpu, batch, m (the sequence), heads, kv_heads, qk_head_dim, v_head_dim, seconds: kernels as
training runs them. The formula is calibrate/profile/model.h's, and flops and bytes are models/kernels/kinds.c's.

Forward: efficiency, half_m, half_k and overhead_seconds are fitted to the rows of the table in which every head has keys of
its own, by least absolute errors of the logarithm; a processor works on tiles of 64 rows. With --half-k that figure is given:
a table of one head size says nothing of it. With TRAINING, the efficiencies of forward and backward are then chosen so that
the median ratio to its rows of the GPUs called NAME is 1. With --ratio too they are other GPUs, and say only what part of forward's
rate backward reaches (rows of 32 heads and more, which fill a GPU).

Prints the models and their errors: the median, and the 90th percentile, which over the normal distribution's 1.645 is the
model's "error" (of several sources, the root of the sum of squares)."""
import argparse
import csv
import json
import math
import sys

TILE = 64
FULL = 32  # sequences x heads


def quantile(values, q):
    values = sorted(values)
    return values[min(len(values) - 1, int(q * len(values)))]


def flops(row, backward):
    return row["batch"] * row["m"] * (row["m"] + 1) / 2 * ((10 if backward else 4) * row["k"] + (7 if backward else 5))


def seconds(model, row, machine, backward=False):
    """calibrate/profile/model.h, of a row."""
    elements = (4 if backward else 2) * (row["batch"] + row["kv_batch"])
    tiles = row["batch"] * math.ceil(row["m"] / TILE)
    wave = math.ceil(tiles / machine.processors) * machine.processors / tiles
    pad = math.ceil(row["m"] / TILE) * TILE / row["m"]
    compute = flops(row, backward) / machine.peak * pad * wave * (1 + model["half_m"] / row["m"]) * (1 + model["half_k"] / row["k"])
    statistics = 4 * (3 if backward else 1) * row["batch"] * row["m"]
    memory = (2 * elements * row["m"] * row["k"] + statistics) / machine.bandwidth
    return model["overhead_seconds"] + max(compute, memory) / model["efficiency"]


def read_table(path):
    with open(path) as file:
        return [{"batch": int(r["batch"]) * int(r["heads"]), "kv_batch": int(r["batch"]) * int(r["kv_heads"]),
                 "m": int(r["seq_len"]), "k": int(r["head_dim"]), "seconds": float(r["seconds"])} for r in csv.DictReader(file)]


def read_training(path, gpus):
    with open(path) as file:
        return [{"batch": int(r["batch"]) * int(r["heads"]), "kv_batch": int(r["batch"]) * int(r["kv_heads"]), "m": int(r["m"]),
                 "k": (int(r["qk_head_dim"]) + int(r["v_head_dim"])) / 2, "seconds": float(r["seconds"]),
                 "backward": r["pass"] == "backward", "key": tuple(v for k, v in r.items() if k not in ("pass", "seconds"))}
                for r in csv.DictReader(file) if r["kernel"] == "attention" and r["gpu"] in gpus]


def loss(model, rows, machine):
    return sum(abs(math.log(seconds(model, row, machine) / row["seconds"])) for row in rows)


def fit(model, free, rows, machine):
    """Nelder and Mead's simplex (1965) in the logarithms of the free figures, begun anew where it ended."""
    def with_figures(x):
        return {**model, **{name: model[name] * math.exp(value) for name, value in zip(free, x)}}

    def cost(x):
        return loss(with_figures(x), rows, machine)

    best = [0.0] * len(free)
    for size in 0.5, 0.5, 0.2, 0.2, 0.05:
        points = [best] + [[v + size * (i == k) for i, v in enumerate(best)] for k in range(len(free))]
        simplex = sorted((cost(x), x) for x in points)
        while simplex[-1][0] - simplex[0][0] > 1e-6 * simplex[0][0] + 1e-12:
            centre = [sum(x[i] for _, x in simplex[:-1]) / len(free) for i in range(len(free))]

            def moved(by):
                x = [c + by * (c - w) for c, w in zip(centre, simplex[-1][1])]
                return cost(x), x

            trial = moved(1)
            if trial[0] < simplex[0][0]:
                trial = min(trial, moved(2))
            elif trial[0] >= simplex[-2][0]:
                trial = min(trial, moved(0.5), moved(-0.5))
            if trial[0] < simplex[-1][0]:
                simplex = sorted(simplex[:-1] + [trial])
            else:
                near = simplex[0][1]
                simplex = sorted([simplex[0]] + [(cost(x), x) for x in
                                                 ([(a + b) / 2 for a, b in zip(near, x)] for _, x in simplex[1:])])
        best = simplex[0][1]
    return with_figures(best)


def errors(model, rows, machine, backward=False):
    return [abs(seconds(model, row, machine, backward) / row["seconds"] - 1) for row in rows]


def say(what, values):
    print(f"{what}: {len(values)} rows, median error {100 * quantile(values, 0.5):.1f} %, 90th percentile "
          f"{100 * quantile(values, 0.9):.1f} %", file=sys.stderr)
    return quantile(values, 0.9) / 1.645


def to_level(model, rows, machine, backward):
    """The model with the efficiency at which its median ratio to the rows is 1."""
    for _ in range(20):
        ratio = quantile([seconds(model, row, machine, backward) / row["seconds"] for row in rows], 0.5)
        model = {**model, "efficiency": model["efficiency"] * ratio}
    return model


def backward_ratios(rows):
    """Rate of backward over rate of forward, of shapes that have both."""
    forward = {row["key"]: row for row in rows if not row["backward"]}
    return [flops(row, True) / row["seconds"] / (flops(row, False) / forward[row["key"]]["seconds"])
            for row in rows if row["backward"] and row["key"] in forward and row["batch"] >= FULL]


def rounded(model, error, machine):
    fitted = {name: float(f"{value:.3g}") for name, value in {**model, "error": error}.items()}
    return {"flops_per_second": machine.peak, "bytes_per_second": machine.bandwidth, "tile_m": TILE,
            "processors": machine.processors, **fitted}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("table")
    for name in "--peak", "--bandwidth":
        parser.add_argument(name, type=float, required=True)
    parser.add_argument("--processors", type=int, required=True)
    parser.add_argument("--half-k", type=float)
    parser.add_argument("--training")
    parser.add_argument("--gpu", default="")
    parser.add_argument("--ratio", action="store_true")
    machine = parser.parse_args()
    table = read_table(machine.table)
    own_keys = [row for row in table if row["batch"] == row["kv_batch"]]
    start = {"efficiency": 0.5, "half_m": 500.0, "half_k": machine.half_k or 30.0, "overhead_seconds": 1e-5}
    free = [name for name in start if name != "half_k" or not machine.half_k]
    forward = fit(start, free, own_keys, machine)
    print(f"table: efficiency {forward['efficiency']:.3g}", file=sys.stderr)
    shape = say("forward, each head its own keys", errors(forward, own_keys, machine))
    say("forward, all rows", errors(forward, table, machine))
    backward, error, backward_error = forward, shape, shape
    if machine.training:
        rows = read_training(machine.training, machine.gpu.split(","))
        ratios = backward_ratios(rows)
        ratio, low, high = (quantile(ratios, q) for q in (0.5, 0.1, 0.9))
        print(f"backward's rate over forward's: {ratio:.2f}, 10th percentile {low:.2f}, 90th {high:.2f}, {len(ratios)} rows",
              file=sys.stderr)
        if machine.ratio:
            backward = {**forward, "efficiency": forward["efficiency"] * ratio}
            backward_error = math.hypot(shape, math.log(high / low) / 2 / 1.645)
        else:
            passes = [[row for row in rows if row["backward"] == backward_pass] for backward_pass in (False, True)]
            forward, backward = (to_level(forward, passes[p], machine, bool(p)) for p in (0, 1))
            error = math.hypot(shape, say("forward in training", errors(forward, passes[0], machine)))
            backward_error = math.hypot(shape, say("backward in training", errors(backward, passes[1], machine, True)))
    print(json.dumps({"attention": {"model": rounded(forward, error, machine)},
                      "attention_backward": {"model": rounded(backward, backward_error, machine)}}, indent=2))


if __name__ == "__main__":
    main()
