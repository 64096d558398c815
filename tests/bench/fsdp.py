#!/usr/bin/python3
"""A GPT-2 with sharded parameters on two processes of this machine: `ranvier train --zero 3` against PyTorch's fully_shard over gloo
(tests/bench/fsdp_pytorch.py). Both begin with the same weights and see the same batches; they take turns. Prints the largest relative
difference of their losses (the goal is 1e-5), the median step of each, and the ratios PyTorch / ours with the least, the median and
the most (the goal is 1.3). PyTorch is the one of --python, 2.6 or newer, such as that of

    python3 -m venv FOLDER && FOLDER/bin/pip install torch numpy

    tests/bench/fsdp.py --python FOLDER/bin/python [--runs N] [--steps N]      (make bench-fsdp PYTHON=FOLDER/bin/python RUNS=5)
"""
import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(HERE, "..", "cli"))
import pytorch as reference
import ranvier
import text

LAYERS, WIDTH, HEADS, LENGTH, BATCH, PROCESSES, THREADS = 4, 256, 4, 128, 8, 2, 1
WARM_UP = 2  # steps that are not in the medians
SETTINGS = (("freed behind the forward", ["--reshard-after-forward", "on"], []), ("kept for the backward", ["--reshard-after-forward", "off"], ["--keep"]))
MEMORY_KEPT = {"GLIBC_TUNABLES": "glibc.malloc.mmap_threshold=17179869184:glibc.malloc.trim_threshold=17179869184"}


def write_model(folder):
    path = os.path.join(folder, "model.json")
    with open(path, "w") as file:
        json.dump({"n_layer": LAYERS, "n_embd": WIDTH, "n_head": HEADS, "vocab_size": 256, "n_positions": LENGTH, "tie_word_embeddings": True}, file)
    return path


def ours(folder, steps, *flags, ranks=PROCESSES):
    log, report = os.path.join(folder, "log.csv"), os.path.join(folder, "report.json")
    status, _, err = ranvier.run(
        ["train", os.path.join(folder, "model.json"), "--data", os.path.join(folder, "text.txt"), "--dp", ranks, "--zero", 3, "--micro-batch-size",
         BATCH // ranks, "--batch-size", BATCH, "--seq-len", LENGTH, "--steps", steps, "--lr", reference.LR, "--warmup", reference.WARM_UP,
         "--seed", reference.SEED, "--threads", THREADS, "--validation-batches", 1, "--log", log, "--report", report, *flags], ranks)
    if status:
        sys.exit(f"fsdp: {err}")
    return (ranvier.losses(log), json.load(open(report))["batch_seconds"]["median"]) if steps else None


def theirs(python, folder, steps, *flags):
    out = os.path.join(folder, "theirs.json")
    pairs = (("--initial", os.path.join(folder, "initial.safetensors")), ("--data", os.path.join(folder, "text.txt")), ("--out", out), ("--heads", HEADS),
             ("--batch-size", BATCH), ("--seq-len", LENGTH), ("--steps", steps), ("--threads", THREADS), ("--processes", PROCESSES))
    done = subprocess.run([python, os.path.join(HERE, "fsdp_pytorch.py"), *(str(x) for pair in pairs for x in pair), *flags],
                          capture_output=True, text=True, env=dict(os.environ, OMP_NUM_THREADS=str(THREADS), **MEMORY_KEPT))
    if done.returncode:
        sys.exit(f"fsdp: PyTorch: {done.stderr[-2000:]}")
    found = json.load(open(out))
    return found["losses"], statistics.median(found["seconds"][WARM_UP:]), found["torch"]


def compare(folder, a, name, our_flags, their_flags):
    ratios, steps, difference = [], [], 0
    for _ in range(a.runs):
        losses, seconds = ours(folder, a.steps, *our_flags)
        others, their_seconds, version = theirs(a.python, folder, a.steps, *their_flags)
        difference = max(difference, *(abs(x / y - 1) for x, y in zip(losses, others)))
        ratios.append(their_seconds / seconds)
        steps.append((seconds, their_seconds))
    print(f"weights {name}: PyTorch {version} / ours {min(ratios):.2f} {statistics.median(ratios):.2f} {max(ratios):.2f} "
          f"(least, median, most of {a.runs}); steps {1e3 * statistics.median(s for s, _ in steps):.1f} ms, theirs "
          f"{1e3 * statistics.median(t for _, t in steps):.1f} ms; losses of {a.steps} steps differ by {difference:.1e} at most", flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--python", default="python3", help="a Python that has PyTorch 2.6 or newer")
    parser.add_argument("--runs", type=int, default=5)
    parser.add_argument("--steps", type=int, default=20)
    a = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        write_model(folder)
        text.write(os.path.join(folder, "text.txt"))
        ours(folder, 0, "--checkpoint", os.path.join(folder, "initial.safetensors"))
        for name, our_flags, their_flags in SETTINGS:
            compare(folder, a, name, our_flags, their_flags)


if __name__ == "__main__":
    main()
