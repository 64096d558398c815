#!/usr/bin/python3
"""What simulate says of checkpoints, beside what its own parts say; and snapshots and writes in the traces of both worlds."""
import json
import math
import os
import sys
import tempfile

sys.path.insert(0, os.path.dirname(__file__))
import ranvier

LLAMA = ["llama3-8b", "--machine", "8xh100", "--tp", 2, "--dp", 4, "--zero", 1, "--micro-batch-size", 1, "--batch-size", 64]
TINY = ["tiny", "--pp", 2, "--batch-size", 8, "--micro-batch-size", 2]


def near(value, right, part=0.01):
    return math.isclose(value, right, rel_tol=part)


def simulate(*arguments):
    status, out, err = ranvier.run(["simulate", *arguments])
    return status, out, err.strip()


def predict(*arguments):
    status, out, err = simulate(*arguments, "--json")
    return json.loads(out) if status == 0 else {"checkpoints": {}, "error": err}


def check_costs(tap):
    """Llama 3 8B has 8.03 billion parameters, of which fp32 weights and both moments are 12 bytes each; the H100's link to its host is
    64 GB/s in its platform, and the eight GPUs of the node write over one link to files."""
    plain = predict(*LLAMA)
    found = predict(*LLAMA, "--checkpoint-every", 100, "--file-rate", "4GB/s", "--mtbf", "3h")
    kept, failures = found["checkpoints"], found["checkpoints"].get("failures", {})
    tap.ok(near(kept["bytes"], 12 * 8.03e9) and near(kept["bytes_of_a_rank"], kept["bytes"] / 8), "all ranks write an eighth of the state", kept)
    tap.ok(near(kept["writing_seconds"], kept["bytes"] / 4e9), "a node writes at its rate", kept)
    tap.ok(kept["bytes_of_a_rank"] / 70e9 < kept["exposed_seconds"] < kept["bytes_of_a_rank"] / 40e9, "the copy crosses the host link", kept)
    tap.ok(found["batch_seconds"] == plain["batch_seconds"], "a batch takes what it takes without checkpoints")
    batch = kept["interval_seconds"] - kept["exposed_seconds"] - kept["slower_seconds"] - kept["waits_seconds"]
    tap.ok(near(kept["share_of_time"], 1 - batch / kept["interval_seconds"]) and kept["waits_seconds"] == 0, "what it costs is a part of the time", kept)
    cost = kept["exposed_seconds"] + kept["slower_seconds"]
    tap.ok(near(failures["young_seconds"], math.sqrt(2 * cost * 3 * 3600)), "Young's interval is sqrt(2 C M)", failures)
    tap.ok(failures["least_share_lost"] <= failures["share_lost"] and near(failures["daly_seconds"], failures["young_seconds"], 0.05),
           "Daly's is near it, and loses no more than the one that was asked for", failures)
    slow = predict(*LLAMA, "--checkpoint-every", 1, "--file-rate", "100MB/s")["checkpoints"]
    tap.ok(slow["waits_seconds"] > 0 and near(slow["interval_seconds"], slow["writing_seconds"] + cost, 0.02),
           "on slow files the next one waits until the one before is written", slow)
    lossy = predict(*LLAMA, "--checkpoint-every", 100, "--file-rate", "100MB/s", "--mtbf", "3h")["checkpoints"]
    failures = lossy.get("failures", {})
    tap.ok(failures.get("daly_seconds", 0) >= lossy["writing_seconds"] and failures["least_share_lost"] <= min(1, failures["share_lost"] + 1e-9),
           "no interval is advised that is shorter than a write", lossy)
    timed = predict(*LLAMA, "--checkpoint-every", "10min", "--file-rate", "4GB/s")["checkpoints"]
    tap.ok(600 <= timed["interval_seconds"] < 600 + 2 * batch / 100 + cost, "so often is in whole batches", timed)


def check_words(tap):
    status, out, err = simulate(*LLAMA, "--checkpoint-every", 100, "--file-rate", "4GB/s", "--mtbf", "3h")
    lines = [line for line in out.splitlines() if line.startswith(("checkpoints", "failures"))]
    tap.ok(status == 0 and len(lines) == 2 and "every 100 batches" in lines[0] and "Daly" in lines[1], "two lines say it", out)
    for sentence, wrong in (("--checkpoint-every needs --file-rate: what each node of platform", [*LLAMA, "--checkpoint-every", 5]),
                            ("--file-rate needs --checkpoint-every", [*LLAMA, "--file-rate", "4GB/s"]),
                            ("--mtbf needs --checkpoint-every", [*LLAMA, "--mtbf", "3h"]),
                            ("'often' is neither a number of steps nor a time", [*LLAMA, "--checkpoint-every", "often"]),
                            ("'3' is not a time, such as 90s", [*LLAMA, "--checkpoint-every", 5, "--mtbf", 3])):
        status, out, err = simulate(*wrong)
        tap.ok(status == 2 and sentence in err and len(err.splitlines()) == 1, f"refused: {sentence}", err)


def check_searches(tap):
    """Times of sweep and plan are those of simulate with its share of a checkpoint."""
    ask = ["gpt-12b", "--profile", "v100-datasheet", "--platform", "summit", "--gpus", 48, "--batch-size", 1536, "--checkpoint-every", 2, "--file-rate", "500MB/s"]
    status, out, err = ranvier.run(["sweep", *ask, "--offload", "yes", "--micro-batch-size", 4, "--pp", 8, "--simulate", 1, "--json"])
    row = json.loads(out)[0] if status == 0 else {"pp": 0}
    alone = predict(*ask, "--pp", 8, "--dp", 6, "--offload", "--micro-batch-size", 4, *(["--offload-activations"] if row["offload_activations"] == "yes" else []),
                    *(["--recompute", row["recompute"]] if row["recompute"] != "none" else []))
    share = alone["checkpoints"]["share_of_time"]
    tap.ok(share > 0.01 and near(row["batch_seconds"], alone["batch_seconds"]["median"] / (1 - share), 1e-6), "a sweep's times are with checkpoints",
           (row, alone.get("checkpoints"), err))
    status, out, err = ranvier.run(["sweep", *ask[:-2]])
    tap.ok(status == 2 and "--checkpoint-every needs --file-rate" in err, "and they need a rate of files", err)
    status, out, err = ranvier.run(["sweep", *ask[:-4], "--file-rate", "1GB/s"])
    tap.ok(status == 2 and "--file-rate needs --checkpoint-every" in err, "a sweep's rate of files needs checkpoints", err)


def operations(path):
    with open(path) as file:
        events = json.load(file)
    events = events["traceEvents"] if isinstance(events, dict) else events
    return [(e["args"]["kind"], e["pid"], e["args"]["batch"], e["ts"], e["ts"] + e["dur"], e["args"]["bytes"])
            for e in events if e.get("ph") == "X" and "batch" in e.get("args", {})]


def check_trace(tap, what, path, batches):
    """Behind everything else of its batch comes the snapshot, then the write, beside the next batch if there is one."""
    found = operations(path)
    good = bool(found)
    for rank in (0, 1):
        for batch in batches:
            mine = [op for op in found if op[1] == rank and op[2] == batch]
            snapshot = [op for op in mine if op[0] == "snapshot"]
            write = [op for op in mine if op[0] == "write"]
            good = good and len(snapshot) == len(write) == 1 and snapshot[0][5] == write[0][5] > 0 and write[0][3] >= snapshot[0][4] - 1
            good = good and all(op[4] <= snapshot[0][3] + 1 for op in mine if op[0] not in ("snapshot", "write"))
    count = sum(op[0] == "snapshot" for op in found)
    tap.ok(good and count == 2 * len(batches), f"{what}: snapshots and writes are in the trace, behind all else of their batch",
           [op for op in found if op[0] in ("snapshot", "write")])


def check_traces(tap, folder):
    path = lambda name: os.path.join(folder, name)
    status, _, err = ranvier.run(["calibrate", "--model", "tiny", "--micro-batch-size", 2, "--ranks", 2, "--quick", "--seconds", 1, "--out", path("p.json")])
    tap.ok(status == 0, "calibrate measures what a checkpoint takes", err)
    with open(path("p.json")) as file:
        lines = [line for load in json.load(file)["loads"] for line in load["lines"]]
    tap.ok(all(lines.count(line) == 1 for line in ("snapshot", "file", "file_work")), "in one load", lines)
    tap.ok(not [name for name in os.listdir(folder) if "written" in name], "what it wrote is gone")
    status, _, err = simulate(*TINY, "--gpus", 2, "--profile", path("p.json"), "--platform", "local", "--batches", 2, "--checkpoint-every", 2,
                              "--trace", path("simulated.json"))
    tap.ok(status == 0, "simulated by that", err)
    check_trace(tap, "simulated", path("simulated.json"), [1])
    with open(path("text.txt"), "w") as file:
        file.write("".join(f"{i * i} is the square of {i}. " for i in range(2000)))
    train = ["train", *TINY, "--data", path("text.txt"), "--steps", 6, "--checkpoint", path("kept"), "--checkpoint-every", 1, "--trace", path("real.json")]
    status, _, err = ranvier.run(train, ranks=2)
    tap.ok(status == 0, "trained", err)
    check_trace(tap, "real", path("real.json"), sorted({op[2] for op in operations(path("real.json")) if op[0] == "forward"}))
    status, out, err = simulate(*TINY, "--gpus", 2, "--replay", path("real.json"))
    tap.ok(status == 0 and "identical" in out, "a batch with a checkpoint is replayed, without that", err)
    status, _, err = simulate(*TINY, "--gpus", 2, "--replay", path("real.json"), "--checkpoint-every", 2)
    tap.ok(status == 2 and "--checkpoint-every has no use with it" in err, "which has its own durations", err)


def main():
    tap = ranvier.Tap()
    check_costs(tap)
    check_words(tap)
    check_searches(tap)
    with tempfile.TemporaryDirectory() as folder:
        check_traces(tap, folder)
    tap.end()


if __name__ == "__main__":
    main()
