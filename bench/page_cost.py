#!/usr/bin/env python3
"""What watching costs a run: the same training with and without --page, with a client that asks all that a browser asks.

    bench/page_cost.py [build/skein] [--rounds 7] [--json FILE]

The mlp on two workers, small batches: steps of a few milliseconds, so that what is done per step would show. Runs take turns,
and which of the two comes first changes each round. Prints medians and the rounds' ratios, of training time and of the processor
time of the launcher, which serves the page, and its workers; the latter says more on a machine that others use as well.
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
    """Milliseconds an iteration, samples/s, seconds of processor time of all processes of the run, seconds, answers."""
    with tempfile.TemporaryDirectory() as folder:
        out = os.path.join(folder, "run.json")
        command = [skein, *JOB, "--samples", str(samples), "--json", out] + (["--page", "0"] if watched else [])
        process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
        stop, asked, client = threading.Event(), [], None
        if watched:
            url = re.search(r"http://\S+", process.stderr.readline()).group()
            client = threading.Thread(target=poll, args=(url, stop, asked))
            client.start()
        _, status, used = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
        stop.set()
        if client:
            client.join()
        if process.returncode != 0:
            raise SystemExit(process.stderr.read()[-500:])
        found = json.loads(pathlib.Path(out).read_text())
    return found["iteration_ms"]["p50"], found["samples_per_second"], used.ru_utime + used.ru_stime, found["seconds"], len(asked)


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
    print(f"{'':22}{'ms/iteration':>14}{'min … max':>18}{'samples/s':>12}{'processor s':>13}")
    for watched, name in [(False, "without --page"), (True, "with --page, watched")]:
        times, speeds, used = ([row[i] for row in rows[watched]] for i in range(3))
        print(f"{name:22}{statistics.median(times):14.3f}{min(times):9.3f} … {max(times):6.3f}{statistics.median(speeds):12.0f}{statistics.median(used):13.2f}")
    for what, ratios in [("training time", [off[1] / on[1] for off, on in zip(rows[False], rows[True])]),
                         ("processor time", [on[2] / off[2] for off, on in zip(rows[False], rows[True])])]:
        print(f"{what} with the page over without: {statistics.median(ratios):.3f} (median of {options.rounds} rounds, {min(ratios):.3f} … {max(ratios):.3f})")
    print(f"answers that the page gave: {statistics.median(row[4] for row in rows[True]):.0f} in {statistics.median(row[3] for row in rows[True]):.0f} s")
    if options.json:
        pathlib.Path(options.json).write_text(json.dumps({"without": rows[False], "with": rows[True]}))


if __name__ == "__main__":
    main()
