#!/usr/bin/python3
"""`ranvier compare` of a timeline with a trace of PyTorch's profiler: where the time of a step goes is counted here again, from
the two files; and both in one file are all that was in either."""
import csv
import gzip
import json
import math
import os
import re
import sys
import tempfile

FOLDER = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, FOLDER)
import ranvier
import trace as traces

PHASES = ("forward", "backward", "optimizer", "in no kernel")
FIRST_THREAD = 10000000  # of a rank, in a timeline: its compute
KINDS = ("products", "attention", "norms", "activations", "embeddings", "loss", "elementwise, copies", "no kernel of ours")
GAUGE = "floating-point operations of products"


def compare(*arguments):
    status, out, err = ranvier.run(["compare", *arguments])
    if status:
        raise SystemExit(f"compare: {err}")
    return out


def rows(timeline, path, *more):
    return {row["what"]: (row["predicted"], row["measured"]) for row in json.loads(compare(timeline, path, "--json", *more))}


def predicted_timeline(family, folder):
    """Of the traced steps by their own profile, and the median of the prediction's report."""
    profile = traces.calibrate([traces.fixture(f"trace_{family}.json.gz")], family, folder)[3]
    timeline = os.path.join(folder, "timeline.json")
    return timeline, traces.simulate(family, profile, folder, traces.SIZE, traces.LENGTH, "--trace", timeline)


def events_of(path):
    with (gzip.open if path.endswith(".gz") else open)(path) as file:
        return json.load(file)["traceEvents"]


def predicted_optimizer(timeline):
    return sum(e["dur"] for e in events_of(timeline) if e["ph"] == "X" and e["tid"] == FIRST_THREAD and
               e["args"]["kind"] in ("norm", "update", "clear", "check")) * traces.US


def check_table(tap, name, table, seconds, timeline, steps):
    tap.ok(math.isclose(table["step"][0], seconds, rel_tol=1e-6), f"{name}: the timeline's step is the report's batch", (table["step"], seconds))
    tap.ok(math.isclose(table["step"][1], sum(steps) / len(steps), rel_tol=1e-6), f"{name}: a measured step is the mean of the annotations",
           (table["step"], steps))
    for side, which in enumerate(("predicted", "measured")):
        phases, kinds = sum(table[p][side] for p in PHASES), sum(table[k][side] for k in KINDS)
        tap.ok(math.isclose(phases, table["step"][side], rel_tol=1e-6), f"{name}: the {which} phases are the step", table)
        tap.ok(math.isclose(kinds, table["forward"][side] + table["backward"][side], rel_tol=1e-6),
               f"{name}: the {which} kinds of work are forward and backward", table)
    tap.ok(math.isclose(table["optimizer"][0], predicted_optimizer(timeline), rel_tol=1e-4), f"{name}: the optimizer is the timeline's", table)


def check_work(tap, family, table):
    """6 operations a token and a parameter of the linear products; what follows a fused product is little beside it."""
    layers, block, head = traces.linear_layers(family, traces.config(family))
    closed = 6 * traces.N * (layers * sum(i * o for i, o in block) + head[0] * head[1])
    tap.ok(math.isclose(table[GAUGE][1], closed, rel_tol=1e-9), f"{family}: measured products are the model's", (table[GAUGE], closed))
    tap.ok(closed <= table[GAUGE][0] < 1.05 * closed, f"{family}: predicted ones are as many", (table[GAUGE], closed))


def check_gpu(tap, family, timeline, seconds, folder):
    """Kernels a hundredth as long as their operators: they are what phases have, and the step is the host's."""
    path, part = os.path.join(folder, "gpu.json"), 0.01
    source = traces.read_trace(traces.fixture(f"trace_{family}.json.gz"))
    gpu, inner = traces.of_gpu(source, part)
    with open(path, "w") as file:
        json.dump(gpu, file)
    table = rows(timeline, path)
    steps = [(e["ts"], e["ts"] + e["dur"]) for e in source["traceEvents"] if e["name"].startswith("ProfilerStep#")]
    check_table(tap, f"{family} on a GPU", table, seconds, timeline, [(b - a) * traces.US for a, b in steps])
    within = sum(part * e["dur"] * traces.US for e in inner if any(a <= e["ts"] < b for a, b in steps)) / traces.STEPS
    kernels = sum(table[p][1] for p in PHASES[:3])
    tap.ok(0.8 * within < kernels <= within * (1 + 1e-9), f"{family} on a GPU: phases are its kernels, views and allocations left out", (kernels, within))
    tap.ok("on NVIDIA H100" in compare(timeline, path), f"{family} on a GPU: its name is said")


def check_merged(tap, family, timeline, path, folder):
    both = os.path.join(folder, "both.json")
    compare(timeline, path, "--merge", both)
    merged, ours, theirs = events_of(both), events_of(timeline), events_of(path)
    tap.ok(len(merged) == len(ours) + len(theirs), f"{family}: both in one file are all events of either", (len(merged), len(ours), len(theirs)))
    first, rest = merged[:len(ours)], merged[len(ours):]
    tap.ok(not {e["pid"] for e in first if "pid" in e} & {e["pid"] for e in rest if "pid" in e}, f"{family}: no process is of both")
    named = [e["args"]["name"] for e in first if e["name"] == "process_name"]
    tap.ok(named == ["predicted rank 0 (stage 0, replica 0)"], f"{family}: the prediction's process says that it is one", named)
    moved = [a["ts"] - b["ts"] for a, b in zip(rest, theirs) if "ts" in b]
    tap.ok(max(moved) - min(moved) < 0.01, f"{family}: all of the trace is moved by as much", (min(moved), max(moved)))
    durations = [a["dur"] == b["dur"] for a, b in zip(merged, ours + theirs) if "dur" in b]
    tap.ok(all(durations) and durations, f"{family}: nothing lasts longer or shorter")
    step = min(e["ts"] for e in rest if e["name"].startswith("ProfilerStep#"))
    batch = min(e["ts"] for e in first if e["ph"] == "X")
    tap.ok(abs(step) < 0.01 and abs(batch) < 1, f"{family}: the batch begins with the first step, at 0", (step, batch))
    flows = {(e.get("cat"), e["id"]) for e in first if e["ph"] in "sf"} & {(e.get("cat"), e["id"]) for e in rest if e["ph"] in "sf"}
    tap.ok(not flows, f"{family}: no arrow goes from one to the other", flows)


def check_outputs(tap, family, timeline, path, folder):
    table = os.path.join(folder, "table.csv")
    said = compare(timeline, path, "--csv", table)
    with open(table, newline="") as file:
        listed = {row["what"]: row for row in csv.DictReader(file)}
    tap.ok(list(listed) == ["step", *PHASES, "collectives", *KINDS, GAUGE], f"{family}: the CSV has every row", list(listed))
    shown = re.findall(r"^ +([a-z, ]+?) {2,}", said, re.M)
    tap.ok([row for row in listed if float(listed[row]["predicted"]) or float(listed[row]["measured"])][:-1] ==
           [row for row in shown if row in listed], f"{family}: the table has those that are not 0", said)
    tap.ok("not the same work" not in said, f"{family}: the same work is not called another", said)


def check_other_work(tap, family, path, folder):
    profile, longer = os.path.join(folder, "profile.json"), os.path.join(folder, "longer.json")
    traces.simulate(family, profile, folder, 2 * traces.SIZE, traces.LENGTH, "--trace", longer)
    tap.ok("not the same work" in compare(longer, path), f"{family}: twice as many tokens are said to be other work")


def main():
    tap = ranvier.Tap()
    for family in ("gpt2", "llama"):
        with tempfile.TemporaryDirectory() as folder:
            path = traces.fixture(f"trace_{family}.json.gz")
            timeline, seconds = predicted_timeline(family, folder)
            table = rows(timeline, path)
            check_table(tap, family, table, seconds, timeline, traces.step_seconds(traces.read_trace(path)))
            check_work(tap, family, table)
            check_gpu(tap, family, timeline, seconds, folder)
            check_merged(tap, family, timeline, path, folder)
            check_outputs(tap, family, timeline, path, folder)
            check_other_work(tap, family, path, folder)
    tap.end()


if __name__ == "__main__":
    main()
