#!/usr/bin/env python3
"""Learning curves of three models of about 10 million parameters on one text, bytes being the tokens: a GPT-2, a Llama of as
many parameters, and a mixture of experts of which as many are active. Settings, seed, order of the data and validation are the
same for all three. Writes learning.csv and learning.png, and prints the last validation losses.

    tests/bench/learning.py [--data FILE] [--out FOLDER] [--steps N] [--threads N] [--together] [-- FLAG...]
    (make bench-learning TEXT=FILE LEARNING_FLAGS="--together")

Without --data the text is the demo's (tests/demo/text.sh). Each run's own log stays in FOLDER/work; a run whose log has all its
steps already is not repeated, so that the figure can be drawn again. What follows -- goes to `ranvier train`.
"""
import argparse
import csv
import json
import os
import subprocess
import sys

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(HERE, "..", "cli"))
import ranvier

GPT2 = {"n_layer": 8, "n_embd": 320, "n_head": 5, "vocab_size": 256, "n_positions": 256, "tie_word_embeddings": True}
LLAMA = {"model_type": "llama", "num_hidden_layers": 8, "hidden_size": 320, "intermediate_size": 856, "num_attention_heads": 5,
         "num_key_value_heads": 5, "vocab_size": 256, "max_position_embeddings": 256, "rms_norm_eps": 1e-5, "rope_theta": 10000.0,
         "hidden_act": "silu", "tie_word_embeddings": True}
MIXTRAL = dict(LLAMA, model_type="mixtral", intermediate_size=428, num_local_experts=8, num_experts_per_tok=2,
               output_router_logits=True, router_aux_loss_coef=0.02)
MODELS = {"GPT-2": GPT2, "Llama": LLAMA, "Mixtral, 2 of 8 experts": MIXTRAL}
BATCH, VALIDATIONS, SMOOTHED = 4, 20, 100  # sequences; validations of a run; steps of the mean that is drawn
SETTINGS = ["--micro-batch-size", BATCH, "--batch-size", BATCH, "--seq-len", 256, "--lr", 1e-3, "--seed", 1,
            "--validation-batches", 16]
COLUMNS = ("model", "step", "train_loss", "val_loss")


def path_of(a, name, suffix):
    return os.path.join(a.out, "work", name + suffix)


def rows_of(path):
    if not os.path.exists(path):
        return []
    with open(path) as file:
        return list(csv.DictReader(file))


def start(a, name):
    with open(path_of(a, name, ".json"), "w") as file:
        json.dump(dict(MODELS[name], name=name), file)
    command = [os.path.join(ranvier.BIN, "ranvier"), "train", path_of(a, name, ".json"), "--data", a.data, "--steps", a.steps,
               "--validate-every", max(1, a.steps // VALIDATIONS), *SETTINGS, "--log", path_of(a, name, ".csv"),
               *(["--threads", a.threads] if a.threads else []), *a.flags]
    with open(path_of(a, name, ".txt"), "w") as output:
        return subprocess.Popen(list(map(str, command)), stdin=subprocess.DEVNULL, stdout=output, stderr=subprocess.STDOUT,
                                env=dict(os.environ, OMPI_ALLOW_RUN_AS_ROOT="1", OMPI_ALLOW_RUN_AS_ROOT_CONFIRM="1"))


def train(a):
    """All runs that are still to be done, one after the other or together."""
    under_way = []
    for name in MODELS:
        if len(rows_of(path_of(a, name, ".csv"))) == a.steps:
            print(f"{name}: trained already")
            continue
        under_way.append((name, start(a, name)))
        if not a.together:
            under_way[-1][1].wait()
    failed = [name for name, program in under_way if program.wait()]
    if failed:
        with open(path_of(a, failed[0], ".txt")) as file:
            sys.exit(f"{failed[0]} failed:\n{file.read()}")


def smooth(rows):
    """Its rows with the mean training loss of the SMOOTHED steps up to each, from the first validation on: before it, all
    models learn little but the text's bytes, and the axis would be theirs."""
    losses = [float(row["train_loss"]) for row in rows]
    first = next((i for i, row in enumerate(rows) if row["val_loss"]), 0)
    for i in range(first, len(rows)):
        window = losses[max(0, i + 1 - SMOOTHED):i + 1]
        yield dict(rows[i], train_loss=f"{sum(window) / len(window):.6g}")


def write(path, columns, rows):
    with open(path, "w") as file:
        writer = csv.DictWriter(file, columns, lineterminator="\n", extrasaction="ignore")
        writer.writeheader()
        writer.writerows(rows)


def report(a):
    kept, drawn = [], []
    for name in MODELS:
        log = rows_of(path_of(a, name, ".csv"))
        smoothed = list(smooth(log))
        os.makedirs(path_of(a, "smoothed", ""), exist_ok=True)
        drawn.append(path_of(a, os.path.join("smoothed", name), ".csv"))
        write(drawn[-1], list(log[0]), smoothed)
        validated = [dict(row, model=name) for row in smoothed if row["val_loss"]]
        kept += validated
        print(f"{name:24} validation loss {float(validated[-1]['val_loss']):.4f}, training {float(validated[-1]['train_loss']):.4f}")
    write(os.path.join(a.out, "learning.csv"), COLUMNS, kept)
    image = os.path.join(a.out, "learning.png")
    status, _, err = ranvier.run(["plot", "loss", image, *drawn])
    print(f"drawn in {image}" if status == 0 else f"no figure: {err.strip()}")


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--data", help="the text (default: the demo's)")
    parser.add_argument("--out", default="bench/learning", help="folder of what is written (default bench/learning)")
    parser.add_argument("--steps", type=int, default=2000)
    parser.add_argument("--threads", type=int, help="of each run (default: as ranvier train's)")
    parser.add_argument("--together", action="store_true", help="the three runs at once")
    parser.add_argument("flags", nargs="*", metavar="FLAG", help="of ranvier train, after --")
    a = parser.parse_args()
    os.makedirs(os.path.join(a.out, "work"), exist_ok=True)
    if not a.data:
        a.data = os.path.join(a.out, "work", "text.txt")
        subprocess.run([os.path.join(HERE, "..", "demo", "text.sh"), a.data], check=True)
    train(a)
    report(a)


if __name__ == "__main__":
    main()
