#!/usr/bin/python3
"""Replicas that share: what a rank of --zero 1 holds is predicted to the byte, its checkpoint is that of a run without, and
--zero 3 is predicted by what its layers take."""
import json
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
         ((2, 2), MIXED + BUCKETS + ["--split", 1])]
SHAPE = ["--micro-batch-size", 1, "--batch-size", 12]


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
    for (pp, dp), flags in PLANS:
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


GPT2 = {"n_layer": 48, "n_embd": 1600, "vocab_size": 50257, "n_positions": 1024}  # gpt2-1.5b


def check_units(tap, folder):
    """The trace shows every gather and reduction of a layer: of tiny's embedding, four blocks and head."""
    trace = os.path.join(folder, "trace.json")
    _, said = simulate(folder, "tiny", 1, 2, *SHAPE, "--seq-len", 64, *MIXED, "--zero", 3, "--trace", trace)
    found = {}
    for event in json.load(open(trace))["traceEvents"]:
        what = event.get("args", {})
        if event.get("ph") == "X" and what.get("of", what["kind"]) in ("forward", "backward") and event["pid"] == 0:
            found.setdefault((what["kind"], what.get("of", what["kind"]), what["micro_batch"]), []).append(what.get("segment", 0))
    blocks = 4
    expected = {("forward", "forward"): range(blocks + 2), ("all-gather", "forward"): range(blocks + 2),
                ("backward", "backward"): range(blocks + 2), ("all-gather", "backward"): range(1, blocks + 1),
                ("reduce-scatter", "backward"): range(blocks + 2)}
    tap.ok(found == {(*key, m): list(units) for key, units in expected.items() for m in range(6)},
           "every unit is gathered, computed and reduced, for each micro-batch", f"{said}{found}")


def check_layers(tap, folder):
    V, C, T = GPT2["vocab_size"], GPT2["n_embd"], GPT2["n_positions"]
    block, embedding = 12 * C * C + 13 * C, (V + T) * C
    parameters = embedding + GPT2["n_layer"] * block + 2 * C
    aligned = lambda elements, width: (elements * width + 63) // 64 * 64
    plan = [*MIXED, "--micro-batch-size", 2, "--recompute", "layer"]
    dp = 12
    run = lambda zero, batch: simulate(folder, "gpt2-1.5b", 1, dp, *plan, "--batch-size", batch, "--zero", zero)[0]
    one, two, none = run(3, 24), run(3, 48), run(0, 24)
    share = -(-parameters // dp)
    expected = aligned(share, 2) + aligned(block + embedding, 2)
    found = one["ranks"][0]["bytes"]
    tap.ok(found["weights"] == found["gradients"] == expected,
           "zero 3: a share of weights and gradients is held, and two layers whole", f"{found} {expected}")
    tap.ok(found["optimizer"] == found["master"] == 2 * aligned(share, 4), "and a share of the optimizer", found)
    seconds = lambda report: report["phases"]["pipeline_seconds"]
    tap.ok(seconds(one) > seconds(none), "gathering layers takes time", f"{seconds(one)} {seconds(none)}")
    tap.ok(abs(seconds(two) / seconds(one) - 2) < 0.01, "for each micro-batch anew", f"{seconds(two)} {seconds(one)}")
    tap.ok(one["phases"]["allreduce_seconds"] == 0, "and nothing is left to be summed behind the pipeline")
    check_units(tap, folder)
    _, err = train(folder, 1, 2, "--zero", 3)
    tap.ok("--zero 3 is simulated only" in err and err.count("\n") <= 30, "train refuses it in a sentence", err)


def main():
    tap = ranvier.Tap()
    with tempfile.TemporaryDirectory() as folder:
        text.write(os.path.join(folder, "text.txt"))
        check_memory(tap, folder)
        check_checkpoint(tap, folder)
        check_layers(tap, folder)
    tap.end()


if __name__ == "__main__":
    main()
