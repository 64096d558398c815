#!/usr/bin/env python3
"""PyTorch's step time at other micro-batch sizes and sequence lengths, predicted from a trace of one of them.

A GPT-2 and a Llama, written here in plain PyTorch, are trained: on the CPU some of a few layers in fp32, on a GPU (--device cuda) some of 12 layers of
width 768, by autocast in bf16; with --transformers also those of Hugging Face. In each round some steps of one
shape run under torch.profiler (record_shapes=True), and then, without it, steps of that shape and of the others, in turns,
so that whatever else the machine does disturbs all alike. The trace alone goes through `ranvier calibrate --from-trace`;
`ranvier simulate` then predicts each shape. What is printed are ratios: predicted over measured, and the spread of the measured
steps. Measured is the first quartile of a shape's steps, as calibrate leaves out the steps of a trace that took longer than those
that took least, because something else ran beside them; beside it stands the median. On an idle machine they are the same. Also
how much longer steps take under the profiler, which a trace cannot say of itself.

It needs a PyTorch whose profiler is Kineto (PyPI's; Debian's has another one, without shapes).

    RANVIER_BIN=build/bin tests/bench/trace.py --out bench/trace.json"""
import argparse
import json
import math
import os
import statistics
import subprocess
import sys
import tempfile
import time

import torch
import torch.nn.functional as F
from torch import nn

BIN = os.environ.get("RANVIER_BIN") or os.path.abspath("build/bin")


def configs(layers, width, heads, inner, vocabulary, positions):
    gpt2 = {"model_type": "gpt2", "n_layer": layers, "n_embd": width, "n_head": heads, "vocab_size": vocabulary, "n_positions": positions,
            "activation_function": "gelu_new", "layer_norm_epsilon": 1e-5, "tie_word_embeddings": True,
            "resid_pdrop": 0, "embd_pdrop": 0, "attn_pdrop": 0}
    llama = {"model_type": "llama", "num_hidden_layers": layers, "hidden_size": width, "intermediate_size": inner, "num_attention_heads": heads,
             "num_key_value_heads": heads // 3, "vocab_size": vocabulary, "max_position_embeddings": positions, "rms_norm_eps": 1e-5,
             "rope_theta": 10000.0, "hidden_act": "silu", "tie_word_embeddings": False}
    return {"gpt2": gpt2, "llama": llama}


# Of each device: the models, the shape that is traced and those that are predicted from it, sequences x tokens.
CONFIGS = {"cpu": configs(4, 384, 6, 1024, 2048, 512), "cuda": configs(12, 768, 12, 2048, 50304, 1024)}
SHAPES = {"cpu": ((4, 128), (2, 128), (8, 128), (4, 256)), "cuda": ((8, 1024), (4, 1024), (16, 1024), (8, 512))}


class Gpt2Block(nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.heads = heads
        self.ln_1, self.ln_2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.proj = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x):
        q, k, v = (part.view(*x.shape[:2], self.heads, -1).transpose(1, 2)
                   for part in self.qkv(self.ln_1(x)).split(x.shape[2], 2))
        attended = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.proj(attended.transpose(1, 2).reshape(x.shape))
        return x + self.down(F.gelu(self.up(self.ln_2(x)), approximate="tanh"))


class Gpt2(nn.Module):
    def __init__(self, config):
        super().__init__()
        width = config["n_embd"]
        self.wte, self.wpe = nn.Embedding(config["vocab_size"], width), nn.Embedding(config["n_positions"], width)
        self.blocks = nn.ModuleList(Gpt2Block(width, config["n_head"]) for _ in range(config["n_layer"]))
        self.norm = nn.LayerNorm(width)

    def forward(self, tokens):
        h = self.wte(tokens) + self.wpe(torch.arange(tokens.shape[1], device=tokens.device))
        for block in self.blocks:
            h = block(h)
        return F.linear(self.norm(h), self.wte.weight)


class RmsNorm(nn.Module):
    """As most Llamas have it, of several operators."""
    def __init__(self, width):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(width))

    def forward(self, x):
        return self.weight * (x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + 1e-5))


class LlamaBlock(nn.Module):
    """Queries, keys and values are products of their own, as are gates and ups; scores are a matrix."""
    def __init__(self, config):
        super().__init__()
        width, inner = config["hidden_size"], config["intermediate_size"]
        self.heads, self.shared = config["num_attention_heads"], config["num_key_value_heads"]
        few = width // self.heads * self.shared
        self.q, self.k, self.v, self.o = (nn.Linear(width, n, bias=False) for n in (width, few, few, width))
        self.gate, self.up, self.down = (nn.Linear(m, n, bias=False) for m, n in ((width, inner), (width, inner), (inner, width)))
        self.norm_1, self.norm_2 = RmsNorm(width), RmsNorm(width)

    @staticmethod
    def rotated(x, cos, sin):
        a, b = x.chunk(2, -1)
        return x * cos + torch.cat((-b, a), -1) * sin

    def forward(self, x, cos, sin, mask):
        u = self.norm_1(x)
        q, k, v = (product(u).view(*x.shape[:2], heads, -1).transpose(1, 2)
                   for product, heads in ((self.q, self.heads), (self.k, self.shared), (self.v, self.shared)))
        q, k = self.rotated(q, cos, sin), self.rotated(k, cos, sin)
        k, v = (part.repeat_interleave(self.heads // self.shared, 1) for part in (k, v))
        scores = q @ k.transpose(2, 3) / math.sqrt(q.shape[3]) + mask
        x = x + self.o((torch.softmax(scores, -1) @ v).transpose(1, 2).reshape(x.shape))
        u = self.norm_2(x)
        return x + self.down(F.silu(self.gate(u)) * self.up(u))


class Llama(nn.Module):
    def __init__(self, config):
        super().__init__()
        width = config["hidden_size"]
        self.embedding, self.norm = nn.Embedding(config["vocab_size"], width), RmsNorm(width)
        self.blocks = nn.ModuleList(LlamaBlock(config) for _ in range(config["num_hidden_layers"]))
        self.head = nn.Linear(width, config["vocab_size"], bias=False)
        half = width // config["num_attention_heads"] // 2
        angles = torch.arange(config["max_position_embeddings"])[:, None] * config["rope_theta"] ** (-torch.arange(half) / half)
        self.register_buffer("cos", torch.cos(angles).repeat(1, 2))
        self.register_buffer("sin", torch.sin(angles).repeat(1, 2))
        self.register_buffer("mask", torch.full((config["max_position_embeddings"],) * 2, -math.inf).triu(1))

    def forward(self, tokens):
        T = tokens.shape[1]
        h = self.embedding(tokens)
        for block in self.blocks:
            h = block(h, self.cos[:T], self.sin[:T], self.mask[:T, :T])
        return self.head(self.norm(h))


MODELS = {"gpt2": Gpt2, "llama": Llama}


class OfTransformers(nn.Module):
    def __init__(self, config):
        super().__init__()
        from gpt2_pytorch import transformers_model  # beside this program; what loads it as a module needs none
        self.model = transformers_model(config)

    def forward(self, tokens):
        return self.model(tokens).logits


class Training:
    """A model and its optimizer; a call is a step of one micro-batch of so many sequences of so many tokens."""
    def __init__(self, config, of, device):
        torch.manual_seed(0)
        self.device, self.vocabulary = device, config["vocab_size"]
        self.model = (OfTransformers if of == "transformers" else MODELS[config["model_type"]])(config).to(device)
        self.optimizer = torch.optim.AdamW(self.model.parameters(), lr=1e-4)

    def __call__(self, size, length):
        tokens = torch.randint(0, self.vocabulary, (size, length + 1), device=self.device)
        with torch.autocast(self.device, torch.bfloat16, enabled=self.device == "cuda"):
            loss = F.cross_entropy(self.model(tokens[:, :-1]).flatten(0, 1), tokens[:, 1:].flatten())
        loss.backward()
        torch.nn.utils.clip_grad_norm_(self.model.parameters(), 1.0)
        self.optimizer.step()
        self.optimizer.zero_grad(set_to_none=True)
        if self.device == "cuda":
            torch.cuda.synchronize()

    def trace(self, size, length, steps, path):
        """Returns the seconds of the steps."""
        activities = [torch.profiler.ProfilerActivity.CPU, *[torch.profiler.ProfilerActivity.CUDA] * (self.device == "cuda")]
        schedule = torch.profiler.schedule(wait=0, warmup=1, active=steps)
        seconds = []
        with torch.profiler.profile(activities=activities, record_shapes=True, schedule=schedule,
                                    on_trace_ready=lambda profiler: profiler.export_chrome_trace(path)) as profiler:
            for _ in range(steps + 1):
                seconds.append(timed(self, size, length))
                profiler.step()
        return seconds[1:-1]  # the last one may wait for the file


def timed(step, *shape):
    begin = time.perf_counter()
    step(*shape)
    return time.perf_counter() - begin


def ranvier(*arguments):
    done = subprocess.run([os.path.join(BIN, "ranvier"), *map(str, arguments)], capture_output=True, text=True, check=False)
    if done.returncode:
        raise SystemExit(done.stderr.strip())
    return done.stdout


def predicted(case, size, length, folder):
    report = os.path.join(folder, "report.json")
    ranvier("simulate", case.config, "--profile", case.profile, "--platform", "generic", "--gpus", 1, "--precision", case.precision, "--micro-batch-size",
            size, "--batch-size", size, "--seq-len", length, "--ignore-memory", "--report", report)
    with open(report) as file:
        return json.load(file)["batch_seconds"]["median"]


def measure(name, training, arguments, folder):
    """Returns the traces' paths, and the seconds of steps of each shape, and of those that were traced."""
    shapes = SHAPES[arguments.device]
    seconds, traced, traces = {shape: [] for shape in shapes}, [], []
    for shape in shapes:
        training(*shape)
    for turn in range(arguments.rounds):
        traces.append(os.path.join(folder, f"{name}-{turn}.json.gz"))
        traced += training.trace(*shapes[0], arguments.steps, traces[-1])
        for _ in range(arguments.steps):
            for shape in shapes:
                seconds[shape].append(timed(training, *shape))
    return traces, seconds, traced


def quartiles(values):
    return statistics.quantiles(values, n=4)


class Case:
    """A model as somebody wrote it, the traces of it, and what its steps took."""
    def __init__(self, family, of, arguments, folder):
        config = CONFIGS[arguments.device][family]
        self.precision = "bf16" if arguments.device == "cuda" else "fp32"
        self.name = "-".join([family, *[of] * bool(of)])
        self.config, self.profile = (os.path.join(folder, f"{self.name}{end}.json") for end in ("", "-profile"))
        with open(self.config, "w") as file:
            json.dump(config, file)
        self.traces, self.seconds, self.traced = measure(self.name, Training(config, of, arguments.device), arguments, folder)
        with open(os.path.join(folder, self.name + "-measured.json"), "w") as file:
            json.dump({"traced": self.traced, "shapes": [[*shape, values] for shape, values in self.seconds.items()]}, file)

    def step_time(self, shape):
        """Of a GPU's trace: what a step takes without the profiler."""
        return ["--step-time", f"{1e3 * quartiles(self.seconds[shape])[0]}ms"] if self.precision == "bf16" else []


def evaluate(case, traced_shape, folder):
    said = ranvier("calibrate", *(word for path in case.traces for word in ("--from-trace", path)), "--model", case.config,
                   "--micro-batch-size", traced_shape[0], "--seq-len", traced_shape[1], "--out", case.profile, *case.step_time(traced_shape))
    slower = quartiles(case.traced)[0] / quartiles(case.seconds[traced_shape])[0]
    print(f"{case.name}: steps under the profiler take {slower:.3f} times as long")
    print(*(line for line in said.splitlines() if "left out" in line or "by one model" in line), sep="\n")
    rows = []
    for shape, values in case.seconds.items():
        quiet, middle, busy = quartiles(values)
        found = predicted(case, *shape, folder)
        rows.append({"model": case.name, "micro_batch_size": shape[0], "seq_len": shape[1], "traced": shape == traced_shape,
                     "predicted_over_measured": found / quiet, "predicted_over_median": found / middle,
                     "quartiles_apart": (busy - quiet) / middle, "steps": len(values)})
        print(f"  {f'{shape[0]} x {shape[1]}':8} {'traced' if shape == traced_shape else '':7} predicted over measured {found / quiet:.3f} "
              f"(over the median {found / middle:.3f}); {len(values)} steps whose quartiles are "
              f"{100 * rows[-1]['quartiles_apart']:.1f} % apart", flush=True)
    return {"profiler": slower, "rows": rows}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=8)
    parser.add_argument("--steps", type=int, default=2, help="of each shape in a round")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--families", default="gpt2,llama")
    parser.add_argument("--out")
    parser.add_argument("--keep", help="a folder for the traces and profiles")
    parser.add_argument("--device", choices=["cpu", "cuda"], default="cpu")
    parser.add_argument("--transformers", action="store_true", help="also the models of Hugging Face's transformers")
    arguments = parser.parse_args()
    torch.set_num_threads(arguments.threads)
    kinds = [(family, of) for of in (["", "transformers"] if arguments.transformers else [""]) for family in arguments.families.split(",")]
    with tempfile.TemporaryDirectory() as temporary:
        folder = arguments.keep or temporary
        os.makedirs(folder, exist_ok=True)
        cases = [Case(family, of, arguments, folder) for family, of in kinds]
        found = {case.name: evaluate(case, SHAPES[arguments.device][0], folder) for case in cases}
    others = [abs(row["predicted_over_measured"] - 1) for one in found.values() for row in one["rows"] if not row["traced"]]
    print(f"{len(others)} shapes that were not traced: median error {100 * statistics.median(others):.1f} %, worst "
          f"{100 * max(others):.1f} %")
    if arguments.out:
        with open(arguments.out, "w") as file:
            json.dump({"device": arguments.device, "threads": arguments.threads, "models": found}, file, indent=2)


if __name__ == "__main__":
    sys.exit(main())
