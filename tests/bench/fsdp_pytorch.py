#!/usr/bin/env python3
"""The baseline of `make bench-fsdp`: a GPT-2 whose parameters PyTorch shards over processes (`fully_shard`, each block a unit, over
gloo), trained in eager mode with its fused attention and its fused AdamW. Prints JSON: the loss and the seconds of each step.

`--keep` does not free a block's weights behind its forward. Model, batches, clipping and learning rates are those of
tests/cli/pytorch.py. It takes PyTorch 2.6 or newer: over older ones' gloo FullyShardedDataParallel does not run on CPUs
("no support for _allgather_base in Gloo process group").
"""
import argparse
import json
import os
import sys
import tempfile
import time

import torch
import torch.distributed as dist
from torch import nn
from torch.nn import functional as F

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "cli"))
import pytorch as reference

OLDEST = (2, 6)


class Attention(nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.c_attn, self.c_proj, self.heads = nn.Linear(width, 3 * width), nn.Linear(width, width), heads

    def forward(self, h):
        q, k, v = (part.view(*h.shape[:2], self.heads, -1).transpose(1, 2) for part in self.c_attn(h).chunk(3, 2))
        return self.c_proj(F.scaled_dot_product_attention(q, k, v, is_causal=True).transpose(1, 2).flatten(2))


class MLP(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.c_fc, self.c_proj = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, h):
        return self.c_proj(F.gelu(self.c_fc(h), approximate="tanh"))


class Block(nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.ln_1, self.attn, self.ln_2, self.mlp = nn.LayerNorm(width), Attention(width, heads), nn.LayerNorm(width), MLP(width)

    def forward(self, h):
        h = h + self.attn(self.ln_1(h))
        return h + self.mlp(self.ln_2(h))


class GPT2(nn.Module):
    """Parameters have transformers' names."""

    def __init__(self, vocabulary, length, width, layers, heads):
        super().__init__()
        self.wte, self.wpe = nn.Embedding(vocabulary, width), nn.Embedding(length, width)
        self.h = nn.ModuleList(Block(width, heads) for _ in range(layers))
        self.ln_f = nn.LayerNorm(width)

    def forward(self, x, targets):
        h = self.wte(x) + self.wpe.weight[:x.shape[1]]
        for block in self.h:
            h = block(h)
        logits = F.linear(self.ln_f(h), self.wte.weight)
        return F.cross_entropy(logits.flatten(0, 1), targets.flatten())


def model_of(path, heads):
    weights = {name.removeprefix("transformer."): value.detach() for name, value in reference.read_safetensors(path).items()}
    layers = 1 + max(int(name.split(".")[1]) for name in weights if name.startswith("h."))
    model = GPT2(*weights["wte.weight"].shape[:1], *weights["wpe.weight"].shape, layers, heads)
    for name, value in weights.items():  # transformers' products have (in, out)
        if name.startswith("h.") and value.dim() == 2:
            weights[name] = value.T
    model.load_state_dict(weights)
    return model


def shard(model, a):
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import fully_shard
    mesh = init_device_mesh("cpu", (a.processes,))
    for part in (*model.h, model):
        fully_shard(part, mesh=mesh, **({"reshard_after_forward": False} if a.keep else {}))


def optimizer_of(model):
    parameters = list(model.parameters())
    groups = [{"params": [p for p in parameters if p.dim() > 1], "weight_decay": reference.DECAY},
              {"params": [p for p in parameters if p.dim() == 1], "weight_decay": 0}]
    return torch.optim.AdamW(groups, lr=reference.LR, betas=reference.BETAS, eps=1e-8, fused=True)


def step(model, optimizer, inputs, targets, rate):
    for group in optimizer.param_groups:
        group["lr"] = rate
    loss = model(inputs, targets)
    loss.backward()
    torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    optimizer.step()
    optimizer.zero_grad()
    return loss.detach()


def train(a, rank):
    torch.set_num_threads(a.threads)
    reference.STEPS, reference.BATCH, reference.LENGTH = a.steps, a.batch_size, a.seq_len
    model = model_of(a.initial, a.heads)
    shard(model, a)
    optimizer, tokens = optimizer_of(model), reference.training_tokens(a.data)
    each, losses, seconds = a.batch_size // a.processes, [], []
    for i in range(a.steps):
        mine = [part[rank * each:(rank + 1) * each] for part in reference.batch(tokens, i)]
        dist.barrier()
        start = time.perf_counter()
        loss = step(model, optimizer, *mine, reference.learning_rate(i))
        dist.all_reduce(loss)
        seconds.append(time.perf_counter() - start)
        losses.append(float(loss) / a.processes)
    return losses, seconds


def replica(a, rank, meeting):
    dist.init_process_group("gloo", init_method="file://" + meeting, rank=rank, world_size=a.processes)
    losses, seconds = train(a, rank)
    if rank == 0:
        with open(a.out, "w") as file:
            json.dump({"torch": torch.__version__, "losses": losses, "seconds": seconds}, file)
    dist.barrier()
    dist.destroy_process_group()


def parse():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    for name in ("initial", "data", "out"):
        parser.add_argument("--" + name, required=True)
    for name, default in (("heads", 6), ("batch-size", 8), ("seq-len", 256), ("steps", 20), ("threads", 1), ("processes", 2)):
        parser.add_argument("--" + name, type=int, default=default)
    parser.add_argument("--keep", action="store_true", help="keep weights from a forward to its backward")
    return parser.parse_args()


def main():
    a = parse()
    if tuple(int(n) for n in torch.__version__.split(".")[:2]) < OLDEST:
        sys.exit(f"fsdp_pytorch: PyTorch is {torch.__version__}; sharding over gloo takes {OLDEST[0]}.{OLDEST[1]} or newer")
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


if __name__ == "__main__":
    main()
