#!/usr/bin/env python3
"""Trains one model with every strategy on an emulated slow and unequal cluster; a table that grows and a page at the end.

    demo.py SKEIN_BINARY OUT_DIR

The strategies are those that `skein doctor` lists, so a new one joins by itself.
"""
import json
import pathlib
import shlex
import shutil
import subprocess
import sys
import time

sys.dont_write_bytecode = True  # nothing is left in the source folder
from page import write_page  # noqa: E402

# Four workers, one twice and one four times as fast as the other two, on a 200 Mbit/s network.
SPEEDS = [1, 1, 2, 4]
BATCH = 32
STEP_MS = 160  # what a batch takes a worker of speed 1
LINK = "200mbit"
TARGET = 0.96
SUMMED_SPEED = sum(SPEEDS) * BATCH / (STEP_MS / 1000)  # samples/s if nobody ever waited

JOB = ["--workers", str(len(SPEEDS)), "--data", "glyphs", "--model", "cnn", "--batch", str(BATCH),
       "--emulate-speeds", ",".join(map(str, SPEEDS)), "--emulate-step", f"{STEP_MS}ms",
       "--emulate-link", LINK, "--emulate-latency", "1ms",
       "--samples", "30000", "--eval-every", "1000", "--target-accuracy", str(TARGET)]

# A gradient that is old, or of one worker alone, wants a smaller step than the default; and rounds of `abs` are long enough with a
# quarter of the batch in a quarter of the time.
TUNED = {"abs": {"--momentum": "0.5", "--batch": str(BATCH // 4), "--emulate-step": f"{STEP_MS // 4}ms"},
         "local": {"--lr": "0.02"}, "lasgd": {"--lr": "0.02"}, "gossip": {"--lr": "0.02"}, "acid": {"--lr": "0.02"}}


def job(changes):
    options = {**dict(zip(JOB[::2], JOB[1::2])), **changes}
    return [word for pair in options.items() for word in pair]


# Rows besides a strategy's own with its defaults.
VARIANTS = {"allreduce": [("allreduce, balanced", ["--set", "strategy.balance=true"])]}


def strategies(skein, out):
    file = out / "doctor.json"
    subprocess.run([skein, "doctor", "--quiet", "--json", str(file)], check=True)
    return json.loads(file.read_text())["strategies"]


def evaluations(folder):
    """(seconds of training, accuracy) of every evaluation so far."""
    file = folder / "metrics.jsonl"
    lines = file.read_text().splitlines() if file.exists() else []
    found = []
    for line in lines:
        try:
            entry = json.loads(line)
        except ValueError:
            continue  # the last line may still be on its way
        if entry["kind"] == "evaluation":
            found.append((entry["seconds"], entry["accuracy"]))
    return found


class Progress:
    """Says which run this is and how it is going; on a pipe, once for each run."""

    def __init__(self, runs):
        self.live = sys.stderr.isatty()
        self.runs = runs
        self.begun = 0

    def begin(self, name):
        self.begun += 1
        self.label = f"{self.begun} of {self.runs}: {name}"
        if not self.live:
            print(self.label, file=sys.stderr, flush=True)

    def show(self, seconds, points):
        if not self.live:
            return
        accuracy = f", accuracy {100 * points[-1][1]:.1f} %" if points else ""
        print(f"\r\033[K{self.label}: {seconds:.0f} s{accuracy}", end="", file=sys.stderr, flush=True)

    def end(self):
        if self.live:
            print("\r\033[K", end="", file=sys.stderr, flush=True)


def train(skein, out, name, options, progress):
    folder = out / name.replace(", ", "-").replace(" ", "-")
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    command = [skein, "train", *options, "--quiet", "--out", str(folder), "--overwrite", "--json", str(folder / "result.json")]
    began = time.monotonic()
    progress.begin(name)
    child = subprocess.Popen(command)
    try:
        while child.poll() is None:
            progress.show(time.monotonic() - began, evaluations(folder))
            time.sleep(0.25)
    except BaseException:
        child.terminate()
        child.wait()
        raise
    progress.end()
    if child.returncode != 0:
        sys.exit(f"{name}: exit code {child.returncode} from: {' '.join(command)}")
    result = json.loads((folder / "result.json").read_text())
    return {**result, "name": name, "typed": shlex.join(command), "points": evaluations(folder)}


def size(count):
    for unit in ("B", "kB", "MB"):
        if count < 1000:
            return f"{count:.0f} {unit}"
        count /= 1000
    return f"{count:.1f} GB"


COLUMNS = ["strategy", f"time to {100 * TARGET:.0f} %", "samples/s", "of summed speed", "exposed comm./iteration", "sent"]


def row(result):
    reached = result["seconds_to_target"]
    return [result["name"],
            f"{reached:.1f} s" if reached is not None else f"not reached ({100 * result['accuracy']:.1f} %)",
            f"{result['samples_per_second']:.0f}",
            f"{100 * result['samples_per_second'] / SUMMED_SPEED:.0f} %",
            f"{result['exposed_comm_ms']:.1f} ms",
            size(result["bytes_sent"])]


class Table:
    """Prints each row as soon as it is known, so the columns are as wide as the widest that may come."""

    def __init__(self, names):
        self.widths = [max(map(len, names)), *(len(column) for column in COLUMNS[1:-1]), len("999 MB")]
        self.widths[1] = max(self.widths[1], len("not reached (99.9 %)"))
        self.print(COLUMNS)
        self.print(["-" * width for width in self.widths])

    def print(self, line):
        cells = [cell.ljust(w) if i == 0 else cell.rjust(w) for i, (cell, w) in enumerate(zip(line, self.widths))]
        print("  ".join(cells), flush=True)


def main():
    if len(sys.argv) != 3:
        sys.exit(__doc__)
    skein, out = sys.argv[1], pathlib.Path(sys.argv[2])
    out.mkdir(parents=True, exist_ok=True)
    runs = []
    for name in strategies(skein, out):
        runs.append((name, ["--strategy", name, *job(TUNED.get(name, {}))]))
        runs += [(label, ["--strategy", name, *more, *JOB]) for label, more in VARIANTS.get(name, [])]
    cluster = (f"{len(SPEEDS)} workers of speeds {', '.join(map(str, SPEEDS))} (a batch of {BATCH} takes "
               f"{STEP_MS} ms at speed 1), {LINK} links with 1 ms latency; summed speed {SUMMED_SPEED:.0f} samples/s")
    print(f"A CNN on glyphs; {cluster}.", file=sys.stderr, flush=True)
    progress = Progress(len(runs))
    table = Table([name for name, _ in runs])
    results = []
    for name, options in runs:
        results.append(train(skein, out, name, options, progress))
        table.print(row(results[-1]))
    rows = [row(result) for result in results]
    write_page(out / "report.html", cluster, TARGET, COLUMNS, rows, results)
    print(f"\n{out / 'report.html'} has the same with a plot.")


if __name__ == "__main__":
    try:
        main()
    except KeyboardInterrupt:
        sys.exit(130)
    except (OSError, subprocess.CalledProcessError) as error:
        sys.exit(f"demo: {error}")
