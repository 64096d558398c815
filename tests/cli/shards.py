#!/usr/bin/python3
"""Tensor parallelism: shards give the losses, checkpoint and memory that one device and the prediction give."""
import array
import functools
import json
import os
import struct
import sys
import tempfile

sys.path.insert(0, os.path.dirname(__file__))
import ranvier
import text

TOLERANCE = 1e-5  # relative
SPLIT = ("--sequence-parallel",)
OVERLAP = ("--tp-overlap", 4)
BUCKETS = ("--bucket-params", 9000, "--allreduce-buckets", 2)
# pp, dp, tp, schedule, more
PLANS = [
    (1, 1, 2, "axonn", ()), (1, 1, 2, "axonn", SPLIT), (1, 1, 4, "axonn", ()), (1, 1, 4, "axonn", SPLIT),
    (2, 1, 2, "1f1b", ()), (2, 1, 2, "axonn", SPLIT), (2, 1, 2, "gpipe", SPLIT), (1, 2, 2, "axonn", BUCKETS), (1, 2, 2, "axonn", (*SPLIT, *BUCKETS)),
    (1, 1, 2, "axonn", ("--fusion", "off")), (1, 1, 2, "axonn", ("--fusion", "off", *SPLIT)),
    (1, 1, 2, "axonn", ("--recompute", "full", *SPLIT)), (1, 1, 2, "axonn", ("--recompute", "layer", *SPLIT)),
    (1, 1, 4, "axonn", ("--recompute", "selective", "--fusion", "off")), (2, 1, 2, "1f1b", ("--recompute", "full", "--fusion", "off")),
    (2, 1, 2, "1f1b", ("--p2p", "blocking", "--messages", "staged", *SPLIT)),
    (2, 1, 2, "interleaved", ("--virtual-stages", 2, *SPLIT)), (2, 1, 2, "interleaved", ("--virtual-stages", 2)),
    (1, 2, 2, "axonn", ("--zero", 1, *SPLIT)), (1, 2, 2, "axonn", ("--order", "replicas", "--allreduce", "staged", *SPLIT)),
    (2, 1, 2, "gpipe", ("--offload-activations", *SPLIT)), (1, 1, 4, "gpipe", ("--offload-activations", "--recompute", "selective")),
    (1, 1, 2, "axonn", (*OVERLAP, "--recompute", "full")), (2, 1, 2, "1f1b", ("--tp-overlap", 3, "--fusion", "off")), (1, 2, 2, "axonn", (*OVERLAP, "--overlap-allreduce", *BUCKETS)),
    (1, 1, 4, "axonn", ("--tp-overlap", 1, "--fusion", "off", *SPLIT)), (2, 1, 2, "zero-bubble", (*OVERLAP, *SPLIT)),
    (2, 1, 2, "zero-bubble", ()), (2, 1, 4, "zero-bubble-h2", SPLIT), (2, 2, 2, "reverse-first-k", ("--deferred-layers", 1, "--overlap-allreduce", *BUCKETS, *SPLIT)),
    (2, 1, 2, "zero-bubble", ("--recompute", "full", "--p2p", "blocking", *SPLIT)), (1, 1, 2, "fast-forward", ()),
]
LLAMA_TOLERANCE = 1e-6
# A row whose experts tie but for rounding may go to either, and from then on two trainings differ by more than rounding. With one
# seed in some fifty that happens, so that another is tried where they differ by no more than one row can do.
SEEDS, ONE_ROW = (1, 2, 3), 1e-3
LLAMA_PLANS = [
    (1, 1, 2, "axonn", ()), (1, 1, 4, "axonn", SPLIT), (2, 1, 2, "1f1b", ()), (2, 1, 4, "1f1b", SPLIT), (2, 2, 2, "1f1b", ()),
    (4, 2, 1, "axonn", ("--overlap-allreduce",)), (1, 2, 2, "axonn", ("--overlap-allreduce", *SPLIT, *BUCKETS)), (1, 1, 2, "axonn", ("--fusion", "off", *SPLIT)),
    (1, 1, 4, "axonn", ("--recompute", "full", *SPLIT)), (2, 1, 2, "interleaved", ("--virtual-stages", 2, *SPLIT)),
    (1, 2, 2, "axonn", ("--zero", 1, *SPLIT)), (2, 1, 1, "zero-bubble", ()),
    (1, 1, 4, "axonn", OVERLAP), (3, 1, 2, "axonn", ("--pipeline-limit", 5)), (4, 1, 2, "axonn", ("--messages", "staged", *SPLIT)),
    (2, 1, 1, "gpipe", ("--offload-activations", "--recompute", "layer")), (2, 1, 2, "zero-bubble", SPLIT),
    (2, 1, 4, "zero-bubble-h2", ("--recompute", "full", *OVERLAP)), (1, 2, 2, "axonn", ("--overlap-allreduce", *OVERLAP, *SPLIT, *BUCKETS)),
]
# Its like, of which something is split that a Llama has not; both ways to have rows.
LIKE_LLAMA = {
    "a Llama with biases and scaled positions": {
        "model_type": "llama", "attention_bias": True, "mlp_bias": True,
        "rope_scaling": {"rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
                         "original_max_position_embeddings": 8}},
    "a Mistral": {"model_type": "mistral", "head_dim": 6, "sliding_window": 16},
    "a Qwen2": {"model_type": "qwen2"},
    "a Qwen3": {"model_type": "qwen3", "head_dim": 6},
    "a Nemotron with biases": {"model_type": "nemotron", "head_dim": 12, "attention_bias": True, "mlp_bias": True},
    "a Mixtral": {"model_type": "mixtral", "num_local_experts": 4, "num_experts_per_tok": 2, "router_aux_loss_coef": 0.01,
                  "output_router_logits": True},
    "a DeepSeek-V3": {"model_type": "deepseek_v3", "num_key_value_heads": 8, "q_lora_rank": 14, "kv_lora_rank": 10,
                      "qk_nope_head_dim": 5, "qk_rope_head_dim": 4, "v_head_dim": 6, "first_k_dense_replace": 1,
                      "moe_intermediate_size": 24, "n_routed_experts": 8, "num_experts_per_tok": 2, "n_group": 4, "topk_group": 2},
    "a DeepSeek-V2": {"model_type": "deepseek_v2", "num_key_value_heads": 8, "q_lora_rank": 14, "kv_lora_rank": 10,
                      "qk_nope_head_dim": 5, "qk_rope_head_dim": 4, "v_head_dim": 6, "first_k_dense_replace": 1,
                      "moe_intermediate_size": 24, "n_routed_experts": 8, "num_experts_per_tok": 2, "n_group": 4, "topk_group": 2,
                      "topk_method": "group_limited_greedy"},
    "a DeepSeek-V3 whose queries are whole": {
        "model_type": "deepseek_v3", "num_key_value_heads": 8, "q_lora_rank": None, "kv_lora_rank": 10, "qk_nope_head_dim": 6,
        "qk_rope_head_dim": 4, "v_head_dim": 10, "rope_interleave": False, "first_k_dense_replace": 4},
}
# Every step is clipped to a short one, which makes more of rounding: these kernels sum products in double.
CLIPPED = ("--clip", 0.1, "--cpu-kernels", "scalar")
LIKE_LLAMA_PLANS = [(1, 1, 2, "axonn", ()), (1, 1, 2, "axonn", SPLIT), (1, 2, 2, "axonn", ("--fusion", "off", *BUCKETS)),
                    (2, 1, 2, "1f1b", ("--recompute", "norms", *CLIPPED)),
                    (1, 1, 2, "axonn", (*OVERLAP, *SPLIT))]
# Of those with experts; more in experts.py.
EXPERT_PLANS = [(1, 2, 1, "axonn", ("--ep", 2)), (2, 2, 2, "1f1b", ("--ep", 2, "--zero", 1, *SPLIT, *OVERLAP)),
                (2, 2, 2, "gpipe", ("--ep", 2, "--offload-activations", *SPLIT)), (2, 1, 2, "zero-bubble", SPLIT)]
# What is the same in another format: to the same plan with one shard.
WIDE = ("--gradients", "fp32")
HALF = [((1, 1, 2), "mixed", OVERLAP), ((1, 1, 4), "mixed", SPLIT), ((1, 2, 2), "bf16", ("--offload", *SPLIT)),
        ((2, 1, 2), "bf16", (*WIDE, *SPLIT)), ((1, 2, 2), "bf16", (*WIDE, "--zero", 1, "--offload", "--allreduce", "staged"))]


def ranks_of(grid, more):
    return grid[0] * grid[1] * grid[2] * (more[more.index("--cp") + 1] if "--cp" in more else 1)


def train(folder, model, grid, schedule, *more):
    pp, dp, tp = grid
    log = os.path.join(folder, "log.csv")
    status, _, err = ranvier.run(
        ["train", model, "--data", os.path.join(folder, "text.txt"), "--pp", pp, "--dp", dp, "--tp", tp, "--schedule",
         schedule, "--micro-batch-size", 1, "--batch-size", 12, "--steps", ranvier.STEPS, "--lr", 3e-3, "--log", log, *more],
        ranks_of(grid, more))
    return ranvier.losses(log) if status == 0 else err


def worst(losses, reference):
    if not isinstance(losses, list) or len(losses) != len(reference):
        return None
    return max(abs(a - b) / b for a, b in zip(losses, reference))


def worst_of_routed(both, tolerance):
    """`worst` of the losses, and those of a reference, that both(*flags) gives, with the first seed with which no row changes experts."""
    for seed in SEEDS:
        difference = worst(*both("--seed", seed))
        if difference is None or not tolerance < difference < ONE_ROW:
            break
    return difference


def tensors(path):
    with open(path, "rb") as file:
        data = file.read()
    begin = 8 + struct.unpack("<Q", data[:8])[0]
    header = json.loads(data[8:begin])
    del header["__metadata__"]
    return {name: array.array("f", data[begin + t["data_offsets"][0]:begin + t["data_offsets"][1]])
            for name, t in header.items()}


def model_of(folder, name, vocabulary, tied):
    """Heads that two and four shards divide, and a vocabulary that they do not."""
    path = os.path.join(folder, name)
    with open(path, "w") as file:
        json.dump({"n_layer": 2, "n_embd": 32, "n_head": 4, "vocab_size": vocabulary, "n_positions": 16,
                   "tie_word_embeddings": tied}, file)
    return path


def streams(path):
    """What each lane of each rank did in the first batch of a trace, in the order in which it was issued."""
    with open(path) as file:
        events = [event for event in json.load(file)["traceEvents"] if event.get("ph") == "X"]
    first = min(event["args"]["batch"] for event in events)
    lanes = {}
    for event in sorted(events, key=lambda event: event["args"]["order"]):
        what = event["args"]
        if what["batch"] == first:
            lanes.setdefault((event["pid"], event["tid"]), []).append(
                tuple(what.get(key) for key in ("kind", "of", "range", "segment", "chunk", "micro_batch", "bucket", "bytes")))
    return lanes


def difference(ours, theirs):
    """Where two worlds' streams part, or None."""
    for lane in sorted(ours.keys() | theirs.keys()):
        a, b = ours.get(lane, []), theirs.get(lane, [])
        if a != b:
            at = next((i for i, (x, y) in enumerate(zip(a, b)) if x != y), min(len(a), len(b)))
            return f"rank and lane {lane}: {len(a)} and {len(b)} operations, at {at} {a[at:at + 2]} and {b[at:at + 2]}"
    return None


def llama_of(folder, **keys):
    """Heads of queries, and of keys and values, that four shards divide, and a vocabulary that they do not."""
    path = os.path.join(folder, "llama.json")
    with open(path, "w") as file:
        json.dump({"model_type": "llama", "num_hidden_layers": 4, "hidden_size": 32, "intermediate_size": 72,
                   "num_attention_heads": 8, "num_key_value_heads": 4, "vocab_size": 257, "max_position_embeddings": 16,
                   **keys}, file)
    return path


def check_report(tap, folder, model, grid, schedule, more):
    """Memory to the byte, the same operations in the same order, and the decisions of the run taken again."""
    real, predicted, trace, simulated = (os.path.join(folder, name) for name in
                                         ("real.json", "predicted.json", "trace.json", "simulated.json"))
    # A trace is of its last batches: by then a loss scale that begins too large is small enough.
    train(folder, model, grid, schedule, "--report", real, "--trace", trace, "--steps", 20 if "mixed" in more else 4, *more)
    plan = ["simulate", model, "--pp", grid[0], "--dp", grid[1], "--tp", grid[2], "--gpus", ranks_of(grid, more),
            "--schedule", schedule, "--micro-batch-size", 1, "--batch-size", 12, *more]
    profile = "v100-datasheet" if "mixed" in more and "off" in more else "a100-datasheet"
    precision = [] if "mixed" in more else ["--precision", "fp32"]
    ranvier.run([*plan, *precision, "--profile", profile, "--platform", "generic", "--report", predicted, "--trace", simulated])
    with open(real) as a, open(predicted) as b:
        ours, theirs = json.load(a), json.load(b)
    same = [r["bytes"] == p["bytes"] and r["host_bytes"] == p["host_bytes"] for r, p in zip(ours["ranks"], theirs["ranks"])]
    name = f"{os.path.basename(model)} {'x'.join(map(str, grid))} {' '.join(map(str, more))}".strip()
    tap.ok(all(same) and len(same) == ranks_of(grid, more), f"{name}: memory of every rank as predicted, to the byte",
           same)
    hidden = "--cp" in more and "all-gather" not in more  # beside attention
    together = grid[2] > 1 or {"--ep", "--cp", "--zero"} & set(more)
    tap.ok(not together or ours["phases"]["tensor_seconds"] > 0 and (theirs["phases"]["tensor_seconds"] > 0 or hidden),
           f"{name}: both worlds say what shards did together", f"{ours['phases']}\n{theirs['phases']}")
    ours, theirs = streams(trace), streams(simulated)
    def in_order(done):
        """What came first between others came so in one world: on a stage, or where messages and fetched activations go over one lane."""
        kinds = {what[0] for what in done}
        free = (schedule == "axonn" and grid[0] > 2) or kinds >= {"stage in", "fetch activations"}
        return sorted(done, key=str) if free else done

    ours, theirs = ({lane: in_order(done) for lane, done in lanes.items()} for lanes in (ours, theirs))
    parted = difference(ours, theirs)
    tap.ok(not parted, f"{name}: every lane of every rank has the same operations in both worlds", parted)
    status, out, err = ranvier.run([*plan, "--replay", trace])
    tap.ok(status == 0, f"{name}: replayed, every decision is the same", out + err)


def check_staged_prediction(tap, folder):
    """Through host memory 130 sums of 64 MiB a micro-batch: two copies of 2.1 ms at 63 GB/s, and a ring of 1.5 ms at a quarter
    of a socket's 307 GB/s."""
    seconds = []
    for route in "direct", "staged":
        report = os.path.join(folder, "report.json")
        ranvier.run(["simulate", "llama3-8b", "--machine", "h100", "--gpus", 8, "--tp", 8, "--micro-batch-size", 1, "--batch-size", 8,
                     "--allreduce", route, "--report", report])
        with open(report) as file:
            seconds.append(json.load(file)["batch_seconds"]["median"])
    more = (seconds[1] - seconds[0]) / 8 / 130
    tap.ok(0.003 < more < 0.0045, "sums of shards that go through host memory are predicted by its rates", (seconds, more))


def main():
    tap = ranvier.Tap()
    with tempfile.TemporaryDirectory() as folder:
        text.write(os.path.join(folder, "text.txt"))
        reference = train(folder, "tiny", (1, 1, 1), "axonn")
        for pp, dp, tp, schedule, more in ranvier.some(PLANS):
            difference = worst(train(folder, "tiny", (pp, dp, tp), schedule, *more), reference)
            tap.ok(difference is not None and difference <= TOLERANCE,
                   f"{pp} x {dp} x {tp} {schedule} {' '.join(map(str, more))}: the losses of one device",
                   difference)
        for grid, precision, more in ranvier.some(HALF):
            one = train(folder, "tiny", (1, 1, 1), "axonn", "--precision", precision)
            difference = worst(train(folder, "tiny", grid, "axonn", "--precision", precision, *more), one)
            tap.ok(difference is not None and difference < 1e-3,
                   f"{'x'.join(map(str, grid))} {precision} {' '.join(map(str, more))}: the losses of one device", difference)
        for tied in (True, False):
            model = model_of(folder, "model.json", 257, tied)
            paths = [os.path.join(folder, f"{shards}.safetensors") for shards in (1, 4)]
            one = train(folder, model, (1, 1, 1), "axonn", "--checkpoint", paths[0], "--clip", 0, "--steps", 1)
            two = train(folder, model, (2, 1, 4), "1f1b", "--checkpoint", paths[1], "--clip", 0, "--steps", 1, *SPLIT)
            tap.ok(isinstance(two, list) and worst(two, one) <= TOLERANCE,
                   f"a vocabulary that shards do not divide, {'tied' if tied else 'untied'}: the losses of one device", two)
            a, b = map(tensors, paths)
            apart = max(max(abs(x - y) for x, y in zip(a[name], b[name])) for name in a)
            tap.ok(a.keys() == b.keys() and all(len(a[n]) == len(b[n]) for n in a) and apart < 1e-4,
                   "and its checkpoint", apart)
        llama = llama_of(folder)
        reference = train(folder, llama, (1, 1, 1), "axonn")
        for pp, dp, tp, schedule, more in ranvier.some(LLAMA_PLANS):
            difference = worst(train(folder, llama, (pp, dp, tp), schedule, *more), reference)
            tap.ok(difference is not None and difference <= LLAMA_TOLERANCE,
                   f"a Llama, {pp} x {dp} x {tp} {schedule} {' '.join(map(str, more))}: the losses of one device",
                   difference)
        half = ("--precision", "mixed")  # a datasheet has fused attention, which a Llama's always is, in 16 bits alone
        for name, keys in LIKE_LLAMA.items():
            model = llama_of(folder, **keys)
            alone = functools.lru_cache(None)(functools.partial(train, folder, model, (1, 1, 1), "axonn"))
            for pp, dp, tp, schedule, more in ranvier.some(LIKE_LLAMA_PLANS + (EXPERT_PLANS if "num_experts_per_tok" in keys else [])):
                clip = CLIPPED if "--clip" in more else ()

                def both(*seed):
                    return (train(folder, model, (pp, dp, tp), schedule, *more, *seed), alone(*clip, *seed))
                difference = worst_of_routed(both, LLAMA_TOLERANCE) if "num_experts_per_tok" in keys else worst(*both())
                tap.ok(difference is not None and difference <= LLAMA_TOLERANCE,
                       f"{name}, {pp} x {dp} x {tp} {schedule} {' '.join(map(str, more))}: the losses of one device",
                       difference)
            if not ranvier.SANITIZED:
                check_report(tap, folder, model, (2, 1, 2), "1f1b", half)
        check_staged_prediction(tap, folder)
        llama = llama_of(folder)
        unfused = ("--fusion", "off")
        for report in ranvier.some_sanitized([
                ("tiny", (2, 1, 2), "1f1b", (*SPLIT, *unfused)),
                ("tiny", (1, 2, 2), "axonn", ("--precision", "mixed", "--offload", "--overlap-allreduce", *BUCKETS, *unfused)),
                ("tiny", (2, 1, 2), "interleaved", ("--virtual-stages", 2, "--recompute", "layer", *SPLIT, *unfused)),
                ("tiny", (2, 1, 2), "1f1b", (*OVERLAP, *unfused)),
                (llama, (2, 1, 2), "1f1b", (*OVERLAP, "--recompute", "full", *SPLIT, *half)),
                (llama, (2, 1, 2), "1f1b", (*SPLIT, *half)),
                (llama, (2, 1, 2), "zero-bubble-h2", (*OVERLAP, *SPLIT, *half)),
                (llama, (3, 1, 2), "axonn", (*SPLIT, *half)),
                ("tiny", (2, 1, 2), "reverse-first-k", (*SPLIT, *unfused, "--deferred-layers", 1)),
                (llama, (2, 1, 2), "gpipe", ("--offload-activations", *SPLIT, *half)),
                (llama, (1, 2, 2), "axonn", ("--offload", "--overlap-allreduce", "--zero", 1, *BUCKETS, *SPLIT, *half)),
                (llama, (2, 1, 2), "interleaved", ("--virtual-stages", 2, "--recompute", "full", *half)),
                (llama, (1, 2, 2), "axonn", (*WIDE, "--zero", 1, *BUCKETS, *SPLIT, *half)),
                (llama, (1, 2, 2), "1f1b", (*WIDE, "--offload", "--allreduce", "staged", *half))]):
            check_report(tap, folder, *report)
    tap.end()


if __name__ == "__main__":
    main()
