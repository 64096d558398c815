#!/usr/bin/python3
"""The tables and figures of AxoNN's paper (Singh & Bhatele, IPDPS 2022), from simulation: GPTs of 12 to 100 billion
parameters on 48 to 384 V100s of Summit, as AxoNN, Megatron-LM and DeepSpeed would train them, each with its own best plan.

    tests/bench/paper.py [--out paper] [--models gpt-12b,...] [--batch-size 16384]        (make paper)

Nothing here was measured by us, and nothing is chosen to meet a published figure: the V100's profile and Summit rest on
datasheets and on measurements that others published, none of them AxoNN's. What is compared is what the paper's abstract
says (arXiv 2110.13005).

The three frameworks are three plans:

  AxoNN        message-driven schedule, asynchronous messages, no tensor parallelism; the optimizer's state offloaded or
               not, whichever is faster
  Megatron-LM  1F1B with blocking messages, tensor parallelism inside a node
  DeepSpeed    the same, and the optimizer's state sharded over the replicas (ZeRO-1)

all in mixed precision, recomputing whole layers, gradients summed at the end.

The terms of a plan's time per batch: *compute*, what the mean GPU computes; *uneven stages*, what the busiest GPU computes
beyond that; *shards*, what the mean GPU spends in collectives of tensor parallelism; *messages*, what else the pipeline
phase is shorter by if links between GPUs take no time; *bubble*, the rest of the pipeline phase: fill, drain and waits;
*all-reduce* and *optimizer*, the phases that follow. They add up.
"""
import argparse
import csv
import json
import os
import sys

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(HERE, "..", "cli"))
import ranvier

ROOT = os.path.join(HERE, "..", "..")
MODELS = {"gpt-12b": 48, "gpt-24b": 96, "gpt-50b": 192, "gpt-100b": 384}
MACHINE = ["--profile", "v100-datasheet", "--platform", "summit"]
ALL = ["--precision", "mixed", "--clip", 0]
OTHERS = ["--schedule", "1f1b", "--p2p", "blocking", "--order", "replicas"]
FRAMEWORKS = {"AxoNN": [], "Megatron-LM": OTHERS, "DeepSpeed": [*OTHERS, "--zero", 1]}
SEARCH = {"AxoNN": ["--offload", "both"], "Megatron-LM": ["--offload", "no", "--tp", "1,2,3,6"],
          "DeepSpeed": ["--offload", "no", "--tp", "1,2,3,6"]}
TERMS = ("compute", "uneven stages", "shards", "messages", "bubble", "all-reduce", "optimizer")
PUBLISHED = "published (abstract)"


def run(command, what):
    status, out, err = ranvier.run(command, timeout=3600)
    if status:
        sys.exit(f"{what} failed:\n{err}")
    return out


class Paper:
    def __init__(self, folder, batch):
        self.folder, self.batch = folder, batch
        self.lines = []
        self.instant = self.instant_links()

    def say(self, text=""):
        print(text, flush=True)
        self.lines.append(text)

    def table(self, header, rows):
        self.say("| " + " | ".join(header) + " |")
        self.say("|" + "---|" * len(header))
        for row in rows:
            self.say("| " + " | ".join(map(str, row)) + " |")
        self.say()

    def path(self, name):
        return os.path.join(self.folder, name)

    def instant_links(self):
        """Summit whose links between GPUs take no time; those to host memory stay."""
        platform = json.load(open(os.path.join(ROOT, "sim", "platforms", "summit.json")))
        for link in ("gpu_link", "nic", "socket_link"):
            platform[link] = {"value": 1e9, "unit": "GB/s", "source": "without messages"}
            platform[link + "_latency"] = {"value": 0, "unit": "s", "source": "without messages"}
        json.dump(platform, open(self.path("instant.json"), "w"))
        return self.path("instant.json")

    def simulate(self, name, plan, machine=None, *more):
        report = self.path(name + ".json")
        run(["simulate", *plan, *(machine or MACHINE), *more, "--report", report], "simulate " + " ".join(map(str, plan)))
        return json.load(open(report))

    def sweep(self, framework, model, gpus, *more):
        """The best plan of each number of GPUs, with and without offloading where both were asked for: its row."""
        path = self.path(f"sweep-{framework}-{model}{'-'.join(('', *map(str, more)))}.csv".replace("--", ""))
        run(["sweep", model, *MACHINE, "--gpus", gpus, "--batch-size", self.batch, "--recompute", "layer", *ALL,
             *FRAMEWORKS[framework], *SEARCH[framework], *more, "--csv", path], f"sweep of {framework}, {model}")
        return [row for row in csv.DictReader(open(path)) if row["best"] == "1"]

    def plan(self, framework, model, row):
        """The command line of a sweep's row."""
        plan = [model, "--gpus", row["gpus"], "--pp", row["pp"], "--dp", row["dp"], "--tp", row["tp"], "--micro-batch-size",
                row["micro_batch_size"], "--batch-size", self.batch, "--recompute", row["recompute"], *ALL,
                *FRAMEWORKS[framework]]
        plan += ["--offload"] if row["offload"] == "yes" else []
        return plan + (["--offload-activations"] if row["offload_activations"] == "yes" else [])

    def terms(self, name, plan):
        real = self.simulate(name, plan)
        without = self.simulate(name + "-instant", plan, ["--profile", "v100-datasheet", "--platform", self.instant])
        phases, instant = real["phases"], without["phases"]
        mean = instant["pipeline_seconds"] * (1 - instant["bubble_fraction"]) - instant["tensor_seconds"]
        busiest = instant["busiest_seconds"] - instant["tensor_seconds"]
        communicated = phases["pipeline_seconds"] - instant["pipeline_seconds"] + instant["tensor_seconds"]
        return real, dict(zip(TERMS, (mean, busiest - mean, phases["tensor_seconds"],
                                      communicated - phases["tensor_seconds"],
                                      instant["pipeline_seconds"] - instant["busiest_seconds"],
                                      phases["allreduce_seconds"], phases["optimizer_seconds"])))


def grid(row):
    return f"{row['pp']} x {row['dp']}" + (f" x {row['tp']}" if row["tp"] != "1" else "") + f", b {row['micro_batch_size']}" \
        + (", offloaded" if row["offload"] == "yes" else "")


def fastest(rows):
    return min(rows, key=lambda row: float(row["batch_seconds"]))


def weak_scaling(paper, models):
    """Returns {(framework, model): row}."""
    paper.say("## Weak scaling\n")
    best = {(framework, model): fastest(paper.sweep(framework, model, MODELS[model])) for model in models
            for framework in FRAMEWORKS}
    rows = []
    for model in models:
        for framework in FRAMEWORKS:
            row = best[framework, model]
            rows.append((model, MODELS[model], framework, grid(row), f"{float(row['batch_seconds']):.1f}",
                         f"{float(row['percent_of_peak']):.1f}", f"{float(row['training_days']):.0f}"))
    paper.table(("model", "GPUs", "as", "stages x replicas (x shards), micro-batch", "s a batch", "% of peak",
                 "days for 300 billion tokens"), rows)
    others, rows = [name for name in FRAMEWORKS if name != "AxoNN"], []
    for model in models:
        mine, cells = best["AxoNN", model], []
        for theirs in [best[name, model] for name in others] + [fastest([best[name, model] for name in others])]:
            speedup = float(theirs["batch_seconds"]) / float(mine["batch_seconds"]) - 1
            saved = float(theirs["training_days"]) - float(mine["training_days"])
            cells.append(f"{100 * speedup:+.1f} %, {saved:.0f} days")
        rows.append((model, f"{float(mine['percent_of_peak']):.1f}", *cells))
    rows.append((PUBLISHED, "49.4 to 54.78", "", "", "15 to 25 %, 22 to 37 days"))
    paper.say("AxoNN is faster, and saves in days, against\n")
    paper.table(("model", "% of peak", *others, "the better of the two"), rows)
    return best


def phases(paper, best, models):
    """Of every plan of the weak scaling, which also makes the reports that figures are drawn from."""
    paper.say("## Where the time goes\n")
    rows, split, reports = [], {}, []
    for (framework, model), row in best.items():
        name = f"{framework}-{model}"
        report, terms = paper.terms(name, paper.plan(framework, model, row))
        split[framework, model] = terms
        reports.append(paper.path(name + ".json"))
        total = sum(terms.values())
        rows.append((model, framework, grid(row), f"{total:.1f}", *(f"{100 * terms[term] / total:.1f} %" for term in TERMS)))
    paper.table(("model", "as", "plan", "s a batch", *TERMS), rows)
    run(["plot", "phases", paper.path("phases.png"), *reports], "plot phases")
    run(["plot", "memory", paper.path("memory.png"), *reports], "plot memory")
    paper.say("![phases](phases.png)\n")
    for model in models:
        other = min((name for name in FRAMEWORKS if name != "AxoNN"),
                    key=lambda name: float(best[name, model]["batch_seconds"]))
        mine, theirs = split["AxoNN", model], split[other, model]
        total = sum(theirs.values())
        paper.say(f"{model}: AxoNN against {other}, in percent of its time: " + ", ".join(
            f"{term} {100 * (theirs[term] - mine[term]) / total:+.1f}" for term in TERMS))
    paper.say()
    return split


def memory(paper, model="gpt-12b"):
    gpus = MODELS[model]
    plan = [model, "--gpus", gpus, "--pp", 24, "--dp", gpus // 24, "--micro-batch-size", 1, "--batch-size", paper.batch,
            "--recompute", "layer", *ALL, "--ignore-memory"]
    without, with_ = (paper.simulate("memory" + "".join(more), [*plan, *more])["memory"]["device_total_bytes"]
                      for more in ((), ("--offload",)))
    paper.say("## Memory\n")
    paper.say(f"{model}, 24 stages x {gpus // 24} replicas: {without / 2**30:.1f} GiB on all GPUs, offloaded "
              f"{with_ / 2**30:.1f} GiB: **{without / with_:.2f} times less** ({PUBLISHED}: four times).\n")


def fits(paper, model="gpt-12b"):
    gpus, rows = MODELS[model], []
    layers = json.load(open(os.path.join(ROOT, "models", "presets", model + ".json")))["n_layer"]
    for pp in [p for p in range(1, layers + 1) if gpus % p == 0 and paper.batch % (gpus // p) == 0]:
        needs = []
        for more in ((), ("--offload",)):
            # Memory does not depend on how many micro-batches there are beyond those under way: a short batch is enough.
            plan = [model, "--gpus", gpus, "--pp", pp, "--dp", gpus // pp, "--micro-batch-size", 1, "--batch-size",
                    gpus // pp * 2 * pp, "--recompute", "layer", *ALL, "--ignore-memory", *more]
            needs.append(paper.simulate("fits", plan)["memory"]["device_peak_bytes"])
        rows.append((f"{pp} x {gpus // pp}", *(f"{need / 2**30:.1f}{' fits' if need <= 16e9 else ''}" for need in needs)))
    paper.table((f"{model}, micro-batch 1: GiB of the largest GPU, of 16 GB", "", "offloaded"), rows)


def ablation(paper, model="gpt-12b"):
    gpus = MODELS[model]
    best = {row["offload"]: row for row in paper.sweep("AxoNN", model, gpus)}
    paper.say("## What offloading gains\n")
    if set(best) != {"no", "yes"}:
        paper.say(f"{model} on {gpus} GPUs: no plan fits {'without' if 'no' not in best else 'with'} offloading.\n")
        return
    split = {key: paper.terms(f"ablation-{key}", paper.plan("AxoNN", model, best[key]))[1] for key in best}
    without, with_ = (sum(split[key].values()) for key in ("no", "yes"))
    rows = [(term, f"{split['no'][term]:.2f}", f"{split['yes'][term]:.2f}",
             f"{100 * (split['no'][term] - split['yes'][term]) / without:+.1f} %") for term in TERMS]
    rows.append(("sum", f"{without:.2f}", f"{with_:.2f}", f"{100 * (without - with_) / without:+.1f} %"))
    paper.table((f"{model} on {gpus} GPUs, s a batch", grid(best["no"]), grid(best["yes"]), "of the former"), rows)
    paper.say(f"Throughput: **{100 * (without / with_ - 1):+.1f} %** ({PUBLISHED}: over 13 %).\n")


def strong_scaling(paper, model="gpt-12b"):
    paper.say("## Strong scaling\n")
    rows, reports = [], []
    for framework in FRAMEWORKS:
        found = paper.sweep(framework, model, "48,96,192,384")
        for gpus in ("48", "96", "192", "384"):
            row = fastest([row for row in found if row["gpus"] == gpus])
            name = f"strong-{framework}-{gpus}"
            paper.simulate(name, paper.plan(framework, model, row))
            reports.append(paper.path(name + ".json"))
            rows.append((framework, gpus, grid(row), f"{float(row['batch_seconds']):.2f}",
                         f"{float(row['percent_of_peak']):.1f}"))
    paper.table(("as", "GPUs", "plan", "s a batch", "% of peak"), rows)
    run(["plot", "throughput", paper.path("strong.png"), *reports], "plot throughput")
    paper.say("![strong scaling](strong.png)\n")


UNKNOWN = """## What is not known of the published runs

The abstract gives bands, not a figure a model; the authors' public release gives the plan of one run (24B: 12 stages x 8
replicas, micro-batch 4, offloaded). Not known here: the plans that the others' best results had, the efficiency of their
kernels, whether dropout and fused kernels were used, how ranks lay on nodes, and what share of a batch was input and logging.
A difference of more than a quarter of a published value is therefore split into its terms above, not explained away.
"""


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--out", default="paper", help="folder of the report, figures and CSV files")
    parser.add_argument("--models", default=",".join(MODELS), help="of " + ", ".join(MODELS))
    parser.add_argument("--batch-size", type=int, default=16384, help="sequences; AxoNN's 24B run used 16384")
    a = parser.parse_args()
    models = a.models.split(",")
    for model in models:
        if model not in MODELS:
            sys.exit(f"--models: '{model}' is not of the paper; there are {', '.join(MODELS)}")
    os.makedirs(a.out, exist_ok=True)
    paper = Paper(os.path.abspath(a.out), a.batch_size)
    paper.say(f"# AxoNN's paper, simulated\n\nBatch {a.batch_size} x 512 tokens. Every figure is a prediction from datasheets "
              "and rates that others published; no AxoNN row was fitted.\n")
    best = weak_scaling(paper, models)
    phases(paper, best, models)
    memory(paper)
    fits(paper)
    ablation(paper)
    strong_scaling(paper)
    paper.say(UNKNOWN)
    with open(paper.path("report.md"), "w") as file:
        file.write("\n".join(paper.lines) + "\n")
    print("written:", paper.path("report.md"))


if __name__ == "__main__":
    main()
