#!/usr/bin/python3
"""Logical replicas (--logical-dp): fewer ranks that work for as many replicas come to the same bits, and go on so with what more ranks kept."""
import csv
import json
import os
import re
import shutil
import sys
import tempfile

sys.path.insert(0, os.path.dirname(__file__))
import ranvier
import text

STEPS = 4
# Replicas, ranks of each, flags; and the numbers of replicas that stand for them.
PLANS = [
    (8, 1, (), (4, 2, 1)),
    (4, 1, ("--logits", "all"), (1,)),
    (4, 1, ("--zero", 1, "--bucket-params", 5000), (2,)),
    (6, 1, (), (3,)),
    (4, 1, ("--precision", "mixed"), (2, 1)),
    (4, 1, ("--precision", "mixed", "--offload", "--bucket-params", 5000), (2,)),
    (4, 1, ("--precision", "bf16"), (1,)),
    (4, 1, ("--precision", "bf16", "--gradients", "16-bit"), (2,)),
    (2, 2, ("--pp", 2, "--schedule", "1f1b"), (1,)),
    (2, 2, ("--pp", 2, "--p2p", "blocking", "--schedule", "gpipe"), (1,)),
    (4, 2, ("--pp", 2), (1,)),
    (2, 2, ("--tp", 2), (1,)),
]


class Bench:
    def __init__(self, folder):
        self.folder = folder
        text.write(self.path("text.txt"))

    def path(self, *names):
        return os.path.join(self.folder, *names)

    def plan(self, dp, logical, flags):
        batch = 2 * (logical or dp)
        return ["tiny", "--dp", dp, *(["--logical-dp", logical] if logical else []), "--seq-len", 32, "--micro-batch-size", 1, "--batch-size", batch, *flags]

    def train(self, ranks, plan, *more, steps=STEPS):
        return ranvier.run(["train", *plan, "--data", self.path("text.txt"), "--steps", steps, "--lr", 3e-3, "--threads", 1, *more], ranks if ranks > 1 else 0)

    def result(self, ranks, plan, *more, steps=STEPS):
        """What a training comes to: its model, its losses, and its report; or what it said."""
        model, log, report = (self.path(name) for name in ("out.safetensors", "log.csv", "report.json"))
        for path in (model, log, report):
            if os.path.exists(path):
                os.remove(path)
        status, _, err = self.train(ranks, plan, "--validate-every", 2, "--checkpoint", model, "--log", log, "--report", report, *more, steps=steps)
        if status:
            return None, err, {}
        with open(model, "rb") as file, open(log) as rows, open(report) as said:
            return file.read(), [(row["train_loss"], row["val_loss"]) for row in csv.DictReader(rows)], json.load(said)


def named(dp, flags):
    return f"{dp} replicas{' of ' + ' '.join(map(str, flags)) if flags else ''}"


def check_bits(tap, bench, cases):
    for dp, each, flags, fewer in cases:
        bits, losses, _ = bench.result(dp * each, bench.plan(dp, 0, flags))
        for ranks in fewer:
            model, same, report = bench.result(ranks * each, bench.plan(ranks, dp, flags))
            tap.ok(bits is not None and model == bits and same == losses, f"{named(dp, flags)}: {ranks} of them come to the same bits", f"{losses}\n{same}")
            tap.ok(report.get("plan", {}).get("logical_dp") == dp, "and the report names the logical ones", report.get("plan"))


def check_memory(tap, bench):
    """log2(L / D) more arrays of gradients, which a prediction counts."""
    held = {}
    for logical in (1, 2, 8):
        plan = [*bench.plan(1, logical, ()), "--precision", "mixed", "--fusion", "off"]  # as the profile has it
        _, _, measured = bench.result(1, plan)
        status, out, err = ranvier.run(["simulate", *plan, "--gpus", 1, "--profile", "v100-datasheet", "--platform", "summit", "--report", bench.path("predicted.json")])
        with open(bench.path("predicted.json")) as file:
            predicted = json.load(file)["ranks"][0]
        held[logical] = measured["ranks"][0]["bytes"]
        tap.ok(status == 0 and predicted["bytes"] == held[logical], f"for {logical}: memory is predicted to the byte", f"{out}{err}{predicted['bytes']}\n{held}")
    gradients = held[1]["gradients"]
    tap.ok((held[2]["gradients"], held[8]["gradients"]) == (2 * gradients, 4 * gradients), "log2 of those that one rank stands for more arrays", held)


def check_times(tap, bench):
    """Each logical replica's sum is an operation between two passes, and costs what its kernels do."""
    took = {}
    for logical in (0, 4):
        trace = bench.path(f"trace{logical}.json")
        status, out, err = ranvier.run(["simulate", "gpt2-124m", "--dp", 1, *(["--logical-dp", logical] if logical else []), "--micro-batch-size", 1, "--batch-size", 8,
                                        "--gpus", 1, "--machine", "a100", "--precision", "bf16", "--json", "--trace", trace])
        took[logical] = json.loads(out)["batch_seconds"]["median"] if status == 0 else None
    if status:
        return tap.ok(False, "a prediction of logical replicas", err)
    with open(trace) as file:
        adds = [event for event in json.load(file)["traceEvents"] if event.get("name") == "add replica"]
    seconds = sum(event["dur"] for event in adds) / 1e6
    tap.ok(took[0] and took[4] and len(adds) == 4 and abs(took[4] - took[0] - seconds) < 1e-3 * took[0], "a prediction has the sums, and what they take", f"{took} {len(adds)} {seconds} {err}")
    # Of 124 million fp32 gradients, read twice and written once at some 1.6 TB/s: a millisecond a sum, and as much to keep one.
    tap.ok(1e-3 < seconds < 2e-2, "which is some milliseconds of 124 million parameters", seconds)


def check_goes_on(tap, bench, before, after):
    """What many ranks kept goes on with fewer as if nothing had happened, and back."""
    keep = ("--checkpoint-every", 2)
    bits, losses, _ = bench.result(before, bench.plan(before, 0, ()), steps=6)
    shutil.rmtree(bench.path("kept"), ignore_errors=True)
    bench.train(before, bench.plan(before, 0, ()), "--checkpoint", bench.path("kept"), *keep, "--validate-every", 2, steps=6)
    for step in (4, 6):
        shutil.rmtree(bench.path("kept", f"step-{step:012d}"))
    shutil.rmtree(bench.path("kept", "model"))
    status, _, err = bench.train(after, bench.plan(after, before, ()), "--checkpoint", bench.path("kept"), *keep, "--resume", bench.path("kept"), "--validate-every", 2, steps=6)
    shutil.rmtree(bench.path("kept", f"step-{6:012d}"), ignore_errors=True)
    shutil.rmtree(bench.path("kept", "model"), ignore_errors=True)
    found, same, _ = bench.result(before, bench.plan(before, 0, ()), "--resume", bench.path("kept"), steps=6)
    tap.ok(status == 0 and "goes on behind step 2 of 6" in err and found == bits and same == losses[4:],
           f"from {before} ranks to {after} and back, the same bits as never interrupted", f"{status} {err}\n{losses}\n{same}")


def check_threads(tap, bench):
    """Sums are divided among a rank's threads: with others it is said that bits may differ."""
    shutil.rmtree(bench.path("kept"), ignore_errors=True)
    bench.train(1, bench.plan(1, 2, ()), "--checkpoint", bench.path("kept"), "--checkpoint-every", 2)
    for threads, said in ((2, True), (1, False)):
        status, _, err = bench.train(1, bench.plan(1, 2, ()), "--resume", bench.path("kept", "step-000000000002"), "--threads", threads)
        tap.ok(status == 0 and ("a rank has 2 threads now and had 1: " in err) == said, f"resumed with {threads} of 1 threads: that is {'said' if said else 'as it was'}", err)


def check_refused(tap, bench):
    for more, sentence in ((("--dp", 1, "--logical-dp", 3), "--logical-dp 3 is not --dp 1 times a power of two"),
                           (("--dp", 1, "--logical-dp", 16), "--batch-size 8 is not divisible by --logical-dp 16 x --micro-batch-size 1 = 16"),
                           (("--dp", 1, "--logical-dp", 2, "--overlap-allreduce"), "--logical-dp 2 with --overlap-allreduce is not built yet"),
                           (("--dp", 1, "--logical-dp", 2, "--zero", 3), "--logical-dp 2 with --zero 3"),
                           (("--dp", 1, "--logical-dp", 2, "--pp", 2, "--schedule", "zero-bubble"), "--logical-dp 2 with --schedule zero-bubble, whose backward is in two parts")):
        status, _, err = bench.train(2 if "--pp" in more else 0, ["tiny", "--seq-len", 32, "--micro-batch-size", 1, "--batch-size", 8, *more])
        tap.ok(status == 2 and sentence in err and len(re.findall(r"ranvier", err)) <= 2, f"refused: {sentence}", f"{status} {err}")


def main():
    tap = ranvier.Tap()
    with tempfile.TemporaryDirectory() as folder:
        bench = Bench(folder)
        check_bits(tap, bench, ranvier.some(PLANS)[:2 if ranvier.SANITIZED else None])
        check_memory(tap, bench)
        check_times(tap, bench)
        check_goes_on(tap, bench, *((4, 2) if ranvier.SANITIZED else (16, 8)))
        check_threads(tap, bench)
        check_refused(tap, bench)
    tap.end()


main()
