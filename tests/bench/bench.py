#!/usr/bin/env python3
"""Training on this machine's processor against its limit and against named peers: prints ratios, each with the least, the
median and the most of runs that take turns (ours, PyTorch, the limit, ours, ...), and writes bench.csv and bench.png.

    tests/bench/bench.py [PART...] [--runs N] [--only TEXT] [--out FOLDER]      (make bench PARTS="limit pytorch" RUNS=5)

Parts:
  limit     the sgemm limit of a step / our step: 1 would be a step that does nothing but its matrix products. The limit is
            (6 N B T + 6 L B T (T + 1) C) / R, with N the parameters in products that a token meets: of a GPT-2 12 L C^2 + V C,
            without the positions' table, of a mixture of experts those of its router and of the experts that are chosen;
            the second term is causal attention's; R is the flop/s of the step's own products, each alone on the
            same threads, the best of several times and of two ways to share it (tests/bench/sgemm.c)
  pytorch   PyTorch's step / ours: the same shapes, fp32, AdamW, clipping to 1, eager, OMP and OpenBLAS threads alike, under
            the fastest of the settings below, which are tried first on a GPT-2. The Llama and the mixture are transformers' own,
            of $TRANSFORMERS_PYTHON or of what `make test-transformers` installs
  memory    our most resident memory / what the ledger predicts, and / PyTorch's as it is installed
  ranks     2 ranks of 1 thread against 1 rank of 2: throughput in stages and in replicas, beside what the bubble allows;
            and PyTorch's DistributedDataParallel over gloo, 2 processes of 1 thread, the same batch
  events    the simulator against a loop over a binary heap that passes the same events
  scale     one simulated plan of 48, 384 and 3,072 GPUs: seconds / those of 48
  overhead  the core and its loop against a batch of kernels of 1 ms (these three are tests/bench/events.py's)

A step's time is that of the batch after the first of its process; ratios are made of runs that follow each other. Rows of
bench.csv that a call does not measure stay as they were. A peer that is not installed is skipped, and that is said.
"""
import argparse
import array
import csv
import functools
import json
import os
import random
import re
import shutil
import signal
import statistics
import subprocess
import sys
import time

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(HERE, "..", "cli"))
import ranvier

PLOTS = os.path.normpath(os.path.join(HERE, "..", "..", "plots"))
PARTS = ("limit", "pytorch", "memory", "ranks", "events", "scale", "overhead")
COLUMNS = ("group", "name", "unit", "min", "median", "max", "runs")
KEEP = "glibc.malloc.mmap_threshold=17179869184:glibc.malloc.trim_threshold=17179869184"
# Of PyTorch: what it is, environment, options. It frees and allocates every activation, and glibc gives each large one back
# to the kernel, unless told otherwise.
SETTINGS = (("as installed", {}, []), ("memory kept", {"GLIBC_TUNABLES": KEEP}, []),
            ("memory kept, huge pages", {"GLIBC_TUNABLES": KEEP + ":glibc.malloc.hugetlb=1"}, []),
            ("memory kept, huge pages, AdamW over lists", {"GLIBC_TUNABLES": KEEP + ":glibc.malloc.hugetlb=1"}, ["--foreach"]))
STEP_LIMIT = 300  # seconds that one program may take


class Shape:
    """A model, its micro-batch, batch and sequence length."""

    def __init__(self, name, layers, width, heads, vocabulary, micro, batch, length):
        self.name, self.micro, self.batch, self.length = f"{name}, B {batch}, T {length}", micro, batch, length
        self.config = {"n_layer": layers, "n_embd": width, "n_head": heads, "vocab_size": vocabulary, "n_positions": length,
                       "tie_word_embeddings": True}
        self.layers, self.width, self.vocabulary = layers, width, vocabulary
        self.products = 12 * layers * width**2 + vocabulary * width
        self.of_transformers = False

    def flops(self):
        """Of a step: 6 N a token, and causal attention's."""
        tokens = self.batch * self.length
        return 6 * self.products * tokens + 6 * self.layers * tokens * (self.length + 1) * self.width

    def write(self, folder):
        self.path = os.path.join(folder, self.name.replace(", ", "-").replace(" ", "") + ".json")
        with open(self.path, "w") as file:
            json.dump(self.config, file)


class OfTransformers(Shape):
    """The same of a Llama, or with experts a Mixtral, which transformers trains from the same configuration."""

    def __init__(self, name, layers, width, heads, vocabulary, micro, batch, length, *, kv_heads, inner, experts=0, chosen=1):
        super().__init__(name, layers, width, heads, vocabulary, micro, batch, length)
        self.config = {"model_type": "mixtral" if experts else "llama", "num_hidden_layers": layers, "hidden_size": width,
                       "num_attention_heads": heads, "num_key_value_heads": kv_heads, "intermediate_size": inner,
                       "vocab_size": vocabulary, "max_position_embeddings": length, "rms_norm_eps": 1e-5, "rope_theta": 10000.0,
                       "hidden_act": "silu", "tie_word_embeddings": True,
                       **({"num_local_experts": experts, "num_experts_per_tok": chosen} if experts else {})}
        attention = 2 * width**2 + 2 * width * (width // heads) * kv_heads
        self.products = layers * (attention + width * experts + chosen * 3 * width * inner) + vocabulary * width
        self.of_transformers = True


SMALL, LARGE = ("6 layers of 384", 6, 384, 6), ("GPT-2 124M", 12, 768, 12)
SHAPES = [Shape(*LARGE, 50257, 4, 4, 64), Shape(*LARGE, 50257, 4, 4, 256), Shape(*LARGE, 50257, 4, 4, 1024),
          Shape(*SMALL, 50257, 16, 16, 256)]
# In the parts limit and pytorch only.
FAMILIES = [OfTransformers("Llama 124M", *LARGE[1:], 50257, 4, 4, 256, kv_heads=12, inner=2048),
            OfTransformers("Mixtral 284M", *LARGE[1:], 50257, 4, 4, 256, kv_heads=4, inner=1024, experts=8, chosen=2)]
# Of the ranks: an equal half of the work for each of two stages, so a vocabulary of bytes.
PARALLEL = Shape(*SMALL, 256, 2, 32, 256)


class Bench:
    def __init__(self, a):
        self.folder, self.runs, self.only, self.setting = os.path.abspath(a.out), a.runs, a.only, a.setting
        os.makedirs(self.folder, exist_ok=True)
        self.scratch = os.path.join(self.folder, "work")
        os.makedirs(self.scratch, exist_ok=True)
        for shape in (*SHAPES, *FAMILIES, PARALLEL):
            shape.write(self.scratch)
        self.measured, self.csv = [], os.path.join(self.folder, "bench.csv")
        self.memory = {}  # of our runs so far on all cores, by the shape's name
        self.cores = len(os.sched_getaffinity(0))
        self.torch = find_python("torch", os.environ.get("PYTORCH"), "/usr/bin/python3", sys.executable,
                                 os.environ.get("TRANSFORMERS_PYTHON"))
        if not self.torch:
            print("PyTorch is not installed (Debian: python3-torch): what is measured against it is skipped")

    @functools.cached_property
    def transformers(self):
        """The interpreter that has them, looked for when a shape needs it: that takes seconds."""
        found = find_python("torch, transformers", os.environ.get("TRANSFORMERS_PYTHON"),
                            os.path.join(HERE, "..", "..", "build", "transformers", "bin", "python"), self.torch)
        if not found:
            print("transformers is not installed (make test-transformers does, or name a Python that has it in "
                  "$TRANSFORMERS_PYTHON): what is measured against it is skipped")
        return found

    def python(self, shape):
        """The interpreter of a shape's peer, or None."""
        return self.transformers if shape.of_transformers else self.torch

    def data(self, shape):
        """Random tokens, as PyTorch's are: a .bin of uint16."""
        path = os.path.join(self.scratch, f"{shape.vocabulary}.bin")
        if not os.path.exists(path):
            source = random.Random(1)
            tokens = array.array("H", (source.randrange(shape.vocabulary) for _ in range(100000)))
            if sys.byteorder == "big":
                tokens.byteswap()
            with open(path, "wb") as file:
                tokens.tofile(file)
        return path

    # ---- the three that take turns; each returns seconds of a step ----

    def ours(self, shape, threads, flags=(), ranks=1, steps=1):
        """(seconds of a step, the report)"""
        log, report = (os.path.join(self.scratch, name) for name in ("log.csv", "report.json"))
        command = ["mpirun", "-n", str(ranks), "--bind-to", "core" if ranks > 1 else "none",
                   os.path.join(ranvier.BIN, "ranvier"), "train", shape.path, "--micro-batch-size", shape.micro, "--batch-size",
                   shape.batch, "--seq-len", shape.length, "--threads", threads, "--fusion", "on", "--clip", 1, "--data",
                   self.data(shape), "--validation-fraction", 0, "--steps", 1 + steps, "--log", log, "--report", report, *flags]
        run(command, {"OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1"})
        with open(log) as file:
            seconds = [float(row["batch_seconds"]) for row in csv.DictReader(file)]
        with open(report) as file:
            return statistics.median(seconds[1:]), json.load(file)

    def pytorch(self, shape, threads, setting, processes=1, steps=1):
        """(seconds of a step, bytes)"""
        _, environment, options = SETTINGS[setting]
        command = [self.python(shape), os.path.join(HERE, "gpt2_pytorch.py"), "--device", "cpu", "--precision", "fp32", "--eager",
                   "--threads", threads, "--processes", processes, "--warm-up", 1, "--steps", steps, "--micro-batch-size",
                   shape.micro, "--batch-size", shape.batch, "--seq-len", shape.length, *options]
        if shape.of_transformers:
            command += ["--config", shape.path]
        for key in () if shape.of_transformers else ("n_layer", "n_embd", "n_head", "vocab_size"):
            command += ["--" + key.replace("_", "-"), shape.config[key]]
        found = json.loads(run(command, dict(environment, OMP_NUM_THREADS=str(threads), OPENBLAS_NUM_THREADS=str(threads))))
        return statistics.median(found["seconds"]), found["memory_bytes"]

    def limit(self, shape, threads):
        tool = os.path.join(ranvier.BIN, "..", "tests", "sgemm")
        found = json.loads(run([tool, shape.path, shape.micro, shape.length, threads], {}))
        return shape.flops() / found["flops_per_second"]

    # ---- what is found ----

    def add(self, group, name, unit, values):
        self.take(dict(zip(COLUMNS, (group, name, unit, min(values), statistics.median(values), max(values), len(values)))))

    def take(self, row):
        for key in ("min", "median", "max"):
            row[key] = float(row[key])
        self.measured.append(row)
        if row["unit"] == "seconds":  # what ratios are made of: in the file only
            return
        print(f"{row['group']:9} {row['name']:40} {row['median']:8.3f}   {row['min']:8.3f} to {row['max']:8.3f} in {row['runs']} "
              f"run{'s' if int(row['runs']) > 1 else ''}   {row['unit']}", flush=True)

    def wanted(self, name):
        return self.only in name

    def fastest_setting(self):
        """The index of the setting that makes PyTorch's step shortest; tried once."""
        if self.setting is None:
            tried = [self.pytorch(SHAPES[0], self.cores, i, steps=3)[0] for i in range(len(SETTINGS))]
            self.setting = tried.index(min(tried))
            print("PyTorch's step, against the fastest of its settings: "
                  + "; ".join(f"{name} {seconds / min(tried):.2f}" for (name, _, _), seconds in zip(SETTINGS, tried)))
        return self.setting

    # ---- what is written ----

    def rows(self):
        """Those of the file that were not measured this time, and those that were, in the order of the parts."""
        new = {(row["group"], row["name"], row["unit"]) for row in self.measured}
        kept = []
        if os.path.exists(self.csv):
            with open(self.csv) as file:
                kept = [row for row in csv.DictReader(file) if (row["group"], row["name"], row["unit"]) not in new]
        return sorted(kept + self.measured, key=lambda row: PARTS.index(row["group"]))

    def write(self):
        rows = self.rows()
        with open(self.csv + ".new", "w") as file:
            writer = csv.DictWriter(file, COLUMNS, lineterminator="\n")
            writer.writeheader()
            for row in rows:
                writer.writerow({key: f"{value:.6g}" if isinstance(value, float) else value for key, value in row.items()})
        os.replace(self.csv + ".new", self.csv)
        print(f"written to {self.csv}" + (f", with {len(rows) - len(self.measured)} rows of earlier calls"
                                          if len(rows) > len(self.measured) else ""))
        self.draw(rows)

    def draw(self, rows):
        """A panel a group that has rows, two beside each other."""
        if not shutil.which("gnuplot"):
            print("gnuplot is not installed: no figure")
            return
        data, variables = os.path.join(self.scratch, "figure.dat"), [f"panels={0}"]
        rows = [row for row in rows if row["unit"] != "seconds" and (row["group"] != "overhead" or row["unit"] == DRAWN_OVERHEAD)]
        drawn = [panel for panel in PANELS if any(row["group"] == panel[0] for row in rows)]
        with open(data, "w") as file:
            for index, (group, title, axis) in enumerate(drawn):
                of_panel = [row for row in rows if row["group"] == group]
                kinds = list(dict.fromkeys(map(kind_of, of_panel)))
                variables += [f"title_{index}='{title}'", f"axis_{index}='{axis}'", f"kinds_{index}={len(kinds)}"]
                variables += [f'kind_{index}_{i}="{kind}"' for i, kind in enumerate(kinds)]
                place, before = -0.5, None
                for row in of_panel:
                    label = label_of(row)
                    place += 1 if label == before else 1.5
                    shown, before = "" if label == before else label, label
                    file.write(f'"{shown}"\t{row["median"]}\t{row["min"]}\t{row["max"]}\t{kinds.index(kind_of(row))}\t{place}\n')
                file.write("\n\n")
        variables[0] = f"panels={len(drawn)}"
        image = os.path.join(self.folder, "bench.png")
        done = subprocess.run(["gnuplot", "-e", "; ".join([f"folder='{PLOTS}'", f"data='{data}'", f"out='{image}'", "format='png'",
                                                           *variables]), os.path.join(PLOTS, "bench.gp")],
                              capture_output=True, text=True)
        if done.returncode:
            sys.exit(f"gnuplot failed:\n{done.stderr}")
        print(f"drawn in {image}")


# Of a panel: its group, its title, and what its axis says.
PANELS = (("limit", "Against the limit of its matrix products", "sgemm limit / our step"),
          ("pytorch", "Against PyTorch", "PyTorch step / our step"),
          ("memory", "The most resident memory", "less is better"), ("ranks", "Two ranks on two cores", "more is better"),
          ("events", "The simulator, an event", "less is better"),
          ("overhead", "The core and its loop", "a batch / its kernels of 1 ms"))
DRAWN_OVERHEAD = "batch / its kernels"  # the others are parts of a percent of it
OF_NAME = ("events", "overhead")  # their rows' names end, after a comma, in what the colour says


def label_of(row):
    """What is beside a row, or several of one label: without the batch, the threads and what kind_of says."""
    return row["name"].split(", ")[0] if row["group"] in OF_NAME else re.sub(r", (B \d+|\d threads?)", "", row["name"])


def kind_of(row):
    """What its colour says."""
    threads = re.search(r"\d threads?$", row["name"])
    if row["group"] in OF_NAME:
        return row["name"].partition(", ")[2] or row["unit"]
    return threads.group() if threads else row["unit"]


def find_python(modules, *candidates):
    """The first interpreter that imports them."""
    for python in filter(shutil.which, filter(None, candidates)):
        if subprocess.run([python, "-c", f"import {modules}"], capture_output=True).returncode == 0:
            return python
    return None


def run(command, environment, limit=STEP_LIMIT):
    """Its output. No program may hang: mpirun's ranks, and PyTorch's, end with it."""
    command = list(map(str, command))
    program = subprocess.Popen(command, env=dict(os.environ, **environment), stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                               stderr=subprocess.PIPE, text=True, start_new_session=True)
    try:
        output, errors = program.communicate(timeout=limit)
    except subprocess.TimeoutExpired:
        os.killpg(program.pid, signal.SIGTERM)
        program.communicate()
        sys.exit(f"{' '.join(command)} took more than {limit} s")
    if program.returncode:
        sys.exit(f"{' '.join(command)} failed:\n{errors}")
    return output


def threads_of(bench):
    return [threads for threads in (1, 2) if threads <= bench.cores]


def named(shape, threads):
    return f"{shape.name}, {threads} thread{'s' if threads > 1 else ''}"


# ---- parts ----

def part_steps(bench, limit, pytorch):
    """limit and pytorch: they share our runs."""
    for shape in (*SHAPES, *FAMILIES):
        for threads in threads_of(bench):
            name = named(shape, threads)
            if not bench.wanted(name):
                continue
            against = pytorch and bench.python(shape)
            if not limit and not against:
                continue
            long = shape.length >= 1024
            runs = max(1, bench.runs // 2) if long else bench.runs
            ours, peer, least = [], [], []
            for _ in range(runs):
                seconds, report = bench.ours(shape, threads, steps=3 if shape.length <= 64 else 1)
                ours.append(seconds)
                if threads == bench.cores:
                    bench.memory.setdefault(shape.name, []).append(report["memory"])
                if against:
                    peer.append(bench.pytorch(shape, threads, bench.fastest_setting(), steps=3 if shape.length <= 64 else 1)[0])
                if limit:
                    least.append(bench.limit(shape, threads))
            if limit:
                bench.add("limit", name, "sgemm limit / our step", [a / b for a, b in zip(least, ours)])
            if against:
                bench.add("pytorch", name, "PyTorch's step / ours", [a / b for a, b in zip(peer, ours)])


def part_memory(bench):
    for shape in SHAPES:
        if not bench.wanted(named(shape, bench.cores)):
            continue
        of_ledger, of_peer, known = [], [], bench.memory.get(shape.name, [])
        for _ in range(1 if shape.length >= 1024 else min(2, bench.runs)):
            memory = known.pop() if known else bench.ours(shape, bench.cores)[1]["memory"]
            of_ledger.append(memory["host_peak_bytes"] / (memory["device_peak_bytes"] + memory["host_offloaded_bytes"]))
            if bench.torch:
                of_peer.append(memory["host_peak_bytes"] / bench.pytorch(shape, bench.cores, 0)[1])
        bench.add("memory", shape.name, "our peak / the ledger's prediction", of_ledger)
        if of_peer:
            bench.add("memory", shape.name, "our peak / PyTorch's", of_peer)


def part_ranks(bench):
    if bench.cores < 2:
        print("ranks     skipped: they need two cores")
        return
    shape = PARALLEL
    if not bench.wanted(shape.name):
        return
    count = shape.batch // shape.micro
    stages, replicas, peer = [], [], []
    for _ in range(bench.runs):
        one = bench.ours(shape, 2)[0]
        stages.append(one / bench.ours(shape, 1, ["--pp", 2], ranks=2)[0])
        two = bench.ours(shape, 1, ["--dp", 2], ranks=2)[0]
        replicas.append(one / two)
        if bench.torch:
            peer.append(bench.pytorch(shape, 1, bench.fastest_setting(), processes=2)[0] / two)
    # Of equal stages one waits for the other's first forward and, in the end, for its last backward.
    ideal = count / (count + 1)
    against, of_ideal = "throughput / that of 1 rank, 2 threads", "throughput / what the bubble allows"
    bench.add("ranks", "2 stages", against, stages)
    bench.add("ranks", "2 stages", f"{of_ideal}, {ideal:.3f}", [ratio / ideal for ratio in stages])
    bench.add("ranks", "2 replicas", against, replicas)
    if peer:
        bench.add("ranks", "2 replicas", "PyTorch's step over gloo / ours", peer)


def part_other(bench, part):
    """A part that another program measures, which writes rows of the same columns."""
    program, path = os.path.join(HERE, "events.py"), os.path.join(bench.scratch, part + ".csv")
    if os.path.exists(path):
        os.remove(path)
    run([program, part, "--runs", bench.runs, "--csv", path, "--tests", os.path.join(ranvier.BIN, "..", "tests")],
        {"RANVIER_BIN": ranvier.BIN}, limit=60 * (1 + bench.runs))
    with open(path) as file:
        for row in csv.DictReader(file):
            bench.take(row)


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("parts", nargs="*", metavar="PART", help="of " + " ".join(PARTS) + " (default: all)")
    parser.add_argument("--runs", type=int, default=3, help="of each ratio; long ones have fewer (default 3)")
    parser.add_argument("--only", default="", help="shapes whose name has this text, such as 'T 256, 2 threads'")
    parser.add_argument("--setting", type=int, choices=range(len(SETTINGS)),
                        help="of PyTorch, instead of trying them: " + ", ".join(f"{i} {s[0]}" for i, s in enumerate(SETTINGS)))
    parser.add_argument("--out", default="bench", help="folder of what is written (default bench)")
    a = parser.parse_args()
    wrong = [part for part in a.parts if part not in PARTS]
    if wrong:
        parser.error(f"there is no part '{wrong[0]}', only {' '.join(PARTS)}")
    if a.runs < 1:
        parser.error("--runs must be at least 1")
    parts = a.parts or PARTS
    bench = Bench(a)
    start = time.time()
    try:
        if "limit" in parts or "pytorch" in parts:
            part_steps(bench, "limit" in parts, "pytorch" in parts)
        if "memory" in parts:
            part_memory(bench)
        if "ranks" in parts:
            part_ranks(bench)
        for part in ("events", "scale", "overhead"):
            if part in parts:
                part_other(bench, part)
    finally:  # a program that fails, or an interrupt, does not take the other figures with it
        if bench.measured:
            bench.write()
    print(f"{time.time() - start:.0f} s")


if __name__ == "__main__":
    main()
