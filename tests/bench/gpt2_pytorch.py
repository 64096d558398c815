#!/usr/bin/env python3
"""The baseline of `make bench-gpu`: a GPT-2 trained by PyTorch, as fast as PyTorch alone makes it. Prints JSON: the
seconds of each batch.

    tests/bench/gpt2_pytorch.py --n-layer 12 --n-embd 768 --n-head 12 --micro-batch-size 16 --batch-size 64

What it uses: torch.compile of the whole model, loss included; scaled_dot_product_attention with is_causal, which is flash
attention; bf16 by autocast over fp32 master parameters (weights that are stored and gradients that are summed in fp32, as
nanoGPT does); fused AdamW; TF32 for what stays in fp32; the same micro-batches, summed up to the same batch; the same
padded vocabulary; the output projection tied to the embedding; gradients clipped to norm 1 unless --clip 0; random tokens
that are on the GPU before the clock starts.
"""
import argparse
import json
import math
import sys
import time

try:
    import torch
    from torch import nn
    from torch.nn import functional as F
except ImportError:
    sys.exit("gpt2_pytorch: PyTorch is not installed")


class Block(nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.heads = heads
        self.ln_1, self.ln_2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.c_attn, self.attn_proj = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.c_fc, self.mlp_proj = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x):
        B, T, C = x.shape
        q, k, v = (part.view(B, T, self.heads, C // self.heads).transpose(1, 2)
                   for part in self.c_attn(self.ln_1(x)).split(C, dim=2))
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
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
        for name, parameter in self.named_parameters():
            if parameter.dim() == 2:
                scale = math.sqrt(2 * a.n_layer) if name.endswith("proj.weight") else 1
                nn.init.normal_(parameter, std=0.02 / scale)
            elif name.endswith("bias"):
                nn.init.zeros_(parameter)

    def forward(self, tokens, targets):
        x = self.wte(tokens) + self.wpe(torch.arange(tokens.shape[1], device=tokens.device))
        for block in self.blocks:
            x = block(x)
        logits = self.head(self.ln_f(x))
        return F.cross_entropy(logits.view(-1, logits.shape[-1]), targets.view(-1))


def optimizer_of(model, fused):
    decayed = [p for p in model.parameters() if p.dim() == 2]
    others = [p for p in model.parameters() if p.dim() < 2]
    groups = [{"params": decayed, "weight_decay": 0.1}, {"params": others, "weight_decay": 0.0}]
    return torch.optim.AdamW(groups, lr=1e-4, betas=(0.9, 0.95), fused=fused)


def batch(model, optimizer, data, a, kind):
    count = a.batch_size // a.micro_batch_size
    for tokens, targets in data[:count]:
        with torch.autocast(kind, torch.bfloat16):
            loss = model(tokens, targets)
        (loss / count).backward()
    if a.clip > 0:
        nn.utils.clip_grad_norm_(model.parameters(), a.clip)
    optimizer.step()
    optimizer.zero_grad(set_to_none=True)
    return loss


def parse():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    for name, default in (("n-layer", 12), ("n-embd", 768), ("n-head", 12), ("vocab-size", 50304), ("seq-len", 1024),
                          ("micro-batch-size", 8), ("batch-size", 64), ("steps", 6), ("warm-up", 3)):
        parser.add_argument("--" + name, type=int, default=default)
    parser.add_argument("--clip", type=float, default=1)
    parser.add_argument("--device", choices=["cuda", "cpu"], default="cuda", help="cpu only tries the script out")
    parser.add_argument("--eager", action="store_true", help="without torch.compile")
    return parser.parse_args()


def main():
    a = parse()
    gpu = a.device == "cuda"
    if gpu and not torch.cuda.is_available():
        sys.exit("gpt2_pytorch: torch.cuda.is_available() says no")
    torch.manual_seed(1)
    torch.set_float32_matmul_precision("high")
    with torch.device(a.device):
        model = GPT2(a)
        shape = (a.micro_batch_size, a.seq_len)
        data = [(torch.randint(a.vocab_size, shape), torch.randint(a.vocab_size, shape))
                for _ in range(a.batch_size // a.micro_batch_size)]
    optimizer = optimizer_of(model, fused=gpu)
    compiled = model if a.eager else torch.compile(model)
    seconds = []
    for step in range(a.warm_up + a.steps):
        start = time.perf_counter()
        loss = batch(compiled, optimizer, data, a, a.device)
        if gpu:
            torch.cuda.synchronize()
        if step >= a.warm_up:
            seconds.append(time.perf_counter() - start)
    print(json.dumps({"torch": torch.__version__, "seconds": seconds, "loss": float(loss),
                      "parameters": sum(p.numel() for p in model.parameters()),
                      "memory_bytes": torch.cuda.max_memory_allocated() if gpu else None}))


if __name__ == "__main__":
    main()
