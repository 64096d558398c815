#!/usr/bin/python3
"""ranvier doctor: what it says of this machine is what other tools say of it; what is missing is named with its package, and
never makes it fail; GPUs are listed as a driver of our own making has them."""
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile

sys.path.insert(0, os.path.dirname(__file__))
import ranvier

DRIVER = """#include <string.h>
int cuInit(unsigned flags) { return flags == 0 ? %(init)d : 1; }
int cuDriverGetVersion(int *version) { *version = 13020; return 0; }
int cuDeviceGetCount(int *count) { *count = 2; return 0; }
int cuDeviceGet(int *device, int ordinal) { *device = 40 + ordinal; return 0; }
int cuDeviceGetName(char *name, int size, int device) { strncpy(name, device == 40 ? "NVIDIA A" : "NVIDIA B", size); return 0; }
int cuDeviceTotalMem_v2(unsigned long *bytes, int device) { *bytes = (device - 38) * 1073741824ul; return 0; }
"""


def examine(command, **environment):
    """Exit status, what is said as JSON, by name, and all of it."""
    variables = dict(os.environ, OMPI_ALLOW_RUN_AS_ROOT="1", OMPI_ALLOW_RUN_AS_ROOT_CONFIRM="1")
    variables.update(environment)
    variables = {name: value for name, value in variables.items() if value is not None}
    done = subprocess.run([command, "doctor", "--json"], capture_output=True, text=True, stdin=subprocess.DEVNULL, env=variables, timeout=600)
    said = json.loads(done.stdout)
    return done.returncode, {row["name"]: row for row in said["found"]}, said


def installation(folder, without=(), fakes=()):
    """A folder as make install makes it, of links to the programs, but for some; and for some that only print."""
    os.makedirs(os.path.join(folder, "bin"))
    libexec = os.path.join(folder, "libexec", "ranvier")
    os.makedirs(libexec)
    shutil.copy(os.path.join(ranvier.BIN, "ranvier"), os.path.join(folder, "bin"))
    shutil.copy(os.path.join(ranvier.BIN, "ranvier-doctor"), libexec)
    for program in ("ranvier-train", "ranvier-sim", "ranvier-calibrate", "ranvier-sample", "ranvier-plot"):
        if program not in without and program not in dict(fakes):
            os.symlink(os.path.join(ranvier.BIN, program), os.path.join(libexec, program))
    for program, text in fakes:
        path = os.path.join(libexec, program)
        with open(path, "w") as file:
            file.write(f"#!/bin/sh\necho '{text}' >&2\nexit 127\n")
        os.chmod(path, 0o755)
    return os.path.join(folder, "bin", "ranvier")


def programs_but(folder, *without):
    """A folder with all of /usr/bin's programs but these, for PATH."""
    os.makedirs(folder)
    for name in os.listdir("/usr/bin"):
        if name not in without:
            os.symlink(os.path.join("/usr/bin", name), os.path.join(folder, name))
    return folder


def check_here(tap):
    status, found, said = examine(os.path.join(ranvier.BIN, "ranvier"))
    tap.ok(status == 0 and said["works"] and all(row["has"] for row in found.values() if row["needed"]), "this machine trains and predicts",
           json.dumps(said, indent=1))
    version = re.search(r"[\d.]+\d", subprocess.run(["mpirun", "--version"], capture_output=True, text=True).stdout).group()
    tap.ok(version in found["MPI"]["says"] and version in found["mpirun"]["says"], "MPI's version is mpirun's", found["MPI"])
    with open("/usr/include/simgrid/version.h") as file:
        header = file.read()
    simgrid = ".".join(re.search(rf"define +SIMGRID_VERSION_{part} +(\d+)", header).group(1) for part in ("MAJOR", "MINOR", "PATCH"))
    tap.ok(f"SimGrid {simgrid}" in found["predicting"]["says"], "SimGrid's is its header's", found["predicting"])
    machine = said["machine"]
    tap.ok(machine["processors"] == len(os.sched_getaffinity(0)) and
           machine["memory_bytes"] == os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") and
           machine["architecture"] == os.uname().machine, "processors and memory are Python's", machine)
    with open("/proc/cpuinfo") as file:
        flags = set(re.search(r"^flags\s*: (.*)", file.read(), re.M).group(1).split()) if machine["architecture"] == "x86_64" else set()
    tap.ok(("avx512" in found["CPU kernels"]["says"]) == ({"avx512f", "avx512vl", "avx512bw", "avx512dq"} <= flags),
           "kernels for AVX-512 run where the processor has it", found["CPU kernels"])
    words = ranvier.run(["doctor"])[1]
    tap.ok(all(re.search(rf"^  {'yes' if row['has'] else 'no '}  {re.escape(name)} ", words, re.M) for name, row in found.items()),
           "words and JSON have the same rows", words)


def check_missing(tap, folder):
    here = os.path.join(ranvier.BIN, "ranvier")
    loader = "ranvier-sim: error while loading shared libraries: libsimgrid.so.3.32: cannot open shared object file: No such file or directory"
    installed = installation(os.path.join(folder, "a"), fakes=[("ranvier-sim", loader)])
    status, found, said = examine(installed)
    tap.ok(status == 1 and not said["works"] and found["predicting"]["install"] == "libsimgrid-dev" and found["training"]["has"],
           "a library that is not there is named with its package, and training still works", found["predicting"])
    installed = installation(os.path.join(folder, "b"), without=["ranvier-train", "ranvier-plot"])
    status, found, _ = examine(installed)
    tap.ok(status == 1 and "ranvier-train cannot be started: No such file" in found["training"]["says"] and found["predicting"]["has"] and
           not found["compare"]["has"], "so is a program", found["training"])
    status, found, _ = examine(here, PATH=programs_but(os.path.join(folder, "c"), "mpirun", "gnuplot"))
    tap.ok(status == 1 and found["mpirun"]["install"] == "openmpi-bin" and found["figures"]["install"] == "gnuplot-nox" and found["training"]["has"],
           "mpirun and gnuplot are looked for", [found["mpirun"], found["figures"]])
    status, found, _ = examine(here, PATH=programs_but(os.path.join(folder, "d"), "gnuplot"))
    tap.ok(status == 0, "figures are not needed", found)
    if os.geteuid():
        tap.ok(True, "root is told how # SKIP this is not root")
    else:
        status, found, _ = examine(here, OMPI_ALLOW_RUN_AS_ROOT=None, OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=None)
        tap.ok(status == 1 and "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1" in found["mpirun"]["says"], "root is told how", found["mpirun"])


def check_gpus(tap, folder):
    for init in (0, 100):
        with open(os.path.join(folder, "driver.c"), "w") as file:
            file.write(DRIVER % {"init": init})
        subprocess.run(["cc", "-shared", "-fPIC", "-o", os.path.join(folder, "libcuda.so.1"), os.path.join(folder, "driver.c")], check=True)
        _, found, said = examine(os.path.join(ranvier.BIN, "ranvier"), LD_LIBRARY_PATH=folder)
        if init:
            tap.ok(not found["GPUs"]["has"] and "error 100" in found["GPUs"]["says"] and said["machine"]["gpus"] == [], "a driver without GPUs",
                   found["GPUs"])
        else:
            tap.ok(said["machine"]["gpus"] == [{"name": "NVIDIA A", "memory_bytes": 2 << 30}, {"name": "NVIDIA B", "memory_bytes": 3 << 30}] and
                   "CUDA 13.2" in found["GPUs"]["says"] and found["GPUs"]["has"], "GPUs are the driver's", found["GPUs"])


def main():
    os.environ.setdefault("ASAN_OPTIONS", "detect_leaks=0")  # Open MPI and SimGrid keep memory to their end
    tap = ranvier.Tap()
    check_here(tap)
    with tempfile.TemporaryDirectory() as folder:
        check_missing(tap, folder)
        check_gpus(tap, folder)
    tap.end()


if __name__ == "__main__":
    main()
