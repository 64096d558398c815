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

import numpy
import torch
import torch.nn.functional as F

sys.path.insert(0, os.path.dirname(__file__))
import ranvier
import text

STEPS, BATCH, LENGTH, SEED, LR = 20, 8, 64, 3, 2e-3
WARM_UP, BETAS, DECAY = 4, (0.9, 0.95), 0.1
ADAM = (1e-8, 1.0)  # epsilon, clipping norm
# Adam divides by what it is given: only an epsilon as large as the gradients shows whether their size is right, that
# is, whether the loss scale is taken out of them, and out of their norm.
SENSITIVE = (1e-2, 0.1)
UNCLIPPED = (1e-2, 0)
INJECTED = 2  # step of an overflow: one of the first, where Adam's bias correction tells whether it counts
LAYERS, WIDTH, HEADS, VOCABULARY = 3, 48, 4, 256
TOLERANCE = 1e-4  # relative
# Weights, activations and gradients are rounded by 2^-11 in fp16 and 2^-8 in bf16, each in its own direction; the loss
# is a mean over all.
MIXED_TOLERANCE, BF16_TOLERANCE = 2.0**-13, 2.0**-10


def read_safetensors(path):
    with open(path, "rb") as file:
        size, = struct.unpack("<Q", file.read(8))
        header = json.loads(file.read(size))
        data = file.read()
    header.pop("__metadata__")
    return {name: torch.from_numpy(numpy.frombuffer(data[slice(*entry["data_offsets"])], "<f4").reshape(
        entry["shape"]).copy()).requires_grad_() for name, entry in header.items()}


def splitmix64(x):
    mask = (1 << 64) - 1
    z = (x + 0x9E3779B97F4A7C15) & mask
    z = ((z ^ (z >> 30)) * 0xBF58476D1CE4E5B9) & mask
    z = ((z ^ (z >> 27)) * 0x94D049BB133111EB) & mask
    return z ^ (z >> 31)


def batch(tokens, step):
    places = [splitmix64((SEED * 0x9E3779B97F4A7C15 + step * BATCH + i) & ((1 << 64) - 1)) % (len(tokens) - LENGTH)
              for i in range(BATCH)]
    inputs = numpy.stack([tokens[p:p + LENGTH] for p in places])
    targets = numpy.stack([tokens[p + 1:p + 1 + LENGTH] for p in places])
    return torch.from_numpy(inputs), torch.from_numpy(targets)


def forward(w, x, targets):
    h = w["transformer.wte.weight"][x] + w["transformer.wpe.weight"][:x.shape[1]]
    mask = torch.full((x.shape[1], x.shape[1]), -math.inf).triu(1)
    for i in range(LAYERS):
        p = f"transformer.h.{i}."

        def norm(name, value):
            return F.layer_norm(value, (WIDTH,), w[p + name + ".weight"], w[p + name + ".bias"], 1e-5)

        def linear(name, value):
            return F.linear(value, w[p + name + ".weight"], w[p + name + ".bias"])

        q, k, v = (part.view(*x.shape, HEADS, -1).transpose(1, 2)
                   for part in linear("attn.c_attn", norm("ln_1", h)).split(WIDTH, 2))
        attention = torch.softmax(q @ k.transpose(2, 3) / math.sqrt(WIDTH // HEADS) + mask, 3) @ v
        h = h + linear("attn.c_proj", attention.transpose(1, 2).reshape(h.shape))
        u = linear("mlp.c_fc", norm("ln_2", h))
        gelu = 0.5 * u * (1 + torch.tanh(math.sqrt(2 / math.pi) * (u + 0.044715 * u**3)))
        h = h + linear("mlp.c_proj", gelu)
    h = F.layer_norm(h, (WIDTH,), w["transformer.ln_f.weight"], w["transformer.ln_f.bias"], 1e-5)
    logits = h @ w.get("lm_head.weight", w["transformer.wte.weight"]).T
    return F.cross_entropy(logits.view(-1, VOCABULARY), targets.reshape(-1))


def learning_rate(step):
    if step < WARM_UP:
        return LR * (step + 1) / WARM_UP
    progress = (step - WARM_UP) / (STEPS - WARM_UP)
    return LR / 10 + 0.5 * (1 + math.cos(math.pi * progress)) * (LR - LR / 10)


def torch_losses(weights, tokens, epsilon, clip, skipped):
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


def compare(tap, folder, tied, pp, adam=ADAM, precision=None, flags=()):
    """`precision`: mixed or bf16, with an injected overflow."""
    epsilon, clip = adam
    if precision:
        flags = ["--precision", precision, "--inject-overflow", INJECTED, *flags]
    model, data = os.path.join(folder, "model.json"), os.path.join(folder, "text.txt")
    with open(model, "w") as file:
        json.dump({"n_layer": LAYERS, "n_embd": WIDTH, "n_head": HEADS, "vocab_size": VOCABULARY,
                   "n_positions": LENGTH, "tie_word_embeddings": tied}, file)
    initial, log = os.path.join(folder, "initial.safetensors"), os.path.join(folder, "log.csv")
    common = ["train", model, "--data", data, "--micro-batch-size", 2, "--batch-size", BATCH, "--seed", SEED]
    status, _, err = ranvier.run(common + ["--steps", 0, "--checkpoint", initial])
    name = f"{'tied' if tied else 'untied'}, {pp} stage{'s' if pp > 1 else ''}"
    name += (f", {precision}" if precision else "") + (", not fused" if "--fusion" in flags else "")
    name += f", epsilon {epsilon:g}, clip {clip:g}" if adam != ADAM else ""
    tolerance = {None: TOLERANCE, "mixed": MIXED_TOLERANCE, "bf16": BF16_TOLERANCE}[precision]
    if status:
        return tap.ok(False, f"{name}: the initial weights are written", err)
    status, _, err = ranvier.run(common + [
        "--pp", pp, "--steps", STEPS, "--lr", LR, "--warmup", WARM_UP, "--beta1", BETAS[0], "--beta2", BETAS[1],
        "--epsilon", epsilon, "--weight-decay", DECAY, "--clip", clip, "--log", log, *flags], pp)
    if status:
        return tap.ok(False, f"{name}: ranvier trains", err)
    with open(data, "rb") as file:
        tokens = numpy.frombuffer(file.read(), numpy.uint8).astype(numpy.int64)
    with open(log) as file:
        skipped = [int(row["step"]) for row in csv.DictReader(file) if row.get("skipped") == "1"]
    theirs = torch_losses(read_safetensors(initial), tokens[:len(tokens) - len(tokens) // 10], epsilon, clip,
                          skipped)
    ours = ranvier.losses(log)
    worst = max(abs(a - b) / b for a, b in zip(ours, theirs))
    print(f"# {name}: loss {theirs[0]:.4f} to {theirs[-1]:.4f}, largest relative difference {worst:.2g}"
          + f", steps {skipped} skipped" * bool(skipped), flush=True)
    return tap.ok(len(ours) == STEPS and worst <= tolerance and theirs[-1] < theirs[0]
                  and (not precision or INJECTED in skipped),
                  f"{name}: {STEPS} losses equal PyTorch's within {tolerance:g}", f"{ours}\n{theirs}")


def main():
    torch.manual_seed(0)
    tap = ranvier.Tap()
    with tempfile.TemporaryDirectory() as folder:
        text.write(os.path.join(folder, "text.txt"))
        for tied, pp in ((True, 1), (True, 2), (False, 1), (False, 3)):
            compare(tap, folder, tied, pp)
        unfused, offload = ["--fusion", "off"], ["--offload", "--bucket-params", 5000]
        for tied, pp in ((True, 1), (False, 3)):
            compare(tap, folder, tied, pp, flags=unfused)
        for adam, pp, flags in ((ADAM, 1, []), (ADAM, 2, offload), (SENSITIVE, 1, []), (SENSITIVE, 2, offload),
                                (UNCLIPPED, 2, offload)):
            compare(tap, folder, True, pp, adam, "mixed", flags)
        for adam, pp, flags in ((ADAM, 1, []), (ADAM, 2, [*offload, *unfused]), (SENSITIVE, 2, offload),
                                (SENSITIVE, 1, unfused)):
            compare(tap, folder, True, pp, adam, "bf16", flags)
    tap.end()


if __name__ == "__main__":
    main()
