#!/usr/bin/python3
"""From 16 ranks to 8 that stand for 16 (--logical-dp): what the 8 read of the checkpoint, and how long that takes beside reading its files once.
RUNS times (5), in turns; both from files that the kernel has let go of, as far as it may be asked to."""
import glob
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time

RUNS = int(sys.argv[1]) if len(sys.argv) > 1 else 5
MODEL = {"n_layer": 8, "n_embd": 512, "n_head": 8, "vocab_size": 8192, "n_positions": 64}
PLAN = ["--micro-batch-size", "1", "--batch-size", "16", "--seq-len", "32", "--threads", "1", "--zero", "1", "--validation-fraction", "0"]


def forget():
    """Whether files will come from the disk."""
    os.sync()
    try:
        with open("/proc/sys/vm/drop_caches", "w") as file:
            file.write("1")
    except OSError:
        return False
    return True


def main():
    binary = os.path.join(os.environ["RANVIER_BIN"], "ranvier")
    environment = dict(os.environ, OMPI_ALLOW_RUN_AS_ROOT="1", OMPI_ALLOW_RUN_AS_ROOT_CONFIRM="1")
    with tempfile.TemporaryDirectory(dir=os.environ.get("CHECKPOINT_FOLDER")) as folder:
        path = lambda *names: os.path.join(folder, *names)
        with open(path("model.json"), "w") as file:
            json.dump(MODEL, file)
        with open(path("text.txt"), "w") as file:
            file.write("".join(f"{i * i} is the square of {i}. " for i in range(20000)))

        def train(ranks, *more):
            subprocess.run(["mpirun", "--oversubscribe", "--bind-to", "none", "-n", str(ranks), binary, "train", path("model.json"), "--data", path("text.txt"), *PLAN, *more],
                           check=True, env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)

        train(16, "--steps", "1", "--checkpoint", path("kept"), "--checkpoint-every", "1")
        files = glob.glob(path("kept", "step-*", "*.safetensors"))
        size = sum(os.path.getsize(name) for name in files)
        resumed, once = [], []
        for _ in range(RUNS):
            cold = forget()
            train(8, "--steps", "2", "--resume", path("kept"), "--logical-dp", "16", "--report", path("report.json"))
            with open(path("report.json")) as file:
                training = json.load(file)["training"]
            resumed.append(training["resumed_seconds"])
            forget()
            start = time.perf_counter()
            for name in files:
                with open(name, "rb", buffering=0) as file:
                    while file.read(8 << 20):
                        pass
            once.append(time.perf_counter() - start)
        spread = lambda values: f"{statistics.median(values):.3f} s ({min(values):.3f} to {max(values):.3f})"
        ratio = [a / b for a, b in zip(resumed, once)]
        print(f"a checkpoint of 16 ranks   {size / 1e6:.0f} MB in {len(files)} files, {'from the disk' if cold else 'from memory'}")
        print(f"8 ranks for 16 replicas    read {training['resumed_bytes'] / 1e6:.0f} MB in {spread(resumed)}: {training['resumed_bytes'] / 1e9 / statistics.median(resumed):.2f} GB/s")
        print(f"the files, each once       {spread(once)}: {size / 1e9 / statistics.median(once):.2f} GB/s")
        print(f"one beside the other       {statistics.median(ratio):.2f} ({min(ratio):.2f} to {max(ratio):.2f})")


main()
