#!/usr/bin/python3
"""`ranvier train --kernels`: every kernel that a batch launches is in the table of its rank, and no more time than it took."""
import json
import os
import sys
import tempfile

sys.path.insert(0, os.path.dirname(__file__))
import ranvier
import text

MICRO_BATCHES = 4


def train(tap, folder, name, ranks, *flags):
    """(what was printed, the report), or None after a failed test."""
    report = os.path.join(folder, "report.json")
    status, out, err = ranvier.run(["train", "tiny", "--data", os.path.join(folder, "text.txt"), "--micro-batch-size", 2,
                                    "--batch-size", 2 * MICRO_BATCHES, "--steps", 6, "--report", report, *flags], ranks)
    tap.ok(status == 0, f"{name}: trains", err)
    return (out, json.load(open(report))) if status == 0 else None


def calls(rank, kernel, role=""):
    return sum(row["calls"] for row in rank["kernels"] if row["kernel"] == kernel and row["role"] == role)


def main():
    tap = ranvier.Tap()
    with tempfile.TemporaryDirectory() as folder:
        text.write(os.path.join(folder, "text.txt"))
        found = train(tap, folder, "without --kernels", 1)
        tap.ok(found and "kernels" not in found[1] and "roofline" not in found[0], "without --kernels there is no table")
        for ranks, flags in ((1, ["--fusion", "on"]), (1, ["--fusion", "off"]), (2, ["--pp", 2, "--fusion", "off"])):
            name = f"{ranks} rank{'s' if ranks > 1 else ''}, {' '.join(map(str, flags[-2:]))}"
            found = train(tap, folder, name, ranks, "--kernels", *flags)
            if not found:
                continue
            out, report = found
            tables = report["kernels"]
            tap.ok("kernels of a batch on rank" in out and "of roof" in out, f"{name}: a table is printed", out)
            tap.ok([table["rank"] for table in tables] == list(range(ranks)), f"{name}: the report has every rank's")
            layers = report["model"]["n_layer"] // ranks
            backward = "attention_backward" if "on" in flags else "softmax_backward"
            tap.ok(all(calls(table, backward) == layers * MICRO_BATCHES for table in tables),
                   f"{name}: {backward} once a layer and micro-batch", tables)
            tap.ok(calls(tables[0], "embedding") == MICRO_BATCHES and calls(tables[-1], "cross_entropy") == MICRO_BATCHES,
                   f"{name}: the embedding on the first rank, the loss on the last; validation is not counted", tables)
            # In every batch, so in the median too; a sum of medians may be more than the median of sums.
            tap.ok(all(0 < row["seconds"] <= table["batch_seconds"] for table in tables for row in table["kernels"]),
                   f"{name}: no kernel takes longer than the batch", tables)
            tap.ok(all(table["roofline"]["flops_per_second"] > 0 and table["roofline"]["bytes_per_second"] > 0
                       for table in tables), f"{name}: the machine's rates are measured")
    tap.end()


if __name__ == "__main__":
    main()
