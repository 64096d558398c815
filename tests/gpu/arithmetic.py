#!/usr/bin/env python3
"""What a training step should take on an H200, kernel by kernel, by arithmetic, beside what `ranvier simulate --machine h200 --like ranvier-cuda` says: so that a run
can be held against something. One figure is measured by us, what attention reaches of its bound; docs/gpus.md has what was said before the first run.

    RANVIER_BIN=build/bin tests/gpu/arithmetic.py [--json FILE]

Assumptions, each with its source:
- Products run in tiles of 128 x 256, 256 x 128 or 128 x 128 over 132 multiprocessors, the dimension of sums cut into up to 16 parts where there are few
  tiles. A multiprocessor that has work reaches its part of 757 Tflop/s: the median of measured bf16 products of 4,096 and more (ai-dynamo/aiconfigurator,
  H200). Tiles of 128 x 128 reach nine tenths of that: they read more for what they multiply.
- Attention is our own kernels' (mma.sync). Of sm_90 code for heads of 64 a warp's step of 32 x 32 takes 429 instructions forward (64 HMMA); backward by keys
  588 (128 HMMA) and by queries about as many for its half of the work. Four schedulers issue one instruction a clock each, at 1.755 GHz. Warps reach 0.3 of
  that bound, as measured (163 and 147 Tflop/s forward and backward; 0.4 was assumed before): two stages, and a warp does not multiply while it makes its
  softmax. Heads of 128 take twice the instructions for twice the work.
- Kernels bound by memory move their bytes at 3.8 TB/s, 0.79 of the datasheet's 4.8.
- A kernel begins 1.2 us after the one before it ended. An optimizer update of a bucket costs 18 us beside its bytes: the host waits for each.
- AdamW in bf16 with gradients in fp32: 4 bytes a parameter for the norm, 30 for the update, 4 to clear."""
import argparse
import json
import math
import os
import subprocess
import tempfile

BIN = os.environ.get("RANVIER_BIN", "build/bin")
PROCESSORS, RATE, CLOCK, MEMORY, GAP = 132, 757e12, 1.755e9, 3.8e12, 1.2e-6
BUCKET_PARAMETERS, BUCKET_SECONDS = 16 << 20, 18e-6
ATTENTION_REACHES, SCHEDULERS = 0.3, 4
FORWARD_INSTRUCTIONS, BACKWARD_INSTRUCTIONS = 429, 2 * 588  # a 32 x 32 step of 64 columns
LOGITS = 128 << 20  # bytes of a chunk of logits


def product(m, n, k, batch=1):
    """Seconds of `batch` products (m, k) x (k, n)."""
    best = math.inf
    for rows, columns, reaches in ((128, 256, 1), (256, 128, 1), (128, 128, 0.9)):
        tiles = batch * math.ceil(m / rows) * math.ceil(n / columns)
        for parts in (1, 2, 4, 8, 16):
            waves = math.ceil(tiles * parts / PROCESSORS)
            seconds = waves * 2 * rows * columns * k / parts / (RATE / PROCESSORS * reaches)
            seconds += 8 * parts * m * n * batch / MEMORY if parts > 1 else 0  # partial sums, written and read
            best = min(best, seconds)
    return max(best, 2 * batch * (m * k + k * n + m * n) / MEMORY) + GAP


def moved(byte_count):
    return byte_count / MEMORY + GAP


def attention(sequences, heads, length, width, instructions):
    steps = sequences * heads * (length / 32) * (length / 32 + 1) / 2 * width / 64
    return steps * instructions / (PROCESSORS * SCHEDULERS * CLOCK * ATTENTION_REACHES) + GAP


class Step:
    """Seconds by kind of a micro-batch's kernels."""
    def __init__(self):
        self.kinds = {}

    def add(self, kind, seconds, times=1):
        self.kinds[kind] = self.kinds.get(kind, 0) + times * seconds

    def linear(self, kind, tokens, inputs, outputs, times=1):
        """Forward, and the gradients of its input and of its weight, which is read and written in fp32."""
        self.add(kind, product(tokens, outputs, inputs), times)
        self.add(kind, product(tokens, inputs, outputs), times)
        self.add(kind, product(inputs, outputs, tokens) + 6 * inputs * outputs / MEMORY, times)


def head(step, tokens, width, vocabulary):
    """In chunks of rows, whose logits take no more than LOGITS; the loss reads them twice and writes them once."""
    rows = min(tokens, LOGITS // (2 * vocabulary))
    chunks = math.ceil(tokens / rows)
    step.linear("head", rows, width, vocabulary, chunks)
    step.add("loss", moved(6 * rows * vocabulary), chunks)


def gpt2(layers, width, heads, sequences, length=1024, vocabulary=50304):
    tokens, step = sequences * length, Step()
    elements = 2 * tokens * width  # bytes of a (tokens, width) matrix in bf16
    for inputs, outputs in ((width, 3 * width), (width, width), (width, 4 * width), (4 * width, width)):
        step.linear("products", tokens, inputs, outputs, layers)
    step.add("attention forward", attention(sequences, heads, length, width // heads, FORWARD_INSTRUCTIONS), layers)
    step.add("attention backward", attention(sequences, heads, length, width // heads, BACKWARD_INSTRUCTIONS), layers)
    # Norms: read, write; backward read two and add to one, and column sums. Biases' gradients read each dy: 9 widths. GELU goes with its products.
    step.add("memory-bound", 2 * moved(2 * elements) + 2 * moved(4 * elements) + 4 * moved(9 / 4 * elements), layers)
    step.add("memory-bound", moved(3 * elements) + moved(2 * elements))  # embedding
    head(step, tokens, width, vocabulary)
    parameters = 12 * layers * width * width + (50257 + length) * width
    return step, parameters


def llama(layers, width, heads, kv_heads, inner, sequences, length, vocabulary):
    tokens, size, step = sequences * length, width // heads, Step()
    elements = 2 * tokens * width
    qkv = (heads + 2 * kv_heads) * size
    for inputs, outputs in ((width, qkv), (width, width), (width, 2 * inner), (inner, width)):
        step.linear("products", tokens, inputs, outputs, layers)
    step.add("attention forward", attention(sequences, heads, length, size, FORWARD_INSTRUCTIONS), layers)
    step.add("attention backward", attention(sequences, heads, length, size, BACKWARD_INSTRUCTIONS), layers)
    # Norms with the residual's sum, positions both ways, and SwiGLU: gate, up and product; backward all of them and both gradients.
    step.add("memory-bound", 2 * moved(3 * elements) + 2 * moved(4 * elements) + 2 * moved(2 * 2 * tokens * qkv) +
             moved(3 * 2 * tokens * inner) + moved(5 * 2 * tokens * inner), layers)
    step.add("memory-bound", moved(2 * elements) + moved(3 * elements))
    head(step, tokens, width, vocabulary)
    return step, layers * (width * (qkv + width + 3 * inner)) + 2 * vocabulary * width


def simulated(model, sequences, micro_batches, length):
    with tempfile.TemporaryDirectory() as folder:
        report = os.path.join(folder, "report.json")
        subprocess.run([os.path.join(BIN, "ranvier"), "simulate", model, "--machine", "h200", "--like", "ranvier-cuda", "--gpus", "1", "--precision", "bf16",
                        "--micro-batch-size", str(sequences), "--batch-size", str(sequences * micro_batches), "--seq-len", str(length),
                        "--ignore-memory", "--report", report], check=True, capture_output=True)
        with open(report) as file:
            found = json.load(file)
    return found["batch_seconds"]["median"]


CASES = [("gpt2-124m", 16, 1, 1024, lambda: gpt2(12, 768, 12, 16), "124M, B 16"),
         ("gpt2-1.5b", 4, 8, 1024, lambda: gpt2(48, 1600, 25, 4), "1.5B, B 4 x 8"),
         ("llama3-8b", 1, 1, 8192, lambda: llama(32, 4096, 32, 8, 14336, 1, 8192, 128256), "Llama 3 8B, B 1, 8,192 tokens")]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", help="also write what was found to this file")
    found = []
    arguments = parser.parse_args()
    for model, sequences, micro_batches, length, make, title in CASES:
        step, parameters = make()
        optimizer = 38 * parameters / MEMORY + math.ceil(parameters / BUCKET_PARAMETERS) * BUCKET_SECONDS
        total = micro_batches * sum(step.kinds.values()) + optimizer
        flops = 6 * parameters * sequences * length * micro_batches
        predicted = simulated(model, sequences, micro_batches, length)
        found.append({"model": model, "milliseconds": {**{kind: 1e3 * s for kind, s in step.kinds.items()}, "optimizer": 1e3 * optimizer},
                      "step_ms": 1e3 * total, "simulated_ms": 1e3 * predicted})
        print(f"{title}: a micro-batch")
        for kind, seconds in step.kinds.items():
            print(f"  {kind:20} {1e3 * seconds:8.2f} ms")
        print(f"  {'optimizer':20} {1e3 * optimizer:8.2f} ms a step")
        print(f"  step {1e3 * total:.1f} ms, {flops / total / RATE:.0%} of the matrix rate by 6 flops a parameter and token; "
              f"simulated {1e3 * predicted:.1f} ms, {predicted / total - 1:+.1%}\n")
    if arguments.json:
        with open(arguments.json, "w") as file:
            json.dump(found, file, indent=2)


if __name__ == "__main__":
    main()
