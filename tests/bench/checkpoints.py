#!/usr/bin/python3
"""What checkpoints cost GPT-2 124M: one training that keeps one about once a minute (--every), --runs of them (5). In turns, in one run: the steps beside
which a checkpoint is written, and the others. Printed: what training waited for, what steps take longer beside a thread that writes, and both as a
share of a minute; what a checkpoint's rate to the disk is, and that of dd with as many bytes and the same fsync, right after; and what
simulate --checkpoint-every predicts of all that, by a profile that calibrate made in the same folder just before."""
import argparse
import csv
import json
import os
import statistics
import subprocess
import sys
import tempfile

# A micro-batch, which is calibrated, and the batch.
PASSES = {"cpu": ["gpt2-124m", "--seq-len", "256", "--micro-batch-size", "4"],
          "cuda": ["gpt2-124m", "--seq-len", "1024", "--micro-batch-size", "16", "--precision", "bf16"]}
BATCHES = {"cpu": "4", "cuda": "64"}


def main():
    parser = argparse.ArgumentParser(description=__doc__.split(":")[0])
    parser.add_argument("--runs", type=int, default=5, help="checkpoints")
    parser.add_argument("--every", type=float, default=60, help="seconds between two")
    parser.add_argument("--device", choices=PASSES, default="cpu")
    a = parser.parse_args()
    runs, each = a.runs, PASSES[a.device]
    plan = [*each, "--batch-size", BATCHES[a.device]]
    on = ["--device", "cuda"] if a.device == "cuda" else ["--threads", str(os.cpu_count())]
    binary = os.path.join(os.environ["RANVIER_BIN"], "ranvier")
    with tempfile.TemporaryDirectory(dir=os.environ.get("CHECKPOINT_FOLDER")) as folder:
        path = lambda name: os.path.join(folder, name)
        with open(path("text.txt"), "w") as file:
            file.write("".join(f"{i * i} is the square of {i}. " for i in range(20000)))

        def train(steps, *more):
            subprocess.run([binary, "train", *plan, *on, "--data", path("text.txt"), "--steps", str(steps), "--validation-fraction", "0", "--log",
                            path("log.csv"), "--report", path("report.json"), *more], check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
            with open(path("log.csv")) as file:
                return [float(row["batch_seconds"]) for row in csv.DictReader(file)]

        def quietly(*words):
            return subprocess.run([binary, *words], check=True, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True).stdout

        quietly("calibrate", "--model", *each, *on, "--pp", "1", "--quick", "--out", path("profile.json"))
        step = statistics.median(train(6)[2:])
        every = max(2, round(a.every / step))
        took = train(every * runs + every // 2, "--checkpoint", path("kept"), "--checkpoint-every", str(every))
        with open(path("report.json")) as file:
            kept = json.load(file)["training"]["checkpoints"]
        beside, others = [], []
        writes = {}
        for one in kept["each"][:runs]:
            left = one["writing_seconds"]
            for i in range(one["step"], len(took)):
                if left <= 0:
                    break
                writes[i] = min(1, left / took[i])
                left -= took[i]
        for i in range(2, len(took)):
            (beside if i in writes else others).append(took[i])
        usual = statistics.median(others)
        longer = [sum(took[i] - usual for i in writes if one["step"] <= i < one["step"] + every) for one in kept["each"][:runs]]
        exposed = [one["exposed_seconds"] for one in kept["each"][:runs]]
        writing = [one["writing_seconds"] for one in kept["each"][:runs]]
        spread = lambda values, digits=3: f"{statistics.median(values):.{digits}f} s ({min(values):.{digits}f} to {max(values):.{digits}f})"
        share = [100 * (a + b) / (every * usual) for a, b in zip(exposed, longer)]
        print(f"{runs} checkpoints of {kept['bytes_of_rank_0'] / 1e9:.2f} GB, one every {every} steps of {spread(others)}: {every * usual:.0f} s")
        print(f"training waited            {spread(exposed)}")
        print(f"steps beside took longer   {spread(longer)}")
        print(f"together                   {statistics.median(share):.2f} % of the time ({min(share):.2f} to {max(share):.2f})")
        print(f"written in                 {spread(writing)}: {kept['bytes_of_rank_0'] / 1e9 / statistics.median(writing):.2f} GB/s")
        predicted = json.loads(quietly("simulate", *plan, "--profile", path("profile.json"), "--platform", "local", "--gpus", "1",
                                       "--checkpoint-every", str(every), "--json"))["checkpoints"]
        waits, slower, seconds = (predicted[name] for name in ("exposed_seconds", "slower_seconds", "writing_seconds"))
        measured = statistics.median([a + b for a, b in zip(exposed, longer)])
        print(f"predicted                  {waits:.3f} s waited, {slower:.3f} s longer, written in {seconds:.3f} s: "
              f"{100 * predicted['share_of_time']:.2f} % of the time; a checkpoint costs {100 * ((waits + slower) / measured - 1):+.1f} % of what was measured")
        blocks = kept["bytes_of_rank_0"] // (8 << 20)
        said = subprocess.run(["dd", "if=/dev/zero", f"of={path('dd')}", "bs=8M", f"count={blocks}", "conv=fsync"], capture_output=True, text=True).stderr
        print(f"dd, as many bytes          {said.strip().splitlines()[-1]}")


main()
