#!/usr/bin/env python3
"""Fits the part of the peak that products reach in runs of a framework on a GPU (sustained_rate in runtime/plan/frameworks), each on
one published run, by bisection; the term then says on which. A run that is predicted too slow without any limit fits none. And, where
runs show it, what the host needs for each kernel (host_seconds_a_kernel), on one whose kernels are short.

    RANVIER_BIN=build/bin calibrate/fit_frameworks.py RUNS.csv...

RUNS.csv are tables of published runs in the forms that ranvier validate reads; frameworks of whose runs there is none stay as they are."""
import csv
import json
import os
import subprocess
import sys
import tempfile

BIN = os.environ.get("RANVIER_BIN", "build/bin")
FRAMEWORKS = os.path.join(os.path.dirname(__file__), "../runtime/plan/frameworks")
# Framework, GPU, and the run: its model, number of GPUs, precision and, of several, a word of its notes or its grid.
FITS = [
    ("megatron", "H100", ("Llama 3.1 70B", "64", "BF16", "")),
    ("simumax", "B200", ("llama3-70b cut to 12 layers", "8", "bf16", "")),
    ("mlperf", "H100", ("Llama 3.1 405B (MLPerf)", "512", "FP8", "")),
    ("mlperf", "H200", ("Llama 3.1 405B (MLPerf)", "512", "FP8", "")),
    ("flagperf", "H100", ("Llama3 8B", "8", "bf16", "")),
    ("flagperf", "A100", ("Llama3 8B", "8", "bf16", "")),
    ("torchtitan-compiled", "H100", ("Llama 3.1 8B", "8", "bf16", "compile")),
    ("torchtitan", "H100", ("Llama 3.1 8B", "8", "bf16", "eager")),
    ("torchtitan", "A100", ("Llama 2 13B", "64", "bf16", "")),
    ("internevo", "A100", ("InternLM-7B", "8", "bf16", "")),
    ("fms-fsdp", "A100", ("Llama2 7B", "128", "bf16", "")),
    ("fms-fsdp", "H100", ("Llama2 7B", "96", "bf16", "")),
    ("nanotron", "H100", ("nanotron-llama-1B", "8", "", "", {"tp": "1", "pp": "1"})),
]
HOSTS = [("nanotron", "H100", ("nanotron-llama-8B", "32", "", "", {"tp": "8", "pp": "1", "micro_batch": "1"})),
         ("megatron", "H100", ("Qwen3-235B-A22B", "256", "BF16", "ModelZoo", {"tp": "4", "ep": "8"})),
         ("simumax", "B200", ("llama3-70b cut to 12 layers", "8", "bf16", "", {"tp": "8", "global_batch": "8"}))]


def find(tables, gpu, run):
    """The first row of a run, and its table's columns; a word is of its source or notes. A table that does not say a run's GPU,
    precision or source is of one."""
    model, gpus, precision, word, *grid = run
    for rows, header in tables:
        for row in rows:
            if (row["model"] == model and row["gpus"] == gpus and row.get("precision", precision).startswith(precision) and
                    gpu in row.get("gpu", gpu) and word in row.get("source", "") + row.get("notes", "") and
                    all(row[column] == value for more in grid for column, value in more.items())):
                return row, header
    return None, None


# What is fitted: its key, the name of its term and the sentence, between what values, and whether more of it makes a run faster; what else
# the term says.
RATE = ("sustained_rate", "power", "Power limits products in a run on {}s to this part of the peak.", 0.1, 1.0, True, {})
HOST = ("host_seconds_a_kernel", "host", "Beside {}s the host needs so long for each kernel, with the Python around it: where kernels are shorter, "
        "it is what a pass takes.", 7e-6, 1e-3, False,
        {"assumption": "its error, 5 %: that of the one run, and operators that are not alike", "host_error": 0.05})


def write(path, gpu, what, value, fitted_on):
    """Sets the framework's term for a GPU; a value of None takes it out."""
    key, name, says, *_ = what
    with open(path) as file:
        document = json.load(file)
    name = f"{name}-{gpu.lower()}"
    terms = [term for term in document["terms"] if term["name"] != name]
    if value:
        terms.append({"name": name, "says": says.format(gpu), "fitted_on": fitted_on, "gpu": gpu, key: float(f"{value:.4g}"), **what[-1]})
    document["terms"] = terms
    with open(path, "w") as file:
        json.dump(document, file, indent=2, ensure_ascii=False)
        file.write("\n")


def predict(table, folder):
    """How many times too fast the run is predicted, and what `ranvier validate` calls it: its plan and what was measured."""
    out = os.path.join(folder, "out.csv")
    subprocess.run([os.path.join(BIN, "ranvier"), "validate", "--table", table, "--csv", out], check=True, capture_output=True)
    with open(out) as file:
        row = next(csv.DictReader(file))
    speed = float(row["predicted"]) / float(row["measured_low"])
    return 1 / speed if row["unit"] in ("batch_seconds", "milliseconds") else speed, f"{row['plan']}: {row['measured_low']} "


def fit(tables, framework, gpu, run, folder, what):
    row, header = find(tables, gpu, run)
    path, table = os.path.join(FRAMEWORKS, framework + ".json"), os.path.join(folder, "run.csv")
    if not row:
        return print(f"{framework:20} {gpu:5} there is no run of {run[0]}; it stays as it is")
    with open(table, "w", newline="") as file:
        writer = csv.DictWriter(file, header)
        writer.writeheader()
        writer.writerow(row)
    *_, low, high, faster, _ = what
    write(path, gpu, what, None, "")
    free, fitted_on = predict(table, folder)
    source = row.get("source", "The Ultra-Scale Playbook").split("/")[0]
    fitted_on += f"{row.get('metric', 'tokens/s/GPU')} of {row['model']}, {row['gpus']} GPUs, {row.get('precision', 'bf16')} ({source})"
    for _ in range(12 if free > 1 else 0):
        middle = (low * high) ** 0.5
        write(path, gpu, what, middle, fitted_on)
        low, high = (low, middle) if (predict(table, folder)[0] > 1) == faster else (middle, high)
    found = (low * high) ** 0.5
    write(path, gpu, what, found if free > 1 else None, fitted_on)
    print(f"{framework:20} {gpu:5} {free - 1:+.1%} without; {f'{what[0]} {found:.4g}' if free > 1 else 'none'}; {fitted_on}", flush=True)


def main():
    tables = []
    for path in sys.argv[1:]:
        with open(path) as file:
            reader = csv.DictReader(file)
            tables.append((list(reader), reader.fieldnames))
    with tempfile.TemporaryDirectory() as folder:
        hosts = {fitted[:2] for fitted in HOSTS}
        # What a host takes is found beside a rate, and moves it a little.
        for what, fits in ((RATE, [fitted for fitted in FITS if fitted[:2] in hosts]), (HOST, HOSTS), (RATE, FITS)):
            for framework, gpu, run in fits:
                fit(tables, framework, gpu, run, folder, what)


if __name__ == "__main__":
    main()
