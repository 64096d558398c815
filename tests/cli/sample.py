#!/usr/bin/python3
"""ranvier sample: the likeliest text must be the one that numpy finds with the same checkpoint."""
import json
import os
import struct
import subprocess
import sys
import tempfile

import numpy as np

LAYERS, WIDTH, HEADS, VOCABULARY, POSITIONS = 2, 32, 4, 256, 24
done = 0


def check(sentence, ok, note=""):
    global done
    done += 1
    print(f"{'ok' if ok else 'not ok'} {done} - {sentence}")
    if not ok:
        print("# " + str(note).replace("\n", "\n# "))


def random_model(seed):
    """Weights under nanoGPT's names; the head prefers small letters, so that the text is printable."""
    random = np.random.default_rng(seed)

    def normal(*shape):
        return random.normal(0, 0.3, shape).astype(np.float32)

    weights = {"transformer.wte.weight": normal(VOCABULARY, WIDTH), "transformer.wpe.weight": normal(POSITIONS, WIDTH)}
    for i in range(LAYERS):
        at = f"transformer.h.{i}."
        for name in ("ln_1", "ln_2"):
            weights[at + name + ".weight"] = 1 + normal(WIDTH)
            weights[at + name + ".bias"] = normal(WIDTH)
        for name, rows, cols in (("attn.c_attn", 3, 1), ("attn.c_proj", 1, 1), ("mlp.c_fc", 4, 1), ("mlp.c_proj", 1, 4)):
            weights[at + name + ".weight"] = normal(rows * WIDTH, cols * WIDTH)
            weights[at + name + ".bias"] = normal(rows * WIDTH)
    weights["transformer.ln_f.weight"] = 1 + normal(WIDTH)
    weights["transformer.ln_f.bias"] = normal(WIDTH)
    head = np.zeros((VOCABULARY, WIDTH), np.float32)
    head[ord("a"):ord("z") + 1] = normal(26, WIDTH)
    weights["lm_head.weight"] = head
    return weights


def save(path, weights, vocabulary=VOCABULARY):
    config = {"n_layer": LAYERS, "n_embd": WIDTH, "n_head": HEADS, "vocab_size": vocabulary, "n_positions": POSITIONS,
              "tie_word_embeddings": False}
    header, offset = {"__metadata__": {"config": json.dumps(config)}}, 0
    names = sorted(weights)  # any order is a safetensors file
    for name in names:
        end = offset + weights[name].nbytes
        header[name] = {"dtype": "F32", "shape": list(weights[name].shape), "data_offsets": [offset, end]}
        offset = end
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    with open(path, "wb") as file:
        file.write(struct.pack("<Q", len(text)) + text)
        for name in names:
            file.write(weights[name].tobytes())


def layernorm(x, w, b):
    mean = x.mean(-1, keepdims=True)
    return (x - mean) / np.sqrt(((x - mean) ** 2).mean(-1, keepdims=True) + 1e-5) * w + b


def logits(weights, tokens):
    w = {name: value.astype(np.float64) for name, value in weights.items()}
    T, size = len(tokens), WIDTH // HEADS
    x = w["transformer.wte.weight"][tokens] + w["transformer.wpe.weight"][:T]
    for i in range(LAYERS):
        def linear(name, y, at=f"transformer.h.{i}."):
            return y @ w[at + name + ".weight"].T + w[at + name + ".bias"]

        def norm(name, y, at=f"transformer.h.{i}."):
            return layernorm(y, w[at + name + ".weight"], w[at + name + ".bias"])

        q, k, v = np.split(linear("attn.c_attn", norm("ln_1", x)).reshape(T, 3 * HEADS, size).swapaxes(0, 1), 3)
        scores = np.where(np.tri(T, dtype=bool), q @ k.swapaxes(1, 2) / np.sqrt(size), -np.inf)
        p = np.exp(scores - scores.max(-1, keepdims=True))
        y = (p / p.sum(-1, keepdims=True)) @ v
        x = x + linear("attn.c_proj", y.swapaxes(0, 1).reshape(T, WIDTH))
        h = linear("mlp.c_fc", norm("ln_2", x))
        x = x + linear("mlp.c_proj", h / 2 * (1 + np.tanh(np.sqrt(2 / np.pi) * (h + 0.044715 * h**3))))
    x = layernorm(x[-1], w["transformer.ln_f.weight"], w["transformer.ln_f.bias"])
    return x @ w["lm_head.weight"].T


def likeliest(weights, prompt, count):
    tokens = list(prompt)
    for _ in range(count):
        tokens.append(int(np.argmax(logits(weights, tokens[-POSITIONS:]))))
    return bytes(tokens)


def sample(*arguments):
    run = subprocess.run([os.path.join(os.environ["RANVIER_BIN"], "ranvier"), "sample", *arguments],
                         capture_output=True, timeout=1800)
    return run.returncode, run.stdout, run.stderr.decode()


def constant_model(byte):
    """A model that says one byte for ever."""
    weights = random_model(3)
    weights["transformer.ln_f.weight"][:] = 0
    weights["transformer.ln_f.bias"][:] = 1
    weights["lm_head.weight"][:] = 0
    weights["lm_head.weight"][byte] = 1
    return weights


def main():
    print("1..21")
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "model.safetensors")
        for seed, prompt in ((1, b"it was "), (2, b"a prompt that is longer than the window of the model")):
            weights = random_model(seed)
            save(path, weights)
            expected = likeliest(weights, prompt, 60)
            found = sample(path, "--prompt", prompt.decode(), "--tokens", "60", "--temperature", "0")
            check(f"the likeliest text is numpy's (seed {seed})", found == (0, expected + b"\n", ""), (expected, found))
        first = sample(path, "--tokens", "50", "--seed", "5")
        check("the same seed gives the same text", first[0] == 0 and first == sample(path, "--tokens", "50", "--seed", "5"))
        check("another seed gives another", first[1] != sample(path, "--tokens", "50", "--seed", "6")[1])
        check("the likeliest of one is the likeliest", sample(path, "--prompt", "b", "--top-k", "1", "--tokens", "40") ==
              (0, likeliest(weights, b"b", 40) + b"\n", ""))
        check("the reference's kernels write the same", sample(path, "--tokens", "50", "--seed", "5", "--cpu-kernels", "scalar") == first)
        for name, wrong, sentence in (("sse9", [], "'sse9' is not known"), ("scalar", ["--device", "cuda"], "--cpu-kernels is for --device cpu")):
            status, _, said = sample(path, "--cpu-kernels", name, *wrong)
            check(f"kernels that are not there are refused {' '.join(wrong)}", status == 2 and sentence in said, said)
        check("no tokens leave the prompt", sample(path, "--prompt", "h\u00e9", "--tokens", "0") ==
              (0, "h\u00e9\n".encode(), ""))

        status, found, said = sample(path, "--prompt", "ab", "--tokens", "6", "--temperature", "0", "--json")
        answer = json.loads(found or b"{}")
        check("--json writes the tokens of the prompt, those that follow, and the text", status == 0 and not said
              and answer["prompt_tokens"] == [97, 98] and bytes(answer["prompt_tokens"] + answer["tokens"]).decode() == answer["text"]
              and answer["text"].encode() + b"\n" == sample(path, "--prompt", "ab", "--tokens", "6", "--temperature", "0")[1], found)
        status, found, said = sample(path, "--prompt", "ab", "--logits", "--json")
        lines = sample(path, "--prompt", "ab", "--logits")[1].split()
        check("--json writes logits too", status == 0 and np.allclose(json.loads(found)["logits"], [float(line) for line in lines],
                                                                      rtol=1e-8), said)

        for byte, expected in ((0x1b, b"\\x1b"), (0xe9, b"\\xe9"), (0x0a, b"\n")):
            save(path, constant_model(byte))
            found = sample(path, "--prompt", "x", "--tokens", "2", "--temperature", "0")
            check(f"byte {byte:#x} is written as {expected}", found == (0, b"x" + 2 * expected + b"\n", ""), found)

        with open(path, "rb") as file:
            whole = file.read()
        with open(path, "wb") as file:
            file.write(whole[:-100])
        status, _, said = sample(path)
        check("a truncated checkpoint is refused", status == 2 and "truncated" in said, said)
        weights = random_model(1)
        for name in ("transformer.wte.weight", "lm_head.weight"):
            weights[name] = weights[name][:200].copy()
        save(path, weights, 200)
        status, _, said = sample(path)
        check("a model that is not byte-level is refused", status == 2 and "vocab_size is 200" in said, said)
        for wrong, sentence in ((["--tokens", "many"], "--tokens: 'many'"), (["--temperature", "-1"], "--temperature: '-1'"),
                                (["--top-k", "257"], "--top-k: '257'"), (["other"], "unexpected argument 'other'")):
            status, _, said = sample(path, *wrong)
            check(f"{' '.join(wrong)} is refused", status == 2 and sentence in said, said)
        status, _, said = sample()
        check("a missing checkpoint is named", status == 2 and "CHECKPOINT is missing" in said, said)


if __name__ == "__main__":
    sys.exit(main())
