#!/usr/bin/python3
"""`ranvier train --restarts`: ranks that are killed, restarts that are used up, what a restart does not mend, signals, and hosts that are lost, of
which a script in the place of mpirun says so. A training ends with the bits of one that nothing disturbed."""
import json
import os
import random
import shlex
import signal
import subprocess
import sys
import tempfile
import time

sys.path.insert(0, os.path.dirname(__file__))
import ranvier
import resume

PIPELINE = ("tiny", ("--pp", 2))
REPLICAS = ("tiny", ("--dp", 2))
LONG = ("--steps", 100000, "--warmup", 3)
MPIRUN = "mpirun --oversubscribe --bind-to none"
# In the place of mpirun. It writes down what it was asked for; of a list of hosts those that the file `gone` names do not answer; and ranks of a
# training on them are all on this machine. A file `dies-N` ends the N-th start with what it says, as Open MPI does if a host is lost; with a file `stays-N` that mpirun
# does not end itself, whatever asks it to.
FAKE = r"""#!/bin/bash
here=$(dirname "$0")
echo "$*" >>"$here/asked"
hosts=$(grep -o -- '--host [^ ]*' <<<"$*" | cut -d' ' -f2 | tr , '\n' | cut -d: -f1)
for host in $hosts; do grep -qsx "$host" "$here/gone" && exit 1; done
[ "${*: -1}" = true ] && exit 0
starts=$(grep -c ranvier-train "$here/asked")
if [ -e "$here/dies-$starts" ]; then
        cat "$here/dies-$starts" >&2
        [ -e "$here/gone-after-$starts" ] && cp "$here/gone-after-$starts" "$here/gone"
        [ -e "$here/stays-$starts" ] && trap "" TERM && sleep 300
        exit 1
fi
all=()
for word in "$@"; do
        case $word in --host) skip=1;; *) [ -z "$skip" ] && all+=("$word"); skip=;; esac
done
exec mpirun --oversubscribe --bind-to none "${all[@]}"
"""
BORDER = 74 * "-" + "\n"
LOST = BORDER + """ORTE has lost communication with a remote daemon.

  HNP daemon   : [[18412,0],0] on node a
  Remote daemon: [[18412,0],1] on node b

This is usually due to either a failure of the TCP network
connection to the node, or possibly an internal failure of
the daemon itself. We cannot recover from this failure, and
therefore will terminate the job.
""" + BORDER


def command(bench, plan, *more):
    model, flags = plan
    return [os.path.join(ranvier.BIN, "ranvier"), *map(str, bench.arguments(model, flags, *more))]


def environment(**more):
    return dict(os.environ, OMPI_ALLOW_RUN_AS_ROOT="1", OMPI_ALLOW_RUN_AS_ROOT_CONFIRM="1", ASAN_OPTIONS="detect_leaks=0", **more)


def keep(bench, every=2):
    return ("--checkpoint", bench.path("kept"), "--checkpoint-every", every, "--log", bench.path("kept.csv"), "--report", bench.path("kept.json"))


def run(bench, plan, *more, **variables):
    done = subprocess.run(command(bench, plan, *more), capture_output=True, text=True, env=environment(**variables), timeout=300, stdin=subprocess.DEVNULL)
    return done.returncode, done.stderr


def start(bench, plan, *more):
    return subprocess.Popen(command(bench, plan, *more), stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True, env=environment(), start_new_session=True)


def ranks_of(running):
    """Not the supervisor, which is of the same program."""
    return [pid for pid in resume.ranks_of(running.pid) if pid != running.pid]


def children_of(running):
    return subprocess.run(["pgrep", "-P", str(running.pid)], capture_output=True, text=True).stdout.split()


def logged(bench):
    """Steps. One read, as a reader that is slower than the ranks would never come to the end."""
    try:
        with open(bench.path("kept.csv"), "rb", buffering=0) as file:
            return max(0, file.read(1 << 24).count(b"\n") - 1)
    except FileNotFoundError:
        return 0


def kill_ranks(running, bench, chance, kills, steps):
    """Kills a rank by chance, at moments that are spread over the steps. Returns how often."""
    done = 0
    for at in sorted(chance.sample(range(steps - 20), kills)):
        if not resume.wait_for(lambda: logged(bench) > at or running.poll() is not None, 60) or running.poll() is not None:
            break
        there = ranks_of(running)
        if there:
            try:
                os.kill(chance.choice(there), signal.SIGKILL)
                done += 1
            except ProcessLookupError:
                pass
        resume.wait_for(lambda: not set(there) & set(ranks_of(running)), 30)
    return done


def check_kills(tap, bench, seeds):
    steps = ("--steps", 160, "--warmup", 3)
    bench.clear("whole", "whole.csv")
    whole, said = bench.train(("tiny", 2, ("--pp", 2)), *steps, "--checkpoint", bench.path("whole"), "--log", bench.path("whole.csv"), "--report", bench.path("whole.json"))
    for seed in seeds:
        bench.clear("kept", "kept.csv", "kept.json")
        chance = random.Random(seed)
        running = start(bench, PIPELINE, *steps, *keep(bench, 5), "--restarts", 3, "--mpirun", MPIRUN)
        kills = kill_ranks(running, bench, chance, 2, 160)
        _, err = running.communicate(timeout=120)
        model = running.returncode == 0 and resume.read(bench.path("whole", "model.safetensors")) == resume.read(bench.path("kept", "model", "model.safetensors"))
        losses = running.returncode == 0 and [json.load(open(bench.path(name)))["loss"] for name in ("whole.json", "kept.json")]
        tap.ok(whole == 0 and model and losses[0] == losses[1] and resume.rows(bench.path("kept.csv")) == resume.rows(bench.path("whole.csv"))
               and kills > 0 and err.count("was ended by signal 9 (Killed): starts again from ") == kills and "-----" not in err,
               f"seed {seed}: {kills} ranks killed: log, model and the report's losses as undisturbed, and one sentence each", f"{running.returncode} {model} {err}{said}")


def check_exhausted(tap, bench):
    """A program in the place of mpirun that dies at once."""
    bench.clear("kept", "kept.csv")
    status, err = run(bench, PIPELINE, *keep(bench), "--restarts", 2, "--mpirun", "sh -c kill\t-9\t$$")
    tap.ok(status == 1 and err.count("starts again") == 2 and "1 restart is left" in err and "none of --restarts 2 is left: what is kept goes on from the beginning" in err,
           "two restarts without a checkpoint, and no third", f"{status} {err}")
    status, err = run(bench, PIPELINE, *keep(bench), "--restarts", 0, "--mpirun", "false")
    tap.ok(status == 1 and "starts again" not in err and "mpirun ended with status 1, and none of --restarts 0 is left" in err, "--restarts 0 starts it once", f"{status} {err}")


def check_final(tap, bench):
    """What a restart would not mend is said once."""
    def ends(what, wanted, sentence, *more, plan=PIPELINE, **variables):
        bench.clear("kept", "kept.csv")
        status, err = run(bench, plan, *keep(bench), "--restarts", 3, "--mpirun", MPIRUN, *more, **variables)
        tap.ok(status == wanted and sentence in err and "starts again" not in err and "-----" not in err and err.count("ranvier train:") == 1,
               f"{what} is no reason to start again", f"{status} {err}")

    ends("data that are not there", 2, "cannot be read", "--data", bench.path("nowhere"))
    ends("a loss that is not a number", 1, "may keep the training stable", "--lr", 10, "--steps", 60, "--beta2", 0, "--epsilon", 1e-15, "--weight-decay", 10, "--warmup", 0)
    ends("no mpirun", 1, "nowhere, which starts the ranks, cannot be started: No such file", "--mpirun", "nowhere")
    ends("another number of ranks", 2, "--pp 2 x --dp 1 needs 2 ranks, not --ranks 3", "--ranks", 3)
    ends("to be started by mpirun", 2, "--restarts starts the ranks itself", OMPI_COMM_WORLD_RANK="0", OMPI_COMM_WORLD_SIZE="1", plan=("tiny", ()))
    ends("too small a list of hosts", 2, "the plan needs 2 ranks, the hosts have room for 1", "--hosts", "a")
    status, err = run(bench, PIPELINE, "--restarts", 3)
    tap.ok(status == 2 and "--restarts needs --checkpoint and --checkpoint-every" in err, "without checkpoints there is nothing to start again from", err)
    status, err = run(bench, ("tiny", ()), "--hosts", "a:2")
    tap.ok(status == 2 and "--hosts is for a training that starts mpirun itself: --restarts K is missing" in err, "hosts are for the supervisor", err)


def check_signals(tap, bench):
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGUSR1):
        bench.clear("kept", "kept.csv")
        running = start(bench, PIPELINE, *LONG, *keep(bench, "1h"), "--restarts", 3, "--mpirun", MPIRUN)
        begun = resume.wait_for(lambda: logged(bench) > 3)
        os.kill(running.pid, number)
        _, err = running.communicate(timeout=120)
        steps = bench.steps("kept")
        tap.ok(begun and running.returncode == 75 and steps == [logged(bench)] and f"stopped behind step {steps[0]} of 100000" in err and "-----" not in err,
               f"{number.name}: a checkpoint of the step that it is at, and status 75", f"{running.returncode} {steps} {logged(bench)} {err}")
    status, err = run(bench, PIPELINE, "--steps", steps[0] + 3, "--warmup", 3, *keep(bench, 2), "--resume", bench.path("kept"), "--restarts", 1, "--mpirun", MPIRUN)
    tap.ok(status == 0 and f"goes on behind step {steps[0]} of" in err and logged(bench) == steps[0] + 3, "and --resume goes on from it", f"{status} {err}")
    bench.clear("kept", "kept.csv")
    status, err = run(bench, PIPELINE, *keep(bench), "--resume", bench.path("kept"), "--restarts", 1, "--mpirun", MPIRUN)
    tap.ok(status == 0 and logged(bench) == resume.STEPS, "where there is nothing yet, the same command begins", f"{status} {err}")


def check_early_signals(tap, bench):
    """Before mpirun has started ranks, and while these begin."""
    for seconds in (0, 0.03, 0.06, 0.1, 0.15, 0.2):
        bench.clear("kept", "kept.csv")
        running = start(bench, PIPELINE, *LONG, *keep(bench, "1h"), "--restarts", 3, "--mpirun", MPIRUN)
        begun = resume.wait_for(lambda: children_of(running))
        time.sleep(seconds)
        os.kill(running.pid, signal.SIGTERM)
        _, err = running.communicate(timeout=120)
        tap.ok(begun and running.returncode == 75 and ("as asked" in err or "stopped behind step" in err) and "-----" not in err,
               f"SIGTERM {seconds} s after mpirun is there ends the training", f"{running.returncode} {err}")


def check_death(tap, bench):
    """No ranks train on when nobody looks after them."""
    for who, number in (("the supervisor", 0), ("mpirun", 1)):
        bench.clear("kept", "kept.csv")
        running = start(bench, PIPELINE, *LONG, *keep(bench, 20), "--restarts", 1, "--mpirun", MPIRUN)
        begun = resume.wait_for(lambda: bench.steps("kept"))
        there = ranks_of(running)
        mpirun = int(children_of(running)[0])
        os.kill(mpirun if number else running.pid, signal.SIGKILL)
        gone = resume.wait_for(lambda: not set(there) & set(ranks_of(running)), 20)
        if number:
            again = resume.wait_for(lambda: max(bench.steps("kept")) > 100)
            os.kill(running.pid, signal.SIGTERM)
            _, err = running.communicate(timeout=60)
            tap.ok(begun and gone and again and running.returncode == 75 and "mpirun was ended by signal 9 (Killed): starts again from step" in err,
                   "mpirun is killed: its ranks end, and others go on", f"{gone} {again} {running.returncode} {err}")
        else:
            running.wait(timeout=60)
            tap.ok(begun and len(there) == 2 and gone, "the supervisor is killed: the ranks end", there)
            running.stderr.close()


def begin_stuck(folder):
    """A training whose first mpirun says that a rank was killed, and stays. It takes 20 seconds, beside what else is done."""
    bench = resume.Bench(folder)
    killed = BORDER + "mpirun noticed that process rank 1 with PID 0 on node a exited on signal 9 (Killed).\n" + BORDER
    mpirun = fake(bench, dies_1=killed, stays_1="")
    return bench, start(bench, PIPELINE, *keep(bench), "--restarts", 2, "--hang-timeout", "5s", "--hosts", "a:2", *mpirun)


def check_stuck(tap, bench, running):
    _, err = running.communicate(timeout=120)
    tap.ok(running.returncode == 0 and logged(bench) == resume.STEPS and
           "mpirun did not end by itself, and was ended\nranvier train: rank 1 on a was ended by signal 9 (Killed): starts again from the beginning, 1 restart is left" in err,
           "an mpirun that has said what ended its ranks, and stays, is ended", f"{running.returncode} {logged(bench)} {err}")


def check_hang(tap, bench):
    """A rank that is stopped for good: the others wait for it, and nobody says anything."""
    bench.clear("kept", "kept.csv")
    running = start(bench, PIPELINE, "--steps", 60, "--warmup", 3, "--validate-every", 1, *keep(bench, 5), "--restarts", 20, "--hang-timeout", "5s", "--mpirun", MPIRUN)
    begun = resume.wait_for(lambda: bench.steps("kept"))
    there = ranks_of(running)
    os.kill(there[-1], signal.SIGSTOP)
    _, err = running.communicate(timeout=240)
    tap.ok(begun and running.returncode == 0 and "the ranks said nothing for 5 s, and were ended: starts again from step" in err and logged(bench) == 60
           and not set(there) & set(ranks_of(running)), "a rank that hangs is noticed: all are ended, and others go on", f"{running.returncode} {err}")
    status, err = run(bench, ("tiny", ()), "--hang-timeout", "5s")
    tap.ok(status == 2 and "--hang-timeout is for a training that starts mpirun itself" in err, "who hangs is for the supervisor", err)


def fake(bench, **files):
    """A script in the place of mpirun, and what it is to do."""
    bench.clear("fake", "kept", "kept.csv")
    os.mkdir(bench.path("fake"))
    for name, content in {"mpirun": FAKE, **{name.replace("_", "-"): content for name, content in files.items()}}.items():
        with open(bench.path("fake", name), "w") as file:
            file.write(content)
    os.chmod(bench.path("fake", "mpirun"), 0o755)
    return ("--mpirun", bench.path("fake", "mpirun"))


def starts(bench):
    """Hosts, number of ranks, --dp and whether it resumed, of each start."""
    return [(w[w.index("--host") + 1], w[w.index("-n") + 1], w[w.index("--dp") + 1] if "--dp" in w else None, "--resume" in w) for w in started(bench)]


def started(bench):
    """The words of each start."""
    with open(bench.path("fake", "asked")) as file:
        return [line.split() for line in file if "ranvier-train" in line]


def check_threads(tap, bench):
    """Bits need as many threads, whatever the next hosts have."""
    plan = [os.path.join(ranvier.BIN, "ranvier"), *map(str, ["train", "tiny", "--data", bench.path("text.txt"), "--micro-batch-size", 1, "--batch-size", 4, "--seq-len", 32,
            "--steps", 200000, *keep(bench, 5), "--restarts", 2, "--hosts", "a", *fake(bench)])]
    running = subprocess.Popen(plan, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True, env=environment(OMP_NUM_THREADS="3"), start_new_session=True)
    begun = resume.wait_for(lambda: bench.steps("kept"))
    for rank in ranks_of(running)[-1:]:
        os.kill(rank, signal.SIGKILL)
    again = resume.wait_for(lambda: len(started(bench)) > 1)
    os.kill(running.pid, signal.SIGTERM)
    _, err = running.communicate(timeout=120)
    words = started(bench)
    tap.ok(begun and again and "--threads" not in words[0] and words[1][words[1].index("--threads") + 1] == "3", "a restart has the threads of the first start", f"{words} {err}")


def check_hosts(tap, bench):
    status, err = run(bench, REPLICAS, *keep(bench), "--restarts", 2, "--hosts", "a:1,b:1", *fake(bench))
    tap.ok(status == 0 and starts(bench) == [("a:1,b:1", "2", "2", False)] and not err.count("does not answer"), "hosts that answer are taken", f"{status} {err}")
    mpirun = fake(bench, dies_1=LOST, gone_after_1="b\n")
    status, err = run(bench, REPLICAS, *keep(bench), "--restarts", 2, "--hosts", "a:1,b:1", *mpirun)
    tap.ok(status == 0 and starts(bench) == [("a:1,b:1", "2", "2", False), ("a:1", "1", "1", False)] and logged(bench) == resume.STEPS
           and "mpirun lost the host b: starts again from the beginning, 1 restart is left" in err and "host b does not answer: it is left out" in err
           and "the hosts that answer have 1 slot: --dp 1 from here on, with the same batch" in err and "-----" not in err,
           "a host is lost: fewer replicas go on", f"{status} {starts(bench)} {err}")
    spare = fake(bench, dies_1=LOST, gone_after_1="b\n")
    with open(bench.path("hosts"), "w") as file:
        file.write("# three\na slots=1\n\nb slots=1 max_slots=4 # spoilt\nc\n")
    status, err = run(bench, REPLICAS, *keep(bench), "--restarts", 2, "--hostfile", bench.path("hosts"), *spare)
    tap.ok(status == 0 and [s[:3] for s in starts(bench)] == [("a:1,b:1,c:1", "2", "2"), ("a:1,c:1", "2", "2")] and "--dp 1" not in err,
           "another host takes the place of one that is lost", f"{status} {starts(bench)} {err}")
    mpirun = fake(bench, gone="b\n")
    status, err = run(bench, PIPELINE, *keep(bench), "--restarts", 1, "--hosts", "a,b", *mpirun)
    tap.ok(status == 1 and "the plan needs 2 ranks, the hosts that answer have 1 slot, and no smaller --dp fits these" in err and "none of --restarts 1 is left" in err
           and not os.path.exists(bench.path("kept")), "two stages do not go on one slot", f"{status} {err}")
    mpirun = fake(bench, gone="d\n")
    status, err = run(bench, ("tiny", ()), *keep(bench), "--restarts", 1, "--hosts", "a:2,b,d", *mpirun)
    tap.ok(status == 0 and starts(bench) == [("a:2,b:1", "2", "2", False)] and "have 3 slots: --dp 2" in err,
           "without --dp all slots are taken, and of those left as many as divide the batch", f"{status} {starts(bench)} {err}")


def check_mpirun(tap, bench):
    """With mpirun itself: a host of a name that nobody has, and the batch of a file that counts it by replicas."""
    bench.clear("kept", "kept.csv")
    with open(bench.path("ds.json"), "w") as file:
        json.dump({"train_micro_batch_size_per_gpu": 1, "gradient_accumulation_steps": 4}, file)
    plan = ["train", "tiny", "--from", bench.path("ds.json"), "--data", bench.path("text.txt"), "--seq-len", 32, "--steps", 6, "--threads", 1, "--precision", "fp32"]
    done = subprocess.run([os.path.join(ranvier.BIN, "ranvier"), *map(str, [*plan, "--dp", 2, *keep(bench), "--restarts", 1, "--mpirun", MPIRUN, "--hosts", "localhost,none.invalid"])],
                          capture_output=True, text=True, env=environment(), timeout=300, stdin=subprocess.DEVNULL)
    report = json.load(open(bench.path("kept.json"))) if done.returncode == 0 else {"plan": {}}
    tap.ok(done.returncode == 0 and "host none.invalid does not answer: it is left out" in done.stderr and "--dp 1 from here on" in done.stderr
           and report["plan"]["batch_size"] == 8 and report["plan"]["dp"] == 1, "a host that nobody has is left out; the batch stays", f"{done.returncode} {done.stderr} {report['plan']}")


def check_init(tap, bench):
    """What begins from weights goes on from checkpoints; the report has the command of the ranks that it is of."""
    bench.clear("kept", "kept.csv", "kept.json")
    running = start(bench, ("", ("--pp=2", f"--init={bench.path('whole')}")), "--steps", 80, "--warmup", 3, *keep(bench, 5), "--restarts=1", f"--mpirun={MPIRUN}")
    resume.wait_for(lambda: bench.steps("kept"))
    for rank in ranks_of(running)[:1]:
        os.kill(rank, signal.SIGKILL)
    _, err = running.communicate(timeout=120)
    report = json.load(open(bench.path("kept.json"))) if running.returncode == 0 else {}
    words = str(report).split()
    tap.ok(running.returncode == 0 and "goes on behind step" in err and logged(bench) == 80 and "--resume" in words and not {"--init", "--restarts", "--mpirun"} & set(words),
           "initial weights are those of the first start alone", f"{running.returncode} {err} {report.get('command')}")


def check_others(tap, bench):
    """What a job script has started before it becomes this process is its own."""
    bench.clear("kept", "kept.csv")
    line = shlex.join(command(bench, PIPELINE, "--steps", 4, *keep(bench), "--restarts", 1, "--mpirun", MPIRUN))
    done = subprocess.run(["bash", "-c", f"sleep 300 >/dev/null 2>&1 & echo $! >other; exec {line}"], cwd=bench.folder, capture_output=True, text=True, env=environment(), timeout=300)
    with open(bench.path("other")) as file:
        other = int(file.read())
    try:
        os.kill(other, signal.SIGTERM)
        alive = True
    except ProcessLookupError:
        alive = False
    tap.ok(done.returncode == 0 and alive, "children that were there before are let live", done.stderr)


def main():
    tap = ranvier.Tap()
    with tempfile.TemporaryDirectory() as folder, tempfile.TemporaryDirectory() as apart:
        stuck = begin_stuck(apart)
        bench = resume.Bench(folder)
        check_kills(tap, bench, range(2))
        check_init(tap, bench)
        check_exhausted(tap, bench)
        check_final(tap, bench)
        check_signals(tap, bench)
        check_early_signals(tap, bench)
        check_death(tap, bench)
        check_hang(tap, bench)
        check_hosts(tap, bench)
        check_threads(tap, bench)
        check_mpirun(tap, bench)
        check_others(tap, bench)
        check_stuck(tap, *stuck)
    tap.end()


if __name__ == "__main__":
    main()
