#!/usr/bin/python3
"""libranvier as it is installed: the examples of docs/examples through pkg-config, shared and static; what it predicts beside
what `ranvier simulate` and `ranvier price` do; its errors; and that it shows its own functions alone."""
import csv
import ctypes
import json
import os
import re
import subprocess
import sys
import tempfile

sys.path.insert(0, os.path.dirname(__file__))
import install
import ranvier

EXAMPLES = os.path.join(install.TREE, "docs", "examples")
PLANS = [
    ("llama3-8b", "--tp", "2", "--dp", "4", "--zero", "1", "--micro-batch-size", "1", "--batch-size", "64"),
    ("gpt-12b", "--pp", "4", "--dp", "2", "--schedule", "1f1b", "--micro-batch-size", "1", "--batch-size", "64", "--recompute", "full"),
    ("llama2-7b", "--dp", "8", "--zero", "3", "--micro-batch-size", "1", "--batch-size", "64", "--like", "torchtitan"),
    ("gpt-50b", "--tp", "8", "--micro-batch-size", "1", "--batch-size", "8"),
]


class Prediction(ctypes.Structure):
    _fields_ = [(name, ctypes.c_double) for name in ("batch_seconds", "low_seconds", "high_seconds", "tokens_per_second",
                                                     "flops_per_gpu_per_second", "percent_of_peak")]
    _fields_ += [("device_bytes", ctypes.c_int64), ("device_capacity_bytes", ctypes.c_int64), ("fits", ctypes.c_int32), ("ranks", ctypes.c_int32)]


class Kernel(ctypes.Structure):
    _fields_ = [("kind", ctypes.c_int32), ("dtype", ctypes.c_int32), ("m", ctypes.c_int64), ("n", ctypes.c_int64), ("k", ctypes.c_int64),
                ("batch", ctypes.c_int64), ("heads", ctypes.c_int32), ("kv_heads", ctypes.c_int32)]


class Price(ctypes.Structure):
    _fields_ = [("seconds", ctypes.c_double), ("relative_error", ctypes.c_double)]


class Library:
    def __init__(self, path):
        self.calls = ctypes.CDLL(path)
        self.calls.ranvier_machine_open.restype = ctypes.c_void_p
        self.calls.ranvier_version.restype = ctypes.c_char_p
        self.said = ctypes.create_string_buffer(1024)

    def open(self, name, profile, platform, gpus):
        texts = [text.encode() if text else None for text in (name, profile, platform)]
        return self.calls.ranvier_machine_open(*texts, gpus, self.said, ctypes.c_size_t(1024))

    def predict(self, machine, *words):
        """(code, prediction, sentence)"""
        plan = (ctypes.c_char_p * (len(words) + 1))(*(word.encode() for word in words), None)
        one = Prediction()
        code = self.calls.ranvier_predict(ctypes.c_void_p(machine), plan, ctypes.byref(one), self.said, ctypes.c_size_t(1024))
        return code, one, self.said.value.decode()

    def price(self, machine, *kernels):
        prices = (Price * len(kernels))()
        code = self.calls.ranvier_price(ctypes.c_void_p(machine), (Kernel * len(kernels))(*kernels), len(kernels), prices, self.said,
                                        ctypes.c_size_t(1024))
        return code, [price.seconds for price in prices], self.said.value.decode()


def check_symbols(tap, prefix):
    with open(os.path.join(prefix, "include", "ranvier.h")) as file:
        own = set(re.findall(r"^[a-z].*?\b(ranvier_\w+)\(", file.read(), re.M))
    library = os.path.join(prefix, "lib", "libranvier")
    shared = subprocess.run(["nm", "-D", "--defined-only", library + ".so"], capture_output=True, text=True).stdout
    static = subprocess.run(["nm", "--extern-only", "--defined-only", library + ".a"], capture_output=True, text=True).stdout
    tap.ok(own and set(re.findall(r" T (\w+)", shared)) == own == set(re.findall(r" [A-Z] (\w+)", static)), "it shows the functions of its header alone",
           shared + static)
    needed = subprocess.run(["objdump", "-p", library + ".so"], capture_output=True, text=True).stdout
    tap.ok("SONAME               libranvier.so.0" in needed and not re.search("NEEDED.*(simgrid|mpi|blas)\\b", needed.replace("gslcblas", "")),
           "it has a name and needs neither SimGrid nor MPI", needed)


def check_examples(tap, folder, prefix):
    environment = dict(PKG_CONFIG_PATH=os.path.join(prefix, "lib", "pkgconfig"))
    libraries = os.path.join(prefix, "lib")
    said = {}
    for how, flags in (("shared", ""), ("static", "--static")):
        words = "$(pkg-config --cflags --libs %s ranvier)" % flags
        if how == "static":  # of the system's libraries the shared ones
            words = words.replace("ranvier)", "ranvier | sed 's|-lranvier|-l:libranvier.a|')")
        status, out = install.run(folder, "sh", "-c", f"cc -Wall -Wextra -Werror -std=c11 {EXAMPLES}/predict.c {words} -o predict-{how}",
                                  hide=False, **environment)
        tap.ok(status == 0, f"the example in C is built, {how}", out)
        needs = {"RANVIER_DATA": os.path.join(prefix, "share", "ranvier")} if how == "static" else {"LD_LIBRARY_PATH": libraries}
        status, said[how] = install.run(folder, os.path.join(folder, f"predict-{how}"), **needs)
        tap.ok(status == 0 and re.search(r"^a batch takes [\d.]+ s \[[\d.]+ s, [\d.]+ s\], [\d.]+ % of peak", said[how]), "and runs", said[how])
    tap.ok(said["shared"] == said["static"], "both say the same", said)
    status, out = install.run(folder, "python3", os.path.join(EXAMPLES, "predict.py"), hide=False, LD_LIBRARY_PATH=libraries)
    batch = re.search(r"batch takes ([\d.]+) s", said["shared"]).group(1)
    tap.ok(status == 0 and f"--tp 2: {batch} s" in out and out.count("\n") == 4, "the example in Python says the same", out)
    with open(os.path.join(folder, "predict.cpp"), "w") as file:
        file.write("#include <ranvier.h>\nint main() { return ranvier_version()[0] == 0; }\n")
    status, out = install.run(folder, "sh", "-c", "c++ -Wall -Werror predict.cpp $(pkg-config --cflags --libs ranvier) -o predict-cpp && ./predict-cpp",
                              hide=False, LD_LIBRARY_PATH=libraries, **environment)
    tap.ok(status == 0, "the header is C++'s, too", out)


def check_predictions(tap, folder, library):
    node = library.open("8xh100", None, None, 8)
    report = os.path.join(folder, "report.json")
    for words in PLANS:
        code, one, said = library.predict(node, *words)
        status, _, err = ranvier.run(["simulate", *words, "--machine", "8xh100", "--ignore-memory", "--report", report])
        with open(report) as file:
            simulated = json.load(file)
        close = abs(one.batch_seconds / simulated["batch_seconds"]["median"] - 1) < 0.01
        tap.ok(status == 0 and code == 0 and said == "" and close and one.device_bytes == simulated["memory"]["device_peak_bytes"] and one.ranks == 8 and
               abs(one.percent_of_peak / simulated["percent_of_peak"] - 1) < 0.01 and one.low_seconds < one.batch_seconds < one.high_seconds,
               f"{words[0]} as SimGrid runs it, to 1 %, and its memory to the byte",
               f"{code} {said} {one.batch_seconds} {simulated['batch_seconds']} {one.device_bytes} {simulated['memory']} {err}")
        status, _, _ = ranvier.run(["simulate", *words, "--machine", "8xh100"])
        tap.ok(one.fits == (status == 0), "and it fits where it fits there", f"{one.fits} {status}")
    library.calls.ranvier_machine_close(ctypes.c_void_p(node))


def check_script(tap, folder, library):
    """A plan of a script is the plan that `ranvier simulate --from` takes from it."""
    script, report = (os.path.join(folder, name) for name in ("train.sh", "report.json"))
    plan = ("llama3-8b", "--tp", "2", "--dp", "8", "--micro-batch-size", "1", "--batch-size", "64", "--zero", "1", "--like", "megatron")
    status, _, err = ranvier.run(["simulate", *plan, "--machine", "h100", "--gpus", "16", "--launch", f"megatron={script}"])
    tap.ok(status == 0, "a script of Megatron-LM is there", err)
    machine = library.open("h100", None, None, 16)
    for more in ((), ("--tp", "4")):
        code, one, said = library.predict(machine, "--from", script, *more)
        status, _, err = ranvier.run(["simulate", "--from", script, *more, "--machine", "h100", "--report", report])
        with open(report) as file:
            simulated = json.load(file)
        tap.ok(code == 0 and status == 0 and abs(one.batch_seconds / simulated["batch_seconds"]["median"] - 1) < 0.01 and
               one.device_bytes == simulated["memory"]["device_peak_bytes"] and one.ranks == 16,
               f"a script's plan {' '.join(more)}", f"{code} {said} {one.batch_seconds} {simulated['batch_seconds']} {err}")
    code, _, said = library.predict(machine, "--from", script + "x")
    tap.ok(code == -1 and script + "x" in said, "a script that is not there is named", said)
    library.calls.ranvier_machine_close(ctypes.c_void_p(machine))


def check_prices(tap, folder, library):
    machine = library.open(None, "h100", "dgx-h100", 16)
    kernels = [(4096, 14336, 4096), (8192, 1024, 512), (333, 777, 129)]
    table, priced = (os.path.join(folder, name) for name in ("table.csv", "priced.csv"))
    with open(table, "w") as file:
        file.write("dtype,m,n,k\n" + "".join("bf16,%d,%d,%d\n" % kernel for kernel in kernels))
    status, _, err = ranvier.run(["price", "--profile", "h100", "--table", table, "--training", "--csv", priced])
    with open(priced) as file:
        wanted = [float(row["predicted_seconds"]) for row in csv.DictReader(file)]
    code, found, said = library.price(machine, *(Kernel(0, 2, *kernel) for kernel in kernels))
    tap.ok(status == 0 and code == 0 and all(abs(a / b - 1) < 1e-5 for a, b in zip(found, wanted)), "products cost what ranvier price says",
           f"{found} {wanted} {said} {err}")
    with open(table, "w") as file:
        file.write("batch,seq_len,heads,kv_heads,head_dim\n2,4096,32,8,128\n")
    ranvier.run(["price", "--profile", "h100", "--table", table, "--training", "--csv", priced])
    with open(priced) as file:
        wanted = float(next(csv.DictReader(file))["predicted_seconds"])
    code, found, said = library.price(machine, Kernel(1, 2, 4096, 0, 128, 2, 32, 8), Kernel(2, 2, 4096, 0, 128, 2, 32, 8))
    tap.ok(code == 0 and abs(found[0] / wanted - 1) < 1e-5 and found[1] > found[0], "so does attention; its backward costs more", f"{found} {wanted} {said}")
    for kernel, sentence in ((Kernel(7, 2, 1, 1, 1), "kernel 0: kind is none"), (Kernel(0, 9, 1, 1, 1), "kernel 0: dtype is none"),
                             (Kernel(0, 2, 0, 1, 1), "kernel 0: m and k must"), (Kernel(0, 2, 1, 0, 1), "kernel 0: n must"),
                             (Kernel(1, 2, 8, 0, 8, 1, 3, 2), "kv_heads a divisor")):
        code, _, said = library.price(machine, kernel)
        tap.ok(code == -1 and sentence in said, f"refused: {sentence}", said)
    library.calls.ranvier_machine_close(ctypes.c_void_p(machine))


def check_errors(tap, library):
    for arguments, sentence in ((("h10", None, None, 8), "there is no machine 'h10'; near are"), ((None, "h100", None, 8), "the platform is missing"),
                                ((None, None, None, 8), "the profile is missing"), (("8xh100", None, None, 0), "1 GPU or more"),
                                (("8xh100", None, None, 9), "8xh100"), ((None, "h1000", "dgx-h100", 8), "the nearest is h100")):
        machine = library.open(*arguments)
        tap.ok(not machine and sentence in library.said.value.decode(), f"no machine: {sentence}", library.said.value)
    node = library.open("8xh100", None, None, 8)
    plan = ("tiny", "--micro-batch-size", "1", "--batch-size", "8")
    for words, wanted, sentence in (((*plan, "--dp", "4"), -2, "needs 4 ranks, but there are 8"), ((*plan, "--batchsize", "8"), -1, "the nearest is --batch-size"),
                                    (("tini", *plan[1:], "--dp", "8"), -1, "the nearest is tiny"), ((*plan, "--dp", "8", "--help"), -1, "asks for help"),
                                    ((*plan, "--dp", "8", "--report", "x.json"), -1, "--report writes a file"), ((), -1, "missing")):
        code, _, said = library.predict(node, *words)
        tap.ok(code == wanted and sentence in said, f"no prediction: {sentence}", f"{code} {said}")
    code, _, said = library.predict(node, *plan, "--dp", "8")
    tap.ok(code == 0 and said == "", "and after all that a right plan is predicted", said)
    library.calls.ranvier_machine_close(ctypes.c_void_p(node))
    library.calls.ranvier_machine_close(None)


def main():
    tap = ranvier.Tap()
    with tempfile.TemporaryDirectory() as folder:
        prefix = os.path.join(folder, "prefix")
        done = install.make("install", f"PREFIX={prefix}")
        tap.ok(done.returncode == 0, "make install", done.stdout + done.stderr)
        check_symbols(tap, prefix)
        check_examples(tap, folder, prefix)
        library = Library(os.path.join(prefix, "lib", "libranvier.so.0"))
        version = subprocess.run(["pkg-config", "--modversion", "ranvier"], capture_output=True, text=True,
                                 env=dict(os.environ, PKG_CONFIG_PATH=os.path.join(prefix, "lib", "pkgconfig"))).stdout.strip()
        tap.ok(library.calls.ranvier_version().decode() == version == ranvier.run(["--version"])[1].split()[1], "pkg-config knows the version", version)
        check_predictions(tap, folder, library)
        check_script(tap, folder, library)
        check_prices(tap, folder, library)
        check_errors(tap, library)
    tap.end()


if __name__ == "__main__":
    main()
