#!/usr/bin/env python3
"""Two builds of ranvier in turns, on an idle machine: what one takes through what the other takes, below 1 where this tree's
is better. Each ratio is of runs that follow each other, the first of them by turns; the median and the quartiles are printed.

    make bench-builds OTHER=/path/of/another/tree

steps     a training's step, and the memory of its process (bench.py's shapes), on one and on two threads
ranks     a step in two stages, in two replicas, and with two shards
simulate  processor seconds of one prediction of 98,304 GPUs, replicas folded
sweep     processor seconds of a sweep that weighs all plans on paper and simulates one
"""
import argparse, json, os, resource, statistics, subprocess, sys

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, HERE)
import bench
import ranvier

SIMULATED = ["simulate", "gpt-100b", "--profile", "a100-datasheet", "--platform", "{platform}", "--gpus", "98304", "--pp", "48",
             "--dp", "2048", "--micro-batch-size", "1", "--batch-size", "2097152", "--schedule", "1f1b", "--ignore-memory"]
SWEPT = ["sweep", "gpt-12b", "--profile", "a100-datasheet", "--platform", "selene", "--gpus", "48,96,192,384", "--batch-size",
         "16384", "--micro-batch-size", "1,2,4,8", "--plans", "all", "--offload", "both", "--simulate", "1", "--jobs", "1"]


class Builds:
    def __init__(self, other, runs, scratch):
        self.trees, self.runs = (bench.HERE + "/../..", os.path.abspath(other)), runs
        self.bench = bench.Bench(argparse.Namespace(out=scratch, runs=runs, only="", setting=0))

    def ratios(self, measure, runs):
        """measure(bin): figures of one run; a list of ratios, this tree's through the other's, for each."""
        found = []
        for run in range(runs):
            taken = {}
            for tree in self.trees if run % 2 == 0 else self.trees[::-1]:
                taken[tree] = measure(os.path.join(tree, "build", "bin"))
            found.append([a / b for a, b in zip(taken[self.trees[0]], taken[self.trees[1]])])
        return list(zip(*found))

    def show(self, name, what, values):
        low, _, high = statistics.quantiles(values, n=4) if len(values) > 1 else values * 3
        print(f"{name:44} {what:18} {statistics.median(values):7.4f}   {low:.4f} to {high:.4f} in {len(values)}", flush=True)

    def step(self, name, shape, threads, flags=(), ranks=1, runs=None):
        def measure(binaries):
            ranvier.BIN = binaries
            seconds, report = self.bench.ours(shape, threads, flags, ranks, steps=6 if shape.length <= 64 else 3)
            return seconds, report["memory"]["host_peak_bytes"], report["memory"]["device_peak_bytes"]
        seconds, process, device = self.ratios(measure, runs or self.runs)
        self.show(name, "step", seconds)
        self.show(name, "memory, process", process)
        self.show(name, "memory, planned", device)

    def command(self, name, arguments):
        def measure(binaries):
            before = resource.getrusage(resource.RUSAGE_CHILDREN)
            subprocess.run([os.path.join(binaries, "ranvier"), *arguments], check=True, stdout=subprocess.DEVNULL,
                           stderr=subprocess.DEVNULL)
            after = resource.getrusage(resource.RUSAGE_CHILDREN)
            return [after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime]
        self.show(name, "processor time", self.ratios(measure, self.runs)[0])


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("other", help="another tree, built")
    parser.add_argument("parts", nargs="*", default=[], metavar="PART", help="of steps ranks simulate sweep (default: all)")
    parser.add_argument("--runs", type=int, default=7)
    parser.add_argument("--only", default="", help="shapes of steps whose name has this text, such as 'T 256, 2 threads'")
    parser.add_argument("--out", default="bench")
    options = parser.parse_args()
    parts = options.parts or ["steps", "ranks", "simulate", "sweep"]
    if not os.path.exists(os.path.join(options.other, "build", "bin", "ranvier")):
        sys.exit(f"builds.py: {options.other} has no build/bin/ranvier: build it first")
    builds = Builds(options.other, options.runs, options.out)
    for shape in bench.SHAPES if "steps" in parts else []:
        for threads in bench.threads_of(builds.bench):
            if options.only in bench.named(shape, threads) and (shape.length < 1024 or threads == builds.bench.cores):
                builds.step(bench.named(shape, threads), shape, threads, runs=3 if shape.length >= 1024 else None)
    if "ranks" in parts:
        for name, flags in (("2 stages", ["--pp", 2]), ("2 replicas", ["--dp", 2]), ("2 shards", ["--tp", 2])):
            if options.only in name:
                builds.step(name, bench.PARALLEL, 1, flags, ranks=2)
    if "simulate" in parts:
        platform = os.path.join(options.out, "work", "platform.json")
        with open(os.path.join(HERE, "../../sim/platforms/generic.json")) as file:
            large = json.load(file)
        with open(platform, "w") as file:
            json.dump(dict(large, nodes=dict(large["nodes"], value=98304 // large["gpus_per_node"]["value"])), file)
        builds.command("simulate, 98,304 GPUs folded", [word.format(platform=platform) for word in SIMULATED])
    if "sweep" in parts:
        builds.command("sweep, all plans on paper", SWEPT)


main()
