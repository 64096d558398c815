#!/usr/bin/python3
"""What AxoNN's offloading is predicted to buy: GPT 12B on 48 V100s of Summit (datasheet figures, nothing of it measured
here). Memory at pp 24 x dp 2 with and without offloading; which plans fit 16 GB; the best plan of each kind, and the
difference between the two split into its terms.

    tests/bench/axonn.py [--gpus 48] [--model gpt-12b] [--batch-size 16384]        (make bench-axonn)

The terms of a plan's time per batch: *compute*, what the mean GPU computes; *uneven stages*, what the busiest GPU computes
beyond that; *messages*, the pipeline phase less that of the same plan with links that take no time; *bubble*, the rest of
the pipeline phase: fill, drain and waits; *all-reduce* and *optimizer*, the phases that follow. They add up.

Percent of peak counts the flops that our recomputation does (88 B s l h^2 and the output projection), published figures
the whole layer's (96).
"""
import argparse
import csv
import json
import os
import sys
import tempfile

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(HERE, "..", "cli"))
import ranvier

ROOT = os.path.join(HERE, "..", "..")
TERMS = ("compute", "uneven stages", "messages", "bubble", "all-reduce", "optimizer")


def simulate(plan, platform, folder, *more):
    report = os.path.join(folder, "report.json")
    status, _, err = ranvier.run(["simulate", *plan, "--profile", "v100-datasheet", "--platform", platform, *more,
                                  "--report", report], timeout=3600)
    if status:
        sys.exit("simulate " + " ".join(map(str, plan)) + " failed:\n" + err)
    return json.load(open(report))


def instant_links(folder):
    """Summit whose links between GPUs take no time; those to host memory stay."""
    platform = json.load(open(os.path.join(ROOT, "sim", "platforms", "summit.json")))
    for link in ("gpu_link", "nic", "socket_link"):
        platform[link] = {"value": 1e9, "unit": "GB/s", "source": "without messages"}
        platform[link + "_latency"] = {"value": 0, "unit": "s", "source": "without messages"}
    path = os.path.join(folder, "instant.json")
    json.dump(platform, open(path, "w"))
    return path


def terms(plan, folder):
    real = simulate(plan, "summit", folder)
    without = simulate(plan, instant_links(folder), folder)["phases"]["pipeline_seconds"]
    phases = real["phases"]
    pipeline, mean = phases["pipeline_seconds"], phases["pipeline_seconds"] * (1 - phases["bubble_fraction"])
    values = (mean, phases["busiest_seconds"] - mean, pipeline - without, without - phases["busiest_seconds"],
              phases["allreduce_seconds"], phases["optimizer_seconds"])
    return real, dict(zip(TERMS, values))


def sweep(model, gpus, batch, folder):
    """Rows of `ranvier sweep`: the best plan first, with and without offloading."""
    path = os.path.join(folder, "sweep.csv")
    status, out, err = ranvier.run(["sweep", model, "--profile", "v100-datasheet", "--platform", "summit", "--gpus", gpus,
                                    "--offload", "both", "--batch-size", batch, "--recompute", "full", "--clip", 0,
                                    "--csv", path], timeout=3600)
    if status:
        sys.exit("sweep failed:\n" + err)
    print(out)
    return list(csv.DictReader(open(path)))


def plan_of(row, model, gpus, batch):
    plan = [model, "--gpus", gpus, "--pp", row["pp"], "--dp", row["dp"], "--micro-batch-size", row["micro_batch_size"],
            "--batch-size", batch, "--precision", "mixed", "--recompute", row["recompute"], "--clip", 0]
    plan += ["--offload"] if row["offload"] == "yes" else []
    return plan + (["--offload-activations"] if row["offload_activations"] == "yes" else [])


def show_memory(model, gpus, batch, folder):
    plan = [model, "--gpus", gpus, "--pp", 24, "--dp", gpus // 24, "--micro-batch-size", 1, "--batch-size", batch,
            "--precision", "mixed", "--recompute", "full", "--clip", 0]
    totals = [simulate(plan, "summit", folder, "--ignore-memory", *more)["memory"]["device_total_bytes"]
              for more in ((), ("--offload",))]
    print(f"{model}, pp 24 x dp {gpus // 24}: {totals[0] / 2**30:.1f} GiB on all GPUs without offloading, "
          f"{totals[1] / 2**30:.1f} GiB with: {totals[0] / totals[1]:.2f} times less")


def show_fits(model, gpus, batch, folder):
    print("\nwhich plans fit 16 GB, micro-batch 1 (GiB of the largest GPU, without and with offloading):")
    layers = json.load(open(os.path.join(ROOT, "models", "presets", model + ".json")))["n_layer"]
    for pp in [p for p in range(1, layers + 1) if gpus % p == 0 and batch % (gpus // p) == 0]:
        needs = []
        for more in ((), ("--offload",)):
            # Memory does not depend on how many micro-batches there are beyond those under way: a short batch is enough.
            plan = [model, "--gpus", gpus, "--pp", pp, "--dp", gpus // pp, "--micro-batch-size", 1, "--batch-size",
                    gpus // pp * 2 * pp, "--precision", "mixed", "--recompute", "full", *more]
            needs.append(simulate(plan, "summit", folder, "--ignore-memory")["memory"]["device_peak_bytes"])
        print(f"  pp {pp:2} x dp {gpus // pp:2}   " + "   ".join(
            f"{need / 2**30:6.1f} {'fits' if need <= 16e9 else 'does not fit':12}" for need in needs))


def show_gain(rows, model, gpus, batch, folder):
    best = {row["offload"]: row for row in rows if row["best"] == "1"}
    if set(best) != {"no", "yes"}:
        sys.exit("no plan fits without offloading" if "no" not in best else "no plan fits")
    split = {}
    for offload, row in best.items():
        split[offload] = terms(plan_of(row, model, gpus, batch), folder)
    without, with_ = (sum(split[key][1].values()) for key in ("no", "yes"))
    for offload in ("no", "yes"):
        row = best[offload]
        print(f"{'with' if offload == 'yes' else 'without'} offloading: pp {row['pp']} x dp {row['dp']}, micro-batch "
              f"{row['micro_batch_size']}: {sum(split[offload][1].values()):.2f} s a batch, "
              f"{split[offload][0]['percent_of_peak']:.1f} % of peak")
    print(f"gain {100 * (without / with_ - 1):.1f} % (published: over 13 %); in seconds a batch:\n")
    print(f"  {'term':14} {'without':>9} {'with':>9} {'gain':>9}   of the batch")
    for term in TERMS:
        a, b = split["no"][1][term], split["yes"][1][term]
        print(f"  {term:14} {a:9.2f} {b:9.2f} {a - b:+9.2f}   {100 * (a - b) / without:+5.1f} %")
    print(f"  {'sum':14} {without:9.2f} {with_:9.2f} {without - with_:+9.2f}   {100 * (without - with_) / without:+5.1f} %")


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--gpus", type=int, default=48)
    parser.add_argument("--model", default="gpt-12b")
    parser.add_argument("--batch-size", type=int, default=16384, help="sequences; AxoNN's 24B run used 16384")
    a = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        show_memory(a.model, a.gpus, a.batch_size, folder)
        show_fits(a.model, a.gpus, a.batch_size, folder)
        print()
        show_gain(sweep(a.model, a.gpus, a.batch_size, folder), a.model, a.gpus, a.batch_size, folder)


if __name__ == "__main__":
    main()
