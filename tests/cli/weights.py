#!/usr/bin/python3
"""Weights from files: however they are saved and whatever the grid, a training begins with them, and what is written is read
again bit for bit. The files are made here, as transformers makes them (tests/cli/transformers.py has those of its own)."""
import json
import os
import sys
import tempfile

import numpy

sys.path.insert(0, os.path.dirname(__file__))
import ranvier
import tensors
import text

LAYERS, WIDTH, HEADS, VOCABULARY, LENGTH = 4, 32, 4, 257, 32  # of 257 tokens shards have parts that are padded
KV_HEADS, INNER = 2, 56
CONFIGS = {
    "gpt2": {"model_type": "gpt2", "n_layer": LAYERS, "n_embd": WIDTH, "n_head": HEADS, "vocab_size": VOCABULARY,
             "n_positions": LENGTH, "architectures": ["GPT2LMHeadModel"]},
    "llama": {"model_type": "llama", "num_hidden_layers": LAYERS, "hidden_size": WIDTH, "num_attention_heads": HEADS,
              "num_key_value_heads": KV_HEADS, "intermediate_size": INNER, "vocab_size": VOCABULARY,
              "max_position_embeddings": LENGTH, "torch_dtype": "bfloat16"},
}
TRAIN = ["--micro-batch-size", 1, "--batch-size", 4, "--warmup", 0]
# Arguments, ranks: every way in which a rank has a part of the model.
GRIDS = [(["--pp", 2], 2), (["--tp", 2], 2), (["--pp", 2, "--tp", 2, "--sequence-parallel"], 4), (["--dp", 2, "--zero", 1], 2),
         (["--pp", 2, "--schedule", "interleaved", "--virtual-stages", 2], 2)]
# In mixed precision the sums of replicas, stages and shards are rounded alike only on one rank.
OFFLOAD = ["--precision", "mixed", "--offload", "--bucket-params", 5000]


def gpt2(normal):
    """As transformers has it: matrices of blocks are (in, out)."""
    weights = {"transformer.wte.weight": normal(VOCABULARY, WIDTH), "transformer.wpe.weight": normal(LENGTH, WIDTH)}
    for i in range(LAYERS):
        at = f"transformer.h.{i}."
        for name in ("ln_1", "ln_2"):
            weights[at + name + ".weight"], weights[at + name + ".bias"] = 1 + normal(WIDTH), normal(WIDTH)
        for name, ins, outs in (("attn.c_attn", 1, 3), ("attn.c_proj", 1, 1), ("mlp.c_fc", 1, 4), ("mlp.c_proj", 4, 1)):
            weights[at + name + ".weight"], weights[at + name + ".bias"] = normal(ins * WIDTH, outs * WIDTH), normal(outs * WIDTH)
    weights["transformer.ln_f.weight"], weights["transformer.ln_f.bias"] = 1 + normal(WIDTH), normal(WIDTH)
    return weights


def llama(normal):
    shared = WIDTH // HEADS * KV_HEADS
    weights = {"model.embed_tokens.weight": normal(VOCABULARY, WIDTH)}
    for i in range(LAYERS):
        at = f"model.layers.{i}."
        for name, outs, ins in (("self_attn.q", WIDTH, WIDTH), ("self_attn.k", shared, WIDTH), ("self_attn.v", shared, WIDTH),
                                ("self_attn.o", WIDTH, WIDTH), ("mlp.gate", INNER, WIDTH), ("mlp.up", INNER, WIDTH),
                                ("mlp.down", WIDTH, INNER)):
            weights[f"{at}{name}_proj.weight"] = normal(outs, ins)
        for name in ("input_layernorm", "post_attention_layernorm"):
            weights[f"{at}{name}.weight"] = 1 + normal(WIDTH)
    return {**weights, "model.norm.weight": 1 + normal(WIDTH)}


def random_weights(family, tied):
    """In bf16's 8 bits and fp16's exponents, so that all three formats have them without rounding."""
    random = numpy.random.default_rng(11)

    def normal(*shape):
        return (random.normal(0, 0.1, shape) * 64).round().astype(numpy.float32) / 64

    weights = {"gpt2": gpt2, "llama": llama}[family](normal)
    return weights if tied else {**weights, "lm_head.weight": normal(VOCABULARY, WIDTH)}


def stored(array, dtype="F32"):
    if dtype == "F16":
        elements = array.astype("<f2").tobytes()
    elif dtype == "BF16":
        elements = (numpy.ascontiguousarray(array, "<f4").view("<u4") >> 16).astype("<u2").tobytes()
    else:
        elements = array.astype("<f4").tobytes()
    return dtype, array.shape, elements


def save(folder, family, weights, parts=1, dtypes=("F32",), prefix=True, buffers=False, **config):
    """A folder of `parts` files, dtypes in turns; `buffers`: with tensors that are no weights."""
    os.makedirs(folder)
    with open(os.path.join(folder, "config.json"), "w") as file:
        json.dump({**CONFIGS[family], **config}, file)
    cut = "" if prefix else {"gpt2": "transformer.", "llama": "model."}[family]
    files = [{} for _ in range(parts)]
    for i, (name, array) in enumerate(weights.items()):
        files[i * parts // len(weights)][name[len(cut):] if name.startswith(cut) else name] = stored(array, dtypes[i % len(dtypes)])
    if buffers:
        files[-1]["h.0.attn.bias"] = ("BOOL", (1, 1, LENGTH, LENGTH), bytes(LENGTH * LENGTH))
        files[0]["h.1.attn.masked_bias"] = ("F32", (), bytes(4))
        files[0]["layers.0.self_attn.rotary_emb.inv_freq"] = ("F32", (4,), bytes(16))
    names = [f"model-{i + 1:05}-of-{parts:05}.safetensors" for i in range(parts)] if parts > 1 else ["model.safetensors"]
    for name, part in zip(names, files):
        tensors.write(os.path.join(folder, name), part, {"format": "pt"})
    if parts > 1:
        with open(os.path.join(folder, "model.safetensors.index.json"), "w") as file:
            json.dump({"metadata": {}, "weight_map": {t: name for name, part in zip(names, files) for t in part}}, file)


class Place:
    """A folder with a text to train on."""

    def __init__(self, tap, folder):
        self.tap, self.folder = tap, folder
        self.data = self.at("text.txt")
        text.write(self.data, 20000)

    def at(self, name):
        return os.path.join(self.folder, name)

    def train(self, init, grid=(), ranks=0, steps=3, model=()):
        """The losses, and the folder of the checkpoint; or what was said."""
        log, out = self.at("log.csv"), self.at("out")
        status, _, said = ranvier.run(["train", *model, "--init", self.at(init), "--data", self.data, *TRAIN, "--steps", steps,
                                       "--log", log, "--checkpoint", out, *grid], ranks)
        return (ranvier.losses(log), out) if status == 0 else (said, None)


def same(found, expected):
    """Losses: grids sum in other orders."""
    return isinstance(found, list) and numpy.allclose(found, expected, rtol=1e-6, atol=0)


def written(folder):
    return tensors.read(os.path.join(folder, "model.safetensors"))[1]


def check_grids(place, family, tied, weights):
    tap, name = place.tap, f"{family}, {'tied' if tied else 'untied'}"
    save(place.at("one"), family, weights, tie_word_embeddings=tied)
    save(place.at("parts"), family, weights, parts=3, prefix=False, buffers=True, tie_word_embeddings=tied)
    expected, out = place.train("one")
    if not out:
        return tap.ok(False, f"{name}: it trains from one file", expected)
    trained = written(out)
    found, _ = place.train("parts")
    tap.ok(found == expected, f"{name}: parts, without prefix and with buffers, train as one file does", (found, expected))
    for grid, ranks in GRIDS:
        words = " ".join(map(str, grid))
        found, _ = place.train("parts", grid, ranks)
        tap.ok(same(found, expected), f"{name}: {words} has the losses of one rank within 1e-6", (found, expected))
        found, out = place.train("parts", grid, ranks, steps=0)
        tap.ok(out and written(out) == {key: stored(array) for key, array in weights.items()},
               f"{name}: {words} writes the weights that it read, bit for bit", found)
    whole, _ = place.train("one", ["--precision", "mixed"])
    found, _ = place.train("parts", OFFLOAD)
    tap.ok(found == whole, f"{name}: an offloaded optimizer begins with the same weights", (found, whole))
    check_round_trip(place, name, trained)


def check_round_trip(place, name, trained):
    """A checkpoint, as a folder or a file, is what the next training begins with."""
    _, out = place.train("one")
    os.rename(out, place.at("trained"))
    for init in ("trained", "trained/model.safetensors"):
        found, out = place.train(init, steps=0)
        place.tap.ok(out and written(out) == trained, f"{name}: what was trained is read again from {init}, bit for bit", found)
    model = [place.at("one"), "--pp", 2]
    found, out = place.train("trained", ranks=2, steps=0, model=model)
    place.tap.ok(out and written(out) == trained, f"{name}: and on two stages, for a model that is a folder", found)


def check_formats(place, family, weights):
    expected, _ = place.train("one")
    for dtypes in (("F16",), ("BF16",), ("BF16", "F32", "F16")):
        folder = "-".join(dtypes)
        save(place.at(folder), family, weights, parts=2, dtypes=dtypes, tie_word_embeddings="lm_head.weight" not in weights)
        for grid, ranks in (([], 0), GRIDS[2]):
            found, _ = place.train(folder, grid, ranks)
            place.tap.ok(same(found, expected) if ranks else found == expected,
                         f"{family}: {', '.join(dtypes)} on {ranks or 1} rank{'s' if ranks else ''} are the same weights",
                         (found, expected))


def check_tied_head(place, family, weights):
    """Files of a tied model may have the output projection too, if it is the embedding."""
    embedding = next(iter(weights.values()))
    expected, _ = place.train("one")
    save(place.at("head"), family, {**weights, "lm_head.weight": embedding}, tie_word_embeddings=True)
    found, _ = place.train("head")
    place.tap.ok(found == expected, f"{family}: an output projection beside a tied embedding is accepted", (found, expected))
    other = embedding.copy()
    other[VOCABULARY - 1, WIDTH - 1] += 1
    save(place.at("other-head"), family, {**weights, "lm_head.weight": other}, tie_word_embeddings=True)
    for grid, ranks in (([], 0), (["--tp", 2, "--pp", 2], 4)):
        said, out = place.train("other-head", grid, ranks)
        place.tap.ok(not out and "lm_head.weight differs from" in said, f"{family}: but not another one, on {ranks or 1}", said)


def check_replicas(place):
    """Every rank reads for itself."""
    one, other = place.at("one"), place.at("other")
    save(other, "gpt2", {name: array * 2 for name, array in random_weights("gpt2", True).items()})
    script = place.at("rank.sh")
    with open(script, "w") as file:
        file.write(f'[ "$OMPI_COMM_WORLD_RANK" = 1 ] && init={other} || init={one}\nexec "$@" --init $init\n')
    done = os.popen(f"OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 mpirun -q --oversubscribe -n 2 sh {script} "
                    f"{ranvier.BIN}/ranvier train --dp 2 --data {place.data} {' '.join(map(str, TRAIN))} 2>&1 </dev/null").read()
    place.tap.ok("rank 1 has read other weights than rank 0" in done, "replicas that read other weights are refused", done)


def main():
    tap = ranvier.Tap()
    for family in CONFIGS:
        for tied in (True, False):
            with tempfile.TemporaryDirectory() as folder:
                place, weights = Place(tap, folder), random_weights(family, tied)
                check_grids(place, family, tied, weights)
                if tied:
                    check_tied_head(place, family, weights)
                else:
                    check_formats(place, family, weights)
                if tied and family == "gpt2":
                    check_replicas(place)
    tap.end()


if __name__ == "__main__":
    main()
