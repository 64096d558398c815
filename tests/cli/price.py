#!/usr/bin/python3
"""Profiles from tables of measured kernels (calibrate --import) and what they say (price): a made-up GPU's table comes back, shapes
that were left out are priced nearly right and nine in ten lie in their intervals, and wrong tables are refused in a sentence."""
import csv
import json
import math
import os
import random
import sys
import tempfile

sys.path.insert(0, os.path.dirname(__file__))
import ranvier

SIZES = [256, 512, 1024, 2048, 4096, 8192]


def seconds(m, n, k):
    """A GPU of 600 Tflop/s and 3 TB/s that likes some widths more than others."""
    return (3e-6 + max(2 * m * n * k / 600e12, 2 * (m * k + n * k + m * n) / 3e12)) * (1 + 0.1 * math.sin(math.log2(n)))


def write(path, header, rows):
    with open(path, "w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(header)
        writer.writerows(rows)
    return path


def figures(line):
    return [float(word.rstrip("%")) for word in line.split() if word.endswith("%")]


def check_profiles(tap, folder):
    """What is imported, and priced from it."""
    generator = random.Random(7)
    shapes = [(m, n, k) for m in SIZES for n in SIZES for k in SIZES]
    generator.shuffle(shapes)
    rows = [("bfloat16", *shape, f"{seconds(*shape) * generator.lognormvariate(0, 0.02):.6g}") for shape in shapes]
    header = ["dtype", "m", "n", "k", "seconds"]
    known, unknown = write(os.path.join(folder, "known.csv"), header, rows[40:]), write(os.path.join(folder, "unknown.csv"), header, rows[:40])
    profile = os.path.join(folder, "profile.json")
    status, out, err = ranvier.run(["calibrate", "--import", known, "--device", "h100", "--source", "a book", "--out", profile])
    tap.ok(status == 0 and "matmul_bf16" in out, "a table becomes a profile, and the errors are printed", out + err)
    with open(profile) as file:
        document = json.load(file)
    tap.ok(document["sources"]["tables"] == "a book" and document["device"] == "H100-SXM5-80GB" and
           "176 measured shapes" in document["source"], "which says how many shapes there are, and where they are from", document["source"])
    again = os.path.join(folder, "again.json")
    status, out, err = ranvier.run(["calibrate", "--import", known, "--device", "h100", "--source", "a book", "--out", again, "--json"])
    tap.ok(status == 0 and json.loads(out) == document, "--json prints the profile, and nothing else", out[:300] + err)
    status, out, err = ranvier.run(["price", "--profile", profile, "--table", unknown, "--csv", os.path.join(folder, "out.csv")])
    line = next((line for line in out.splitlines() if line.split()[:2] == ["all", "all"]), "")
    median, tenth, worst, inside = figures(line) if len(figures(line)) == 4 else (100, 100, 100, 0)
    tap.ok(status == 0 and median < 4 and tenth < 10, "shapes that were left out are priced nearly right", out + err)
    tap.ok(inside >= 75, "and most lie in their intervals of nine in ten", out)
    with open(os.path.join(folder, "out.csv")) as file:
        priced = list(csv.DictReader(file))
    tap.ok([row["m"] for row in priced] == [str(row[1]) for row in rows[:40]] and
           all(float(row["predicted_seconds"]) > 0 for row in priced), "--csv has every row and a price behind it")
    bare = write(os.path.join(folder, "bare.csv"), header[:4], [row[:4] for row in rows[:3]])
    status, out, err = ranvier.run(["price", "--profile", profile, "--table", bare])
    tap.ok(status == 0 and "3 priced" in out and "median" not in out, "a table without seconds is priced", out + err)
    fp8 = write(os.path.join(folder, "fp8.csv"), header, [("fp8", 1024, 1024, 1024, 1e-5)])
    status, out, err = ranvier.run(["price", "--profile", profile, "--table", fp8])
    tap.ok(status == 2 and "matmul_fp8" in err, "kernels that a profile does not know are named", out + err)
    status, out, err = ranvier.run(["simulate", "llama3-8b", "--gpus", 8, "--dp", 8, "--zero", 1, "--micro-batch-size", 1, "--batch-size", 8,
                                    "--profile", profile, "--platform", "dgx-h100", "--recompute", "full"])
    tap.ok(status == 2 and "attention" in err, "a plan whose attention no table is of is refused by name", out + err)


def check_shipped(tap):
    """Those that come with the program."""
    for gpu in ("v100", "a100", "h100", "h200", "b200", "gb200", "l40s"):
        path = os.path.join(os.path.dirname(__file__), "../../calibrate/profiles", gpu + ".json")
        tap.ok(os.path.getsize(path) <= 1 << 20, f"the profile of {gpu} has a mebibyte at most", os.path.getsize(path))
    for precision in ("bf16", "mixed", "fp8"):
        status, out, err = ranvier.run(["simulate", "llama3-8b", "--gpus", 8, "--dp", 8, "--zero", 1, "--micro-batch-size", 1,
                                        "--batch-size", 8, "--machine", "8xh100", "--recompute", "full", "--precision", precision])
        tap.ok(status == 0 and "time per batch" in out, f"h100 answers for {precision}", out + err)


def check_wrong(tap, folder):
    """Each says where, what, and what would be right."""
    header, row = ["dtype", "m", "n", "k", "seconds"], ("bf16", 1024, 1024, 1024, 1e-5)
    good = write(os.path.join(folder, "good.csv"), header, [row])
    cases = [
        ("seconds in another unit", header, [("bf16", 8192, 8192, 8192, 1.5e-6)], "in another unit"),
        ("seconds of zero", header, [("bf16", 1024, 1024, 1024, 0)], ":2: seconds is '0', must be a number of seconds above 0"),
        ("negative seconds", header, [("bf16", 1024, 1024, 1024, -1)], "above 0"),
        ("a size that is no number", header, [("bf16", "wide", 1024, 1024, 1e-5)], ":2: m is 'wide', must be a whole number"),
        ("an unknown format", header, [("int4", 1024, 1024, 1024, 1e-5)], "must be fp32, fp16, bf16, fp8 or nvfp4"),
        ("rows of one shape that disagree", header, [row, ("bf16", 1024, 1024, 1024, 3e-5)], "in line 2"),
        ("unknown columns", ["a", "b"], [(1, 2)], "no form of table"),
        ("a row with too few cells", header, [("bf16", 1024)], ":2: 2 cells, but the header has 5"),
        ("no rows", header, [], "there is no row"),
        ("collectives of other GPUs", ["gpu", "operation", "gpus", "elements_fp16", "seconds"], [("MI300X", "all_reduce", 8, 1024, 1e-5)],
         "of other GPUs (MI300X, ...)"),
        ("too few shapes", header, [row], "at least 20 are needed"),
        ("precision that the GPU has not", header, [("nvfp4", 1024, 1024, 1024, 1e-5)], "has no nvfp4 products"),
    ]
    out_path = os.path.join(folder, "wrong.json")
    for name, columns, rows, sentence in cases:
        table = write(os.path.join(folder, "wrong.csv"), columns, rows)
        status, out, err = ranvier.run(["calibrate", "--import", table, "--device", "h100", "--out", out_path])
        tap.ok(status == 2 and sentence in err and err.count("\n") == 1 and not os.path.exists(out_path), f"{name} is refused", out + err)
    for arguments, sentence in (
            (["calibrate", "--import", good, "--out", out_path], "--import needs --device"),
            (["calibrate", "--import", good, "--device", "h1000", "--out", out_path], "'h1000' is neither a file"),
            (["price", "--table", good], "--profile is missing"), (["price", "--profile", "h100"], "--table is missing"),
            (["price", "--profile", "h100", "--table", good, "--table", good, "--csv", out_path], "--csv is of one table"),
            (["price", "--profile", "h100", "--table", good, "--csv", good], "good.csv")):
        status, out, err = ranvier.run(arguments)
        tap.ok(status == 2 and sentence in err and err.count("\n") == 1, f"{arguments[0]}: {sentence}", out + err)


def main():
    tap = ranvier.Tap()
    with tempfile.TemporaryDirectory() as folder:
        check_profiles(tap, folder)
        check_shipped(tap)
        check_wrong(tap, folder)
    tap.end()


if __name__ == "__main__":
    main()
