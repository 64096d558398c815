#!/usr/bin/python3
"""20 steps of training against PyTorch: the same initial weights, the same data, AdamW, clipping, warm-up and cosine.

The model, the batches (splitmix64 draws) and the schedule are written here again from their descriptions, so that a
mistake in either place shows."""
import csv
import json
import math
import os
import struct
import sys
import tempfile

BLAS_THREADS = os.environ.get("OPENBLAS_NUM_THREADS")
os.environ["OPENBLAS_NUM_THREADS"] = "1"  # of numpy and PyTorch, which read it once: with so little work more threads would only wait
import numpy
import torch
import torch.nn.functional as F
torch.set_num_threads(1)
if BLAS_THREADS is None:
    del os.environ["OPENBLAS_NUM_THREADS"]
else:
    os.environ["OPENBLAS_NUM_THREADS"] = BLAS_THREADS

sys.path.insert(0, os.path.dirname(__file__))
import ranvier
import text

STEPS, BATCH, LENGTH, SEED, LR = 10, 8, 64, 3, 2e-3
WARM_UP, BETAS, DECAY = 4, (0.9, 0.95), 0.1
ADAM = (1e-8, 1.0)  # epsilon, clipping norm
# Adam divides by what it is given: only an epsilon as large as the gradients shows whether their size is right, that
# is, whether the loss scale is taken out of them, and out of their norm.
SENSITIVE = (1e-2, 0.1)
UNCLIPPED = (1e-2, 0)
INJECTED = 2  # step of an overflow: one of the first, where Adam's bias correction tells whether it counts
LAYERS, WIDTH, HEADS, VOCABULARY = 3, 48, 4, 256
KV_HEADS, INNER, THETA, NORM_EPSILON = 2, 104, 500.0, 1e-5  # of the Llama and its like
EXPERTS, CHOSEN = 5, 2
# Of DeepSeek-V3's mixtures: experts, in groups, chosen in some of them; and what their weights are multiplied by.
ROUTED_EXPERTS, ROUTED_CHOSEN, GROUPS, CHOSEN_GROUPS, ROUTED_SCALE = 12, 4, 4, 2, 1.7
CORRECTION = "e_score_correction_bias"
HEAD = 20  # columns of a head, where it is not the width's part
LLAMA3 = {"rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
          "original_max_position_embeddings": 40}
YARN = {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 4096}
# Of latent attention: columns that queries, and keys and values, are made of, of a key's copied and rotated part, of a value.
Q_RANK, KV_RANK, COPIED, ROTATED, VALUE = 28, 20, 12, 8, 10
TOLERANCE = 1e-4  # relative
# Weights, activations and gradients are rounded by 2^-11 in fp16 and 2^-8 in bf16, each in its own direction; the loss
# is a mean over all.
MIXED_TOLERANCE, BF16_TOLERANCE = 2.0**-13, 2.0**-10
ROUTED = 2  # times that, where a row that is rounded may go to another expert


def read_safetensors(path):
    with open(path, "rb") as file:
        size, = struct.unpack("<Q", file.read(8))
        header = json.loads(file.read(size))
        data = file.read()
    header.pop("__metadata__")
    return {name: torch.from_numpy(numpy.frombuffer(data[slice(*entry["data_offsets"])], "<f4").reshape(
        entry["shape"]).copy()).requires_grad_() for name, entry in header.items()}


def correct(path):
    """Gives routers corrections, which are zeros at first, in a file of weights: numbers that bf16 has too. Returns whether
    there are any."""
    with open(path, "r+b") as file:
        size, = struct.unpack("<Q", file.read(8))
        places = [entry["data_offsets"] for name, entry in json.loads(file.read(size)).items() if name.endswith(CORRECTION)]
        for begin, end in places:
            file.seek(8 + size + begin)
            file.write((torch.randint(-16, 17, ((end - begin) // 4,)) / 64).numpy().astype("<f4").tobytes())
    return bool(places)


def splitmix64(x):
    mask = (1 << 64) - 1
    z = (x + 0x9E3779B97F4A7C15) & mask
    z = ((z ^ (z >> 30)) * 0xBF58476D1CE4E5B9) & mask
    z = ((z ^ (z >> 27)) * 0x94D049BB133111EB) & mask
    return z ^ (z >> 31)


def batch(tokens, step, size=BATCH):
    places = [splitmix64((SEED * 0x9E3779B97F4A7C15 + step * size + i) & ((1 << 64) - 1)) % (len(tokens) - LENGTH)
              for i in range(size)]
    inputs = numpy.stack([tokens[p:p + LENGTH] for p in places])
    targets = numpy.stack([tokens[p + 1:p + 1 + LENGTH] for p in places])
    return torch.from_numpy(inputs), torch.from_numpy(targets)


def causal_attention(q, k, v, scale=1):
    """Of (B, heads, T, head size): (B, T, width)."""
    T = q.shape[2]
    mask = torch.full((T, T), -math.inf).triu(1)
    p = torch.softmax(q @ k.transpose(2, 3) * (scale / math.sqrt(q.shape[3])) + mask, 3)
    return (p @ v).transpose(1, 2).flatten(2)


def mean_loss(logits, targets):
    return F.cross_entropy(logits.view(-1, VOCABULARY), targets.reshape(-1))


def gpt2(w, x, targets):
    h = w["transformer.wte.weight"][x] + w["transformer.wpe.weight"][:x.shape[1]]
    for i in range(LAYERS):
        p = f"transformer.h.{i}."

        def norm(name, value):
            return F.layer_norm(value, (WIDTH,), w[p + name + ".weight"], w[p + name + ".bias"], 1e-5)

        def linear(name, value):
            return value @ w[p + name + ".weight"] + w[p + name + ".bias"]  # (in, out), as transformers has it

        q, k, v = (part.view(*x.shape, HEADS, -1).transpose(1, 2)
                   for part in linear("attn.c_attn", norm("ln_1", h)).split(WIDTH, 2))
        h = h + linear("attn.c_proj", causal_attention(q, k, v))
        u = linear("mlp.c_fc", norm("ln_2", h))
        gelu = 0.5 * u * (1 + torch.tanh(math.sqrt(2 / math.pi) * (u + 0.044715 * u**3)))
        h = h + linear("mlp.c_proj", gelu)
    h = F.layer_norm(h, (WIDTH,), w["transformer.ln_f.weight"], w["transformer.ln_f.bias"], 1e-5)
    return mean_loss(h @ w.get("lm_head.weight", w["transformer.wte.weight"]).T, targets)


def llama3_frequencies(frequencies, scaling):
    """As Llama 3.1 has them: by wavelength, in three ranges."""
    old, factor = scaling["original_max_position_embeddings"], scaling["factor"]
    low, high = scaling["low_freq_factor"], scaling["high_freq_factor"]
    new = []
    for f in frequencies.tolist():
        wavelength = 2 * math.pi / f
        smooth = (old / wavelength - low) / (high - low)
        new.append(f if wavelength < old / high else f / factor if wavelength > old / low
                   else (1 - smooth) * f / factor + smooth * f)
    return torch.tensor(new)


def yarn_frequencies(frequencies, scaling):
    """Peng et al. 2023, with 32 and 1 rotations: a ramp over columns from those that extrapolate to those that
    interpolate."""
    half, old, factor = len(frequencies), scaling["original_max_position_embeddings"], scaling["factor"]
    first, last = (2 * half * math.log(old / (turns * 2 * math.pi)) / (2 * math.log(THETA)) for turns in (32, 1))
    first, last = max(math.floor(first), 0), min(math.ceil(last), 2 * half - 1)
    ramp = ((torch.arange(half) - first) / (last - first)).clamp(0, 1)
    return frequencies / factor * ramp + frequencies * (1 - ramp)


def yarn_length(scaling, key=None):
    """By how much yarn makes queries and keys longer, by the coefficient of that name."""
    return 0.1 * scaling.get(key, 1) * math.log(scaling["factor"]) + 1


def rotated(heads, scaling=None):
    """Rotary positions of (B, heads, T, head size): columns i and i + half turn by T theta^(-i / half)."""
    half, longer = heads.shape[3] // 2, 1
    frequencies = THETA ** (-torch.arange(half) / half)
    if scaling == LLAMA3:
        frequencies = llama3_frequencies(frequencies, scaling)
    elif scaling and scaling.get("rope_type") == "yarn":
        frequencies, longer = yarn_frequencies(frequencies, scaling), yarn_length(scaling)
        if scaling.get("mscale") and scaling.get("mscale_all_dim"):
            longer = yarn_length(scaling, "mscale") / yarn_length(scaling, "mscale_all_dim")
    elif scaling:
        frequencies = frequencies / scaling["factor"]
    angles = torch.arange(heads.shape[2])[:, None] * frequencies
    c, s, (a, b) = longer * torch.cos(angles), longer * torch.sin(angles), heads.split(half, 3)
    return torch.cat((a * c - b * s, b * c + a * s), 3)


def swiglu_mlp(w, p, u, mlp="mlp"):
    def linear(name, value):
        return F.linear(value, w[f"{p}{mlp}.{name}_proj.weight"], w.get(f"{p}{mlp}.{name}_proj.bias"))
    return linear("down", F.silu(linear("gate", u)) * linear("up", u))


def through_experts(w, p, rows, weights, chosen, experts, names):
    """The sum of each row's chosen ones of so many experts, by their weights."""
    sums = torch.zeros_like(rows)
    for e in range(experts):
        token, place = torch.where(chosen == e)
        gate, up, down = (w[f"{p}experts.{e}.{name}.weight"] for name in names)
        sums = sums.index_add(0, token, weights[token, place, None] * ((F.silu(rows[token] @ gate.T) * (rows[token] @ up.T)) @ down.T))
    return sums


def mixture(w, p, u, names, normalised=True):
    """Each token through its two largest experts, weighted by their softmax over all; `normalised`: divided by its sum."""
    rows = u.flatten(0, 1)
    weights, chosen = torch.softmax(rows @ w[p + "gate.weight"].T, 1).topk(CHOSEN, 1)
    if normalised:
        weights = weights / weights.sum(1, keepdim=True)
    return through_experts(w, p, rows, weights, chosen, EXPERTS, names).view_as(u)


def deepseek_mlp(w, p, u, normalised=True):
    """DeepSeek-V3's: logistic scores, and a correction by which experts are chosen alone, in the groups whose two best have
    the largest sums; DeepSeek-V2's, without a correction: softmax, and the groups whose best are largest. Beside them, where
    the weights are, experts that all tokens share. Its first layers have no experts."""
    if f"{p}mlp.gate.weight" not in w:
        return swiglu_mlp(w, p, u)
    rows = u.flatten(0, 1)
    logits, correction = rows @ w[f"{p}mlp.gate.weight"].T, w.get(f"{p}mlp.gate.{CORRECTION}")
    scores = torch.softmax(logits, 1) if correction is None else torch.sigmoid(logits)
    grouped = (scores if correction is None else scores + correction).view(len(rows), GROUPS, -1).detach()
    groups = grouped.topk(1 if correction is None else 2, 2).values.sum(2).topk(CHOSEN_GROUPS, 1).indices
    outside = torch.ones(len(rows), GROUPS, dtype=torch.bool).scatter(1, groups, False)
    chosen = grouped.masked_fill(outside[:, :, None], 0).flatten(1).topk(ROUTED_CHOSEN, 1).indices
    weights = scores.gather(1, chosen)
    if normalised:
        weights = weights / (weights.sum(1, keepdim=True) + 1e-20)
    routed = through_experts(w, p + "mlp.", rows, ROUTED_SCALE * weights, chosen, ROUTED_EXPERTS,
                             ("gate_proj", "up_proj", "down_proj")).view_as(u)
    shared = p + "mlp.shared_experts.gate_proj.weight" in w
    return routed + swiglu_mlp(w, p, u, "mlp.shared_experts") if shared else routed


def deepseek_mixture(normalised=True, shared=2, dense=1):
    """The keys of a file whose layers but the first are deepseek_mlp's, with `shared` experts, which are one wider MLP."""
    return {"n_routed_experts": ROUTED_EXPERTS, "num_experts_per_tok": ROUTED_CHOSEN, "moe_intermediate_size": INNER // 4,
            "n_shared_experts": shared, "n_group": GROUPS, "topk_group": CHOSEN_GROUPS, "norm_topk_prob": normalised,
            "routed_scaling_factor": ROUTED_SCALE, "first_k_dense_replace": dense}


def mixtral_mlp(w, p, u):
    return mixture(w, p + "block_sparse_moe.", u, ("w1", "w3", "w2"))


def qwen3_moe(normalised, **keys):
    def mlp(w, p, u):
        """Of a layer without experts too."""
        experts = f"{p}mlp.gate.weight" in w
        return mixture(w, p + "mlp.", u, ("gate_proj", "up_proj", "down_proj"), normalised) if experts else swiglu_mlp(w, p, u)

    return like_llama("qwen3_moe", mlp=mlp,
                      head_dim=HEAD, moe_intermediate_size=INNER, num_experts=EXPERTS, num_experts_per_tok=CHOSEN,
                      norm_topk_prob=normalised, **keys)


def rms_norm(w, name, value, epsilon=NORM_EPSILON):
    return value * torch.rsqrt((value * value).mean(-1, keepdim=True) + epsilon) * w[name + ".weight"]


def projection(w, name, value):
    return F.linear(value, w[name + ".weight"], w.get(name + ".bias"))


def heads_of(rows, count):
    """(B, T, width) as (B, heads, T, head size)."""
    return rows.view(*rows.shape[:2], count, -1).transpose(1, 2)


def grouped_attention(w, p, u, scaling, turned=None):
    """Norms of heads are there where the weights are. Of a head the first columns turn, so many of them (None: all)."""
    def positioned(heads, name):
        heads = rms_norm(w, p + name, heads) if p + name + ".weight" in w else heads
        return torch.cat((rotated(heads[..., :turned], scaling), heads[..., turned:]), 3) if turned else rotated(heads, scaling)

    q, k, v = (heads_of(projection(w, f"{p}{name}_proj", u), count)
               for name, count in (("q", HEADS), ("k", KV_HEADS), ("v", KV_HEADS)))
    k, v = (heads.repeat_interleave(HEADS // KV_HEADS, 1) for heads in (positioned(k, "k_norm"), v))
    return causal_attention(positioned(q, "q_norm"), k, v)


def latent_attention(w, p, u, scaling, interleaved):
    """DeepSeek-V3's: queries, keys and values made of few columns, whose norms have an epsilon of their own."""
    def inner_norm(name, rows):
        return rms_norm(w, p + name, rows, 1e-6)

    def positioned(heads):
        if interleaved:
            heads = torch.cat((heads[..., 0::2], heads[..., 1::2]), 3)
        return rotated(heads, scaling)

    q = (projection(w, p + "q_proj", u) if p + "q_proj.weight" in w else
         projection(w, p + "q_b_proj", inner_norm("q_a_layernorm", projection(w, p + "q_a_proj", u))))
    few, shared = projection(w, p + "kv_a_proj_with_mqa", u).split((KV_RANK, ROTATED), 2)
    keys, v = heads_of(projection(w, p + "kv_b_proj", inner_norm("kv_a_layernorm", few)), HEADS).split((COPIED, VALUE), 3)
    copied, turned = heads_of(q, HEADS).split((COPIED, ROTATED), 3)
    q = torch.cat((copied, positioned(turned)), 3)
    k = torch.cat((keys, positioned(heads_of(shared, 1)).expand(-1, HEADS, -1, -1)), 3)
    return causal_attention(q, k, v, yarn_length(scaling, "mscale_all_dim")**2 if scaling and scaling.get("mscale_all_dim") else 1)


def llama(w, x, targets, scaling=None, mlp=swiglu_mlp, attention=grouped_attention):
    """Of its like too: biases are there where the weights are."""
    h = w["model.embed_tokens.weight"][x]
    for i in range(LAYERS):
        p = f"model.layers.{i}."
        u = rms_norm(w, p + "input_layernorm", h)
        h = h + projection(w, p + "self_attn.o_proj", attention(w, p + "self_attn.", u, scaling))
        h = h + mlp(w, p, rms_norm(w, p + "post_attention_layernorm", h))
    return mean_loss(rms_norm(w, "model.norm", h) @ w.get("lm_head.weight", w["model.embed_tokens.weight"]).T, targets)


def nemotron(w, x, targets):
    """LayerNorms of weights that are stored as what they are more than 1; half of a head turns; no gates. Biases are there
    where they are in the files."""
    def norm(name, value):
        return F.layer_norm(value, (WIDTH,), w[name + ".weight"] + 1, w[name + ".bias"], 1e-5)

    h = w["model.embed_tokens.weight"][x]
    for i in range(LAYERS):
        p = f"model.layers.{i}."
        u = norm(p + "input_layernorm", h)
        h = h + projection(w, p + "self_attn.o_proj", grouped_attention(w, p + "self_attn.", u, None, HEAD // 2))
        u = F.relu(projection(w, p + "mlp.up_proj", norm(p + "post_attention_layernorm", h)))
        h = h + projection(w, p + "mlp.down_proj", u * u)
    return mean_loss(norm("model.norm", h) @ w.get("lm_head.weight", w["model.embed_tokens.weight"]).T, targets)


LLAMA = {"model_type": "llama", "num_hidden_layers": LAYERS, "hidden_size": WIDTH, "num_attention_heads": HEADS,
         "num_key_value_heads": KV_HEADS, "intermediate_size": INNER, "max_position_embeddings": LENGTH,
         "rope_theta": THETA, "rms_norm_eps": NORM_EPSILON}


def like_llama(model_type, scaling=None, mlp=swiglu_mlp, attention=grouped_attention, **keys):
    if scaling:
        keys["rope_scaling"] = scaling
    return {**LLAMA, "model_type": model_type, **keys}, lambda w, x, targets: llama(w, x, targets, scaling, mlp, attention)


def like_nemotron(**keys):
    sizes = {key: value for key, value in LLAMA.items() if key not in ("rms_norm_eps", "model_type")}
    return {**sizes, "model_type": "nemotron", "hidden_act": "relu2", "norm_eps": 1e-5, "head_dim": HEAD, **keys}, nemotron


def deepseek_v3(q_rank=Q_RANK, interleaved=True, scaling=None, **mixture):
    """`mixture` is of what deepseek_mixture takes; nothing: no layer has experts."""
    keys = deepseek_mixture(**mixture) if mixture else {"first_k_dense_replace": LAYERS}
    return like_llama("deepseek_v3", scaling, lambda w, p, u: deepseek_mlp(w, p, u, keys.get("norm_topk_prob", True)),
                      lambda w, p, u, scaling: latent_attention(w, p, u, scaling, interleaved),
                      num_key_value_heads=HEADS, q_lora_rank=q_rank, kv_lora_rank=KV_RANK, qk_nope_head_dim=COPIED,
                      qk_rope_head_dim=ROTATED, v_head_dim=VALUE, rope_interleave=interleaved, **keys)


def deepseek_v2():
    return like_llama("deepseek_v2", None, lambda w, p, u: deepseek_mlp(w, p, u, False),
                      lambda w, p, u, scaling: latent_attention(w, p, u, scaling, True),
                      num_key_value_heads=HEADS, q_lora_rank=Q_RANK, kv_lora_rank=KV_RANK, qk_nope_head_dim=COPIED,
                      qk_rope_head_dim=ROTATED, v_head_dim=VALUE, scoring_func="softmax", topk_method="group_limited_greedy",
                      **deepseek_mixture(normalised=False))


# What a model is in a config.json and in PyTorch.
FAMILIES = {
    "gpt2": ({"model_type": "gpt2", "n_layer": LAYERS, "n_embd": WIDTH, "n_head": HEADS, "n_positions": LENGTH}, gpt2),
    "llama": like_llama("llama"),
    "llama with biases, llama3 positions": like_llama("llama", LLAMA3, attention_bias=True, mlp_bias=True),
    "llama with linear positions": like_llama("llama", {"type": "linear", "factor": 4.0}),
    "mistral": like_llama("mistral", head_dim=HEAD, sliding_window=LENGTH),
    "qwen2": like_llama("qwen2"),
    "qwen2 with yarn": like_llama("qwen2", YARN),
    "qwen3": like_llama("qwen3", head_dim=HEAD),
    "qwen3 with biases": like_llama("qwen3", head_dim=HEAD, attention_bias=True),
    "mixtral": like_llama("mixtral", None, mixtral_mlp, num_local_experts=EXPERTS, num_experts_per_tok=CHOSEN),
    "qwen3_moe": qwen3_moe(True),
    "qwen3_moe with biases, not normalised": qwen3_moe(False, attention_bias=True),
    "qwen3_moe whose first layer has no experts": qwen3_moe(True, mlp_only_layers=[0], intermediate_size=INNER + 6),
    "deepseek_v3": deepseek_v3(shared=2),
    "deepseek_v3 with experts in all layers, not normalised, none shared": deepseek_v3(normalised=False, shared=None, dense=0),
    "deepseek_v3 without experts": deepseek_v3(),
    "deepseek_v3 with whole queries, halves rotated, yarn": deepseek_v3(None, False, YARN),
    "deepseek_v3 with yarn of two lengths": deepseek_v3(scaling={**YARN, "mscale": 0.7, "mscale_all_dim": 1.3}),
    "deepseek_v3 with longer scores": deepseek_v3(interleaved=False, scaling={**YARN, "mscale_all_dim": 1.0}, shared=1),
    "deepseek_v2": deepseek_v2(),
    "nemotron": like_nemotron(),
    "nemotron with biases": like_nemotron(attention_bias=True, mlp_bias=True),
}


def learning_rate(step):
    if step < WARM_UP:
        return LR * (step + 1) / WARM_UP
    progress = (step - WARM_UP) / (STEPS - WARM_UP)
    return LR / 10 + 0.5 * (1 + math.cos(math.pi * progress)) * (LR - LR / 10)


def torch_losses(forward, weights, tokens, epsilon, clip, skipped):
    """`skipped`: steps (from 1) whose update is left out, as GradScaler does after an overflow; the learning rate goes
    on."""
    decayed = [t for t in weights.values() if t.dim() > 1]
    kept = [t for t in weights.values() if t.dim() == 1]
    optimizer = torch.optim.AdamW([{"params": decayed, "weight_decay": DECAY}, {"params": kept, "weight_decay": 0.0}],
                                  lr=LR, betas=BETAS, eps=epsilon)
    losses = []
    for step in range(STEPS):
        for group in optimizer.param_groups:
            group["lr"] = learning_rate(step)
        loss = forward(weights, *batch(tokens, step))
        optimizer.zero_grad()
        loss.backward()
        if clip:
            torch.nn.utils.clip_grad_norm_(weights.values(), clip)
        if step + 1 not in skipped:
            optimizer.step()
        losses.append(loss.item())
    return losses


def write_model(folder, family, tied):
    path = os.path.join(folder, "model.json")
    with open(path, "w") as file:
        json.dump({"vocab_size": VOCABULARY, "tie_word_embeddings": tied, **FAMILIES[family][0]},
                  file)
    return path


def training_tokens(data):
    with open(data, "rb") as file:
        tokens = numpy.frombuffer(file.read(), numpy.uint8).astype(numpy.int64)
    return tokens[:len(tokens) - len(tokens) // 10]


def training_flags(epsilon, clip):
    """Of ranvier, for what torch_losses does."""
    return ["--steps", STEPS, "--lr", LR, "--warmup", WARM_UP, "--beta1", BETAS[0], "--beta2", BETAS[1], "--epsilon",
            epsilon, "--weight-decay", DECAY, "--clip", clip]


def data_flags(data, micro_batch=2, size=BATCH):
    return ["--data", data, "--micro-batch-size", micro_batch, "--batch-size", size, "--seed", SEED]


def compare(tap, folder, tied, pp, adam=ADAM, precision=None, flags=(), family="gpt2"):
    """`precision`: mixed or bf16, with an injected overflow."""
    epsilon, clip = adam
    if precision:
        flags = ["--precision", precision, "--inject-overflow", INJECTED, *flags]
    model, data = write_model(folder, family, tied), os.path.join(folder, "text.txt")
    initial, log = os.path.join(folder, "initial.safetensors"), os.path.join(folder, "log.csv")
    common = ["train", model, *data_flags(data)]
    status, _, err = ranvier.run(common + ["--steps", 0, "--checkpoint", initial])
    name = f"{family}, {'tied' if tied else 'untied'}, {pp} stage{'s' if pp > 1 else ''}"
    name += (f", {precision}" if precision else "") + (", not fused" if "--fusion" in flags else "")
    name += f", epsilon {epsilon:g}, clip {clip:g}" if adam != ADAM else ""
    tolerance = {None: TOLERANCE, "mixed": MIXED_TOLERANCE, "bf16": BF16_TOLERANCE}[precision]
    if precision and "num_experts_per_tok" in FAMILIES[family][0]:
        tolerance *= ROUTED
    if status:
        return tap.ok(False, f"{name}: the initial weights are written", err)
    if correct(initial):
        common += ["--init", initial]
    status, _, err = ranvier.run([*common, "--pp", pp, *training_flags(epsilon, clip), "--log", log, *flags], pp)
    if status:
        return tap.ok(False, f"{name}: ranvier trains", err)
    with open(log) as file:
        skipped = [int(row["step"]) for row in csv.DictReader(file) if row.get("skipped") == "1"]
    theirs = torch_losses(FAMILIES[family][1], read_safetensors(initial), training_tokens(data), epsilon, clip, skipped)
    ours = ranvier.losses(log)
    worst = max(abs(a - b) / b for a, b in zip(ours, theirs))
    print(f"# {name}: loss {theirs[0]:.4f} to {theirs[-1]:.4f}, largest relative difference {worst:.2g}"
          + f", steps {skipped} skipped" * bool(skipped), flush=True)
    return tap.ok(len(ours) == STEPS and worst <= tolerance and theirs[-1] < theirs[0]
                  and (not precision or INJECTED in skipped),
                  f"{name}: {STEPS} losses equal PyTorch's within {tolerance:g}", f"{ours}\n{theirs}")


# Of its first step AdamW makes lr g / (|g| + epsilon), from which the gradient g is had again; lr and epsilon are such
# that weights move by 100 g, which their own rounding does not hide.
GRADIENT_LR, GRADIENT_EPSILON = 10, 0.1
GRADIENT_FLAGS = ["--lr", GRADIENT_LR, "--warmup", 0, "--epsilon", GRADIENT_EPSILON, "--weight-decay", 0, "--clip", 0]


def gradient(before, after):
    """Of a tensor, from its elements before and after that step."""
    step = (before - after).detach().double()
    return step * GRADIENT_EPSILON / (GRADIENT_LR - step.abs())


def gradients(tap, folder, family, tied, *flags):
    """Of every tensor, as autograd has them."""
    model, data = write_model(folder, family, tied), os.path.join(folder, "text.txt")
    paths = [os.path.join(folder, f"{steps}.safetensors") for steps in (0, 1)]
    for steps, path in enumerate(paths):
        if steps and correct(paths[0]):
            flags = (*flags, "--init", paths[0])
        status, _, err = ranvier.run(
            ["train", model, *data_flags(data), "--steps", steps, *GRADIENT_FLAGS, "--checkpoint", path, *flags])
        if status:
            return tap.ok(False, f"{family}: ranvier trains", err)
    before, after = map(read_safetensors, paths)
    FAMILIES[family][1](before, *batch(training_tokens(data), 0)).backward()
    worst = 0
    for name, tensor in before.items():
        if tensor.grad is None or not tensor.grad.any():  # a correction, an expert without tokens: they stay as they are
            worst = worst if torch.equal(tensor, after[name]) else math.inf
            continue
        found, expected = gradient(tensor, after[name]), tensor.grad.double()
        # Norms begin with ones, whose rounding is that of a larger gradient than some have.
        rounding = float(after[name].abs().max()) * 2**-24 * GRADIENT_EPSILON / GRADIENT_LR
        apart = float((found - expected).abs().max()) - rounding
        worst = max(worst, apart / float(expected.abs().max()))
    name = f"{family}, {'tied' if tied else 'untied'}{', not fused' if '--fusion' in flags else ''}"
    print(f"# {name}: largest difference of a gradient {worst:.2g} of its tensor's largest", flush=True)
    return tap.ok(worst <= 1e-5, f"{name}: the gradients of {len(before)} tensors equal autograd's within 1e-5", worst)


def round_to_bf16(path):
    """The tensors of a file, to numbers that bf16 has too."""
    with open(path, "r+b") as file:
        size, = struct.unpack("<Q", file.read(8))
        file.seek(8 + size)
        bits = numpy.frombuffer(file.read(), "<u4")
        file.seek(8 + size)
        file.write(((bits + 0x7fff + (bits >> 16 & 1)) & 0xffff0000).astype("<u4").tobytes())


def sums_of_many(tap, folder, family):
    """The gradient of 512 micro-batches in bf16, as far as they are added up in fp32, is autograd's in float64."""
    many, within = 512, 0.002
    model, data = write_model(folder, family, True), os.path.join(folder, "text.txt")
    initial, stepped = os.path.join(folder, "initial.safetensors"), os.path.join(folder, "stepped.safetensors")
    common = ["train", model, *data_flags(data, 1, many)]
    ranvier.run([*common, "--steps", 0, "--checkpoint", initial])
    round_to_bf16(initial)
    before = read_safetensors(initial)
    exact = {name: tensor.detach().double().requires_grad_() for name, tensor in before.items()}
    FAMILIES[family][1](exact, *batch(training_tokens(data), 0, many)).backward()
    for flags in ([], ["--gradients", "16-bit"]):
        status, _, err = ranvier.run(
            [*common, "--steps", 1, *GRADIENT_FLAGS, "--init", initial, "--checkpoint", stepped, "--precision", "bf16", *flags])
        if status:
            tap.ok(False, f"{family}: {many} micro-batches in bf16 {' '.join(flags)}", err)
            return
        after, apart, whole = read_safetensors(stepped), 0, 0
        for name, tensor in before.items():
            found, expected = gradient(tensor, after[name]), exact[name].grad
            apart, whole = apart + float((found - expected).norm()) ** 2, whole + float(expected.norm()) ** 2
        apart = math.sqrt(apart / whole)
        print(f"# {family}, {many} micro-batches in bf16 {' '.join(flags)}: {100 * apart:.2g} % of the gradient's norm", flush=True)
        warned = "added up in bf16" in err
        if flags:
            tap.ok(warned, f"{family}: sums of {many} micro-batches in bf16 are warned of", err)
        else:
            tap.ok(apart <= within and not warned,
                   f"{family}: {many} micro-batches in bf16 add up to autograd's gradient within {within:g} of its norm", (apart, err))


def main():
    torch.manual_seed(0)
    torch.set_num_threads(1)  # of such small tensors; another test may have the other processors
    tap = ranvier.Tap()
    with tempfile.TemporaryDirectory() as folder:
        text.write(os.path.join(folder, "text.txt"))
        unfused, offload = ["--fusion", "off"], ["--offload", "--bucket-params", 5000]
        kinds = ((True, ()), (False, ()), (False, (*unfused, "--recompute", "full")))
        for family, tied, flags in ranvier.some([(family, *kind) for family in FAMILIES for kind in kinds]):
            gradients(tap, folder, family, tied, *flags)
        for family in ranvier.some(["gpt2", "llama"]):
            sums_of_many(tap, folder, family)
        grids = ((True, 2), (False, 1)), ((True, 1), (False, 3))
        cases = [(family, *grid) for family in FAMILIES for grid in grids[0]] + [
            (family, *grid) for family in ("gpt2", "llama", "qwen3_moe") for grid in grids[1]]
        for family, tied, pp in ranvier.some(cases):
            compare(tap, folder, tied, pp, family=family)
        for tied, pp in ((True, 1), (False, 3)):
            compare(tap, folder, tied, pp, flags=unfused)
        families = ("llama", "qwen2", "qwen3", "mixtral", "qwen3_moe", "deepseek_v3", "nemotron")
        for precision, family in ranvier.some([(precision, family) for precision in ("mixed", "bf16") for family in families]):
            compare(tap, folder, False, 1, precision=precision, family=family)
        for precision in ("mixed", "bf16"):
            compare(tap, folder, False, 2, SENSITIVE, precision, offload, family="llama")
        for adam, pp, flags in ((ADAM, 1, []), (ADAM, 2, offload), (SENSITIVE, 1, []), (SENSITIVE, 2, offload),
                                (UNCLIPPED, 2, offload)):
            compare(tap, folder, True, pp, adam, "mixed", flags)
        for adam, pp, flags in ((ADAM, 1, []), (ADAM, 2, [*offload, *unfused]), (SENSITIVE, 2, offload),
                                (SENSITIVE, 1, unfused)):
            compare(tap, folder, True, pp, adam, "bf16", flags)
    tap.end()


if __name__ == "__main__":
    main()
