#!/usr/bin/python3
"""Replicas that share: what a rank of --zero 1, 2 or 3 holds is predicted to the byte, and by hand; losses and checkpoints are those
of a run without; of --zero 2 and 3 every unit is gathered, computed and reduced as the plan says, by shards and by ranks with parts of
sequences too."""
import csv
import functools
import json
import math
import os
import sys
import tempfile

sys.path.insert(0, os.path.dirname(__file__))
import ranvier
import text

BUCKETS = ["--bucket-params", 9000, "--allreduce-buckets", 2]
MIXED = ["--precision", "mixed"]
PLANS = [((1, 2), MIXED + BUCKETS), ((1, 3), MIXED + BUCKETS + ["--offload"]), ((2, 2), MIXED + BUCKETS + ["--offload"]),
         ((2, 2), MIXED), ((1, 4), MIXED + ["--clip", 0]),
         ((1, 2), MIXED + BUCKETS + ["--offload", "--allreduce", "staged", "--recompute", "layer"]),
         ((2, 2), MIXED + BUCKETS + ["--split", 0]), ((2, 2), MIXED + BUCKETS + ["--offload", "--overlap-allreduce"])]
SHAPE = ["--micro-batch-size", 1, "--batch-size", 12]

KEPT, BATCH, LARGE = ["--reshard-after-forward", "off"], ["--gather-each", "batch"], ["--unit-layers", 3]
NARROW = ["--gradients", "16-bit"]
# Zero 3, against one rank: model, replicas, flags.
UNITS = [("tiny", 2, []), ("tiny", 3, []), ("tiny", 8, ["--batch-size", 8]), ("tiny", 4, KEPT), ("tiny", 3, BATCH), ("tiny", 2, LARGE + BATCH),
         ("tiny", 4, LARGE + ["--prefetch", 0]), ("tiny", 2, ["--prefetch", 5]), ("tiny", 2, BATCH + ["--prefetch", 7]),
         ("tiny", 2, ["--schedule", "gpipe", "--clip", 0.1]), ("tiny", 4, ["--schedule", "gpipe", "--prefetch", 0] + KEPT),
         ("tiny", 3, ["--schedule", "1f1b", "--p2p", "blocking"]), ("tiny", 2, ["--recompute", "full", "--micro-batch-size", 3]),
         ("tiny", 2, ["--fusion", "off", "--recompute", "selective"]), ("tiny", 2, ["--pipeline-limit", 3, "--bucket-params", 3000]),
         ("tiny", 4, ["--shard-replicas", 2]), ("tiny", 8, ["--shard-replicas", 4, "--batch-size", 8, "--clip", 0.1] + BATCH),
         ("tiny", 6, ["--shard-replicas", 3, "--clip", 0, "--bucket-params", 3000, "--allreduce-buckets", 1]), ("llama-tiny", 4, ["--shard-replicas", 2]),
         ("tiny", 4, ["--shard-replicas", 1]), ("llama-tiny", 2, []), ("llama-tiny", 4, BATCH + ["--clip", 0]), ("mixtral-tiny", 2, []), ("mixtral-tiny", 3, BATCH),
         ("deepseek-tiny", 2, []), ("deepseek-tiny", 4, ["--unit-layers", 2]), ("tiny", 2, ["--tp", 2]),
         ("llama-tiny", 2, ["--tp", 2, "--sequence-parallel", "--unit-layers", 3] + BATCH), ("mixtral-tiny", 2, ["--tp", 2, "--sequence-parallel"]),
         ("tiny", 1, ["--cp", 2]), ("tiny", 1, ["--cp", 2, "--tp", 2, "--clip", 0.1, "--sequence-parallel"])]
# And zero 2.
REDUCED = [("tiny", 3, BATCH), ("tiny", 8, LARGE + ["--batch-size", 8]), ("tiny", 2, ["--clip", 0.1, "--bucket-params", 300]),
           ("tiny", 4, ["--shard-replicas", 2, "--schedule", "1f1b", "--p2p", "blocking"] + BATCH), ("llama-tiny", 3, []), ("deepseek-tiny", 3, ["--unit-layers", 2]),
           ("tiny", 3, ["--pp", 2, "--clip", 0.1]), ("tiny", 2, ["--pp", 4, "--schedule", "gpipe"] + BATCH), ("tiny", 4, ["--pp", 2, "--shard-replicas", 2]),
           ("llama-tiny", 2, ["--pp", 2, "--schedule", "1f1b", "--p2p", "blocking"]),
           ("tiny", 2, ["--pp", 2, "--tp", 2, "--clip", 0.1, "--sequence-parallel"]), ("llama-tiny", 1, ["--pp", 2, "--cp", 2, "--cp-exchange", "all-gather"])]
TOLERANCE = 1e-6
# Zero 3, or 2, whose memory is predicted.
GATHERED = [(2, []), (3, KEPT), (4, BATCH), (2, LARGE), (3, ["--prefetch", 0]), (2, ["--prefetch", 2]), (3, ["--offload"] + BUCKETS),
            (4, ["--shard-replicas", 2, "--offload"] + BUCKETS), (2, ["--schedule", "gpipe", "--recompute", "layer"]), (2, ["--schedule", "1f1b", "--p2p", "blocking"])]
SHARED_GRADIENTS = [(2, LARGE), (3, ["--offload"] + BUCKETS), (4, ["--shard-replicas", 2] + BATCH)]
# With collectives inside units: memory, operations and replay.
PARTS = [("tiny", (1, 2), ["--zero", 3, "--tp", 2, "--sequence-parallel"]), ("llama-tiny", (1, 1), ["--zero", 3, "--cp", 2] + LARGE),
         ("tiny", (2, 2), ["--zero", 2, "--tp", 2, "--sequence-parallel", "--offload"])]


def ranks_of(pp, dp, flags):
    return pp * dp * math.prod(flags[flags.index(axis) + 1] for axis in ("--tp", "--cp") if axis in flags)


def train(folder, pp, dp, *more):
    report = os.path.join(folder, "report.json")
    status, out, err = ranvier.run(
        ["train", "tiny", "--data", os.path.join(folder, "text.txt"), "--pp", pp, "--dp", dp, *SHAPE, "--steps", 8, "--lr", 3e-3,
         "--report", report, *more], pp * dp)
    return (json.load(open(report)) if status == 0 else None), err


def simulate(folder, model, pp, dp, *more):
    report = os.path.join(folder, "predicted.json")
    status, out, err = ranvier.run(["simulate", model, "--profile", "v100-datasheet", "--platform", "summit", "--gpus", pp * dp,
                                    "--pp", pp, "--dp", dp, "--ignore-memory", "--report", report, *more])
    return (json.load(open(report)) if status == 0 else None), out + err


def holds(report):
    return [(rank["bytes"], rank["host_bytes"]) for rank in report["ranks"]]


def optimizer_bytes(report):
    rank = report["ranks"][0]
    return sum(rank[where][what] for where in ("bytes", "host_bytes") for what in ("master", "optimizer"))


def check_memory(tap, folder):
    for (pp, dp), flags in ranvier.some_sanitized(PLANS):
        name = f"{pp} x {dp} --zero 1 {' '.join(map(str, flags))}"
        measured, err = train(folder, pp, dp, "--zero", 1, "--fusion", "off", *flags)  # as the profile has it
        predicted, said = simulate(folder, "tiny", pp, dp, *SHAPE, "--seq-len", 64, "--zero", 1, *flags)
        whole, _ = simulate(folder, "tiny", pp, dp, *SHAPE, "--seq-len", 64, *flags)
        tap.ok(measured and predicted and holds(measured) == holds(predicted), f"{name}: memory is predicted to the byte",
               err if not measured else f"{said}{holds(measured)}\n{predicted and holds(predicted)}")
        tap.ok(predicted and whole and optimizer_bytes(predicted) <= optimizer_bytes(whole) / dp + 4096 * pp,
               f"{name}: the optimizer takes a replica's share")


def check_checkpoint(tap, folder):
    for (pp, dp), flags in (((1, 2), MIXED + BUCKETS), ((2, 2), MIXED + BUCKETS + ["--offload"]), ((1, 2), BUCKETS)):
        files = []
        for zero in (1, 0):
            path = os.path.join(folder, f"zero{zero}.safetensors")
            _, err = train(folder, pp, dp, "--zero", zero, "--checkpoint", path, *flags)
            files.append(open(path, "rb").read() if os.path.exists(path) else err)
        tap.ok(isinstance(files[0], bytes) and files[0] == files[1],
               f"{pp} x {dp} --zero 1 {' '.join(map(str, flags))}: the checkpoint is that of --zero 0, bit for bit",
               [f if isinstance(f, str) else len(f) for f in files])
    files = []
    for split in ("even", 1, 3):
        path = os.path.join(folder, f"split{split}.safetensors")
        _, err = train(folder, 2, 2, "--zero", 1, "--split", split, "--clip", 0, "--checkpoint", path)
        files.append(open(path, "rb").read() if os.path.exists(path) else err)
    tap.ok(isinstance(files[0], bytes) and files[0] == files[1] == files[2],
           "however layers are split over the stages, the checkpoint is the same, bit for bit",
           [f if isinstance(f, str) else len(f) for f in files])
    status, out, err = ranvier.run(["sample", os.path.join(folder, "zero1.safetensors"), "--prompt", "a"])
    tap.ok(status == 0 and out, "and is sampled from", err)


def read(path):
    return open(path, "rb").read() if os.path.exists(path) else None


def trained(folder, model, dp, *more):
    """Losses of all steps, the last validation's too, and the checkpoint; else what was said."""
    log, checkpoint = os.path.join(folder, "log.csv"), os.path.join(folder, "checkpoint.safetensors")
    pp = more[more.index("--pp") + 1] if "--pp" in more else 1
    for path in (log, checkpoint):
        if os.path.exists(path):
            os.remove(path)
    status, out, err = ranvier.run(["train", model, "--data", os.path.join(folder, "text.txt"), "--dp", dp, *SHAPE, "--steps", ranvier.STEPS,
                                    "--lr", 3e-3, "--seq-len", 32, "--log", log, "--checkpoint", checkpoint, *more], ranks_of(pp, dp, more))
    if status:
        return None, err
    return [*ranvier.losses(log), float(list(csv.DictReader(open(log)))[-1]["val_loss"])], read(checkpoint)


def check_equivalence(tap, folder):
    reference = functools.lru_cache(None)(lambda model, *more: trained(folder, model, 1, *more))
    alone = {"--batch-size", "--micro-batch-size", "--clip", "--fusion", "--recompute"}
    for zero, model, dp, flags in ranvier.some([(3, *case) for case in UNITS] + [(2, *case) for case in REDUCED]):
        same = [word for i in range(0, len(flags), 2) if flags[i] in alone for word in flags[i:i + 2]]
        one, _ = reference(model, *same)
        losses, said = trained(folder, model, dp, "--zero", zero, *flags)
        worst = max(abs(a - b) / b for a, b in zip(losses, one)) if losses and one else 1
        tap.ok(losses and len(losses) == len(one) == ranvier.STEPS + 1 and worst <= TOLERANCE,
               f"{model} --dp {dp} --zero {zero} {' '.join(map(str, flags))}: the losses of one rank", f"{worst}\n{losses}\n{one}\n{said if not losses else ''}")


def check_bits(tap, folder):
    for precision in ranvier.some_sanitized(("fp32", "mixed", "bf16")):
        plan = ["--precision", precision, "--zero", 3]
        one = trained(folder, "tiny", 2, *plan)
        others = [KEPT, ["--prefetch", 0], ["--prefetch", 3], ["--schedule", "gpipe"], ["--schedule", "gpipe"] + KEPT]
        others += [["--offload"] + BUCKETS] if precision != "fp32" else []
        for flags in others:
            tap.ok(one[0] and trained(folder, "tiny", 2, *plan, *flags) == one,
                   f"{precision} {' '.join(map(str, flags))}: the same bits as without")
    for precision in ("fp32", "bf16"):
        plan = ["--precision", precision, "--clip", 0]
        whole = trained(folder, "tiny", 2, *plan, *NARROW)
        for zero in (2, 3) if precision == "fp32" else (3,):
            batch = trained(folder, "tiny", 2, *plan, "--zero", zero, *BATCH)
            tap.ok(whole[0] and batch[1] == whole[1], f"{precision} --zero {zero}: reduced once a batch, the checkpoint is that of --zero 0, bit for bit",
                   f"{whole[0]}\n{batch[0] or batch[1]}")
    plan = ["--pp", 2, "--schedule", "1f1b", "--precision", "bf16", "--clip", 0]
    whole, batch = trained(folder, "tiny", 2, *plan, *NARROW), trained(folder, "tiny", 2, *plan, "--zero", 2, "--offload", *BATCH)
    tap.ok(whole[0] and batch[1] == whole[1], "of two stages that share an embedding, too", f"{whole[0]}\n{batch[0] or batch[1]}")
    for precision, flags in ranvier.some_sanitized((("fp32", []), ("mixed", ["--offload"] + BUCKETS), ("bf16", []))):
        gathered, reduced = (trained(folder, "tiny", 3, "--precision", precision, *more) for more in (["--zero", 3], ["--zero", 2, *flags]))
        tap.ok(gathered[0] and reduced == gathered, f"{precision} --zero 2 {' '.join(map(str, flags))}: the same bits as --zero 3")
    path, again = os.path.join(folder, "zero3.safetensors"), os.path.join(folder, "again.safetensors")
    for precision, zero in ranvier.some_sanitized((("fp32", 3), ("bf16", 3), ("fp32", 2), ("bf16", 2))):
        plan = ["--batch-size", 12, "--micro-batch-size", 1, "--data", os.path.join(folder, "text.txt"), "--dp", 3, "--zero", zero]
        ranvier.run(["train", "tiny", *plan, "--steps", 2, "--precision", precision, "--checkpoint", path], 3)
        status, _, err = ranvier.run(["train", "--init", path, *plan, "--steps", 1, "--lr", 0, "--min-lr", 0, "--precision", precision, "--checkpoint", again], 3)
        tap.ok(status == 0 and weights(path) == weights(again), f"{precision} --zero {zero}: what is written is read again, by replicas that each keep a share", err)


def check_reduced_in_fp32(tap, folder):
    """All replicas and micro-batches have one sequence, the only one that there is. So every gradient is the same, a sum of N in fp32 is N times
    one of them exactly (N: a power of two), and the training is that of one rank with one sequence a batch, bit for bit; sums in bf16 are rounded. Each rank has one thread, as products by OpenBLAS may have
    other bits with more, on processors with AVX2 alone."""
    alone, log, path = (os.path.join(folder, name) for name in ("alone.txt", "alone.csv", "alone.safetensors"))
    open(alone, "w").write("".join(chr(97 + (i * i * 7 + i // 3) % 26) for i in range(33)))

    def run(model, dp, batch, *more):
        pp = more[more.index("--pp") + 1] if "--pp" in more else 1
        status, _, err = ranvier.run(["train", model, "--data", alone, "--dp", dp, "--batch-size", batch, "--micro-batch-size", 1, "--seq-len", 32, "--steps", 6, "--lr", 3e-3,
                                      "--threads", 1, "--validation-fraction", 0, "--precision", "bf16", "--log", log, "--checkpoint", path, *more], dp * pp)
        return (ranvier.losses(log), read(path)) if status == 0 else (None, err)

    fp32, narrow = ["--reduce-dtype", "fp32"], ["--reduce-dtype", "16-bit"]
    for model, dp, flags in (("tiny", 2, ["--zero", 3]), ("tiny", 4, ["--zero", 2, "--shard-replicas", 2, "--offload"] + BUCKETS),
                             ("llama-tiny", 2, ["--zero", 2, "--pp", 2])):
        one, many = run(model, 1, 1, *NARROW), run(model, dp, 8, *flags, *fp32)
        tap.ok(one[0] and many == one, f"{model} --dp {dp} {' '.join(map(str, flags))} --reduce-dtype fp32: eight times one gradient, exactly",
               f"{one[0]}\n{many[0]}")
    tap.ok(run(model, 2, 8, "--zero", 3, *narrow)[1] != one[1], "which a sum in 16 bits is not")
    tap.ok(run(model, 2, 8, "--zero", 3)[1] == one[1], "and which bf16 has by default")
    V, C, T, blocks = 256, 32, 64, 4
    block, ends = 12 * C * C + 13 * C, (V + T) * C + 2 * C
    aligned = lambda elements, width: (elements * width + 63) // 64 * 64
    for zero, dp, flags in ((3, 4, ["--shard-replicas", 2, "--offload"] + BUCKETS), (2, 3, LARGE)):
        name = f"--dp {dp} --zero {zero} --reduce-dtype fp32 {' '.join(map(str, flags))}"
        plan, trace = [*MIXED, "--zero", zero, *fp32, *flags], os.path.join(folder, "trace.json")
        measured, err = train(folder, 1, dp, "--fusion", "off", *plan)
        predicted, said = simulate(folder, "tiny", 1, dp, *SHAPE, "--seq-len", 64, *plan, "--trace", trace)
        tap.ok(measured and predicted and holds(measured) == holds(predicted), f"{name}: memory is predicted to the byte",
               err if not measured else f"{said}{holds(measured)}\n{predicted and holds(predicted)}")
        each = flags[flags.index("--unit-layers") + 1] if "--unit-layers" in flags else 1
        units, share = [min(each, blocks - first) for first in range(0, blocks, each)], 2 if "--shard-replicas" in flags else dp
        kept = -(-ends // share) + sum(-(-unit * block // share) for unit in units)
        buffers = sum(aligned(ends, width) + 2 * aligned(max(units) * block, width) for width in (2, 4))
        found = measured["ranks"][0]["bytes"] if measured else {}
        tap.ok(measured and found["gradients"] == aligned(kept, 4) + buffers and optimizer_bytes(measured) == 3 * aligned(kept, 4),
               f"{name}: shares in fp32, which need no copies to be updated from, and buffers of both, as worked out by hand", f"{found}")
        moved = {event["args"]["kind"]: event["args"]["bytes"] for event in json.load(open(trace))["traceEvents"]
                 if event.get("ph") == "X" and event["args"].get("range") == 1 and event["args"]["kind"] in ("all-gather", "reduce-scatter")}
        tap.ok(moved["reduce-scatter"] == 4 * units[-1] * block and moved.get("all-gather", 2 * units[0] * block) == 2 * units[0] * block,
               f"{name}: four bytes a gradient are reduced, two a weight gathered", f"{moved}")


def check_offloaded_parameters(tap, folder):
    """Shares of weights in host memory: the same bits; the shares and buffers are as worked out by hand; each gather follows the fetch of a share."""
    V, C, T, blocks, trace = 256, 32, 64, 4, os.path.join(folder, "trace.json")
    block, ends = 12 * C * C + 13 * C, (V + T) * C + 2 * C
    aligned = lambda elements, width: (elements * width + 63) // 64 * 64
    for precision, dp, flags in (("fp32", 3, []), ("bf16", 3, ["--prefetch", 2] + BUCKETS), ("mixed", 4, ["--offload", "--shard-replicas", 2, "--reduce-dtype", "fp32"] + BUCKETS)):
        plan, more = ["--precision", precision, "--zero", 3, *flags], ["--offload-parameters"]
        name = f"{precision} --dp {dp} {' '.join(map(str, flags))} --offload-parameters"
        one, other = trained(folder, "tiny", dp, *plan), trained(folder, "tiny", dp, *plan, *more)
        tap.ok(one[0] and one == other, f"{name}: the same bits as without", f"{one[0] or one[1]}\n{other[0] or other[1]}")
        if precision == "fp32":
            continue
        measured, err = train(folder, 1, dp, "--fusion", "off", *plan, *more, "--trace", trace)
        real = fetches(trace, 7)
        predicted, said = simulate(folder, "tiny", 1, dp, *SHAPE, "--seq-len", 64, *plan, *more, "--trace", trace) if precision == "mixed" else (None, "")
        tap.ok(measured and (precision != "mixed" or (predicted and holds(measured) == holds(predicted))), f"{name}: memory is predicted to the byte",
               err if not measured else f"{said}{holds(measured)}\n{predicted and holds(predicted)}")
        share = 2 if "--shard-replicas" in flags else dp
        kept = -(-ends // share) + blocks * -(-block // share)
        found = measured["ranks"][0] if measured else {}
        buffers = aligned(ends, 2) + (1 + (2 if "--prefetch" in flags else 1)) * aligned(block, 2)
        update = min(kept, BUCKETS[1]) // 3
        tap.ok(measured and found["host_bytes"]["weights"] == aligned(kept, 2) and found["bytes"]["weights"] == buffers and
               found["bytes"]["buckets"] == 3 * (aligned(update, 2) + (3 * aligned(update, 4) if "--offload" in flags else 0)),
               f"{name}: shares on the host, whole units and a third of a bucket on the device, as worked out by hand", f"{found}")
        gathers = real.pop("all-gather")
        tap.ok(len(gathers) == len(real["fetch weights"]) > 0 and all(bytes * share >= whole for bytes, whole in zip(real["fetch weights"], gathers)) and
               sum(real.get("store weights", [(2 + 12) * kept])) in (2 * kept, 14 * kept) and (not predicted or fetches(trace, 0)["fetch weights"] == real["fetch weights"]),
               f"{name}: every gather has a fetch, and what was updated is stored", f"{gathers}\n{real}\n{kept}")


def fetches(trace, batch):
    """Bytes of the first rank's copies of weights, and gathers, in their order."""
    found = {}
    for event in sorted((event for event in json.load(open(trace))["traceEvents"] if event.get("ph") == "X"), key=lambda event: event["ts"]):
        if event["pid"] == 0 and event["args"]["batch"] == batch and event["args"]["kind"] in ("fetch weights", "store weights", "all-gather"):
            found.setdefault(event["args"]["kind"], []).append(event["args"]["bytes"])
    return found


def check_groups(tap, folder):
    """ZeRO-1 in groups: gradients are summed over all replicas, so the bits are those of --zero 0; each group of two has all of the optimizer."""
    trace = os.path.join(folder, "trace.json")
    for pp, flags in ((1, ["--precision", "bf16", "--clip", 0.1, "--overlap-allreduce"]), (2, ["--precision", "mixed", "--offload", "--schedule", "1f1b"])):
        plan, groups = ["--pp", pp, *BUCKETS, *flags], ["--zero", 1, "--shard-replicas", 2]
        whole, shared = trained(folder, "tiny", 4, *plan), trained(folder, "tiny", 4, *plan, *groups)
        tap.ok(whole[0] and whole == shared, f"{pp} x 4 {' '.join(map(str, flags + groups))}: the losses and the checkpoint of --zero 0, bit for bit", f"{whole[0]}\n{shared[0] or shared[1]}")
    measured, err = train(folder, 1, 4, "--fusion", "off", *MIXED, *BUCKETS, *groups)
    predicted, said = simulate(folder, "tiny", 1, 4, *SHAPE, "--seq-len", 64, *MIXED, *BUCKETS, *groups, "--trace", trace)
    tap.ok(measured and predicted and holds(measured) == holds(predicted), "memory is predicted to the byte", err if not measured else f"{said}{holds(measured)}\n{predicted and holds(predicted)}")
    parameters, chunk, kinds = 4 * (12 * 32 * 32 + 13 * 32) + (256 + 64) * 32 + 2 * 32, 18000, ("all-reduce", "all-gather")
    halves = sum(-(-min(chunk, parameters - at) // 2) for at in range(0, parameters, chunk))
    tap.ok(measured and optimizer_bytes(measured) == 4 * ((4 * halves + 63) // 64 * 64), "a replica has half of each chunk's optimizer", f"{measured and measured['ranks'][0]}\n{halves}")
    moved = {kind: sum(event["args"]["bytes"] for event in json.load(open(trace))["traceEvents"] if event.get("ph") == "X" and event["pid"] == 0 and
                       event["args"]["batch"] == 0 and event["args"]["kind"] == kind) for kind in kinds}
    tap.ok(moved == {kind: 2 * parameters for kind in kinds}, "all gradients are summed, all weights gathered", f"{moved}")


def weights(path):
    """The bytes behind the header."""
    data = read(path)
    return data and data[8 + int.from_bytes(data[:8], "little"):]


def check_gathered(tap, folder):
    """Of tiny: shares of every unit, rounded up, the embedding with the head's norm as one, and the buffers of the plan."""
    V, C, T, blocks = 256, 32, 64, 4
    block, ends = 12 * C * C + 13 * C, (V + T) * C + 2 * C
    aligned = lambda elements, width: (elements * width + 63) // 64 * 64
    for zero, dp, flags in ranvier.some([(3, *case) for case in GATHERED] + [(2, *case) for case in SHARED_GRADIENTS]):
        name = f"--dp {dp} --zero {zero} {' '.join(map(str, flags))}"
        plan = [*MIXED, "--zero", zero, *flags]
        measured, err = train(folder, 1, dp, "--fusion", "off", *plan)
        predicted, said = simulate(folder, "tiny", 1, dp, *SHAPE, "--seq-len", 64, *plan)
        tap.ok(measured and predicted and holds(measured) == holds(predicted), f"{name}: memory is predicted to the byte",
               err if not measured else f"{said}{holds(measured)}\n{predicted and holds(predicted)}")
        each = flags[flags.index("--unit-layers") + 1] if "--unit-layers" in flags else 1
        units = [min(each, blocks - first) for first in range(0, blocks, each)]
        share = flags[flags.index("--shard-replicas") + 1] if "--shard-replicas" in flags else dp
        kept = -(-ends // share) + sum(-(-unit * block // share) for unit in units)
        ahead = flags[flags.index("--prefetch") + 1] if "--prefetch" in flags else 1
        weights = len(units) if "--gather-each" in flags or "--reshard-after-forward" in flags else min(1 + ahead, len(units))
        gradients = len(units) if "--gather-each" in flags else 1 if "blocking" in flags else min(2, len(units))
        buffers = lambda count: aligned(kept, 2) + aligned(ends, 2) + count * aligned(max(units) * block, 2)
        held = buffers(weights) if zero == 3 else aligned(ends, 2) + sum(aligned(unit * block, 2) for unit in units)
        found = measured["ranks"][0]["bytes"] if measured else {}
        tap.ok(measured and found["weights"] == held and found["gradients"] == buffers(gradients) and
               optimizer_bytes(measured) == (3 if "--offload" in flags else 4) * aligned(kept, 4),
               f"{name}: shares of weights, gradients and optimizer, and whole units, as worked out by hand", f"{found}")
    for pp, dp, flags in ((2, 3, LARGE), (4, 2, ["--offload"] + BUCKETS + BATCH)):
        plan = [*MIXED, "--zero", 2, *flags]
        measured, err = train(folder, pp, dp, "--fusion", "off", *plan)
        predicted, said = simulate(folder, "tiny", pp, dp, *SHAPE, "--seq-len", 64, *plan)
        tap.ok(measured and predicted and holds(measured) == holds(predicted), f"{pp} x {dp} --zero 2 {' '.join(map(str, flags))}: memory is predicted to the byte",
               err if not measured else f"{said}{holds(measured)}\n{predicted and holds(predicted)}")
    status, out, err = ranvier.run(["simulate", "gpt2-1.5b", "--profile", "a100-datasheet", "--platform", "selene", "--gpus", 64, "--dp", 64, "--zero",
                                    3, "--micro-batch-size", 1, "--batch-size", 64, "--report", os.path.join(folder, "large.json")])
    state = json.load(open(os.path.join(folder, "large.json")))["ranks"][0]["bytes"] if status == 0 else {}
    P, C = 1557611200, 1600
    whole = 2 * (50257 + 1024 + 2) * C, 2 * (12 * C * C + 13 * C)
    sixteen = sum(state.get(what, 0) for what in ("weights", "gradients", "master", "optimizer"))
    tap.ok(status == 0 and abs(sixteen - 2 * (whole[0] + 2 * whole[1]) - 20 * P / 64) < 1e5,
           "20 P / D bytes of state in mixed precision, and the gathered units", f"{err}{state}")


def check_units(tap, folder):
    """The trace shows every gather and reduction of a unit: of tiny's embedding, four blocks and head, which is tied."""
    trace, blocks = os.path.join(folder, "trace.json"), 4
    both = range(blocks + 2)
    for zero, flags, again, batches in ranvier.some_sanitized(((3, [], range(3, blocks + 1), 6), (3, KEPT, [], 6), (3, BATCH, [], 1),
                                                               (3, ["--prefetch", 0], range(2, blocks + 1), 6), (2, [], [], 6))):
        for real in (False, True):
            if real:
                _, said = train(folder, 1, 2, *MIXED, "--zero", zero, "--trace", trace, *flags)
            else:
                _, said = simulate(folder, "tiny", 1, 2, *SHAPE, "--seq-len", 64, *MIXED, "--zero", zero, "--trace", trace, *flags)
            found = {}
            for event in json.load(open(trace))["traceEvents"]:
                what = event.get("args", {})
                if event.get("ph") == "X" and what.get("of", what["kind"]) in ("forward", "backward") and event["pid"] == 0 and \
                        what["batch"] == (7 if real else 0):
                    found.setdefault((what["kind"], what.get("of", what["kind"]), what["micro_batch"]), []).append(what.get("range", 0))
            first, last = range(0, batches), range(6 - batches, 6)
            expected = {("forward", "forward", m): [*both] for m in range(6)} | {("backward", "backward", m): [*both] for m in range(6)}
            expected |= {("all-gather", "forward", m): [*both[:-1]] for m in first if zero == 3} | {("all-gather", "backward", m): [*again] for m in range(6) if again}
            expected |= {("reduce-scatter", "backward", m): [*both[1:]] for m in last}
            found = {key: sorted(units) for key, units in found.items()}
            tap.ok(found == expected, f"{'real' if real else 'simulated'} --zero {zero} {' '.join(map(str, flags))}: units are gathered and reduced as the plan says",
                   f"{said}{found}\n{expected}")


def check_parts(tap, folder):
    """Shards, and ranks that have parts of sequences, in both worlds."""
    paths = [os.path.join(folder, name) for name in ("report.json", "trace.json", "predicted.json", "simulated.json")]
    report, trace, predicted, simulated = paths
    for model, (pp, dp), flags in PARTS:
        plan = ["--pp", pp, "--dp", dp, "--precision", "bf16", *SHAPE, "--seq-len", 32, *flags]
        ranks, name = ranks_of(pp, dp, flags), f"{model} {pp} x {dp} {' '.join(map(str, flags))}"
        status, _, err = ranvier.run(["train", model, "--data", os.path.join(folder, "text.txt"), "--steps", 2, "--report", report, "--trace", trace, *plan], ranks)
        also, _, said = ranvier.run(["simulate", model, "--profile", "a100-datasheet", "--platform", "selene", "--gpus", ranks, "--ignore-memory", "--fusion", "on",
                                     "--report", predicted, "--trace", simulated, *plan])
        read = [json.load(open(path)) for path in paths] if status == also == 0 else [{}] * 4
        held = [holds(read[i]) if read[i] else None for i in (0, 2)]
        tap.ok(held[0] and held[0] == held[1], f"{name}: memory is predicted to the byte", f"{err}{said}{held}")
        found = [sorted(str([event["pid"], *(event["args"].get(key) for key in ("kind", "of", "range", "segment", "micro_batch", "bucket", "bytes"))])
                        for event in read[i].get("traceEvents", []) if event.get("ph") == "X" and event["args"]["batch"] == batch) for i, batch in ((1, 1), (3, 0))]
        tap.ok(found[0] and found[0] == found[1], f"{name}: both worlds have the same operations", f"{set(found[0]) ^ set(found[1])}")
        status, out, err = ranvier.run(["simulate", model, "--replay", trace, "--gpus", ranks, *plan])
        tap.ok(status == 0 and "identical" in out, f"{name}: a replay takes the same decisions", out + err)


def check_between_groups(tap, folder):
    """Hybrid shards: the trace shows the sums between groups, of units from the head to the embedding, before the last backward ends. Of a
    run on few processors on one rank at least: others may wait for a late one with their first unit."""
    trace, blocks = os.path.join(folder, "trace.json"), 4
    for zero, real in ((3, False), (3, True), (2, True)):
        plan = [*MIXED, "--zero", zero, "--shard-replicas", 2, "--trace", trace]
        _, said = train(folder, 1, 4, *plan) if real else simulate(folder, "tiny", 1, 4, *SHAPE, "--seq-len", 64, *plan)
        events = [event for event in json.load(open(trace))["traceEvents"] if event.get("ph") == "X" and event["args"]["batch"] == (7 if real else 0)]
        ranks = range(4) if real else {event["pid"] for event in events}
        of = lambda rank, kind: sorted((event["ts"], event["args"]["bucket"], event["ts"] + event["dur"]) for event in events
                                       if event["pid"] == rank and event["args"]["kind"] == kind)
        sums = {rank: of(rank, "all-reduce") for rank in ranks}
        tap.ok(ranks and all([unit for _, unit, _ in sums[rank]] == [*range(blocks, -1, -1)] for rank in ranks) and
               (any if real else all)(sums[rank][0][0] < max(end for *_, end in of(rank, "backward")) for rank in ranks),
               f"{'real' if real else 'simulated'} --zero {zero} --shard-replicas 2: units are summed between groups beside the last backward", f"{said}{sums}")


def check_times(tap, folder):
    plan = [*MIXED, "--micro-batch-size", 2, "--recompute", "layer"]
    run = lambda zero, batch, *more: simulate(folder, "gpt2-1.5b", 1, 12, *plan, "--batch-size", batch, "--zero", zero, *more)[0]
    one, two, none = run(3, 24), run(3, 48), run(0, 24)
    seconds = lambda report: report["phases"]["pipeline_seconds"]
    tap.ok(seconds(one) > seconds(none), "gathering layers takes time", f"{seconds(one)} {seconds(none)}")
    tap.ok(1.8 < seconds(two) / seconds(one) <= 2.01, "for each micro-batch anew, but what is hidden", f"{seconds(two)} {seconds(one)}")
    times = [seconds(run(3, 96, *flags)) for flags in (BATCH, KEPT, [], ["--prefetch", 0])]
    tap.ok(times == sorted(times) and times[0] < times[1] and 1.2 * times[2] < times[3],
           "gathered once a batch, once a micro-batch, twice, twice and nothing ahead: none is faster than the one before", f"{times}")
    tap.ok(one["phases"]["allreduce_seconds"] == 0, "and nothing is left to be summed behind the pipeline")
    reduced, shared = run(2, 24), run(1, 24)
    tap.ok(seconds(none) < seconds(reduced) < seconds(one) and reduced["phases"]["allreduce_seconds"] == 0 and
           reduced["batch_seconds"]["median"] < shared["batch_seconds"]["median"],
           "zero 2 reduces beside backwards and gathers nothing in passes: faster than zero 1 and 3",
           f"{seconds(none)} {seconds(reduced)} {reduced['batch_seconds']} {shared['batch_seconds']}")


def main():
    tap = ranvier.Tap()
    with tempfile.TemporaryDirectory() as folder:
        text.write(os.path.join(folder, "text.txt"))
        check_memory(tap, folder)
        check_checkpoint(tap, folder)
        check_equivalence(tap, folder)
        check_bits(tap, folder)
        check_reduced_in_fp32(tap, folder)
        check_offloaded_parameters(tap, folder)
        check_groups(tap, folder)
        check_gathered(tap, folder)
        check_units(tap, folder)
        check_parts(tap, folder)
        check_between_groups(tap, folder)
        check_times(tap, folder)
    tap.end()


if __name__ == "__main__":
    main()
