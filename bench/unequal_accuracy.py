#!/usr/bin/env python3
"""Time to a fixed test accuracy of every strategy on four unequal workers, each with the learning rate that suits it best.

Real processes train the `cnn` on `glyphs` with emulated computation (20 ms for a micro-batch of 4 at speed 1) on clusters that
differ in four ways: workers of different speed, speeds that change while running, a slow network, and equal workers on a slow
network. For each cluster and method all (momentum, rate) pairs of one grid are tried with one seed, and the fastest is run with
all seeds. A run that does not get there in its samples counts as infinitely slow.

usage: bench/unequal_accuracy.py [build/skein] [--jobs J] [--seeds 1,2,3] [--clusters NAME,…] [--methods NAME,…] [--json FILE]
Needs about 3 cores per job (--jobs 1 on a small machine): otherwise emulated time is stretched by real computation.
"""
import argparse
import concurrent.futures
import json
import math
import os
import statistics
import subprocess
import tempfile

STEP, BATCH, TARGET, SAMPLES, EVERY = "20ms", 4, 0.95, 40000, 1000
CLUSTERS = {
    "speeds 1:1:2:4": ["--emulate-speeds", "1,1,2,4"],
    "changing speeds": ["--jitter", "0.2", "--slowdowns", "every=2s,for=2s,factor=4"],
    "speeds 1:1:2:4, slow link": ["--emulate-speeds", "1,1,2,4", "--emulate-link", "200mbit"],
    "equal, slow link": ["--emulate-link", "100mbit"],
}
METHODS = {
    "allreduce": ["--strategy", "allreduce"],
    "allreduce, balanced": ["--strategy", "allreduce", "--set", "strategy.balance=true"],
    "abs": ["--strategy", "abs"],
    "local": ["--strategy", "local"],
    "lasgd": ["--strategy", "lasgd"],
}
GRID = [(0.9, 0.005), (0.9, 0.01), (0.5, 0.025), (0.5, 0.05), (0, 0.05), (0, 0.1)]


def run(skein, cluster, method, momentum, rate, seed):
    with tempfile.TemporaryDirectory() as folder:
        out = os.path.join(folder, "out.json")
        command = [skein, "train", "--workers", "4", *METHODS[method], "--data", "glyphs", "--model", "cnn", "--batch", str(BATCH),
                   "--samples", str(SAMPLES), "--eval-every", str(EVERY), "--target-accuracy", str(TARGET), "--emulate-step", STEP,
                   *CLUSTERS[cluster], "--momentum", str(momentum), "--lr", str(rate), "--seed", str(seed), "--quiet", "--json", out]
        done = subprocess.run(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
        if not os.path.exists(out):
            if "the loss is" in done.stderr:  # diverged
                return {"seconds": math.inf, "samples": SAMPLES, "speed": 0}
            raise RuntimeError(f"{' '.join(command)}: {done.stderr}")
        with open(out) as file:
            result = json.load(file)
        seconds = result["seconds_to_target"]
        return {"seconds": math.inf if seconds is None else seconds, "samples": result["samples"], "speed": result["samples_per_second"]}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("skein", nargs="?", default="build/skein")
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--seeds", default="1,2,3")
    parser.add_argument("--clusters", default=",".join(name.replace(",", ";") for name in CLUSTERS))
    parser.add_argument("--methods", default=";".join(METHODS))
    parser.add_argument("--json")
    arguments = parser.parse_args()
    seeds = [int(seed) for seed in arguments.seeds.split(",")]
    clusters = [name.replace(";", ",") for name in arguments.clusters.split(",")]
    methods = arguments.methods.split(";")
    pool = concurrent.futures.ThreadPoolExecutor(arguments.jobs)
    start = lambda *key: pool.submit(run, arguments.skein, *key)
    print(f"cnn on glyphs, seconds of training to {TARGET:.0%} test accuracy; 4 workers, micro-batches of {BATCH}, {STEP} at speed 1")
    tries = {(c, m, g): start(c, m, *g, seeds[0]) for c in clusters for m in methods for g in GRID}
    finals = {}
    for c in clusters:
        for m in methods:
            best = min(GRID, key=lambda g: tries[c, m, g].result()["seconds"])
            finals[c, m] = best, [tries[c, m, best]] + [start(c, m, *best, seed) for seed in seeds[1:]]
    print("| cluster | method | momentum, rate | seconds, each seed | median | samples | samples/s | gain |\n|---|---|---|---|---|---|---|---|")
    rows = []
    for c in clusters:
        medians = {m: statistics.median(f.result()["seconds"] for f in finals[c, m][1]) for m in methods}
        base = min((medians[m] for m in methods if m.startswith("allreduce")), default=math.inf)
        for m in methods:
            (momentum, rate), futures = finals[c, m]
            results = [future.result() for future in futures]
            samples, speed = (statistics.median(r[key] for r in results) for key in ("samples", "speed"))
            print(f"| {c} | {m} | {momentum}, {rate} | {', '.join(format(r['seconds'], '.1f') for r in results)} | "
                  f"{medians[m]:.1f} | {samples:.0f} | {speed:.0f} | {base / medians[m]:.2f} x |", flush=True)
            rows.append({"cluster": c, "method": m, "momentum": momentum, "rate": rate, "runs": results,
                         "grid": [{"momentum": g[0], "rate": g[1], **tries[c, m, g].result()} for g in GRID]})
    print("gain: over the better of the allreduce rows")
    if arguments.json:
        with open(arguments.json, "w") as file:
            json.dump(rows, file, indent=1)


if __name__ == "__main__":
    main()
