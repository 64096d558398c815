#!/usr/bin/python3
"""What is not modelled is said once, on standard error, by every command that reads a model, and changes nothing else."""
import json
import os
import sys
import tempfile

sys.path.insert(0, os.path.dirname(__file__))
import ranvier
import text

MODEL = {"model_type": "gpt2", "n_layer": 2, "n_embd": 32, "n_head": 4, "vocab_size": 256, "n_positions": 32}
DROPOUT = "its dropout is not modelled"
PLAN = "--batch-size 4 --micro-batch-size 1"
COMMANDS = [
    ("train", f"train MODEL --data text.txt --steps 1 {PLAN}", 0),
    ("train", f"train MODEL --data text.txt --steps 1 --dp 2 {PLAN}", 2),
    ("simulate", f"simulate MODEL --gpus 2 --pp 2 {PLAN} --profile a100-datasheet --platform generic", 0),
    ("sweep", "sweep MODEL --gpus 2 --batch-size 4 --profile v100-datasheet --platform summit", 0),
    ("calibrate", "calibrate --quick --seconds 1 --model MODEL --micro-batch-size 1 --out profile.json", 0),
]


def main():
    tap = ranvier.Tap()
    with tempfile.TemporaryDirectory() as folder:
        text.write(os.path.join(folder, "text.txt"))
        for name, changes in (("dropped.json", {"attn_pdrop": 0.1}), ("plain.json", {"attn_pdrop": 0.0})):
            with open(os.path.join(folder, name), "w") as file:
                json.dump({**MODEL, **changes}, file)
        for command, line, ranks in COMMANDS:
            for name, times in (("dropped.json", 1), ("plain.json", 0)):
                status, _, said = ranvier.run(line.replace("MODEL", name).split(), ranks, folder)
                lines = [l for l in said.splitlines() if l.startswith(f"ranvier {command}: warning: ") and DROPOUT in l]
                tap.ok(status == 0 and len(lines) == times,
                       f"{command}{f' on {ranks} ranks' if ranks else ''} says {times} times of {name} that dropout is not "
                       "modelled", f"status {status}: {said}")
    tap.end()


if __name__ == "__main__":
    main()
