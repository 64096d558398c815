"""Runs the programs under test for scripts that print TAP."""
import contextlib
import csv
import json
import os
import re
import subprocess
import tempfile

BIN = os.environ.get("RANVIER_BIN") or os.path.abspath("build/bin")
SANITIZED = os.path.basename(os.path.dirname(BIN)) == "san"
EVERY_CASE = os.environ.get("RANVIER_TESTS") == "all"
# Of a training whose losses are compared: a wrong gradient shows in the second step, and what memory eight steps touch, two have touched.
STEPS = 8 if EVERY_CASE else 2 if SANITIZED else 4


def some(cases):
    """A sixth of a list of cases, which differ in their plan, model or precision; under the sanitizers, which look at code and not at
    numbers, half of another sixth, which the same CI runs; all of them in `make test-all`. The first of six is not always the same, so
    that products of lists are sampled in both."""
    if EVERY_CASE:
        return cases
    sixth = [case for i, case in enumerate(cases) if (i + i // 6) % 6 == (1 if SANITIZED and len(cases) > 1 else 0)]
    return sixth[::2] if SANITIZED else sixth


def some_sanitized(cases):
    """All of them, and under the sanitizers, where they take long, as few as `some` takes."""
    return some(cases) if SANITIZED else cases


DEVICE = os.environ.get("RANVIER_TEST_DEVICE")  # what `train` computes on, where a script does not say


# What AddressSanitizer says of SimGrid's stacks (sim/world/network.c).
FIBERS = r"==\d+==WARNING: ASan is ignoring requested __asan_handle_no_return: .*\nFalse positive .*\nFor details see .*\n"


@contextlib.contextmanager
def mpi_folder(environment):
    """For as long as it is entered, mpirun with this environment has a folder of its own for Open MPI's: of two that make it in
    one place at one time, one can fail."""
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as own:
        environment.setdefault("OMPI_MCA_orte_tmpdir_base", own)
        yield


def run(arguments, ranks=0, folder=None, timeout=1800, **variables):
    """ranvier ARGUMENTS, under mpirun if ranks > 0, with environment `variables`; returns (exit status, stdout,
    stderr)."""
    command = [os.path.join(BIN, "ranvier")] + [str(a) for a in arguments]
    if DEVICE and arguments and arguments[0] == "train" and "--device" not in arguments:
        command += ["--device", DEVICE]
    if ranks:
        command = ["mpirun", "--oversubscribe", "--bind-to", "none", "-n", str(ranks)] + command
    environment = dict(os.environ, OMPI_ALLOW_RUN_AS_ROOT="1", OMPI_ALLOW_RUN_AS_ROOT_CONFIRM="1", **variables)
    if arguments and arguments[0] in ("train", "calibrate", "simulate"):
        environment.setdefault("ASAN_OPTIONS", "detect_leaks=0")  # Open MPI and SimGrid keep memory to their end
    with mpi_folder(environment):
        done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, errors="replace",
                              timeout=timeout, stdin=subprocess.DEVNULL)
    return done.returncode, done.stdout, re.sub(FIBERS, "", done.stderr) if SANITIZED else done.stderr


def deep(folder):
    """Path of a config.json in `folder`: tiny with 12 layers, which many grids of chunks divide."""
    path = os.path.join(folder, "deep.json")
    with open(path, "w") as file:
        json.dump({"n_layer": 12, "n_embd": 32, "n_head": 4, "vocab_size": 256, "n_positions": 64,
                   "tie_word_embeddings": True}, file)
    return path


def losses(path):
    """The train_loss column of a log that `ranvier train --log` wrote."""
    with open(path) as file:
        return [float(row["train_loss"]) for row in csv.DictReader(file)]


class Tap:
    """Counts and prints test lines; the plan comes last."""

    def __init__(self):
        self.count = self.failed = 0

    def ok(self, holds, sentence, detail=""):
        self.count += 1
        self.failed += not holds
        print(f"{'ok' if holds else 'not ok'} {self.count} - {sentence}", flush=True)
        if detail and not holds:
            for line in str(detail).strip().splitlines()[-20:]:
                print("# " + line, flush=True)

    def end(self):
        print(f"1..{self.count}", flush=True)
        raise SystemExit(1 if self.failed else 0)
