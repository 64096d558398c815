#!/usr/bin/env python3
"""What training on a GPU attains, against what the same GPU was measured to be able to in the same run: prints tables, and
writes all of it as JSON. Without a GPU it says so and ends with status 2.

    tests/bench/gpu.py [PART...] [--out FOLDER] [--tiny]              (make bench-gpu PARTS="rate gpt")

Parts, in this order; each needs the rates, which are measured first in any case:
  rate        products of bf16 matrices, passes over device memory, copies to and from the host
  gpt         GPT-2 124M, 350M, 774M, 1.5B: tokens/s, model flops/s, percent of the matrix rate; with CUDA graphs and without
  pytorch     the same shapes by PyTorch, if it is installed, in turn with ours
  kernels     each kernel of a calibration against max(flops / matrix rate, bytes / memory rate)
  offload     device memory with and without offloading by the driver's own count, and the optimizer phase against the copies
  prediction  ten plans predicted from a profile that is calibrated in this run, products timed, and measured with these
  families    the same of GPT-2 1.5B and a Llama of 1.2 billion parameters
  mixture     the same of a mixture of experts

Model flops are 72 B s l h^2 (1 + s / 6h + V / 12 l h), forward and backward (Narayanan et al. 2021, eq. 3, without its
recomputation). The vocabulary of 50257 is padded to 50304, a multiple of 128, as is usual; both sides train that.
"""
import argparse
import copy
import json
import os
import statistics
import subprocess
import sys
import threading
import time

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(HERE, "..", "cli"))
import ranvier
import text

ROOT = os.path.join(HERE, "..", "..")
PARTS = ("rate", "gpt", "pytorch", "kernels", "offload", "prediction", "families", "mixture")
# Published bf16 rates without sparsity (datasheets): by what the device's name contains, the more telling ones first.
DATASHEET = (("H200", 989e12), ("H100 PCIe", 756e12), ("H100", 989e12), ("A100", 312e12), ("A40", 150e12), ("L40S", 362e12),
             ("L4", 121e12), ("GeForce RTX 4090", 165e12))
PADDED = 50304
TINY = {"n_layer": 2, "n_embd": 32, "n_head": 2, "vocab_size": 256, "n_positions": 16}
# 0.7 billion parameters, of which a token meets a third.
MIXTURE = {"model_type": "mixtral", "num_hidden_layers": 12, "hidden_size": 1024, "intermediate_size": 1792, "num_attention_heads": 16,
           "num_key_value_heads": 4, "vocab_size": 32000, "max_position_embeddings": 1024, "num_local_experts": 8,
           "num_experts_per_tok": 2}
OWN = {"two-layers": TINY, "mixture": MIXTURE}
GRAPHS_OFF = ("gpt2-124m", "gpt2-1.5b")  # where graphs are compared: the most and the least to gain


class Shape:
    """A model, its micro-batch and its batch."""

    def __init__(self, name, micro, batch, seq_len=1024):
        self.name, self.micro, self.batch, self.seq_len = name, micro, batch, seq_len
        self.config = OWN.get(name) or json.load(open(os.path.join(ROOT, "models", "presets", name + ".json")))
        if self.config["vocab_size"] == 50257:
            self.config["vocab_size"] = PADDED

    def batched(self, micro, batch):
        other = copy.copy(self)
        other.micro, other.batch = micro, batch
        return other

    def write(self, folder):
        self.path = os.path.join(folder, self.name + ".json")
        json.dump(self.config, open(self.path, "w"))
        return self

    def flops(self):
        s, layers, h, V = (self.seq_len, *(self.config[key] for key in ("n_layer", "n_embd", "vocab_size")))
        return 72 * self.batch * s * layers * h * h * (1 + s / (6 * h) + V / (12 * layers * h))

    def plan(self):
        return ["--seq-len", self.seq_len, "--micro-batch-size", self.micro, "--batch-size", self.batch]


class Bench:
    def __init__(self, a):
        self.folder, self.tiny, self.steps = os.path.abspath(a.out), a.tiny, a.steps
        os.makedirs(self.folder, exist_ok=True)
        self.data = os.path.join(self.folder, "text.txt")
        text.write(self.data, 2000000 if not a.tiny else 20000)
        plugin = os.environ.setdefault("RANVIER_DEVICE_CUDA", os.path.join(ranvier.BIN, "device_cuda.so"))
        if not os.path.exists(plugin):
            del os.environ["RANVIER_DEVICE_CUDA"]
        self.tool = os.path.join(ranvier.BIN, "..", "tests", "gpu")
        self.shapes = [Shape(*shape).write(self.folder) for shape in (
            [("two-layers", 1, 2, 16)] if a.tiny else
            [("gpt2-124m", 16, 64), ("gpt2-350m", 16, 64), ("gpt2-774m", 8, 32), ("gpt2-1.5b", 8, 32)])]
        self.results = {}

    # ---- programs ----

    def ask(self, *arguments):
        """The JSON that tests/bench/gpu.c prints; its complaint ends this program as it ended that one."""
        done = subprocess.run([self.tool, *map(str, arguments)], capture_output=True, text=True, timeout=550)
        if done.returncode:
            print(done.stderr.strip(), file=sys.stderr)
            sys.exit(done.returncode)
        return json.loads(done.stdout)

    def train(self, shape, *more, precision="bf16", steps=None):
        report = os.path.join(self.folder, "report.json")
        status, _, err = ranvier.run(
            ["train", shape.path, "--device", "cuda", "--precision", precision, "--fusion", "on", *shape.plan(), "--data",
             self.data, "--validation-fraction", 0, "--steps", steps or self.steps, "--report", report, *more], ranks=1,
            timeout=560)
        if status:
            sys.exit(f"train {shape.name} {' '.join(map(str, more))} failed:\n{err}")
        return json.load(open(report))

    def calibrate(self, name, shapes, micros, *more):
        profile = os.path.join(self.folder, f"profile-{name}.json")
        status, out, err = ranvier.run(
            ["calibrate", "--device", "cuda", "--quick", "--precision", "bf16", "--fusion", "on", "--pp", 1, "--model",
             ",".join(shape.path for shape in shapes), "--seq-len", shapes[0].seq_len, "--micro-batch-size",
             ",".join(map(str, micros)), *more, "--out", profile], timeout=560)
        if status:
            sys.exit("calibrate failed:\n" + err)
        open(os.path.join(self.folder, f"calibrate-{name}.txt"), "w").write(out)
        return profile

    def rate_of(self, key):
        return self.results["rate"][key]["median"]


def tera(flops):
    return f"{flops / 1e12:.1f}" if flops >= 1e11 else f"{flops / 1e12:.2g}"


# ---- parts ----

def part_rate(bench):
    rate = bench.results["rate"] = bench.ask("rate", 64 if bench.tiny else 8192)
    device, matrix = rate["device"], rate["flops_per_second"]
    peak = next((flops for name, flops in DATASHEET if name in device["name"]), None)
    rate["datasheet_flops_per_second"] = peak
    share = f", {100 * matrix['median'] / peak:.1f} % of the datasheet's {tera(peak)}" if peak else ""
    print(f"device     {device['name']}, driver {device['driver']}, {device['processors']} multiprocessors, "
          f"{device['clock_hertz'] / 1e6:.0f} MHz, memory {device['memory_clock_hertz'] / 1e6:.0f} MHz")
    print(f"matrices   {tera(matrix['median'])} Tflop/s in bf16, {rate['matrix']} cubed, random numbers "
          f"({tera(matrix['p10'])} to {tera(matrix['p90'])}){share}")
    print(f"memory     {bench.rate_of('memory_bytes_per_second') / 1e9:.0f} GB/s, read and written by one kernel")
    print(f"host link  {bench.rate_of('host_to_device') / 1e9:.1f} GB/s to the device, "
          f"{bench.rate_of('device_to_host') / 1e9:.1f} back, {bench.rate_of('each_of_both') / 1e9:.1f} each way at once\n")


def measured(bench, shape, report):
    seconds, flops = report["batch_seconds"], shape.flops()
    row = {"model": shape.name, "micro_batch_size": shape.micro, "batch_size": shape.batch, "seconds": seconds,
           "tokens_per_second": shape.batch * shape.seq_len / seconds["median"],
           "flops_per_second": flops / seconds["median"],
           "percent_of_matrix_rate": 100 * flops / seconds["median"] / bench.rate_of("flops_per_second")}
    if bench.results["rate"]["datasheet_flops_per_second"]:
        row["percent_of_datasheet"] = 100 * row["flops_per_second"] / bench.results["rate"]["datasheet_flops_per_second"]
    return row


def show_row(row, note=""):
    seconds = row["seconds"]
    sheet = f"{row['percent_of_datasheet']:8.1f} %" if "percent_of_datasheet" in row else f"{'not known':>10}"
    print(f"{row['model']:11} {row['micro_batch_size']:3} {row['batch_size']:5} {row['tokens_per_second']:12.0f} "
          f"{tera(row['flops_per_second']):>9} {row['percent_of_matrix_rate']:8.1f} % {sheet}  "
          f"{1e3 * seconds['median']:.1f} ms ({1e3 * seconds['p10']:.1f} to {1e3 * seconds['p90']:.1f}){note}", flush=True)


def part_gpt(bench):
    rows = bench.results["gpt"] = []
    print(f"{'model':11} {'B':>3} {'batch':>5} {'tokens/s':>12} {'Tflop/s':>9} {'of matrix':>10} {'datasheet':>10}  a batch")
    for shape in bench.shapes:
        row = measured(bench, shape, bench.train(shape))
        show_row(row)
        if shape.name in GRAPHS_OFF or bench.tiny:
            without = measured(bench, shape, bench.train(shape, "--cuda-graphs", "off"))
            row["graphs_gain"] = without["seconds"]["median"] / row["seconds"]["median"]
            show_row(without, f" without graphs: {row['graphs_gain']:.3f} x as long")
        rows.append(row)
    print()


def pytorch(bench, shape):
    """Seconds of the batches that PyTorch trains; a sentence if it cannot."""
    config = shape.config
    command = [sys.executable, os.path.join(HERE, "gpt2_pytorch.py"), "--steps", bench.steps - 2]
    for option, value in (("n-layer", config["n_layer"]), ("n-embd", config["n_embd"]), ("n-head", config["n_head"]),
                          ("vocab-size", config["vocab_size"]), ("seq-len", shape.seq_len), ("micro-batch-size", shape.micro),
                          ("batch-size", shape.batch)):
        command += ["--" + option, value]
    done = subprocess.run(list(map(str, command)), capture_output=True, text=True, timeout=560)
    if done.returncode:
        return done.stderr.strip().splitlines()[-1]
    return json.loads(done.stdout.strip().splitlines()[-1])


def part_pytorch(bench):
    rows = bench.results["pytorch"] = []
    for shape in bench.shapes:
        ours = [bench.train(shape)["batch_seconds"]["median"]]  # once before and once after: the machine drifts
        theirs = pytorch(bench, shape)
        if isinstance(theirs, str):
            print(f"pytorch    {theirs}; nothing to compare with\n")
            bench.results["pytorch"] = theirs
            return
        ours.append(bench.train(shape)["batch_seconds"]["median"])
        median = statistics.median(theirs["seconds"])
        ratio = median / statistics.mean(ours)
        rows.append({"model": shape.name, "torch": theirs["torch"], "pytorch_seconds": theirs["seconds"],
                     "ranvier_seconds": ours, "ratio": ratio, "pytorch_memory_bytes": theirs["memory_bytes"]})
        print(f"{shape.name:11} PyTorch {theirs['torch']} {shape.batch * shape.seq_len / median:.0f} tokens/s, ranvier "
              f"{shape.batch * shape.seq_len / statistics.mean(ours):.0f}: {ratio:.3f} x PyTorch's", flush=True)
    print()


def part_kernels(bench):
    shapes = bench.shapes[-1:]
    profile = bench.calibrate("kernels", shapes, [shapes[0].micro])
    rows = bench.ask("kernels", profile, bench.rate_of("flops_per_second"), bench.rate_of("memory_bytes_per_second"))
    bench.results["kernels"] = rows
    print(f"kernels of {shapes[0].name}, micro-batch {shapes[0].micro}, and the bound by the rates above")
    print(f"{'kernel':28} {'batch x m x n x k':>28} {'measured':>12} {'bound':>12} {'ratio':>7}")
    for row in sorted(rows, key=lambda row: -row["seconds"]):
        size = " x ".join(str(row[key]) for key in ("batch", "m", "n", "k"))
        print(f"{row['kernel']:28} {size:>28} {1e6 * row['seconds']:9.1f} us {1e6 * row['bound_seconds']:9.1f} us "
              f"{row['seconds'] / row['bound_seconds']:7.2f}")
    print()


class Watch(threading.Thread):
    """The most memory in use on the first GPU while it runs, by nvidia-smi, and before; None if there is no such thing."""

    def __init__(self):
        super().__init__(daemon=True)
        self.most = self.before = self.used()
        self.over = threading.Event()
        if self.before is not None:
            self.start()

    @staticmethod
    def used():
        try:
            done = subprocess.run(["nvidia-smi", "--query-gpu=memory.used", "--format=csv,noheader,nounits", "-i", "0"],
                                  capture_output=True, text=True, timeout=20)
            return int(done.stdout.split()[0]) * 2**20
        except (OSError, ValueError, IndexError, subprocess.TimeoutExpired):
            return None

    def run(self):
        while not self.over.wait(0.1):
            self.most = max(self.most, self.used() or 0)

    def end(self):
        self.over.set()
        return None if self.before is None else self.most - self.before


def gib(count):
    return "not known" if count is None else f"{count / 2**30:.2f} GiB"


def part_offload(bench):
    shape = bench.shapes[-2] if len(bench.shapes) > 1 else bench.shapes[0]
    rows = bench.results["offload"] = {}
    bucket = ("--bucket-params", 3000) if bench.tiny else ()
    for name, more in (("off", bucket), ("on", ("--offload", "--clip", 0, *bucket))):
        watch = Watch()
        report = bench.train(shape, *more, steps=5)
        states = sum(report["memory"]["by_category"].get(key, 0)
                     for key in ("weights", "gradients", "master", "optimizer", "buckets"))
        rows[name] = {"driver_bytes": watch.end(), "allocated_bytes": report["memory"]["device_peak_bytes"],
                      "state_bytes": states, "optimizer_seconds": report["phases"]["optimizer_seconds"]}
        print(f"{shape.name}, offloading {name:3}: the driver counts {gib(rows[name]['driver_bytes'])}, "
              f"{gib(rows[name]['allocated_bytes'])} allocated, of it {gib(states)} model states; optimizer phase "
              f"{1e3 * rows[name]['optimizer_seconds']:.1f} ms", flush=True)
    both = bench.rate_of("each_of_both")
    parameters = json.load(open(os.path.join(bench.folder, "report.json")))["memory"]["by_category"]["weights"] / 2
    rows["bound_seconds"] = 12 * parameters / both  # 12 bytes a parameter each way, both at once
    rows["states_ratio"] = rows["off"]["state_bytes"] / rows["on"]["state_bytes"]
    rows["phase_ratio"] = rows["on"]["optimizer_seconds"] / rows["bound_seconds"]
    print(f"model states {rows['states_ratio']:.2f} x smaller; the phase takes {rows['phase_ratio']:.2f} x its copies at the "
          f"rate of both directions at once ({1e3 * rows['bound_seconds']:.1f} ms)\n")


def part_prediction(bench):
    """Models x micro-batch sizes x batches of GPT-2; the profile has seen their kernels, no batch of theirs."""
    small, medium, large, _ = bench.shapes if not bench.tiny else 4 * bench.shapes
    predict(bench, "prediction", [(small, 1, 2), (small, 2, 4)] if bench.tiny else
            [(small, 4, 32), (small, 8, 32), (small, 8, 64), (small, 16, 64), (medium, 4, 16), (medium, 8, 32), (medium, 16, 64),
             (large, 4, 16), (large, 8, 16), (large, 8, 32)])


def part_families(bench):
    """The same of larger and other models."""
    if bench.tiny:
        return
    llama, largest = Shape("llama3.2-1b", 4, 16).write(bench.folder), bench.shapes[-1]
    predict(bench, "families", [(llama, 4, 16), (llama, 8, 32), (largest, 4, 32)])


def part_mixture(bench):
    if bench.tiny:
        return
    mixture = Shape("mixture", 4, 16).write(bench.folder)
    predict(bench, "mixture", [(mixture, 4, 16), (mixture, 8, 16), (mixture, 8, 32)])


def predict(bench, name, plans):
    shapes = sorted({shape for shape, _, _ in plans}, key=lambda shape: shape.name)
    profile = bench.calibrate(name, shapes, sorted({micro for _, micro, _ in plans}), "--time-products", "--seconds",
                              4 if bench.tiny else 30)
    rows = bench.results[name] = []
    for shape, micro, batch in plans:
        shape = shape.batched(micro, batch)
        found = bench.train(shape, "--products", profile)["batch_seconds"]["median"]
        report = os.path.join(bench.folder, "predicted.json")
        status, _, err = ranvier.run(["simulate", shape.path, "--precision", "bf16", "--fusion", "on", *shape.plan(), "--gpus", 1,
                                      "--profile", profile, "--platform", "local", "--report", report])
        if status:
            sys.exit(f"simulate {shape.name} failed:\n{err}")
        predicted, low, high = (json.load(open(report))["batch_seconds"][key] for key in ("median", "low", "high"))
        rows.append({"model": shape.name, "micro_batch_size": micro, "batch_size": batch, "measured_seconds": found,
                     "predicted_seconds": predicted, "error": predicted / found - 1, "inside": low <= found <= high})
        print(f"{shape.name:11} {micro:3} {batch:5}  measured {1e3 * found:9.2f} ms, predicted {1e3 * predicted:9.2f} ms "
              f"({100 * rows[-1]['error']:+.1f} %)" + ("" if low <= found <= high else ", outside its interval"), flush=True)
    errors = [abs(row["error"]) for row in rows]
    print(f"{len(rows)} plans: median error {100 * statistics.median(errors):.1f} %, worst {100 * max(errors):.1f} %; "
          f"{sum(row['inside'] for row in rows)} inside the interval of nine in ten\n")


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("parts", nargs="*", metavar="PART", help="of " + " ".join(PARTS) + " (default: all)")
    parser.add_argument("--out", default="build/bench/gpu", help="folder of what is written")
    parser.add_argument("--steps", type=int, default=8, help="batches of a run; the first two are not counted")
    parser.add_argument("--tiny", action="store_true", help="shapes that an emulated GPU can do: tries this program out")
    a = parser.parse_args()
    wrong = [part for part in a.parts if part not in PARTS]
    if wrong:
        parser.error(f"there is no part '{wrong[0]}', only {' '.join(PARTS)}")
    bench = Bench(a)
    start = time.time()
    bench.ask("describe")  # without a GPU this is the end
    for part in PARTS:
        if part == "rate" or not a.parts or part in a.parts:
            globals()["part_" + part](bench)
    path = os.path.join(bench.folder, "gpu.json")
    with open(path, "w") as file:
        json.dump(bench.results, file, indent=1)
    print(f"written to {path} ({time.time() - start:.0f} s)")


if __name__ == "__main__":
    main()
