#!/usr/bin/python3
"""`--like` and `ranvier frameworks`: neutral where a framework says nothing, its flags and kernels where it does, refused where
they would be counted twice or have no use."""
import json
import os
import subprocess
import sys
import tempfile

sys.path.insert(0, os.path.dirname(__file__))
import ranvier

PLAN = ["gpt-12b", "--gpus", 48, "--pp", 6, "--dp", 8, "--micro-batch-size", 2, "--batch-size", 768, "--offload"]
MACHINE = ["--profile", "v100-datasheet", "--platform", "summit"]


def simulated(folder, *more):
    """The report of the plan, or what went wrong."""
    path = os.path.join(folder, "report.json")
    status, _, err = ranvier.run(["simulate", *PLAN, *MACHINE, "--report", path, *more])
    if status:
        return {"status": status, "error": err}
    with open(path) as file:
        return json.load(file)


def check_neutral(tap, folder):
    plain, like = simulated(folder, "--recompute", "layer"), simulated(folder, "--recompute", "layer", "--like", "ranvier")
    for report in (plain, like):
        report.pop("command", None)
        report.pop("framework", None)
    like.get("plan", {}).pop("like", None)
    tap.ok("status" not in plain and plain == like, "--like ranvier changes no number of a report",
           [key for key in plain if plain.get(key) != like.get(key)])


def check_terms(tap, folder):
    names = ["unfused", "odd-heads", "dropout", "dropout-attention", "dropout-embedding", "gelu", "embedding", "cross-entropy",
             "gradients", "optimizer", "launches"]
    without = [simulated(folder, "--like", "axonn", "--without", ",".join(names[i:])) for i in range(len(names))]
    whole = simulated(folder, "--like", "axonn-2021")
    seconds = [report["batch_seconds"]["median"] for report in without + [whole] if "status" not in report]
    tap.ok(len(seconds) == len(names) + 1 and all(a <= b for a, b in zip(seconds, seconds[1:])) and seconds[-1] > 1.02 * seconds[0],
           "terms are separable, and each makes the batch longer or leaves it", seconds)
    kernels = simulated(folder, "--like", "axonn", "--without", "kernels", "--fusion", "off")
    plain = simulated(folder, "--recompute", "layer", "--fusion", "off", "--clip", 0)
    tap.ok(kernels["batch_seconds"]["median"] == plain["batch_seconds"]["median"],
           "--without kernels leaves the flags of a framework alone",
           (kernels["batch_seconds"]["median"], plain["batch_seconds"]["median"]))
    tap.ok(whole["framework"]["name"] == "axonn-2021" and "--recompute layer" in whole["framework"]["flags"] and
           whole["memory"]["by_category"]["framework"] > 0, "a report says which flags and what memory the framework has",
           whole.get("framework"))
    given = simulated(folder, "--like", "axonn", "--recompute", "full")
    tap.ok(given["plan"]["recompute"] == "full" and "--recompute layer" in given["framework"]["flags_not_taken"],
           "a flag that is given wins over the framework's", given["framework"])


def check_sweep(tap, folder):
    rows = {}
    for like in ("ranvier", "deepspeed"):
        path = os.path.join(folder, like + ".csv")
        status, out, err = ranvier.run(["sweep", "gpt-12b", "--gpus", 48, "--offload", "no", "--batch-size", 1536, "--recompute",
                                        "layer", "--simulate", 2, "--csv", path, "--like", like, *MACHINE])
        rows[like] = out
        tap.ok(status == 0 and f"--like {like}" in out, f"a sweep like {like} prints a line that simulates its winner", err + out)
    tap.ok("1f1b" in rows["deepspeed"] and "zero 1" in rows["deepspeed"], "its plans have the framework's schedule and sharing",
           rows["deepspeed"])


def check_wide_sweep(tap):
    """Attention by parts of a sequence is fused: what a sweep varies leaves out the flag of the framework that it does not go with."""
    status, out, err = ranvier.run(["sweep", "gpt-12b", "--gpus", 48, "--offload", "no", "--batch-size", 1536, "--recompute",
                                    "layer", "--plans", "megatron", "--pp", "6,12", "--simulate", 1, "--like", "megatron-2021",
                                    *MACHINE])
    tap.ok(status == 0 and "--p2p blocking" in out and "--fusion off" not in out.split("again:")[0],
           "a sweep over what Megatron-LM has, like Megatron-LM of 2021", err + out)


def check_validate(tap, folder):
    table, out = os.path.join(folder, "runs.csv"), os.path.join(folder, "out.csv")
    with open(table, "w") as file:
        file.write("gpus,tp,pp,dp,batch,micro_batch,layers,hidden,heads,seq,batch_seconds,like\n" +
                   "".join(f"8,1,2,4,64,2,12,1024,16,512,1,{like}\n" for like in ("", "ranvier", "megatron-2021")))
    status, _, err = ranvier.run(["validate", "--table", table, "--csv", out, *MACHINE])
    predicted = []
    if status == 0:
        import csv
        with open(out) as file:
            predicted = [float(row["predicted"]) for row in csv.DictReader(file)]
    tap.ok(len(predicted) == 3 and predicted[0] == predicted[1] < predicted[2], "validate takes a framework from the column like",
           err or predicted)


def check_refusals(tap, folder):
    cases = [(["--like", "megatrom"], "the nearest is megatron;"), (["--without", "dropout"], "--like NAME is missing"),
             (["--like", "axonn", "--without", "drop-out"], "has no term 'drop-out'; the nearest is dropout;")]
    for more, sentence in cases:
        found = simulated(folder, *more)
        tap.ok(found.get("status") == 2 and sentence in found["error"], "refused: " + " ".join(more), found)
    status, _, err = ranvier.run(["simulate", *PLAN, "--profile", "v100-published", "--platform", "dgx-2h", "--ignore-memory",
                                  "--like", "megatron-2021"])
    tap.ok(status == 2 and "count a framework's kernels twice" in err,
           "a profile that was fitted with a framework's kernels in its figures is refused", err)
    status, _, err = ranvier.run(["simulate", *PLAN, "--profile", "v100-published", "--platform", "dgx-2h", "--ignore-memory",
                                  "--like", "megatron-2021", "--without", "kernels"])
    tap.ok(status == 0, "without its kernels it is not", err)
    status, _, err = ranvier.run(["train", "tiny", "--micro-batch-size", 1, "--batch-size", 1, "--like", "nemo"])
    tap.ok(status == 2 and "--like is for predictions" in err, "a training is like nothing but itself", err)


def check_likes(tap, folder):
    """A framework that is like another one."""
    path = os.path.join(folder, "mine.json")

    def like(**members):
        with open(path, "w") as file:
            json.dump({"title": "Mine", **members}, file)
        return simulated(folder, "--like", path)
    theirs = simulated(folder, "--like", "megatron-2021")
    same = like(like="megatron-2021", terms=[{"name": "dropout", "source": "elsewhere"}])
    tap.ok("status" not in same and same["batch_seconds"] == theirs["batch_seconds"] and
           same["framework"]["terms"] == theirs["framework"]["terms"], "a framework has the terms of the one that it is like",
           same.get("framework", same))
    less = like(like="megatron-2021", without=["dropout"])
    without = simulated(folder, "--like", "megatron-2021", "--without", "dropout")
    tap.ok("status" not in less and less["batch_seconds"] == without["batch_seconds"] and "dropout," not in less["framework"]["terms"],
           "but for those that it is without", less.get("framework", less))
    flags = [{"name": "late", "says": "Messages.", "source": "x", "flags": {"p2p": "async"}, "when": {"schedule": "1f1b", "pp": "not 6"}},
             {"name": "late-6", "says": "Messages.", "source": "x", "flags": {"p2p": "blocking"}, "when": {"schedule": "1f1b", "pp": "6"}}]
    both = like(like="megatron-2021", terms=flags)
    tap.ok("--p2p blocking" in both["framework"]["flags"] and "--p2p async" not in both["framework"]["flags"],
           "a flag may depend on two others, and on what one is not", both.get("framework", both))
    for members, sentence in ((dict(like="megatrom"), "the nearest is megatron;"), (dict(like="mine"), "no framework 'mine' is known"),
                              (dict(like=path), "'like' is the name of a framework that is not like this one"),
                              (dict(without=["dropout"], terms=[]), "'without' goes with 'like'"),
                              (dict(like="megatron", without=["droppout"]), "'without' names a term that the other framework has not")):
        found = like(**members)
        tap.ok(found.get("status") == 2 and sentence in found["error"], f"refused: {members if path not in members.values() else 'like itself'}",
               found)


def check_own_device(tap, folder):
    """Our own GPU kernels, by arithmetic and by the world on paper."""
    path = os.path.join(folder, "arithmetic.json")
    script = os.path.join(os.path.dirname(os.path.abspath(__file__)), "../gpu/arithmetic.py")
    done = subprocess.run([sys.executable, script, "--json", path], capture_output=True, text=True,
                          env={**os.environ, "RANVIER_BIN": os.path.abspath(ranvier.BIN)})
    steps = json.load(open(path)) if done.returncode == 0 else []
    tap.ok(len(steps) == 3 and all(abs(step["simulated_ms"] / step["step_ms"] - 1) < 0.1 for step in steps),
           "steps on an H200 are simulated within 10 % of their arithmetic", steps or done.stderr)


def check_list(tap):
    status, out, err = ranvier.run(["frameworks"])
    names = [line.split()[0] for line in out.splitlines()]
    tap.ok(status == 0 and {"ranvier", "megatron", "torchtitan", "axonn-2021"} <= set(names), "frameworks are listed", out + err)
    for name in names:
        status, out, err = ranvier.run(["frameworks", name])
        terms = sum(bool(line) and not line.startswith(" ") for line in out.splitlines()) - 1
        origins = out.count("\n  source") + out.count("\n  assumed") + out.count("\n  fitted on")
        tap.ok(status == 0 and origins >= terms, f"every term of {name} has a source or is called an assumption", out + err)


def main():
    tap = ranvier.Tap()
    with tempfile.TemporaryDirectory() as folder:
        check_neutral(tap, folder)
        check_terms(tap, folder)
        check_sweep(tap, folder)
        check_wide_sweep(tap)
        check_validate(tap, folder)
        check_refusals(tap, folder)
        check_likes(tap, folder)
        check_own_device(tap, folder)
    check_list(tap)
    status, out, err = ranvier.run(["frameworks", "megatron", "--json"])
    with open(os.path.join(os.path.dirname(__file__), "..", "..", "runtime", "plan", "frameworks", "megatron.json")) as file:
        own = json.load(file)
    tap.ok(status == 0 and json.loads(out)["title"] == own["title"] and len(json.loads(out)["terms"]) >= len(own["terms"]), "--json has the terms", err)
    tap.end()


main()
