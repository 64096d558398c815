#!/usr/bin/python3
"""What the programs answer, kept in a folder: two builds that should answer the same are compared by `diff -r`.

    RANVIER_BIN=build/bin tests/bench/record.py FOLDER

Every command line over all options of the programs that predict, in a folder of its own with its status, its
output and its files; of trainings the losses, the parts of a report that no clock decides, and what a trace has
done in which order on which lane."""
import csv
import json
import os
import sys

sys.path.insert(0, os.path.join(os.path.dirname(__file__), "..", "cli"))
import ranvier
import text

TREE = os.path.abspath(os.path.join(ranvier.BIN, "..", ".."))
TABLE = os.path.join(TREE, "sim/tables/published.csv")
A100 = "--profile a100-datasheet --platform generic"
PLAN = "--seq-len 512 --micro-batch-size 2 --batch-size 64"
SMALL = f"simulate gpt2-124m {A100} {PLAN} --report r.json --trace t.json"
FOUR, EIGHT = f"{SMALL} --gpus 4", f"{SMALL} --gpus 8"
SWEEP = f"sweep {A100} --batch-size 64 --seq-len 512 --csv s.csv --jobs 1"
TRAIN = "train tiny --data text.txt --micro-batch-size 1 --batch-size 12 --steps 4 --log log.csv --report r.json --trace t.json"

PREDICTED = [
    *(f"{command} --help" for command in ("train", "simulate", "sweep", "calibrate", "validate", "compare", "plot", "sample")),
    f"{FOUR} --pp 4", f"{FOUR} --pp 4 --schedule 1f1b", f"{FOUR} --pp 4 --schedule gpipe --fold off",
    f"{FOUR} --pp 4 --schedule zero-bubble", f"{FOUR} --pp 2 --dp 2 --schedule interleaved --virtual-stages 3",
    f"{FOUR} --dp 4 --zero 1", f"{FOUR} --dp 4 --zero 3", f"{FOUR} --dp 4 --overlap-allreduce --bucket-params 4000000",
    f"{FOUR} --tp 4 --sequence-parallel", f"{FOUR} --tp 2 --pp 2 --schedule 1f1b", f"{FOUR} --tp 2 --dp 2 --allreduce-buckets 2",
    f"{FOUR} --pp 4 --p2p blocking --schedule 1f1b", f"{FOUR} --pp 4 --messages staged", f"{FOUR} --dp 4 --allreduce staged",
    f"{FOUR} --pp 2 --dp 2 --offload --bucket-params 5000000", f"{FOUR} --pp 4 --offload-activations --pipeline-limit 6",
    f"{FOUR} --pp 4 --pipeline-limit 8", f"{FOUR} --pp 2 --dp 2 --order replicas", f"{FOUR} --pp 4 --split balanced",
    f"{FOUR} --pp 4 --recompute full", f"{FOUR} --pp 4 --recompute selective --fusion off", f"{FOUR} --pp 4 --recompute layer",
    f"{FOUR} --pp 4 --clip 0", f"{FOUR} --pp 4 --precision bf16", f"{FOUR} --dp 4 --batches 3", f"{FOUR} --pp 4 --tokens 1e9",
    f"{FOUR} --pp 4 --fits-only", f"{FOUR} --pp 4 --platform-xml p.xml", f"{FOUR} --pp 4 --device-memory 1GiB",
    f"{FOUR} --pp 4 --device-memory 1GiB --ignore-memory", f"{FOUR} --pp 4 --host-memory 1MiB --offload", f"{FOUR} --pp 3",
    f"{EIGHT} --pp 2 --dp 2 --tp 2 --schedule interleaved --virtual-stages 2 --sequence-parallel --zero 1",
    f"{EIGHT} --pp 4 --dp 2 --schedule zero-bubble --recompute full", f"{EIGHT} --pp 8 --schedule 1f1b --p2p blocking --messages staged",
    f"simulate llama2-7b {A100} {PLAN} --precision bf16 --gpus 16 --pp 4 --tp 2 --dp 2 --schedule 1f1b --recompute norms,swiglu --report r.json",
    f"simulate gpt-12b {A100} --gpus 48 --pp 12 --dp 4 --micro-batch-size 1 --batch-size 256 --report r.json",
    "simulate gpt-12b --profile v100-datasheet --platform summit --gpus 48 --pp 6 --dp 8 --micro-batch-size 1 --batch-size 384 --offload --report r.json",
    "simulate gpt-100b --profile v100-published --platform summit --gpus 384 --pp 48 --dp 8 --micro-batch-size 1 --batch-size 1024 --recompute full --offload --report r.json",
    "simulate gpt2-1.5b --profile a100-published --platform selene --gpus 16 --pp 2 --dp 8 --micro-batch-size 4 --batch-size 128 --report r.json",
    "simulate gpt2-1.5b --profile h100-published --platform dgx-h100 --gpus 15 --tp 5 --pp 3 --schedule 1f1b --micro-batch-size 4 --batch-size 128 --report r.json",
    "simulate gpt2-124m --profile v100-datasheet --platform dgx-2h --gpus 4 --pp 4 --micro-batch-size 1 --batch-size 16 --report r.json",
    "simulate gpt2-124m --profile v100-datasheet --platform cloud-ethernet --gpus 8 --dp 8 --micro-batch-size 1 --batch-size 16 --report r.json",
    f"{SWEEP} gpt2-774m --gpus 4,8", f"{SWEEP} gpt2-774m --gpus 8 --plans all --simulate 5", f"{SWEEP} gpt2-774m --gpus 8 --plans megatron",
    f"{SWEEP} gpt2-124m --gpus 4 --simulate all --schedule 1f1b,zero-bubble,interleaved --virtual-stages 2,3 --micro-batch-size 1,2",
    f"{SWEEP} gpt2-124m --gpus 8 --offload both --offload-activations auto --zero 0,1 --recompute none,full",
    f"{SWEEP} llama2-7b --gpus 8 --precision bf16 --tp 1,2,4 --sequence-parallel yes --recompute none,norms+swiglu",
    f"{SWEEP} gpt2-124m --gpus 4 --pp 2,4 --p2p async,blocking --order all --device-memory 2GiB",
    f"validate --table {TABLE} --csv v.csv", f"validate --table {TABLE} --summary --jobs 1",
    f"validate --profile a100-datasheet --platform selene --table {TABLE}",
    "compare nothing.json nothing.json", "plot nothing.json", "simulate", "simulate gpt2-124m", "simulate no-such-model", f"{FOUR} --ppp 2",
    f"{FOUR} --pp 4 --schedule fifo", f"{FOUR} --pp 4 --zero 2", f"{FOUR} --pp 0", f"{FOUR} --tp 2 --pp 2 --schedule zero-bubble",
    f"{FOUR} --pp 4 --recompute everything", f"{FOUR} --pp 4 --micro-batch-size 3",
]
TRAINED = [
    (1, TRAIN), (2, f"{TRAIN} --pp 2"), (2, f"{TRAIN} --dp 2 --zero 1 --precision mixed"), (2, f"{TRAIN} --tp 2 --sequence-parallel"),
    (4, f"{TRAIN} --pp 2 --dp 2 --schedule 1f1b --offload --precision bf16"), (2, f"{TRAIN} --pp 2 --schedule zero-bubble"),
    (2, f"{TRAIN} --pp 2 --schedule interleaved --virtual-stages 2 --p2p blocking"), (2, f"{TRAIN} --dp 2 --overlap-allreduce --clip 0 --bucket-params 5000"),
    (2, f"{TRAIN} --pp 2 --messages staged --recompute full --offload-activations --validate-every 2 --validation-fraction 0.1"),
    (1, f"{TRAIN} --kernels --beta1 0.8 --weight-decay 0.2 --seed 7 --warmup 2"), (1, f"{TRAIN} --pp 2"), (1, f"{TRAIN} --batch-size 5 --dp 2"),
    (2, "train llama-tiny --data text.txt --micro-batch-size 1 --batch-size 4 --steps 3 --log log.csv --report r.json --trace t.json --tp 2"),
]


def untimed(value):
    """Of a report what a clock does not decide: texts, and numbers that are counts."""
    if isinstance(value, dict):
        return {key: untimed(item) for key, item in value.items()}
    if isinstance(value, list):
        return sorted((untimed(item) for item in value), key=lambda item: json.dumps(item) if "kernel" in (item or "") else "")
    return "a number" if isinstance(value, float) or isinstance(value, int) and value > 1 << 20 else value


def keep_trained(folder):
    """The files of a training, without what the clock wrote into them; and what is printed is left out."""
    for name in ("r.json", "t.json", "log.csv"):
        path = os.path.join(folder, name)
        if not os.path.exists(path):
            continue
        if name == "log.csv":
            with open(path) as file:
                kept = [{key: value for key, value in row.items() if "loss" in key or "norm" in key or key == "step"} for row in csv.DictReader(file)]
        else:
            with open(path) as file:
                kept = json.load(file)
            if name == "t.json":
                kept = sorted({(event.get("name"), event.get("pid"), event.get("tid")) for event in kept["traceEvents"]}, key=str)
            else:
                kept = untimed(kept)
        with open(path, "w") as file:
            json.dump(kept, file, indent=1)


def keep_without(path, place):
    """A file's text without the names of the folders that it was written in, and read from."""
    with open(path, errors="replace") as file:
        words = file.read()
    words = words.replace(place, ".").replace(TREE, ".")
    if path.endswith("r.json"):  # a report: the order of its keys says nothing
        words = json.dumps(json.loads(words), indent=1, sort_keys=True)
    with open(path, "w") as file:
        file.write(words)


def record(folder, number, ranks, line):
    place = os.path.join(folder, f"{number:02d}")
    os.makedirs(place)
    if ranks:
        text.write(os.path.join(place, "text.txt"))
    status, out, err = ranvier.run(line.split(), ranks, folder=place)
    err = "".join(words for words in err.splitlines(True) if not words.startswith("step ") and "runs predicted" not in words and "Process name" not in words)
    if ranks:
        out = ""
        keep_trained(place)
        os.remove(os.path.join(place, "text.txt"))
    with open(os.path.join(place, "answer.txt"), "w") as file:
        file.write(f"{line}\nstatus {status}\n--- output\n{out}\n--- errors\n{err}\n")
    for name in os.listdir(place):
        keep_without(os.path.join(place, name), place)


def main():
    folder = os.path.abspath(sys.argv[1])
    for number, (ranks, line) in enumerate([(0, line) for line in PREDICTED] + TRAINED):
        record(folder, number, ranks, line)
        print(f"{number:3d}  {line}", flush=True)


main()
