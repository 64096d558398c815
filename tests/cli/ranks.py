#!/usr/bin/python3
"""Ranks that were started with other options, another model or other data than rank 0 are refused with a sentence that
says what differs; none waits for ever. What may differ between hosts does not matter."""
import concurrent.futures
import json
import os
import subprocess
import tempfile

import ranvier
import text

TOKENS = 40000
LIMIT_SECONDS = 1800  # only so that a job that hangs ends
TRAIN = "train tiny --data text.txt --batch-size 4 --micro-batch-size 1 --steps 3 --threads 1"


def start(folder, first, second, prefix=()):
    """Rank 0 with the options `first`, rank 1 with `second` (later ones count); returns the status, or None if the job
    hung, and what ranvier said."""
    program = os.path.join(ranvier.BIN, "ranvier")
    command = ["mpirun", "--oversubscribe", "--bind-to", "none", "-n", "1", program, *first.split(), ":",
               "-n", "1", *prefix, program, *second.split()]
    environment = dict(os.environ, OMPI_ALLOW_RUN_AS_ROOT="1", OMPI_ALLOW_RUN_AS_ROOT_CONFIRM="1")
    environment.setdefault("ASAN_OPTIONS", "detect_leaks=0")
    try:
        with ranvier.mpi_folder(environment):
            done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True,
                                  timeout=LIMIT_SECONDS, stdin=subprocess.DEVNULL)
    except subprocess.TimeoutExpired:
        return None, []
    return done.returncode, [l for l in done.stderr.splitlines() if l.startswith("ranvier")]


def write_inputs(folder):
    text.write(os.path.join(folder, "text.txt"), TOKENS)
    with open(os.path.join(folder, "text.txt"), "rb") as file:
        content = file.read()
    for name, other in (("copy.txt", content), ("short.txt", content[:-1]),
                        ("changed.txt", content[:-1] + bytes([content[-1] ^ 1]))):
        with open(os.path.join(folder, name), "wb") as file:
            file.write(other)
    for name, layers in (("two.json", 2), ("other-name.json", 2), ("four.json", 4)):
        with open(os.path.join(folder, name), "w") as file:
            json.dump({"n_layer": layers, "n_embd": 32, "n_head": 4, "vocab_size": 256, "n_positions": 64,
                       "tie_word_embeddings": True}, file)


SAME = ": all ranks of a training need the same "


def option(given, other, grid="--dp 2", first=""):
    """Rank 1 with the option `given`, rank 0 with `other`, which is its default or in `first`."""
    return (f"{given} on rank 1", f"{TRAIN} {grid} {first}", f"{TRAIN} {grid} {first} {given}",
            f"ranvier train: rank 1 was started with {given}, rank 0 {other}{SAME}options")


CASES = [
    option("--steps 5", "with --steps 3", "--pp 2"),
    option("--batch-size 8", "with --batch-size 4", "--pp 2"),
    option("--lr 0.0005", "with --lr 0.001"),
    option("--min-lr 0.0002", "with --min-lr 0.0001"),
    option("--warmup 1", "with --warmup 0"),
    option("--weight-decay 0", "with --weight-decay 0.1"),
    option("--beta1 0.8", "with --beta1 0.9"),
    option("--beta2 0.9", "with --beta2 0.95"),
    option("--epsilon 1e-09", "with --epsilon 1e-08"),
    option("--seed 2", "with --seed 1"),
    option("--validate-every 1", "with --validate-every 0"),
    option("--validation-fraction 0.2", "with --validation-fraction 0.1"),
    option("--validation-batches 2", "with --validation-batches 4"),
    option("--clip 2", "with --clip 1"),
    option("--recompute full", "with --recompute none"),
    option("--fusion off", "with --fusion on"),
    option("--precision bf16", "with --precision fp32"),
    option("--overlap-allreduce", "without --overlap-allreduce"),
    option("--zero 1", "with --zero 0"),
    option("--bucket-params 100", "with --bucket-params 200", first="--bucket-params 200"),
    option("--allreduce staged", "with --allreduce direct"),
    option("--offload", "without --offload", first="--precision mixed"),
    option("--inject-overflow 2:1", "without --inject-overflow", first="--precision mixed"),
    option("--schedule gpipe", "with --schedule axonn", "--pp 2"),
    option("--p2p blocking", "with --p2p async", "--pp 2", "--schedule 1f1b"),
    option("--split even", "with --split balanced", "--pp 2", "--split balanced"),
    option("--kernels", "without --kernels"),
    ("another grid", f"{TRAIN} --dp 2", f"{TRAIN} --pp 2",
     f"ranvier train: rank 1 was started with --pp 2, rank 0 with --pp 1{SAME}options"),
    ("a trace on rank 1", f"{TRAIN} --dp 2", f"{TRAIN} --dp 2 --trace trace.json",
     f"ranvier train: rank 1 was started with --trace, rank 0 without --trace{SAME}options"),
    ("a checkpoint on rank 0", f"{TRAIN} --dp 2 --checkpoint c.safetensors", f"{TRAIN} --dp 2",
     f"ranvier train: rank 1 was started without --checkpoint, rank 0 with --checkpoint{SAME}options"),
    ("help on rank 1", f"{TRAIN} --dp 2", "train --help", None),
    ("another model", f"{TRAIN} --dp 2".replace("tiny", "two.json"), f"{TRAIN} --dp 2".replace("tiny", "four.json"),
     f"ranvier train: MODEL: n_layer is 4 on rank 1 and 2 on rank 0{SAME}model"),
    ("a wrong option on rank 1", f"{TRAIN} --dp 2", f"{TRAIN} --dp 2 --lr fast",
     "ranvier train: --lr: 'fast' is not a number from 0 to 10"),
]


def data_case(what, name, change):
    """Rank 1 with the file `name`, which has `change` tokens more than text.txt."""
    return (what, f"{TRAIN} --dp 2", f"{TRAIN} --dp 2 --data {name}",
            f"ranvier train: --data: rank 1 read {TOKENS + change} tokens from {name}, rank 0 {TOKENS}"
            f"{'' if change else ' others'} from text.txt{SAME}data")


CASES += [data_case("data that are shorter", "short.txt", -1), data_case("data of the same length", "changed.txt", 0)]


def refusals(tap, folder):
    with concurrent.futures.ThreadPoolExecutor(8) as pool:
        results = list(pool.map(lambda case: start(folder, case[1], case[2]), CASES))
    for (what, _, _, sentence), (status, said) in zip(CASES, results):
        alike = len(said) == 1 and sentence in (said[0], None)
        tap.ok(status == 2 and alike, f"{what}: refused on all ranks, with what differs",
               f"{status}: {said}, {sentence} was expected")


def differences(tap, folder):
    status, said = start(folder, f"{TRAIN} --dp 2 --report report.json",
                         f"{TRAIN} --dp 2 --data copy.txt --threads 2 --cpu-kernels baseline --host-link 10GB/s")
    tap.ok(status == 0 and not said, "where the data lie, threads, kernels and links may differ", f"{status}: {said}")
    status, said = start(folder, f"{TRAIN} --dp 2".replace("tiny", "two.json"),
                         f"{TRAIN} --dp 2".replace("tiny", "other-name.json"))
    tap.ok(status == 0 and not said, "a model's name may differ", f"{status}: {said}")
    with open(os.path.join(folder, "report.json")) as file:
        training = json.load(file)["training"]
    tap.ok([training[k] for k in ("steps", "lr", "min_lr", "warmup", "seed", "beta2", "validation_batches")]
           == [3, 1e-3, 1e-4, 0, 1, 0.95, 4], "the report has the training's options", training)


def failure(tap, folder):
    """A rank that fails alone, where the others would go on to wait for it."""
    library = os.path.join(os.path.dirname(ranvier.BIN), "tests", "refuse_calloc.so")
    if not os.path.exists(library):  # the address sanitizer has a calloc of its own
        return
    long = f"{TRAIN} --dp 2 --kernels --steps 1234567"
    status, said = start(folder, long, long, ["env", f"LD_PRELOAD={library}"])
    tap.ok(status == 1 and said == ["ranvier train: no host memory for the losses"],
           "a rank without memory for the losses ends the training, not only its own", f"{status}: {said}")


def main():
    tap = ranvier.Tap()
    with tempfile.TemporaryDirectory() as folder:
        write_inputs(folder)
        refusals(tap, folder)
        differences(tap, folder)
        failure(tap, folder)
    tap.end()


if __name__ == "__main__":
    main()
