#!/usr/bin/python3
"""Every command that README.md, the folders' READMEs, docs/ and the programs' --help show is run as it is written, in the
order in which it is shown, in one folder: later ones read what earlier ones wrote. Each must end with status 0.

Pages for newcomers (docs/tutorial.md, docs/howto-*.md) have fenced blocks instead, and each such page is followed in an empty folder of
its own, with nothing brought:
    sh    is run by bash as it is, all of it, and must end with status 0
    text  is what the block before it printed: its lines must be in that output, in their order, word by word and with numbers that are
          at most 5 % off; ... stands for anything
    c     must compile without a warning, with the project's headers (and with what a comment before it says, <!-- compiled with FLAGS -->)
All else in docs/ that is set as code and not run has a comment before it, <!-- not run: why -->; so has a fenced sh block that
needs root, a network, a GPU or hours. Names of pages as arguments: only these are run.

Else what is taken is: indented lines that begin with ranvier or mpirun (a backslash joins the next line; three blanks begin a remark),
and in README.md and docs/ what stands between backquotes and has an option, or is one of ALONE. A command that is shown twice is
run once. What a reader brings is written by `bring`: texts, a model, a table, reports of other runs.

So that all of them take a minute instead of an hour, CHANGED replaces words of a command, and SKIPPED leaves out what
cannot run here or another test runs, each with its reason, which is printed; nothing else is changed. A pattern that no command
matches fails: it has outlived what it was for."""
import collections
import glob
import json
import os
import re
import shutil
import struct
import subprocess
import sys
import tempfile
import time

sys.path.insert(0, os.path.dirname(__file__))
import ranvier
import text

TREE = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
COMMANDS = ("", "calibrate", "train", "simulate", "compare", "plot", "sample", "sweep", "validate", "price", "frameworks",
            "machines", "doctor", "plan", "reshard")  # in the order of use
ALONE = ("ranvier validate",)
CHANGED = [
    # pattern, replacement, reason
    (r"plan llama3-70b --gpus 64", "plan llama3-8b --gpus 8", "a search of fewer plans"),
    (r"--steps \d{2,}", "--steps 4", "the same training, of fewer steps"),
    (r"(?<=train )gpt2-124m(?! --device cuda)( --seq-len \d+)?", "small.json", "124 million parameters take a minute to train"),
    (r"--ranks 2 --quick (?=--out)", "--ranks 2 --quick --model small.json ", "a family of fewer kernels"),
    (r"--profile mine.json", "--profile here.json", "a reader's own is one that calibrate wrote"),
    (r"(?<=--model )demo,(?=my-model|small)", "", "one model is enough"),
    (r"(?<=--model )demo (?=--micro-batch-size)", "small.json ", "a family of fewer kernels"),
    (r"my-model.json (?=.*--out)", "my-model.json --quick ", "more repetitions take minutes"),
    (r"(?=--precision fp32,mixed --offload)", "--model small.json ", "a family of fewer kernels"),
    (r"(?<=ranvier calibrate )(?=--ranks|--quick)", "--seconds 1 ", "beside other tests kernels settle late"),
    (r"--quick (?!.*--micro-batch-size)", "--quick --micro-batch-size 4 ", "four sizes of micro-batches take four times as long"),
]
SKIPPED = [
    (r"--device cuda", "needs a GPU"),
    (r"--profile gpu.json", "its profile is of a GPU that was measured"),
    (r" \.\.\.", "has a gap"),
    (r"--profile P ", "has placeholders"),
    (r"^ranvier validate$", "validate.py runs it"),
    (r"^ranvier sweep gpt-12b --gpus 48", "profiles.py runs it"),
]


def shown(document, inline):
    """The commands in a text, in its order."""
    for block, quoted in re.findall(r"^ {2,}((?:ranvier|mpirun) (?:.*\\\n)*.*)$|`((?:ranvier|mpirun) [^`]*)`", document, re.M):
        command = " ".join((re.split(r" {3,}(?=[a-z])", block)[0].replace("\\\n", " ") if block else quoted).split())
        if len(command.split()) > 2 if block else inline and (" --" in command or command in ALONE):
            yield command  # a block of two words is a line of a sentence


Block = collections.namedtuple("Block", "kind line text reason flags")


def blocks(document):
    """The blocks of a page that are set as code: kind "" is an indented one; reason: why it is not run, or ""; flags: of the compiler."""
    lines = document.split("\n")
    at, reason, flags = 0, "", []
    while at < len(lines):
        fence = re.match(r"```(\w*)$", lines[at])
        indented = not fence and re.match(r" {4,}\S", lines[at]) and (at == 0 or not lines[at - 1].strip() or lines[at - 1].startswith("<!--"))
        begin, end = (at + 1 if fence else at), at + 1
        while (fence or indented) and end < len(lines) and (lines[end] != "```" if fence else lines[end].startswith("    ") or (
                not lines[end].strip() and lines[end + 1:] and lines[end + 1].startswith("    "))):
            end += 1
        if fence or indented:
            yield Block(fence.group(1) if fence else "", begin + 1, "\n".join(lines[begin:end]) + "\n", reason, flags)
        if lines[at].strip():
            mark = re.match(r"<!-- not run: (.+) -->$", lines[at])
            reason = mark.group(1) if mark else ""
            mark = re.match(r"<!-- compiled with (.+) -->$", lines[at])
            flags = mark.group(1).split() if mark else []
        at = end + 1 if fence else end


def printed(output, wanted):
    """The first of the lines that is not in the output behind the one before it, or None."""
    number = r"\d[\d,]*(?:\.\d+)?"
    said = output.split("\n")
    at = 0
    for line in wanted.strip("\n").split("\n"):
        if not line.strip() or line.strip() == "...":
            continue
        pattern = "".join(r"\s+" if part.isspace() else ".*" if part == "..." else f"({number})" if re.fullmatch(number, part) else re.escape(part)
                          for part in re.findall(rf"\s+|\.\.\.|{number}|.+?(?=\s|\.\.\.|\d|$)", line.strip()))
        numbers = [float(n.replace(",", "")) for n in re.findall(number, line)]
        while at < len(said):
            found = re.fullmatch(pattern, said[at].strip())
            at += 1
            if found and all(abs(float(g.replace(",", "")) - n) <= 0.05 * n for g, n in zip(found.groups(), numbers)):
                break
        else:
            return line
    return None


def follow(tap, name, folder):
    """Does what a page with fenced blocks says, in a folder."""
    with open(os.path.join(TREE, name)) as file:
        found = list(blocks(file.read()))
    output = ""
    for kind, line, said, reason, flags in found:
        where = f"{name}:{line}"
        if reason:
            print(f"# not run, {reason}: {said.splitlines()[0]} ({where})")
        elif kind == "sh":
            begin = time.monotonic()
            status, output = run("set -e\n" + said, folder)
            print(f"# {time.monotonic() - begin:.1f} s", flush=True)
            tap.ok(status == 0, f"{where}: {said.splitlines()[0]}", f"status {status}: {output}")
        elif kind == "text":
            missing = printed(output, said)
            tap.ok(missing is None, f"{where}: that is what is printed", f"not printed: {missing}\n{output}")
        elif kind == "c":
            done = subprocess.run(["cc", "-std=c11", "-D_POSIX_C_SOURCE=200809L", "-Wall", "-Wextra", "-Wpedantic", "-Wconversion", "-Werror",
                                   "-fsyntax-only", *flags, "-I", TREE, "-x", "c", "-"], input=said, capture_output=True, text=True)
            tap.ok(done.returncode == 0, f"{where}: compiles", done.stderr)


def check_marks(tap):
    """Nothing that is set as code in docs/ is passed over in silence."""
    silent = []
    for name in sorted(glob.glob("docs/*.md", root_dir=TREE)):
        with open(os.path.join(TREE, name)) as file:
            document = file.read()
        silent += [f"{name}:{b.line}" for b in blocks(document) if not b.reason and
                   not (b.kind in ("sh", "text", "c") if b.kind else re.match(r" +(ranvier|mpirun) ", b.text))]
    tap.ok(not silent, "what is set as code in docs/ is run, or says why not", silent)


def fenced(name):
    with open(os.path.join(TREE, name)) as file:
        return "\n```sh\n" in file.read()


def commands():
    """(where, command) of all of them, but for pages with fenced blocks."""
    documents = ["README.md", *sorted(glob.glob("docs/**/*.md", root_dir=TREE, recursive=True)),
                 *sorted(p for p in glob.glob("*/**/README.md", root_dir=TREE, recursive=True) if not p.startswith("build"))]
    known = set()
    for name in documents:
        if fenced(name):
            continue
        with open(os.path.join(TREE, name)) as file:
            found = [(name, c) for c in shown(file.read(), name == "README.md" or name.startswith("docs/"))]
        yield from ((w, c) for w, c in found if not (c in known or known.add(c)))
    for name in COMMANDS:
        status, said, err = ranvier.run([*name.split(), "--help"], ARGP_HELP_FMT="rmargin=200")
        if status:
            raise SystemExit(err)
        for command in shown(said, False):
            if command not in known:
                known.add(command)
                yield f"ranvier {name} --help".replace("  ", " "), command


def bring(folder):
    """What the commands read and none of them writes."""
    def write(name, content):
        with open(os.path.join(folder, name), "w") as file:
            file.write(content)
    os.mkdir(os.path.join(folder, "demo"))
    for name in ("demo/text.txt", "text.txt", "book.txt"):
        text.write(os.path.join(folder, name), 200000)
    small = {"n_layer": 2, "n_embd": 64, "n_head": 4, "vocab_size": 256, "n_positions": 64}
    write("small.json", json.dumps(small))
    write("my-model.json", json.dumps({**small, "n_positions": 32}))
    write("runs.csv", "gpus,tp,pp,dp,batch,micro_batch,layers,hidden,heads,seq,vocab,batch_seconds,gpu,plan,schedule\n"
                      "2,1,2,1,32,4,4,256,4,128,256,1.5,CPU,--precision fp32 --p2p async,axonn\n")
    sizes = (512, 1024, 2048, 4096)
    gemm = [(m, n, k, 3e-6 + m * n * k / 3e14) for m in sizes for n in sizes for k in sizes]
    for name in ("gemm.csv", "shapes.csv"):
        write(name, "dtype,m,n,k,seconds\n" + "".join("bf16,%d,%d,%d,%.4g\n" % row for row in gemm))
    heads = [(b, s, h, 1e-5 + b * h * s * s / 2e12) for b in (1, 2, 4) for s in sizes for h in (8, 32)]
    write("attention.csv", "batch,seq_len,heads,kv_heads,head_dim,seconds\n" + "".join("%d,%d,%d,8,128,%.4g\n" % row for row in heads))
    fixtures = os.path.join(TREE, "tests", "fixtures", "plot")
    for i in (1, 2):
        shutil.copy(os.path.join(fixtures, f"predicted-{i}.json"), os.path.join(folder, f"p{i}.json"))
        shutil.copy(os.path.join(fixtures, f"measured-{i}.json"), os.path.join(folder, f"m{i}.json"))
    shutil.copy(os.path.join(fixtures, "sweep.csv"), os.path.join(folder, "sweep.csv"))
    for name in ("48", "96", "192", "without", "with"):
        shutil.copy(os.path.join(fixtures, "predicted-1.json"), os.path.join(folder, name + ".json"))
    for name, fixture in (("trace.json.gz", "trace_gpt2.json.gz"), ("traced.json", "trace_gpt2_model.json")):
        shutil.copy(os.path.join(TREE, "tests", "fixtures", fixture), os.path.join(folder, name))
    write("gpt2.json", json.dumps({**small, "vocab_size": 4096, "n_positions": 256}))
    with open(os.path.join(folder, "tokens.bin"), "wb") as file:
        file.write(b"".join(struct.pack("<H", i * i % 4096) for i in range(20000)))
    train = "train gpt2.json --data text.txt --micro-batch-size 1 --batch-size 1 --seq-len 64 --steps 0 --checkpoint gpt2"
    status, _, said = ranvier.run(train.split(), folder=folder)
    if status:
        raise SystemExit(said)
    train = "train gpt2.json --data text.txt --micro-batch-size 1 --batch-size 1 --seq-len 64 --steps 2 --checkpoint run --checkpoint-every 1"
    status, _, said = ranvier.run(train.split(), folder=folder)
    if status:
        raise SystemExit(said)
    train = "train demo --data text.txt --micro-batch-size 4 --batch-size 4 --steps 5 --checkpoint demo.safetensors --trace trace.json"
    status, _, said = ranvier.run(train.split(), folder=folder)
    if status:
        raise SystemExit(said)


def run(command, folder):
    """Status and what was said. Ranks may share a core, as containers have few, and run as root, as containers do."""
    environment = dict(os.environ, PATH=f"{ranvier.BIN}:{os.environ['PATH']}", OMPI_ALLOW_RUN_AS_ROOT="1",
                       OMPI_ALLOW_RUN_AS_ROOT_CONFIRM="1", OMPI_MCA_rmaps_base_oversubscribe="1")
    done = subprocess.run(["bash", "-c", command], cwd=folder, env=environment, capture_output=True, text=True,
                          errors="replace", stdin=subprocess.DEVNULL)
    return done.returncode, done.stdout + done.stderr


def check_commands(tap):
    used = set()
    with tempfile.TemporaryDirectory() as folder:
        bring(folder)
        for where, command in commands():
            reasons = [(p, why) for p, why in SKIPPED if re.search(p, command)]
            used.update(p for p, _ in reasons)
            if reasons:
                print(f"# skipped, {reasons[0][1]}: {command} ({where})")
                continue
            words = command
            for pattern, replacement, why in CHANGED:
                if re.search(pattern, words):
                    used.add(pattern)
                    words = re.sub(pattern, replacement, words)
                    print(f"# {why}: {words}")
            begin = time.monotonic()
            status, said = run(words, folder)
            print(f"# {time.monotonic() - begin:.1f} s", flush=True)
            tap.ok(status == 0, f"{where}: {command}", f"status {status}: {said}")
    unused = [p for p, *_ in CHANGED + SKIPPED if p not in used]
    tap.ok(not unused, "every change of a command, and everything that is left out, is of a command that is shown", unused)


def main():
    tap = ranvier.Tap()
    pages = [p for p in sorted(glob.glob("docs/*.md", root_dir=TREE)) if fenced(p)]
    for name in [p for p in pages if p in sys.argv[1:]] or pages:
        with tempfile.TemporaryDirectory() as folder:
            follow(tap, name, folder)
    check_marks(tap)
    if not sys.argv[1:]:
        check_commands(tap)
    tap.end()


if __name__ == "__main__":
    main()
