#!/usr/bin/python3
"""Shards in a grid (--tp X,Y,Z), predicted: one along y is --tp T to the bit; what a trace shows of a layer's collectives, and with which
groups, takes what the report says, beside products or not; a sweep takes grids in its list; a training refuses them by name."""
import json
import os
import sys
import tempfile

sys.path.insert(0, os.path.dirname(__file__))
import ranvier

A100 = ["--profile", "a100-datasheet", "--platform", "perlmutter", "--precision", "bf16", "--schedule", "1f1b", "--seq-len", 512]
SIZES = ["--micro-batch-size", 4, "--batch-size", 16]


def simulate(folder, *flags):
    report, trace = (os.path.join(folder, name) for name in ("report.json", "trace.json"))
    status, out, err = ranvier.run(["simulate", "llama3.2-1b", *A100, *SIZES, "--gpus", 8, "--report", report, "--trace", trace, *flags])
    if status:
        return None, None, err
    found = json.load(open(report))
    found.pop("command")
    return found, open(trace).read(), out


def check_row(tap, folder, flags):
    one, other = simulate(folder, "--tp", 4, *flags), simulate(folder, "--tp", "1,4,1", *flags)
    tap.ok(one[0] and one == other, "a grid along y is --tp T: report, trace and what is printed " + " ".join(map(str, flags)), one[2] + other[2])


def exposed(events):
    """Seconds in which a rank's shards are together, and the rank computes nothing."""
    changes = []
    for e in events:
        together = e["args"]["kind"] == "tensor"
        if together or e["args"]["kind"] in ("forward", "backward"):
            changes += [(e["ts"], 1, together), (e["ts"] + e["dur"], -1, together)]
    under_way, seconds, since = {True: 0, False: 0}, 0, 0
    for at, change, together in sorted(changes):
        seconds += at - since if under_way[True] and not under_way[False] else 0
        under_way[together] += change
        since = at
    return seconds / 1e6


def check_groups(tap, folder, flags):
    report, trace, said = simulate(folder, "--tp", "2x2x2", *flags)
    name = "a trace has the collectives of each axis " + " ".join(map(str, flags))
    if not report:
        return tap.ok(False, name, said)
    events = [e for e in json.loads(trace)["traceEvents"] if e["ph"] == "X"]
    groups = {e["args"].get("group", "y") for e in events if e["args"]["kind"] == "tensor"}
    seconds = exposed([e for e in events if e["pid"] == 0])
    tap.ok(groups == {"x", "y", "z"} and abs(seconds / report["phases"]["tensor_seconds"] - 1) < 1e-3 and report["plan"]["tp"] == "2x2x2",
           name, f"{groups} {seconds} {report['phases']} {report['plan']['tp']}")


def check_sweep(tap):
    status, out, err = ranvier.run(["sweep", "llama3.2-1b", *A100, *SIZES, "--gpus", 8, "--tp", "4,2x2x1,2x1x4", "--pp", 1, "--offload", "no", "--recompute", "none"])
    last = [line for line in out.splitlines() if "ranvier simulate" in line]
    tap.ok(status == 0 and last and all(word in out for word in ("tp 4", "tp 2x2x1", "tp 2x1x4")), "a sweep takes grids in its list", out + err)


def main():
    tap = ranvier.Tap()
    with tempfile.TemporaryDirectory() as folder:
        for flags in (["--dp", 2], ["--pp", 2, "--recompute", "full"]):
            check_row(tap, folder, flags)
        for flags in (["--grid-overlap", "none"], ["--recompute", "full"]):
            check_groups(tap, folder, flags)
        check_sweep(tap)
        status, _, err = ranvier.run(["train", "tiny", "--data", __file__, "--tp", "2,2,1", *SIZES, "--schedule", "1f1b"], ranks=4)
        tap.ok(status == 2 and "--tp X,Y,Z with X or Z above 1 is simulated, not built for training" in err, "a training refuses a grid by name", err)
    tap.end()


main()
