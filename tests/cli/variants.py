#!/usr/bin/python3
"""The CPU device's kernels as built for several kinds of processor: each trains the same as the scalar reference, and holds
no instructions but its own."""
import json
import os
import platform
import re
import subprocess
import sys
import tempfile

sys.path.insert(0, os.path.dirname(__file__))
import ranvier
import text

X86 = platform.machine() == "x86_64"
VARIANTS = ["scalar", "baseline"] + (["avx2", "avx512"] if X86 else [])
FOLDER = os.path.dirname(ranvier.BIN)
MODEL = {"n_layer": 2, "n_embd": 72, "n_head": 3, "vocab_size": 256, "n_positions": 45, "tie_word_embeddings": True}
STEPS = 12
# Each step's relative difference: what rounding differently in fp32 makes of it, and where weights are rounded to 16 bits.
TOLERANCE = {"fp32": 1e-5, "mixed": 1e-4, "bf16": 1e-3}


def train(folder, variant, *more, steps=1):
    log, report = os.path.join(folder, "log.csv"), os.path.join(folder, "report.json")
    status, _, err = ranvier.run(
        ["train", os.path.join(folder, "model.json"), "--data", os.path.join(folder, "text.txt"), "--micro-batch-size", 3,
         "--batch-size", 6, "--seq-len", 45, "--steps", steps, "--lr", 1e-3, *(["--warmup", 3] if steps > 3 else []), "--log", log, "--report", report,
         "--cpu-kernels", variant, *more])
    return (ranvier.losses(log), json.load(open(report))) if status == 0 else (err, None)


def running(tap, folder):
    """Those that this processor runs; what is said of the others."""
    runs = []
    for variant in VARIANTS:
        losses, report = train(folder, variant)
        if report:
            runs.append(variant)
            tap.ok(report["device"]["cpu_kernels"] == variant, f"{variant}: the report says so", report["device"])
        else:
            tap.ok(f"--cpu-kernels {variant} needs" in losses, f"{variant}: refused on this processor in a sentence", losses)
    return runs


def check_losses(tap, folder, runs):
    for precision, fusion in ranvier.some_sanitized([("fp32", "on"), ("fp32", "off"), ("mixed", "on"), ("bf16", "on")]):
        options = ["--precision", precision, "--fusion", fusion]
        reference, report = train(folder, "scalar", *options, steps=STEPS)
        tap.ok(report and reference[-1] < 0.9 * reference[0], f"{precision}, fusion {fusion}: the reference learns", reference)
        for variant in runs[1:]:
            losses, report = train(folder, variant, *options, steps=STEPS)
            most = max(abs(a - b) / b for a, b in zip(losses, reference)) if report else None
            tap.ok(report and most <= TOLERANCE[precision],
                   f"{precision}, fusion {fusion}: {variant}'s losses are the reference's to {TOLERANCE[precision]:g}",
                   most if report else losses)


def check_choice(tap, folder, runs):
    _, report = train(folder, "auto")
    tap.ok(report and report["device"]["cpu_kernels"] == runs[-1], "auto takes the last that runs", report and report["device"])
    said, _ = train(folder, "sse9")
    tap.ok("'sse9' is not known; there are auto, scalar, baseline" in str(said), "a name that is none is refused", said)


def disassembly(variant):
    done = subprocess.run(["objdump", "-d", "--no-show-raw-insn", object_of(variant)], capture_output=True, text=True, check=True)
    return done.stdout


def object_of(variant):
    return os.path.join(FOLDER, f"obj-{variant}", f"cpu_kernels_{variant}.o")


def check_objects(tap):
    registers = {"scalar": ("xmm", "ymm"), "baseline": ("xmm", "ymm"), "avx2": ("ymm", "zmm"), "avx512": ("zmm", None)}
    for variant in VARIANTS:
        names = subprocess.run(["nm", "-g", "--defined-only", object_of(variant)], capture_output=True, text=True, check=True)
        found = [line.split()[-1] for line in names.stdout.splitlines()]
        found = [name for name in found if not name.startswith("__")]
        tap.ok(found == [f"cpu_run_{variant}"], f"{variant}: one name is seen outside", found)
        if not X86:
            continue
        code = disassembly(variant)
        used, unknown = registers[variant]
        count = lambda register: len(re.findall(f"%{register}[0-9]", code))
        tap.ok(count(used) > 0 or ranvier.SANITIZED,  # -O1: nothing is vectorised
               f"{variant}: has instructions on {used}", count(used))
        if unknown:
            tap.ok(count(unknown) == 0, f"{variant}: has none on {unknown}", count(unknown))
        if variant in ("scalar", "baseline"):
            avx = re.findall(r"\tv[a-z0-9]+ .*%xmm.*", code)
            tap.ok(not avx, f"{variant}: has none of AVX on xmm", "\n".join(avx[:5]))
    if X86:
        packed = re.findall(r"\t(?:mul|add|sub|div)p[sd] .*", disassembly("scalar"))
        tap.ok(not packed, "scalar: computes with one number at a time", "\n".join(packed[:5]))


def main():
    tap = ranvier.Tap()
    with tempfile.TemporaryDirectory() as folder:
        text.write(os.path.join(folder, "text.txt"))
        with open(os.path.join(folder, "model.json"), "w") as file:
            json.dump(MODEL, file)
        runs = running(tap, folder)
        check_choice(tap, folder, runs)
        check_losses(tap, folder, runs)
    check_objects(tap)
    tap.end()


if __name__ == "__main__":
    main()
