#!/usr/bin/env python3
"""What watching costs a run: the same training with and without --page, with a client that asks all that a browser asks.

    bench/page_cost.py [build/skein] [--rounds 7] [--json FILE]

The mlp on two workers, small batches: steps of a few milliseconds, so that what is done per step would show. Runs take turns,
and which of the two comes first changes each round. Prints medians of milliseconds per iteration, their spread, the median of
the rounds' ratios, and the processor time that the launcher, which serves the page, took more.
"""
import argparse
import json
import os
import pathlib
import re
import statistics
import subprocess
import tempfile
import threading
import time
import urllib.request

JOB = ["train", "--model", "mlp", "--data", "glyphs", "--workers", "2", "--batch", "16", "--set", "data.train=4096",
       "--set", "data.test=64", "--device", "cpu", "--lr", "0.01", "--quiet"]


def poll(url, stop, asked):
    base, token = url.split("/?token=")
    state = {"generation": -1, "steps": {"stride": 0, "from": 0, "rows": []}, "evaluations": {"from": 0, "rows": []}}
    while not stop.wait(1.0):
        try:
            for path in [f"/api/state?generation={state['generation']}&stride={state['steps']['stride']}"
                         f"&steps={state['steps']['from'] + len(state['steps']['rows'])}", "/api/timeline?", "/api/usage?", "/metrics?"]:
                with urllib.request.urlopen(f"{base}{path}&token={token}", timeout=5) as answer:
                    text = answer.read()
                asked.append(len(text))
                if "state" in path:
                    state = json.loads(text)
        except OSError:
            return


def run(skein, samples, watched):
    with tempfile.TemporaryDirectory() as folder:
        out = os.path.join(folder, "run.json")
        command = [skein, *JOB, "--samples", str(samples), "--json", out] + (["--page", "0"] if watched else [])
        process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
        stop, asked, client, launcher = threading.Event(), [], None, 0.0
        if watched:
            url = re.search(r"http://\S+", process.stderr.readline()).group()
            client = threading.Thread(target=poll, args=(url, stop, asked))
            client.start()
        while process.poll() is None:
            try:
                fields = pathlib.Path(f"/proc/{process.pid}/stat").read_text().rsplit(")", 1)[1].split()
                launcher = (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
            except OSError:
                pass
            time.sleep(0.05)
        stop.set()
        if client:
            client.join()
        if process.returncode != 0:
            raise SystemExit(process.stderr.read()[-500:])
        found = json.loads(pathlib.Path(out).read_text())
    return found["iteration_ms"]["p50"], found["samples_per_second"], launcher, found["seconds"], len(asked)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("skein", nargs="?", default="build/skein")
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--samples", type=int, default=60000)
    parser.add_argument("--json", help="file for all figures")
    options = parser.parse_args()
    run(options.skein, options.samples // 4, False)
    rows = {False: [], True: []}
    for turn in range(options.rounds):
        for watched in ([False, True] if turn % 2 == 0 else [True, False]):
            rows[watched].append(run(options.skein, options.samples, watched))
    ratios = [off[1] / on[1] for off, on in zip(rows[False], rows[True])]
    print(f"{'':22}{'ms/iteration':>14}{'min … max':>18}{'samples/s':>12}")
    for watched, name in [(False, "without --page"), (True, "with --page, watched")]:
        times = [row[0] for row in rows[watched]]
        print(f"{name:22}{statistics.median(times):14.3f}{min(times):9.3f} … {max(times):.3f}"
              f"{statistics.median(row[1] for row in rows[watched]):12.0f}")
    print(f"time with the page over time without: {statistics.median(ratios):.3f} (median of {options.rounds} rounds, "
          f"{min(ratios):.3f} … {max(ratios):.3f})")
    extra = statistics.median(row[2] for row in rows[True]) - statistics.median(row[2] for row in rows[False])
    seconds = statistics.median(row[3] for row in rows[True])
    print(f"the launcher, which serves the page: {1e3 * extra:.0f} ms of processor time more in {seconds:.0f} s of training, "
          f"for {statistics.median(row[4] for row in rows[True]):.0f} answers")
    if options.json:
        pathlib.Path(options.json).write_text(json.dumps({"without": rows[False], "with": rows[True], "ratios": ratios}))


if __name__ == "__main__":
    main()
