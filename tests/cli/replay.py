#!/usr/bin/python3
"""Invariant of the house: given the durations of a real run, the simulated run makes the same decisions in the same
order on every rank. Real runs are recorded, then replayed inside SimGrid by the same core."""
import os
import re
import sys
import tempfile

sys.path.insert(0, os.path.dirname(__file__))
import ranvier
import text

RUNS = [(2, 1, "axonn", 16), (3, 1, "axonn", 18), (3, 2, "axonn", 24), (4, 1, "axonn", 16), (4, 1, "gpipe", 12),
        (4, 1, "1f1b", 12), (1, 3, "axonn", 12)]


def main():
    tap = ranvier.Tap()
    with tempfile.TemporaryDirectory() as folder:
        text.write(os.path.join(folder, "text.txt"))
        for pp, dp, schedule, batch in RUNS:
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
                # forward and backward of every micro-batch on every rank, and each rank's norm and update
                expected = 2 * pp * batch + 2 * pp * dp
                tap.ok(status == 0 and found and found[1] == found[2] == str(expected),
                       f"{name}, batch {recorded}: the replay decides {expected} times as the real run did", out + err)
    tap.end()


if __name__ == "__main__":
    main()
