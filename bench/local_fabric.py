#!/usr/bin/env python3
"""Reduce-scatter and all-gather of 25 MB between two ranks of one host, over the memcpy of the bytes that each rank must move.

Both are measured in turns by `skein bench fabric`. Times are medians of a run, and the median of the runs' ratios counts.

usage: bench/local_fabric.py [build/skein]
"""
import json
import os
import statistics
import subprocess
import sys
import tempfile

BUDGET = 1.25
RUNS = 5


def measure(skein):
    """Milliseconds of the two halves together, and of their memcpy."""
    with tempfile.TemporaryDirectory() as folder:
        out = os.path.join(folder, "out.json")
        subprocess.run([skein, "bench", "fabric", "--workers", "2", "--bytes", "25MB", "--quiet", "--json", out], check=True, stdout=subprocess.DEVNULL)
        with open(out) as file:
            halves = [each for each in json.load(file)["operations"] if each["name"] in ("reduce_scatter", "all_gather")]
    return sum(each["p50_ms"] for each in halves), sum(each["limit_ms"] for each in halves)


def main():
    skein = sys.argv[1] if len(sys.argv) > 1 else "build/skein"
    print(f"{'ms':>8}{'memcpy ms':>11}{'ratio':>9}")
    ratios = []
    for _ in range(RUNS):
        time, limit = measure(skein)
        ratios.append(time / limit)
        print(f"{time:>8.3f}{limit:>11.3f}{time / limit:>7.2f} x", flush=True)
    ratio = statistics.median(ratios)
    print(f"local, reduce-scatter + all-gather of 25 MB over memcpy: budget <= {BUDGET} x: {ratio:.2f} x {'ok' if ratio <= BUDGET else 'MISSED'}")


if __name__ == "__main__":
    main()
