#!/usr/bin/python3
"""Trainings that change their shape, by the hundred: RUNS times (200) what one plan kept goes on with another, both drawn by chance (SEED): stages, replicas,
shards, experts, context ranks, ZeRO, offloading, logical replicas. Every one must end with the losses of the first plan, never interrupted: bit for bit
where sums keep their order, else within a millionth (in 16 bits a hundredth); and no more of the checkpoint may be read than the ranks have.

Usage: pairs.py [RUNS [SEED]]"""
import json
import os
import random
import statistics
import sys
import tempfile

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "cli"))
import resume

RUNS = int(sys.argv[1]) if len(sys.argv) > 1 else 200
SEED = int(sys.argv[2]) if len(sys.argv) > 2 else 0
# Fewer ranks that stand for replicas, beside which these have the same bits.
LOGICAL = [("tiny", 2, ("--dp", 2, "--logical-dp", 4)), ("tiny", 1, ("--logical-dp", 4)), ("tiny", 4, ("--dp", 4))]


def option(plan, name, default):
    flags = list(plan[2])
    return flags[flags.index(name) + 1] if name in flags else default


def sums(plan):
    """Plans in which it is equal sum alike: how many replicas, and all else that is split."""
    replicas = option(plan, "--logical-dp", option(plan, "--dp", 1))
    split = tuple(option(plan, name, 1) for name in ("--tp", "--ep", "--etp", "--cp")) + ("--sequence-parallel" in plan[2],)
    return plan[0], replicas, split, option(plan, "--zero", 0), option(plan, "--shard-replicas", 0), option(plan, "--precision", "fp32")


def least(report, plan):
    """Bytes of what all ranks work with and update, in fp32; None where what is in memory does not say that."""
    if option(plan, "--precision", "fp32") != "fp32":
        return None
    ranks = [rank["bytes"] for rank in report["ranks"]]
    shares = option(plan, "--zero", 0) == 3
    return sum(rank["optimizer"] + (rank["optimizer"] // 2 if shares else rank["weights"]) for rank in ranks)


def main():
    chance = random.Random(SEED)
    plans = resume.PLANS + resume.HALF + LOGICAL
    wrong, same, close, worst, ratios = 0, 0, 0, 0.0, []
    with tempfile.TemporaryDirectory() as folder:
        bench = resume.Bench(folder)
        for _ in range(RUNS):
            before = chance.choice(plans)
            after = chance.choice([plan for plan in plans if plan[0] == before[0] and plan != before
                                   and option(plan, "--precision", "fp32") == option(before, "--precision", "fp32")] or [before])
            bench.clear("kept", "whole.csv", "kept.csv")
            first, said = bench.train(before, "--log", bench.path("whole.csv"))
            second, also = bench.train(before, "--checkpoint", bench.path("kept"), "--checkpoint-every", resume.EVERY, "--log", bench.path("kept.csv"))
            if first or second:
                raise SystemExit(said + also)
            step = chance.choice([step for step in bench.steps("kept") if step < resume.STEPS])
            bench.forget("kept", step)
            status, err = bench.train(after, "--resume", bench.path("kept"), "--log", bench.path("kept.csv"), "--report", bench.path("report.json"))
            name = f"{resume.named(before)} -> {resume.named(after)} behind step {step}"
            ours, theirs = (resume.rows(bench.path(log)) for log in ("kept.csv", "whole.csv"))
            if status or len(ours) != len(theirs):
                wrong += 1
                print(f"wrong: {name}: {err}", flush=True)
                continue
            apart = max(abs(float(a[1]) / float(b[1]) - 1) for a, b in zip(ours, theirs))
            alike = sums(before) == sums(after) and "--pp" not in before[2] + after[2]
            bound = 0 if alike else 1e-6 if option(before, "--precision", "fp32") == "fp32" else 1e-2
            if apart > bound or (alike and ours != theirs):
                wrong += 1
                print(f"wrong: {name}: {apart} apart", flush=True)
            same += ours == theirs
            close += ours != theirs
            worst = max(worst, apart if bound <= 1e-6 else 0)
            with open(bench.path("report.json")) as file:
                report = json.load(file)
            needed = least(report, after)
            if needed:
                ratios.append(report["training"]["resumed_bytes"] / needed)
                if ratios[-1] > 1:
                    wrong += 1
                    print(f"wrong: {name}: read {report['training']['resumed_bytes']} bytes, its ranks have {needed}", flush=True)
    print(f"{RUNS} pairs from seed {SEED}: {wrong} wrong; {same} with the same bits, {close} close, in fp32 at most {worst:.1e} apart")
    print(f"bytes read beside what the ranks have (buffers are rounded up to whole lines): median {statistics.median(ratios):.4f}, at most {max(ratios):.4f}, of {len(ratios)}")
    raise SystemExit(wrong > 0)


main()
