#!/usr/bin/python3
"""The baseline of `make bench-fsdp`: a GPT-2 whose parameters are sharded over processes, trained by PyTorch over gloo. Prints JSON:
the loss and the seconds of each step.

PyTorch's own FullyShardedDataParallel cannot be had here: in Debian's PyTorch 1.13.1 on Python 3.11 its import fails ("ValueError:
mutable default <class ...TensorProperties> for field tensor_properties is not allowed: use default_factory"), and the collectives
that it is made of are refused by gloo ("no support for _allgather_base in Gloo process group", "ProcessGroup gloo does not support
_reduce_scatter_base"). So this does what it does, full shard, by what gloo has: each block is a unit, and embeddings and last norm are
one; a unit's flat weights are all-gathered ahead of its forward, freed behind it, and all-gathered again for its backward, one unit
ahead of the computing in both; its gradients are reduced to shares by an all-to-all of which each process sums what it gets, beside the
backward of the units before it. The bytes are those of a reduce-scatter. AdamW works on shares. `--keep` does not free weights
behind the forward (FSDP's SHARD_GRAD_OP). Model, batches and learning rates are those of tests/cli/pytorch.py.
"""
import argparse
import json
import math
import os
import sys
import tempfile
import time

import torch
import torch.distributed as dist
from torch.nn import functional as F

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "cli"))
import pytorch as reference


class Unit:
    """Parameters of some names, in one flat tensor of which each process has a part."""

    def __init__(self, weights, names, rank, count):
        self.shapes = [(name, weights[name].shape, weights[name].numel()) for name in names]
        flat = torch.cat([weights[name].detach().reshape(-1) for name in names])
        self.elements, self.each = flat.numel(), -(-flat.numel() // count)
        flat = F.pad(flat, (0, self.each * count - flat.numel()))
        self.count, self.rank = count, rank
        self.share = flat[rank * self.each:(rank + 1) * self.each].clone().requires_grad_()
        decayed = torch.cat([torch.full((weights[name].numel(),), float(weights[name].dim() > 1)) for name in names])
        self.decayed = F.pad(decayed, (0, self.each * count - decayed.numel()))[rank * self.each:(rank + 1) * self.each]
        self.whole = self.work = None

    def fetch(self):
        """Begins the all-gather, unless the weights are there or on their way."""
        if self.whole is None:
            self.whole = torch.empty(self.count * self.each)
            self.work = dist.all_gather(list(self.whole.chunk(self.count)), self.share.detach(), async_op=True)

    def weights(self):
        self.fetch()
        if self.work:
            self.work.wait()
            self.work = None
        return self.whole

    def free(self):
        self.whole = None


class Gathered(torch.autograd.Function):
    """A unit's whole weights of its share; backward, the share of the gradients' sum."""

    @staticmethod
    def forward(ctx, share, unit, sums):
        ctx.unit, ctx.sums = unit, sums
        return unit.weights().view(-1)

    @staticmethod
    def backward(ctx, gradient):
        unit, parts = ctx.unit, torch.empty_like(gradient)
        work = dist.all_to_all_single(parts, gradient.contiguous(), async_op=True)
        ctx.sums.append((unit, parts, gradient, work))
        unit.free()
        return None, None, None


class Sharded:
    def __init__(self, weights, a, rank):
        blocks = [[name for name in weights if name.startswith(f"transformer.h.{i}.")] for i in range(a.layers)]
        root = [name for name in weights if not name.startswith("transformer.h.")]
        self.root = Unit(weights, root, rank, a.processes)
        self.blocks = [Unit(weights, names, rank, a.processes) for names in blocks]
        self.units, self.a, self.sums = [self.root, *self.blocks], a, []

    def views(self, unit):
        whole = Gathered.apply(unit.share, unit, self.sums)
        parts = torch.split(whole[:unit.elements], [count for _, _, count in unit.shapes])
        return {name: part.view(shape) for (name, shape, _), part in zip(unit.shapes, parts)}

    def kept(self, unit, ahead):
        """Hooks that keep of a unit's weights where they lie, not what they are, and gather them again, one unit ahead."""
        where = unit.whole.storage().data_ptr()

        def pack(tensor):
            if tensor.storage().data_ptr() != where:
                return tensor
            return tensor.storage_offset(), tensor.size(), tensor.stride()

        def unpack(kept):
            if isinstance(kept, torch.Tensor):
                return kept
            whole = unit.weights()
            if ahead:
                ahead.fetch()
            return torch.as_strided(whole, kept[1], kept[2], kept[0])

        return torch.autograd.graph.saved_tensors_hooks(pack, unpack)

    def block(self, i, h):
        unit = self.blocks[i]
        w = self.views(unit)
        if i + 1 < len(self.blocks):
            self.blocks[i + 1].fetch()
        ahead = None if self.a.keep or i == 0 else self.blocks[i - 1]
        with self.kept(unit, ahead):
            h = self.layer(w, f"transformer.h.{i}.", h)
        if not self.a.keep:
            unit.free()
        return h

    def layer(self, w, p, h):
        width, heads = h.shape[2], self.a.heads
        norm = lambda name, x: F.layer_norm(x, (width,), w[p + name + ".weight"], w[p + name + ".bias"], 1e-5)
        linear = lambda name, x: torch.addmm(w[p + name + ".bias"], x.view(-1, x.shape[2]), w[p + name + ".weight"]).view(*x.shape[:2], -1)
        q, k, v = (part.view(*h.shape[:2], heads, -1).transpose(1, 2) for part in linear("attn.c_attn", norm("ln_1", h)).split(width, 2))
        h = h + linear("attn.c_proj", reference.causal_attention(q, k, v))
        return h + linear("mlp.c_proj", F.gelu(linear("mlp.c_fc", norm("ln_2", h)), approximate="tanh"))

    def loss(self, x, targets):
        self.root.fetch()
        self.blocks[0].fetch()
        w = self.views(self.root)  # whole to the end of the backward, as FSDP's outermost unit
        h = F.embedding(x, w["transformer.wte.weight"]) + w["transformer.wpe.weight"][:x.shape[1]]
        for i in range(len(self.blocks)):
            h = self.block(i, h)
        h = F.layer_norm(h, (h.shape[2],), w["transformer.ln_f.weight"], w["transformer.ln_f.bias"], 1e-5)
        logits = h @ w["transformer.wte.weight"].T
        return F.cross_entropy(logits.view(-1, logits.shape[-1]), targets.reshape(-1))

    def finish(self):
        """The shares of all gradients are there."""
        for unit, parts, _, work in self.sums:
            work.wait()
            unit.share.grad = parts.view(unit.count, unit.each).sum(0).div_(unit.count)
        self.sums.clear()

    def clip(self, largest):
        norm = sum(unit.share.grad.square().sum() for unit in self.units)
        dist.all_reduce(norm)
        factor = largest / (norm.sqrt() + 1e-6)
        for unit in self.units if factor < 1 else ():
            unit.share.grad.mul_(factor)


def optimizer_of(model):
    """AdamW whose decay, of matrices only, is made by hand: a share has vectors too."""
    return torch.optim.AdamW([unit.share for unit in model.units], lr=reference.LR, betas=reference.BETAS, eps=1e-8, weight_decay=0)


def step(model, optimizer, inputs, targets, rate, a):
    optimizer.param_groups[0]["lr"] = rate
    loss = model.loss(inputs, targets)
    loss.backward()
    model.finish()
    model.clip(1.0)
    with torch.no_grad():
        for unit in model.units:
            unit.share.mul_(1 - rate * reference.DECAY * unit.decayed)
    optimizer.step()
    return loss.detach()


def train(a, rank):
    torch.set_num_threads(a.threads)
    reference.STEPS, reference.BATCH, reference.LENGTH, reference.VOCABULARY = a.steps, a.batch_size, a.seq_len, 256
    model = Sharded(reference.read_safetensors(a.initial), a, rank)
    optimizer, tokens = optimizer_of(model), reference.training_tokens(a.data)
    each, losses, seconds = a.batch_size // a.processes, [], []
    for i in range(a.steps):
        mine = [part[rank * each:(rank + 1) * each] for part in reference.batch(tokens, i)]
        dist.barrier()
        start = time.perf_counter()
        loss = step(model, optimizer, *mine, reference.learning_rate(i), a)
        dist.all_reduce(loss)
        seconds.append(time.perf_counter() - start)
        losses.append(float(loss) / a.processes)
    return losses, seconds


def replica(a, rank, meeting):
    dist.init_process_group("gloo", init_method="file://" + meeting, rank=rank, world_size=a.processes)
    losses, seconds = train(a, rank)
    if rank == 0:
        print(json.dumps({"torch": torch.__version__, "losses": losses, "seconds": seconds}), flush=True)
    dist.barrier()
    dist.destroy_process_group()


def parse():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    for name in ("initial", "data"):
        parser.add_argument("--" + name, required=True)
    for name, default in (("layers", 6), ("heads", 6), ("batch-size", 8), ("seq-len", 256), ("steps", 20), ("threads", 1), ("processes", 2)):
        parser.add_argument("--" + name, type=int, default=default)
    parser.add_argument("--keep", action="store_true", help="keep weights from a forward to its backward")
    return parser.parse_args()


def main():
    a = parse()
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
