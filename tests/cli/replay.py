#!/usr/bin/python3
"""Invariant of the house: given the durations of a real run, the simulated run makes the same decisions in the same
order on every rank. Real runs are recorded, then replayed inside SimGrid by the same core."""
import csv
import json
import os
import re
import sys
import tempfile

sys.path.insert(0, os.path.dirname(__file__))
import ranvier
import text

RUNS = [(2, 1, "axonn", 16), (3, 1, "axonn", 18), (3, 2, "axonn", 24), (4, 1, "axonn", 16), (4, 1, "gpipe", 12),
        (4, 1, "1f1b", 12), (1, 3, "axonn", 12)]

COMPUTE = ("forward", "backward", "norm", "check overflow", "update", "clear")
OFFLOAD = ["--precision", "mixed", "--offload", "--bucket-params", 30000, "--allreduce-buckets", 1]
STAGED = ["--precision", "mixed", "--messages", "staged", "--allreduce", "staged"]
# What else is recorded and replayed: pp, dp, schedule, batch, options.
MIXED = [(1, 2, "axonn", 8, OFFLOAD), (2, 1, "axonn", 16, OFFLOAD + ["--clip", 0]), (2, 2, "gpipe", 24, OFFLOAD),
         (2, 1, "gpipe", 12, ["--precision", "mixed", "--offload-activations"]),
         (2, 1, "axonn", 12, OFFLOAD + ["--recompute", "full"]),
         (2, 2, "1f1b", 12, OFFLOAD + ["--overlap-allreduce", "--clip", "0"]),
         (1, 2, "axonn", 12, ["--precision", "mixed", "--zero", "1"]), (2, 2, "1f1b", 12, OFFLOAD + ["--zero", "1", "--clip", "0"]),
         (1, 2, "axonn", 12, OFFLOAD + ["--zero", "1", "--overlap-allreduce"]), (2, 2, "1f1b", 12, STAGED + OFFLOAD[2:] + ["--zero", "1", "--overlap-allreduce", "--clip", "0"]),
         (1, 2, "axonn", 12, ["--precision", "mixed", "--zero", "1", "--allreduce", "staged"]), (3, 1, "axonn", 18, STAGED),
         (1, 2, "axonn", 12, ["--precision", "mixed", "--zero", "3"]), (1, 3, "gpipe", 12, OFFLOAD + ["--zero", "3", "--gather-each", "batch"]),
         (2, 2, "axonn", 12, OFFLOAD + ["--zero", "2"]), (1, 4, "1f1b", 12, OFFLOAD + ["--zero", "3", "--shard-replicas", "2", "--offload-parameters"]),
         (1, 2, "1f1b", 12, ["--precision", "mixed", "--zero", "3", "--unit-layers", "3", "--prefetch", "0"]),
         (3, 1, "1f1b", 12, ["--precision", "mixed", "--p2p", "blocking"]), (2, 1, "gpipe", 12, STAGED + ["--p2p", "blocking"]),
         (2, 2, "reverse-first-k", 12, OFFLOAD + ["--overlap-allreduce", "--deferred-layers", "1"]), (3, 1, "fast-forward", 12, OFFLOAD),
         (3, 1, "zero-bubble", 12, OFFLOAD), (2, 2, "zero-bubble", 12, STAGED + ["--p2p", "blocking"]),
         (2, 2, "gpipe", 12, STAGED + OFFLOAD + ["--offload-activations"]),
         (2, 1, "interleaved", 8, ["--precision", "mixed", "--virtual-stages", 3]), (3, 2, "interleaved", 12, STAGED + OFFLOAD[2:] + ["--virtual-stages", 2, "--overlap-allreduce"]),
         (2, 2, "interleaved", 16, OFFLOAD + ["--offload-activations", "--virtual-stages", 2]),
         (2, 2, "interleaved", 8, OFFLOAD + ["--offload-activations", "--virtual-stages", 5]), (3, 1, "interleaved", 9, ["--precision", "mixed", "--virtual-stages", 3])]


def train_mixed(folder, trace, ranks, *more):
    """Records a run's last three steps; returns its status, what it says, which of them were skipped for an overflow
    and which were not, from 0."""
    log = os.path.join(folder, "log.csv")
    status, _, err = ranvier.run(["train", *more, "--data", os.path.join(folder, "text.txt"), "--trace", trace, "--log",
                                  log], ranks)
    if status:
        return status, err, [], []
    with open(log) as file:
        rows = list(enumerate(csv.DictReader(file)))[-3:]
    return status, err, *([step for step, row in rows if row["skipped"] == skipped] for skipped in "10")


def decisions(trace, batch):
    """Compute operations of a batch, as the trace has them."""
    return sum(1 for event in json.load(open(trace))["traceEvents"]
               if event.get("ph") == "X" and event["args"]["batch"] == batch and event["args"]["kind"] in COMPUTE)


def replay_mixed(tap, folder):
    trace = os.path.join(folder, "trace.json")
    for pp, dp, schedule, batch, options in ranvier.some(MIXED):
        model = ranvier.deep(folder) if schedule == "interleaved" else "tiny"
        plan = [model, "--pp", pp, "--dp", dp, "--schedule", schedule, "--micro-batch-size", 1, "--batch-size", batch,
                *options]
        name = f"{pp} x {dp} {schedule} {' '.join(map(str, options))}"
        status, err, skipped, updated = train_mixed(folder, trace, pp * dp, *plan, "--steps", 6)
        if not updated:
            tap.ok(False, f"{name}: a real run is recorded", f"{err}\nskipped: {skipped}")
            continue
        status, out, err = ranvier.run(["simulate", *plan, "--gpus", pp * dp, "--replay", trace, "--replay-batch",
                                        updated[-1]])
        found = re.search(r"decisions: (\d+) of (\d+) identical", out)
        expected = decisions(trace, updated[-1])
        if "staged" in options:
            route = options.index("staged")
            auto = [option for option in plan if option not in ("--messages", "--allreduce", "staged")]
            again = ranvier.run(["simulate", *auto, "--gpus", pp * dp, "--replay", trace, "--replay-batch", updated[-1]])
            direct = [*plan, options[route - 1], "direct"]
            other = ranvier.run(["simulate", *direct, "--gpus", pp * dp, "--replay", trace, "--replay-batch", updated[-1]])
            tap.ok(again[0] == 0 and again[1] == out and other[0] == 2 and f"the trace is of a run with {options[route - 1]} staged"
                   in other[2], f"{name}: the routes are the trace's, another one is refused", again[1] + other[2])
        tap.ok(status == 0 and found and found[1] == found[2] == str(expected) and expected > 2 * pp * batch,
               f"{name}: the replay decides {expected} times as the real run did", out + err)
    plan = ["tiny", "--dp", 2, "--micro-batch-size", 1, "--batch-size", 8, *OFFLOAD]
    status, err, skipped, updated = train_mixed(folder, trace, 2, *plan, "--steps", 6, "--inject-overflow", "5:1")
    replays = {batch: ranvier.run(["simulate", *plan, "--gpus", 2, "--replay", trace, "--replay-batch", batch])
               for batch in skipped + updated}
    tap.ok(4 in skipped and updated and all(replays[batch][0] == 0 for batch in updated)
           and all(replays[batch][0] == 2 and "was skipped because a gradient overflowed" in replays[batch][2]
                   for batch in skipped),
           "of a run with an injected overflow every batch is replayed but those that were skipped",
           f"{err}\n{skipped} {updated} {replays}")


def main():
    tap = ranvier.Tap()
    with tempfile.TemporaryDirectory() as folder:
        text.write(os.path.join(folder, "text.txt"))
        for pp, dp, schedule, batch in ranvier.some(RUNS):
            trace = os.path.join(folder, "trace.json")
            plan = ["tiny", "--pp", pp, "--dp", dp, "--schedule", schedule, "--micro-batch-size", 1, "--batch-size",
                    batch]
            status, _, err = ranvier.run(["train", *plan, "--data", os.path.join(folder, "text.txt"), "--steps", 4,
                                          "--trace", trace], pp * dp)
            name = f"{pp} x {dp} {schedule}"
            if status:
                tap.ok(False, f"{name}: a real run is recorded", err)
                continue
            for recorded in (2, 3):
                status, out, err = ranvier.run(["simulate", *plan, "--gpus", pp * dp, "--replay", trace,
                                                "--replay-batch", recorded])
                found = re.search(r"decisions: (\d+) of (\d+) identical", out)
                # Forward and backward of every micro-batch on every rank, each rank's norm and update, and the update of the
                # embedding that first and last stage share.
                expected = 2 * pp * batch + 2 * pp * dp + 2 * dp * (pp > 1)
                tap.ok(status == 0 and found and found[1] == found[2] == str(expected),
                       f"{name}, batch {recorded}: the replay decides {expected} times as the real run did", out + err)
        replay_mixed(tap, folder)
    tap.end()


if __name__ == "__main__":
    main()
