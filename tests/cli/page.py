#!/usr/bin/python3
"""ranvier report and --html: pages hold what the reports say and need nothing else; in a browser (Chromium, headless) they render
at 1280 and 400 pixels with nothing clipped and no error, tables sort and filter, timelines zoom."""
import base64
import html
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile

sys.path.insert(0, os.path.dirname(__file__))
import ranvier

LARGEST = 1.5e6  # bytes of a page
BROWSER = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
HEADLESS = [BROWSER, "--headless", "--no-sandbox", "--disable-gpu"]
PLAN = ["llama3-8b", "--machine", "h100", "--gpus", 8, "--batch-size", 64]
SMALL = ["tiny", "--profile", "a100-datasheet", "--platform", "generic", "--precision", "fp32", "--batch-size", 8, "--micro-batch-size", 1]

# Runs in a page of two frames that hold the page under test, at both widths; the answer is the text of the document.
CHECKS = r"""
const wide = (frame, width) => {
  const all = [...frame.body.querySelectorAll("*")].filter(e => !e.closest(".scroll") || e.classList.contains("scroll"));
  const out = all.filter(e => { const box = e.getBoundingClientRect(); return box.width > 0 && (box.right > width + 1 || box.left < -1); });
  return [frame.documentElement.scrollWidth > width ? "the page is wider than its window" : "", ...out.map(e => e.tagName + " " + e.textContent.slice(0, 40))].filter(t => t);
};
const shown = row => !row.hidden && row.getBoundingClientRect().height > 0;
const check = (frame, width) => {
  const tables = [...frame.querySelectorAll(".table")].map(box => {
    const body = box.querySelector("tbody"), columns = [...box.querySelectorAll("th button")];
    const values = column => [...body.rows].map(row => { const cell = row.cells[column]; return cell.dataset.value === undefined ? cell.textContent : Number(cell.dataset.value); });
    const sorted = columns.every((button, column) => [1, -1].every(way => {
      button.click();
      const found = values(column), numbers = found.every(v => typeof v === "number"), texts = found.every(v => typeof v === "string");
      return !(numbers || texts) || found.every((v, i) => i === 0 || way * (numbers ? found[i - 1] - v : found[i - 1].localeCompare(v)) <= 0);
    }));
    const field = box.querySelector("input");
    let filtered = null;
    if (field) {
      const word = body.rows[0].cells[0].textContent;
      field.value = word;
      field.dispatchEvent(new Event("input"));
      const some = [...body.rows].every(row => shown(row) === word.toLowerCase().split(" ").every(part => row.textContent.toLowerCase().includes(part)));
      field.value = "no row has this";
      field.dispatchEvent(new Event("input"));
      filtered = some && ![...body.rows].some(shown);
      field.value = "";
      field.dispatchEvent(new Event("input"));
      filtered = filtered && [...body.rows].every(shown);
    }
    return { rows: body.rows.length, columns: columns.map(b => b.textContent), sorted, filtered };
  });
  const zooms = [...frame.querySelectorAll("figure.zoom")].map(figure => {
    const image = figure.querySelector("img"), before = image.getBoundingClientRect().width;
    figure.querySelector("button").click();
    const after = image.getBoundingClientRect().width;
    figure.querySelectorAll("button")[2].click();
    return [before, after, image.getBoundingClientRect().width];
  });
  return { clipped: wide(frame, width), images: [...frame.images].map(i => [i.naturalWidth, i.getBoundingClientRect().width, i.alt.length]), tables, zooms };
};
"""


def browser_environment(folder):
    """Its files go into a folder; a socket in /tmp has a short name."""
    return dict(os.environ, HOME=folder, TMPDIR="/tmp")


def look(folder, page):
    """What the browser says of the page at both widths, and its errors."""
    with open(page) as file:
        text = file.read()
    catch = "<script>parent.errors = parent.errors || []; addEventListener('error', e => parent.errors.push(String(e.message)));</script>"
    frames = "".join(f'<iframe id="w{width}" style="width:{width}px;height:900px;border:0" srcdoc="{html.escape(text.replace("<head>", "<head>" + catch, 1))}">'
                     "</iframe>" for width in (1280, 400))
    harness = os.path.join(folder, "harness.html")
    with open(harness, "w") as file:
        file.write(f"<!DOCTYPE html><body style='margin:0'>{frames}<script>{CHECKS}\naddEventListener('load', () => {{ const answer = {{errors: window.errors || []}};"
                   "for (const width of [1280, 400]) answer[width] = check(document.getElementById('w' + width).contentDocument, width);"
                   "document.body.textContent = 'ANSWER' + JSON.stringify(answer) + 'END'; });</script></body>")
    done = subprocess.run([*HEADLESS, "--window-size=1400,2000", "--virtual-time-budget=20000", "--enable-logging=stderr", "--dump-dom",
                           "file://" + harness], capture_output=True, text=True, timeout=600, env=browser_environment(folder))
    found = re.search(r"ANSWER(.*)END", done.stdout, re.S)
    answer = json.loads(html.unescape(found.group(1))) if found else None
    console = [line for line in done.stderr.splitlines() if "CONSOLE" in line]
    return answer, console, done.stderr


def check_page(tap, folder, name, page, figures, zooms):
    with open(page) as file:
        text = file.read()
    tap.ok(len(text) <= LARGEST, f"{name}: at most 1.5 MB", len(text))
    loads = re.findall(r"""(?:src|href|srcset|action)\s*=\s*["']?(?!data:)[^"'\s>]+|url\(\s*["']?(?!data:)[^)]*\)|@import[^;]*""", text)
    tap.ok(not loads, f"{name}: it asks for no other file and no network", loads)
    drawn = re.findall(r"data:image/(svg\+xml|png);base64,([A-Za-z0-9+/=]+)", text)
    good = [base64.b64decode(body).startswith(b"\x89PNG" if kind == "png" else b"<?xml") for kind, body in drawn]
    tap.ok(len(good) == figures and all(good), f"{name}: it has {figures} figures", [len(good), good])
    if not BROWSER:
        print(f"# {name}: no browser was found (Debian: chromium), so how it renders was not tested")
        return text
    answer, console, err = look(folder, page)
    tap.ok(answer is not None, f"{name}: the browser shows it", err[-2000:])
    if answer is None:
        return text
    tap.ok(not answer["errors"] and not console, f"{name}: no errors in the console", [answer["errors"], console])
    for width in ("1280", "400"):
        seen = answer[width]
        tap.ok(not seen["clipped"], f"{name}: nothing is clipped at {width} pixels", seen["clipped"])
        tap.ok(len(seen["images"]) == figures and all(natural > 0 and shown > 100 and alt > 0 for natural, shown, alt in seen["images"]),
               f"{name}: its figures are drawn at {width} pixels", seen["images"])
        tap.ok(seen["tables"] and all(table["sorted"] and table["filtered"] is not False for table in seen["tables"]),
               f"{name}: its tables sort and filter at {width} pixels", seen["tables"])
        tap.ok(len(seen["zooms"]) == zooms and all(after > 1.9 * before and whole == before for before, after, whole in seen["zooms"]),
               f"{name}: its timelines zoom at {width} pixels", seen["zooms"])
    return text


def run(tap, what, arguments, ranks=0):
    status, out, err = ranvier.run(arguments, ranks=ranks)
    tap.ok(status == 0, what, err)
    return out


def read_json(path):
    with open(path) as file:
        return json.load(file)


def check_plan(tap, folder):
    page, answer = os.path.join(folder, "plan.html"), os.path.join(folder, "plan.json")
    run(tap, "plan writes a page", ["plan", *PLAN, "--pp", "1,2", "--tp", "1,2", "--schedule", "1f1b", "--html", page, "--report", answer])
    text = check_page(tap, folder, "plan", page, figures=4, zooms=1)
    with open(answer) as file:
        plan = json.load(file)
    for fact in ("The same plan with fewer or more replicas", plan["best"]["flags"], plan["second"]["flags"], plan["again"], plan["sources"]["platform"], f'{plan["search"]["weighed"]:,} plans'):
        tap.ok(html.escape(fact) in text, f"plan: the page says {fact[:60]}")
    tap.ok('<td>best.json</td>' in text and f'<td>second.json</td>' in text, "plan: and has its plans simulated again")


def check_own(tap, folder):
    """A question from a launch script: the page has its plan, as whose it is predicted, and what a GPU costs."""
    script, page, answer = (os.path.join(folder, name) for name in ("train.sh", "own.html", "own.json"))
    run(tap, "simulate writes a launch script", ["simulate", *PLAN, "--tp", 4, "--dp", 2, "--zero", 1, "--micro-batch-size", 1, "--like", "megatron",
                                                 "--launch", f"megatron={script}"])
    run(tap, "plan of a script writes a page", ["plan", "--from", script, "--machine", "h100", "--tp", "1,4", "--cp", 1, "--price-per-gpu-hour", 2.5,
                                                "--html", page, "--report", answer])
    text = check_page(tap, folder, "plan of a script", page, figures=4, zooms=1)
    with open(answer) as file:
        plan = json.load(file)
    gain = 100 * (plan["own"]["batch_seconds"]["median"] / plan["best"]["batch_seconds"]["median"] - 1)
    for fact in ("The plan of train.sh", plan["own"]["flags"], f"{gain:.1f} % more throughput", "at 2.5 for a GPU hour", "as it runs in megatron"):
        tap.ok(html.escape(fact) in text, f"plan of a script: the page says {fact[:60]}")


def check_runs(tap, folder):
    reports = []
    for name, grid in (("a", ["--gpus", 1]), ("b", ["--gpus", 2, "--pp", 2]), ("c", ["--gpus", 4, "--pp", 2, "--dp", 2])):
        reports.append(os.path.join(folder, f"{name} <&>.json"))
        run(tap, f"simulate {name}", ["simulate", *SMALL, *grid, "--report", reports[-1]])
    trace, out = os.path.join(folder, "trace.json"), os.path.join(folder, "out")
    run(tap, "simulate writes a trace and a page", ["simulate", *SMALL, "--gpus", 2, "--pp", 2, "--trace", trace, "--html", os.path.join(folder, "one.html")])
    check_page(tap, folder, "simulate", os.path.join(folder, "one.html"), figures=3, zooms=1)
    tap.ok(os.path.exists(trace), "the trace that was asked for stays")
    run(tap, "report makes a folder", ["report", out, *reports, trace])
    text = check_page(tap, folder, "reports", os.path.join(out, "report.html"), figures=4, zooms=1)
    tap.ok("<td>a &lt;&amp;&gt;.json</td>" in text and "a <&>.json" not in text, "names are escaped")
    tap.ok("is the fastest" not in text, "trainings on different numbers of GPUs are not ranked")
    run(tap, "report goes into a folder that is there", ["report", out, reports[0]])
    other, two = os.path.join(folder, "d.json"), os.path.join(folder, "two.html")
    run(tap, "simulate d", ["simulate", *SMALL, "--gpus", 4, "--pp", 4, "--report", other])
    run(tap, "report takes a title", ["report", two, reports[2], other, "--title", "Two <plans>"])
    text = check_page(tap, folder, "two", two, figures=2, zooms=0)
    seconds = [report["batch_seconds"]["median"] for report in map(read_json, (reports[2], other))]
    names = ["c &lt;&amp;&gt;.json", "d.json"]
    best = seconds.index(min(seconds))
    tap.ok(f"{names[best]} is the fastest" in text and f"{100 * (max(seconds) / min(seconds) - 1):.1f} % more throughput than {names[1 - best]}" in text,
           "of two plans of one training the page says which is faster, and by how much", seconds)
    tap.ok("<title>Two &lt;plans&gt;" in text and "300B tokens" in text, "under the title that was given, with days")


def check_pairs(tap, folder):
    measured, predicted = os.path.join(folder, "measured.json"), os.path.join(folder, "predicted.json")
    data = os.path.join(folder, "text.txt")
    with open(data, "w") as file:
        file.write("the cat sat on the mat. " * 500)
    grid = ["--micro-batch-size", 1, "--batch-size", 4, "--threads", 1, "--fusion", "off"]
    run(tap, "a training", ["train", "tiny", "--data", data, *grid, "--steps", 6, "--report", measured])
    run(tap, "and its prediction", ["simulate", "tiny", "--profile", "a100-datasheet", "--platform", "generic", "--precision", "fp32", "--gpus", 1,
                                    *grid[:4], "--report", predicted])
    page = os.path.join(folder, "pair.html")
    run(tap, "compare writes a page", ["compare", predicted, measured, "--html", page])
    text = check_page(tap, folder, "compare", page, figures=3, zooms=0)
    tap.ok("Predicted against measured" in text, "compare: the pair is set side by side")


def check_tables(tap, folder):
    page, table = os.path.join(folder, "sweep.html"), os.path.join(folder, "sweep.csv")
    run(tap, "sweep writes a page", ["sweep", "gpt-12b", "--gpus", "48,96", "--batch-size", 1536, "--profile", "v100-datasheet", "--platform", "summit",
                                     "--simulate", 2, "--csv", table, "--html", page])
    text = check_page(tap, folder, "sweep", page, figures=2, zooms=0)
    with open(table) as file:
        rows = len(file.readlines()) - 1
    tap.ok(text.count("<tr>") == rows + 1, f"sweep: all {rows} plans are in its table", text.count("<tr>"))
    page = os.path.join(folder, "validate.html")
    run(tap, "validate writes a page", ["validate", "--table", os.path.join(os.path.dirname(__file__), "..", "..", "sim", "tables", "gpu.csv"), "--html", page])
    check_page(tap, folder, "validate", page, figures=1, zooms=0)


def main():
    tap = ranvier.Tap()
    with tempfile.TemporaryDirectory() as folder:
        before = set(os.listdir(tempfile.gettempdir()))
        # A browser takes its time, and finds the same in pages that a sanitized program wrote.
        for check in ranvier.some_sanitized([check_plan, check_own, check_runs, check_pairs, check_tables]):
            check(tap, folder)
    left = [name for name in set(os.listdir(tempfile.gettempdir())) - before if re.fullmatch(r"ranvier-\w{6}", name)]
    tap.ok(not left, "nothing is left of the pages' parts", left)
    tap.end()


if __name__ == "__main__":
    main()
