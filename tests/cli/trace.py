#!/usr/bin/python3
"""A profile from PyTorch's own traces: what is mapped in the two small ones that are kept (tests/fixtures, of a GPT-2 and a
Llama by PyTorch 2.6 on a CPU; tests/bench/trace.py has the models; and of both as transformers has them, a step in bf16 on an H200) is what the model's shapes say, counted here again; a prediction of
the traced steps takes as long as these took; the same steps as a GPU would have run them are the GPU's time, and the launches'.
Where this Python has a PyTorch whose profiler is Kineto, the models are traced anew too.

Nothing here is timed: what was measured are the traces' numbers."""
import gzip
import importlib.util
import json
import math
import os
import sys
import tempfile

FOLDER = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, FOLDER)
import ranvier

TESTS = os.path.dirname(FOLDER)
SIZE, LENGTH, STEPS = 2, 48, 3
N = SIZE * LENGTH
US = 1e-6


def fixture(name):
    return os.path.join(TESTS, "fixtures", name)


def config(family):
    with open(fixture(f"trace_{family}_model.json")) as file:
        return json.load(file)


def read_trace(path):
    with gzip.open(path) as file:
        return json.load(file)


def linear_layers(family, c):
    """(inner, outer) of the products of a block as PyTorch's modules have them, and of the head."""
    if family == "gpt2":
        C = c["n_embd"]
        return c["n_layer"], [(C, 3 * C), (C, C), (C, 4 * C), (4 * C, C)], (C, c["vocab_size"])
    C, F, few = c["hidden_size"], c["intermediate_size"], c["hidden_size"] // c["num_attention_heads"] * c["num_key_value_heads"]
    return c["num_hidden_layers"], [(C, C), (C, few), (C, few), (C, C), (C, F), (C, F), (F, C)], (C, c["vocab_size"])


def expected_products(family, steps):
    """{(batch, m, n, k): how often}: each product of the forward is two in the backward."""
    c, found = config(family), {}
    layers, block, head = linear_layers(family, c)

    def add(batch, m, n, k, times):
        found[batch, m, n, k] = found.get((batch, m, n, k), 0) + times * steps
    for inner, outer, times in [(*one, layers) for one in block] + [(*head, 1)]:
        add(1, N, outer, inner, times)
        add(1, N, inner, outer, times)
        add(1, outer, inner, N, times)
    if family == "llama":  # scores are a matrix there; in the GPT-2 attention is one operator
        heads, size = c["num_attention_heads"], c["hidden_size"] // c["num_attention_heads"]
        B = SIZE * heads
        for m, n, k in ((LENGTH, LENGTH, size), (LENGTH, size, LENGTH)):
            add(B, m, n, k, layers)
        add(B, LENGTH, size, LENGTH, layers)  # dQ = dS K
        add(B, size, LENGTH, LENGTH, layers)  # dK' = Q' dS
        add(B, LENGTH, LENGTH, size, layers)  # dP = dO V'
        add(B, LENGTH, size, LENGTH, layers)  # dV = P' dO
    return found


def calibrate(traces, family, folder, *more, size=SIZE, length=LENGTH):
    out, found = os.path.join(folder, "profile.json"), os.path.join(folder, "found.json")
    arguments = [word for path in traces for word in ("--from-trace", path)]
    status, said, err = ranvier.run(["calibrate", *arguments, "--model", fixture(f"trace_{family}_model.json"),
                                     "--micro-batch-size", size, "--seq-len", length, "--out", out, "--found", found, *more])
    if status:
        raise SystemExit(f"calibrate: {err}")
    with open(out) as profile, open(found) as listed:
        return json.load(profile), json.load(listed), said, out


def simulate(family, profile, folder, size, length, *more):
    """Returns the seconds of a batch of one micro-batch."""
    report = os.path.join(folder, "report.json")
    status, _, err = ranvier.run(["simulate", fixture(f"trace_{family}_model.json"), "--profile", profile, "--platform", "generic",
                                  "--gpus", 1, "--micro-batch-size", size, "--batch-size", size, "--seq-len", length,
                                  "--report", report, *more])
    if status:
        raise SystemExit(f"simulate: {err}")
    with open(report) as file:
        return json.load(file)["batch_seconds"]["median"]


def points(profile, kind):
    return profile["loads"][0]["kernels"].get(kind, {}).get("points", [])


def check_products(tap, name, family, found, steps):
    products = {(p["batch"], p["m"], p["n"], p["k"]): p["count"] for p in found["products"]}
    expected = expected_products(family, steps)
    tap.ok(products == expected, f"{name}: {sum(expected.values())} products of {len(expected)} shapes are those of the model",
           f"{sorted(set(products.items()) ^ set(expected.items()))}")
    flops = sum(2 * b * m * n * k * count for (b, m, n, k), count in products.items() if b == 1)
    layers, block, head = linear_layers(family, config(family))
    closed = 6 * N * (layers * sum(i * o for i, o in block) + head[0] * head[1]) * steps
    tap.ok(flops == closed, f"{name}: their operations are 6 N a parameter of them", f"{flops}, {closed}")


def check_found(tap, name, found, said):
    shares = sum(one["seconds"] for one in found["classes"])
    tap.ok(math.isclose(shares, found["seconds"], rel_tol=1e-9) and found["mapped"] > 0.99,
           f"{name}: {100 * found['mapped']:.2f} % of the operators' time is mapped, and classes add up to all", found["classes"])
    tap.ok("a micro-batch and an update" in said and "not mapped" in said, f"{name}: the table says what was found", said)


def step_seconds(trace):
    return [event["dur"] * US for event in trace["traceEvents"] if event["name"].startswith("ProfilerStep#")]


def check_prediction(tap, name, family, trace, path, folder):
    """The means of points leave out tails: within those, the traced steps."""
    seconds = step_seconds(trace)
    predicted = simulate(family, path, folder, SIZE, LENGTH)
    tap.ok(min(seconds) <= predicted <= max(seconds), f"{name}: a predicted step takes as long as the traced ones",
           f"{predicted}, {sorted(seconds)}")
    longer = [simulate(family, path, folder, *shape) for shape in ((1, LENGTH), (SIZE, LENGTH), (2 * SIZE, LENGTH))]
    tap.ok(longer == sorted(longer) and longer[0] < longer[2], f"{name}: more sequences take longer", longer)
    quiet = simulate(family, path, folder, SIZE, LENGTH, "--clip", 0)
    tap.ok(quiet < predicted, f"{name}: the norm is a kernel that --clip 0 leaves out", (quiet, predicted))


def check_against(tap, family, path, profile, folder):
    """Held against its own profile a trace is what that says; and the parts of its kernels are all of each."""
    found = calibrate([path], family, folder, "--against", profile)[1]["kernels"]
    apart = [abs(kind["against"] / kind["seconds"] - 1) for kind in found if kind["seconds"] > US]
    parts = [abs(sum(kind[part] for part in ("flops", "pairs", "tokens", "nothing")) - kind["seconds"]) for kind in found]
    tap.ok(max(apart) < 0.1 and max(parts) < 1e-9, f"{family}: its kernels take what its own profile says, as means without tails", found)
    kinds = calibrate([typed(family, "c10::BFloat16", folder)], family, folder, "--against", "h100")[1]["kernels"]
    tap.ok(all(kind["against"] > 0 for kind in kinds), f"{family}: a trace in bf16 is held against an H100's profile", kinds)


def typed(family, dtype, folder):
    """The fixture, as if its tensors were of another type."""
    path = os.path.join(folder, "typed.json")
    with gzip.open(fixture(f"trace_{family}.json.gz"), "rt") as trace, open(path, "w") as file:
        file.write(trace.read().replace('"float"', f'"{dtype}"'))
    return path


def check_precisions(tap, family, folder):
    """The same trace, as if it were of 16 bits: the same time, whatever a plan in these does beside the update."""
    seconds = [simulate(family, calibrate([typed(family, dtype, folder)], family, folder)[3], folder, SIZE, LENGTH)
               for dtype in ("float", "c10::BFloat16", "c10::Half")]
    tap.ok(max(seconds) < 1.01 * min(seconds), f"{family}: steps in fp32, bf16 and fp16 that took equally long are predicted so", seconds)


def of_gpu(trace, part):
    """The same steps on a GPU: what every operator that is made of no other does is a kernel that takes a part of the host's
    time; one call launches it. Kernels follow each other as a stream's do."""
    host = [e for e in trace["traceEvents"] if e["cat"] == "cpu_op"]
    host.sort(key=lambda e: (e["ts"], -e["dur"]))
    inner = [one for one, following in zip(host, host[1:] + [None])
             if not following or following["ts"] >= one["ts"] + one["dur"]]
    added, free = [], 0
    for number, one in enumerate(inner):
        begin = max(free, one["ts"] + one["dur"])
        free = begin + part * one["dur"]
        added += [{"ph": "X", "cat": "cuda_runtime", "name": "cudaLaunchKernel", "pid": 1, "tid": one["tid"], "ts": one["ts"],
                   "dur": one["dur"] / 2, "args": {"correlation": number}},
                  {"ph": "X", "cat": "kernel", "name": f"kernel {number}", "pid": 0, "tid": 7, "ts": begin,
                   "dur": part * one["dur"], "args": {"correlation": number, "stream": 7}}]
    device = [{"id": 0, "name": "NVIDIA H100 80GB HBM3", "totalGlobalMem": 85 * 10**9, "numSms": 132}]
    return {**trace, "deviceProperties": device, "traceEvents": trace["traceEvents"] + added}, inner


def waiting(trace, wait):
    """The same steps, each with so many microseconds at its end in which the host waits for the GPU."""
    events = json.loads(json.dumps(trace["traceEvents"]))
    steps = sorted((e for e in events if e["name"].startswith("ProfilerStep#")), key=lambda e: e["ts"])
    ends = [e["ts"] + e["dur"] for e in steps]
    for event in events:
        event["ts"] += wait * sum(end <= event["ts"] for end in ends)
    for step in steps:
        events.append({"ph": "X", "cat": "cuda_runtime", "name": "cudaStreamSynchronize", "pid": 1, "tid": step["tid"],
                       "ts": step["ts"] + step["dur"], "dur": wait, "args": {}})
        step["dur"] += wait + 1
    return {**trace, "traceEvents": events}


def check_waits(tap, family, gpu, folder):
    """What the host waits for behind a step's work is no part of its launches."""
    path = os.path.join(folder, "waiting.json")
    hosts = []
    for trace in (gpu, waiting(gpu, 50000)):
        with open(path, "w") as file:
            json.dump(trace, file)
        hosts.append(calibrate([path], family, folder)[0]["loads"][0]["launch"]["host_seconds"])
    tap.ok(math.isclose(*hosts, rel_tol=1e-3), f"{family} on a GPU: waits at the end of steps leave the launches as they are {hosts}", hosts)


def check_gpu(tap, family, trace, folder):
    """A kernel a hundredth as long as its operator: then the host is what a step waits for."""
    path, part = os.path.join(folder, "gpu.json"), 0.01
    gpu, inner = of_gpu(trace, part)
    with open(path, "w") as file:
        json.dump(gpu, file)
    check_waits(tap, family, gpu, folder)
    profile, found, _, out = calibrate([path], family, folder)
    steps = [(e["ts"], e["ts"] + e["dur"]) for e in trace["traceEvents"] if e["name"].startswith("ProfilerStep#")]
    within = sum(part * e["dur"] * US for e in inner if any(a <= e["ts"] < b for a, b in steps))
    tap.ok(math.isclose(found["seconds"], within, rel_tol=1e-6) and profile["device"].startswith("NVIDIA H100"),
           f"{family} on a GPU: its kernels' time is what operators take", (found["seconds"], within, profile["device"]))
    linear = {(p["m"], p["n"], p["k"]): p for p in points(profile, "matmul_bias" if family == "gpt2" else "matmul")}
    c = config(family)
    width = c.get("n_embd") or c["hidden_size"]
    columns = 3 * width if family == "gpt2" else width * (c["num_attention_heads"] + 2 * c["num_key_value_heads"]) // c["num_attention_heads"]
    tap.ok((N, columns, width) in linear, f"{family} on a GPU: queries, keys and values are one kernel of ours", sorted(linear))
    many = simulate(family, out, folder, SIZE, LENGTH, "--platform", "dgx-h100", "--gpus", 512, "--dp", 512, "--batch-size", 512 * SIZE)
    tap.ok(many > 0, f"{family} on a GPU: a trace of one H100 predicts 512 of them")
    host = profile["loads"][0]["launch"]["host_seconds"]
    predicted = simulate(family, out, folder, SIZE, LENGTH)
    kernels = found["seconds"] / STEPS
    tap.ok(predicted > 5 * kernels and host > 0, f"{family} on a GPU: a step that takes longer to launch than to run takes that long",
           (predicted, kernels, host))


def check_files(tap, family, trace, folder):
    """Several traces, not compressed, with other words for the same."""
    plain = os.path.join(folder, "plain.json")
    old = json.loads(json.dumps(trace["traceEvents"]).replace('"cpu_op"', '"Operator"'))
    with open(plain, "w") as file:
        json.dump(old, file, indent=1)
    once = calibrate([plain], family, folder)
    twice = calibrate([plain, fixture(f"trace_{family}.json.gz")], family, folder)
    tap.ok(once[1]["steps"] == STEPS and twice[1]["steps"] == 2 * STEPS and
           math.isclose(2 * once[1]["seconds"], twice[1]["seconds"], rel_tol=1e-6),
           f"{family}: two traces, a list of events and compressed, are one of twice as many steps", (once[1], twice[1]))
    status, said, err = ranvier.run(["calibrate", "--from-trace", plain])
    tap.ok(status == 0 and "products" in said and "a micro-batch" not in said, f"{family}: without --out it says what was found", err)
    found = os.path.join(folder, "found.json")
    status, said, err = ranvier.run(["calibrate", "--from-trace", plain, "--found", found, "--json"])
    with open(found) as file:
        tap.ok(status == 0 and json.loads(said) == json.load(file), f"{family}: --json prints what --found writes, and nothing else", err)


def traced_anew(family, folder):
    """A trace by this Python's PyTorch; None, with the reason: it cannot."""
    if not importlib.util.find_spec("torch"):
        return None, "there is no PyTorch"
    import torch
    if not torch.profiler.kineto_available():
        return None, f"PyTorch {torch.__version__} is built without Kineto"
    specification = importlib.util.spec_from_file_location("models", os.path.join(TESTS, "bench", "trace.py"))
    models = importlib.util.module_from_spec(specification)
    specification.loader.exec_module(models)
    torch.set_num_threads(1)
    path = os.path.join(folder, "anew.json")
    training = models.Training(config(family), "", "cpu")
    training(SIZE, LENGTH)
    training.trace(SIZE, LENGTH, STEPS, path)
    return path, ""


# Milliseconds of a step without the profiler: the first quartile of twelve (docs/trace.md).
H200_STEPS = {"gpt2": 46.8, "llama": 61.9}


def check_h200(tap, family, folder):
    """A step as an H200 ran it: autocast, whose operators lie in themselves, and angles that are made in fp32."""
    path, shape = fixture(f"trace_h200_{family}.json.gz"), {"size": 8, "length": 1024}
    trace, model = read_trace(path), f"h200_{family}"
    worked = sum(e["dur"] for e in trace["traceEvents"] if e["cat"] in ("kernel", "gpu_memcpy", "gpu_memset")) * US
    profile, found, said, out = calibrate([path], model, folder, **shape)
    tap.ok(math.isclose(found["seconds"], worked, rel_tol=1e-6) and found["mapped"] > 0.999,
           f"{model}: what the GPU did is mapped, {1e3 * worked:.1f} ms", (found["seconds"], worked, found["mapped"]))
    kinds = sum(kind["seconds"] for kind in found["kernels"])
    tap.ok(abs(kinds / worked - 1) < 1e-3, f"{model}: kernels take what the GPU did", (kinds, worked))
    tap.ok(all(kind.endswith(("_bf16", "adamw", "squared_norm")) for kind in profile["loads"][0]["kernels"]),
           f"{model}: the profile is in bf16, as nearly all products are", sorted(profile["loads"][0]["kernels"]))
    tap.ok("the profiler makes that longer than it is; --step-time" in said, f"{model}: launches were the limit, and that is said", said)
    slow = simulate(model, out, folder, 8, 1024, "--precision", "bf16", "--ignore-memory")
    step = 1e-3 * H200_STEPS[family]
    _, _, said, out = calibrate([path], model, folder, "--step-time", f"{1e3 * step}ms", **shape)
    quick = simulate(model, out, folder, 8, 1024, "--precision", "bf16", "--ignore-memory")
    tap.ok(abs(quick / step - 1) < 0.01 < slow / step - 1 and "while the profiler ran" in said,
           f"{model}: with --step-time the traced step takes that, not as long as beside the profiler", (quick, step, slow, said))
    status, _, err = ranvier.run(["calibrate", "--from-trace", path, "--model", fixture(f"trace_{model}_model.json"), "--micro-batch-size", 8,
                                  "--seq-len", 1024, "--out", out, "--step-time", "20ms"])
    tap.ok(status and "--step-time: 20.000 ms is less than the" in err and "that the GPU works in a step" in err,
           f"{model}: a step that is quicker than its work is refused", err)


def main():
    tap = ranvier.Tap()
    for family in H200_STEPS:
        with tempfile.TemporaryDirectory() as folder:
            check_h200(tap, family, folder)
    for family in ("gpt2", "llama"):
        with tempfile.TemporaryDirectory() as folder:
            path = fixture(f"trace_{family}.json.gz")
            trace = read_trace(path)
            profile, found, said, out = calibrate([path], family, folder)
            check_products(tap, family, family, found, STEPS)
            check_found(tap, family, found, said)
            check_prediction(tap, family, family, trace, out, folder)
            tap.ok(len(points(profile, "adamw")) == 1 and profile["measured"] and "PyTorch" in profile["sources"]["trace"],
                   f"{family}: the profile says where it is from", profile["sources"])
            check_against(tap, family, path, out, folder)
            check_precisions(tap, family, folder)
            check_gpu(tap, family, trace, folder)
            check_files(tap, family, trace, folder)
            status, _, err = ranvier.run(["calibrate", "--from-trace", path, "--model", fixture(f"trace_{family}_model.json"), "--micro-batch-size",
                                          SIZE, "--seq-len", LENGTH, "--out", out, "--step-time", "1s"])
            without, _, missing = ranvier.run(["calibrate", "--from-trace", path, "--step-time", "1s"])
            tap.ok(without and "--step-time is for the profile that --out names" in missing, f"{family}: --step-time without a profile is refused", missing)
            tap.ok(status and "--step-time is for a GPU's trace" in err, f"{family}: --step-time is refused for a CPU's trace", err)
            anew, why = traced_anew(family, folder)
            if anew:
                _, found, said, _ = calibrate([anew], family, folder)
                check_products(tap, f"{family} traced anew", family, found, STEPS)
                check_found(tap, f"{family} traced anew", found, said)
            else:
                tap.ok(True, f"{family} traced anew # SKIP {why}")
    tap.end()


if __name__ == "__main__":
    main()
