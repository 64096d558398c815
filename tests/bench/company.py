#!/usr/bin/python3
"""Calibrates this machine twice in turns, alone and beside a neighbour that computes on one core a third of the time, and
compares what is predicted from the profiles: plans of the default family, and models that it does not have. Exit status 1
if a prediction beside the neighbour is more than 3 % from that of the undisturbed machine.

    tests/bench/company.py [--out FOLDER] [--turns N] [--burst MILLISECONDS]     (make bench-prediction-company)
"""
import argparse
import multiprocessing
import os
import statistics
import sys
import time

import prediction
import ranvier

PART = 3  # a third of the time


def neighbour(milliseconds):
    """Computes for so long, then sleeps twice as long, for ever."""
    os.sched_setaffinity(0, {max(os.sched_getaffinity(0))})
    while True:
        end = time.monotonic() + milliseconds / 1000
        while time.monotonic() < end:
            pass
        time.sleep((PART - 1) * milliseconds / 1000)


def calibrate(path):
    status, out, err = ranvier.run(["calibrate", "--ranks", 2, "--out", path], timeout=1800)
    prediction.check(status, "calibrate", err)
    return [line.strip() for line in out.splitlines() if "left out" in line]


def predict(folder, profile, model, plan, ranks):
    report = os.path.join(folder, "predicted.json")
    status, _, err = ranvier.run(["simulate", model, "--precision", "fp32", *plan, "--gpus", ranks, "--profile", profile,
                                  "--platform", "local", "--report", report])
    prediction.check(status, "simulate", err)
    return prediction.batch_seconds(report)


def plans(folder):
    for pp, dp in prediction.GRIDS:
        for micro, batch in prediction.BATCHES:
            yield f"demo-{pp}x{dp}-b{micro}-{batch}", prediction.grid(pp, dp, micro, batch), "demo", pp * dp
    yield from prediction.of_untimed(folder)


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--out", default="build/bench/company")
    parser.add_argument("--turns", type=int, default=2, help="calibrations of each kind (default 2)")
    parser.add_argument("--burst", type=float, default=33, help="how long the neighbour computes at a time (default 33)")
    arguments = parser.parse_args()
    folder = os.path.abspath(arguments.out)
    os.makedirs(folder, exist_ok=True)
    seconds = {}
    for turn in range(arguments.turns):
        for company in (False, True):
            profile = os.path.join(folder, f"{'company' if company else 'alone'}-{turn}.json")
            beside = multiprocessing.Process(target=neighbour, args=(arguments.burst,), daemon=True)
            if company:
                beside.start()
            left_out = calibrate(profile)
            if company:
                beside.terminate()
                beside.join()
            print(f"{os.path.basename(profile)}: {'; '.join(left_out)}", flush=True)
            for name, plan, model, ranks in plans(folder):
                seconds.setdefault(name, {}).setdefault(company, []).append(predict(folder, profile, model, plan, ranks))
    print(f"\n{'plan':42} {'alone':>10} {'spread':>8} {'company':>10} {'differ by':>10}")
    worst = []
    for name, found in seconds.items():
        alone, company = statistics.median(found[False]), statistics.median(found[True])
        worst.append(abs(company / alone - 1))
        print(f"{name:42} {alone:8.4f} s {100 * (max(found[False]) / min(found[False]) - 1):6.1f} % {company:8.4f} s "
              f"{100 * (company / alone - 1):+8.2f} %")
    print(f"\nbeside a neighbour predictions differ by {100 * statistics.median(worst):.2f} % in the median, "
          f"{100 * max(worst):.2f} % at most")
    sys.exit(max(worst) > 0.03)


if __name__ == "__main__":
    main()
