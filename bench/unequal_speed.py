#!/usr/bin/env python3
"""Samples per second of every strategy on four workers of speeds 1, 1, 2 and 4, over the sum of their speeds.

Real processes with emulated computation (40 ms for a micro-batch at speed 1) and an emulated link on which an all-reduce of the
model takes c micro-batches of the slowest worker; with and without 20 % jitter. The rows of one block are taken one after the
other. Budget of those that never wait (abs, lasgd): at least 97 %.

usage: bench/unequal_speed.py [build/skein] [--seconds S] [--json FILE]
"""
import argparse
import json
import os
import subprocess
import tempfile

SPEEDS = [1, 1, 2, 4]
BATCH = 16
STEP = 0.040
SUMMED = sum(SPEEDS) * BATCH / STEP
BUDGET = 0.97
NEVER_WAIT = ("abs", "lasgd")
# name, strategy, its options
METHODS = [
    ("allreduce", "allreduce", []),
    ("allreduce, balanced", "allreduce", ["--set", "strategy.balance=true"]),
    ("dear", "dear", []),
    ("local", "local", []),
    ("abs", "abs", []),
    ("lasgd", "lasgd", []),
]


def run(skein, *arguments):
    with tempfile.TemporaryDirectory() as folder:
        out = os.path.join(folder, "out.json")
        subprocess.run([skein, *arguments, "--quiet", "--json", out], check=True, stdout=subprocess.DEVNULL)
        with open(out) as file:
            return json.load(file)


def train(skein, strategy, options, samples, link, jitter):
    emulation = ["--emulate-speeds", ",".join(map(str, SPEEDS)), "--emulate-step", f"{STEP * 1e3:.0f}ms", "--jitter", str(jitter)]
    if link:
        emulation += ["--emulate-link", f"{link * 8 / 1e6:.0f}mbit"]
    return run(skein, "train", "--workers", str(len(SPEEDS)), "--strategy", strategy, *options, "--data", "glyphs", "--model", "mlp",
               "--batch", str(BATCH), "--samples", str(samples), "--lr", "0.01", *emulation)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("skein", nargs="?", default="build/skein")
    parser.add_argument("--seconds", type=float, default=6, help="of a worker that never waits, per run")
    parser.add_argument("--json", help="file for all figures")
    arguments = parser.parse_args()
    known = run(arguments.skein, "doctor")["strategies"]
    methods = [method for method in METHODS if method[1] in known]
    samples = int(arguments.seconds * SUMMED)
    parameters = train(arguments.skein, "allreduce", [], 2 * BATCH * len(SPEEDS), 0, 0)["parameters"]
    moved = 2 * (len(SPEEDS) - 1) / len(SPEEDS) * 4 * parameters  # by each worker in an all-reduce
    print(f"mlp ({parameters / 1e6:.2f} M parameters), batch {BATCH}, speeds {SPEEDS}, {STEP * 1e3:.0f} ms at speed 1: S = {SUMMED:.0f} samples/s")
    print("| strategy | c | jitter | samples/s | of S | over allreduce | micro-batches per worker |\n|---|---|---|---|---|---|---|")
    rows, worst = [], 1
    for jitter in (0, 0.2):
        for c in (0, 0.5, 1, 2):
            base = None
            for name, strategy, options in methods:
                result = train(arguments.skein, strategy, options, samples, moved / (c * STEP) if c else 0, jitter)
                speed = result["samples_per_second"]
                base = base or speed
                counts = [worker["micro_batches"] for worker in result["per_worker"]]
                ratios = ", ".join(f"{count / counts[0]:.2f}" for count in counts)
                print(f"| {name} | {c} | {jitter} | {speed:.0f} | {speed / SUMMED:.1%} | {speed / base:.2f} x | {ratios} |", flush=True)
                rows.append({"name": name, "c": c, "jitter": jitter, "samples_per_second": speed, "of_summed_speed": speed / SUMMED,
                             "over_allreduce": speed / base, "micro_batches": counts})
                if strategy in NEVER_WAIT:
                    worst = min(worst, speed / SUMMED)
    print(f"strategies that never wait, samples/s over S: budget >= {BUDGET:.0%}: {worst:.1%} {'ok' if worst >= BUDGET else 'MISSED'}")
    if arguments.json:
        with open(arguments.json, "w") as file:
            json.dump(rows, file, indent=1)


if __name__ == "__main__":
    main()
