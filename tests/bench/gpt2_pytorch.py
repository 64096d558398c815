#!/usr/bin/env python3
"""The baseline of `make bench-gpu` and `make bench`: a GPT-2 trained by PyTorch, as fast as PyTorch alone makes it. Prints
JSON: the seconds of each batch, and the most memory in use.

    tests/bench/gpt2_pytorch.py --n-layer 12 --n-embd 768 --n-head 12 --micro-batch-size 16 --batch-size 64
    tests/bench/gpt2_pytorch.py --device cpu --precision fp32 --eager --threads 2 --seq-len 256 --batch-size 4 ...

What it uses: torch.compile of the whole model, loss included; scaled_dot_product_attention with is_causal, which is flash
attention; bf16 by autocast over fp32 master parameters (weights that are stored and gradients that are summed in fp32, as
nanoGPT does); fused AdamW; TF32 for what stays in fp32; the same micro-batches, summed up to the same batch; the same
padded vocabulary; the output projection tied to the embedding; gradients clipped to norm 1 unless --clip 0; random tokens
that are on the GPU before the clock starts.

On a CPU, with --precision fp32 --eager, it also does with PyTorch 1.13, which has no scaled_dot_product_attention: then
scores, scale and mask are one baddbmm, and softmax and a second batched product follow. --processes 2 trains by
DistributedDataParallel over gloo, gradients summed after the last micro-batch only, in the buckets themselves; each process
has an equal share of the batch, and --threads of its own.

With --config FILE the model is that of transformers which a config.json describes, such as a Llama, of random weights.
"""
import argparse
import contextlib
import json
import math
import os
import resource
import sys
import tempfile
import time

try:
    import torch
    from torch import nn
    from torch.nn import functional as F
except ImportError:
    sys.exit("gpt2_pytorch: PyTorch is not installed")

FLASH = hasattr(F, "scaled_dot_product_attention")


class Block(nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.heads = heads
        self.ln_1, self.ln_2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.c_attn, self.attn_proj = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.c_fc, self.mlp_proj = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def attention(self, q, k, v, mask):
        if FLASH:
            return F.scaled_dot_product_attention(q, k, v, is_causal=True)
        B, H, T, size = q.shape
        q, k, v = (part.reshape(B * H, T, size) for part in (q, k, v))
        scores = torch.baddbmm(mask, q, k.transpose(1, 2), alpha=1 / math.sqrt(size))
        return torch.bmm(torch.softmax(scores, 2), v).view(B, H, T, size)

    def forward(self, x, mask):
        B, T, C = x.shape
        q, k, v = (part.view(B, T, self.heads, C // self.heads).transpose(1, 2)
                   for part in self.c_attn(self.ln_1(x)).split(C, dim=2))
        y = self.attention(q, k, v, mask)
        x = x + self.attn_proj(y.transpose(1, 2).reshape(B, T, C))
        return x + self.mlp_proj(F.gelu(self.c_fc(self.ln_2(x)), approximate="tanh"))


class GPT2(nn.Module):
    def __init__(self, a):
        super().__init__()
        self.wte, self.wpe = nn.Embedding(a.vocab_size, a.n_embd), nn.Embedding(a.seq_len, a.n_embd)
        self.blocks = nn.ModuleList(Block(a.n_embd, a.n_head) for _ in range(a.n_layer))
        self.ln_f = nn.LayerNorm(a.n_embd)
        self.head = nn.Linear(a.n_embd, a.vocab_size, bias=False)
        self.head.weight = self.wte.weight
        mask = None if FLASH else torch.full((1, a.seq_len, a.seq_len), -math.inf).triu(1)
        self.register_buffer("mask", mask, persistent=False)
        for name, parameter in self.named_parameters():
            if parameter.dim() == 2:
                scale = math.sqrt(2 * a.n_layer) if name.endswith("proj.weight") else 1
                nn.init.normal_(parameter, std=0.02 / scale)
            elif name.endswith("bias"):
                nn.init.zeros_(parameter)

    def forward(self, tokens, targets):
        x = self.wte(tokens) + self.wpe(torch.arange(tokens.shape[1], device=tokens.device))
        for block in self.blocks:
            x = block(x, self.mask)
        logits = self.head(self.ln_f(x))
        return F.cross_entropy(logits.view(-1, logits.shape[-1]), targets.view(-1))


def transformers_model(config):
    """The model of what a config.json says, as transformers has it, of random weights."""
    import transformers  # only here: few have it
    return transformers.AutoModelForCausalLM.from_config(transformers.AutoConfig.for_model(**config, use_cache=False))


class OfTransformers(nn.Module):
    """The model of a config.json, as transformers has it."""

    def __init__(self, path):
        super().__init__()
        with open(path) as file:
            self.model = transformers_model(json.load(file))

    def forward(self, tokens, targets):
        logits = self.model(tokens).logits
        return F.cross_entropy(logits.view(-1, logits.shape[-1]), targets.view(-1))


def optimizer_of(model, how):
    decayed = [p for p in model.parameters() if p.dim() == 2]
    others = [p for p in model.parameters() if p.dim() < 2]
    groups = [{"params": decayed, "weight_decay": 0.1}, {"params": others, "weight_decay": 0.0}]
    return torch.optim.AdamW(groups, lr=1e-4, betas=(0.9, 0.95), **how)


def batch(model, optimizer, data, a, kind):
    count = len(data)
    for i, (tokens, targets) in enumerate(data):
        apart = a.processes > 1 and i + 1 < count  # gradients are summed over the replicas once
        with model.no_sync() if apart else contextlib.nullcontext():
            with torch.autocast(kind, torch.bfloat16, enabled=a.precision == "bf16"):
                loss = model(tokens, targets)
            (loss / count).backward()
    if a.clip > 0:
        nn.utils.clip_grad_norm_(model.parameters(), a.clip)
    optimizer.step()
    optimizer.zero_grad(set_to_none=a.processes == 1)
    return loss


def parse():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    for name, default in (("n-layer", 12), ("n-embd", 768), ("n-head", 12), ("vocab-size", 50304), ("seq-len", 1024),
                          ("micro-batch-size", 8), ("batch-size", 64), ("steps", 6), ("warm-up", 3), ("threads", 0),
                          ("processes", 1)):
        parser.add_argument("--" + name, type=int, default=default)
    parser.add_argument("--config", help="a config.json, of transformers; instead of --n-layer, --n-embd, --n-head, --vocab-size")
    parser.add_argument("--clip", type=float, default=1)
    parser.add_argument("--precision", choices=["bf16", "fp32"], default="bf16")
    parser.add_argument("--device", choices=["cuda", "cpu"], default="cuda")
    parser.add_argument("--eager", action="store_true", help="without torch.compile")
    parser.add_argument("--foreach", action="store_true", help="AdamW over lists of tensors")
    return parser.parse_args()


def train(a):
    """(model, seconds of each step after the warm-up, last loss)"""
    gpu = a.device == "cuda"
    if a.threads:
        torch.set_num_threads(a.threads)
    torch.manual_seed(1)
    torch.set_float32_matmul_precision("high")
    model = (OfTransformers(a.config) if a.config else GPT2(a)).to(a.device)
    vocabulary, shape = model.model.config.vocab_size if a.config else a.vocab_size, (a.micro_batch_size, a.seq_len)
    data = [tuple(torch.randint(vocabulary, shape, device=a.device) for _ in range(2))
            for _ in range(a.batch_size // a.micro_batch_size // a.processes)]
    optimizer = optimizer_of(model, {"fused": True} if gpu else {"foreach": a.foreach})
    ready = model if a.eager else torch.compile(model)
    if a.processes > 1:
        ready = nn.parallel.DistributedDataParallel(ready, gradient_as_bucket_view=True)
    seconds = []
    for step in range(a.warm_up + a.steps):
        start = time.perf_counter()
        loss = batch(ready, optimizer, data, a, a.device)
        if gpu:
            torch.cuda.synchronize()
        if step >= a.warm_up:
            seconds.append(time.perf_counter() - start)
    return model, seconds, float(loss)


def report(model, seconds, loss, gpu):
    peak = torch.cuda.max_memory_allocated() if gpu else 1024 * resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    print(json.dumps({"torch": torch.__version__, "seconds": seconds, "loss": loss,
                      "parameters": sum(p.numel() for p in model.parameters()), "memory_bytes": peak}), flush=True)


def replica(a, rank, meeting):
    torch.distributed.init_process_group("gloo", init_method="file://" + meeting, rank=rank, world_size=a.processes)
    done = train(a)
    torch.distributed.barrier()
    if rank == 0:
        report(*done, False)
    torch.distributed.destroy_process_group()


def replicate(a):
    """Each replica in a process of its own; the first one reports."""
    with tempfile.TemporaryDirectory() as folder:
        children = []
        for rank in range(a.processes):
            child = os.fork()
            if child == 0:
                replica(a, rank, os.path.join(folder, "meeting"))
                os._exit(0)
            children.append(child)
        failed = [child for child in children if os.waitpid(child, 0)[1]]
    sys.exit(1 if failed else 0)


def main():
    a = parse()
    gpu = a.device == "cuda"
    if gpu and not torch.cuda.is_available():
        sys.exit("gpt2_pytorch: torch.cuda.is_available() says no")
    if a.processes > 1:
        replicate(a)
    report(*train(a), gpu)


if __name__ == "__main__":
    main()
