#!/usr/bin/python3
"""A network that is paced (--net-link): nothing that crosses it ends before a link of that rate would have carried it, training is
the same bit for bit, and a prediction has the same link."""
import json
import os
import sys
import tempfile

sys.path.insert(0, os.path.dirname(__file__))
import ranvier
import text

RATE = 4e6
LINK = ["--net-link", "4MB/s"]
SHAPE = ["--micro-batch-size", 1, "--batch-size", 8, "--seq-len", 64]
# grid, options
PLANS = [((2, 1, 1), []), ((1, 2, 1), []), ((1, 3, 1), ["--zero", 1]), ((1, 1, 2), []), ((2, 1, 2), ["--sequence-parallel"]),
         ((3, 1, 1), ["--schedule", "1f1b"]), ((1, 2, 1), ["--zero", 1, "--precision", "mixed", "--bucket-params", 9000]),
         ((2, 2, 1), ["--schedule", "interleaved", "--virtual-stages", 2])]
# Of the bytes of a collective, how many cross a member's link.
SHARES = {"all-reduce": lambda p: 2 * (p - 1) / p, "reduce-scatter": lambda p: (p - 1) / p, "all-gather": lambda p: (p - 1) / p,
          "send activation": lambda p: 1, "send gradient": lambda p: 1}


def grid(sizes):
    return [part for name, size in zip(("--pp", "--dp", "--tp"), sizes) for part in (name, size)]


def train(folder, sizes, flags):
    log, trace = os.path.join(folder, "log.csv"), os.path.join(folder, "trace.json")
    ranks = sizes[0] * sizes[1] * sizes[2]
    batch = 9 if sizes[1] == 3 else 8
    status, _, err = ranvier.run(["train", "tiny", "--data", os.path.join(folder, "text.txt"), *grid(sizes), *SHAPE, "--batch-size", batch,
                                  "--steps", 4, "--lr", 3e-3, "--threads", 1, "--log", log, "--trace", trace, *flags], ranks)
    if status:
        return err, []
    return ranvier.losses(log), [e for e in json.load(open(trace))["traceEvents"] if e.get("ph") == "X"]


def seconds_on_link(event, dp):
    share = SHARES.get(event["args"]["kind"])
    embedding = event["args"]["kind"] == "all-reduce" and dp == 1  # of the two ends of a pipeline
    return event["args"]["bytes"] * share(2 if embedding else dp) / RATE if share else 0


def end(event):
    return 1e-6 * (event["ts"] + event["dur"])


def too_early(events, dp):
    """What ended sooner after its issue than a link takes. Messages may be on the way before their receive is issued; but of all
    receives the i-th to end does so no sooner than a link takes after the i-th send."""
    early = [e for e in events if end(e) - e["args"]["issued"] < seconds_on_link(e, dp) - 2e-6]
    for batch in {e["args"]["batch"] for e in events}:
        for what in ("activation", "gradient"):
            of = lambda kind: [e for e in events if e["args"]["kind"] == f"{kind} {what}" and e["args"]["batch"] == batch]
            sent = sorted(e["args"]["issued"] + seconds_on_link(e, dp) for e in of("send"))
            received = sorted(end(e) for e in of("receive"))
            early += [(batch, what, s, r) for s, r in zip(sent, received) if r < s - 2e-6]
    return early


def crowded(events, dp):
    """Ranks and batches that sent more in the time from the first issue to the last end than a link carries."""
    sent = {}
    for e in events:
        if e["args"]["kind"] in SHARES:
            sent.setdefault((e["pid"], e["args"]["batch"]), []).append(e)
    return [key for key, of in sent.items()
            if max(map(end, of)) - min(e["args"]["issued"] for e in of) < sum(seconds_on_link(e, dp) for e in of) - 2e-6]


def check_training(tap, folder):
    for sizes, flags in PLANS:
        name = " ".join(map(str, grid(sizes) + flags))
        plain, _ = train(folder, sizes, flags)
        losses, events = train(folder, sizes, flags + LINK)
        tap.ok(isinstance(losses, list) and losses == plain, f"{name}: the same losses bit for bit", f"{losses}\n{plain}")
        early = too_early(events, sizes[1])
        crossed = sum(seconds_on_link(e, sizes[1]) > 0 for e in events)
        tap.ok(events and not early and not crowded(events, sizes[1]) and (crossed > 0 or sizes[2] > 1),
               f"{name}: nothing ends before its link has carried it", f"{crossed} {early[:3]} {crowded(events, sizes[1])}")


def paper_profile(folder):
    """The profile in which a layer takes 60 + 180 ms and nothing else any time, with messages."""
    profile = json.load(open("tests/fixtures/profile_60_180.json"))
    profile["loads"][0]["lines"]["message"] = {"fit": {"latency_seconds": 1.0, "seconds_per_byte": 1.0}}  # which --net-link replaces
    path = os.path.join(folder, "profile.json")
    with open(path, "w") as file:
        json.dump(profile, file)
    return path


def simulate(folder, profile, sizes, *more):
    report = os.path.join(folder, "predicted.json")
    status, out, err = ranvier.run(["simulate", "tiny", "--profile", profile, "--platform", "local", "--gpus", sizes[0] * sizes[1] * sizes[2],
                                    *grid(sizes), *SHAPE, "--report", report, *more])
    return (json.load(open(report)) if status == 0 else None), out + err


def check_prediction(tap, folder):
    profile = paper_profile(folder)
    parameters = 256 * 32 + 64 * 32 + 4 * (12 * 32 * 32 + 13 * 32) + 2 * 32
    for dp in (2, 4):
        found, said = simulate(folder, profile, (1, dp, 1), *LINK)
        expected = 2 * (dp - 1) / dp * 4 * parameters / RATE
        sums = found["phases"]["allreduce_seconds"] if found else 0
        tap.ok(abs(sums / expected - 1) < 1e-3, f"{dp} replicas are predicted to sum as long as the link takes", f"{said}{sums} {expected}")
    found, said = simulate(folder, profile, (2, 1, 1), *LINK, "--micro-batch-size", 8, "--clip", 0)
    message = 8 * 64 * 32 * 4 / RATE
    pipeline = found["phases"]["pipeline_seconds"] if found else 0
    tap.ok(abs(pipeline - (4 * 0.24 + 2 * message)) < 1e-6, "a message is predicted to take as long as the link", f"{said}{pipeline} {message}")
    _, said = simulate(folder, profile, (2, 1, 1), *LINK, "--platform", "summit")
    tap.ok("--net-link is the network of a run on one machine: --platform local, not summit" in said, "a platform has links of its own", said)


def main():
    tap = ranvier.Tap()
    with tempfile.TemporaryDirectory() as folder:
        text.write(os.path.join(folder, "text.txt"))
        check_training(tap, folder)
        check_prediction(tap, folder)
    tap.end()


if __name__ == "__main__":
    main()
