#!/bin/bash
# How fast the simulation is, on one core: wall and processor seconds, the least of RUNS (3), memory, operations a
# second. The pipeline job of fixed stage times beside what independent engines published of it; large plans with
# replicas folded and not. The goals are in the last column; nothing here fails for being slow.
set -eu
cd "$(dirname "$0")/../.."
exec python3 - "${RANVIER_BIN:-build/bin}/ranvier-sim" "${RUNS:-3}" "$@" <<'END'
import json, os, subprocess, sys, tempfile, time

program, runs, parts = sys.argv[1], int(sys.argv[2]), sys.argv[3:] or ["engines", "scale"]
fixtures = "tests/fixtures/"
folder = tempfile.TemporaryDirectory()
report = folder.name + "/report.json"


def run(arguments):
    """Seconds by the clock and of the processor, megabytes, the report: of the fastest of several runs."""
    best = None
    for _ in range(runs):
        begin = time.monotonic()
        child = subprocess.Popen(["taskset", "-c", "0", program, "simulate"] + arguments + ["--report", report],
                                 stdout=subprocess.DEVNULL)
        _, status, used = os.wait4(child.pid, 0)
        wall = time.monotonic() - begin
        if status:
            sys.exit("simulate " + " ".join(arguments) + " failed")
        figures = (used.ru_utime + used.ru_stime, wall, used.ru_maxrss * 1024 / 1e6, json.load(open(report)))
        best = min(best, figures, key=lambda f: f[0]) if best else figures
    return best


def line(name, figures, goal):
    processor, wall, megabytes, result = figures
    operations = result["simulation"]["operations"]
    print("%-34s %10.3f s %9.2f s %9.2f s %6.0f MB %9d %8.0f   %s"
          % (name, result["batch_seconds"]["median"], wall, processor, megabytes, operations, operations / processor / 1e3,
             goal))


def head(title):
    print("\n%-34s %12s %11s %11s %9s %9s %8s   %s"
          % (title, "batch", "wall", "processor", "memory", "operat.", "1000/s", "goal"))


def engines():
    """1F1B, forward 60 ms, backward 180 ms on every stage, 36.96 MB over 10 GB/s links of 2 us, no optimizer."""
    published = {(24, 64): (21.512, 21.535, 21.452), (24, 1024): (259.013, 259.391, 258.189),
                 (384, 1024): (348.076, 348.454, 347.345)}
    goals = {(24, 64): "", (24, 1024): "1 s", (384, 1024): "8 s, 300 MB"}
    head("1F1B, stages x micro-batches")
    errors = []
    for (stages, micro_batches), others in published.items():
        model = json.load(open(fixtures + "model_24_layers.json"))
        model["n_layer"] = stages
        path = folder.name + "/model.json"
        json.dump(model, open(path, "w"))
        for p2p in "async", "blocking":
            figures = run([path, "--profile", fixtures + "profile_60_180.json", "--platform",
                           fixtures + "platform_10gb_links.json", "--gpus", str(stages), "--pp", str(stages),
                           "--micro-batch-size", "6", "--batch-size", str(6 * micro_batches), "--clip", "0",
                           "--schedule", "1f1b", "--p2p", p2p])
            line("%d x %d, messages %s" % (stages, micro_batches, p2p), figures, goals[stages, micro_batches])
            batch = figures[3]["batch_seconds"]["median"]
            errors.append("%4d x %5d %-9s" % (stages, micro_batches, p2p) +
                          "".join("%10.3f s %+6.2f %%" % (other, 100 * (batch / other - 1)) for other in others))
    print("\nours against       %19s %19s %19s" % ("LogGOPSim", "SMPI replay", "ASTRA-sim"))
    print("\n".join(errors))
    print("their wall time and memory, on another 2-core machine: 24 x 1024: 0.12, 0.83, 1.0 s; 384 x 1024: 4.4 s and "
          "265 MB, 16.9 s, 23 to 28 s and 3.5 GB")


def scale():
    summit = ["--profile", "v100-datasheet", "--platform", "summit", "--precision", "mixed", "--recompute", "full",
              "--seq-len", "512", "--ignore-memory", "--micro-batch-size", "1"]
    head("plans")
    jobs = [("12B, 48 x 8 x 256, unfolded", ["gpt-12b", "--profile", "a100-datasheet", "--precision", "fp32", "--platform", "generic", "--gpus",
                                              "384", "--pp", "48", "--dp", "8", "--micro-batch-size", "1", "--batch-size",
                                              "2048", "--fold", "off"], ""),
            ("100B, 48 x 8 x 1024, folded", ["gpt-100b", "--gpus", "384", "--pp", "48", "--dp", "8", "--batch-size",
                                              "8192", "--fold", "on"] + summit, "1 s"),
            ("100B, 48 x 8 x 1024, unfolded", ["gpt-100b", "--gpus", "384", "--pp", "48", "--dp", "8", "--batch-size",
                                                "8192", "--fold", "off"] + summit, "8 s"),
            ("100B, 48 x 208 x 64, 9,984 GPUs", ["gpt-100b", "--gpus", "9984", "--pp", "48", "--dp", "208",
                                                  "--batch-size", str(208 * 64), "--fold", "on"] + summit, "5 s"),
            ("100B, 96 x 104 x 256, 9,984 GPUs", ["gpt-100b", "--gpus", "9984", "--pp", "96", "--dp", "104",
                                                   "--batch-size", str(104 * 256), "--fold", "on"] + summit, "5 s")]
    for name, arguments, goal in jobs:
        line(name, run(arguments), goal)


for part in parts:
    {"engines": engines, "scale": scale}[part]()
END
