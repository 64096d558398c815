#!/usr/bin/python3
"""The same seed and batch give the same losses on every grid and with every schedule (fp32, 20 steps, 1e-5)."""
import csv
import functools
import json
import os
import sys
import tempfile

sys.path.insert(0, os.path.dirname(__file__))
import ranvier
import text

GRIDS = [(1, 1), (2, 1), (1, 2), (2, 2), (4, 1), (3, 2), (1, 4), (2, 3)]
STEPS = 10
TOLERANCE = 1e-5  # relative
BUCKETS = ("--bucket-params", 9000, "--allreduce-buckets", 2)
OFF = ("--fusion", "off")
STAGED = [((3, 1), ()), ((2, 2), BUCKETS), ((1, 2), (*BUCKETS, "--clip", 0)),
          ((3, 2), (*BUCKETS, "--precision", "mixed", "--offload", "--offload-activations"))]


CHUNKS = [(2, 1, 2), (2, 2, 2), (2, 1, 3), (2, 2, 3), (4, 1, 3), (3, 2, 2), (2, 1, 5)]  # pp, dp, chunks a rank


@functools.lru_cache(None)
def train(folder, pp, dp, schedule, *more, model="tiny"):
    log = os.path.join(folder, "log.csv")
    status, out, err = ranvier.run(
        ["train", model, "--data", os.path.join(folder, "text.txt"), "--pp", pp, "--dp", dp, "--schedule", schedule,
         "--seq-len", 16, "--micro-batch-size", 1, "--batch-size", 12, "--steps", STEPS, "--lr", 3e-3, "--log", log, *more], pp * dp)
    return ranvier.losses(log) if status == 0 else err


def check_chunks(tap, folder):
    """Interleaved: a rank works on several chunks of the model."""
    deep = ranvier.deep(folder)
    reference = train(folder, 1, 1, "axonn", model=deep)
    for pp, dp, chunks in CHUNKS:
        plan = ("interleaved", "--virtual-stages", chunks)
        losses = train(folder, pp, dp, *plan, model=deep)
        worst = max(abs(a - b) / b for a, b in zip(losses, reference)) if isinstance(losses, list) else None
        tap.ok(worst is not None and len(losses) == STEPS and worst <= TOLERANCE,
               f"{pp} x {dp} with {chunks} chunks a rank gives the losses of 1 x 1 within {TOLERANCE:g}", losses)
        more = {(2, 2): ("--precision", "mixed", "--offload", *BUCKETS), (4, 1): ("--fusion", "off")}.get((pp, dp), ())
        if chunks == 3:
            more += ("--p2p", "blocking")
        plain = train(folder, pp, dp, *plan, *more, model=deep) if more else losses
        other = train(folder, pp, dp, *plan, *more, "--recompute", "full", "--offload-activations", "--messages", "staged",
                      "--allreduce", "staged", model=deep)
        tap.ok(isinstance(other, list) and other == plain,
               f"{pp} x {dp} with {chunks} chunks {' '.join(map(str, more))}, recomputed, offloaded and staged gives the "
               "same losses bit for bit", f"{other}\n{plain}")


def check_vocabulary(tap, folder):
    """A vocabulary so large that the fused loss is made in several chunks of rows: of fp32 logits 128 MiB are 167 rows; a
    micro-batch has 183, in chunks of 96 and 87."""
    model, log = os.path.join(folder, "wide.json"), os.path.join(folder, "log.csv")
    with open(model, "w") as file:
        json.dump({"n_layer": 4, "n_embd": 16, "n_head": 2, "vocab_size": 200000, "n_positions": 64}, file)

    def losses(ranks, *more):
        status, _, err = ranvier.run(
            ["train", model, "--data", os.path.join(folder, "text.txt"), "--seq-len", 61, "--micro-batch-size", 3, "--batch-size", 6,
             "--steps", 3, "--lr", 0.1, "--validation-batches", 1, "--log", log, *more], ranks)
        if status:
            return err
        with open(log) as file:
            return [float(row[name]) for row in csv.DictReader(file) for name in ("train_loss", "val_loss") if row[name]]

    plain = losses(1, "--fusion", "off")
    for ranks, more in ((1, ""), (2, "--pp 2 --schedule zero-bubble"), (2, "--pp 2 --schedule interleaved --virtual-stages 2"),
                        (2, "--dp 2 --overlap-allreduce")):
        chunked = losses(ranks, "--fusion", "on", *more.split())
        worst = max(abs(a - b) / b for a, b in zip(chunked, plain)) if isinstance(chunked, list) else None
        print(f"# {chunked}: largest relative difference {worst}", flush=True)
        tap.ok(worst is not None and len(chunked) == len(plain) > 3 and worst <= TOLERANCE,
               f"a loss in chunks of rows, {more or 'on one rank'}, is that of all rows at once", chunked)


def main():
    tap = ranvier.Tap()
    with tempfile.TemporaryDirectory() as folder:
        text.write(os.path.join(folder, "text.txt"))
        reference = train(folder, 1, 1, "axonn")
        learned = isinstance(reference, list) and len(reference) == STEPS and reference[-1] < 0.9 * reference[0]
        tap.ok(learned, f"the reference, 1 x 1, learns in {STEPS} steps", reference)
        if not learned:
            tap.end()
        variants = [(grid, schedule, ()) for grid in GRIDS for schedule in ("axonn", "gpipe", "1f1b")]
        variants += [((3, 1), "axonn", ("--pipeline-limit", "6")),
                     ((2, 2), "axonn", ("--bucket-params", "5000", "--allreduce-buckets", "2")),
                     ((1, 1), "axonn", ("--fusion", "off")), ((2, 2), "1f1b", ("--fusion", "off")),
                     ((3, 1), "axonn", ("--fusion", "off", "--recompute", "full"))]
        variants += [(grid, schedule, ("--p2p", "blocking"))
                     for grid, schedule in (((4, 1), "1f1b"), ((2, 2), "1f1b"), ((3, 1), "gpipe"))]
        variants += [(grid, "zero-bubble", more) for grid, more in (
            ((1, 1), ()), ((2, 1), ()), ((4, 1), ()), ((2, 2), ()), ((3, 1), ("--fusion", "off")),
            ((3, 1), ("--recompute", "full")), ((2, 2), ("--recompute", "layer", "--fusion", "off")),
            ((3, 1), ("--recompute", "selective", "--fusion", "off")), ((4, 1), ("--p2p", "blocking", "--messages", "staged")))]
        variants += [((3, 1), "zero-bubble-h2", ()), ((2, 2), "zero-bubble-h2", ("--p2p", "blocking", "--recompute", "full"))]
        variants += [((1, 1), "reverse-first-k", ("--deferred-layers", 2)), ((3, 1), "reverse-first-k", ()),
                     ((2, 2), "reverse-first-k", ("--deferred-layers", 1, "--recompute", "layer", "--overlap-allreduce", *BUCKETS)),
                     ((2, 1), "fast-forward", ("--deferred-layers", 1, "--fusion", "off")), ((3, 2), "fast-forward", ("--zero", 1)),
                     ((4, 1), "fast-forward", ("--p2p", "blocking", "--messages", "staged"))]
        variants += [((2, 1), "axonn", ("--split", 3)), ((3, 1), "1f1b", ("--split", 0)), ((2, 2), "1f1b", ("--split", 1)),
                     ((2, 2), "axonn", ("--split", 0, "--overlap-allreduce")), ((3, 1), "gpipe", ("--split", "balanced")),
                     ((3, 2), "zero-bubble", ("--split", 1, "--zero", 1)), ((2, 2), "axonn", ("--split", 1, "--overlap-allreduce"))]
        variants += [((3, 2), "1f1b", ("--p2p", "blocking", "--messages", "staged", "--recompute", "full"))]
        for (pp, dp), schedule, more in ranvier.some(variants):
            losses = train(folder, pp, dp, schedule, *more)
            worst = max(abs(a - b) / b for a, b in zip(losses, reference)) if isinstance(losses, list) else None
            print(f"# {pp} x {dp} {schedule}: largest relative difference {worst}", flush=True)
            name = f"{pp} x {dp} with {schedule} {' '.join(map(str, more))}".strip()
            tap.ok(worst is not None and len(losses) == STEPS and worst <= TOLERANCE,
                   f"{name} gives the losses of 1 x 1 within {TOLERANCE:g}", losses)
        check_chunks(tap, folder)
        check_vocabulary(tap, folder)
        # Copies change no bit: equal to the same grid without them, in every format.
        for (pp, dp), more in ranvier.some(STAGED):
            losses = train(folder, pp, dp, "axonn", *more, "--messages", "staged", "--allreduce", "staged")
            direct = train(folder, pp, dp, "axonn", *more)
            tap.ok(isinstance(losses, list) and losses == direct,
                   f"{pp} x {dp} {' '.join(map(str, more))} staged gives the same losses bit for bit".replace("  ", " "),
                   f"{losses}\n{direct}")
        # What is computed again is computed alike.
        for (pp, dp), recompute, more in (((1, 1), "selective", OFF), ((3, 1), "selective", OFF), ((2, 2), "layer", OFF),
                                          ((2, 2), "layer", ())):
            losses = train(folder, pp, dp, "axonn", "--recompute", recompute, *more)
            stored = train(folder, pp, dp, "axonn", *more)
            tap.ok(isinstance(losses, list) and losses == stored,
                   f"{pp} x {dp} --recompute {' '.join((recompute, *more))} gives the same losses bit for bit", f"{losses}\n{stored}")
        # Replicas that share the optimizer.
        shared = [(grid, more) for grid in ((1, 2), (2, 2), (1, 3), (1, 4), (3, 2)) for more in ((), BUCKETS)]
        shared += [((2, 2), (*BUCKETS, "--schedule", "1f1b", "--recompute", "selective", *OFF))]
        for (pp, dp), more in ranvier.some(shared):
            losses = train(folder, pp, dp, "axonn", "--zero", 1, *more)
            worst = max(abs(a - b) / b for a, b in zip(losses, reference)) if isinstance(losses, list) else None
            tap.ok(worst is not None and len(losses) == STEPS and worst <= TOLERANCE,
                   f"{pp} x {dp} --zero 1 {' '.join(map(str, more))} gives the losses of 1 x 1".replace("  ", " "), losses)
            staged = train(folder, pp, dp, "axonn", "--zero", 1, *more, "--allreduce", "staged")
            tap.ok(isinstance(losses, list) and staged == losses, "and staged the same, bit for bit", staged)
        for precision, pp, dp in ranvier.some([(precision, *grid) for precision in ("mixed", "bf16") for grid in ((1, 2), (2, 2), (1, 3))]):
            flags = (*BUCKETS, "--precision", precision, "--zero", 1)
            losses = train(folder, pp, dp, "axonn", *flags)
            whole = train(folder, pp, dp, "axonn", *flags[:-2])
            near = isinstance(losses, list) and max(abs(a - b) / b for a, b in zip(losses, whole)) < 1e-3
            tap.ok(near, f"{pp} x {dp} --zero 1 in {precision} gives the losses of --zero 0", f"{losses}\n{whole}")
            offloaded = train(folder, pp, dp, "axonn", *flags, "--offload")
            tap.ok(isinstance(losses, list) and offloaded == losses, "and offloaded the same, bit for bit", offloaded)
        unclipped = train(folder, 1, 1, "axonn", "--clip", "0", "--bucket-params", "7000")
        other = train(folder, 2, 2, "axonn", "--clip", "0", "--bucket-params", "7000", "--allreduce-buckets", "1")
        same = isinstance(unclipped, list) and isinstance(other, list) and max(
            abs(a - b) / b for a, b in zip(unclipped, other)) <= TOLERANCE
        tap.ok(same and unclipped != reference, "without clipping, 2 x 2 in small buckets equals 1 x 1 too", other)
    tap.end()


if __name__ == "__main__":
    main()
