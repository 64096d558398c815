#!/usr/bin/python3
"""Gradients summed beside the last backward (--overlap-allreduce), or reduce-scattered with --zero 1: the same losses and
checkpoints bit for bit, in the same memory, sums that begin before the backward has ended, and a prediction in which less of
them is left behind it."""
import json
import os
import sys
import tempfile

sys.path.insert(0, os.path.dirname(__file__))
import ranvier
import text

BUCKETS = ["--bucket-params", 9000, "--allreduce-buckets", 2]
MIXED = ["--precision", "mixed"]
STAGED = ["--allreduce", "staged", "--messages", "staged"]
# pp, dp, schedule, options
PLANS = [(1, 2, "axonn", []), (1, 2, "axonn", ["--clip", 0]), (2, 2, "1f1b", []), (2, 2, "axonn", ["--clip", 0]), (1, 3, "axonn", []),
         (3, 2, "gpipe", ["--recompute", "full"]), (1, 2, "axonn", MIXED), (2, 2, "1f1b", MIXED + ["--offload", "--clip", 0]),
         (1, 3, "axonn", MIXED + ["--offload"]), (2, 2, "axonn", ["--precision", "bf16"]), (2, 2, "gpipe", MIXED + STAGED),
         (2, 2, "1f1b", ["--p2p", "blocking", "--offload-activations", *STAGED]),
         (1, 2, "axonn", ["--fusion", "off", "--recompute", "layer"]), (2, 2, "zero-bubble", ["--clip", 0]),
         (1, 2, "reverse-first-k", ["--deferred-layers", 2]), (2, 2, "fast-forward", MIXED + ["--offload", "--deferred-layers", 1]),
         (2, 2, "reverse-first-k", MIXED + ["--recompute", "full", "--deferred-layers", 1, "--p2p", "blocking", *STAGED])]
ZERO = ["--zero", 1]
PLANS += [(1, 2, "axonn", ZERO), (1, 3, "axonn", ZERO + ["--clip", 0]), (1, 4, "gpipe", ZERO + MIXED), (2, 2, "1f1b", ZERO + MIXED + ["--offload", "--clip", 0]),
          (3, 2, "axonn", ZERO + ["--clip", 0, "--recompute", "full"]), (2, 3, "gpipe", ZERO + MIXED + STAGED + ["--offload"]),
          (2, 2, "axonn", ZERO + ["--precision", "bf16", "--split", 1]), (2, 2, "zero-bubble", ZERO + ["--p2p", "blocking"]),
          (1, 2, "reverse-first-k", ZERO + MIXED + ["--offload", "--deferred-layers", 2])]
SHARDS = ["--tp", 2]
PLANS += [(1, 2, "1f1b", SHARDS + ZERO + MIXED + ["--offload", "--sequence-parallel"]),
          (2, 2, "1f1b", SHARDS + ["--sequence-parallel", "--split", 0])]  # a stage with nothing behind its head
CHUNKS = ["--virtual-stages", 2]
PLANS += [(2, 2, "interleaved", CHUNKS + ["--clip", 0]), (2, 2, "interleaved", CHUNKS + ZERO + MIXED + ["--offload", "--recompute", "layer"])]
SUMS = ("all-reduce", "reduce-scatter")
OVERLAP = "--overlap-allreduce"


def train(folder, pp, dp, schedule, *more):
    ranks = pp * dp * (2 if "--tp" in more else 1)
    log, trace, report, checkpoint = (os.path.join(folder, name) for name in ("log.csv", "trace.json", "report.json", "checkpoint.safetensors"))
    status, _, err = ranvier.run(
        ["train", "tiny", "--data", os.path.join(folder, "text.txt"), "--pp", pp, "--dp", dp, "--schedule", schedule,
         "--seq-len", 16, "--micro-batch-size", 1, "--batch-size", 12, "--steps", 6, "--lr", 3e-3, "--log", log, "--trace", trace,
         "--report", report, "--checkpoint", checkpoint, *more], ranks)
    if status:
        return err, [], None
    with open(checkpoint, "rb") as file:
        return ranvier.losses(log), operations(trace), (file.read(), holds(json.load(open(report))))


def holds(report):
    return [(rank["bytes"], rank["host_bytes"]) for rank in report["ranks"]]


def operations(trace):
    return [event for event in json.load(open(trace))["traceEvents"] if event.get("ph") == "X"]


def backwards(events):
    return sum(event["args"]["kind"] == "backward" for event in events)


def early(events):
    """Sums that had begun before the last backward of their rank and batch ended."""
    last, begun = {}, 0
    for event in events:
        if event["args"]["kind"] == "backward":
            key = event["pid"], event["args"]["batch"]
            last[key] = max(last.get(key, 0), event["ts"] + event["dur"])
    for event in events:
        if event["args"]["kind"] in (*SUMS, "stage out"):
            begun += event["args"].get("of", SUMS[0]) in SUMS and event["ts"] < last[event["pid"], event["args"]["batch"]]
    return begun


def check_losses(tap, folder):
    for pp, dp, schedule, more in ranvier.some_sanitized(PLANS):
        name = f"{pp} x {dp} {schedule} {' '.join(map(str, more))}"
        plain, before, left = train(folder, pp, dp, schedule, *BUCKETS, *more)
        losses, after, leaves = train(folder, pp, dp, schedule, *BUCKETS, *more, OVERLAP)
        tap.ok(isinstance(losses, list) and losses == plain, f"{name}: the same losses bit for bit", f"{losses}\n{plain}")
        tap.ok(left and leaves and leaves[0] == left[0], f"{name}: and the same checkpoint")
        tap.ok(left and leaves and leaves[1] == left[1], f"{name}: in the same memory", f"{leaves and leaves[1]}\n{left and left[1]}")
        tap.ok(early(after) > 0, f"{name}: sums begin before the last backward has ended", early(after))
        tap.ok(backwards(after) > backwards(before), f"{name}: which goes in parts", f"{backwards(before)} {backwards(after)}")
    for zero in ([], ZERO):
        plain, _, _ = train(folder, 1, 2, "axonn", *zero)
        losses, _, _ = train(folder, 1, 2, "axonn", *zero, OVERLAP)
        tap.ok(isinstance(losses, list) and losses == plain, f"and with one chunk {' '.join(map(str, zero))}", f"{losses}\n{plain}")
    plain, _, _ = train(folder, 2, 1, "axonn")
    losses, _, _ = train(folder, 2, 1, "axonn", OVERLAP)
    tap.ok(isinstance(losses, list) and losses == plain, "and with one replica", f"{losses}\n{plain}")


def simulate(folder, *more):
    report = os.path.join(folder, "predicted.json")
    status, out, err = ranvier.run(["simulate", "gpt2-1.5b", "--profile", "v100-datasheet", "--platform", "summit", "--ignore-memory", *MIXED,
                                    "--micro-batch-size", 2, "--report", report, *more])
    return (json.load(open(report)), "") if status == 0 else (None, out + err)


def total(phases):
    return sum(phases[name + "_seconds"] for name in ("pipeline", "allreduce", "optimizer"))


def check_prediction(tap, folder):
    for more in ranvier.some_sanitized([
            ["--gpus", 12, "--dp", 12, "--batch-size", 24], ["--gpus", 24, "--pp", 2, "--dp", 12, "--batch-size", 96],
            ["--gpus", 24, "--pp", 2, "--dp", 12, "--batch-size", 96, "--schedule", "1f1b", "--clip", 0],
            ["--gpus", 12, "--dp", 12, "--batch-size", 24, "--recompute", "full"], ["--gpus", 12, "--dp", 12, "--batch-size", 24, *ZERO],
            ["--gpus", 24, "--pp", 2, "--dp", 12, "--batch-size", 96, "--schedule", "1f1b", "--clip", 0, *ZERO]]):
        plain, said = simulate(folder, *more)
        found, err = simulate(folder, *more, OVERLAP)
        name = " ".join(map(str, more))
        tap.ok(plain and found, f"{name}: is predicted", said + err)
        if not plain or not found:
            continue
        a, b = plain["phases"], found["phases"]
        tap.ok(total(b) < total(a) and b["allreduce_seconds"] < a["allreduce_seconds"],
               f"{name}: less of the all-reduce is left behind the pipeline", f"{a}\n{b}")
        hidden = a["allreduce_seconds"] - b["allreduce_seconds"]
        tap.ok(hidden <= a["pipeline_seconds"], f"{name}: no more than a pipeline is hidden", f"{a}\n{b}")
        tap.ok(abs(b["pipeline_seconds"] / a["pipeline_seconds"] - 1) < 0.02, f"{name}: the pipeline takes what it took", f"{a}\n{b}")


def main():
    tap = ranvier.Tap()
    with tempfile.TemporaryDirectory() as folder:
        text.write(os.path.join(folder, "text.txt"))
        check_losses(tap, folder)
        check_prediction(tap, folder)
    tap.end()


if __name__ == "__main__":
    main()
