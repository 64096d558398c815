#!/usr/bin/python3
"""make install into a folder, and everything from there: the programs with an empty environment, in another folder and without
the source tree; the man pages by MANPATH; completion in a bash; and make uninstall, which leaves nothing."""
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile

sys.path.insert(0, os.path.dirname(__file__))
import ranvier

TREE = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
PLAN = ["--dp", "2", "--micro-batch-size", "1", "--batch-size", "2"]


def make(*words):
    """Of the tree, with the variables that an outer make was given but not its jobs."""
    environment = dict(os.environ, MAKEFLAGS=re.sub(r"(^|\s)(-\w*j\S*|--jobserver\S*)", " ", os.environ.get("MAKEFLAGS", "")))
    environment.pop("MAKELEVEL", None)
    return subprocess.run(["make", "--no-print-directory", *words], cwd=TREE, env=environment, capture_output=True, text=True)


def files(folder):
    return {os.path.relpath(os.path.join(where, name), folder) for where, _, names in os.walk(folder) for name in names}


def run(folder, *command, hide=True, **variables):
    """A command with nothing but PATH in its environment, in `folder`, where the source tree is an empty folder if that can
    be done; exit status and all that it printed."""
    environment = dict(PATH="/usr/bin:/bin", OMPI_ALLOW_RUN_AS_ROOT="1", OMPI_ALLOW_RUN_AS_ROOT_CONFIRM="1", HOME=folder, **variables)
    if hide and can_hide():
        command = ["unshare", "--mount", "sh", "-c", f"mount -t tmpfs none '{TREE}' && exec \"$@\"", "sh", *command]
    done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, stdin=subprocess.DEVNULL, timeout=600)
    return done.returncode, done.stdout + done.stderr


def can_hide():
    return shutil.which("unshare") and subprocess.run(
        ["unshare", "--mount", "sh", "-c", f"mount -t tmpfs none '{TREE}'"], capture_output=True).returncode == 0


def check_layout(tap, prefix):
    there = files(prefix)
    commands = [entry["name"] for entry in json.loads(ranvier.run(["--describe"])[1])["commands"]]
    wanted = {"bin/ranvier", "share/man/man1/ranvier.1", "share/bash-completion/completions/ranvier", "share/zsh/site-functions/_ranvier",
              *(f"share/man/man1/ranvier-{command}.1" for command in commands),
              *(f"libexec/ranvier/{name}" for name in os.listdir(ranvier.BIN) if re.fullmatch(r"ranvier-\w+", name))}
    tap.ok(wanted <= there, "programs, man pages and completions are where they belong", sorted(wanted - there))
    data = {os.path.relpath(os.path.join(where, name), TREE)
            for part in ("models", "runtime", "sim", "calibrate", "plots") for where, _, names in os.walk(os.path.join(TREE, part))
            for name in names if re.search(r"\.(json|gp|csv)$", name) and "/fits" not in where}
    missing = {path for path in data if f"share/ranvier/{path}" not in there}
    tap.ok(data and not missing, f"so are the {len(data)} files of data", sorted(missing))


def check_programs(tap, folder, prefix):
    program = os.path.join(prefix, "bin", "ranvier")
    hidden = can_hide()
    status, said = run(folder, program, "simulate", "tiny", "--machine", "h100", "--gpus", "2", *PLAN, "--report", "predicted.json")
    with open(os.path.join(folder, "predicted.json")) as file:
        report = json.load(file)
    tap.ok(status == 0 and report["profile"]["path"].startswith(os.path.realpath(prefix)), "a prediction reads what was installed" +
           ("" if hidden else " # the source tree could not be hidden from it"), said)
    with open(os.path.join(folder, "text.txt"), "w") as file:
        file.write("all that is installed is tried. " * 500)
    status, said = run(folder, program, "train", "tiny", "--data", "text.txt", "--steps", "2", "--micro-batch-size", "1", "--batch-size", "2",
                       "--report", "measured.json", "--checkpoint", "tiny.safetensors")
    tap.ok(status == 0 and os.path.exists(os.path.join(folder, "measured.json")), "a training runs", said)
    status, said = run(folder, program, "sample", "tiny.safetensors", "--tokens", "4")
    tap.ok(status == 0, "text is sampled", said)
    status, said = run(folder, program, "plot", "memory", "memory.svg", "predicted.json", "measured.json")
    tap.ok(status == 0 and os.path.getsize(os.path.join(folder, "memory.svg")) > 0, "a figure is drawn", said)
    status, said = run(folder, program, "machines")
    tap.ok(status == 0 and "dgx-h100" in said, "machines are listed", said)
    status, said = run(folder, program, "doctor")
    tap.ok(status == 0 and "predicting work." in said, "the doctor finds nothing missing", said)


def check_pages(tap, folder, prefix):
    pages = os.path.join(prefix, "share", "man")
    status, said = run(folder, "man", "-w", "ranvier-simulate", MANPATH=pages)
    tap.ok(status == 0 and said.strip() == os.path.join(pages, "man1", "ranvier-simulate.1"), "man finds a page by MANPATH", said)
    script = f"source {prefix}/share/bash-completion/completions/ranvier; COMP_WORDS=(ranvier simulate tiny --machine 'h2'); COMP_CWORD=4; " \
             "_ranvier; echo \"${COMPREPLY[@]}\""
    status, said = run(folder, "bash", "-c", script)
    tap.ok(status == 0 and said.strip() == "h200", "bash completes from there", said)


def check_packages(tap):
    """What a package is built of is what the tree is built of; who links the static library has what it links too."""
    with open(os.path.join(TREE, "docs", "packaging", "debian", "control")) as file:
        fields = [re.findall(r"^(\S+): (.*)", part, re.M) for part in file.read().split("\n\n")]
    packages = {dict(part).get("Package", "source"): dict(part) for part in fields}
    with open(os.path.join(TREE, "tests", "deps.sh")) as file:
        wanted = set(re.search(r'^build="(.*)"', file.read(), re.M).group(1).split()) - {"build-essential"}
    known = set(re.findall(r"[a-z0-9.+-]+", packages["source"]["Build-Depends"]))
    tap.ok(wanted <= known, "Build-Depends has what the tree is built with", wanted - known)
    with open(os.path.join(TREE, "docs", "packaging", "packaging.mk")) as file:
        private = re.search(r"^Requires.private: (.*)", file.read(), re.M).group(1).split(", ")
    known = packages["libranvier-dev"]["Depends"]
    missing = [name for name in private if f"lib{name.split('-')[0]}-dev" not in known]
    tap.ok(private and not missing, "libranvier-dev depends on what its pkg-config file requires", missing)


def main():
    tap = ranvier.Tap()
    check_packages(tap)
    with tempfile.TemporaryDirectory() as folder:
        prefix, staged, work = (os.path.join(folder, name) for name in ("prefix", "staged", "work"))
        os.mkdir(work)
        done = make("install", f"PREFIX={prefix}")
        tap.ok(done.returncode == 0, "make install PREFIX=", done.stdout + done.stderr)
        check_layout(tap, prefix)
        check_programs(tap, work, prefix)
        check_pages(tap, work, prefix)
        done = make("install", "PREFIX=/usr", f"DESTDIR={staged}")
        same = {re.sub("^usr/", "", path) for path in files(staged)} == files(prefix)
        tap.ok(done.returncode == 0 and same, "make install DESTDIR= has the same below it", done.stderr)
        done = make("uninstall", f"PREFIX={prefix}")
        tap.ok(done.returncode == 0 and not files(prefix), "make uninstall leaves nothing", sorted(files(prefix)))
    tap.end()


if __name__ == "__main__":
    main()
