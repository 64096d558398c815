#!/usr/bin/python3
"""Checkpoints beside training, and going on from them: the same bits on the same plan, the same losses on others; damaged ones; signals."""
import csv
import glob
import json
import os
import random
import re
import shlex
import shutil
import signal
import subprocess
import sys
import tempfile
import time

sys.path.insert(0, os.path.dirname(__file__))
import ranvier
import text

STEPS, EVERY = 6, 2
TOLERANCE = 1e-6
# Model, ranks, flags.
PLANS = [
    ("tiny", 1, ()),
    ("tiny", 2, ("--pp", 2)),
    ("tiny", 2, ("--dp", 2)),
    ("tiny", 2, ("--dp", 2, "--zero", 1, "--bucket-params", 5000)),
    ("tiny", 2, ("--dp", 2, "--zero", 2)),
    ("tiny", 2, ("--dp", 2, "--zero", 3)),
    ("tiny", 4, ("--pp", 2, "--dp", 2, "--schedule", "1f1b", "--zero", 1)),
    ("tiny", 4, ("--tp", 2, "--pp", 2, "--sequence-parallel")),
    ("tiny", 4, ("--tp", 4)),
    ("tiny", 2, ("--pp", 2, "--virtual-stages", 2, "--schedule", "interleaved")),
    ("tiny", 4, ("--dp", 4, "--zero", 3, "--shard-replicas", 2)),
    ("tiny", 2, ("--cp", 2)),
    ("tiny", 4, ("--cp", 2, "--dp", 2, "--zero", 1)),
    ("moe", 1, ()),
    ("moe", 2, ("--dp", 2, "--ep", 2)),
    ("moe", 4, ("--dp", 4, "--ep", 2, "--zero", 1)),
    ("moe", 4, ("--dp", 4, "--ep", 4)),
    ("moe", 4, ("--dp", 2, "--tp", 2, "--ep", 4, "--etp", 1, "--sequence-parallel")),
    ("untied", 3, ("--pp", 3, "--schedule", "zero-bubble")),
    ("untied", 2, ("--tp", 2)),
]
HALF = [
    ("tiny", 1, ("--precision", "mixed")),
    ("tiny", 2, ("--dp", 2, "--precision", "bf16", "--zero", 2)),
    ("tiny", 2, ("--dp", 2, "--precision", "mixed", "--offload", "--bucket-params", 5000)),
    ("tiny", 2, ("--dp", 2, "--precision", "bf16", "--zero", 3, "--offload", "--offload-parameters")),
    ("tiny", 2, ("--pp", 2, "--precision", "mixed", "--offload", "--offload-activations", "--zero", 0)),
    ("moe", 2, ("--dp", 2, "--ep", 2, "--precision", "bf16", "--zero", 1)),
]
MODELS = {
    "untied": {"n_layer": 4, "n_embd": 32, "n_head": 4, "vocab_size": 257, "n_positions": 48, "tie_word_embeddings": False},
    "moe": {"model_type": "mixtral", "num_hidden_layers": 2, "hidden_size": 32, "intermediate_size": 56, "num_attention_heads": 4,
            "num_key_value_heads": 2, "vocab_size": 257, "max_position_embeddings": 64, "num_local_experts": 4, "num_experts_per_tok": 2},
}


class Bench:
    def __init__(self, folder):
        self.folder = folder
        text.write(self.path("text.txt"))
        for name, keys in MODELS.items():
            with open(self.path(name + ".json"), "w") as file:
                json.dump(keys, file)

    def path(self, *names):
        return os.path.join(self.folder, *names)

    def arguments(self, model, flags, *more):
        model = self.path(model + ".json") if model in MODELS else model
        return ["train", *([model] if model else []), "--data", self.path("text.txt"), "--seq-len", 32, "--micro-batch-size", 1, "--batch-size", 8, "--steps", STEPS,
                "--lr", 3e-3, "--threads", 1, *flags, *more]

    def train(self, plan, *more):
        """Status, and what was said."""
        model, ranks, flags = plan
        status, _, err = ranvier.run(self.arguments(model, flags, *more), ranks if ranks > 1 else 0)
        return status, err

    def steps(self, where):
        return sorted(int(os.path.basename(path)[5:]) for path in glob.glob(self.path(where, "step-*")) if not os.path.basename(path).count(".tmp"))

    def forget(self, where, after):
        """As if the run had been cut off before it kept any more."""
        for step in self.steps(where):
            if step > after:
                shutil.rmtree(self.path(where, f"step-{step:012d}"))
        shutil.rmtree(self.path(where, "model"), ignore_errors=True)

    def clear(self, *names):
        for name in names:
            shutil.rmtree(self.path(name), ignore_errors=True)
            if os.path.exists(self.path(name)):
                os.remove(self.path(name))


def rows(path):
    """What of a log does not depend on time."""
    with open(path) as file:
        return [(row["step"], row["train_loss"], row["val_loss"], row["lr"], row.get("loss_scale"), row.get("skipped")) for row in csv.DictReader(file)]


def read(path):
    with open(path, "rb") as file:
        return file.read()


def named(plan):
    model, ranks, flags = plan
    return f"{model} {' '.join(map(str, flags)) or 'on one rank'}"


def check_bits(tap, bench, plan):
    """Kept, cut off, and gone on with: the log, the model and the report's losses of a run that nothing disturbed."""
    bench.clear("whole", "whole.csv", "kept", "kept.csv")
    whole, said = bench.train(plan, "--checkpoint", bench.path("whole"), "--log", bench.path("whole.csv"), "--report", bench.path("whole.json"))
    keep = ("--checkpoint", bench.path("kept"), "--checkpoint-every", EVERY, "--log", bench.path("kept.csv"))
    first, also = bench.train(plan, *keep)
    if whole or first:
        return tap.ok(False, f"{named(plan)}: trains", said + also)
    same = rows(bench.path("whole.csv")) == rows(bench.path("kept.csv"))
    bench.forget("kept", EVERY)
    status, err = bench.train(plan, *keep, "--resume", bench.path("kept"), "--report", bench.path("kept.json"))
    again = status == 0 and rows(bench.path("whole.csv")) == rows(bench.path("kept.csv"))
    model = status == 0 and read(bench.path("whole", "model.safetensors")) == read(bench.path("kept", "model", "model.safetensors"))
    losses = status == 0 and [json.load(open(bench.path(name)))["loss"] for name in ("whole.json", "kept.json")]
    return tap.ok(same and again and model and losses[0] == losses[1],
                  f"{named(plan)}: kept, cut off and gone on with, the same bits as undisturbed", f"{same} {again} {model} {losses}\n{err}")


def check_shapes(tap, bench, plans):
    """What one plan kept goes on with another."""
    for before, after in plans:
        bench.clear("whole", "kept", "whole.csv", "kept.csv")
        whole, said = bench.train(before, "--log", bench.path("whole.csv"))
        first, also = bench.train(before, "--checkpoint", bench.path("kept"), "--checkpoint-every", EVERY, "--log", bench.path("kept.csv"))
        if whole or first:
            tap.ok(False, f"{named(before)}: trains", said + also)
            continue
        bench.forget("kept", EVERY)
        status, err = bench.train(after, "--checkpoint", bench.path("other"), "--checkpoint-every", STEPS, "--resume", bench.path("kept"), "--log", bench.path("kept.csv"))
        bench.clear("other")
        ours, theirs = rows(bench.path("kept.csv")), rows(bench.path("whole.csv"))
        worst = max(abs(float(a[1]) / float(b[1]) - 1) for a, b in zip(ours, theirs)) if status == 0 else None
        tap.ok(worst is not None and len(ours) == len(theirs) == STEPS and worst <= TOLERANCE,
               f"from {named(before)} to {named(after)}: never interrupted", f"{worst} {err}")


def check_divergence(tap, bench):
    """A training that fails behind a step, in its validation, leaves the checkpoint of the step before, whole."""
    bench.clear("kept")
    status, err = bench.train(("tiny", 2, ("--pp", 2)), "--lr", 10, "--weight-decay", 1, "--clip", 0, "--steps", 200, "--warmup", 1, "--validate-every", 1,
                              "--checkpoint", bench.path("kept"), "--checkpoint-every", 1)
    said = re.search(r"the validation loss of step (\d+) is not a number", err)
    last = int(said.group(1)) if said else 0
    with open(bench.path("kept", f"step-{last - 1:012d}", "checkpoint.json")) as file:
        step = json.load(file)["step"]
    tap.ok(status == 1 and bench.steps("kept")[-1] == last - 1 == step and not glob.glob(bench.path("kept", "*.tmp*")),
           "a training that diverges leaves the checkpoint before", f"{status} {os.listdir(bench.path('kept'))} {err}")


def check_bytes(tap, bench):
    """Of a checkpoint each rank reads what it has, once: weights that it works with, and moments that it updates, in fp32."""
    status, err = bench.train(("tiny", 1, ()), "--checkpoint", bench.path("bytes"), "--checkpoint-every", EVERY)
    with open(bench.path("bytes", f"step-{STEPS:012d}", "rank-00000.safetensors"), "rb") as file:
        header = json.loads(file.read(int.from_bytes(file.read(8), "little")))
    elements = {name.split(":")[0]: entry["shape"][0] for name, entry in header.items() if ":parameter:" in name}
    parameters, embedding = sum(elements.values()), max(elements[name] for name in elements if "wte" in name or "embed" in name)
    bench.forget("bytes", EVERY)
    for flags, ranks, weights, moments in (((), 1, parameters, parameters),
                                           (("--dp", 2), 2, 2 * parameters, 2 * parameters),
                                           (("--pp", 2), 2, parameters + embedding, parameters + embedding),  # a tied embedding is on both
                                           (("--dp", 2, "--zero", 1), 2, 2 * parameters, parameters),
                                           (("--dp", 2, "--zero", 3), 2, parameters, parameters)):
        status, err = bench.train(("tiny", ranks, flags), "--resume", bench.path("bytes"), "--report", bench.path("bytes.json"))
        with open(bench.path("bytes.json")) as file:
            found = json.load(file)["training"]["resumed_bytes"]
        tap.ok(status == 0 and found == 4 * (weights + 2 * moments), f"{' '.join(map(str, flags)) or 'one rank'}: reads what its ranks have, and no byte more",
               f"{found} {4 * (weights + 2 * moments)} {err}")


def flip(path, at):
    with open(path, "r+b") as file:
        file.seek(at)
        byte = file.read(1)
        file.seek(at)
        file.write(bytes([byte[0] ^ 1]))


def check_damage(tap, bench):
    """What is not whole is named, and the one before it taken."""
    plan = ("tiny", 2, ("--pp", 2))
    keep = ("--checkpoint", bench.path("kept"), "--checkpoint-every", EVERY, "--log", bench.path("kept.csv"))
    bench.clear("whole.csv", "kept", "kept.csv")
    bench.train(plan, "--log", bench.path("whole.csv"))
    bench.train(plan, *keep)
    shutil.copytree(bench.path("kept"), bench.path("good"))
    shard, index = ("step-000000000006/rank-00001.safetensors", "step-000000000006/checkpoint.json")

    def damaged(what, sentence, change, goes_on=4):
        bench.clear("kept")
        shutil.copytree(bench.path("good"), bench.path("kept"))
        bench.forget("kept", STEPS)
        change()
        status, err = bench.train(plan, *keep, "--resume", bench.path("kept"))
        tap.ok(status == 0 and sentence in err and f"goes on behind step {goes_on} of" in err and rows(bench.path("whole.csv")) == rows(bench.path("kept.csv")),
               f"{what} is named, and the checkpoint before it taken", f"{status} {err}")

    def rewrite(change):
        path = bench.path("kept", index)
        with open(path) as file:
            document = json.load(file)
        change(document)
        with open(path, "w") as file:
            json.dump(document, file)

    damaged("a byte of a part that flipped", "rank-00001.safetensors: is damaged: its checksum is", lambda: flip(bench.path("kept", shard), 5000))
    damaged("a part that was cut", "rank-00001.safetensors: has 1000 bytes, the index says", lambda: os.truncate(bench.path("kept", shard), 1000))
    damaged("a part that is missing", "rank-00001.safetensors: is missing", lambda: os.remove(bench.path("kept", shard)))
    damaged("an index that was cut", "checkpoint.json", lambda: os.truncate(bench.path("kept", index), 1000))
    damaged("an index with another number", "checkpoint.json: is damaged", lambda: rewrite(lambda d: d.update(step=5)))
    damaged("an index that names a file outside", "names a file '../../text.txt'", lambda: rewrite(lambda d: d["files"][0].update(name="../../text.txt")))
    damaged("a folder without index", "checkpoint.json", lambda: os.remove(bench.path("kept", index)))
    damaged("one that was not completed", "goes on", lambda: os.rename(bench.path("kept", "step-000000000006"), bench.path("kept", "step-000000000006.tmp12")))
    tap.ok(not glob.glob(bench.path("kept", "*.tmp*")), "and what was not completed is removed")

    def refused(what, sentence, *more, model="tiny", ranks=2, flags=("--pp", 2), status=2):
        found, err = bench.train((model, ranks, flags), *more)
        tap.ok(found == status and sentence in err, f"{what} is refused in a sentence", f"{found} {err}")

    bench.clear("kept")
    shutil.copytree(bench.path("good"), bench.path("kept"))
    good = ("--resume", bench.path("good"))
    refused("a training of more steps", "has 6 steps already, --steps 5: as many or more were expected", *good, "--steps", 5)
    model = read(bench.path("kept", "model", "model.safetensors"))
    bench.forget("kept", STEPS)
    status, err = bench.train(plan, *keep, "--resume", bench.path("kept"), "--report", bench.path("none.json"))
    tap.ok(status == 0 and "goes on behind step 6 of 6: only the model was left to be written" in err and read(bench.path("kept", "model", "model.safetensors")) == model
           and len(rows(bench.path("kept.csv"))) == STEPS, "a training that ended before its model was written writes it", f"{status} {err}")
    refused("a checkpoint of another model", "is of another model than", *good, "--steps", 9, model="untied")
    refused("another batch", "its batch_size is 8, here it is 16", *good, "--steps", 9, "--batch-size", 16)
    refused("another order of the data", "its seed is 1, here it is 2", *good, "--steps", 9, "--seed", 2)
    text.write(bench.path("other.txt"), 5000)
    refused("other data", "was trained on other data", *good, "--steps", 9, "--data", bench.path("other.txt"))
    refused("two beginnings", "--resume and --init are two beginnings", *good, "--steps", 9, "--init", bench.path("good", "model"))
    refused("no checkpoint", "there is no checkpoint of ranvier train in it", "--resume", bench.path("nowhere"), "--steps", 9)
    refused("a log of another training", "has not the rows of the 6 steps", *good, "--steps", 9, "--log", bench.path("other.txt"))
    refused("a folder with checkpoints of another training", "--resume", "--checkpoint", bench.path("good"), "--checkpoint-every", 2)
    refused("checkpoints without a folder", "--checkpoint-every needs --checkpoint", "--checkpoint-every", 2)
    refused("an interval that is none", "'soon' is neither a number of steps nor a time", "--checkpoint-every", "soon", "--checkpoint", bench.path("x"))
    refused("a file where a folder should be", "is a file; with --checkpoint-every a folder is expected", "--checkpoint", bench.path("moe.json"), "--checkpoint-every", 2)
    for step in bench.steps("kept"):
        flip(bench.path("kept", f"step-{step:012d}", "rank-00000.safetensors"), 3000)
    refused("a folder without a whole one", "no checkpoint in it is whole", "--resume", bench.path("kept"), "--steps", 9)
    status, err = bench.train(plan, "--resume", bench.path("good", "step-000000000004"), "--log", bench.path("one.csv"))
    tap.ok(status == 0 and "goes on behind step 4 of 6" in err and [row[0] for row in csv.reader(open(bench.path("one.csv")))][1:] == ["5", "6"],
           "one of several may be named; a new log begins where the training does", err)
    status, err = bench.train(("", 2, ("--pp", 2)), "--resume", bench.path("good", "step-000000000004"))
    tap.ok(status == 0 and "goes on behind step 4 of 6" in err, "without MODEL it is the checkpoint's", err)
    refused("the name of a file", "is the name of a file", "--checkpoint", bench.path("x.safetensors"), "--checkpoint-every", 2)
    bench.clear("good", "kept", "one.csv")


def check_reshard(tap, bench):
    """A checkpoint as a model, and in other parts, from which a training goes on as from itself."""
    plan = ("moe", 4, ("--dp", 4, "--ep", 2, "--zero", 1))
    bench.clear("kept", "kept.csv", "parts", "one")
    keep = ("--checkpoint", bench.path("kept"), "--checkpoint-every", EVERY, "--log", bench.path("kept.csv"))
    bench.train(plan, *keep)
    whole, rows_of_whole = read(bench.path("kept", "model", "model.safetensors")), rows(bench.path("kept.csv"))
    status, out, err = ranvier.run(["reshard", bench.path("kept"), bench.path("one"), "--json"])
    said = json.loads(out) if status == 0 else {}
    tap.ok(status == 0 and read(bench.path("one", "model.safetensors")) == whole and said["step"] == STEPS
           and read(bench.path("one", "config.json")) == read(bench.path("kept", "model", "config.json")),
           "reshard writes the model of the newest checkpoint, byte for byte as train does", err + out)
    weights = len(whole) - 8 - int.from_bytes(whole[:8], "little")
    tap.ok(said.get("bytes_read") == said.get("bytes_written") == weights, "and reads no byte twice", said)
    bench.forget("kept", EVERY)
    for parts in (1, 3):
        bench.clear("parts")
        status, out, err = ranvier.run(["reshard", bench.path("kept"), bench.path("parts"), "--parts", parts])
        files = sorted(os.listdir(bench.path("parts", f"step-{EVERY:012d}"))) if status == 0 else []
        shutil.copy(bench.path("kept.csv"), bench.path("parts.csv"))
        again, said = bench.train(plan, "--resume", bench.path("parts"), "--log", bench.path("parts.csv"), "--checkpoint", bench.path("last.safetensors"))
        last = read(bench.path("last.safetensors")) if again == 0 else b""
        tap.ok(len(files) == parts + 1 and f"behind step {EVERY}" in out and rows(bench.path("parts.csv")) == rows_of_whole and last[-weights:] == whole[-weights:],
               f"in {parts} parts it goes on as it would have, bit for bit", f"{files} {out} {err} {said}")
    for arguments, sentence in (([bench.path("kept")], "TO is missing"), ([bench.path("nowhere"), bench.path("new")], "there is no checkpoint of ranvier train in it"),
                                ([bench.path("kept"), bench.path("parts"), "--parts", 2], "has checkpoints of a training"),
                                ([bench.path("kept"), bench.path("kept")], "is a folder that has"),
                                ([bench.path("kept"), bench.path("new"), "--parts", 0], "'0' is not a whole number")):
        status, out, err = ranvier.run(["reshard", *arguments])
        tap.ok(status == 2 and sentence in err and not os.path.exists(bench.path("new")), f"reshard {' '.join(map(os.path.basename, map(str, arguments)))}: {sentence}", err)


def start(bench, plan, *more, variables={}):
    """A training that goes on while we look: its process, in a group of its own; its ranks have environment `variables`."""
    model, ranks, flags = plan
    command = [os.path.join(ranvier.BIN, "ranvier"), *map(str, bench.arguments(model, flags, *more))]
    if ranks > 1:
        command = ["mpirun", "--oversubscribe", "--bind-to", "none", *(word for name, value in variables.items() for word in ("-x", f"{name}={value}")),
                   "-n", str(ranks), *command]
    environment = dict(os.environ, OMPI_ALLOW_RUN_AS_ROOT="1", OMPI_ALLOW_RUN_AS_ROOT_CONFIRM="1", ASAN_OPTIONS="detect_leaks=0")
    return subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True, env=environment, start_new_session=True)


def ranks_of(group):
    """The process numbers of the ranks of a training that runs in a session."""
    found = []
    for path in glob.glob("/proc/[0-9]*"):
        try:
            with open(path + "/cmdline", "rb") as file:
                program = file.read().split(b"\0")[0]
            with open(path + "/stat") as file:
                session = int(file.read().rsplit(")", 1)[1].split()[3])
        except OSError:
            continue
        if program.endswith(b"ranvier-train") and session == group:
            found.append(int(os.path.basename(path)))
    return found


def end_of(running, seconds=30):
    """Waits for the end of a training that was disturbed; what it said, or None if ranks go on for longer. Open MPI 4.1's mpirun can wait for itself
    when all its ranks have ended (libpmix, in PMIx_server_finalize, once in some hundred times that a rank was killed): it is ended then."""
    try:
        return running.communicate(timeout=seconds)[1]
    except subprocess.TimeoutExpired:
        left = ranks_of(running.pid)
        os.killpg(running.pid, signal.SIGKILL)
        said = running.communicate()[1]
        return None if left else said


def wait_for(holds, seconds=120):
    until = time.monotonic() + seconds
    while time.monotonic() < until and not holds():
        time.sleep(0.01)
    return holds()


def check_signals(tap, bench):
    """A wish to stop keeps one more checkpoint; the run goes on from it."""
    long = ("--steps", 100000, "--warmup", 3)
    for plan, number in ((("tiny", 1, ()), signal.SIGTERM), (("tiny", 2, ("--pp", 2)), signal.SIGUSR1)):
        bench.clear("kept", "kept.csv")
        keep = ("--checkpoint", bench.path("kept"), "--checkpoint-every", "1h", "--log", bench.path("kept.csv"))
        running = start(bench, plan, *keep, *long)
        begun = wait_for(lambda: os.path.exists(bench.path("kept.csv")) and len(open(bench.path("kept.csv")).readlines()) > 3)
        for rank in ranks_of(running.pid):
            os.kill(rank, number)
        _, err = running.communicate(timeout=120)
        steps = bench.steps("kept")
        logged = len(rows(bench.path("kept.csv")))
        tap.ok(begun and running.returncode == 75 and len(steps) == 1 and steps[0] == logged and f"stopped behind step {logged} of 100000" in err,
               f"{named(plan)}, {signal.Signals(number).name}: keeps the step that it is at, and ends with status 75",
               f"{running.returncode} {steps} {logged} {err}")
    bench.clear("kept", "kept.csv")
    running = start(bench, ("tiny", 1, ()), "--log", bench.path("kept.csv"), *long)
    wait_for(lambda: os.path.exists(bench.path("kept.csv")) and len(open(bench.path("kept.csv")).readlines()) > 3)
    running.terminate()
    running.communicate(timeout=120)
    tap.ok(running.returncode == -signal.SIGTERM and len(rows(bench.path("kept.csv"))) > 2, "without checkpoints a run ends at once; its log stays")


def check_full_disk(tap, bench):
    """A disk of 600,000 bytes, less than a rank would write: the training goes on, and says so."""
    bench.clear("whole.csv", "kept.csv", "disk")
    bench.train(("tiny", 1, ()), "--log", bench.path("whole.csv"))
    os.mkdir(bench.path("disk"))
    train = map(str, [os.path.join(ranvier.BIN, "ranvier"), *bench.arguments("tiny", (), "--checkpoint", bench.path("disk", "kept"), "--checkpoint-every", EVERY,
                                                                             "--log", bench.path("kept.csv"))])
    # The mount is gone with the process.
    script = f"mount -t tmpfs -o size=600k tmpfs {bench.path('disk')} || exit 99; {shlex.join(train)} >/dev/null; status=$?; ls {bench.path('disk', 'kept')}; exit $status"
    done = subprocess.run(["unshare", "--mount", "sh", "-c", script], capture_output=True, text=True,
                          env=dict(os.environ, ASAN_OPTIONS="detect_leaks=0", OMPI_ALLOW_RUN_AS_ROOT="1", OMPI_ALLOW_RUN_AS_ROOT_CONFIRM="1"))
    name = "a disk that is full: the training goes on, each checkpoint that was not kept is named, and nothing of it stays"
    if done.returncode == 99 or "unshare:" in done.stderr:
        tap.ok(True, name + " # SKIP nothing may be mounted here")
        return
    tap.ok(done.returncode == 0 and rows(bench.path("kept.csv")) == rows(bench.path("whole.csv")) and done.stdout.split() == ["model"]
           and done.stderr.count("was not kept: ") == STEPS / EVERY and "could not be written: No space left on device" in done.stderr, name,
           f"{done.returncode} {done.stdout} {done.stderr}")


def check_times(tap, bench):
    """By the clock: a second goes by between two checkpoints."""
    bench.clear("kept", "kept.csv")
    plan = ("tiny", 2, ("--dp", 2))
    running = start(bench, plan, "--checkpoint", bench.path("kept"), "--checkpoint-every", "1s", "--checkpoints-kept", 2, "--steps", 1000000, "--warmup", 3)
    seen = set()
    enough = wait_for(lambda: seen.update(bench.steps("kept")) or len(seen) >= 3)
    left = bench.steps("kept")
    for rank in ranks_of(running.pid):
        os.kill(rank, signal.SIGKILL)
    running.communicate(timeout=120)
    tap.ok(enough and len(left) <= 3, "checkpoints by the clock come one after another, and old ones go", f"{seen} {left}")


def check_kills(tap, bench, seeds):
    """Killed at a moment by chance, checkpoints being written included: the training ends as if it had not been."""
    plan = ("tiny", 2, ("--pp", 2))
    steps = ("--steps", 40, "--warmup", 3)
    bench.clear("whole.csv")
    began = time.monotonic()
    bench.train(plan, *steps, "--log", bench.path("whole.csv"))
    took = time.monotonic() - began
    keep = ("--checkpoint", bench.path("kept"), "--checkpoint-every", 2, "--log", bench.path("kept.csv"))
    for seed in seeds:
        chance = random.Random(seed)
        bench.clear("kept", "kept.csv")
        running = start(bench, plan, *keep, *steps)
        time.sleep(chance.uniform(0, 1.5 * took))
        there = ranks_of(running.pid)
        if there:
            os.kill(chance.choice(there), signal.SIGKILL)
        hangs = end_of(running) is None
        last = max(bench.steps("kept"), default=0)
        logged = len(rows(bench.path("kept.csv"))) if os.path.exists(bench.path("kept.csv")) else 0
        status, err = bench.train(plan, *keep, *steps, *(("--resume", bench.path("kept")) if last else ())) if last < 40 else (0, "")
        kept, whole = rows(bench.path("kept.csv")), rows(bench.path("whole.csv"))
        differs = next(((a, b) for a, b in zip(kept, whole) if a != b), None)
        tap.ok(not hangs and status == 0 and kept == whole,
               f"seed {seed}: killed behind step {logged}, gone on with behind step {last}, the same losses",
               f"{hangs} {status} {len(kept)} rows of {len(whole)}, {differs} {err}")


def main():
    tap = ranvier.Tap()
    with tempfile.TemporaryDirectory() as folder:
        bench = Bench(folder)
        for plan in ranvier.some(PLANS + HALF):
            check_bits(tap, bench, plan)
        pairs = [(a, b) for a in PLANS for b in PLANS if a[0] == b[0] and a != b]
        random.Random(7).shuffle(pairs)
        check_shapes(tap, bench, pairs[:100 if ranvier.EVERY_CASE else 4 if ranvier.SANITIZED else 12])
        check_divergence(tap, bench)
        check_bytes(tap, bench)
        check_damage(tap, bench)
        check_reshard(tap, bench)
        check_signals(tap, bench)
        check_full_disk(tap, bench)
        check_times(tap, bench)
        check_kills(tap, bench, range(2 if ranvier.SANITIZED else 4))
    tap.end()


if __name__ == "__main__":
    main()
