#!/usr/bin/python3
"""--device cuda: what a machine without a GPU says, and what train and sample do with one, an emulated one here
(tests/emulated)."""
import json
import os
import re
import sys
import tempfile

sys.path.insert(0, os.path.dirname(__file__))
import ranvier
import text

EMULATED = os.path.join(os.path.dirname(os.path.abspath(ranvier.BIN)), "emulated", "device_cuda.so")
TRAIN = ("train tiny --data text.txt --batch-size 4 --micro-batch-size 2 --seq-len 16 --steps 3 "
         "--validation-fraction 0 --device cuda").split()
MIB = 1 << 20
OWN = 64 * MIB + 256 * MIB  # what the device takes, and leaves for later


def run(folder, options="", ranks=0, **variables):
    """Status, output, what ranvier said in sentences, and the files that are new."""
    before = set(os.listdir(folder))
    status, out, err = ranvier.run(TRAIN + options.split(), ranks, folder, **variables)
    sentences = [line for line in err.splitlines() if re.match(r"ranvier( \w+)?: ", line)]
    return status, out, sentences, sorted(set(os.listdir(folder)) - before)


def check_refusal(tap, folder, what, words, ranks=0, options="", **variables):
    status, _, said, files = run(folder, options + " --log log.csv --report report.json", ranks, **variables)
    tap.ok(status == 2 and len(said) == 1 and re.search(words, said[0]) and not files,
           f"{what}{f', {ranks} ranks' if ranks else ''}: one sentence, status 2, no file", (status, said, files))


def check_refusals(tap, folder):
    own = os.path.join(ranvier.BIN, "device_cuda.so")
    if os.path.exists("/proc/driver/nvidia/version"):
        tap.ok(True, "# SKIP this machine has an NVIDIA driver")
    else:
        built = "no NVIDIA driver" if os.path.exists(own) else "was not built here.*make CUDA=1"
        for ranks in (0, 2):
            check_refusal(tap, folder, "without a driver", f"--device cuda.*{built}", ranks,
                          "--dp 2" if ranks else "", RANVIER_DEVICE_CUDA="")
    check_refusal(tap, folder, "a plugin that is none", "--device cuda does not load: ./text.txt",
                  RANVIER_DEVICE_CUDA="text.txt")
    check_refusal(tap, folder, "a plugin that is not there", "RANVIER_DEVICE_CUDA is nowhere.so, and there is no such file",
                  RANVIER_DEVICE_CUDA="nowhere.so")
    check_refusal(tap, folder, "a driver without a GPU", "has no NVIDIA GPU", RANVIER_DEVICE_CUDA=EMULATED,
                  RANVIER_EMULATED_DEVICES="0")
    check_refusal(tap, folder, "a driver that is too old for the toolkit", "driver is made for CUDA .*a newer driver or an older toolkit",
                  RANVIER_DEVICE_CUDA=EMULATED, RANVIER_EMULATED_FAIL="cudaGetDeviceCount:1:35")
    check_refusal(tap, folder, "two ranks on one GPU that are to sum by NCCL", "--allreduce direct: .*staged", 2,
                  "--dp 2 --allreduce direct", RANVIER_DEVICE_CUDA=EMULATED)
    check_refusal(tap, folder, "a GPU that is too old", "has compute capability 6.1", RANVIER_DEVICE_CUDA=EMULATED,
                  RANVIER_EMULATED_CAPABILITY="61")


def check_memory(tap, folder):
    """The limits are the device's own: what is free, shared by the ranks that share it."""
    def needs(mebibytes, ranks, options=""):
        return run(folder, options + (f" --dp {ranks}" if ranks else ""), ranks, RANVIER_DEVICE_CUDA=EMULATED,
                   RANVIER_EMULATED_MEMORY=str(mebibytes * MIB))
    small, enough = OWN // MIB + 1, OWN // MIB + 4
    status, _, said, _ = needs(small, 0)
    tap.ok(status == 2 and re.search(r"needs .* of device memory and has 1\.00 MiB", said[0]),
           "a plan beyond the free memory of the GPU is refused", said)
    status, _, said, _ = needs(small, 0, "--device-memory 1GiB")
    tap.ok(status == 2 and "has 1.00 MiB" in said[0], "--device-memory makes no GPU larger", said)
    status, _, said, _ = needs(enough, 0)
    tap.ok(status == 0, "a plan within it trains", said)
    status, _, said, _ = needs(enough, 0, "--device-memory 512KiB")
    tap.ok(status == 2 and "has 512.00 KiB" in said[0], "--device-memory makes it smaller", said)
    other = 4096
    status, _, said, _ = run(folder, "", 0, RANVIER_DEVICE_CUDA=EMULATED, RANVIER_EMULATED_OTHERS=str(other * MIB),
                             RANVIER_EMULATED_MEMORY=str((other + small) * MIB))
    tap.ok(status == 2 and re.search(r"has 1\.00 MiB.*4\.06 GiB of the GPU's memory were taken.*other processes", said[0]),
           "and it is said that another process holds memory", said)
    shared = 64 + 2 * (256 + 1)
    status, _, said, _ = needs(shared, 0)
    tap.ok(status == 0, "what fits a GPU for one rank", said)
    status, _, said, _ = needs(shared, 2)
    tap.ok(status == 2 and "has 1.00 MiB" in said[0], "is refused where two ranks share the GPU", said)


def check_failure(tap, folder):
    for ranks in (0, 2):
        status, _, said, files = run(folder, "--log log.csv" + (" --dp 2" if ranks else ""), ranks, RANVIER_DEVICE_CUDA=EMULATED,
                                     RANVIER_EMULATED_FAIL="cudaLaunchKernel:100:700")
        tap.ok(status == 1 and said and re.match(r"ranvier train: rank \d: cuda device 0 \(emulated CUDA .*\): kernel "
                                                 r"\w+ \(m .*\) failed.*: an illegal memory access", said[0]) and files in ([], ["log.csv"]),
               f"a kernel that fails ends the job with its name and leaves no file but its log, {ranks or 1} ranks", (status, said, files))


def check_graphs(tap, folder):
    found = {}
    for graphs in ("on", "off"):
        status, out, said, _ = run(folder, f"--cuda-graphs {graphs} --log {graphs}.csv --report {graphs}.json",
                                   RANVIER_DEVICE_CUDA=EMULATED)
        tap.ok(status == 0 and f"CUDA graphs {graphs}" in out, f"a run with CUDA graphs {graphs} says so", (out, said))
        with open(os.path.join(folder, f"{graphs}.json")) as file:
            found[graphs] = json.load(file)["device"]
    on, off = (ranvier.losses(os.path.join(folder, f"{graphs}.csv")) for graphs in ("on", "off"))
    tap.ok(on == off and len(on) == 3, "losses with and without graphs are the same bits", (on, off))
    tap.ok(found["on"]["graphs"] and not found["off"]["graphs"] and found["on"]["kind"] == "cuda"
           and found["on"]["name"] == "emulated CUDA (no GPU)" and found["on"]["used_bytes"][0] > 64 * MIB,
           "the report says what computed, and what of its memory is used", found)


def check_sample(tap, folder):
    run(folder, "--checkpoint model.safetensors", RANVIER_DEVICE_CUDA=EMULATED)
    arguments = ["sample", "model.safetensors", "--prompt", "It was ", "--tokens", "4", "--device"]
    texts = [ranvier.run(arguments + [device], 0, folder, RANVIER_DEVICE_CUDA=EMULATED) for device in ("cpu", "cuda")]
    tap.ok(texts[0] == texts[1] and texts[0][0] == 0 and len(texts[0][1]) >= 4, "sample writes the same on both devices", texts)


def main():
    tap = ranvier.Tap()
    with tempfile.TemporaryDirectory() as folder:
        text.write(os.path.join(folder, "text.txt"))
        for check in (check_refusals, check_memory, check_failure, check_graphs, check_sample):
            check(tap, folder)
    tap.end()


if __name__ == "__main__":
    main()
