#!/usr/bin/env python3
"""The virtual cluster: how fast it is, how much memory it takes, and what it says beside published times.

usage: bench/virtual_cluster.py build/skein [--large]
"""
import json
import os
import subprocess
import sys
import tempfile

# 64 RTX 2080 Ti, 16 hosts of 4, 10 GbE, ms per iteration.
PUBLISHED = {"resnet50": 313.7, "densenet201": 482.6, "inceptionv4": 605.7, "bert-base": 951.9, "bert-large": 2493.6}
BUDGET = 5e6  # events per second


def simulate(skein, *arguments):
    with tempfile.TemporaryDirectory() as folder:
        out = os.path.join(folder, "out.json")
        process = subprocess.Popen([skein, "simulate", *arguments, "--quiet", "--json", out], stdout=subprocess.DEVNULL)
        _, status, usage = os.wait4(process.pid, 0)
        if status != 0:
            sys.exit(f"skein simulate {' '.join(arguments)} failed")
        with open(out) as file:
            return json.load(file), usage.ru_maxrss / 1024


def speed(skein, large):
    print("speed: ring all-reduces, one bucket per tensor ('none': more than 100 of them) or buckets of 25 MB")
    print(f"{'workers':>8}{'profile':>13}{'fusion':>8}{'iterations':>12}{'events':>10}{'M events/s':>12}{'seconds':>9}{'MiB':>7}")
    cases = [(64, "resnet50", "none", 3), (64, "resnet50", "auto", 10), (256, "resnet50", "auto", 3), (1024, "resnet50", "auto", 2)]
    if large:
        cases += [(1024, "resnet50", "none", 1), (4096, "resnet50", "auto", 1)]
    slowest = float("inf")
    for workers, profile, fusion, iterations in cases:
        result, memory = simulate(skein, "--workers", str(workers), "--gpus-per-host", "4", "--profile", profile,
                                  "--set", f"strategy.fusion={fusion}", "--iterations", str(iterations))
        print(f"{workers:>8}{profile:>13}{fusion:>8}{iterations:>12}{result['events'] / 1e6:>9.1f}M"
              f"{result['events_per_second'] / 1e6:>12.1f}{result['wall_seconds']:>9.1f}{memory:>7.0f}", flush=True)
        slowest = min(slowest, result["events_per_second"])
    print(f"virtual cluster, the slowest of these: budget >= {BUDGET / 1e6:.0f} M events/s: {slowest / 1e6:.1f} M {'ok' if slowest >= BUDGET else 'MISSED'}\n")


def published(skein):
    """The published baseline sends what became ready within a few ms, so many small all-reduces, each with a start-up of
    up to 7 ms: its times lie between those of large buckets and those of small ones with that start-up (latency 200 us)."""
    print("allreduce, 64 workers, 10 GbE, 4 per host: simulated beside published (Horovod), ms per iteration")
    print(f"{'profile':<14}{'published':>10}{'25 MB':>10}{'':>7}{'2 MB, 7 ms':>12}{'':>7}{'1 MB, 7 ms':>12}{'':>7}")
    for profile, known in PUBLISHED.items():
        row = f"{profile:<14}{known:>10.1f}"
        for width, latency, fusion in ((10, "50us", "25MB"), (12, "200us", "2MB"), (12, "200us", "1MB")):
            result, _ = simulate(skein, "--workers", "64", "--gpus-per-host", "4", "--profile", profile,
                                 "--network", f"10gbe:chunk=512KB,latency={latency}", "--set", f"strategy.fusion={fusion}",
                                 "--iterations", "3")
            time = result["iteration_ms"]["p50"]
            row += f"{time:>{width}.1f}{time / known - 1:>+7.0%}"
        print(row, flush=True)


def main():
    skein = sys.argv[1] if len(sys.argv) > 1 else "build/skein"
    speed(skein, "--large" in sys.argv)
    published(skein)


if __name__ == "__main__":
    main()
