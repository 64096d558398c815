#!/usr/bin/env python3
"""Seeded questions to `ranvier sweep`: is the plan that it recommends by default the best of all feasible plans?

Each question is a model, a machine, a number of GPUs, a batch and a choice of axes. It is asked twice: as a user would,
and with --simulate all, which simulates every plan that fits. Prints a line a question, and at the end in how many the
recommended plan's simulated time is within 1 % of the best one's.

  questions.py [QUESTIONS] [SEED]        RANVIER_BIN: the folder of ranvier
"""
import csv, json, os, random, subprocess, sys, tempfile, time

RANVIER = os.path.join(os.environ.get("RANVIER_BIN", "build/bin"), "ranvier")
MACHINES = [("a100-published", "selene", [8, 16, 24, 32, 64]), ("v100-datasheet", "summit", [6, 12, 18, 24, 48]),
            ("h100-published", "dgx-h100", [8, 16, 32, 64]), ("v100-datasheet", "cloud-ethernet", [8, 16, 24, 32])]
MODELS = [(12, 768, 12), (24, 1024, 16), (24, 2048, 16), (32, 2560, 32), (36, 3072, 24), (32, 4096, 32), (40, 5120, 40),
          (48, 1600, 25), (44, 6144, 64)]
MOST_PLANS = 200  # of a question, so that all can be simulated


def question(rng):
    layers, hidden, heads = rng.choice(MODELS)
    profile, platform, sizes = rng.choice(MACHINES)
    model = {"n_layer": layers, "n_embd": hidden, "n_head": heads, "n_positions": rng.choice([1024, 2048]),
             "vocab_size": 51200}
    flags = ["--gpus", str(rng.choice(sizes)), "--profile", profile, "--platform", platform, "--precision", "mixed",
             "--batch-size", str(rng.choice([32, 64, 96, 192, 256, 512])),
             "--offload", rng.choice(["no", "no", "yes", "both"])]
    schedules = rng.choice(["axonn", "1f1b", "1f1b,interleaved", "gpipe,1f1b", "axonn,1f1b,zero-bubble", "interleaved",
                            "1f1b,interleaved,zero-bubble,gpipe,axonn"])
    flags += ["--schedule", schedules]
    if "interleaved" in schedules:
        flags += ["--virtual-stages", rng.choice(["2", "2,4", "1,2,4"])]
    if "axonn" not in schedules and rng.random() < 0.3:
        flags += ["--p2p", rng.choice(["blocking", "async,blocking"])]
    flags += ["--tp", rng.choice(["1", "1", "1,2", "1,2,4,8", "2,4"])]
    if rng.random() < 0.4:
        flags += ["--zero", rng.choice(["0,1", "1", "0,1,3"])]
    if rng.random() < 0.4:
        flags += ["--recompute", rng.choice(["none", "none,selective,full", "full", "none,layer"])]
    if rng.random() < 0.3:
        flags += ["--sequence-parallel", "no,yes"]
    if rng.random() < 0.3:
        flags += ["--order", rng.choice(["replicas", "stages,replicas"])]
    if rng.random() < 0.3:
        flags += ["--offload-activations", rng.choice(["no", "yes"])]
    if rng.random() < 0.2:
        flags += ["--split", "balanced"]
    return model, flags


def ask(folder, flags, how):
    path = os.path.join(folder, "plans.csv")
    if os.path.exists(path):
        os.unlink(path)
    run = subprocess.run([RANVIER, "sweep", os.path.join(folder, "model.json"), *flags, "--simulate", how, "--csv", path],
                         capture_output=True, text=True)
    if not os.path.exists(path):
        return None, run.stderr.strip().split("\n")[-1]
    return list(csv.DictReader(open(path))), ""


def main():
    count = int(sys.argv[1]) if len(sys.argv) > 1 else 200
    seed = int(sys.argv[2]) if len(sys.argv) > 2 else 20261122
    rng = random.Random(seed)
    right, asked, simulated, feasible, worst = 0, 0, 0, 0, 0.0
    with tempfile.TemporaryDirectory() as folder:
        while asked < count:
            model, flags = question(rng)
            with open(os.path.join(folder, "model.json"), "w") as file:
                json.dump(model, file)
            probe, why = ask(folder, flags, "auto")
            if probe is None:
                continue  # no plan fits, or none is one
            every, why = ask(folder, flags, "all")
            if every is None:
                sys.exit("questions: --simulate all failed: " + why)
            if len(every) > MOST_PLANS:
                continue
            asked += 1
            best = min(float(row["batch_seconds"]) for row in every)
            found = min(float(row["batch_seconds"]) for row in probe)
            loss = found / best - 1
            right += loss <= 0.01
            worst = max(worst, loss)
            simulated += len(probe)
            feasible += len(every)
            ratios = [float(row["batch_seconds"]) / float(row["paper_seconds"]) for row in every]
            print(f"{asked:4d} {'right' if loss <= 0.01 else 'WRONG'} {100 * loss:6.2f} %  {len(probe):3d} of {len(every):3d} simulated"
                  f"  simulated/paper {min(ratios):.3f} to {max(ratios):.3f}  {model['n_layer']}x{model['n_embd']} {' '.join(flags)}",
                  flush=True)
    print(f"seed {seed}: within 1 % of the best of all feasible plans in {right} of {asked} questions, worst {100 * worst:.2f} %; "
          f"{simulated} of {feasible} plans simulated")
    return 0


if __name__ == "__main__":
    sys.exit(main())
