#!/usr/bin/python3
"""Machines by name: what is listed, what --machine stands for, what is refused; and collectives that a platform has measured."""
import json
import os
import re
import subprocess
import sys
import tempfile

sys.path.insert(0, os.path.dirname(__file__))
import ranvier

TREE = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
PLAN = ["tiny", "--micro-batch-size", 1, "--batch-size", 8]
NCCL_TESTS = """# nThread 1 nGpus 1 minBytes 1048576 maxBytes 2097152 step: 2(factor) warmup iters: 5 iters: 20 agg iters: 1
# Collective test starting: all_reduce_perf
# Using devices
#  Rank  0 Group  0 Pid   1000 on     node1 device  0 [0x01] NVIDIA H100
#  Rank  1 Group  0 Pid   2000 on     node2 device  0 [0x01] NVIDIA H100
#
#                                                              out-of-place                       in-place
#       size         count      type   redop    root     time   algbw   busbw #wrong     time   algbw   busbw #wrong
#        (B)    (elements)                               (us)  (GB/s)  (GB/s)            (us)  (GB/s)  (GB/s)
     1048576        262144     float     sum      -1   350.55    2.99    2.99      0    349.1    3.00    3.00      0
     2097152        524288     float     sum      -1    700.0    3.00    3.00      0    701.2    2.99    2.99      0
# Out of bounds values : 0 OK
"""


def simulate(folder, *more, plan=None):
    """The report of a plan and what was said; None if it was refused."""
    report = os.path.join(folder, "report.json")
    status, _, err = ranvier.run(["simulate", *(plan or PLAN), *more, "--report", report])
    if status:
        return None, status, err
    with open(report) as file:
        return json.load(file), 0, err


def refused(tap, arguments, sentence, what):
    status, out, err = ranvier.run(arguments)
    tap.ok(status == 2 and out == "" and sentence in err and err.count("\n") == 1, what, f"{status}: {out}{err}")


def check_list(tap):
    status, out, err = ranvier.run(["machines"])
    rows = {line.split()[0]: line for line in out.splitlines()[1:] if re.search(r"(measured|fitted|datasheet)$", line)}
    files = {name[:-5] for name in os.listdir(os.path.join(TREE, "sim", "machines"))}
    missing = re.search(r"^Machines whose profile is not there yet:(.*)\.$", out, re.M)
    absent = set(missing.group(1).split()) if missing else set()
    tap.ok(status == 0 and rows and set(rows) | absent == files and not set(rows) & absent, "every machine is listed", out + err)
    tap.ok({"v100", "a100", "h100", "summit", "selene", "perlmutter", "meta-24k"} <= set(rows), "those that people know are there", out)
    tap.ok(re.match(r"h100 +H100-SXM5-80GB +8 +128\+ +NVLink 450 +400 / 8 +h100\S* +dgx-h100 ", rows.get("h100", "")),
           "a row has the figures of the platform", rows.get("h100"))
    for name in sorted(files):
        status, out, err = ranvier.run(["machines", name])
        sources = len(re.findall(r"^ {28}\S", out, re.M))
        tap.ok(status == 0 and sources >= 15, f"{name} is shown with a source below each figure", out + err)
    status, out, err = ranvier.run(["machines", "--json"])
    listed = {one["name"]: one for one in json.loads(out)}
    tap.ok(status == 0 and set(rows) <= set(listed) and all(row.split()[1] == listed[name]["gpu"] and
           int(row.split()[2]) == listed[name]["gpus_per_node"] and row.split()[-1] == listed[name]["kernels"] for name, row in rows.items()),
           "--json has what the rows have", err)
    status, out, err = ranvier.run(["machines", "h100", "--json"])
    one = json.loads(out)
    tap.ok(status == 0 and one["rails"] == 8 and one["nic_bytes_per_second"] == 400e9 and "figures" in one, "--json of one has its figures", out + err)
    return rows, absent


def check_names(tap, folder, rows, absent):
    words = rows["h100"].split()
    both = ["--profile", words[-3], "--platform", words[-2]]
    named, *_ = simulate(folder, "--machine", "h100", "--gpus", 8, "--dp", 8)
    given, *_ = simulate(folder, "--gpus", 8, "--dp", 8, *both)
    tap.ok(named and given and named["batch_seconds"] == given["batch_seconds"] and named["profile"] == given["profile"],
           "a machine is its profile and its platform")
    node, _, err = simulate(folder, "--machine", "4xh100", "--dp", 4)
    tap.ok(node and node["platform"]["name"] == "dgx-h100", "4xh100 needs no --gpus", err)
    other, *_ = simulate(folder, "--machine", "h100", "--platform", "meta-24k", "--gpus", 8, "--dp", 8)
    tap.ok(other and other["platform"]["name"] == "meta-24k" and other["profile"] == named["profile"],
           "--platform beside it counts for its half")
    slower, *_ = simulate(folder, "--machine", "selene", "--profile", "a100-datasheet", "--gpus", 8, "--dp", 8)
    tap.ok(slower and slower["platform"]["name"] == "selene" and "a100-datasheet" in slower["profile"]["path"],
           "--profile beside it too")
    many, _, err = simulate(folder, "--machine", "h100", "--gpus", 2048, "--dp", 2048,
                            plan=["tiny", "--micro-batch-size", 1, "--batch-size", 2048])
    tap.ok(many, "a pod has as many nodes as --gpus needs", err)
    refused(tap, ["simulate", "tiny", "--micro-batch-size", 1, "--batch-size", 32768, "--machine", "meta-24k", "--gpus", 32768,
                  "--dp", 32768], "platform meta-24k has 24576 (3072 nodes of 8)", "a cluster has as many as it has")
    for words, nearest in ((["--machine", "h100", "--platform", "selen"], "selene"), (["--machine", "h100", "--profile", "a100-datashet"], "a100-datasheet")):
        refused(tap, ["simulate", *PLAN, "--gpus", 8, "--dp", 8, *words], f"; the nearest is {nearest}\n", f"{words[-1]} is told what is near")
    refused(tap, ["simulate", "lama3-8b", *PLAN[1:], "--gpus", 8, "--dp", 8, "--machine", "h100"], "lama3-8b: no such model; the nearest is llama3-8b; ",
            "so is a model")
    plan = ["simulate", *PLAN, "--dp", 8, "--gpus", 8]
    refused(tap, [*plan, "--machine", "h10"], "there is no machine 'h10'; near are ", "a name that is not known offers others")
    refused(tap, [*plan, "--machine", "nowhere"], "there is no machine 'nowhere'; 'ranvier machines' lists all", "or says where they are")
    refused(tap, [*plan, "--machine", "8xselen"], "near are selene", "also behind a number")
    refused(tap, [*plan, "--machine", "9xh100"], "a node of h100 has 1 to 8 GPUs", "a node has no more GPUs than it has")
    refused(tap, [*plan, "--machine", "0xh100"], "a node of h100 has 1 to 8 GPUs", "nor none")
    refused(tap, [*plan, "--machine", "4xh100"], "--gpus 8: machine 4xh100 has 4", "nor can a plan take more than asked for")
    refused(tap, [*plan, "--machine", "../machines/h100"], "there is no machine", "a name is no path")
    refused(tap, ["machines", "nowhere"], "there is no machine 'nowhere'", "machines refuses a name as simulate does")
    refused(tap, [*plan, "--machine", "h100", "--replay", "t.json"], "--machine has no use with it", "a replay takes no machine")
    for name in sorted(absent):
        refused(tap, [*plan, "--machine", name], f"machine {name}: its profile is not there",
                f"{name}, whose profile is still to be made, is refused")


def check_others(tap, folder):
    csv = os.path.join(folder, "sweep.csv")
    status, out, err = ranvier.run(["sweep", "tiny", "--machine", "2xa100", "--batch-size", 8, "--offload", "no", "--csv", csv])
    tap.ok(status == 0 and re.search(r"simulate tiny --machine 2xa100 --gpus 2 ", out),
           "sweep takes it, and names it in the winner's command", out + err)
    refused(tap, ["sweep", "tiny", "--machine", "2xa100", "--gpus", "2,4", "--batch-size", 8], "--gpus 4: machine 2xa100 has 2",
            "sweep refuses more GPUs than a node was asked for")
    table = os.path.join(folder, "runs.csv")
    with open(table, "w") as file:
        file.write("gpus,batch,micro_batch,hidden,heads,layers,seq,tp,dp,pp,batch_seconds\n4,16,1,512,8,8,256,1,4,1,0.1\n")
    status, out, err = ranvier.run(["validate", "--table", table, "--machine", "a100"])
    tap.ok(status == 0 and re.search(r"^all +1 ", out, re.M) and re.search(r"^profile .*a100", out, re.M), "validate takes it", out + err)


def write(folder, name, text):
    with open(os.path.join(folder, name), "w") as file:
        file.write(text)
    return os.path.join(folder, name)


def own_platform(folder, table, **members):
    write(folder, "mine.csv", table)
    document = {"kind": "platform", "name": "mine", "source": "a test", "like": "dgx-h100", "measured_collectives": ["mine.csv"],
                **members}
    return write(folder, "mine.json", json.dumps(document, indent=1))


def check_measured(tap, folder):
    """An all-reduce of fp32 gradients that was measured to take a second takes it, in both worlds."""
    plan = ["--profile", "h100-published", "--gpus", 8, "--dp", 8, "--precision", "bf16"]
    head = "# source: a test\noperation,gpus,bytes,seconds\n"
    platform = own_platform(folder, head + "all_reduce,8,1000,1\nall_reduce,8,1000000000,1\n")
    report, _, err = simulate(folder, *plan, "--platform", platform)
    seconds = report["phases"]["allreduce_seconds"] if report else 0
    tap.ok(report and abs(seconds - 1) < 0.01, "an all-reduce takes what the platform's table says", f"{seconds} {err}")
    _, out, err = ranvier.run(["simulate", *PLAN, *plan, "--platform", platform])
    tap.ok(re.search(r"^platform   mine: a test\n           collectives as measured: a test$", out, re.M), "and that is said", out + err)
    refused(tap, ["simulate", *PLAN, *plan, "--platform", own_platform(folder, head + "all_reduce,8,1000,-1\n")],
            "mine.csv:3: seconds is \"-1\", must be a number greater than 0", "a table's error has its file and line")
    for members, sentence in (({"measured_collectives": ["h101"]}, "\"measured_collectives\" names \"h101\", must be one of a100-sxm"),
                              ({"measured_collectives": "h100-sxm"}, "must be a list of tables"),
                              ({"measured_collectives": ["../mine.csv"]}, "in the platform's own folder, or below it, was expected"),
                              ({"measured_collectives": ["/mine.csv"]}, "in the platform's own folder, or below it, was expected"),
                              ({"measured_collectives": ["none.csv"]}, "none.csv: the table of measured collectives cannot be read"),
                              ({"like": "dgx-h101"}, "\"like\" is \"dgx-h101\", must be one of: a100-roce"),
                              ({"expandable": 1}, "\"expandable\" must be true or false"),
                              ({"groups": []}, "\"measured_collectives\" are of equal nodes")):
        refused(tap, ["simulate", *PLAN, *plan, "--platform", own_platform(folder, head, **members)], sentence,
                f"{json.dumps(members)} in a platform is refused")
    script = os.path.join(TREE, "sim", "platforms", "collectives", "tables.py")
    done = subprocess.run([script, "--nccl-tests", "2", write(folder, "out.txt", NCCL_TESTS)], capture_output=True, text=True)
    rows = done.stdout.splitlines()[2:]
    tap.ok(rows == ["all_reduce,2,2,1048576,350.55", "all_reduce,2,2,2097152,700.0"], "what nccl-tests printed becomes a table",
           done.stdout + done.stderr)
    slow, _, err = simulate(folder, "--profile", "h100-published", "--gpus", 16, "--dp", 16, "--precision", "bf16", "--platform",
                            own_platform(folder, done.stdout), plan=["tiny", "--micro-batch-size", 1, "--batch-size", 16])
    tap.ok(slow, "which a platform takes", err)


def main():
    tap = ranvier.Tap()
    with tempfile.TemporaryDirectory() as folder:
        rows, absent = check_list(tap)
        check_names(tap, folder, rows, absent)
        check_others(tap, folder)
        check_measured(tap, folder)
    tap.end()


main()
