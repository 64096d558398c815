#!/usr/bin/python3
"""Interleaved stages whose chunks have unequal numbers of layers: the losses, checkpoint and memory of any other split, the same
operations in both worlds, and Megatron-LM's split where embedding and loss take the place of a layer each."""
import csv
import functools
import os
import sys
import tempfile

sys.path.insert(0, os.path.dirname(__file__))
import ranvier
import shards
import text

TOLERANCE = 1e-6  # relative
OFFLOAD = ("--precision", "mixed", "--offload", "--offload-activations", "--messages", "staged")
# grid, virtual stages, more
PLANS = [((2, 1, 1), 2, ("--logits", "8KiB")), ((2, 1, 1), 3, ("--p2p", "blocking")), ((2, 1, 1), 4, ("--fusion", "off", "--offload-activations")),
         ((2, 2, 1), 2, ("--zero", 1, "--overlap-allreduce", *shards.BUCKETS)), ((2, 1, 2), 3, shards.SPLIT),
         ((3, 1, 1), 3, ("--recompute", "full")), ((4, 1, 1), 2, ())]
# layers, grid, virtual stages, more
HALF = ("--precision", "mixed")
REPORTS = [(10, (2, 1, 2), 3, HALF), (10, (2, 1, 2), 4, (*HALF, *shards.SPLIT, "--recompute", "full")),
           (5, (2, 1, 2), 2, (*HALF, "--offload-activations", "--messages", "staged")),
           (7, (2, 2, 2), 3, (*HALF, "--zero", 1, "--overlap-allreduce", *shards.BUCKETS)), (11, (3, 1, 2), 3, (*HALF, "--p2p", "blocking")),
           (4, (2, 2, 1), 2, (*HALF, "--logits", "8KiB"))]
SPREAD = (7, (2, 2, 1), 3, (*HALF, "--ep", 2))
# model, pp, virtual stages, layers of these where they differ
SPLITS = [("llama3.1-405b", 8, 8, "1 or 2"), ("qwen3-235b-a22b", 8, 4, "2 or 3"), ("deepseek-v3", 4, 8, "1 or 2"), ("llama3-70b", 8, 5, None)]
MACHINE = ("--micro-batch-size", 1, "--seq-len", 1024, "--profile", "h100-published", "--platform", "dgx-h100")


def interleaved(chunks, more):
    return ("interleaved", "--virtual-stages", chunks, *more)


def check_args(chunks, more):
    return "interleaved", ("--virtual-stages", chunks, *more)


def check_splits(tap):
    for model, pp, chunks, layers in SPLITS:
        status, out, err = ranvier.run(
            ["simulate", model, "--pp", pp, "--gpus", pp, "--schedule", "interleaved", "--virtual-stages", chunks, "--batch-size", pp, *MACHINE,
             "--ignore-memory"])
        sentence = f"virtual stages of {layers} layers"
        tap.ok(status == 0 and ((sentence in out) if layers else ("virtual stages of" not in out)),
               f"{model} on {pp} x {chunks} virtual stages has {layers + ' layers' if layers else 'as many layers'} on each, and says so where they differ",
               out + err)


def check_paper(tap, folder):
    """Batches end on paper when they end in SimGrid."""
    table = os.path.join(folder, "sweep.csv")
    for model, pp, chunks, _ in SPLITS[1:3]:
        status, out, err = ranvier.run(
            ["sweep", model, "--gpus", pp, "--pp", pp, "--schedule", "interleaved", "--virtual-stages", chunks, "--batch-size", 2 * pp, *MACHINE,
             "--device-memory", "4096GiB", "--offload", "no", "--recompute", "none", "--simulate", "all", "--csv", table])
        with open(table) as file:
            apart = [abs(float(row["paper_seconds"]) / float(row["batch_seconds"]) - 1) for row in csv.DictReader(file)]
        tap.ok(status == 0 and apart and max(apart) < 1e-6, f"{model} on {pp} x {chunks} virtual stages: as long on paper as simulated", f"{apart}{out}{err}")


def main():
    tap = ranvier.Tap()
    with tempfile.TemporaryDirectory() as folder:
        text.write(os.path.join(folder, "text.txt"))
        llama = functools.partial(shards.llama_of, folder)
        model = llama(num_hidden_layers=10)
        paths = [os.path.join(folder, f"{which}.safetensors") for which in ("one", "many")]
        one = shards.train(folder, model, (1, 1, 1), "axonn", "--checkpoint", paths[0])
        for grid, chunks, more in PLANS:
            losses = shards.train(folder, model, grid, *interleaved(chunks, more), "--checkpoint", paths[1])
            difference = shards.worst(losses, one)
            apart = None
            if difference is not None:
                a, b = map(shards.tensors, paths)
                apart = max(abs(x - y) for name in a for x, y in zip(a[name], b[name])) if a.keys() == b.keys() else None
            tap.ok(difference is not None and difference <= TOLERANCE and apart is not None and apart < 1e-4,
                   f"10 layers on {'x'.join(map(str, grid))} with {chunks} chunks {' '.join(map(str, more))}: losses and checkpoint of one device",
                   f"{difference} {apart} {losses}")
        plain = shards.train(folder, model, (2, 1, 1), *interleaved(3, HALF))
        offloaded = shards.train(folder, model, (2, 1, 1), *interleaved(3, (*OFFLOAD, *shards.BUCKETS)))
        tap.ok(isinstance(plain, list) and offloaded == plain, "offloaded and staged, the same losses bit for bit", f"{plain}\n{offloaded}")
        for layers, grid, chunks, more in REPORTS:
            shards.check_report(tap, folder, llama(num_hidden_layers=layers), grid, *check_args(chunks, more))
        keys = shards.LIKE_LLAMA["a DeepSeek-V3"] | {"first_k_dense_replace": 3}
        layers, grid, chunks, more = SPREAD
        mixture = llama(num_hidden_layers=layers, **keys)

        def both(*seed):
            return (shards.train(folder, mixture, grid, *interleaved(chunks, ("--ep", 2)), *seed),
                    shards.train(folder, mixture, (1, 1, 1), "axonn", *seed))
        difference = shards.worst_of_routed(both, TOLERANCE)
        tap.ok(difference is not None and difference <= TOLERANCE, "a DeepSeek-V3 of 7 layers, 3 of them dense: the losses of one device", difference)
        shards.check_report(tap, folder, mixture, grid, *check_args(chunks, more))
        check_splits(tap)
        check_paper(tap, folder)
    tap.end()


if __name__ == "__main__":
    main()
