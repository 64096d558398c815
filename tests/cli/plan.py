#!/usr/bin/python3
"""ranvier plan: the best of what it weighs is the best that a sweep finds by simulating all; what it says of the training follows
from its figures; what would help does help, asked as a question of its own; an interrupt is answered; wrong questions are refused."""
import json
import math
import os
import shlex
import signal
import subprocess
import sys
import tempfile

sys.path.insert(0, os.path.dirname(__file__))
import ranvier

MODEL, MACHINE = "llama3-8b", "h100"
QUESTION = [MODEL, "--machine", MACHINE, "--gpus", 8, "--batch-size", 64]
# Axes that are small enough to simulate all of, for both commands.
AXES = ["--tp", "1,2", "--pp", "1,2,4", "--cp", "1", "--schedule", "1f1b,interleaved", "--virtual-stages", "1,2", "--zero", "0,1,3",
        "--order", "stages", "--sequence-parallel", "no,yes", "--overlap-allreduce", "no,yes", "--micro-batch-size", "1,2",
        "--recompute", "none,full", "--offload", "both", "--offload-activations", "no", "--cp-exchange", "ring", "--grid-overlap", "oag",
        "--reshard-after-forward", "on", "--gather-each", "micro-batch", "--offload-parameters", "no"]


def plan(*arguments):
    status, out, err = ranvier.run(["plan", *arguments, "--json"])
    if status:
        raise SystemExit(f"plan {arguments} ended with status {status}: {err}")
    return json.loads(out)


def seconds(answer):
    return answer["best"]["batch_seconds"]["median"]


def near(a, b, part):
    return abs(a / b - 1) <= part


def compare_with_sweep(tap, folder):
    table = os.path.join(folder, "all.csv")
    status, _, err = ranvier.run(["sweep", *QUESTION, *AXES, "--plans", "all", "--simulate", "all", "--csv", table])
    tap.ok(status == 0, "a sweep simulates all plans of the axes", err)
    with open(table) as file:
        header, *rows = [line.strip().split(",") for line in file]
    times = sorted(float(row[header.index("batch_seconds")]) for row in rows)
    answer = plan(*QUESTION, *AXES)
    tap.ok(near(seconds(answer), times[0], 1e-3), f"the plan is the best of {len(times)} that were simulated", f"{seconds(answer)} {times[:3]}")
    tap.ok(answer["search"]["simulated"] < len(times) / 4, "of which it simulated few", answer["search"])
    return answer


def check_bounds(tap):
    """A search begins with a good plan, beside which slow ones are left out. It must be one that can be run: here parts of sequences
    have no kernels, with which plans would be twice as fast as they can be."""
    answer = plan("gpt2-1.5b", "--gpus", 16, "--machine", "v100", "--batch-size", 512)
    tap.ok(answer["best"]["plan"]["cp"] == 1 and answer["search"]["fit"] > 0, "a model without some kernels has a plan", answer["best"])


def check_again(tap, folder, answer):
    report = os.path.join(folder, "again.json")
    words = shlex.split(answer["again"])
    status, _, err = ranvier.run([*words[1:], "--report", report])
    with open(report) as file:
        again = json.load(file)
    tap.ok(status == 0 and near(again["batch_seconds"]["median"], seconds(answer), 1e-8), "its command simulates it again", err)
    tap.ok(again["plan"] == answer["best"]["plan"], "and its report has the same plan")


def check_arithmetic(tap):
    answer = plan(*QUESTION, *AXES, "--tokens", "1T", "--price-per-gpu-hour", 2.5)
    best, batch = answer["best"], 64 * 8192
    days = 1e12 / batch * seconds(answer) / 86400
    tap.ok(near(best["training_days"], days, 1e-7) and near(best["gpu_hours"], 8 * 24 * days, 1e-7), "days and GPU hours follow from the time of a batch")
    tap.ok(near(best["cost"], 2.5 * 8 * 24 * days, 1e-7), "and so does what they cost")
    tap.ok(near(best["kilowatt_hours_at_most"], 10.2 * 24 * days, 1e-7) and "10.2 kW" in answer["sources"]["power"], "and what a node draws, with the source")
    shares = [part["share"] for part in answer["bound_by"]]
    tap.ok(near(sum(shares), 1, 0.02) and min(shares) >= 0, "shares of the time add up to all of it", shares)


def check_changes(tap):
    """Each change, asked as a question of its own, gains what is said."""
    answer = plan(*QUESTION, *AXES, "--memory", "40GiB")
    gains = {change["change"]: change["gain"] for change in answer["changes"]}
    tap.ok([change["gain"] for change in answer["changes"]] == sorted(gains.values(), reverse=True), "changes come with the largest gain first")
    more = plan(*QUESTION, *AXES, "--memory", "80GiB")
    tap.ok(near(1 + gains.get("device_memory", 0), seconds(answer) / seconds(more), 0.01), "twice the memory gains what is said", gains)
    larger = plan(*[128 if word == 64 else word for word in QUESTION], *AXES, "--memory", "40GiB")
    tap.ok(near(1 + gains.get("batch", 0), 2 * seconds(answer) / seconds(larger), 0.01), "twice the batch gains what is said", gains)
    fp8 = plan(*QUESTION, *AXES, "--memory", "40GiB", "--precision", "fp8")
    tap.ok(near(1 + gains.get("fp8", 0), seconds(answer) / seconds(fp8), 0.02), "fp8 gains what is said", f"{gains} {seconds(answer) / seconds(fp8)}")


def check_replicas(tap):
    """What more replicas bring, asked as a prediction of its own."""
    answer = plan(*QUESTION, *AXES)
    scales, best = {scale["gpus"]: scale for scale in answer["replicas"]}, answer["best"]
    tap.ok(scales[8]["batch_seconds"] == seconds(answer) and len(scales) > 1, "the best plan is one of those with other numbers of replicas", scales)
    flags = best["flags"].split()
    dp = flags.index("--dp") + 1
    flags[dp] = str(2 * int(flags[dp]))
    status, out, err = ranvier.run(["simulate", *[16 if word == 8 else word for word in QUESTION], *flags, "--json"])
    measured = json.loads(out)["batch_seconds"]["median"] if status == 0 else math.nan
    tap.ok(near(scales[16]["batch_seconds"], measured, 0.03), "and twice as many take what simulate says", f"{scales.get(16)} {measured} {err}")


def check_days(tap):
    wanted = 30
    answer = plan(*QUESTION, *AXES, "--tokens", "500B", "--days", wanted)
    gpus = answer["enough"]["gpus"]
    tap.ok(answer["best"]["training_days"] > wanted and gpus > 8, "a training that takes too long is told how many GPUs would do")
    more = plan(*[gpus if word == 8 else word for word in QUESTION], *AXES, "--tokens", "500B")
    tap.ok(more["best"]["training_days"] <= wanted * 1.01, "and these do", f"{gpus}: {more['best']['training_days']}")
    answer = plan(MODEL, "--machine", MACHINE, "--gpus", 64, "--batch-size", 512, "--plans", "megatron", "--like", "megatron", "--tokens", "1T", "--days", 10)
    tap.ok(answer["enough"]["gpus"] == 128, "twice as many are found behind numbers that go with hardly any plan", answer["enough"])
    status, out, _ = ranvier.run(["plan", *QUESTION, *AXES, "--tokens", "500B", "--days", 1000])
    tap.ok(status == 0 and "within the 1000 days" in out, "one that does not is told so")


def check_file(tap, folder):
    """From a script of Megatron-LM to a better one."""
    script, better, report = (os.path.join(folder, name) for name in ("train.sh", "best.sh", "best.json"))
    flags = ["--tp", 8, "--dp", 1, "--micro-batch-size", 1, "--sequence-parallel", "--zero", 1]
    ranvier.run(["simulate", *QUESTION, *flags, "--like", "megatron", "--launch", f"megatron={script}"])
    answer = plan("--from", script, "--machine", MACHINE, "--launch", f"megatron={better}")
    own = answer["own"]
    tap.ok(answer["from"]["tool"] == "Megatron-LM" and answer["question"]["model"] == MODEL and answer["question"]["batch_size"] == 64,
           "model and batch come from a launch script", answer["question"])
    tap.ok(own["plan"]["tp"] == 8 and own["plan"]["like"] == "megatron" and own["batch_seconds"]["median"] > 1.05 * seconds(answer),
           "whose own plan is simulated beside the best", own)
    status, _, err = ranvier.run(["simulate", "--from", better, "--machine", MACHINE, "--report", report])
    with open(report) as file:
        again = json.load(file)
    tap.ok(status == 0 and near(again["batch_seconds"]["median"], seconds(answer), 1e-6), "and the best is written as a script that is that plan", err)
    status, _, err = ranvier.run(["plan", "--from", script, "--machine", MACHINE, "--launch", "megatron=/nowhere/best.sh"])
    tap.ok(status == 2 and "/nowhere" in err, "a file that cannot be written is told before the search", err)


def simulated(command, folder, *more):
    """The seconds of a batch by a command that an answer gives."""
    report = os.path.join(folder, "simulated.json")
    status, _, err = ranvier.run([*shlex.split(command)[1:], *more, "--report", report])
    if status:
        raise SystemExit(f"{command}: {err}")
    with open(report) as file:
        return json.load(file)["batch_seconds"]["median"]


def check_own(tap, folder):
    """The plan of a file is taken as the command line asks for it, and its flags are all that it is."""
    script, deepspeed = os.path.join(folder, "plain.sh"), os.path.join(folder, "ds.json")
    flags = ["--tp", 4, "--dp", 2, "--micro-batch-size", 1, "--sequence-parallel", "--zero", 1, "--overlap-allreduce=no"]
    ranvier.run(["simulate", *QUESTION, *flags, "--like", "megatron", "--launch", f"megatron={script}"])
    own = plan("--from", script, "--machine", MACHINE)["own"]
    tap.ok("--overlap-allreduce=no" in own["flags"], "a switch of a framework that the file leaves off is among its plan's flags", own["flags"])
    tap.ok(near(simulated(own["again"], folder), own["batch_seconds"]["median"], 1e-8), "with which it is simulated to the same time", own)
    answer = plan("--from", script, "--machine", MACHINE, "--zero", 0)
    answers = plan("--from", script, "--machine", MACHINE, "--like", "torchtitan", "--launch", f"torchtitan={os.path.join(folder, 'job.toml')}",
                   "--tp", "1,4", "--pp", "1,2", "--cp", 1, "--micro-batch-size", 1)
    tap.ok(answers["own"]["plan"]["like"] == "torchtitan" and answers["best"]["plan"]["zero"] == 3 and os.path.exists(os.path.join(folder, "job.toml")),
           "of a script of Megatron-LM a plan for torchtitan is found and written", answers["best"]["flags"])
    tap.ok(answer["own"]["plan"]["zero"] == 0 and answer["best"]["plan"]["zero"] == 0, "a flag of the command line takes the place of the file's",
           answer["own"]["flags"])
    with open(deepspeed, "w") as file:
        json.dump({"train_batch_size": 64, "train_micro_batch_size_per_gpu": 1, "gradient_clipping": "auto", "bf16": {"enabled": True},
                   "zero_optimization": {"stage": 3}}, file)
    question = [MODEL, "--from", deepspeed, "--gpus", 8, "--machine", MACHINE, *AXES[:-2], "--recompute", "layer"]
    ours, theirs = plan(*question), plan(*question, "--like", "deepspeed")
    tap.ok(theirs["own"]["plan"]["like"] == "deepspeed" and theirs["own"]["batch_seconds"]["median"] > 1.1 * ours["own"]["batch_seconds"]["median"],
           "a file's plan is predicted as the framework that the command line names", (ours["own"]["plan"], theirs["own"]["plan"]))
    tap.ok(ours["own"]["plan"]["recompute"] == theirs["own"]["plan"]["recompute"] == "layer" and ours["own"]["plan"]["clip"] == 1,
           "and so is its recomputation; \"auto\" is the default", ours["own"]["plan"])
    tap.ok(ours["from"]["automatic"] == ["gradient_clipping"], "which is listed", ours["from"])
    words = " ".join(str(word) for word in question)
    said = ranvier.run(["plan", *question])[2] + ranvier.run(["plan", *question, "--like", "deepspeed"])[2]
    tap.ok(said.count("own kernels") == 1, "where no framework is named, it is said whose kernels are predicted", words + said)


def check_tools(tap):
    """Plans of a tool: those that it can be told, where it is named by --like too."""
    question = [MODEL, "--machine", MACHINE, "--gpus", 8, "--batch-size", 256, "--micro-batch-size", 1]
    for like, plans in (("torchtitan", "torchtitan"), ("megatron", "Megatron-LM"), ("deepspeed", "DeepSpeed")):
        answer = plan(*question, "--like", like)
        said = " ".join(answer["question"]["assumed"])
        with tempfile.TemporaryDirectory() as folder:
            words = shlex.split(answer["again"])
            status, _, err = ranvier.run([*words[1:], "--launch", f"{like}={os.path.join(folder, 'launched')}"])
        tap.ok(f"plans that {plans} has" in said and status == 0, f"like {like}: the best plan is one that it can be told", said + err)
    with tempfile.TemporaryDirectory() as folder:
        table = os.path.join(folder, "sweep.csv")
        status, _, err = ranvier.run(["sweep", MODEL, "--machine", MACHINE, "--gpus", 8, "--batch-size", 64, "--micro-batch-size", 1, "--tp", 1, "--pp", 1,
                                      "--offload", "no", "--plans", "torchtitan", "--csv", table])
        with open(table) as file:
            header, *rows = [line.strip().split(",") for line in file]
        tap.ok(status == 0 and rows and {row[header.index("zero")] for row in rows} == {"3"}, "and so are those of a sweep", err)
        auto = os.path.join(folder, "auto.json")
        with open(auto, "w") as file:
            json.dump({"train_batch_size": "auto", "train_micro_batch_size_per_gpu": "auto", "gradient_accumulation_steps": "auto",
                       "bf16": {"enabled": True}}, file)
        answer = plan(MODEL, "--from", auto, "--machine", MACHINE, "--gpus", 8, "--tp", 1, "--pp", 1, "--cp", 1, "--micro-batch-size", 1)
        tap.ok(answer["question"]["batch_size"] == 512, "a file that leaves its batches to the trainer does not choose them", answer["question"])
    answer = plan("mistral-7b", "--machine", MACHINE, "--gpus", 8, "--like", "torchtitan", "--tp", 1, "--pp", 1)
    tap.ok("sequences of 4096" in " ".join(answer["question"]["assumed"]), "sequences are no longer than a sliding window, unasked", answer["question"])
    asked = plan(*question, "--zero", "3", "--gather-each", "batch")
    unasked = plan(*question, "--zero", "3")
    tap.ok(asked["best"]["plan"]["gather_each"] == "batch" and unasked["best"]["plan"].get("gather_each", "micro-batch") == "micro-batch",
           "gradients of 32 micro-batches are added up in bf16 only where that is asked for", (asked["best"]["plan"], unasked["best"]["plan"]))


def check_text(tap):
    status, out, err = ranvier.run(["plan", *QUESTION, *AXES])
    parts = ("the best plan", "a batch", "throughput", "memory", "bound by", "training", "searched", "profile", "platform", "again")
    tap.ok(status == 0 and all(part in out for part in parts), "the answer has all of its parts", out + err)
    status, out, err = ranvier.run(["plan", "llama3.1-405b", "--machine", MACHINE, "--gpus", 8])
    tap.ok(status == 2 and "no plan fits; on 8 GPUs the nearest of" in err and not out, "what does not fit is told the nearest plan", err)
    answer = plan("tiny", "--machine", MACHINE, "--gpus", 1)
    said = " ".join(answer["question"]["assumed"])
    tap.ok("--batch-tokens" in said and "--tokens" in said, "what the question leaves open is said", said)
    tap.ok(answer["best"]["cost"] is None and answer["best"]["plan"]["dp"] == 1, "and no cost is made up")


def check_interrupt(tap):
    """A search of many minutes, which says how far it is: the first word of that is answered with an interrupt."""
    environment = dict(os.environ, ASAN_OPTIONS="detect_leaks=0")
    command = [os.path.join(ranvier.BIN, "ranvier"), "plan", "deepseek-v3", "--machine", MACHINE, "--gpus", "2048", "--json"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment) as running:
        first = running.stderr.readline()
        running.send_signal(signal.SIGINT)
        out, err = running.communicate()
    tap.ok(first.startswith("weighing plans"), "a long search says how far it is", first)
    tap.ok(running.returncode in (0, 1, 2), "an interrupt ends it", f"{running.returncode} {err}")
    if running.returncode == 0:
        answer = json.loads(out)
        tap.ok(answer["search"]["stopped"] and answer["search"]["simulated"] > 0, "what was found is answered")
    else:
        tap.ok("interrupted before a plan was found that fits" in err, "nothing was found, which is said", err)


def main():
    tap = ranvier.Tap()
    if not ranvier.SANITIZED:  # minutes there, of the same code with other numbers
        with tempfile.TemporaryDirectory() as folder:
            answer = compare_with_sweep(tap, folder)
            check_again(tap, folder, answer)
            check_file(tap, folder)
            check_own(tap, folder)
        check_bounds(tap)
        check_tools(tap)
        check_changes(tap)
        check_replicas(tap)
        check_days(tap)
        check_interrupt(tap)
    check_arithmetic(tap)
    check_text(tap)
    tap.end()


main()
