#!/usr/bin/python3
"""What predictions take from a profile and say of it: the precision where none is given, and which kernels there are."""
import json
import os
import re
import subprocess
import sys
import tempfile

sys.path.insert(0, os.path.dirname(__file__))
import ranvier

TREE = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
SUFFIXES = {"fp32": "", "mixed": "_half", "bf16": "_bf16"}
KERNELS = ("matmul embedding embedding_backward layernorm layernorm_backward bias bias_backward bias_gelu gelu_backward "
           "bias_residual residual rmsnorm rmsnorm_backward rope swiglu swiglu_backward softmax softmax_backward cross_entropy "
           "cross_entropy_loss squared_norm adamw clear").split()
HALF_KERNELS = ["overflow", "unscale"]  # of 16 bits only
PLAN = ["tiny", "--gpus", 2, "--dp", 2, "--micro-batch-size", 2, "--batch-size", 8, "--platform", "generic"]
SWEEP = ["sweep", "tiny", "--gpus", 2, "--batch-size", 8, "--pp", "1,2", "--micro-batch-size", 2, "--platform", "generic",
         "--offload-activations", "no", "--recompute", "none"]


def write_profile(path, precisions, measured=False, ranks=8, **members):
    """A profile whose kernels all take what their bytes need, in these precisions."""
    kernels = {name + SUFFIXES[p]: {"model": {"bytes_per_second": 1e12, "error": 0.05}} for p in precisions
               for name in KERNELS + (HALF_KERNELS if p != "fp32" else [])}
    profile = {"ranvier": "0.1.0", "kind": "profile", "device": "A100-SXM4-80GB", "measured": measured, "source": "a test",
               "peak_flops_per_second": 1e14, "device_memory_bytes": 1 << 34,
               "loads": [{"ranks": ranks, "op_overhead_seconds": 0.0, "kernels": kernels}], **members}
    with open(path, "w") as file:
        json.dump(profile, file)
    return path


def read(path):
    with open(path) as file:
        return json.load(file)


def check_simulate(tap, folder):
    report = os.path.join(folder, "report.json")

    def taken(precisions, *more):
        profile = write_profile(os.path.join(folder, "profile.json"), precisions)
        status, out, err = ranvier.run(["simulate", *PLAN, "--profile", profile, "--report", report, *more])
        return (read(report)["plan"]["precision"], "\n".join(out.split("\n")[:3]), read(report)["notes"]) if status == 0 else \
            (None, err, [])

    for there, expected in ((["fp32"], "fp32"), (["mixed"], "mixed"), (["bf16"], "bf16"), (["fp32", "mixed", "bf16"], "mixed"),
                            (["fp32", "bf16"], "bf16")):
        precision, said, notes = taken(there)
        tap.ok(precision == expected, f"without --precision a profile of {' and '.join(there)} is asked in {expected}", said)
        if len(there) > 1:
            tap.ok(f"--precision was not given: {expected} is taken" in said and any(
                f"--precision was not given: {expected} is taken" in note for note in notes),
                "which the first lines and the report say", said)
    precision, said, _ = taken(["fp32", "mixed"], "--precision", "fp32")
    tap.ok(precision == "fp32" and "was not given" not in said, "a precision that is given is taken, without a word", said)
    precision, said, _ = taken(["mixed"], "--precision", "bf16")
    tap.ok(precision == "bf16", "what a GPU's profile has of fp16 stands for bf16", said)
    precision, said, _ = taken(["fp32"], "--precision", "bf16")
    tap.ok(precision is None and "take --precision fp32, or a profile that has the other" in said and "calibrate" not in said,
           "of a profile that nobody measured the cure is not to measure", said)
    precision, said, _ = taken(["fp32"], "--offload")
    tap.ok(precision is None and "leave --offload out" in said, "offloading from a profile of fp32 alone is refused", said)


def check_sweep(tap, folder):
    def swept(precisions, *more):
        profile = write_profile(os.path.join(folder, "profile.json"), precisions)
        return ranvier.run([*SWEEP, "--profile", profile, *more])

    for offload in "no", "both":
        status, out, err = swept(["mixed"], "--offload", offload)
        tap.ok(status == 0 and "mixed precision" in out, f"--offload {offload} leaves sweep's precision the profile's", out + err)
    status, out, err = swept(["fp32"])
    excluded = re.search(r"^  (\d+), such as: --offload needs --precision mixed or bf16", out, re.M)
    tap.ok(status == 0 and "fp32 precision" in out and excluded and int(excluded[1]) == 2,
           "of a profile of fp32 alone the plans that offload are excluded, counted, and the reason is said", out + err)
    status, out, err = swept(["fp32", "mixed"], "--precision", "fp32")
    tap.ok(status == 0 and "such as: --offload needs --precision mixed" in out, "and so they are where fp32 is asked for", out + err)
    status, out, err = swept(["fp32"], "--offload", "yes")
    tap.ok(status == 2 and "leave --offload out" in err, "offloading alone is refused there", out + err)


def check_validate(tap, folder):
    table = os.path.join(folder, "runs.csv")
    with open(table, "w") as file:
        file.write("gpus,batch,micro_batch,hidden,heads,layers,seq,tp,pp,dp,measured,unit\n"
                   "2,8,2,64,4,4,64,1,1,2,1,batch_seconds\n")
    for precision in "fp32", "bf16":
        profile = write_profile(os.path.join(folder, "profile.json"), [precision])
        status, out, err = ranvier.run(["validate", "--table", table, "--profile", profile, "--platform", "generic"])
        said = f"note: --precision was not given: {precision} is taken" in out.split("\n")[0]
        tap.ok(status == 0 and said == (precision != "fp32"), f"validate takes {precision} of a profile that has no other", out + err)


def check_doubts(tap, folder):
    """What is doubtful about a profile stands in the first lines of whatever is predicted from it, and in the report."""
    report, table, path = (os.path.join(folder, name) for name in ("report.json", "runs.csv", "profile.json"))
    write_profile(path, ["fp32"], measured=True, ranks=2, warnings=["with 2 ranks at work something was wrong"])
    with open(table, "w") as file:
        file.write("gpus,batch,micro_batch,hidden,heads,layers,seq,tp,pp,dp,measured,unit\n4,8,2,64,4,4,64,1,1,4,1,batch_seconds\n")
    four = ["simulate", "tiny", "--gpus", 4, "--dp", 4, "--micro-batch-size", 2, "--batch-size", 8]
    commands = {"simulate": [*four, "--report", report], "sweep": [*SWEEP, "--gpus", 4, "--offload", "no"],
                "validate": ["validate", "--table", table]}
    for name, command in commands.items():
        status, out, err = ranvier.run([*command, "--profile", path, "--platform", "generic"])
        first = "\n".join(out.split("\n")[:5])
        for what, text in (("a warning of the profile", f"WARNING of profile {path}: with 2 ranks at work something was wrong"),
                           ("that nothing was measured of its shapes", "kernel shapes measured"),
                           ("that more ranks share a node than were measured", "4 ranks of a node predicted from 2")):
            tap.ok(status == 0 and text in first, f"{name} says {what} above the figures", out + err)
    status, out, err = ranvier.run([*commands["simulate"], "--profile", path, "--platform", "generic"])
    notes = "\n".join(read(report)["notes"]) if status == 0 else ""
    tap.ok(re.search(r"simulated: 0 of \d+ kernel shapes measured, 4 ranks of a node predicted from 2$", out.split("\n")[0]),
           "simulate says so in its first line", out)
    tap.ok("WARNING of profile" in notes and "4 ranks of a node are predicted from what 2 took" in notes and
           re.search(r"0 of \d+ kernel shapes measured", notes), "and the report has it all", notes)
    write_profile(path, ["fp32"], measured=True, ranks=4)
    status, out, err = ranvier.run([*four, "--profile", path, "--platform", "generic"])
    tap.ok(status == 0 and "predicted from" not in out and "WARNING" not in out, "as many ranks as were measured are no doubt", out)


def check_processors(tap, folder):
    """More ranks than a machine has processors share them: each is slowed down while more compute than there are."""
    report, path = (os.path.join(folder, name) for name in ("report.json", "profile.json"))
    line = {"fit": {"latency_seconds": 1e-9, "seconds_per_byte": 1e-15}}

    def simulated(cores, *plan, **more):
        write_profile(path, ["fp32"], device="cpu", machine={"cores": cores, "threads": 1}, **more)
        profile = read(path)
        profile["loads"][0].update(ranks=2, lines={"copy": line, "message": line, "allreduce": line})
        with open(path, "w") as file:
            json.dump(profile, file)
        status, out, err = ranvier.run(["simulate", "tiny", *plan, "--profile", path, "--platform", "local", "--report", report])
        return (read(report)["phases"]["pipeline_seconds"], read(report)["notes"]) if status == 0 else (None, out + err)

    def replicas(count, cores):
        return simulated(cores, "--gpus", count, "--dp", count, "--micro-batch-size", 2, "--batch-size", 8 * count)

    two, _ = replicas(2, 2)
    four, notes = replicas(4, 2)
    apart, silent = replicas(4, 4)
    tap.ok(two and four and abs(four / two / 2 - 1) < 1e-3 and abs(apart / two - 1) < 1e-3,
           "four replicas on two processors take twice as long as two, on four as long", f"{two} {four} {apart}")
    tap.ok(any("4 ranks share 2 processors" in note for note in notes) and not any("share" in note for note in silent),
           "which the report says", f"{notes} {silent}")
    stages = ["--gpus", 4, "--pp", 4, "--micro-batch-size", 2, "--batch-size", 2, "--schedule", "1f1b"]
    tap.ok(simulated(2, *stages)[0] == simulated(4, *stages)[0],
           "four stages of which one at a time has work take as long on two processors as on four", "")
    alone, third, whole = (simulated(2, *stages, waiting=waiting)[0] for waiting in (0, 1 / 3, 1))
    tap.ok(alone and abs(third / alone - 1) < 1e-2 and abs(whole / alone / 2 - 1) < 1e-2,
           "three that wait slow down the one that computes where they take more than the other processor", f"{alone} {third} {whole}")
    tap.ok(any("one that waits takes 0.33 of what one that computes takes" in note for note in
               simulated(2, *stages, waiting=1 / 3)[1]) and any("calibrate --ranks 4 measures it" in note for note in notes),
           "the report says how much those take, or how to measure it", f"{notes}")
    shards = ["--gpus", 4, "--tp", 4, "--micro-batch-size", 2, "--batch-size", 8, "--schedule", "1f1b"]
    shared, apart = simulated(2, *shards)[0], simulated(4, *shards)[0]
    tap.ok(shared and apart and abs(shared / apart / 2 - 1) < 1e-3, "four shards on two processors take twice as long as on four",
           f"{shared} {apart}")


def check_lanes(tap, folder):
    """Lanes of a rank whose copies are work for its processors share these; paced to a link they do not."""
    report, path = (os.path.join(folder, name) for name in ("report.json", "profile.json"))
    each = 3e-3
    quick, slow = ({"fit": {"latency_seconds": latency, "seconds_per_byte": 1e-15}} for latency in (1e-9, each))

    def phase(*plan, **more):
        write_profile(path, ["mixed", "fp32"], device="cpu", machine={"cores": 2, "threads": 1}, **more)
        profile = read(path)
        profile["loads"][0].update(ranks=1, lines={"copy": quick, "copy_back": quick, "fetch": slow, "offloaded_update": slow,
                                                   "write_back": slow})
        with open(path, "w") as file:
            json.dump(profile, file)
        status, out, err = ranvier.run(["simulate", "tiny", "--gpus", 1, "--micro-batch-size", 2, "--batch-size", 2, "--precision",
                                        "mixed", "--offload", *plan, "--profile", path, "--platform", "local", "--report", report])
        return read(report)["phases"]["optimizer_seconds"] / each if status == 0 else out + err

    linked, shared = phase(host_link_bytes_per_second=1e9), phase()
    tap.ok(isinstance(shared, float) and linked > 4 and abs(linked - round(linked)) < 0.01 and abs(shared - (linked - 2)) < 0.01,
           "on a processor of the rank's own, updates and copies take as long as all of them together", f"{linked} {shared}")


def check_presets(tap, folder):
    """bf16 and fused attention from the presets of GPUs that have them."""
    report = os.path.join(folder, "report.json")

    def simulated(profile, platform, *more):
        status, out, err = ranvier.run(["simulate", "gpt2-124m", "--gpus", 8, "--dp", 8, "--batch-size", 64,
                                        "--micro-batch-size", 2, "--profile", profile, "--platform", platform, "--report", report,
                                        *more])
        return (read(report), out) if status == 0 else (None, err)

    for profile, platform in (("a100-datasheet", "selene"), ("a100-published", "selene"), ("h100-published", "dgx-h100")):
        fused, said = simulated(profile, platform, "--precision", "bf16", "--fusion", "on")
        plain, _ = simulated(profile, platform, "--precision", "bf16", "--fusion", "off")
        tap.ok(fused and fused["plan"]["fusion"] == "on" and fused["plan"]["precision"] == "bf16",
               f"{profile} answers in bf16 with fused kernels", said)
        tap.ok(fused and fused["memory"]["by_category"]["activations"] < plain["memory"]["by_category"]["activations"] / 2
               and fused["batch_seconds"]["median"] < plain["batch_seconds"]["median"],
               "which take less memory, counted without scores, and less time")
    auto, said = simulated("a100-published", "selene")
    tap.ok(auto and auto["plan"]["fusion"] == "off" and "note: kernels are not fused, as in the runs" in said and any(
        "kernels are not fused" in note for note in auto["notes"]), "what was fitted on runs of unfused kernels stays so, and says it",
        said)
    auto, said = simulated("a100-datasheet", "generic")
    tap.ok(auto and auto["plan"]["fusion"] == "on" and auto["percent_of_peak"] < 45,
           "of a datasheet --fusion auto takes what there is, and the peak is that of the precision", said)
    plain, said = simulated("a100-datasheet", "generic", "--precision", "fp32")
    tap.ok(plain and abs(plain["percent_of_peak"] / (100 * plain["flops_per_gpu_per_second"] / 156e12) - 1) < 1e-9,
           "which for fp32 is TF32's", said)
    for what, why in (["--precision", "bf16"], "a V100's tensor cores multiply fp16 only"), (["--fusion", "on"], "FlashAttention"):
        done, said = simulated("v100-datasheet", "summit", *what)
        tap.ok(done is None and why in said and said.count("\n") == 1, f"{' '.join(what)} on a V100 is refused with the reason", said)


def check_gathers(tap):
    """a100-published knows what DeepSpeed's gathers between nodes took; inside a node they are flows, as with other profiles."""
    for replicas, groups, how in (64, 0, "by the profile's line layer_gather"), (64, 8, "as flows"), (8, 0, "as flows"):
        _, out, err = ranvier.run(["simulate", "gpt2-1.5b", "--gpus", replicas, "--dp", replicas, "--zero", 3, "--micro-batch-size", 1,
                                   "--batch-size", replicas, "--profile", "a100-published", "--platform", "selene",
                                   *(["--shard-replicas", groups] if groups else [])])
        tap.ok(f"layers are gathered and reduced {how}" in out,
               f"{replicas} replicas{f' in groups of {groups}' if groups else ''} gather {how}", out + err)


def check_fit(tap, folder):
    """calibrate/fit_attention.py finds the figures that times were made from."""
    table = os.path.join(folder, "attention.csv")
    peak, bandwidth, processors, figures = 1e14, 1e12, 100, {"efficiency": 0.6, "half_m": 700, "half_k": 40, "overhead_seconds": 8e-6}
    with open(table, "w") as file:
        file.write("batch,seq_len,heads,kv_heads,head_dim,seconds\n")
        for sequences in 1, 4, 32:
            for m in 256, 512, 1024, 2048, 8192:
                for k in 64, 128:
                    heads, tiles = 16, 16 * sequences * (m // 64)
                    compute = sequences * heads * m * (m + 1) / 2 * (4 * k + 5) / peak * (1 + figures["half_m"] / m) * \
                        (1 + figures["half_k"] / k) * -(-tiles // processors) * processors / tiles
                    memory = (2 * 4 * sequences * heads * m * k + 4 * sequences * heads * m) / bandwidth
                    seconds = figures["overhead_seconds"] + max(compute, memory) / figures["efficiency"]
                    file.write(f"{sequences},{m},{heads},{heads},{k},{seconds:.9g}\n")
    done = subprocess.run([os.path.join(TREE, "calibrate", "fit_attention.py"), table, "--peak", str(peak), "--bandwidth",
                           str(bandwidth), "--processors", str(processors)], capture_output=True, text=True)
    found = json.loads(done.stdout)["attention"]["model"] if done.returncode == 0 else {}
    tap.ok(done.returncode == 0 and all(abs(found[name] / figure - 1) < 0.1 for name, figure in figures.items()),
           "calibrate/fit_attention.py finds the figures that a table was made from", done.stderr + done.stdout)


def check_readme(tap):
    """Every prediction from presets in README, word for word (but for its output files)."""
    with open(os.path.join(TREE, "README.md")) as file:
        text = file.read()
    commands = [line.replace("\\\n", " ").split() for line in re.findall(r"^    ranvier ((?:[^\n]*\\\n)*[^\n]*)", text, re.M)]
    found = [words for words in commands if "summit" in words]
    tap.ok(sorted(words[0] for words in found) == ["simulate", "sweep", "sweep"], "README predicts Summit three times", found)
    for words in found:
        for output in "--csv", "--plot":
            if output in words:
                del words[words.index(output):words.index(output) + 2]
        status, out, err = ranvier.run(words)
        tap.ok(status == 0 and "mixed precision" in out, f"README's {' '.join(words[:6])} works as it is written", err)


def main():
    tap = ranvier.Tap()
    with tempfile.TemporaryDirectory() as folder:
        check_simulate(tap, folder)
        check_sweep(tap, folder)
        check_validate(tap, folder)
        check_doubts(tap, folder)
        check_gathers(tap)
        check_processors(tap, folder)
        check_lanes(tap, folder)
        check_presets(tap, folder)
        check_fit(tap, folder)
        if not ranvier.SANITIZED:  # minutes there; sweep.sh and simulate.sh run the same worlds
            check_readme(tap)
    tap.end()


if __name__ == "__main__":
    main()
