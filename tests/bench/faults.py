#!/usr/bin/python3
"""Trainings that are disturbed, by the hundred: RUNS times a plan of 2 to 4 ranks by chance, a rank of which is killed (kill -9) at a moment by
chance, checkpoints being written included, or stopped for a while; until it ends it goes on from its last checkpoint. Every run must end with the
losses and the model of the undisturbed one, bit for bit, nothing beyond the last interval may be lost, and nothing may hang. With LIAR, a library to
preload (liar.c), disks also take less than they are given and turn bits over, the clock of the day jumps, and messages are late: a checkpoint that a
disk has lied about is named, and the one before it taken.

Usage: faults.py [RUNS [FIRST SEED [LIAR]]]"""
import os
import random
import signal
import sys
import tempfile
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "cli"))
import resume

HANG = 30  # seconds
SETTLED = [plan for plan in resume.PLANS + resume.HALF if 2 <= plan[1] <= 4]


class Reference:
    """What undisturbed runs of a plan end with, how long they take, and how long one of a single step does."""

    def __init__(self, bench):
        self.bench, self.known, self.least = bench, {}, {}

    def seconds(self, plan, *more):
        began = time.monotonic()
        status, err = self.bench.train(plan, *more)
        if status:
            raise SystemExit(err)
        return time.monotonic() - began

    def shortest(self, plan):
        if plan not in self.least:
            self.least[plan] = self.seconds(plan, "--steps", 1)
        return self.least[plan]

    def of(self, plan, steps):
        key = (plan, steps)
        if key not in self.known:
            self.bench.clear("whole", "whole.csv")
            took = self.seconds(plan, "--steps", steps, "--warmup", 3, "--checkpoint", self.bench.path("whole"), "--log", self.bench.path("whole.csv"))
            self.known[key] = (resume.rows(self.bench.path("whole.csv")), resume.read(self.bench.path("whole", "model.safetensors")), took)
        return self.known[key]


def logged(bench):
    path = bench.path("kept.csv")
    return len(resume.rows(path)) if os.path.exists(path) and os.path.getsize(path) else 0


def disturb(running, chance, took):
    """One fault, at a moment by chance. Returns what it was."""
    time.sleep(chance.uniform(0, took))
    ranks = resume.ranks_of(running.pid)
    if not ranks:
        return "nothing"
    rank = chance.choice(ranks)
    try:
        if chance.random() < 0.25:
            os.kill(rank, signal.SIGSTOP)
            time.sleep(chance.uniform(0.1, 2))
            os.kill(rank, signal.SIGCONT)
            return "stop"
        os.kill(rank, signal.SIGKILL)
    except ProcessLookupError:
        return "nothing"
    return "kill"


def run(bench, reference, seed, liar):
    """Why the run is not as it should be, or None; and what happened to it."""
    chance = random.Random(seed)
    plan, steps, every = chance.choice(SETTLED), chance.randint(8, 30), chance.randint(1, 5)
    rows, model, took = reference.of(plan, steps)
    shortest = min(took, reference.shortest(plan))
    keep = ("--steps", steps, "--warmup", 3, "--checkpoint", bench.path("kept"), "--checkpoint-every", every, "--log", bench.path("kept.csv"))
    bench.clear("kept", "kept.csv")
    happened, faults = [], chance.randint(1, 3)
    for attempt in range(faults + (4 if liar else 1)):
        last = max(bench.steps("kept"), default=0)
        if last == steps and os.path.exists(bench.path("kept", "model")):
            break
        lies = {"LD_PRELOAD": liar, "RANVIER_LIES": 100 * seed + attempt} if liar else {}
        running = resume.start(bench, plan, *keep, *(("--resume", bench.path("kept")) if last else ()), variables=lies)
        expected = shortest + (took - shortest) * (steps - last) / steps
        what = disturb(running, chance, expected) if attempt < faults else "none"
        happened.append(f"{what} from {last}")
        err = resume.end_of(running, HANG)
        if err is None:
            return f"hangs for {HANG} s", plan, happened
        happened += ["stuck"] * (running.returncode == -signal.SIGKILL)
        happened += ["damaged"] * err.count("checksum")
        kept = max(bench.steps("kept"), default=0)
        if liar and running.returncode and "no checkpoint in it is whole" in err:
            bench.clear("kept", "kept.csv")
            continue
        if what != "kill" and running.returncode not in (0, -signal.SIGKILL):
            return f"status {running.returncode}: {err}", plan, happened
        # A checkpoint that is due waits for the one before it: at most that one and the steps since are lost.
        if what == "kill" and not liar and logged(bench) - kept > 2 * every:
            return f"{logged(bench)} steps, of which {kept} are kept every {every}", plan, happened
    found = resume.rows(bench.path("kept.csv"))
    if found != rows:
        return f"other losses: {found}\n{rows}", plan, happened
    if os.path.exists(bench.path("kept", "model", "model.safetensors")) and resume.read(bench.path("kept", "model", "model.safetensors")) != model:
        return "another model", plan, happened
    return None, plan, happened


def main():
    runs, first = (int(sys.argv[i]) if len(sys.argv) > i else default for i, default in ((1, 100), (2, 0)))
    liar = os.path.abspath(sys.argv[3]) if len(sys.argv) > 3 else None
    wrong, kills, stops, damaged, stuck = 0, 0, 0, 0, 0
    with tempfile.TemporaryDirectory() as folder:
        bench = resume.Bench(folder)
        reference = Reference(bench)
        for seed in range(first, first + runs):
            why, plan, happened = run(bench, reference, seed, liar)
            kills += sum(what.startswith("kill") for what in happened)
            stops += sum(what.startswith("stop") for what in happened)
            damaged += happened.count("damaged")
            stuck += happened.count("stuck")
            if why:
                wrong += 1
                print(f"seed {seed}, {resume.named(plan)}, {', '.join(happened)}: {why}", flush=True)
            elif (seed - first) % 25 == 24:
                print(f"{seed - first + 1} runs, {kills} killed, {stops} stopped for a while, {damaged} damaged checkpoints named, {wrong} wrong", flush=True)
    if stuck:
        print(f"{stuck} times mpirun did not end when all its ranks had ({HANG} s), and was")
    print(f"{runs} runs, {kills} ranks killed, {stops} stopped for a while, {damaged} damaged checkpoints named: {runs - wrong} ended as undisturbed, {wrong} did not")
    raise SystemExit(1 if wrong else 0)


main()
