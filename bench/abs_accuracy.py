#!/usr/bin/env python3
"""Accuracy of `abs` after equal samples beside SGD without delay, on a virtual cluster: deterministic.

Four workers of speeds 1, 1, 2 and 4 train the `cnn` on `glyphs`. A round of `abs` has 64 samples, and so has a step of `allreduce`, which has no delay. SGD with momentum 0.9 at two
rates. Points are means over the seeds.

usage: bench/abs_accuracy.py [build/skein] [SEEDS]       3 seeds unless given
"""
import json
import os
import subprocess
import sys
import tempfile

BUDGET = 0.5  # points of accuracy below SGD without delay
SAMPLES = 12800
RATES = (0.01, 0.02)
METHODS = {
    "allreduce": ["--strategy", "allreduce", "--batch", "16", "--emulate-step", "80ms"],
    "abs": ["--strategy", "abs", "--batch", "8", "--emulate-step", "40ms", "--emulate-speeds", "1,1,2,4"],
}


def accuracy(skein, options, rate, seed):
    """In per cent, of the model at the end."""
    with tempfile.TemporaryDirectory() as folder:
        out = os.path.join(folder, "out.json")
        subprocess.run([skein, "simulate", "--workers", "4", "--objective", "model", "--model", "cnn", "--data", "glyphs", "--network", "10gbe:chunk=none", "--samples", str(SAMPLES), *options,
                        "--lr", str(rate), "--momentum", "0.9", "--seed", str(seed), "--quiet", "--json", out], check=True, stdout=subprocess.DEVNULL)
        with open(out) as file:
            return 100 * json.load(file)["accuracy"]


def main():
    skein = sys.argv[1] if len(sys.argv) > 1 else "build/skein"
    seeds = range(1, 1 + (int(sys.argv[2]) if len(sys.argv) > 2 else 3))
    print(f"cnn on glyphs, {SAMPLES} samples, momentum 0.9, accuracy in % of each seed\n| rate | method | accuracy, each seed | mean |\n|---|---|---|---|")
    worst = -100.0
    for rate in RATES:
        means = {}
        for name, options in METHODS.items():
            each = [accuracy(skein, options, rate, seed) for seed in seeds]
            means[name] = sum(each) / len(each)
            print(f"| {rate} | {name} | {', '.join(f'{one:.2f}' for one in each)} | {means[name]:.2f} |", flush=True)
        worst = max(worst, means["allreduce"] - means["abs"])
    print(f"abs below SGD without delay at equal samples, the worse rate: budget <= {BUDGET} points: {worst:.2f} points {'ok' if worst <= BUDGET else 'MISSED'}")


if __name__ == "__main__":
    main()
