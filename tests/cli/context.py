#!/usr/bin/python3
"""Context parallelism: ranks that have parts of every sequence give the losses, checkpoint and memory that one device and the prediction give."""
import json
import os
import sys
import tempfile

sys.path.insert(0, os.path.dirname(__file__))
import ranvier
import shards
import text

TOLERANCE = 1e-6  # relative
SPLIT = ("--sequence-parallel",)
GATHERED = ("--cp-exchange", "all-gather")
BUCKETS = ("--bucket-params", 9000, "--allreduce-buckets", 2)
OVERLAP = ("--overlap-allreduce", *BUCKETS)
# pp, dp, tp, schedule, more
PLANS = [
    (1, 1, 1, "axonn", ("--cp", 2)), (1, 1, 1, "axonn", ("--cp", 4)), (1, 1, 1, "axonn", ("--cp", 8)),
    (1, 2, 1, "axonn", ("--cp", 2, *BUCKETS)), (1, 1, 1, "axonn", ("--cp", 4, "--zero", 1)), (1, 2, 1, "axonn", ("--cp", 2, "--zero", 1, *BUCKETS)),
    (1, 1, 2, "axonn", ("--cp", 2)), (1, 1, 2, "axonn", ("--cp", 4, *SPLIT)), (1, 1, 2, "axonn", ("--cp", 2, "--tp-overlap", 3)), (2, 1, 1, "axonn", ("--cp", 2)), (2, 1, 1, "gpipe", ("--cp", 4)),
    (2, 1, 2, "1f1b", ("--cp", 2, *SPLIT, "--zero", 1)), (4, 1, 1, "1f1b", ("--cp", 2)),
    (2, 1, 1, "interleaved", ("--cp", 2, "--virtual-stages", 2)), (1, 2, 2, "axonn", ("--cp", 2, "--order", "replicas")),
    (1, 1, 1, "axonn", ("--cp", 4, "--recompute", "full")), (2, 1, 1, "1f1b", ("--cp", 4, "--recompute", "layer")),
    (1, 1, 1, "axonn", ("--cp", 2, *GATHERED)), (1, 1, 1, "axonn", ("--cp", 8, *GATHERED)),
    (2, 1, 2, "1f1b", ("--cp", 2, *GATHERED, *SPLIT, "--zero", 1)), (1, 1, 1, "axonn", ("--cp", 4, "--recompute", "full", *GATHERED)),
    (2, 2, 1, "1f1b", ("--cp", 2, "--messages", "staged", "--allreduce", "staged", "--p2p", "blocking")),
    (2, 1, 2, "zero-bubble-h2", ("--cp", 2, *GATHERED, *SPLIT, "--recompute", "full")),
    (1, 1, 1, "fast-forward", ("--cp", 2, "--deferred-layers", 2)),
    (2, 1, 1, "gpipe", ("--cp", 2, "--offload-activations", "--recompute", "selective", *OVERLAP)), (2, 1, 1, "zero-bubble", ("--cp", 3, "--zero", 1, "--recompute", "full", *OVERLAP)),
]
# What is the same in another format: to a plan with as many replicas, whose gradients overflow at the same limit.
HALF = [((1, 1, 1), (1, 4, 1), "mixed", ("--cp", 4)), ((1, 1, 1), (1, 4, 1), "mixed", ("--cp", 4, *GATHERED)), ((1, 2, 1), (1, 4, 1), "bf16", ("--cp", 2, "--offload"))]
LIKE_LLAMA = ["a Llama with biases and scaled positions", "a Qwen2", "a Qwen3", "a DeepSeek-V3", "a DeepSeek-V3 whose queries are whole"]
LIKE_LLAMA_PLANS = [(1, 1, 1, "axonn", ("--cp", 4)), (2, 1, 2, "1f1b", ("--cp", 2, *SPLIT))]
# Of those with experts, which are spread over ranks of one sequence, or of several, too.
EXPERT_PLANS = [(1, 1, 1, "axonn", ("--cp", 4, "--ep", 2)), (2, 2, 1, "1f1b", ("--cp", 2, "--ep", 4, "--zero", 1, "--recompute", "full", *GATHERED))]


def gpt_of(folder):
    """As the tiny preset, with learned positions; heads that two shards divide, and sequences that 16 pieces divide."""
    path = os.path.join(folder, "gpt.json")
    with open(path, "w") as file:
        json.dump({"n_layer": 4, "n_embd": 32, "n_head": 4, "vocab_size": 257, "n_positions": 48}, file)
    return path


def compare(tap, folder, name, model, plans, reference):
    for pp, dp, tp, schedule, more in ranvier.some(plans):
        difference = shards.worst(shards.train(folder, model, (pp, dp, tp), schedule, *more), reference)
        tap.ok(difference is not None and difference <= TOLERANCE,
               f"{name}, {pp} x {dp} x {tp} {schedule} {' '.join(map(str, more))}: the losses of one device", difference)


def compare_routed(tap, folder, name, model):
    for pp, dp, tp, schedule, more in ranvier.some(LIKE_LLAMA_PLANS + EXPERT_PLANS):
        def both(*seed):
            return (shards.train(folder, model, (pp, dp, tp), schedule, *more, *seed), shards.train(folder, model, (1, 1, 1), "axonn", *seed))
        difference = shards.worst_of_routed(both, TOLERANCE)
        tap.ok(difference is not None and difference <= TOLERANCE,
               f"{name}, {pp} x {dp} x {tp} {schedule} {' '.join(map(str, more))}: the losses of one device", difference)


def check_checkpoint(tap, folder, model):
    paths = [os.path.join(folder, f"{ranks}.safetensors") for ranks in (1, 4)]
    shards.train(folder, model, (1, 1, 1), "axonn", "--checkpoint", paths[0], "--clip", 0, "--steps", 1)
    shards.train(folder, model, (2, 1, 1), "1f1b", "--checkpoint", paths[1], "--clip", 0, "--steps", 1, "--cp", 2, "--zero", 1)
    a, b = map(shards.tensors, paths)
    apart = max(max(abs(x - y) for x, y in zip(a[name], b[name])) for name in a)
    tap.ok(a.keys() == b.keys() and all(len(a[n]) == len(b[n]) for n in a) and apart < 1e-4, "the checkpoint of one device", apart)


def main():
    tap = ranvier.Tap()
    with tempfile.TemporaryDirectory() as folder:
        text.write(os.path.join(folder, "text.txt"))
        gpt = gpt_of(folder)
        compare(tap, folder, "a GPT-2", gpt, PLANS, shards.train(folder, gpt, (1, 1, 1), "axonn"))
        check_checkpoint(tap, folder, gpt)
        for grid, whole, precision, more in ranvier.some(HALF):
            one = shards.train(folder, gpt, whole, "axonn", "--precision", precision)
            difference = shards.worst(shards.train(folder, gpt, grid, "axonn", "--precision", precision, *more), one)
            tap.ok(difference is not None and difference < 1e-3,
                   f"{'x'.join(map(str, grid))} {precision} {' '.join(map(str, more))}: the losses of whole sequences", difference)
        for name in LIKE_LLAMA:
            model = shards.llama_of(folder, **shards.LIKE_LLAMA[name])
            if "n_routed_experts" in shards.LIKE_LLAMA[name]:
                compare_routed(tap, folder, name, model)
                shards.check_report(tap, folder, model, (1, 2, 1), "axonn", ("--cp", 2, "--ep", 4, "--precision", "mixed"))
            else:
                compare(tap, folder, name, model, LIKE_LLAMA_PLANS, shards.train(folder, model, (1, 1, 1), "axonn"))
        llama = shards.llama_of(folder)
        half = ("--precision", "mixed")  # a datasheet has fused attention in 16 bits alone
        for report in ranvier.some_sanitized([
                (gpt, (1, 1, 1), "axonn", ("--cp", 2, *half)),
                (gpt, (1, 1, 2), "axonn", ("--cp", 4, *half)),
                (llama, (1, 1, 1), "axonn", ("--cp", 3, "--seq-len", 12, *GATHERED, *half)),
                (gpt, (2, 1, 2), "1f1b", ("--cp", 2, "--tp-overlap", 3, *SPLIT, *half)),
                (llama, (1, 2, 1), "axonn", ("--cp", 4, "--zero", 1, "--offload", *GATHERED, *half)),
                (llama, (2, 1, 2), "zero-bubble", ("--cp", 2, "--recompute", "layer", *SPLIT, *OVERLAP, *half)),
                (gpt, (1, 1, 1), "gpipe", ("--cp", 3, "--offload-activations", *half)),
                (llama, (2, 1, 1), "interleaved", ("--cp", 4, "--virtual-stages", 2, "--recompute", "full", *half))]):
            shards.check_report(tap, folder, *report)
    tap.end()


if __name__ == "__main__":
    main()
