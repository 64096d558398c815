#!/usr/bin/python3
"""Man pages, docs/reference.md and completions: every option that argp's --help shows is in the command's page and in what bash and zsh complete;
the pages are clean; completion is that of a real bash and a real zsh; and the words that are completed are those that the
parser knows."""
import json
import os
import pty
import re
import select
import shutil
import subprocess
import sys
import tempfile

sys.path.insert(0, os.path.dirname(__file__))
import ranvier

TREE = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
BUILD = os.path.dirname(ranvier.BIN)
SHARE = os.path.join(BUILD, "share")
BASH = os.path.join(SHARE, "bash-completion", "completions", "ranvier")


def output(*command, **more):
    done = subprocess.run(command, capture_output=True, text=True, stdin=subprocess.DEVNULL, timeout=600, **more)
    return done.returncode, done.stdout, done.stderr


def described(*command):
    return json.loads(ranvier.run([*command, "--describe"])[1])


def help_options(command):
    """The long options of argp's own --help."""
    shown = ranvier.run([command, "--help"])[1]
    return set(re.findall(r"^ {2}(?:-\w, | {4})--([a-z0-9-]+)(?:=\S+(?: +|$)|\[=\S+\](?: +|$)| {2,}|$)", shown, re.M))


def complete(*words, folder=None):
    """What a real bash offers for the last of the words of a command line, which it splits itself."""
    script = f"""source {BASH}
COMP_WORDS=("$@") COMP_CWORD=$(($# - 1))
_ranvier ranvier "${{COMP_WORDS[COMP_CWORD]}}" ''
printf '%s\\n' "${{COMPREPLY[@]}}" """
    status, out, err = output("bash", "--norc", "-c", script, "bash", *words, cwd=folder)
    return set(out.split()) if status == 0 and not err else {err}


def check_page(tap, command, options):
    page = os.path.join(SHARE, "man", "man1", f"ranvier-{command}.1")
    status, text, err = output("man", "--local-file", page, env=dict(os.environ, MANWIDTH="200", LC_ALL="C.UTF-8"))
    shown = set(re.findall(r"^ +(?:-\w, )?--([a-z0-9-]+)", text, re.M))
    tap.ok(status == 0 and options and options <= shown, f"the page of {command} has the {len(options)} options of its --help",
           f"missing: {sorted(options - shown)} {err}")


def check_reference(tap, commands):
    with open(os.path.join(SHARE, "reference.md")) as file:
        made = file.read()
    with open(os.path.join(TREE, "docs", "reference.md")) as file:
        tap.ok(file.read() == made, "docs/reference.md is what would be made now", "run: make reference")
    for command in commands:
        section = made.split(f"\n## ranvier {command}\n")[1].split("\n## ")[0]
        options = help_options(command) - {"help", "usage", "version"}
        shown = set(re.findall(r"^\| (?:`-\w` )?`--([a-z0-9-]+)", section, re.M))
        tap.ok(options == shown, f"the reference has the {len(options)} options of {command}", sorted(options ^ shown))


def check_clean(tap):
    folder = os.path.join(SHARE, "man", "man1")
    pages = [os.path.join(folder, page) for page in sorted(os.listdir(folder))]
    said = "".join(output("man", "--warnings", "--local-file", page, env=dict(os.environ, LC_ALL="C.UTF-8", MANPAGER="cat"))[2]
                   for page in pages)
    tap.ok(len(pages) > 10 and not said, f"man has no warning of {len(pages)} pages", said)
    if not shutil.which("mandoc"):
        return tap.ok(True, "mandoc finds nothing wrong # SKIP mandoc is not installed")
    said = "".join(output("mandoc", "-T", "lint", "-W", "warning", page)[1] for page in pages)
    return tap.ok(not said, "mandoc finds nothing wrong", said)


def check_words(tap, command, description):
    """Each choice that is completed is in what the parser says there is."""
    wrong = []
    for option in (o for group in description["groups"] for o in group["options"]):
        values = option.get("values")
        if not values or not values["names"] or values["files"] or option["name"] == "machine":
            continue
        status, _, err = ranvier.run([command, f"--{option['name']}", "nonsense", *(["x"] if "MODEL" in description["usage"] else [])])
        missing = [name for name in values["names"] if not re.search(rf"(?<![\w+-]){re.escape(name)}(?![\w+-])", err)]
        if status != 2 or missing:
            wrong.append(f"--{option['name']} {missing}: {err}")
    tap.ok(not wrong, f"{command}'s parsers know the words that are completed", "\n".join(wrong))


def check_bash(tap, commands):
    offered = complete("ranvier", "")
    tap.ok(set(commands) | {"--help", "--version", "help"} == offered, "bash completes the commands", offered)
    for command, description in commands.items():
        options = help_options(command)
        offered = {word[2:] for word in complete("ranvier", command, "--")}
        tap.ok(options and options <= offered, f"bash completes the options of {command}", sorted(options - offered))
    presets = {name[:-5] for name in os.listdir(os.path.join(TREE, "models", "presets")) if name.endswith(".json")}
    for command in ("simulate", "plan", "sweep", "train"):
        tap.ok(presets and presets <= complete("ranvier", command, ""), f"and the presets, of {command}")
    tap.ok(complete("ranvier", "simulate", "--schedule", "z") == {"zero-bubble", "zero-bubble-h2"}, "and the values of a choice")
    tap.ok(complete("ranvier", "sweep", "tiny", "--schedule", "1f1b,ze") == {"1f1b,zero-bubble", "1f1b,zero-bubble-h2"},
           "of a list the last one")
    tap.ok(complete("ranvier", "simulate", "--schedule", "=", "gp") == {"gpipe"}, "also behind an =")
    tap.ok(complete("ranvier", "simulate", "--pp", "") == set(), "nothing where a number belongs")
    for command, description in commands.items():
        named = [o["name"] for g in description["groups"] for o in g["options"] if o["name"] in ("machine", "profile", "platform")]
        for name in named:
            offered = complete("ranvier", command, f"--{name}", "h1" if name != "platform" else "sel")
            tap.ok(offered and offered <= {"h100", "h100-500w", "h100-800g", "h100-published", "selene"},
                   f"{command} --{name} completes the names that come with the program", offered)
    with tempfile.TemporaryDirectory() as folder:
        open(os.path.join(folder, "measured.json"), "w").close()
        tap.ok(complete("ranvier", "compare", "p.json", "mea", folder=folder) == {"measured.json"}, "files as operands")
        tap.ok(complete("ranvier", "train", "--data", "mea", folder=folder) == {"measured.json"}, "and as values")
    tap.ok("timeline" in complete("ranvier", "plot", "ti"), "figures")


def zsh_offers(line):
    """What a zsh at a terminal shows when Tab is pressed behind the line."""
    pid, terminal = pty.fork()
    if pid == 0:
        os.environ.update(TERM="dumb", COLUMNS="200", LINES="50", PS1="> ")
        os.execvp("zsh", ["zsh", "-f", "-i"])
    setup = f"fpath=({SHARE}/zsh/site-functions $fpath); autoload -Uz compinit; compinit -D -u; LISTMAX=1000; PS1='READY> '\n"
    os.write(terminal, setup.encode())
    text = read_until(terminal, "READY> ", 2)
    os.write(terminal, (line + "\t\t").encode())
    text = read_until(terminal, None, 3)
    os.write(terminal, b"\x15exit\n")
    os.close(terminal)
    os.waitpid(pid, 0)
    return text


def read_until(terminal, mark, quiet):
    """All until the mark, or until nothing has come for so many seconds."""
    text = b""
    while select.select([terminal], [], [], quiet if not mark else 20)[0]:
        try:
            more = os.read(terminal, 65536)
        except OSError:
            break
        text += more
        if mark and text.decode(errors="replace").count(mark) >= 2:
            break
    return text.decode(errors="replace")


def check_zsh(tap, commands):
    path = os.path.join(SHARE, "zsh", "site-functions", "_ranvier")
    with open(path) as file:
        text = file.read()
    for command in commands:
        part = text[text.index(f"                {command})\n"):]
        part = part[:part.index(" ;;\n")]
        missing = {option for option in help_options(command) if f"'*--{option}[" not in part}
        tap.ok(not missing, f"zsh has the options of {command}", missing)
    if not shutil.which("zsh"):
        return tap.ok(True, "zsh completes # SKIP zsh is not installed: only the text was looked at")
    status, _, err = output("zsh", "-n", path)
    tap.ok(status == 0 and not err, "zsh reads its completion", err)
    offered = zsh_offers("ranvier simulate --schedule ze")
    tap.ok("zero-bubble-h2" in offered, "a real zsh completes a choice", offered)
    offered = zsh_offers("ranvier simulate tiny --machine meta")
    tap.ok("meta-24k" in offered, "and a machine", offered)
    offered = zsh_offers("ranvier do")
    return tap.ok("doctor" in offered, "and a command", offered)


def main():
    tap = ranvier.Tap()
    commands = {}
    for entry in described()["commands"]:
        commands[entry["name"]] = described(entry["name"])
    shown = set(re.findall(r"^  ([a-z]+) +[a-z]", ranvier.run(["--help"])[1].split("Commands:")[1].split("\n\n")[0], re.M))
    tap.ok(shown == set(commands), "all commands are described", shown ^ set(commands))
    for command, description in commands.items():
        usage = re.match(r"Usage: ranvier \w+ \[OPTION\.\.\.\] ?(.*)", ranvier.run([command, "--help"])[1]).group(1).strip()
        operands = re.findall(r"\w+", usage)
        tap.ok(description["usage"] == usage and [o["name"] for o in description["operands"]][:1] == operands[:1],
               f"{command} is described with its operands: {usage or 'none'}", f"{description['usage']} {description['operands']}")
        check_page(tap, command, help_options(command))
        check_words(tap, command, description)
    check_reference(tap, commands)
    check_clean(tap)
    check_bash(tap, commands)
    check_zsh(tap, commands)
    tap.end()


if __name__ == "__main__":
    main()
