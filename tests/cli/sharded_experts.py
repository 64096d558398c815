#!/usr/bin/python3
"""--zero 3 with --ep: replicas with the same experts share these, and all replicas all else. The losses, checkpoints and memory of
any other plan, the same operations in both worlds, and predictions of uneven routing."""
import csv
import json
import os
import sys
import tempfile

sys.path.insert(0, os.path.dirname(__file__))
import experts
import ranvier
import shards

ZERO = ("--zero", 3)
# grid, ep, more
PLANS = [((1, 2, 1), 2, ()), ((1, 4, 1), 2, ()), ((1, 4, 1), 4, ("--reshard-after-forward", "off")), ((1, 4, 1), 2, ("--clip", 0.1, "--unit-layers", 3)),
         ((1, 4, 1), 2, ("--gather-each", "batch", "--prefetch", 2)), ((1, 2, 2), 2, (*shards.SPLIT, "--clip", 0.1)), ((1, 4, 1), 2, ("--fusion", "off", "--recompute", "full"))]
HALF = [((1, 4, 1), 2, "bf16", ("--offload", "--offload-parameters", "--bucket-params", 3000)), ((1, 4, 1), 2, "bf16", ("--reduce-dtype", "fp32"))]
MIXED = ("--precision", "mixed")
REPORTS = [((1, 4, 1), ("--ep", 2, *ZERO, *MIXED)), ((1, 4, 1), ("--ep", 4, *ZERO, *MIXED, "--offload", "--offload-parameters", "--unit-layers", 2)),
           ((1, 2, 2), ("--ep", 2, *ZERO, *MIXED, *shards.SPLIT, "--gather-each", "batch"))]
MACHINE = ("--profile", "h100-published", "--platform", "dgx-h100", "--seq-len", 2048, "--device-memory", "4096GiB", "--precision", "bf16")
# Model, GPUs, ep: experts in one node and over several, where their rows and layers share links.
PREDICTIONS = [("qwen3-30b-a3b", 8, 4), ("qwen3-30b-a3b", 16, 8), ("deepseek-v3", 32, 32)]


def check_predictions(tap, bench):
    """On paper about as long as simulated, and folded as unfolded; uneven rows of experts take longer."""
    table = bench.path("sweep.csv")
    for model, gpus, ep in PREDICTIONS:
        seconds = []
        for fold in ("off", "auto"):
            status, out, err = ranvier.run(
                ["sweep", model, "--gpus", gpus, "--pp", 1, "--tp", 1, "--ep", ep, "--zero", 3, "--micro-batch-size", 1, "--batch-size", gpus, "--fold", fold,
                 "--offload", "no", "--recompute", "none", "--simulate", "all", "--csv", table, *MACHINE])
            rows = []
            if status == 0:
                with open(table) as file:
                    rows = [(float(row["batch_seconds"]), float(row["paper_seconds"])) for row in csv.DictReader(file)]
            tap.ok(len(rows) == 1 and abs(rows[0][1] / rows[0][0] - 1) < 0.04,
                   f"{model} on {gpus} GPUs, experts over {ep}, fold {fold}: on paper as simulated within 4 %", f"{rows}{out}{err}")
            seconds += [row[0] for row in rows]
        tap.ok(len(seconds) == 2 and abs(seconds[0] / seconds[1] - 1) < 3e-3, "and folded as long as unfolded within 0.3 %", seconds)
    seconds = []
    for exponent in (0, 0.5):
        report = bench.path("report.json")
        status, out, err = ranvier.run(["simulate", "qwen3-30b-a3b", "--gpus", 8, "--dp", 8, "--ep", 4, "--zero", 3, "--micro-batch-size", 1, "--batch-size", 8,
                                        "--routing-exponent", exponent, "--report", report, *MACHINE])
        with open(report) as file:
            seconds.append(json.load(file)["batch_seconds"]["median"] if status == 0 else err)
    tap.ok(all(isinstance(s, float) for s in seconds) and 1.02 < seconds[1] / seconds[0] < 2, "uneven rows of experts take longer", seconds)


def main():
    tap = ranvier.Tap()
    with tempfile.TemporaryDirectory() as folder:
        bench = experts.Bench(folder)
        for grid, ep, more in PLANS:
            more = (*ZERO, *more)
            experts.check_losses(tap, bench, bench.model(grid[2]), grid, ep, experts.TOLERANCE, more, experts.named(grid, ep, *more))
        for grid, ep, precision, more in HALF:
            more = ("--precision", precision, *ZERO, *more)
            experts.check_losses(tap, bench, bench.model(grid[2]), grid, ep, experts.HALF_TOLERANCE, more, experts.named(grid, ep, *more))
        model, checkpoint = bench.model(), bench.path("checkpoint.safetensors")
        bench.train(model, (1, 1, 1), 1, "--checkpoint", checkpoint, *experts.STEPS)
        one = shards.tensors(checkpoint)
        bench.train(model, (1, 4, 1), 2, "--checkpoint", checkpoint, *ZERO, *experts.STEPS)
        other = shards.tensors(checkpoint)
        apart = max(max(abs(x - y) for x, y in zip(one[name], other[name])) for name in one)
        tap.ok(one.keys() == other.keys() and apart < 1e-4, "the checkpoint of one rank", apart)
        dense = shards.llama_of(folder, **shards.LIKE_LLAMA["a DeepSeek-V3"] | {"num_hidden_layers": 5, "first_k_dense_replace": 2})
        losses, one = bench.train(dense, (1, 4, 1), 2, *ZERO, "--unit-layers", 2), bench.train(dense, (1, 1, 1), 1)
        difference = shards.worst(losses, one)
        tap.ok(difference is not None and difference <= shards.ONE_ROW, "units of a dense block and of one with experts: the losses of one rank", losses)
        for grid, more in REPORTS:
            shards.check_report(tap, folder, bench.model(grid[2]), grid, "axonn", more)
        check_predictions(tap, bench)
    tap.end()


if __name__ == "__main__":
    main()
