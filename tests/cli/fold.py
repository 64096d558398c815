#!/usr/bin/python3
"""Folded replicas and shards: one simulated for all gives what all give, to 0.1 %, wherever the platform makes them equal; where it
does not, it is said why. Every plan is simulated both ways."""
import json
import os
import sys
import tempfile

sys.path.insert(0, os.path.dirname(__file__))
import ranvier

TOLERANCE = 1e-3
MIXED = ["--precision", "mixed"]
OFFLOAD = MIXED + ["--offload"]
INTERLEAVED = ["--schedule", "interleaved", "--virtual-stages", 2]
CHUNKS = ["--bucket-params", 4000000, "--allreduce-buckets", 1]

# platform, tp, pp, dp, micro-batches a pipeline, options
EQUAL = [
    # a replica is whole nodes: of 6 and of 8 GPUs
    ("summit", 1, 6, 4, 8, MIXED), ("summit", 1, 12, 4, 8, OFFLOAD), ("summit", 1, 24, 2, 24, MIXED),
    ("summit", 1, 6, 4, 8, OFFLOAD + ["--clip", 0] + CHUNKS), ("summit", 1, 12, 5, 12, OFFLOAD + ["--offload-activations"]),
    ("summit", 1, 12, 3, 12, MIXED + ["--schedule", "gpipe", "--recompute", "full"]),
    ("summit", 1, 6, 16, 2, MIXED + ["--clip", 0] + CHUNKS),
    ("summit", 1, 6, 4, 8, MIXED + ["--messages", "staged", "--allreduce", "staged"]),
    ("generic", 1, 8, 4, 8, MIXED), ("generic", 1, 16, 3, 16, MIXED + ["--schedule", "1f1b", "--p2p", "blocking"]),
    # replicas share a node, and there are several nodes, or one
    ("generic", 1, 4, 8, 4, MIXED), ("generic", 1, 2, 16, 4, OFFLOAD), ("generic", 1, 1, 24, 2, MIXED), ("generic", 1, 4, 8, 4, OFFLOAD + ["--zero", 1, "--clip", 0] + CHUNKS),
    ("summit", 1, 6, 4, 8, MIXED + ["--zero", 1]), ("generic", 1, 1, 24, 2, MIXED + ["--zero", 3]),
    ("generic", 1, 4, 2, 4, MIXED), ("generic", 1, 2, 4, 4, OFFLOAD), ("generic", 1, 1, 8, 2, MIXED + ["--clip", 0]),
    ("generic", 1, 2, 2, 4, MIXED), ("summit", 1, 3, 8, 6, OFFLOAD),
    # shared optimizers, virtual stages
    ("summit", 1, 6, 4, 8, MIXED + ["--zero", 1]), ("summit", 1, 12, 6, 4, OFFLOAD + ["--zero", 1, "--clip", 0]),
    ("generic", 1, 2, 8, 4, MIXED + ["--zero", 1]), ("generic", 1, 8, 4, 8, MIXED + INTERLEAVED),
    ("summit", 1, 6, 4, 12, MIXED + INTERLEAVED + ["--zero", 1]),
    # replicas beside each other, their next stage in another node
    ("generic", 1, 4, 8, 4, MIXED + ["--order", "replicas"]), ("generic", 1, 2, 16, 4, OFFLOAD + ["--order", "replicas"]),
    # shards
    ("generic", 2, 2, 4, 4, MIXED + ["--schedule", "1f1b"]), ("generic", 8, 1, 4, 2, MIXED),
    ("generic", 2, 4, 4, 4, MIXED + ["--schedule", "interleaved", "--virtual-stages", 5]),
    ("generic", 2, 2, 16, 4, MIXED + ["--schedule", "1f1b", "--order", "replicas"]),
    ("generic", 2, 2, 8, 4, OFFLOAD + ["--schedule", "1f1b", "--order", "replicas"]),
    ("generic", 8, 2, 4, 4, OFFLOAD + ["--schedule", "1f1b", "--sequence-parallel"]), ("generic", 16, 2, 2, 2, MIXED + ["--schedule", "1f1b"]),
    ("generic", 4, 2, 4, 4, MIXED + ["--schedule", "1f1b", "--zero", 1, "--sequence-parallel", "--clip", 0] + CHUNKS),
    ("generic", 2, 4, 4, 8, MIXED + ["--schedule", "1f1b", "--messages", "staged", "--allreduce", "staged", "--sequence-parallel"]),
    ("generic", 4, 2, 4, 4, MIXED + ["--schedule", "interleaved", "--virtual-stages", 2]),
    ("generic", 2, 4, 4, 8, MIXED), ("generic", 16, 3, 2, 4, MIXED),
    ("dgx-2h", 16, 2, 2, 4, MIXED + ["--schedule", "1f1b", "--messages", "staged", "--allreduce", "staged"]),
]
# Shards that are equal though replicas are not, or there is one.
SHARDS = [
    ("generic", 8, 4, 1, 8, MIXED), ("generic", 2, 4, 1, 8, OFFLOAD + ["--schedule", "1f1b", "--sequence-parallel"]),
    ("dgx-2h", 2, 4, 4, 4, MIXED + ["--schedule", "1f1b"]), ("dgx-2h", 4, 2, 5, 4, OFFLOAD + ["--schedule", "1f1b", "--sequence-parallel"]),
]
# Replicas that share experts or sequences: model, options, and how many replicas and shards are folded.
A100 = ["--profile", "a100-published", "--platform", "selene", "--precision", "bf16", "--schedule", "1f1b", "--fusion", "on",
        "--micro-batch-size", 1, "--seq-len", 2048]
SPREAD = [
    ("mixtral-8x7b", ["--gpus", 32, "--pp", 4, "--dp", 8, "--ep", 8, "--batch-size", 32], (8, 1)),
    ("mixtral-8x7b", ["--gpus", 32, "--pp", 2, "--dp", 16, "--ep", 4, "--batch-size", 32, "--order", "replicas", "--zero", 1], (16, 1)),
    ("qwen3-30b-a3b", ["--gpus", 32, "--pp", 2, "--dp", 16, "--ep", 16, "--batch-size", 32], (16, 1)),
    ("qwen3-30b-a3b", ["--gpus", 32, "--tp", 2, "--dp", 16, "--ep", 16, "--etp", 1, "--batch-size", 32, "--sequence-parallel", "--zero", 1],
     (16, 2)),
    ("qwen3-30b-a3b", ["--gpus", 32, "--tp", 2, "--pp", 2, "--dp", 8, "--ep", 8, "--etp", 1, "--batch-size", 16, "--sequence-parallel",
                       "--order", "replicas"], (8, 2)),
    ("qwen3-30b-a3b", ["--gpus", 32, "--pp", 2, "--dp", 16, "--ep", 16, "--batch-size", 32, "--dispatcher", "deepep"], (16, 1)),
    ("qwen3-30b-a3b", ["--gpus", 16, "--tp", 4, "--pp", 2, "--dp", 2, "--ep", 4, "--etp", 1, "--batch-size", 4, "--sequence-parallel"], (2, 4)),
    ("llama3-8b", ["--gpus", 32, "--pp", 2, "--dp", 4, "--cp", 4, "--batch-size", 16], (16, 1)),
    ("llama3-8b", ["--gpus", 64, "--pp", 2, "--tp", 4, "--dp", 4, "--cp", 2, "--batch-size", 16, "--sequence-parallel", "--zero", 1], (8, 4)),
    ("llama3-8b", ["--gpus", 32, "--pp", 2, "--tp", "2x2x2", "--dp", 2, "--micro-batch-size", 2, "--batch-size", 16, "--zero", 1], (2, 8)),
    ("llama3-8b", ["--gpus", 64, "--tp", "4x4x2", "--dp", 2, "--micro-batch-size", 2, "--batch-size", 8, "--recompute", "full"], (2, 32)),
    ("llama3-8b", ["--gpus", 16, "--dp", 16, "--batch-size", 16, "--zero", 1, "--overlap-allreduce"], (16, 1)),
    ("llama3-8b", ["--gpus", 32, "--dp", 32, "--batch-size", 32, "--zero", 1, "--shard-replicas", 8], (32, 1)),
    ("llama3-8b", ["--gpus", 24, "--dp", 24, "--batch-size", 48, "--zero", 3, "--offload-parameters"], (24, 1)),
    ("llama3-8b", ["--gpus", 160, "--dp", 160, "--batch-size", 160, "--zero", 3, "--prefetch", 2], (160, 1)),
    ("llama3-8b", ["--gpus", 16, "--dp", 16, "--batch-size", 32, "--zero", 3, "--offload", "--recompute", "layer"], (16, 1)),
    ("llama3-8b", ["--gpus", 32, "--pp", 2, "--dp", 16, "--batch-size", 64, "--zero", 2, "--offload", "--recompute", "layer"], (16, 1)),
    ("llama3-8b", ["--gpus", 32, "--dp", 32, "--batch-size", 32, "--zero", 3, "--shard-replicas", 8], (32, 1)),
    ("llama3-8b", ["--gpus", 64, "--dp", 64, "--batch-size", 64, "--zero", 3, "--shard-replicas", 16, "--allreduce-buckets", 1], (64, 1)),
    ("llama3-8b", ["--gpus", 32, "--tp", 4, "--dp", 8, "--batch-size", 16, "--zero", 3, "--sequence-parallel"], (8, 4)),
    ("llama3-8b", ["--gpus", 32, "--dp", 8, "--cp", 4, "--batch-size", 16, "--zero", 3], (32, 1)),
    ("llama3-8b", ["--gpus", 32, "--pp", 2, "--tp", 4, "--dp", 4, "--batch-size", 16, "--zero", 2], (4, 4)),
    ("mixtral-8x7b", ["--gpus", 16, "--pp", 2, "--dp", 8, "--ep", 8, "--batch-size", 16, "--routing-exponent", 0.5],
     "replicas have experts of their own, which get uneven rows"),
]
# What makes replicas differ.
DIFFERENT = [
    ("summit", 1, 4, 6, 4, MIXED, "begin at different places"),
    ("summit", 1, 2, 12, 4, MIXED, "parts of a node's sockets or rails"),
    ("summit", 1, 3, 2, 4, MIXED, "parts of a node's sockets or rails"),
    ("generic", 1, 4, 3, 4, MIXED, "do not fill the last node"),
    ("generic", 1, 2, 4, 4, MIXED + ["--order", "replicas"], "share a node with other stages"),
    ("generic", 1, 8, 1, 8, MIXED, "there is one replica"),
    ("vtrain-a100", 1, 4, 4, 4, MIXED, "along trees"),
]


def profile_for(folder, platform):
    """The V100's figures, under the name of the platform's GPU where it has another one: times are not asked for here."""
    if platform != "vtrain-a100":
        return "v100-datasheet"
    root = os.path.join(os.path.dirname(__file__), "..", "..")
    profile = json.load(open(os.path.join(root, "calibrate", "profiles", "v100-datasheet.json")))
    profile["device"] = json.load(open(os.path.join(root, "sim", "platforms", platform + ".json")))["gpu"]
    path = os.path.join(folder, "profile.json")
    json.dump(profile, open(path, "w"))
    return path


def simulate(folder, plan, *more):
    platform, tp, pp, dp, micro_batches, options = plan[:6]
    path = os.path.join(folder, "report.json")
    status, out, err = ranvier.run(
        ["simulate", "gpt2-350m" if tp > 1 else "gpt2-1.5b", "--profile", profile_for(folder, platform),
         "--platform", platform, "--gpus", tp * pp * dp, "--pp", pp,
         "--dp", dp, "--tp", tp, "--micro-batch-size", 1, "--batch-size", dp * micro_batches, "--seq-len", 512,
         "--ignore-memory", "--report", path, *options, *more])
    return status, (json.load(open(path)) if status == 0 else None), out + err


def name(plan):
    platform, tp, pp, dp, _, options = plan[:6]
    return "%s %d x %d x %d %s" % (platform, pp, dp, tp, " ".join(map(str, options)))


def check_equal(tap, folder, plan, replicas=True):
    _, all_of_them, said = simulate(folder, plan, "--fold", "off")
    status, one, also = simulate(folder, plan)
    if not all_of_them or not one:
        return tap.ok(False, "folded and not: " + name(plan), said + also)
    expected, found = (r["batch_seconds"]["median"] for r in (all_of_them, one))
    folds = [plan[3] if replicas else 1, plan[1]]
    tap.ok(abs(found - expected) <= TOLERANCE * expected and
           [one["simulation"][key] for key in ("folded_replicas", "folded_shards")] == folds and
           one["simulation"]["operations"] * folds[0] * folds[1] == all_of_them["simulation"]["operations"],
           "folded takes what all take: " + name(plan),
           "folded %.9f s, all %.9f s: %+.4f %% %s" % (found, expected, 100 * (found / expected - 1), one["simulation"]))
    same = [r[key] for r in (all_of_them, one) for key in ("memory", "ranks")]
    tap.ok(same[:2] == same[2:] and all(f"{count} {what} as 1" in also for count, what in zip(folds, ("replicas", "shards")) if count > 1),
           "and its memory is that of all ranks", also)


def spread(folder, model, options, *more):
    path = os.path.join(folder, "report.json")
    status, out, err = ranvier.run(["simulate", model, *A100, *options, "--ignore-memory", "--report", path, *more])
    return (json.load(open(path)) if status == 0 else None), out + err


def check_spread(tap, folder, model, options, folds):
    all_of_them, said = spread(folder, model, options, "--fold", "off")
    one, also = spread(folder, model, options)
    what = f"{model} {' '.join(map(str, options))}"
    if not all_of_them or not one:
        return tap.ok(False, "folded and not: " + what, said + also)
    found = one["simulation"]
    if isinstance(folds, str):
        return tap.ok(found["folded_replicas"] == 1 and found["not_folded"] == folds, f"{what}: {folds}", also)
    seconds = [r["batch_seconds"]["median"] for r in (all_of_them, one)]
    tap.ok(abs(seconds[1] / seconds[0] - 1) < 1e-6 and (found["folded_replicas"], found["folded_shards"]) == folds and
           found["operations"] * folds[0] * folds[1] == all_of_them["simulation"]["operations"], "folded takes what all take: " + what,
           f"{seconds} {found}")


def check_different(tap, folder, plan):
    status, _, said = simulate(folder, plan, "--fold", "on")
    tap.ok(status == 2 and plan[6] in said and said.count("\n") == 1,
           "replicas that differ are not folded, and why is said: " + name(plan), said)
    status, report, said = simulate(folder, plan)
    folds = plan[3] > 1
    tap.ok(status == 0 and report["simulation"]["folded_replicas"] == 1 and
           (plan[6] in (report["simulation"]["not_folded"] or "") and "folded     no: " in said) == folds,
           "auto simulates them all" + (" and says so" if folds else ""), said)


def main():
    tap = ranvier.Tap()
    with tempfile.TemporaryDirectory() as folder:
        for plan in ranvier.some(EQUAL):
            check_equal(tap, folder, plan)
        for plan in ranvier.some(SHARDS):
            check_equal(tap, folder, plan, replicas=False)
        for model, options, folds in ranvier.some(SPREAD):
            check_spread(tap, folder, model, options, folds)
        for plan in ranvier.some(DIFFERENT):
            check_different(tap, folder, plan)
        trace = os.path.join(folder, "trace.json")
        status, report, said = simulate(folder, EQUAL[0], "--trace", trace)
        tap.ok(status == 0 and report["simulation"]["folded_replicas"] == 1 and '"pid":23' in open(trace).read(),
               "a trace shows every replica", said)
        status, report, said = simulate(folder, EQUAL[0], "--trace", trace, "--fold", "on")
        tap.ok(status == 0 and report["simulation"]["folded_replicas"] == 4 and '"pid":23' not in open(trace).read(),
               "unless folding is asked for", said)
        status, _, said = simulate(folder, EQUAL[0], "--fold", "perhaps")
        tap.ok(status == 2 and "--fold: 'perhaps' is not known; there are auto, on and off" in said, "--fold takes no other word", said)
    tap.end()


main()
