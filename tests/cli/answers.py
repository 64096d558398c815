#!/usr/bin/python3
"""--json of train, simulate, sweep, validate, price and compare: one document and nothing else on standard output, with what --report or
--csv writes to a file."""
import csv
import json
import os
import sys
import tempfile

sys.path.insert(0, os.path.dirname(__file__))
import ranvier

TABLES = os.path.join(os.path.dirname(__file__), "..", "..", "sim", "tables")
SIMULATE = ["simulate", "tiny", "--profile", "a100-datasheet", "--platform", "generic", "--precision", "fp32", "--gpus", 2, "--pp", 2,
            "--batch-size", 8, "--micro-batch-size", 1]
SWEEP = ["sweep", "gpt-12b", "--gpus", "48", "--batch-size", 1536, "--profile", "v100-datasheet", "--platform", "summit", "--simulate", 1]


def answer(tap, arguments):
    status, out, err = ranvier.run([*arguments, "--json"])
    try:
        found = json.loads(out)
    except ValueError as error:
        found, err = None, f"{error}: {out[:200]}\n{err}"
    tap.ok(status == 0 and found, f"{arguments[0]} prints one JSON document", err)
    return found


def same(cell, value):
    if isinstance(value, (int, float)):
        return float(cell) == value
    return cell == (value or "")


def check_table(tap, arguments, folder):
    path = os.path.join(folder, "table.csv")
    found = answer(tap, [*arguments, "--csv", path])
    with open(path) as file:
        rows = list(csv.DictReader(line for line in file if not line.startswith("#")))
    tap.ok(rows and len(found) == len(rows) and all(set(a) == set(b) and all(same(b[key], a[key]) for key in a) for a, b in zip(found, rows)),
           f"{arguments[0]}: with the {len(rows)} rows of its --csv", [found[:1], rows[:1]])


def main():
    tap = ranvier.Tap()
    with tempfile.TemporaryDirectory() as folder:
        report, shapes = os.path.join(folder, "predicted.json"), os.path.join(folder, "shapes.csv")
        found = answer(tap, [*SIMULATE, "--report", report])
        with open(report) as file:
            tap.ok(found == json.load(file), "simulate: it is what --report writes")
        data, trained = os.path.join(folder, "text.txt"), os.path.join(folder, "trained.json")
        with open(data, "w") as file:
            file.write("a text of a few words, again and again\n" * 200)
        found_trained = answer(tap, ["train", "tiny", "--data", data, "--micro-batch-size", 1, "--batch-size", 2, "--steps", 4, "--kernels",
                                     "--report", trained])
        with open(trained) as file:
            tap.ok(found_trained == json.load(file) and len(found_trained["loss"]) == 4, "train: it is what --report writes")
        check_table(tap, SWEEP, folder)
        check_table(tap, ["validate", "--table", os.path.join(TABLES, "gpu.csv")], folder)
        with open(shapes, "w") as file:
            file.write("op,dtype,m,n,k\ngemm,bf16,4096,4096,4096\ngemm,bf16,8192,1024,512\n")
        check_table(tap, ["price", "--profile", "h100", "--table", shapes], folder)
        measured = os.path.join(folder, "measured.json")
        found["world"] = "real"
        with open(measured, "w") as file:
            json.dump(found, file)
        check_table(tap, ["compare", report, measured], folder)
    tap.end()


main()
