#!/usr/bin/python3
"""Wrong input: each command below ends with one sentence, the right exit status, within a minute, and leaves no file.
The sentences are in tests/golden/bad_input.txt (GOLDEN=1 rewrites it). Then: ranks that die, and jobs that are stopped."""
import concurrent.futures
import glob
import hashlib
import json
import os
import re
import signal
import struct
import subprocess
import sys
import tempfile
import time

sys.path.insert(0, os.path.dirname(__file__))
import ranvier
import text

TESTS = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
GOLDEN = os.path.join(TESTS, "golden", "bad_input.txt")
LIMIT_SECONDS = 60
USAGE, FAILED = 2, 1

# A plan and a prediction with nothing wrong in them: a case adds what is wrong (the last of an option counts).
TRAIN = "--data text.txt --batch-size 4 --micro-batch-size 1 --steps 2"
SIMULATE = "--profile a100-datasheet --platform generic --gpus 2 --pp 2 --batch-size 4 --micro-batch-size 1"
REPLAY = "simulate tiny --gpus 2 --pp 2 --batch-size 4 --micro-batch-size 1 --replay "
ALONE, BOTH = (0,), (0, 2)  # without mpirun; and also under mpirun -n 2, where rank 0 alone must say the same


def train(what, options, status=USAGE, model="tiny", ranks=BOTH):
    return case(f"train: {what}", f"train {model} TRAIN {options}".strip(), status, ranks)


def simulate(what, options, status=USAGE, model="tiny"):
    return case(f"simulate: {what}", f"simulate {model} SIMULATE {options}".strip(), status)


def case(what, line, status=USAGE, ranks=ALONE):
    return what, line, status, ranks


CASES = [
    case("a command that does not exist", "trian tiny", ranks=BOTH),
    case("an option of the dispatcher that does not exist", "--nonsense"),
    case("a command of a later version", "sweep --gpus 48,96", ranks=BOTH),
    case("another command of a later version", "validate"),

    case("train with nothing", "train", ranks=BOTH),
    train("an option that does not exist", "--colour"),
    train("an option without its argument", "--steps"),
    train("a number that is none", "--steps abc"),
    train("a number with more behind it", "--batch-size 4x"),
    train("a negative number", "--micro-batch-size -1"),
    train("a zero", "--batch-size 0"),
    train("a number beyond 64 bits", "--seq-len 99999999999999999999"),
    train("a learning rate that is not a number", "--lr nan"),
    train("a negative learning rate", "--lr -1"),
    train("a warm-up as long as the training", "--warmup 2"),
    train("one word too many", "large"),
    train("a schedule that does not exist", "--schedule lifo"),
    train("a grid with too few ranks", "--pp 3", ranks=BOTH),
    train("a grid with too many ranks", "--pp 1", ranks=(2,)),
    train("more stages than layers", "--pp 5", ranks=(5,)),
    train("a batch that does not divide", "--batch-size 6 --micro-batch-size 4"),
    train("a sequence longer than the model's", "--seq-len 65"),
    case("train: no data", "train tiny --batch-size 4 --micro-batch-size 1", ranks=BOTH),
    case("train: no batch", "train tiny --data text.txt", ranks=BOTH),
    train("--offload", "--offload"),
    train("--tp", "--tp 2"),
    train("--device cuda", "--device cuda"),
    train("--precision mixed", "--precision mixed"),
    train("--schedule zero-bubble", "--schedule zero-bubble"),

    train("a preset that does not exist", "", model="gigantic"),
    train("a model file that does not exist", "", model="missing.json"),
    train("a model file that is empty", "", model="empty.json"),
    train("a model file cut short", "", model="model_truncated.json"),
    train("a model file with a comma too many", "", model="model_malformed.json"),
    train("a model file that is a folder", "", model="./folder"),
    train("a model without a layer count", "", model="model_no_layers.json"),
    train("heads that do not divide", "", model="model_heads.json"),
    train("a model of absurd size", "", model="model_absurd.json"),
    train("a model far larger than the memory", "", FAILED, model="model_large.json"),
    train("a model whose bytes pass 64 bits", "--batch-size 2097152 --micro-batch-size 1048576", model="model_limits.json"),
    train("a micro-batch far larger than the memory", "--batch-size 2097152 --micro-batch-size 1048576", FAILED,
          "gpt2-124m"),
    train("more optimizer updates than can be scheduled", "--bucket-params 1", model="model_large.json"),
    train("a message beyond what MPI counts", "--pp 2 --batch-size 262144 --micro-batch-size 262144", ranks=(2,)),

    train("a text that does not exist", "--data missing.txt"),
    train("a text that is empty", "--data empty.txt"),
    train("a text shorter than a sequence", "--data short.txt"),
    train("a text too short for validation", "--data short.txt --validation-fraction 0.5 --seq-len 16"),
    train("a folder as text", "--data folder"),
    train("a device as text", "--data /dev/zero"),
    train("tokens that do not exist", "--data missing.bin"),
    train("tokens cut in the middle of one", "--data odd.bin"),
    train("tokens cut short of what their header counts", "--data truncated.bin"),
    train("tokens whose header is cut short", "--data header.bin"),
    train("tokens with the magic number of another format", "--data magic.bin"),
    train("tokens beyond the vocabulary", "--data beyond.bin"),

    train("a report in a folder that does not exist", "--report nowhere/report.json"),
    train("a log below a regular file", "--log text.txt/log.csv"),
    train("a checkpoint that is a folder", "--checkpoint folder"),
    train("a trace without a name", "--trace="),
    train("two outputs of one name", "--report out --log out"),
    train("an output that would replace the data", "--log ./text.txt"),
    train("an output that would replace the model", "--trace model.json", model="model.json"),
    train("a report on a full disk", "--report /dev/full", FAILED),
    train("a log on a full disk", "--log /dev/full", FAILED),
    train("a trace on a full disk", "--trace /dev/full", FAILED),
    train("a checkpoint on a full disk", "--checkpoint /dev/full", FAILED),
    train("a training that diverges", "--lr 10 --min-lr 10 --weight-decay 10 --clip 0 --warmup 0 --steps 1000 "
          "--report r.json --log l.csv --checkpoint c --trace t.json", FAILED),

    simulate("a grid that is not the GPUs", "--gpus 3"),
    simulate("no number of GPUs", "--gpus="),
    simulate("more stages than layers", "--gpus 5 --pp 5"),
    simulate("no GPUs", "--gpus 0"),
    simulate("--tp", "--tp 2"),
    simulate("a profile that does not exist", "--profile missing.json"),
    simulate("a profile cut short", "--profile profile_truncated.json"),
    simulate("a profile that is none", "--profile model.json"),
    simulate("a report as profile", "--profile measured.json"),
    simulate("a profile with a negative time", "--profile profile_negative.json"),
    simulate("a profile without a needed kernel", "--profile profile_kernel.json"),
    simulate("a profile without fits of it", "--profile profile_points.json --fits-only"),
    simulate("a measured profile without a needed kernel", "--profile profile_measured.json"),
    simulate("a measured profile without fits of it", "--profile profile_measured_points.json --fits-only"),
    simulate("a datasheet as the local machine", "--platform local"),
    simulate("a platform that does not exist", "--platform atlantis"),
    simulate("a platform file that does not exist", "--platform missing.json"),
    simulate("a profile as platform", "--platform profile_kernel.json"),
    simulate("a platform cut short", "--platform platform_truncated.json"),
    simulate("a platform that is not JSON", "--platform platform_malformed.json"),
    simulate("a platform of too few GPUs", "--gpus 1024 --pp 4 --dp 256 --batch-size 256"),
    simulate("a SimGrid platform that is none", "--platform platform.xml"),
    simulate("a plan that does not fit", "--gpus 1 --pp 1", model="gpt-12b"),
    simulate("a micro-batch far larger than any memory", "--batch-size 1048576 --micro-batch-size 1048576",
             model="gpt-100b"),
    case("simulate: a trace that does not exist", REPLAY + "missing.json"),
    case("simulate: a report as trace", REPLAY + "measured.json"),
    simulate("a replay that is given a profile", "--replay measured.json"),
    simulate("a report in a folder that does not exist", "--report nowhere/report.json"),
    simulate("two outputs of one name", "--trace out --platform-xml ./out"),
    simulate("an output that would replace the profile", "--profile profile_kernel.json --report profile_kernel.json"),
    simulate("an output that would replace the model", "--trace ./model.json", model="model.json"),
    simulate("a report on a full disk", "--report /dev/full", FAILED),
    simulate("a trace on a full disk", "--trace /dev/full", FAILED),

    case("calibrate without a place for its profile", "calibrate --quick", ranks=BOTH),
    case("calibrate for a number of ranks that is none", "calibrate --ranks two --out p.json"),
    case("calibrate with an option that does not exist", "calibrate --fast --out p.json", ranks=BOTH),
    case("calibrate for cuda", "calibrate --device cuda --out p.json", ranks=BOTH),
    case("calibrate for a model that does not exist", "calibrate --model gigantic --out p.json", ranks=BOTH),
    case("calibrate for more stages than layers", "calibrate --model tiny --pp 5 --out p.json", ranks=BOTH),
    case("calibrate for a list with a hole", "calibrate --micro-batch-size 1,,4 --out p.json", ranks=BOTH),
    case("calibrate on two ranks with an option that does not exist", "calibrate --ranks 2 --wrong --out p.json"),
    case("calibrate on two ranks without a place for its profile", "calibrate --ranks 2 --quick"),
    case("calibrate on two ranks into a folder that does not exist", "calibrate --ranks 2 --quick --out nowhere/p.json"),
    case("calibrate on two ranks for a model that does not exist", "calibrate --ranks 2 --model gigantic --out p.json"),
    case("calibrate into the model", "calibrate --model tiny,model.json --out ./model.json", ranks=BOTH),
    case("calibrate into a folder that does not exist", "calibrate --quick --out nowhere/p.json", ranks=BOTH),

    case("compare of one report", "compare predicted.json"),
    case("compare of reports of different plans", "compare predicted.json other_plan.json"),
    case("compare the wrong way round", "compare measured.json predicted.json"),
    case("compare with a report that does not exist", "compare predicted.json missing.json"),
    case("compare with a report cut short", "compare predicted.json report_truncated.json"),
    case("compare with a model", "compare predicted.json model.json"),
    case("compare into a CSV on a full disk", "compare predicted.json measured.json --csv /dev/full", FAILED),
    case("compare into one of its reports", "compare predicted.json measured.json --csv ./measured.json"),
    case("compare into two files of one name", "compare predicted.json measured.json --csv a.svg --plot a.svg"),
    case("plot of a figure that does not exist", "plot portrait a.png measured.json"),
    case("plot with a wrong suffix", "plot memory a.jpeg measured.json"),
    case("plot into a folder that does not exist", "plot memory nowhere/a.png measured.json"),
    case("plot of a trace that does not exist", "plot timeline a.png missing.json"),
    case("plot of a report as a trace", "plot timeline a.png measured.json"),
    case("plot of a loss that does not exist", "plot loss a.png missing.csv"),
    case("plot into what it reads", "plot loss text.svg text.svg"),
    case("plot of a text as a loss", "plot loss a.png text.txt"),

    case("sample without a checkpoint", "sample"),
    case("sample of a checkpoint that does not exist", "sample missing.safetensors"),
    case("sample of a checkpoint cut short", "sample truncated.safetensors"),
    case("sample of a checkpoint whose header is cut short", "sample header.safetensors"),
    case("sample of a text", "sample text.txt"),
    case("sample of an empty file", "sample empty.txt"),
    case("sample of a folder", "sample folder"),
    case("sample of no number of tokens", "sample whole.safetensors --tokens many"),
    case("sample at a temperature below zero", "sample whole.safetensors --temperature -1"),
]


# ---- the files that the cases name ----

def write(folder, name, content):
    with open(os.path.join(folder, name), "wb") as file:
        file.write(content if isinstance(content, bytes) else content.encode())


def read(*path):
    with open(os.path.join(*path), "rb") as file:
        return file.read()


def write_models(folder):
    model = {"n_layer": 2, "n_embd": 32, "n_head": 4, "vocab_size": 256, "n_positions": 32}
    variants = {
        "model": {}, "model_heads": {"n_head": 5}, "model_absurd": {"n_layer": 10 ** 15},
        "model_large": {"n_layer": 1000, "n_embd": 131072, "n_head": 64},
        "model_limits": {"n_layer": 10000, "n_embd": 131072, "n_head": 1024, "n_positions": 131072},
    }
    for name, changes in variants.items():
        write(folder, name + ".json", json.dumps({**model, **changes}, indent=1))
    whole = json.dumps(model, indent=1)
    write(folder, "model_truncated.json", whole[:len(whole) // 2])
    write(folder, "model_malformed.json", whole.replace("}", ",}"))
    write(folder, "model_no_layers.json", whole.replace("n_layer", "n_layers"))
    write(folder, "empty.json", "")


def write_data(folder):
    text.write(os.path.join(folder, "text.txt"))
    write(folder, "text.svg", "step")
    write(folder, "empty.txt", "")
    write(folder, "short.txt", "a text of 24 characters.")
    tokens = struct.pack("<4000H", *[i % 200 for i in range(4000)])
    header = struct.pack("<256i", 20240520, 1, 4000, *[0] * 253)
    write(folder, "odd.bin", tokens[:-1])
    write(folder, "truncated.bin", header + tokens[:-100])
    write(folder, "header.bin", header[:500])
    write(folder, "magic.bin", struct.pack("<256i", 20240801, 7, 2000, *[0] * 253) + tokens)
    write(folder, "beyond.bin", tokens + struct.pack("<H", 256) + tokens)


def write_profiles(folder):
    profile = json.loads(read(TESTS, "fixtures", "profile_60_180.json"))
    kernels = profile["loads"][0]["kernels"]
    whole = json.dumps(profile, indent=1)
    write(folder, "profile_truncated.json", whole[:len(whole) // 2])
    negative = json.loads(whole)
    negative["loads"][0]["kernels"]["matmul"]["fit"]["overhead_seconds"] = -1
    write(folder, "profile_negative.json", json.dumps(negative, indent=1))
    del kernels["softmax"]
    write(folder, "profile_kernel.json", json.dumps(profile, indent=1))
    kernels["softmax"] = {"points": [{"batch": 1, "m": 1, "n": 1, "k": 0, "seconds": 1e-3, "p10": 1e-3, "p90": 1e-3,
                                      "samples": 9}]}
    write(folder, "profile_points.json", json.dumps(profile, indent=1))
    profile["measured"] = True
    write(folder, "profile_measured_points.json", json.dumps(profile, indent=1))
    del kernels["softmax"]
    write(folder, "profile_measured.json", json.dumps(profile, indent=1))
    platform = read(os.path.dirname(TESTS), "sim", "platforms", "generic.json")
    write(folder, "platform_truncated.json", platform[:len(platform) // 2])
    write(folder, "platform_malformed.json", '{\n "kind": "platform",\n "name": broken\n}\n')
    write(folder, "platform.xml", "<?xml version='1.0'?>\n<platfrm/>\n")


def write_results(folder):
    """Reports from the fixtures, and checkpoints that ranvier itself wrote."""
    for name, fixture in (("predicted", "predicted-1"), ("measured", "measured-1"), ("other_plan", "measured-2")):
        write(folder, name + ".json", read(TESTS, "fixtures", "plot", fixture + ".json"))
    write(folder, "report_truncated.json", read(folder, "measured.json")[:500])
    whole = os.path.join(folder, "whole.safetensors")
    status, _, said = ranvier.run(f"train tiny {TRAIN} --steps 0 --checkpoint {whole}".split(), folder=folder)
    if status != 0:
        raise SystemExit(f"no checkpoint to cut: {said}")
    checkpoint = read(whole)
    write(folder, "truncated.safetensors", checkpoint[:-4])
    write(folder, "header.safetensors", checkpoint[:100])


def write_inputs(folder):
    os.mkdir(os.path.join(folder, "folder"))
    os.mkdir(os.path.join(folder, "temporary"))
    write_models(folder)
    write_data(folder)
    write_profiles(folder)
    write_results(folder)


# ---- a case ----

def snapshot(folder):
    """Every file and folder below, with what is in it."""
    found = {}
    for where, folders, files in os.walk(folder):
        found.update((os.path.join(where, name), "folder") for name in folders)
        found.update((os.path.join(where, name), hashlib.sha1(read(where, name)).hexdigest()) for name in files)
    return found


def copy(inputs, folder):
    subprocess.run(["cp", "-r", inputs + "/.", folder], check=True)


def attempt(inputs, line, ranks):
    """Runs in a folder of its own; returns exit status, lines that ranvier said, and what is wrong besides."""
    with tempfile.TemporaryDirectory() as folder:
        copy(inputs, folder)
        before = snapshot(folder)
        variables = {} if ranks else {"TMPDIR": os.path.join(folder, "temporary")}
        arguments = line.replace("TRAIN", TRAIN).replace("SIMULATE", SIMULATE).split()
        if ranks and line.startswith("train") and "--pp" not in line:
            arguments[2:2] = ["--dp", str(ranks)]
        try:
            status, _, said = ranvier.run(arguments, ranks, folder, LIMIT_SECONDS, **variables)
        except subprocess.TimeoutExpired:
            return None, [], f"it did not end in {LIMIT_SECONDS} s"
        after = snapshot(folder)
    lines = [l for l in said.replace(inputs, ".").splitlines() if re.match(r"ranvier( \w+)?: ", l)]
    others = [l for l in said.splitlines() if l and not l.startswith("ranvier") and not l.startswith("step ")]
    wrong = []
    if before != after:
        wrong.append(f"files changed: {sorted(set(before.items()) ^ set(after.items()))}")
    if len(lines) != 1:
        wrong.append(f"{len(lines)} sentences, 1 was expected: {said}")
    if others and not ranks:  # mpirun adds lines of its own
        wrong.append(f"more than a sentence: {others}")
    return status, lines, "; ".join(wrong)


def plain(sentence):
    """Without what depends on the machine or does not matter: where the tree lies, how much memory there is, how fast
    numbers grow, how long a header is."""
    sentence = sentence.replace(os.path.dirname(TESTS) + "/", "")
    sentence = re.sub(r"the loss of step [0-9]+ is (not a number|infinite)", "the loss of step N is not finite", sentence)
    sentence = re.sub(r"a header of [0-9]+ bytes", "a header of N bytes", sentence)
    return re.sub(r"has [0-9.]+ GiB for it", "has N GiB for it", sentence)


def examine(inputs, what, line, status, rank_counts):
    """The lines of the golden file for this case, and what is wrong with it."""
    golden = [f"# {what}"]
    wrong = []
    first = None
    for ranks in rank_counts:
        found, lines, complaint = attempt(inputs, line, ranks)
        if complaint:
            wrong.append(complaint)
        if found != status:
            wrong.append(f"exit status {found}, {status} was expected: {lines}")
        sentence = plain(lines[0]) if lines else ""
        if sentence != first:
            golden += [f"$ {f'mpirun -n {ranks} ' if ranks else ''}ranvier {line}", sentence, f"status {found}"]
        first = sentence
    return golden, "; ".join(wrong)


def golden_cases():
    """The golden file as {name: lines}."""
    if not os.path.exists(GOLDEN):
        return {}
    with open(GOLDEN) as file:
        blocks = file.read().strip().split("\n\n")
    return {block.split("\n")[0]: block.split("\n") for block in blocks}


def check_cases(tap):
    with tempfile.TemporaryDirectory() as inputs, concurrent.futures.ThreadPoolExecutor(8) as pool:
        write_inputs(inputs)
        results = list(pool.map(lambda row: examine(inputs, *row), CASES))
    expected = golden_cases()
    if os.environ.get("GOLDEN"):
        with open(GOLDEN, "w") as file:
            head = f"What wrong input is answered with.\nTRAIN: {TRAIN}\nSIMULATE: {SIMULATE}"
            file.write("\n\n".join([head] + ["\n".join(golden) for golden, _ in results]) + "\n")
        expected = golden_cases()
    for (what, _, status, _), (golden, wrong) in zip(CASES, results):
        known = expected.get(golden[0])
        if known != golden:
            wrong += f"; the golden file has {known}, found {golden}"
        tap.ok(not wrong, f"{what}: status {status}, one sentence, nothing left", wrong)


# ---- jobs that do not come to their end ----

OUTPUTS = ["log.csv", "report.json", "model.safetensors", "trace.json"]


def start_long_job(folder):
    """A pipeline of two ranks in training; returns mpirun once the log has some steps."""
    text.write(os.path.join(folder, "text.txt"))
    environment = dict(os.environ, OMPI_ALLOW_RUN_AS_ROOT="1", OMPI_ALLOW_RUN_AS_ROOT_CONFIRM="1")
    command = ["mpirun", "--oversubscribe", "--bind-to", "none", "-n", "2", os.path.join(ranvier.BIN, "ranvier"),
               "train", "tiny", "--data", "text.txt", "--pp", "2", "--micro-batch-size", "1", "--batch-size", "4",
               "--steps", "5000000", "--log", "log.csv", "--report", "report.json", "--checkpoint", "model.safetensors",
               "--trace", "trace.json"]
    job = subprocess.Popen(command, cwd=folder, env=environment, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
                           stderr=subprocess.DEVNULL)
    deadline = time.monotonic() + LIMIT_SECONDS
    while time.monotonic() < deadline and job.poll() is None:
        for log in glob.glob(os.path.join(folder, "log.csv.tmp*")):
            if read(log).count(b"\n") > 4:
                return job
        time.sleep(0.05)
    job.kill()
    raise SystemExit("the job that was to be ended has not begun to train")


def ranks_of(job):
    """Process ids of the ranks, by rank: children of this mpirun only."""
    with open(f"/proc/{job.pid}/task/{job.pid}/children") as file:
        children = [int(pid) for pid in file.read().split()]
    ranks = {}
    for pid in children:
        environment = read("/proc", str(pid), "environ").split(b"\0")
        rank = [v.split(b"=")[1] for v in environment if v.startswith(b"OMPI_COMM_WORLD_RANK=")]
        if rank:
            ranks[int(rank[0])] = pid
    return ranks


def alive(pid):
    """Whether a rank still runs (a zombie does not)."""
    try:
        with open(f"/proc/{pid}/stat") as file:
            return file.read().rpartition(")")[2].split()[0] != "Z"
    except (FileNotFoundError, ProcessLookupError):
        return False


def check_end(tap, what, end, keeps_log=False):
    with tempfile.TemporaryDirectory() as folder:
        job = start_long_job(folder)
        ranks = ranks_of(job)
        tap.ok(sorted(ranks) == [0, 1], f"{what}: there are two ranks, in training", ranks)
        end(job, ranks)
        try:
            status = job.wait(30)
        except subprocess.TimeoutExpired:
            status = None
            job.kill()
        deadline = time.monotonic() + 10
        while time.monotonic() < deadline and any(alive(pid) for pid in ranks.values()):
            time.sleep(0.1)
        left = sorted(set(os.listdir(folder)) - {"text.txt"})
        tap.ok(status not in (0, None), f"{what}: the job ends within 30 s, and not with status 0", status)
        tap.ok(not any(alive(pid) for pid in ranks.values()), f"{what}: no rank lives on", ranks)
        if keeps_log:
            tap.ok(not set(left) & set(OUTPUTS), f"{what}: no output stands under its final name", left)
        else:
            tap.ok(not left, f"{what}: no file is left, under its final or a temporary name", left)


def check_ends(tap):
    check_end(tap, "rank 1 is killed", lambda job, ranks: os.kill(ranks[1], signal.SIGKILL))
    check_end(tap, "rank 0 is killed (its temporary log stays)", lambda job, ranks: os.kill(ranks[0], signal.SIGKILL), True)
    check_end(tap, "mpirun gets SIGTERM", lambda job, ranks: job.send_signal(signal.SIGTERM))
    check_end(tap, "mpirun gets SIGINT", lambda job, ranks: job.send_signal(signal.SIGINT))


def main():
    tap = ranvier.Tap()
    check_cases(tap)
    check_ends(tap)
    tap.end()


if __name__ == "__main__":
    main()
