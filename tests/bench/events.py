#!/usr/bin/env python3
"""What the scheduling core, its engine and the simulation cost, as ratios measured in turn in one run.

events    SimGrid's driver on one core, on a pipeline of 384 GPUs and 1,024 micro-batches, against two limits: a
          plain binary heap that does nothing but pass the same events, and the same core and engine over the heap
          of the world on paper (whose AxoNN, where messages meet at one moment, takes another one first: its batch
          differs by 0.2 %). An event is an operation that completes. SimGrid's seconds are the processor's, of
          the whole command: start, platform and report are in them.
scale     seconds for one simulated plan of 48, 384 and 3,072 GPUs, replicas folded and not.
overhead  the seconds of a batch through those of its kernels of 1 ms, by the real driver (tests/bench/overhead.c).
"""
import argparse, json, os, resource, statistics, subprocess, sys, tempfile

ROOT = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..")
FIXTURES = os.path.join(ROOT, "tests", "fixtures")
STAGES, MICRO_BATCHES = 384, 1024
FORWARD, BACKWARD, MESSAGE = 0.06, 0.18, 3.698e-3
folder = tempfile.TemporaryDirectory()
on_one_core = ["taskset", "-c", "0"]


def simulate(arguments):
    """Seconds of the processor, and the report."""
    report = folder.name + "/report.json"
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    command = on_one_core + [options.bin + "/ranvier-sim", "simulate"] + arguments + ["--report", report]
    done = subprocess.run(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    if done.returncode:
        sys.exit("events.py: %s\n%s" % (" ".join(command), done.stderr))
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime, json.load(open(report))


def pipeline(schedule):
    """One run of each: seconds an event by SimGrid, on paper, and of the heap alone."""
    model = json.load(open(FIXTURES + "/model_24_layers.json"))
    model["n_layer"] = STAGES
    json.dump(model, open(folder.name + "/model.json", "w"))
    seconds, report = simulate([folder.name + "/model.json", "--profile", FIXTURES + "/profile_60_180.json", "--platform",
                                FIXTURES + "/platform_10gb_links.json", "--gpus", str(STAGES), "--pp", str(STAGES),
                                "--micro-batch-size", "6", "--batch-size", str(6 * MICRO_BATCHES), "--clip", "0",
                                "--schedule", schedule])
    text = subprocess.run(on_one_core + [options.tests + "/events", str(STAGES), str(MICRO_BATCHES), schedule, str(FORWARD),
                                         str(BACKWARD), str(MESSAGE)], stdout=subprocess.PIPE, check=True, text=True).stdout
    count, batch, paper, heap = (float(field) for field in text.split())
    operations, simulated = report["simulation"]["operations"], report["batch_seconds"]["median"]
    if abs(operations / count - 1) > 1e-3 or abs(simulated / batch - 1) > 1e-2:
        sys.exit("events.py: %s: SimGrid had %d operations in %.6f s, the world on paper %d in %.6f s: must be alike"
                 % (schedule, operations, simulated, count, batch))
    return seconds / operations, paper / count, heap / count


def events():
    for schedule in "1f1b", "axonn":
        by = [pipeline(schedule) for _ in range(options.runs)]
        name = "%d x %d %s" % (STAGES, MICRO_BATCHES, schedule)
        add("events", name + ", SimGrid against the heap", "ratio", [s / h for s, p, h in by])
        add("events", name + ", SimGrid against paper", "ratio", [s / p for s, p, h in by])
        add("events", name + ", SimGrid, an event", "seconds", [s for s, p, h in by])
        add("events", name + ", core and engine on paper, an event", "seconds", [p for s, p, h in by])
        add("events", name + ", the heap, an event", "seconds", [h for s, p, h in by])


def scale():
    plans = [(gpus, fold) for gpus in (48, 384, 3072) for fold in (["off"] if gpus == 48 else ["on", "off"])]
    seconds = {plan: [] for plan in plans}
    for _ in range(options.runs):
        for gpus, fold in plans:
            if (gpus, fold) == (3072, "off") and seconds[gpus, fold]:
                continue  # a minute: once
            seconds[gpus, fold].append(simulate(["gpt-12b", "--profile", "v100-datasheet", "--platform", "summit", "--gpus",
                                                 str(gpus), "--pp", "48", "--dp", str(gpus // 48), "--micro-batch-size", "1",
                                                 "--batch-size", str(gpus // 48 * 64), "--seq-len", "512", "--precision",
                                                 "mixed", "--ignore-memory", "--fold", fold])[0])
    for gpus, fold in plans:
        add("scale", "gpt-12b, %d GPUs, 64 micro-batches, %s" % (gpus, "folded" if fold == "on" else "unfolded"), "seconds",
            seconds[gpus, fold])


def overhead():
    for pp, dp in (1, 1), (2, 1), (1, 2):
        command = ["mpirun", "-n", str(pp * dp), "--bind-to", "core", options.tests + "/overhead", str(pp), str(dp)]
        environment = dict(os.environ, OMPI_ALLOW_RUN_AS_ROOT="1", OMPI_ALLOW_RUN_AS_ROOT_CONFIRM="1")
        text = subprocess.run(command, stdout=subprocess.PIPE, check=True, text=True, env=environment).stdout
        for line in text.splitlines():
            name, least, median, most = line.split(",")
            write("overhead", name, "ratio", float(least), float(median), float(most), 7)


def add(group, name, unit, values):
    write(group, name, unit, min(values), statistics.median(values), max(values), len(values))


def write(group, name, unit, least, median, most, runs):
    print("%-9s %-58s %-8s %12.6g %12.6g %12.6g %5d" % (group, name, unit, least, median, most, runs), flush=True)
    if options.csv:
        new = not os.path.exists(options.csv)
        with open(options.csv, "a") as file:
            file.write("group,name,unit,min,median,max,runs\n" if new else "")
            file.write('%s,"%s",%s,%.9g,%.9g,%.9g,%d\n' % (group, name, unit, least, median, most, runs))


parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
parser.add_argument("--csv", help="append rows to this file: group,name,unit,min,median,max,runs")
parser.add_argument("--runs", type=int, default=5)
parser.add_argument("--bin", default=os.environ.get("RANVIER_BIN", ROOT + "/build/bin"))
parser.add_argument("--tests", default=ROOT + "/build/tests", help="where events and overhead were built")
parser.add_argument("parts", nargs="*", metavar="PART", help="events, scale, overhead; all if none is named")
options = parser.parse_args()
parts = {"events": events, "scale": scale, "overhead": overhead}
for part in options.parts:
    if part not in parts:
        parser.error("'%s' must be one of %s" % (part, ", ".join(parts)))
print("%-9s %-58s %-8s %12s %12s %12s %5s" % ("", "", "unit", "min", "median", "max", "runs"))
for part in options.parts or parts:
    parts[part]()
