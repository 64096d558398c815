#!/usr/bin/python3
"""Experts spread over replicas (--ep): the losses and checkpoints of one rank that has them all, and memory as predicted."""
import functools
import json
import os
import sys
import tempfile

sys.path.insert(0, os.path.dirname(__file__))
import ranvier
import shards
import text

TOLERANCE = 1e-6
SPLIT = ("--sequence-parallel",)
BUCKETS = ("--bucket-params", 3000, "--allreduce-buckets", 2)
# (pp, dp, tp), ep, schedule, more
PLANS = [
    ((1, 2, 1), 2, "axonn", ()), ((1, 4, 1), 2, "axonn", ()), ((1, 4, 1), 4, "axonn", ()),
    ((1, 2, 2), 2, "axonn", ()), ((1, 2, 2), 2, "axonn", SPLIT), ((1, 2, 2), 2, "axonn", ("--tp-overlap", 3)), ((1, 2, 4), 2, "axonn", SPLIT), ((1, 4, 2), 2, "1f1b", SPLIT),
    ((2, 2, 1), 2, "1f1b", ()), ((2, 2, 1), 2, "gpipe", ()), ((2, 2, 1), 2, "axonn", ()),
    ((2, 2, 1), 2, "interleaved", ("--virtual-stages", 2)),
    ((2, 2, 2), 2, "1f1b", SPLIT), ((2, 4, 1), 2, "1f1b", BUCKETS),
    ((1, 4, 1), 2, "axonn", ("--zero", 1)), ((1, 4, 1), 2, "axonn", ("--zero", 1, *BUCKETS)), ((1, 4, 1), 4, "axonn", ("--zero", 1)),
    ((1, 2, 1), 2, "axonn", ("--recompute", "full")), ((1, 2, 1), 2, "axonn", ("--recompute", "layer")),
    ((1, 2, 1), 2, "axonn", ("--recompute", "norms")), ((1, 2, 1), 2, "axonn", ("--recompute", "swiglu")),
    ((1, 2, 2), 2, "axonn", ("--recompute", "norms+swiglu", *SPLIT)),
    ((1, 2, 1), 2, "axonn", ("--fusion", "off")), ((2, 2, 1), 2, "1f1b", ("--fusion", "off", "--recompute", "full")),
    ((1, 4, 1), 2, "axonn", ("--clip", 0.1)), ((2, 2, 1), 2, "1f1b", ("--clip", 0.1)), ((1, 4, 1), 2, "axonn", ("--clip", 0)),
    ((1, 2, 2), 2, "axonn", ("--clip", 0.1, *SPLIT)), ((1, 4, 1), 2, "axonn", ("--clip", 0.1, "--zero", 1)),
    ((2, 2, 2), 2, "1f1b", ("--clip", 0.1, "--zero", 1)),
    ((2, 2, 1), 2, "1f1b", ("--order", "replicas")), ((1, 2, 2), 2, "axonn", ("--order", "replicas", *SPLIT)),
    ((1, 4, 1), 2, "axonn", BUCKETS), ((2, 4, 1), 4, "axonn", BUCKETS),
    ((1, 4, 1), 2, "axonn", ("--micro-batch-size", 3)), ((1, 2, 1), 2, "axonn", ("--allreduce", "staged")),
]
# Experts that shards do not split, spread over shards and replicas. A shard's balancing loss is of its own rows, so there
# is none here.
WHOLE = (*SPLIT, "--etp", 1)
BESIDE = ("--order", "replicas")
WHOLE_PLANS = [
    ((1, 1, 2), 2, "axonn", ()), ((1, 2, 2), 2, "axonn", ()), ((1, 2, 2), 4, "axonn", ()), ((1, 4, 2), 4, "axonn", BUCKETS),
    ((1, 2, 4), 8, "axonn", ()), ((1, 2, 2), 4, "axonn", ("--recompute", "norms+swiglu")), ((1, 2, 2), 4, "axonn", ("--recompute", "full")),
    ((1, 2, 2), 4, "axonn", ("--fusion", "off")), ((1, 2, 2), 4, "axonn", ("--tp-overlap", 2)), ((1, 2, 2), 4, "axonn", ("--cp", 2)),
    ((1, 2, 2), 4, "axonn", ("--micro-batch-size", 2)), ((1, 4, 2), 4, "axonn", ("--clip", 0.1)), ((1, 4, 2), 2, "axonn", ("--clip", 0.1, "--zero", 1)),
    ((2, 2, 2), 2, "1f1b", ()), ((2, 2, 2), 4, "1f1b", BESIDE), ((2, 4, 2), 4, "1f1b", ("--clip", 0.1, "--zero", 1, *BESIDE)),
    ((2, 2, 2), 4, "interleaved", ("--virtual-stages", 2, *BESIDE)), ((1, 2, 2), 4, "axonn", ("--zero", 3)),
    ((1, 4, 2), 4, "axonn", ("--zero", 3, "--clip", 0.1)),
]
# Of a model whose first and last stage share the embedding.
TIED_PLANS = [((1, 2, 1), 2, "axonn", ()), ((2, 2, 1), 2, "1f1b", ("--clip", 0.1)), ((2, 4, 1), 2, "1f1b", ("--zero", 1, *BUCKETS)),
              ((2, 4, 1), 4, "axonn", ("--zero", 1, "--clip", 0.1)), ((2, 2, 1), 2, "interleaved", ("--virtual-stages", 2))]
# What is the same in another format: to one rank with that. Some of what is rounded crosses a router's border.
HALF = [((1, 2, 1), 2, "mixed", ()), ((1, 4, 1), 2, "mixed", ("--zero", 1)), ((1, 2, 2), 2, "mixed", SPLIT),
        ((1, 2, 2), 4, "mixed", (*WHOLE, "--offload", "--zero", 1)), ((2, 2, 1), 2, "mixed", ("--offload",)), ((1, 4, 1), 2, "mixed", ("--offload", "--zero", 1, *BUCKETS)),
        ((1, 4, 1), 4, "bf16", ()), ((1, 2, 1), 2, "bf16", ("--offload",)), ((2, 4, 1), 2, "bf16", ("--zero", 1))]
HALF_TOLERANCE = 1e-3
# Checkpoints of two steps. AdamW makes lr of the smallest gradient, whatever its size, and so of its rounding's: with an
# epsilon well above that rounding the weights are as near as the gradients.
CHECKPOINTS = [((1, 2, 1), 2, ()), ((1, 4, 1), 4, ()), ((1, 2, 2), 2, SPLIT), ((1, 1, 2), 2, WHOLE), ((1, 2, 2), 4, ("--zero", 1, *WHOLE)),
               ((2, 2, 2), 4, (*WHOLE, *BESIDE, "--schedule", "1f1b")), ((2, 4, 1), 2, ("--zero", 1)),
               ((2, 2, 1), 2, ("--schedule", "interleaved", "--virtual-stages", 2)),
               ((1, 4, 1), 2, ("--zero", 1, "--precision", "mixed")),
               ((2, 2, 1), 2, ("--zero", 1, "--precision", "mixed", "--offload"))]
STEPS = ("--steps", 2, "--epsilon", 1e-3)
# Experts, of a token, and over how many replicas.
MIXTURES = [(4, 4, 2), (4, 4, 4), (4, 1, 4), (8, 1, 2), (8, 8, 4), (8, 3, 8), (2, 1, 2)]


class Bench:
    """Trains models in a folder; what trainings of ranks with all experts give is kept."""

    def __init__(self, folder):
        self.folder = folder
        self.together = functools.lru_cache(None)(lambda model, dp, *more: self.train(model, (1, dp, 1), 1, *more))
        text.write(os.path.join(folder, "text.txt"))

    def path(self, name):
        return os.path.join(self.folder, name)

    def model(self, tp=1, experts=8, chosen=2, balance=0.02, tied=False):
        """Heads and an inner width that `tp` shards divide; without shards the width is odd."""
        path = self.path(f"mixtral_{tp}_{experts}_{chosen}_{balance}_{tied}.json")
        with open(path, "w") as file:
            json.dump({"model_type": "mixtral", "num_hidden_layers": 4, "hidden_size": 32,
                       "intermediate_size": 37 * tp, "num_attention_heads": 8, "num_key_value_heads": 4,
                       "vocab_size": 257, "max_position_embeddings": 16, "num_local_experts": experts,
                       "num_experts_per_tok": chosen, "router_aux_loss_coef": balance, "output_router_logits": True,
                       "tie_word_embeddings": tied}, file)
        return path

    def model_of(self, grid, more):
        """A model for a plan: without a balancing loss where each shard would have its own."""
        return self.model(grid[2], balance=0 if "--etp" in more else 0.02)

    def train(self, model, grid, ep, *more):
        """Losses, or what it says on stderr. `more` may say the schedule."""
        return shards.train(self.folder, model, grid, "axonn", *(("--ep", ep) if ep > 1 else ()), *more)


def named(grid, ep, *more):
    return f"{' x '.join(map(str, grid))}, experts over {ep}{''.join(' ' + str(word) for word in more)}"


def replicas(grid, more):
    """How many the training has that another is compared with: fp16 overflows earlier on several, which sum before they
    take the mean."""
    return grid[1] if "mixed" in more else 1


def check_losses(tap, bench, model, grid, ep, tolerance, more, name):
    def both(*seed):
        one = bench.together(model, replicas(grid, more), *same_training(more), *seed)
        return bench.train(model, grid, ep, *more, *seed), one
    difference = shards.worst_of_routed(both, tolerance)
    tap.ok(difference is not None and difference <= tolerance, f"{name}: the losses of ranks with all experts within {tolerance:g}",
           both() if difference is None else difference)


def same_training(more):
    """Of these flags those that change what one rank computes, too."""
    flags = []
    for flag in ("--clip", "--precision", "--micro-batch-size", "--batch-size", "--data", "--steps"):
        if flag in more:
            flags += more[more.index(flag):][:2]
    return tuple(flags)


def apart(ours, theirs):
    """The largest difference of an element of two checkpoints' tensors, and of which; None if these are not the same."""
    a, b = map(shards.tensors, (ours, theirs))
    if a.keys() != b.keys() or any(len(a[name]) != len(b[name]) for name in a):
        return None
    return max((max(abs(x - y) for x, y in zip(a[name], b[name])), name) for name in a)


def check_checkpoints(tap, bench):
    for grid, ep, more in ranvier.some(CHECKPOINTS):
        model, paths = bench.model_of(grid, more), [bench.path(f"{name}.safetensors") for name in ("one", "spread")]
        for path in paths:
            if os.path.exists(path):
                os.remove(path)
        bench.train(model, (1, replicas(grid, more), 1), 1, *STEPS, "--checkpoint", paths[0], *same_training(more))
        said = bench.train(model, grid, ep, *STEPS, "--checkpoint", paths[1], *more)
        difference = apart(*paths) if isinstance(said, list) else None
        tap.ok(difference and difference[0] < 1e-4, f"{named(grid, ep, *more)}: the checkpoint of one rank", difference or said)
    # Weights of elsewhere go to whom they belong.
    first = bench.train(model, (1, 1, 1), 1, "--init", paths[1])
    for grid, ep, more in (((1, 2, 1), 2, ()), ((2, 4, 1), 4, ("--zero", 1))):
        losses = bench.train(model, grid, ep, "--init", paths[1], *more)
        difference = shards.worst(losses, first)
        tap.ok(difference is not None and difference <= TOLERANCE and first[0] < bench.together(model, 1)[0],
               f"{named(grid, ep, '--init', *more)}: the losses of one rank that begins with these weights", difference or losses)


def check_mixtures(tap, bench):
    for experts, chosen, ep in ranvier.some(MIXTURES):
        model = bench.model(experts=experts, chosen=chosen)
        check_losses(tap, bench, model, (1, ep, 1), ep, TOLERANCE, ("--batch-size", 16),
                     f"{chosen} of {experts} experts a token, over {ep}")
    # One token, over and over: all rows go to the same experts, and most experts have none.
    with open(bench.path("one.txt"), "w") as file:
        file.write("a" * 4000)
    model, more = bench.model(balance=0), ("--data", bench.path("one.txt"), "--steps", 3)
    for grid, ep in (((1, 2, 1), 2), ((1, 4, 1), 4), ((2, 2, 1), 2)):
        check_losses(tap, bench, model, grid, ep, TOLERANCE, more, f"{named(grid, ep)}: rows that go to few experts")
    said = bench.train(model, (1, 2, 1), 2, "--expert-capacity", 1, *more)
    tap.ok("the experts of rank 0 got 64 rows in a layer, and --expert-capacity 1 has memory for 32" in said
           or "the experts of rank 1 got 64 rows in a layer, and --expert-capacity 1 has memory for 32" in said,
           "more rows than there is memory for end a training with a sentence", said)


def check_qwen3_moe(tap, bench):
    """The other family, with all that a block of it may have."""
    for normalised in (True, False):
        model = bench.path(f"qwen3_moe{normalised}.json")
        with open(model, "w") as file:
            json.dump({"model_type": "qwen3_moe", "num_hidden_layers": 2, "hidden_size": 32, "moe_intermediate_size": 38,
                       "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 6, "vocab_size": 257,
                       "max_position_embeddings": 16, "num_experts": 8, "num_experts_per_tok": 3, "attention_bias": True,
                       "norm_topk_prob": normalised, "output_router_logits": True}, file)
        for grid, ep, more in (((1, 2, 2), 2, SPLIT), ((2, 2, 2), 2, ("--schedule", "1f1b", "--recompute", "full", *SPLIT)),
                               ((1, 4, 1), 4, ("--zero", 1, "--fusion", "off", "--recompute", "norms"))):
            check_losses(tap, bench, model, grid, ep, TOLERANCE, more,
                         f"qwen3_moe{'' if normalised else ', not normalised'}, {named(grid, ep, *more)}")


# Models whose first block has an MLP in the place of experts.
FIRST_DENSE = {
    "qwen3_moe": {"mlp_only_layers": [0], "num_key_value_heads": 2, "head_dim": 6, "num_experts": 4, "norm_topk_prob": True,
                  "output_router_logits": True},
    "deepseek_v3": {"first_k_dense_replace": 1, "q_lora_rank": 14, "kv_lora_rank": 10, "qk_nope_head_dim": 5, "qk_rope_head_dim": 4,
                    "v_head_dim": 6, "n_routed_experts": 8, "n_group": 4, "topk_group": 2}}


def check_kinds_of_blocks(tap, bench, model_type):
    """Stages, and chunks of a stage, with blocks of either kind and of both, in every schedule."""
    model = bench.path(f"{model_type}.json")
    with open(model, "w") as file:
        json.dump({"model_type": model_type, "num_hidden_layers": 4, "hidden_size": 32, "moe_intermediate_size": 38,
                   "intermediate_size": 58, "num_attention_heads": 4, "vocab_size": 257, "max_position_embeddings": 16,
                   "num_experts_per_tok": 2, **FIRST_DENSE[model_type]}, file)
    for grid, ep, schedule, more in (((2, 1, 1), 1, "axonn", ()), ((4, 1, 1), 1, "gpipe", ()),
                                     ((2, 1, 1), 1, "interleaved", ("--virtual-stages", 2)), ((2, 1, 1), 1, "zero-bubble", ()),
                                     ((1, 1, 1), 1, "zero-bubble", ("--fusion", "off", "--recompute", "full")),
                                     ((1, 2, 1), 1, "reverse-first-k", ("--deferred-layers", 2)),
                                     ((1, 2, 1), 1, "fast-forward", ("--overlap-allreduce",)),
                                     ((2, 2, 2), 2, "1f1b", ("--zero", 1, *SPLIT)), ((1, 2, 1), 2, "axonn", ("--recompute", "layer"))):
        check_losses(tap, bench, model, grid, ep, TOLERANCE, ("--schedule", schedule, *more),
                     f"{model_type}, its first layer without experts, {named(grid, ep, schedule, *more)}")
    check_report(tap, bench, model, (2, 2, 1), 2, "1f1b", ("--precision", "mixed"))
    check_report(tap, bench, model, (2, 1, 1), 1, "zero-bubble", ("--precision", "mixed"))


def check_report(tap, bench, model, grid, ep, schedule, more):
    real, predicted = bench.path("real.json"), bench.path("predicted.json")
    said = bench.train(model, grid, ep, "--schedule", schedule, "--report", real, *more)
    if not isinstance(said, list):
        return tap.ok(False, f"{os.path.basename(model)}, {named(grid, ep, schedule, *more)}: trains", said)
    _, out, err = ranvier.run(["simulate", model, "--pp", grid[0], "--dp", grid[1], "--tp", grid[2], "--ep", ep, "--gpus",
                               grid[0] * grid[1] * grid[2], "--schedule", schedule, "--micro-batch-size", 1, "--batch-size", 12,
                               *more, "--profile", "a100-datasheet", "--platform", "generic", "--report", predicted])
    with open(real) as a, open(predicted) as b:
        ours, theirs = ([(rank["bytes"], rank["host_bytes"]) for rank in json.load(file)["ranks"]] for file in (a, b))
    tap.ok(ours == theirs, f"{os.path.basename(model)}, {named(grid, ep, schedule, *more)}: memory of every rank as predicted, to the byte",
           out + err)


def check_memory(tap, bench):
    """A rank's memory in a real training and in the simulation of the same plan."""
    half = ("--precision", "mixed")
    for grid, ep, schedule, more in (((1, 2, 1), 2, "axonn", half), ((1, 4, 1), 2, "axonn", ("--zero", 1, *half)),
                                     ((1, 2, 1), 2, "axonn", ("--offload", *half)), ((2, 2, 2), 2, "1f1b", (*SPLIT, *half)),
                                     ((1, 4, 1), 4, "axonn", ("--expert-capacity", 3, *half)),
                                     ((1, 2, 2), 4, "axonn", (*WHOLE, "--zero", 1, *half)),
                                     ((2, 2, 1), 2, "interleaved", ("--virtual-stages", 2, "--recompute", "full", *half))):
        check_report(tap, bench, bench.model_of(grid, more), grid, ep, schedule, more)


def main():
    tap = ranvier.Tap()
    with tempfile.TemporaryDirectory() as folder:
        bench = Bench(folder)
        for grid, ep, schedule, more in ranvier.some(PLANS):
            check_losses(tap, bench, bench.model(grid[2]), grid, ep, TOLERANCE, ("--schedule", schedule, *more),
                          named(grid, ep, schedule, *more))
        for grid, ep, schedule, more in ranvier.some(WHOLE_PLANS):
            check_losses(tap, bench, bench.model_of(grid, WHOLE), grid, ep, TOLERANCE, ("--schedule", schedule, *WHOLE, *more),
                         named(grid, ep, schedule, *WHOLE, *more))
        for grid, ep, schedule, more in ranvier.some(TIED_PLANS):
            check_losses(tap, bench, bench.model(tied=True), grid, ep, TOLERANCE, ("--schedule", schedule, *more),
                         f"tied, {named(grid, ep, schedule, *more)}")
        for grid, ep, precision, more in ranvier.some(HALF):
            more = ("--precision", precision, *more)
            check_losses(tap, bench, bench.model_of(grid, more), grid, ep, HALF_TOLERANCE, more, named(grid, ep, *more))
        check_checkpoints(tap, bench)
        check_mixtures(tap, bench)
        check_qwen3_moe(tap, bench)
        for model_type in FIRST_DENSE:
            check_kinds_of_blocks(tap, bench, model_type)
        check_memory(tap, bench)
    tap.end()


if __name__ == "__main__":
    main()
