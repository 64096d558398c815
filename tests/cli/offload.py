#!/usr/bin/python3
"""Mixed precision, offloading, recomputation and memory limits in real training.

What only moves data or computes it again must not change a bit of any loss; what changes rounding must stay within
what fp16 explains; memory is what the allocator counted."""
import csv
import json
import os
import re
import struct
import sys
import tempfile

sys.path.insert(0, os.path.dirname(__file__))
import ranvier
import text

GRIDS = [(1, 1), (2, 1), (1, 2), (2, 2)]
STEPS, MICRO_BATCHES = 20, 12
WARM_UP = 2  # first steps, which are not in the report's times
MIXED = ["--precision", "mixed"]
OFFLOAD = MIXED + ["--offload"]
SMALL = OFFLOAD + ["--bucket-params", 5000]  # tens of updates, several all-reduces
BF16 = ["--precision", "bf16"]
BF16_SMALL = BF16 + ["--offload", "--bucket-params", 5000]


class Run:
    """One training: its losses, which steps were skipped, its report; or why it failed."""

    def __init__(self, folder, grid, *more, model="tiny", steps=STEPS, batch=MICRO_BATCHES, micro=1, lr=3e-3):
        log, self.report_path = (os.path.join(folder, name) for name in ("log.csv", "report.json"))
        self.checkpoint = os.path.join(folder, "model.safetensors")
        for path in (log, self.report_path, self.checkpoint):
            if os.path.exists(path):
                os.remove(path)
        pp, dp = grid
        self.status, self.out, self.err = ranvier.run(
            ["train", model, "--data", os.path.join(folder, "text.txt"), "--pp", pp, "--dp", dp, "--micro-batch-size",
             micro, "--batch-size", batch, "--steps", steps, "--lr", lr, "--validation-fraction", 0, "--log", log,
             "--report", self.report_path, *more], pp * dp)
        self.losses, self.skipped, self.scales, self.report = [], [], [], None
        if self.status:
            return
        with open(log) as file:
            rows = list(csv.DictReader(file))
        self.losses = [row["train_loss"] for row in rows]  # as written: 9 digits tell any two floats apart
        self.skipped = [int(row["step"]) for row in rows if row.get("skipped") == "1"]
        self.scales = [float(row["loss_scale"]) for row in rows if row.get("loss_scale")]
        with open(self.report_path) as file:
            self.report = json.load(file)

    def numbers(self):
        return [float(loss) for loss in self.losses]

    def detail(self):
        return self.err or f"{self.losses} skipped {self.skipped}"


def name_of(grid, flags=()):
    return f"{grid[0]} x {grid[1]}" + "".join(f" {flag}" for flag in flags)


# ---- the same bits ----

def check_variants(tap, folder):
    """Returns the plain mixed runs by grid."""
    plain = {}
    for nth, grid in enumerate(GRIDS):
        plain[grid] = reference = Run(folder, grid, *MIXED)
        unclipped = Run(folder, grid, *MIXED, "--clip", 0)
        unfused = Run(folder, grid, *MIXED, "--fusion", "off")
        variants = [(reference, SMALL), (unclipped, SMALL + ["--clip", 0]),
                    (reference, OFFLOAD + ["--recompute", "full"])]
        for expected, flags in ((unfused, ["--schedule", "gpipe", "--recompute", "selective", "--fusion", "off"]),
                                (reference, ["--pipeline-limit", 6]),
                                (reference, ["--pipeline-limit", 6, "--recompute", "layer"])):
            variants.append((expected, SMALL + ["--offload-activations", *flags]))
        for expected, flags in variants[nth % 3::3] if ranvier.SANITIZED else variants:
            run = Run(folder, grid, *flags)
            same = run.status == 0 and len(run.losses) == STEPS and run.losses == expected.losses
            tap.ok(same, f"{name_of(grid, flags)}: {STEPS} losses are those of plain mixed precision, bit for bit",
                   f"{run.detail()}\n{expected.detail()}")
            # axonn's last stage goes on from forward to backward, so it has nothing to offload
            if "--offload-activations" in flags and same and (grid[0] > 1 or "gpipe" in flags):
                stored = [rank["host_bytes"]["activations"] for rank in run.report["ranks"]]
                tap.ok(max(stored) > 0, f"{name_of(grid, flags)}: activations were offloaded", stored)
    return plain


def comparable(run, other):
    """How many losses two layouts' runs share: to the first step that one of them skips alone, its own loss too. What
    is near the limit of overflow may be on either side of it when sums are rounded in another order."""
    return min(set(run.skipped) ^ set(other.skipped), default=STEPS)


def close(run, other, rounding=2.0**-11):
    """The largest difference of losses, and the largest that 16 bits explain.

    A gradient is summed over micro-batches and replicas in fp16, in another order on another layout: each sum
    rounds by 2^-11 of itself (bf16: 2^-8), so a gradient is known within 12 x 2^-11. Were all of that an error of the step along
    the gradient, the loss would be off by that share of how far it has fallen."""
    if run.status or other.status:
        return 1, 0
    ours, theirs = run.numbers(), other.numbers()
    worst = max(abs(a - b) for a, b in list(zip(ours, theirs))[:comparable(run, other)])
    return worst, MICRO_BATCHES * rounding * (theirs[0] - theirs[-1])


def check_layouts(tap, plain):
    first = plain[(1, 1)]
    for grid in GRIDS[1:]:
        run = plain[grid]
        worst, bound = close(run, first)
        ours = run.numbers() or [0]
        print(f"# {name_of(grid)}: largest difference of a loss from 1 x 1: {worst:.2g}, of {bound:.2g} that fp16 "
              "explains", flush=True)
        tap.ok(worst <= bound and ours[-1] < 0.8 * ours[0],
               f"{name_of(grid)}: mixed losses are those of 1 x 1 within what fp16 sums explain", run.detail())


def check_against_fp32(tap, folder):
    """The learning rate is the default: at three times that, fp32 itself differs by 2 % when its warm-up is a step
    longer, as it is after a skipped one."""
    settings = dict(steps=200, batch=8, micro=4, lr=1e-3)
    full, mixed = Run(folder, (1, 1), **settings), Run(folder, (1, 1), *OFFLOAD, **settings)
    if full.status or mixed.status:
        return tap.ok(False, "200 steps of fp32 and mixed", full.err + mixed.err)
    differences = [abs(a / b - 1) for a, b in zip(mixed.numbers(), full.numbers())]
    worst = max(differences)
    print(f"# mixed against fp32, {len(differences)} steps, loss {full.losses[0]} to {full.losses[-1]}: the worst step "
          f"is {differences.index(worst) + 1}, {100 * worst:.2f} %; the last, {100 * differences[-1]:.2f} %; skipped: "
          f"{mixed.skipped}", flush=True)
    return tap.ok(len(differences) == 200 and worst < 0.01 and mixed.losses != full.losses,
                  "the mixed loss stays within 1 % of fp32 in every one of 200 steps", mixed.detail())


def check_bf16(tap, folder):
    """bf16 needs no loss scale: it is 1, and nothing overflows. What only moves data changes no bit here either."""
    first = None
    for grid in ((1, 1), (2, 2)):
        for fused in ([], ["--fusion", "off"]):
            plain = Run(folder, grid, *BF16, *fused)
            first = first or plain
            worst, bound = close(plain, first, 2.0**-8)
            print(f"# {name_of(grid, BF16 + fused)}: largest difference of a loss from 1 x 1: {worst:.2g}, of {bound:.2g} "
                  "that bf16 explains", flush=True)
            ours = plain.numbers() or [0]
            tap.ok(worst <= bound and ours[-1] < 0.8 * ours[0] and plain.scales == [1] * STEPS and not plain.skipped,
                   f"{name_of(grid, BF16 + fused)}: losses are those of 1 x 1 within what bf16 sums explain; the loss scale "
                   "stays 1, no step is skipped", plain.detail())
            flags = BF16_SMALL + ["--recompute", "full", *fused]
            run = Run(folder, grid, *flags)
            tap.ok(run.status == 0 and len(run.losses) == STEPS and run.losses == plain.losses,
                   f"{name_of(grid, flags)}: and offloaded they are the same, bit for bit",
                   f"{run.detail()}\n{plain.detail()}")
    run = Run(folder, (2, 2), *BF16_SMALL, "--inject-overflow", "4:3")
    tap.ok(run.skipped == [4] and run.scales == [1] * STEPS and run.report["training"]["loss_scale"] == 1
           and run.report["plan"]["precision"] == "bf16" and f"1 of {STEPS} steps were skipped" in run.out,
           "a gradient of bf16 that is infinite on one rank skips that step on all, and the scale stays 1", run.detail())


# ---- memory ----

STATE = ("weights", "gradients", "master", "optimizer", "buckets")


def check_allocator(tap, folder):
    """A model of 10 M parameters, a hundred buckets; one step, of a few tokens."""
    layers, width, vocabulary, positions, bucket = 4, 440, 2048, 8, 100000
    model = os.path.join(folder, "large.json")
    with open(model, "w") as file:
        json.dump({"n_layer": layers, "n_embd": width, "n_head": 8, "vocab_size": vocabulary,
                   "n_positions": positions}, file)
    parameters = (layers * (12 * width * width + 13 * width) + (vocabulary + positions) * width + 2 * width)
    used = []
    for flags in (MIXED, OFFLOAD + ["--bucket-params", bucket]):
        run = Run(folder, (1, 1), *flags, model=model, steps=1, batch=1)
        if run.status:
            return tap.ok(False, f"{name_of((1, 1), flags)} trains {parameters} parameters", run.err)
        rank = run.report["ranks"][0]
        used.append(sum(rank["bytes"][category] for category in STATE))
        host = sum(rank["host_bytes"][category] for category in STATE)
        print(f"# {parameters:,} parameters, {' '.join(map(str, flags))}: {used[-1]:,} bytes on the device for "
              f"{', '.join(STATE)} ({used[-1] / parameters:.2f} a parameter), {host:,} on the host", flush=True)
    slack = 64 * 16  # every allocation is rounded up
    tap.ok(20 * parameters <= used[0] <= 20 * parameters + slack, "mixed: 20 bytes a parameter", used[0])
    # A bucket is worked through in thirds, rounded up.
    expected = 4 * parameters + 16 * bucket
    tap.ok(expected <= used[1] <= expected + 16 * 3 + slack,
           "offloaded: 4 bytes a parameter and 16 of a bucket", used[1])
    return tap.ok(used[0] >= 4.0 * used[1], f"that is {used[0] / used[1]:.2f} times less, 4.0 at least", used)


def check_limit(tap, folder):
    """A limit between what the plan needs and what it needs offloaded."""
    settings = dict(batch=8, micro=2, steps=3)
    separate = ["--fusion", "off"]  # stores more activations, of which several changes would each save enough
    plan, offloaded = MIXED + ["--bucket-params", 5000] + separate, SMALL + separate
    plain, small = Run(folder, (1, 1), *plan, **settings), Run(folder, (1, 1), *offloaded, **settings)
    if plain.status or small.status:
        return tap.ok(False, "the plans train without a limit", plain.err + small.err)
    needs, less = (run.report["memory"]["device_peak_bytes"] for run in (plain, small))
    limit = ["--device-memory", (needs + less) // 2]
    refused = Run(folder, (1, 1), *plan, *limit, **settings)
    tap.ok(refused.status == 2, "a plan that needs more than --device-memory is refused with status 2",
           f"{refused.status}\n{refused.err}")
    shown = refused.err.split("\n---")[0]  # mpirun adds its own
    for line in shown.strip().splitlines():
        print("# | " + line, flush=True)
    last = [line for line in refused.err.splitlines() if line.startswith("ranvier train:")]
    sentence = last[-1] if last else ""
    tap.ok("rank 0" in sentence and f"{needs / 2**20:.2f} MiB" in sentence, "the refusal names rank and need", sentence)
    tap.ok(all(category in shown for category in ("weights", "master", "optimizer", "activations")),
           "and shows its bytes by category", shown)
    changes = [re.split(r"\s{2,}", match)[0] for match in re.findall(r"^\s+(--\w.*)$", shown, re.M)]
    tap.ok(len(changes) == 3, "and three changes that would fit", changes)
    for change in changes:
        flags = change.split()
        given = dict(zip(flags, flags[1:] + [""]))
        grid = (int(given.get("--pp", 1)), int(given.get("--dp", 1)))
        run = Run(folder, grid, *plan, *limit, *flags, **settings)
        peak = run.report["memory"]["device_peak_bytes"] if run.report else 0
        tap.ok(run.status == 0 and 0 < peak <= limit[1], f"'{change}' really trains under that limit", run.err)
    run = Run(folder, (1, 1), *offloaded, *limit, **settings)
    tap.ok(run.status == 0 and run.losses == plain.losses, "--offload trains under it, with the same losses", run.err)
    host = Run(folder, (1, 1), *offloaded, "--host-memory", 1000000 // 8, **settings)
    master = small.report["ranks"][0]["host_bytes"]
    needed = f"{sum(master.values()) / 2**10:.2f} KiB of host memory"
    last = [line for line in host.err.splitlines() if line.startswith("ranvier train:")]
    return tap.ok(host.status == 2 and len(last) == 1 and f" needs {needed} and has " in last[0],
                  f"too little --host-memory is refused too: {needed} are needed", host.err)


# ---- overflow ----

def parameters_of(run):
    with open(run.checkpoint, "rb") as file:
        header, = struct.unpack("<Q", file.read(8))
        file.seek(8 + header)
        return file.read()


def check_overflow(tap, folder):
    grid, step = (2, 2), 4
    keep = ["--checkpoint", os.path.join(folder, "model.safetensors"), "--warmup", 0, "--min-lr", 3e-3]
    before = Run(folder, grid, *SMALL, *keep, steps=step - 1)
    weights = parameters_of(before) if before.status == 0 else b""
    for rank in (0, 3):
        flags = [*SMALL, *keep, "--inject-overflow", f"{step}:{rank}"]
        run = Run(folder, grid, *flags, steps=step)
        tap.ok(run.status == 0 and step in run.skipped and len(weights) > 0 and parameters_of(run) == weights,
               f"an overflow on rank {rank} of 2 x 2 in step {step} leaves the parameters as they were", run.detail())
    # Was it skipped on all ranks? The next losses come from all of them.
    undisturbed, whole = Run(folder, (1, 1), *SMALL), Run(folder, (1, 1), *SMALL, "--inject-overflow", step)
    # Until then the two are the same run; in the step after, only an infinity that stayed could overflow anew.
    until, after = [[s for s in run.skipped if s <= step + 1] for run in (undisturbed, whole)]
    tap.ok(whole.status == 0 and set(after) - {step} <= set(until) and set(until) - {step + 1} <= set(after)
           and step in after, "an injected overflow skips that step and no other",
           f"{undisturbed.detail()}\n{whole.detail()}")
    for rank in range(4):
        run = Run(folder, grid, *SMALL, "--inject-overflow", f"{step}:{rank}")
        worst, bound = close(run, whole)
        tap.ok(step in run.skipped and worst <= bound,
               f"after an overflow on rank {rank}, 2 x 2 goes on as 1 x 1 does that skips the same step", run.detail())
        halved = len(run.scales) == STEPS and run.scales[step] == run.scales[step - 1] / 2
        tap.ok(halved and run.report["training"]["skipped_steps"] == len(run.skipped)
               and run.report["training"]["loss_scale"] == run.scales[-1],
               f"and the loss scale halves, once; the report counts {len(run.skipped)} skipped", run.scales)
        measured = [s for s in range(WARM_UP + 1, STEPS + 1) if s not in run.skipped]
        tap.ok(run.status == 0 and run.report["batch_seconds"]["batches"] == len(measured) < STEPS - WARM_UP
               and f"{len(run.skipped)} of {STEPS} steps were skipped and are not in the times" in run.out,
               "times are those of the steps that were not skipped, and the table says so", run.out)
    tap.ok("overflow: step skipped, loss scale 2^" in run.err, "progress says so", run.err)


def check_lost_loss(tap, folder):
    """Weights so large that activations overflow, and with them the loss: the steps are skipped, and the run goes on."""
    run = Run(folder, (1, 1), *MIXED, "--warmup", 0, "--min-lr", 10, "--weight-decay", 1, steps=12, batch=4, micro=4,
              lr=10)
    lost = [step for step, loss in enumerate(run.losses, 1) if loss == ""]
    tap.ok(run.status == 0 and len(run.losses) == 12 and 0 < len(lost) < 12 and set(lost) <= set(run.skipped),
           "a loss that is not a number does not end the run if its step was skipped", run.detail())
    told = run.report["loss"] if run.report else []
    tap.ok(len(told) == 12 and [step for step, loss in enumerate(told, 1) if loss is None] == lost,
           "and is null in the report and empty in the log", told)


def main():
    tap = ranvier.Tap()
    with tempfile.TemporaryDirectory() as folder:
        text.write(os.path.join(folder, "text.txt"))
        check_layouts(tap, check_variants(tap, folder))
        check_bf16(tap, folder)
        check_overflow(tap, folder)
        check_lost_loss(tap, folder)
        check_limit(tap, folder)
        if not ranvier.SANITIZED:  # half a minute, of numbers
            check_against_fp32(tap, folder)
            check_allocator(tap, folder)
    tap.end()


if __name__ == "__main__":
    main()
