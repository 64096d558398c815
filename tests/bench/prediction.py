#!/usr/bin/python3
"""Predicted against measured: calibrates this machine, trains configurations (none of whose batch times any fit has
seen) and predicts each with the profile. Three passes over all of them in turn, so that a machine that drifts does so for
all; of each configuration's runs the one of the median time is compared. Exit status 1 if an error of the time per batch is above what the suite allows (see SUITES), or if a byte of memory
differs.

    tests/bench/prediction.py [--suite fp32|offload|plans|crowded|llama|families|untimed] [--out FOLDER] [--steps K]
                              [--quick] [--again]
    (make bench-prediction, bench-prediction-offload, bench-prediction-plans, bench-prediction-llama,
    bench-prediction-families, bench-prediction-untimed)

untimed: a calibration of the default family, then models that it does not have. plans: every schedule, recomputation and
way to share the work that two ranks can run. crowded: four ranks share two cores.
llama: a Llama on each grid in each size. families: 12 plans of a Llama, a Qwen3 and a Mixtral, whose experts are on one rank,
on two, and split by shards; of experts on two ranks the exponent of the routing is taken from the first run.
"""
import argparse
import json
import os
import statistics
import subprocess
import sys

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(HERE, "..", "cli"))
import ranvier
import text

MODELS = [os.path.join(HERE, "models", "small.json"), "demo", os.path.join(HERE, "models", "medium.json")]
QWEN3, MIXTRAL = (os.path.join(HERE, "models", name) for name in ("qwen3.json", "mixtral.json"))
# Layers, columns, heads, tokens of a sequence, vocabulary; grid; micro-batch and batch: none is of calibrate's default family.
UNTIMED = [((4, 128, 4, 64, 256), (1, 1), (4, 32)), ((6, 192, 6, 64, 512), (2, 1), (4, 24)), ((4, 320, 10, 64, 256), (1, 2), (2, 16)),
           ((2, 384, 6, 128, 256), (1, 1), (2, 8)), ((3, 512, 8, 64, 1024), (1, 2), (4, 16)), ((8, 256, 4, 128, 512), (2, 1), (1, 8)),
           ((4, 256, 8, 96, 2048), (1, 1), (3, 12)), ((2, 640, 10, 64, 256), (2, 1), (2, 16)), ((5, 224, 7, 256, 256), (1, 2), (1, 8)),
           ((12, 160, 5, 32, 384), (2, 1), (8, 64)), ((6, 288, 9, 128, 1000), (1, 2), (3, 18)), ((2, 768, 12, 128, 512), (1, 1), (1, 4))]
LLAMAS = [os.path.join(HERE, "models", "llama.json")]
GRIDS = [(1, 1), (2, 1), (1, 2)]
BATCHES = [(2, 24), (4, 16)]  # micro-batch size, batch size
MIXED = ["--precision", "mixed"]
OFFLOAD = [*MIXED, "--offload"]
VARIANTS = [("mixed", MIXED), ("unclipped", [*OFFLOAD, "--clip", 0]),
            ("activations", [*OFFLOAD, "--offload-activations", "--schedule", "gpipe", "--recompute", "full"])]


# Of two ranks, on one model: (name, flags).
TWO_STAGES = [("axonn", []), ("axonn-limit4", ["--pipeline-limit", 4]), ("gpipe", ["--schedule", "gpipe"]),
              ("1f1b", ["--schedule", "1f1b"]), ("1f1b-blocking", ["--schedule", "1f1b", "--p2p", "blocking"]),
              ("interleaved", ["--schedule", "interleaved", "--virtual-stages", 2]),
              ("zero-bubble", ["--schedule", "zero-bubble"]), ("reverse-first-k", ["--schedule", "reverse-first-k"]),
              ("fast-forward", ["--schedule", "fast-forward"]), ("full", ["--recompute", "full"]),
              ("selective", ["--recompute", "selective"]), ("layer", ["--schedule", "1f1b", "--recompute", "layer"]),
              ("offload", OFFLOAD)]
TWO_REPLICAS = [("plain", []), ("zero1", ["--zero", 1]), ("overlap", ["--overlap-allreduce", "--clip", 0]),
                ("full", ["--recompute", "full"]), ("offload", OFFLOAD)]
TWO_SHARDS = [("plain", ["--schedule", "1f1b"]), ("sequence", ["--schedule", "1f1b", "--sequence-parallel"]),
              ("full", ["--schedule", "1f1b", "--recompute", "full"])]
FOUR = [("4x1", 4, 1, 1, []), ("4x1-1f1b", 4, 1, 1, ["--schedule", "1f1b"]), ("2x2", 2, 2, 1, []),
        ("2x2-zero1", 2, 2, 1, ["--zero", 1]), ("1x4", 1, 4, 1, []), ("2x1x2", 2, 1, 2, ["--schedule", "1f1b"]),
        ("1x2x2", 1, 2, 2, []), ("1x1x4", 1, 1, 4, [])]


def grid(pp, dp, micro, batch, tp=1):
    return ["--pp", pp, "--dp", dp, *(["--tp", tp] if tp > 1 else []), "--micro-batch-size", micro, "--batch-size", batch]


def of_sizes(suite):
    """Every model, grid and size, with offloading in the suite of that name, which also has for the middle model mixed
    precision without offloading, without clipping, with offloaded and recomputed activations."""
    more, suffix = (OFFLOAD, "-offload") if suite == "offload" else ([], "")
    for model in LLAMAS if suite == "llama" else MODELS:
        for pp, dp in GRIDS:
            for micro, batch in BATCHES:
                name = f"{os.path.basename(model).split('.')[0]}-{pp}x{dp}-b{micro}-{batch}{suffix}"
                yield name, grid(pp, dp, micro, batch) + more, model, pp * dp
    for variant, flags in VARIANTS if suite == "offload" else []:
        for pp, dp in GRIDS:
            yield f"demo-{pp}x{dp}-{variant}", grid(pp, dp, 2, 24) + flags, "demo", pp * dp


def of_plans():
    for model in MODELS[1:]:
        short = os.path.basename(model).split(".")[0]
        for what, (pp, dp, tp), variants in (("pp", (2, 1, 1), TWO_STAGES), ("dp", (1, 2, 1), TWO_REPLICAS),
                                             ("tp", (1, 1, 2), TWO_SHARDS)):
            for name, flags in variants:
                yield f"{short}-{what}2-{name}", grid(pp, dp, 2, 24, tp) + flags, model, 2


def of_families():
    for model in (*LLAMAS, QWEN3, MIXTRAL):
        short = os.path.basename(model).split(".")[0]
        for pp, dp in GRIDS:
            yield f"{short}-{pp}x{dp}", grid(pp, dp, 4, 16), model, pp * dp
    yield "mixtral-1x2-ep2-b4", grid(1, 2, 4, 16) + ["--ep", 2], MIXTRAL, 2
    yield "mixtral-1x2-ep2-b2", grid(1, 2, 2, 16) + ["--ep", 2], MIXTRAL, 2
    yield "mixtral-1x1x2", grid(1, 1, 4, 16, 2), MIXTRAL, 2


def of_untimed(folder):
    """Writes the models into the folder."""
    for shape, (pp, dp), (micro, batch) in UNTIMED:
        name = "untimed-" + "-".join(map(str, shape))
        path = os.path.join(folder, name + ".json")
        with open(path, "w") as file:
            json.dump({**dict(zip(("n_layer", "n_embd", "n_head", "n_positions", "vocab_size"), shape)),
                       "model_type": "gpt2", "tie_word_embeddings": True}, file)
        yield f"{name}-{pp}x{dp}", grid(pp, dp, micro, batch), path, pp * dp


def configurations(suite, folder):
    """Yields (name, plan, model, ranks)."""
    if suite == "plans":
        yield from of_plans()
    elif suite == "untimed":
        yield from of_untimed(folder)
    elif suite == "families":
        yield from of_families()
    elif suite == "crowded":
        for name, pp, dp, tp, flags in FOUR:
            yield f"demo-{name}", grid(pp, dp, 2, 24, tp) + flags, "demo", 4
    else:
        yield from of_sizes(suite)


# What `calibrate` is asked for beside models and sizes, and the errors (percent) that the suite allows: median, worst.
SHARED = ["--ranks", 2, "--pp", "1,2"]
MIXED_TOO = ["--precision", "fp32,mixed", "--offload"]
SUITES = {"fp32": (SHARED, 5, 12), "llama": (SHARED, 4, 12), "offload": ([*SHARED, "--precision", "mixed", "--offload"], 5, 12),
          "plans": (["--ranks", 2, "--pp", "1,2,4", "--tp", "1,2", "--sequence-parallel", *MIXED_TOO], 2, 6),
          "families": ([*SHARED, "--tp", "1,2", "--ep", "1,2"], 4, 10),
          "untimed": (["--ranks", 2], 4, 10),
          "crowded": (["--ranks", 4, "--pp", "1,2,4", "--tp", "1,2,4"], 8, 20)}


def check(status, what, err):
    if status:
        sys.exit(f"{what} failed:\n{err}")


def calibrate(folder, profile, suite, quick):
    family = []
    if suite != "untimed":
        plans = list(configurations(suite, folder))
        sizes = {str(plan[plan.index("--micro-batch-size") + 1]) for _, plan, _, _ in plans}
        family = ["--model", ",".join(sorted({model for _, _, model, _ in plans})), "--micro-batch-size", ",".join(sorted(sizes))]
    status, out, err = ranvier.run(["calibrate", *family, *SUITES[suite][0], *(["--quick"] if quick else []), "--out", profile],
                                   timeout=1800)
    check(status, "calibrate", err)
    print(out, flush=True)


def report_of(folder, name, part):
    return os.path.join(folder, f"{name}-measured-{part}.json")


def train(folder, data, name, plan, model, ranks, steps, part):
    report = report_of(folder, name, part)
    environment = dict(os.environ, OMPI_ALLOW_RUN_AS_ROOT="1", OMPI_ALLOW_RUN_AS_ROOT_CONFIRM="1")
    bound = ["--bind-to", "core"] if ranks <= 2 else ["--oversubscribe", "--bind-to", "none"]
    command = ["mpirun", "-n", str(ranks), *bound, os.path.join(ranvier.BIN, "ranvier"), "train", model,
               *map(str, plan), "--data", data, "--steps", str(steps), "--validation-fraction", "0", "--report", report]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=600)
    check(done.returncode, name, done.stderr)
    return report


def batch_seconds(report):
    with open(report) as file:
        return json.load(file)["batch_seconds"]["median"]


def routing_of(reports):
    """How uneven the rows of spread experts were is the router's doing, not the machine's: as the first run says."""
    with open(reports[0]) as file:
        experts = json.load(file).get("experts")
    return ["--routing-exponent", experts["routing_exponent"]] if experts else []


def predict(folder, suite, profile, measured, *more):
    """Predicts every configuration; returns the pairs of reports to compare."""
    pairs = []
    for name, plan, model, ranks in configurations(suite, folder):
        plan = plan + routing_of(measured[name])
        predicted = os.path.join(folder, f"{name}-predicted{''.join(more)}.json")
        status, _, err = ranvier.run(["simulate", model, "--precision", "fp32", *plan, "--gpus", ranks, "--profile", profile, "--platform",
                                      "local", *more, "--report", predicted])
        check(status, "simulate " + name, err)
        pairs += [predicted, sorted(measured[name], key=batch_seconds)[len(measured[name]) // 2]]
    return pairs


def bytes_differ(pairs):
    """Ranks and categories, on the device and the host, whose predicted and measured bytes differ; and how many were
    compared."""
    wrong, compared = [], 0
    for predicted, measured in zip(pairs[::2], pairs[1::2]):
        for mine, theirs in zip(json.load(open(predicted))["ranks"], json.load(open(measured))["ranks"]):
            for space in ("bytes", "host_bytes"):
                for category, count in mine[space].items():
                    compared += 1
                    if theirs[space][category] != count:
                        wrong.append(f"{measured}: rank {mine['rank']} {space} {category} {theirs[space][category]}, "
                                     f"predicted {count}")
    return wrong, compared


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--suite", choices=SUITES, default="fp32")
    parser.add_argument("--out", help="default: build/bench/prediction or build/bench/prediction-SUITE")
    parser.add_argument("--steps", type=int, default=9, help="batches of each run; the first two are not counted")
    parser.add_argument("--quick", action="store_true", help="calibrate --quick, and each configuration once")
    parser.add_argument("--again", action="store_true", help="predict again what an earlier run measured, from its profile")
    arguments = parser.parse_args()
    suite, steps = arguments.suite, arguments.steps
    folder = os.path.abspath(arguments.out or "build/bench/prediction" + ("" if suite == "fp32" else "-" + suite))
    os.makedirs(folder, exist_ok=True)
    data, profile = os.path.join(folder, "text.txt"), os.path.join(folder, "profile.json")
    text.write(data, 200000)
    if not arguments.again:
        calibrate(folder, profile, suite, arguments.quick)
    measured = {}
    for part in (1,) if arguments.quick else (1, 2, 3):
        for name, plan, model, ranks in configurations(suite, folder):
            measured.setdefault(name, []).append(report_of(folder, name, part) if arguments.again else
                                                 train(folder, data, name, plan, model, ranks, steps, part))
    spread = []
    for reports in measured.values():
        seconds = [batch_seconds(path) for path in reports]
        spread.append((max(seconds) - min(seconds)) / min(seconds))
    print(f"{len(spread)} configurations" + ("" if arguments.quick else
          f", each run three times; the passes differ by {100 * statistics.median(spread):.1f} % in the median, "
          f"{100 * max(spread):.1f} % at most") + "\n")
    fits = predict(folder, suite, profile, measured, "--fits-only")
    _, out, err = ranvier.run(["compare", *fits])
    print("Were no shape timed, only fitted (simulate --fits-only):\n" + (out.strip() or err).splitlines()[-1] + "\n")
    pairs = predict(folder, suite, profile, measured)
    status, out, err = ranvier.run(["compare", *pairs, "--plot", os.path.join(folder, "prediction.png"), "--csv",
                                    os.path.join(folder, "prediction.csv"), "--max-median-error",
                                    SUITES[suite][1], "--max-worst-error", SUITES[suite][2]])
    print(out + err)
    wrong, compared = bytes_differ(pairs)
    print(f"memory: {compared} figures (rank x category, device and host), {len(wrong)} differ")
    print("\n".join(wrong[:20]))
    sys.exit(status or len(wrong) > 0)


if __name__ == "__main__":
    main()
