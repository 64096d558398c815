#!/usr/bin/env python3
"""What the scheduling core, its engine and the simulation cost, as ratios measured in turn in one run.

events    SimGrid's driver on one core, on a pipeline of 384 GPUs and 1,024 micro-batches, against two limits: a
          plain binary heap that does nothing but pass the same events, and the same core and engine over the heap
          of the world on paper. An event is an operation that completes. SimGrid's seconds are the processor's, of
          the whole command: start, platform and report are in them.
scale     one simulated plan of 48, 384 and 3,072 GPUs, replicas folded and not: the processor's seconds of the
          whole command through those of 48 GPUs.
overhead  the seconds of a batch through those of its kernels of 1 ms, by the real driver (tests/bench/overhead.c).

Ratios are printed; what they are made of, seconds, goes to the CSV only.
"""
import argparse, json, os, resource, statistics, subprocess, sys, tempfile

ROOT = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..")
FIXTURES = os.path.join(ROOT, "tests", "fixtures")
STAGES, MICRO_BATCHES = 384, 1024
FORWARD, BACKWARD, MESSAGE = 0.06, 0.18, 3.698e-3
LINE = "%-9s %-58s %-27s %10s %10s %10s %5s"
folder = tempfile.TemporaryDirectory()
LIMIT = 120  # seconds that one program may take
# How far SimGrid's batch may be from that on paper. Where the order is fixed it is the 4 us in which ranks agree on the
# loss, in the end. AxoNN takes what comes first, and that differs: by SimGrid messages to both neighbours share a GPU's
# link, and events at the very same moment come in another order (on paper, too, a message that is 1e-13 s longer moves
# the batch by 6e-5, or in a pipeline of 24 by 2 %). The number of operations is the same.
SCHEDULES = {"1f1b": 1e-6, "gpipe": 1e-6, "axonn": 1e-2}
on_one_core = ["taskset", "-c", str(min(os.sched_getaffinity(0)))]


def run(command, environment=None):
    """Its output. No program may hang: mpirun's ranks end with it."""
    program = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                               env=environment)
    try:
        output, errors = program.communicate(timeout=LIMIT)
    except subprocess.TimeoutExpired:
        program.terminate()
        program.communicate()
        sys.exit("events.py: %s\ntook more than %d s" % (" ".join(command), LIMIT))
    if program.returncode:
        sys.exit("events.py: %s\n%s" % (" ".join(command), errors))
    return output


def simulate(arguments):
    """Seconds of the processor, and the report."""
    report = folder.name + "/report.json"
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    run(on_one_core + [options.bin + "/ranvier-sim", "simulate"] + arguments + ["--report", report])
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime, json.load(open(report))


def pipeline(schedule):
    """One run of each: seconds an event by SimGrid, on paper, and of the heap alone."""
    model = json.load(open(FIXTURES + "/model_24_layers.json"))
    model["n_layer"] = STAGES
    json.dump(model, open(folder.name + "/model.json", "w"))
    seconds, report = simulate([folder.name + "/model.json", "--profile", FIXTURES + "/profile_60_180.json", "--platform",
                                FIXTURES + "/platform_10gb_links.json", "--gpus", str(STAGES), "--pp", str(STAGES),
                                "--micro-batch-size", "6", "--batch-size", str(6 * MICRO_BATCHES), "--clip", "0",
                                "--bucket-params", "1000000000", "--schedule", schedule])
    text = run(on_one_core + [options.tests + "/events", str(STAGES), str(MICRO_BATCHES), schedule, str(FORWARD),
                              str(BACKWARD), str(MESSAGE)])
    count, batch, paper, heap = (float(field) for field in text.split())
    operations, simulated = report["simulation"]["operations"], report["batch_seconds"]["median"]
    if operations != count or abs(simulated / batch - 1) > SCHEDULES[schedule]:
        sys.exit("events.py: %s: SimGrid had %d operations in %.6f s, the world on paper %d in %.6f s: must be the same"
                 % (schedule, operations, simulated, count, batch))
    return seconds / operations, paper / count, heap / count


def events():
    for schedule in SCHEDULES:
        by = [pipeline(schedule) for _ in range(options.runs)]
        name = "%d x %d %s" % (STAGES, MICRO_BATCHES, schedule)
        add("events", name + ", SimGrid against the heap", "ratio", [s / h for s, p, h in by])
        add("events", name + ", SimGrid against paper", "ratio", [s / p for s, p, h in by])
        add("events", name + ", SimGrid, an event", "seconds", [s for s, p, h in by])
        add("events", name + ", core and engine on paper, an event", "seconds", [p for s, p, h in by])
        add("events", name + ", the heap, an event", "seconds", [h for s, p, h in by])


def scale():
    plans = [(48, 1, 1, "off"), (384, 8, 1, "on"), (384, 8, 1, "off"), (3072, 8, 8, "on"), (3072, 8, 8, "off")]
    seconds = {plan: [] for plan in plans}
    for _ in range(options.runs):
        for gpus, dp, tp, fold in plans:
            seconds[gpus, dp, tp, fold].append(simulate([
                "gpt-12b", "--profile", "v100-datasheet", "--platform", "summit", "--gpus", str(gpus), "--pp", "48", "--dp",
                str(dp), "--tp", str(tp), "--schedule", "1f1b", "--micro-batch-size", "1", "--batch-size", str(dp * 64),
                "--seq-len", "512", "--precision", "mixed", "--ignore-memory", "--fold", fold])[0])
    for plan in plans:
        name = "gpt-12b, %d x %d x %d GPUs, %s" % (48, *plan[1:3], "folded" if plan[3] == "on" else "unfolded")
        if plan != plans[0]:
            add("scale", name, "seconds / those of 48 GPUs", [a / b for a, b in zip(seconds[plan], seconds[plans[0]])])
        add("scale", name, "seconds", seconds[plan])


def overhead():
    for pp, dp in (1, 1), (2, 1), (1, 2):
        if pp * dp > len(os.sched_getaffinity(0)):
            print("overhead  pp %d dp %d skipped: it needs %d cores" % (pp, dp, pp * dp))
            continue
        command = ["mpirun", "-n", str(pp * dp), "--bind-to", "core", options.tests + "/overhead", str(pp), str(dp)]
        environment = dict(os.environ, OMPI_ALLOW_RUN_AS_ROOT="1", OMPI_ALLOW_RUN_AS_ROOT_CONFIRM="1")
        for line in run(command, environment).splitlines():
            name, unit, least, median, most = line.split(",")
            write("overhead", name, unit, float(least), float(median), float(most), 7)


def add(group, name, unit, values):
    write(group, name, unit, min(values), statistics.median(values), max(values), len(values))


def write(group, name, unit, least, median, most, runs):
    if unit != "seconds":
        print(LINE % (group, name, unit, *("%.6g" % figure for figure in (least, median, most)), runs), flush=True)
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
print(LINE % ("", "", "unit", "min", "median", "max", "runs"))
for part in options.parts or parts:
    parts[part]()
