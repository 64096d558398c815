#!/usr/bin/python3
"""Training with --device cuda on the emulated CUDA: the losses of the CPU device, on one rank and on several that share
the GPU; the same bits with and without offloading and CUDA graphs; nothing in the loop that would wait or allocate."""
import csv
import functools
import json
import os
import sys
import tempfile

sys.path.insert(0, os.path.dirname(__file__))
import ranvier
import text

EMULATED = os.path.join(os.path.dirname(os.path.abspath(ranvier.BIN)), "emulated", "device_cuda.so")
STEPS = 2
NEMOTRON_STEPS = 5  # its first two steps in fp16 overflow and are skipped
GRIDS = [(1, 1), (2, 1), (1, 2)]
BATCHES = {"fp32": 2, "mixed": 4, "bf16": 2}  # micro-batches; of mixed the loss of two falls by chance
# Relative, of any step's loss. Sums are rounded in another order; steps carry on what that makes: a rounding is 2^-24,
# 2^-11, 2^-8.
TOLERANCES = {"fp32": 1e-5, "mixed": 2e-4, "bf16": 2e-3}
# Kernels of fp16 and bf16 are one template: what only fp16 has is a scale of the loss.
FAMILIES = {"fp32": ("llama", "qwen3", "mixtral", "deepseek_v3", "nemotron"), "mixed": ("mixtral", "nemotron"),
            "bf16": ("llama", "qwen3", "mixtral", "deepseek_v3", "nemotron")}
SHARDED = {"fp32": ("gpt2", "llama", "mixtral"), "mixed": ("gpt2",), "bf16": ("llama", "mixtral")}
WIDE = ("--gradients", "fp32")
OFFLOAD = ("--offload", "--bucket-params", "5000")
# Two layers: a stage may have one, and what follows a layer is once a layer and once the head.
LIKE_LLAMA = {"num_hidden_layers": 2, "hidden_size": 32, "intermediate_size": 56, "num_attention_heads": 4, "num_key_value_heads": 2,
              "vocab_size": 256, "max_position_embeddings": 64}
# Latent attention: queries of few columns, values narrower than they.
DEEPSEEK_V3 = {**LIKE_LLAMA, "model_type": "deepseek_v3", "first_k_dense_replace": 2, "hidden_size": 64, "num_key_value_heads": 4,
               "q_lora_rank": 24, "kv_lora_rank": 16, "qk_nope_head_dim": 16, "qk_rope_head_dim": 16, "v_head_dim": 24}
MODELS = {
    "gpt2": {"n_layer": 2, "n_embd": 32, "n_head": 4, "vocab_size": 256, "n_positions": 64},
    "llama": {**LIKE_LLAMA, "model_type": "llama", "intermediate_size": 88},
    # Norms of heads, biases, and positions that are scaled.
    "qwen3": {**LIKE_LLAMA, "model_type": "qwen3", "hidden_size": 64, "intermediate_size": 96, "head_dim": 16, "attention_bias": True,
              "rope_scaling": {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 32}},
    "mixtral": {**LIKE_LLAMA, "model_type": "mixtral", "num_local_experts": 4, "num_experts_per_tok": 2,
                "router_aux_loss_coef": 0.02, "output_router_logits": True},
    "deepseek_v3": DEEPSEEK_V3,
    # Positions that turn a part of a head, LayerNorms of weights beside 1, squared ReLU.
    "nemotron": {**LIKE_LLAMA, "model_type": "nemotron", "attention_bias": True},
    "wide": {**DEEPSEEK_V3, "qk_rope_head_dim": 114},
    "odd": {"n_layer": 2, "n_embd": 36, "n_head": 4, "vocab_size": 256, "n_positions": 64},
}


@functools.lru_cache(None)
def train(folder, device, grid, precision, *more, steps=STEPS, model="gpt2", **variables):
    """The losses as they are written, nine digits, or why there are none; and each rank's counters."""
    log, counts = (os.path.join(folder, name) for name in ("log.csv", "counts.json"))
    for path in (log, counts):
        if os.path.exists(path):
            os.remove(path)
    pp, dp = grid
    status, _, err = ranvier.run(
        ["train", os.path.join(folder, model + ".json"), "--data", os.path.join(folder, "text.txt"), "--device", device, "--pp", pp,
         *([] if {"--tp", "--cp"} & set(more) else ["--dp", dp]),
         "--precision", precision, "--fusion", "on", "--seq-len", 32, "--micro-batch-size", 1,
         "--batch-size", BATCHES[precision] if pp * dp <= 2 else 4, "--steps", steps, "--lr", 3e-3, "--validation-fraction", 0, "--log", log, *more],
        pp * dp, RANVIER_DEVICE_CUDA=EMULATED, RANVIER_EMULATED_COUNTS=counts, **variables)
    if status:
        return err, None
    with open(log) as file:
        losses = [row["train_loss"] for row in csv.DictReader(file)]
    if not os.path.exists(counts):
        return losses, []
    with open(counts) as file:
        return losses, [json.loads(line) for line in file]


def largest_difference(found, expected, steps=STEPS):
    if not isinstance(found, list) or len(found) != steps or len(expected) != steps:
        return None
    return max(abs(float(a) / float(b) - 1) for a, b in zip(found, expected))


def check_losses(tap, folder, precision, tolerance):
    for grid in GRIDS:
        name = f"{precision}, {grid[0]} x {grid[1]}"
        cpu, _ = train(folder, "cpu", grid, precision)
        cuda, counts = train(folder, "cuda", grid, precision)
        worst = largest_difference(cuda, cpu)
        print(f"# {name}: largest relative difference {worst}", flush=True)
        tap.ok(worst is not None and worst <= tolerance and float(cuda[-1]) < float(cuda[0]),
               f"{name}: {STEPS} losses are the CPU device's within {tolerance:g}", f"{cuda}\n{cpu}")
        tap.ok(counts and len(counts) == grid[0] * grid[1] and all(c["kernels_run"] > 63 * BATCHES[precision] for c in counts),
               f"{name}: every rank's kernels ran on the emulated GPU", counts)
        if grid == (1, 1):
            variants = [("--cuda-graphs", "off"), *([OFFLOAD] if precision != "fp32" else [])]
        else:
            variants = [(*OFFLOAD, "--offload-activations")] if precision != "fp32" else []
        for more in variants:
            other, _ = train(folder, "cuda", grid, precision, *more)
            tap.ok(other == cuda, f"{name} {' '.join(more)}: the same losses, bit for bit", f"{other}\n{cuda}")
        if grid == (1, 2):
            other, _ = train(folder, "cuda", (1, 1), precision, "--logical-dp", 2)
            tap.ok(other == cuda, f"{name} --logical-dp 2: the same losses on one rank, bit for bit", f"{other}\n{cuda}")
    other, _ = train(folder, "cuda", grid, precision, RANVIER_EMULATED_SEED="77")
    tap.ok(other == cuda, f"{name}: and in another order of threads and streams", f"{other}\n{cuda}")


def check_family(tap, folder, precision, tolerance, name):
    steps = NEMOTRON_STEPS if name == "nemotron" else STEPS
    cpu, _ = train(folder, "cpu", (1, 1), precision, steps=steps, model=name)
    cuda, _ = train(folder, "cuda", (1, 1), precision, steps=steps, model=name)
    worst = largest_difference(cuda, cpu, steps)
    print(f"# {precision}, {name}: largest relative difference {worst}", flush=True)
    tap.ok(worst is not None and worst <= tolerance and float(cuda[-1]) < float(cuda[0]),
           f"{precision}, {name}: {steps} losses are the CPU device's within {tolerance:g}", f"{cuda}\n{cpu}")
    other, _ = train(folder, "cuda", (1, 1), precision, "--cuda-graphs", "off", steps=steps, model=name)
    tap.ok(other == cuda, f"{precision}, {name} --cuda-graphs off: the same losses, bit for bit", f"{other}\n{cuda}")
    if precision != "bf16":  # both halves are one template
        return
    (cpu, _), (cuda, _) = (train(folder, device, (1, 1), precision, *WIDE, steps=steps, model=name) for device in ("cpu", "cuda"))
    worst = largest_difference(cuda, cpu, steps)
    tap.ok(worst is not None and worst <= tolerance and float(cuda[-1]) < float(cuda[0]),
           f"{precision}, {name}, gradients in fp32: {steps} losses are the CPU device's within {tolerance:g}", f"{cuda}\n{cpu}")


def check_shards(tap, folder, precision, tolerance, name):
    """Two ranks that share the GPU: what shards sum, gather and scatter goes through host memory."""
    def sharded(device, *more):
        return train(folder, device, (1, 2), precision, "--tp", 2, *more, model=name)[0]

    cpu, cuda = sharded("cpu"), sharded("cuda")
    worst = largest_difference(cuda, cpu)
    print(f"# {precision}, {name}, two shards: largest relative difference {worst}", flush=True)
    tap.ok(worst is not None and worst <= tolerance and float(cuda[-1]) < float(cuda[0]),
           f"{precision}, {name} --tp 2: {STEPS} losses are the CPU device's within {tolerance:g}", f"{cuda}\n{cpu}")
    tap.ok(sharded("cpu", "--allreduce", "staged") == cpu, f"{precision}, {name} --tp 2 staged: on the CPU the same losses, bit for bit", cpu)
    split, of_cpu = (sharded(device, "--sequence-parallel", "--tp-overlap", 2, "--recompute", "full") for device in ("cuda", "cpu"))
    worst = largest_difference(split, of_cpu)
    tap.ok(worst is not None and worst <= tolerance, f"{precision}, {name} --tp 2 --sequence-parallel --tp-overlap 2, recomputed: the CPU device's losses, too",
           f"{split}\n{of_cpu}")


# Model, stages x replicas (with --tp: ranks), precision, plan.
OVER_NCCL = [
    ("gpt2", (1, 2), "fp32", ()),
    ("gpt2", (2, 2), "bf16", ("--zero", 1)),
    ("gpt2", (1, 2), "mixed", ("--zero", 2)),
    ("gpt2", (2, 2), "bf16", ("--zero", 2)),
    ("llama", (1, 4), "fp32", ("--zero", 3)),
    ("gpt2", (1, 2), "bf16", ("--zero", 3, "--offload", "--offload-parameters", "--recompute", "full")),
    ("gpt2", (1, 4), "fp32", ("--zero", 3, "--shard-replicas", 2)),
    ("llama", (1, 4), "bf16", ("--zero", 1, "--shard-replicas", 2)),
    ("llama", (1, 4), "bf16", ("--tp", 2, "--dp", 2, "--zero", 3, "--sequence-parallel", "--tp-overlap", 2)),
    ("mixtral", (1, 2), "fp32", ("--ep", 2)),
    ("mixtral", (1, 4), "mixed", ("--ep", 2, "--zero", 3)),
    ("mixtral", (1, 4), "bf16", ("--tp", 2, "--dp", 2, "--ep", 2)),
    ("mixtral", (2, 2), "fp32", ("--ep", 2, "--schedule", "1f1b", "--recompute", "full")),
    ("gpt2", (1, 2), "fp32", ("--cp", 2)),
    ("llama", (1, 4), "bf16", ("--cp", 4, "--cp-exchange", "all-gather")),
    ("llama", (2, 2), "fp32", ("--cp", 2, "--schedule", "1f1b", "--recompute", "full")),
    ("gpt2", (1, 4), "mixed", ("--cp", 2, "--tp", 2, "--sequence-parallel")),
    ("deepseek_v3", (1, 4), "bf16", ("--cp", 4, "--zero", 3)),
]
# What a rank keeps, whatever computes with it.
KEPT = ("weights", "gradients", "master", "optimizer", "buckets", "messages")


def check_nccl(tap, folder):
    """Ranks with a GPU each: the plugin for NCCL, over an emulated one, whose members are processes."""
    report = os.path.join(folder, "report.json")
    for name, grid, precision, plan in ranvier.some(OVER_NCCL):
        what = " ".join(map(str, (name, *grid, precision, *plan)))
        cpu, _ = train(folder, "cpu", grid, precision, *plan, "--report", report, model=name)
        kept = json.load(open(report))["memory"]["by_category"] if isinstance(cpu, list) else {}
        cuda, _ = train(folder, "cuda", grid, precision, *plan, "--report", report, model=name,
                        RANVIER_NET_NCCL=EMULATED, RANVIER_EMULATED_DEVICES=str(grid[0] * grid[1]))
        trained = json.load(open(report)) if isinstance(cuda, list) else {"plan": {}, "memory": {"by_category": {}}}
        worst = largest_difference(cuda, cpu)
        tap.ok(worst is not None and worst <= TOLERANCES[precision], f"over NCCL, {what}: the CPU device's losses", f"{cuda}\n{cpu}")
        tap.ok(trained["plan"].get("allreduce") == "direct", f"{what}: nothing is staged", trained["plan"])
        tap.ok(all(trained["memory"]["by_category"].get(k) == kept.get(k) for k in KEPT), f"{what}: and a rank keeps the same",
               (trained["memory"]["by_category"], kept))
    for model, plan in (("mixtral", ("--zero", 3)), ("mixtral", ("--ep", 2)), ("llama", ("--cp", 2))):
        flag = " ".join(map(str, plan))
        said, _ = train(folder, "cuda", (1, 2), "fp32", *plan, model=model, RANVIER_NET_NCCL=EMULATED)
        tap.ok(f"{flag} on GPUs goes over NCCL alone (NCCL needs a GPU for each rank, ranks 0 and 1 share one)" in str(said),
               f"{flag} of ranks that share a GPU is refused in a sentence", said)
    said, _ = train(folder, "cuda", (1, 2), "fp32", "--ep", 2, "--allreduce", "staged", model="mixtral")
    tap.ok("--ep 2 on GPUs goes over NCCL alone: through host memory, as --allreduce staged has it, is not built yet" in str(said),
           "and so are spread experts through host memory", said)


def check_attention_library(tap, folder):
    """A library in cuDNN's place, which is the device's kernels behind its functions, with rows in the workspace."""
    runs, report = (os.path.join(folder, name) for name in ("runs.txt", "report.json"))

    def overhead(model, precision):
        train(folder, "cuda", (1, 1), precision, "--report", report, model=model)
        return json.load(open(report))["device"]["overhead_bytes"]

    def with_library(model, precision, source, *more, grid=(1, 1), **variables):
        if os.path.exists(runs):
            os.remove(runs)
        losses, _ = train(folder, "cuda", grid, precision, "--attention", source, *more, model=model,
                          RANVIER_ATTENTION_CUDNN=EMULATED, RANVIER_EMULATED_ATTENTION=runs, **variables)
        return losses, sorted(set(open(runs).read().split("\n")[:-1])) if os.path.exists(runs) else []

    for model, precision, heads in (("gpt2", "mixed", "4/4 x 8"), ("llama", "bf16", "4/2 x 8")):
        ours, _ = train(folder, "cuda", (1, 1), precision, model=model)
        losses, ran = with_library(model, precision, "cudnn", "--report", report)
        tap.ok(losses == ours and ran == [f"backward 1 32 {heads}", f"forward 1 32 {heads}"],
               f"{model}, {precision} --attention cudnn: the library runs forward and backward, with the same losses", (losses, ours, ran))
        device = json.load(open(report))["device"] if isinstance(losses, list) else {}
        tap.ok((device.get("attention"), device.get("attention_shapes"), device.get("library_attention_shapes")) ==
               ("emulated attention", 2, 2), "and the report says whose attention it was", device)
        tap.ok(device.get("overhead_bytes", 0) - overhead(model, precision) == 512 << 20, "the library's workspace is the device's own", device)
    fp32, _ = train(folder, "cuda", (1, 1), "fp32")
    tap.ok(with_library("gpt2", "fp32", "auto") == (fp32, []), "in fp32 attention is ours")
    for flag, more in (("--precision fp32", ()), ("--fusion off", ("--fusion", "off"))):
        said, _ = with_library("gpt2", "bf16" if more else "fp32", "cudnn", *more)
        tap.ok(f"--attention cudnn is of fused attention in 16 bits: it does not go with {flag}" in str(said), f"refused with {flag}", said)
    # Another rank's keys go on with what backward leaves: the sums of rows, which no library writes.
    parts = ("--cp", 2)
    ours, _ = train(folder, "cuda", (1, 2), "bf16", *parts, model="llama", RANVIER_NET_NCCL=EMULATED, RANVIER_EMULATED_DEVICES="2")
    losses, ran = with_library("llama", "bf16", "cudnn", *parts, grid=(1, 2), RANVIER_NET_NCCL=EMULATED, RANVIER_EMULATED_DEVICES="2")
    tap.ok(isinstance(ours, list) and losses == ours and len(ran) == 2, "--cp 2 --attention cudnn: the same losses", (losses, ours, ran))

    ours, _ = train(folder, "cuda", (1, 1), "bf16", model="odd")
    losses, ran = with_library("odd", "bf16", "auto")
    tap.ok(isinstance(ours, list) and losses == ours and not ran, "--attention auto: what the library does not do is ours", (losses, ours, ran))
    losses, _ = with_library("odd", "bf16", "cudnn")
    tap.ok("--attention cudnn, but the library does not do attention of heads of 9 columns and sequences of 32 tokens "
           "(--attention auto takes our kernel): heads of 9 columns" in str(losses), "--attention cudnn: refused in a sentence", losses)
    ours, _ = train(folder, "cuda", (1, 1), "bf16")
    losses, ran = with_library("gpt2", "bf16", "auto", RANVIER_EMULATED_WORKSPACE="1")
    tap.ok(losses == ours and ran == ["forward 1 32 4/4 x 8"], "forward by the library and backward ours, which would take more memory than is kept",
           (losses, ours, ran))
    losses, _ = with_library("gpt2", "bf16", "cudnn", RANVIER_EMULATED_WORKSPACE="1")
    tap.ok("it would work in 1024.00 GiB of memory, 0.50 are kept for it" in str(losses), "or refused", losses)
    losses, _ = with_library("gpt2", "bf16", "auto", RANVIER_EMULATED_NO_ATTENTION="1")
    tap.ok(losses == ours, "--attention auto without the library: ours", losses)
    losses, _ = with_library("gpt2", "bf16", "cudnn", RANVIER_EMULATED_NO_ATTENTION="1")
    tap.ok("--attention cudnn: cuDNN 9 does not load: it is not there" in str(losses), "--attention cudnn without it: refused in a sentence", losses)
    losses, _ = train(folder, "cpu", (1, 1), "bf16", "--attention", "auto")
    tap.ok("--attention is for --device cuda; the CPU has its own" in str(losses), "and on a CPU", losses)


def check_calibrated(tap, folder):
    """One calibration of both: the library's attention, and products of which the fastest proposal is kept."""
    profile, report, refused = (os.path.join(folder, name) for name in ("profile.json", "report.json", "refused.json"))
    status, out, err = ranvier.run(
        ["calibrate", "--device", "cuda", "--model", os.path.join(folder, "gpt2.json"), "--precision", "bf16", "--seq-len", 32,
         "--micro-batch-size", 1, "--pp", 1, "--quick", "--seconds", 1, "--time-products", "--attention", "auto", "--out", profile],
        RANVIER_DEVICE_CUDA=EMULATED, RANVIER_ATTENTION_CUDNN=EMULATED)
    calibrated = json.load(open(profile)) if status == 0 else {"products": {"chosen": {}}, "machine": {}}
    tap.ok(calibrated["machine"].get("attention") == "emulated attention",
           "calibrate --attention auto measures the library's, and says so in the profile", err)
    chosen = calibrated["products"]["chosen"]
    tap.ok(len(chosen) > 10 and all(1 <= c["proposal"] <= c["proposals"] == 3 and c["seconds"] <= c["first_seconds"]
                                    for c in chosen.values()),
           "calibrate --time-products keeps the fastest of the proposals for every product", err or chosen)
    tap.ok(f"{len(chosen)} products timed, " in out, "and says how many there are", out)
    status, _, err = ranvier.run(["calibrate", "--device", "cuda", "--time-products", "--ranks", 2, "--out", refused], RANVIER_DEVICE_CUDA=EMULATED)
    tap.ok(status == 2 and "--time-products with 2 ranks: each would choose by its own times" in err, "of one rank alone", err)
    plain, _ = train(folder, "cuda", (1, 1), "bf16")
    timed, _ = train(folder, "cuda", (1, 1), "bf16", "--products", profile, "--report", report)
    trained = json.load(open(report)) if isinstance(timed, list) else {"device": {"products": 0}, "plan": {}}
    device = trained["device"]
    tap.ok(timed == plain and 0 < device.get("timed_products", 0) <= device["products"],
           "train --products takes them, and the report says of how many", (timed, plain, device))
    status, out, err = ranvier.run(["simulate", os.path.join(folder, "gpt2.json"), "--precision", "bf16", "--seq-len", 32, "--report", report,
                                    "--micro-batch-size", 1, "--batch-size", 4, "--gpus", 1, "--profile", profile, "--platform", "local"])
    tap.ok(status == 0 and f"train with --products {profile}" in out and "by emulated attention, where it does the shape: train with --attention auto" in out,
           "simulate says what its prediction is of", out + err)
    simulated = json.load(open(report)) if status == 0 else {"plan": {}}
    tap.ok(calibrated.get("logits") == trained["plan"].get("logits") == simulated["plan"].get("logits") == "all",
           "logits are made at once on a GPU where they fit: calibrated, trained and simulated so", (trained["plan"], simulated["plan"]))
    train(folder, "cpu", (1, 1), "bf16", "--report", report)
    tap.ok("logits" not in json.load(open(report))["plan"], "and on a CPU in parts, as before")

    def refuse(sentence, device="cuda", **members):
        document = json.load(open(profile))
        document["products"].update(members)
        with open(refused, "w") as file:
            json.dump(document, file)
        said, _ = train.__wrapped__(folder, device, (1, 1), "bf16", "--products", refused)
        tap.ok(sentence in str(said), f"refused: {sentence}", said)

    refuse("--products is for --device cuda", device="cpu")
    refuse("the products were timed on a toaster with", gpu="a toaster")
    refuse("ranvier calibrate --time-products times them anew", library=1)
    refuse('"products" of a profile has "gpu", "library" and "chosen"', chosen=[])
    refuse("hexadecimal digits", chosen={"a product": {"algorithm": "12"}})
    with open(refused, "w") as file:
        json.dump({"kind": "profile"}, file)
    said, _ = train.__wrapped__(folder, "cuda", (1, 1), "bf16", "--products", refused)
    tap.ok("has no products that were timed" in str(said), "refused: a profile without timed products", said)


def check_loop(tap, folder, grid, precision, *more, checkpoints=False):
    """Twice the steps: what belongs to the set-up is counted as often, kernels and copies twice."""
    name = f"{precision}, {grid[0]} x {grid[1]} {' '.join(more)}".strip() + ", checkpoints" * checkpoints
    def run(steps):
        kept = ["--checkpoint", os.path.join(folder, f"kept-{steps}"), "--checkpoint-every", 1] if checkpoints else []
        return train(folder, "cuda", grid, precision, *more, *kept, steps=steps)[1]
    short, long = run(STEPS), run(2 * STEPS)
    if not short or not long:
        tap.ok(False, f"{name}: trains", (short, long))
        return
    def most(counts, what):
        return sorted(c[what] for c in counts)
    for what in ("mallocs", "host_allocs", "device_synchronizes", "pageable_copies"):
        tap.ok(most(short, what) == most(long, what), f"{name}: no {what.replace('_', ' ')} in the loop",
               (most(short, what), most(long, what)))
    tap.ok(all(b > 1.5 * a for a, b in zip(most(short, "kernels_run"), most(long, "kernels_run"))),
           f"{name}: twice the steps run about twice the kernels", (short, long))
    grown = [(b["kernel_launches"] - a["kernel_launches"]) / (b["kernels_run"] - a["kernels_run"])
             for a, b in zip(sorted(short, key=str), sorted(long, key=str))]
    # Of stages the order in which messages come decides which lists of kernels are met for the first time in the loop.
    if grid[0] == 1:
        tap.ok(max(grown) < 0.5, f"{name}: most kernels of the loop are a graph's", (grown, short, long))
    else:
        tap.ok(max(grown) < 1, f"{name}: kernels of the loop are a graph's", (grown, short, long))


def main():
    tap = ranvier.Tap()
    with tempfile.TemporaryDirectory() as folder:
        text.write(os.path.join(folder, "text.txt"))
        for name, keys in MODELS.items():
            with open(os.path.join(folder, name + ".json"), "w") as file:
                json.dump(keys, file)
        for precision, tolerance in TOLERANCES.items():
            check_losses(tap, folder, precision, tolerance)
        for precision, name in ranvier.some([(precision, name) for precision in TOLERANCES for name in FAMILIES[precision]]):
            check_family(tap, folder, precision, TOLERANCES[precision], name)
        for precision, name in ranvier.some([(precision, name) for precision in TOLERANCES for name in SHARDED[precision]]):
            check_shards(tap, folder, precision, TOLERANCES[precision], name)
        said, _ = train(folder, "cuda", (1, 1), "fp32", model="wide")
        tap.ok("heads of wide have 130 columns; fused attention of device cuda is built for at most 128" in str(said),
               "heads that are too wide are refused in a sentence", said)
        check_nccl(tap, folder)
        check_attention_library(tap, folder)
        check_calibrated(tap, folder)
        check_loop(tap, folder, (1, 1), "fp32", checkpoints=True)
        check_loop(tap, folder, (2, 1), "bf16", *OFFLOAD, "--offload-activations")
        check_loop(tap, folder, (1, 2), "mixed", "--fusion", "off")
    tap.end()


if __name__ == "__main__":
    main()
