#!/usr/bin/env python3
"""Writes tables of measured collectives, as "measured_collectives" of a platform file names them.

  tables.py collectives.csv     every GPU of a table "gpu,operation,gpus,elements_fp16,seconds", thinned to points between
                                which a line in logarithms is within 2 %; writes the .csv files beside this script
  tables.py --nccl-tests N FILE...
                                what nccl-tests printed on N nodes, each FILE with its header and the name of its test
                                (all_reduce_perf, ...) in it or in the name of the file; out of place, as a table on standard output
"""
import csv
import math
import os
import re
import sys

FOLDER = os.path.dirname(os.path.abspath(__file__))
SOURCE = "ai-dynamo/aiconfigurator, systems/data (Apache-2.0): NCCL %s inside a node of %s, fp16, medians; %d of %d sizes"
TABLES = {"A100-SXM4-80GB": "a100-sxm", "H100-SXM5-80GB": "h100-sxm", "H200-SXM-141GB": "h200-sxm", "B200-SXM-180GB": "b200-sxm",
          "GB200": "gb200", "L40S": "l40s-pcie"}
OPERATIONS = ("all_reduce", "all_gather", "reduce_scatter", "alltoall")
TOLERANCE = 0.02


def line_holds(points, first, last):
    """Whether all points between two are within the tolerance of the line between these."""
    (a, s), (b, t) = points[first], points[last]
    for size, seconds in points[first + 1:last]:
        part = math.log(size / a) / math.log(b / a)
        if abs(s * (t / s) ** part / seconds - 1) > TOLERANCE:
            return False
    return True


def thinned(points):
    kept, at = [points[0]], 0
    while at < len(points) - 1:
        furthest = at + 1
        while furthest < len(points) - 1 and line_holds(points, at, furthest + 1):
            furthest += 1
        kept.append(points[furthest])
        at = furthest
    return kept


def write_tables(path):
    series = {}
    with open(path, newline="") as file:
        for row in csv.DictReader(file):
            key = row["gpu"], OPERATIONS.index(row["operation"]), int(row["gpus"])
            series.setdefault(key, []).append((2 * int(row["elements_fp16"]), float(row["seconds"])))
    for gpu, name in TABLES.items():
        lines, count = [], 0
        for _, operation, gpus in sorted(key for key in series if key[0] == gpu):
            points = sorted(series[gpu, operation, gpus])
            count += len(points)
            lines += ["%s,%d,%d,%.4g" % (OPERATIONS[operation], gpus, size, 1e6 * seconds) for size, seconds in thinned(points)]
        with open(os.path.join(FOLDER, name + ".csv"), "w") as out:
            print("# source: " + SOURCE % ("2.27 to 2.29", gpu, len(lines), count), file=out)
            print("# written by tables.py from its table; line by line within %g %% of the sizes left out" % (100 * TOLERANCE), file=out)
            print("operation,gpus,bytes,microseconds", *lines, sep="\n", file=out)


def print_nccl_tests(nodes, paths):
    """A line of nccl-tests begins: size count type [redop root] time algbw busbw, where reductions have a redop."""
    print("# source: nccl-tests, %s" % " ".join(os.path.basename(path) for path in paths))
    print("operation,gpus,nodes,bytes,microseconds")
    for path in paths:
        with open(path) as file:
            text = file.read()
        found = re.search(r"(all_reduce|all_gather|reduce_scatter|alltoall)", os.path.basename(path)) or \
            re.search(r"\b(all_reduce|all_gather|reduce_scatter|alltoall)_perf\b", text)
        ranks = len(re.findall(r"^#\s+Rank\s+\d+", text, re.M))
        rows = [line.split() for line in text.splitlines() if re.match(r"\s*[1-9]\d*\s+\d+\s+\w+\s+\w+\s+-?\d+\s+[\d.]+", line)]
        if not found or ranks < 2 or not rows:
            sys.exit("tables.py: %s: there must be the name of the test (all_reduce_perf), its ranks and its rows" % path)
        for words in rows:
            print("%s,%d,%d,%s,%s" % (found.group(1), ranks, nodes, words[0], words[5]))


def main():
    words = sys.argv[1:]
    if len(words) == 1 and not words[0].startswith("-"):
        write_tables(words[0])
    elif len(words) >= 3 and words[0] == "--nccl-tests" and words[1].isdigit() and int(words[1]) > 0:
        print_nccl_tests(int(words[1]), words[2:])
    else:
        sys.exit(__doc__)


main()
