#!/usr/bin/env python3
"""The fusion tuner of `dear` beside an exhaustive sweep, on 64 virtual workers and 10 GbE, from bad starts too.

usage: bench/dear_tuner.py build/skein

Promised, and the exit code is 1 otherwise: from any start within 5 % of the best of the sweep, in at most 15 trials.
About seven minutes.
"""
import os
import sys

sys.dont_write_bytecode = True  # the imports leave nothing behind
sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "papers"))
from dear import fixed, tuned
from virtual_cluster import PUBLISHED

NETWORK = "10gbe"
STARTS_MIB = (1, 25, 256)
SWEEP = [round(2**20 * 2 ** (i / 2)) for i in range(17)]  # 1 MiB to 256 MiB
FARTHEST = 0.05
MOST_TRIALS = 15


def mib(size):
    return f"{size / 2**20:.1f} MiB"


def main():
    skein = sys.argv[1] if len(sys.argv) > 1 else "build/skein"
    print("| profile | best of the sweep | worst |" + "".join(f" from {start} MiB |" for start in STARTS_MIB))
    print("|---|---|---|" + "---|" * len(STARTS_MIB))
    kept = True
    for profile in PUBLISHED:
        sweep = {size: fixed(skein, profile, NETWORK, "dear", size) for size in SWEEP}
        best = min(sweep, key=sweep.get)
        row = f"| {profile} | {mib(best)}: {sweep[best]:.1f} ms | {max(sweep.values()):.1f} ms |"
        for start in STARTS_MIB:
            size, time, trials = tuned(skein, profile, NETWORK, fusion_start=f"{start}MiB")
            off = time / sweep[best] - 1
            kept = kept and off <= FARTHEST and trials <= MOST_TRIALS
            row += f" {mib(size)}: {time:.1f} ms, {trials} trials, {off:+.1%} |"
        print(row, flush=True)
    print(f"\npromise: within {FARTHEST:.0%} of the best in at most {MOST_TRIALS} trials: {'kept' if kept else 'BROKEN'}")
    sys.exit(0 if kept else 1)


if __name__ == "__main__":
    main()
