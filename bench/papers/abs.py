#!/usr/bin/env python3
"""ABS-SGD: time to an accuracy on four unequal workers, every method with the micro-batch, rate and momentum that suit it best.

usage: bench/papers/abs.py [build/skein] [--scale small|full] [--data cifar10:DIR] [--jobs J] [--seeds 2] [--minutes M]

Real gradients in virtual time. A sample takes the same time in a micro-batch of any size; the slow network takes as long for one
all-reduce as a worker of speed 1 for a micro-batch of the larger size. For each cluster and method every point of one grid is run
with seed 1, and the fastest with all seeds. The time is read off the curve of accuracies, between two looks at the model. The
paper: 1.30 x on average over the best baseline (ResNet-18, four workers, three kinds of cluster).
"""
import math
import statistics

from study import Study, median, seconds_text, table, time_to

SIZES = {
    "small": dict(target=0.9, samples=24000, batches=(4, 8), step_ms=40, looks=40, parameters=6106,
                  grid=[(0.9, 0.01), (0.9, 0.02), (0.9, 0.04), (0, 0.1), (0, 0.2), (0, 0.4)]),
    "full": dict(target=0.8, samples=400000, batches=(16, 32), step_ms=40, looks=24, parameters=11173962,
                 grid=[(0.9, 0.02), (0.9, 0.05), (0, 0.2)]),
}
SPEEDS = ["--emulate-speeds", "1,1,2,4"]
CLUSTERS = {
    "1:1:2:4": SPEEDS,
    "1:4:4:4": ["--emulate-speeds", "1,4,4,4"],
    "changing": ["--jitter", "0.2", "--slowdowns", "every=2s,for=2s,factor=4"],
    "1:1:2:4, slow network": SPEEDS,
}
BALANCED = ["--set", "strategy.balance=true"]
METHODS = {
    "`allreduce`": ["allreduce"],
    "`allreduce`, balanced": ["allreduce", *BALANCED],
    "`dear`, balanced": ["dear", *BALANCED],
    "`local`": ["local"],
    "`lasgd`": ["lasgd"],
    "`abs`, the paper's": ["abs", "--set", "strategy.lookahead=none", "--set", "strategy.delay=1"],
    "`abs`, delay 1": ["abs", "--set", "strategy.delay=1"],
    "`abs`, delay 0": ["abs", "--set", "strategy.delay=0"],
    "`abs`, delay auto": ["abs", "--set", "strategy.delay=auto"],
}
SYNCHRONOUS = 3  # the first so many methods are the baselines


def start(study, cluster, method, batch, momentum, rate, seed):
    size = study.size
    network = ["--network", "10gbe:chunk=none"]
    if "slow" in cluster:
        bits = 8 * 4 * size["parameters"] * 2 * 3 / 4 / (size["step_ms"] / 1e3)
        network = ["--network", "link:chunk=none", "--emulate-link", f"{bits / 1e6:.4g}mbit"]
    longest = size["samples"] / size["batches"][-1] * size["step_ms"] / 1e3 / 4  # four workers of speed 1
    return study.start("--workers", 4, "--objective", "model", *study.model, *network, *CLUSTERS[cluster], "--strategy", *METHODS[method],
                       "--batch", batch, "--emulate-step", f"{size['step_ms'] * batch / size['batches'][-1]:g}ms", "--momentum", momentum, "--lr", rate,
                       "--samples", size["samples"], "--target-accuracy", size["target"], "--observe-every", f"{longest / size['looks'] / 2:.3g}s", "--seed", seed)


def main():
    study = Study("abs", __doc__, SIZES)
    grid = [(batch, *pair) for batch in study.size["batches"] for pair in study.size["grid"]]
    time = lambda figures: time_to(figures, study.size["target"])
    tries = {(c, m, g): start(study, c, m, *g, 1) for c in CLUSTERS for m in METHODS for g in grid}
    best = {(c, m): min(grid, key=lambda g: time(tries[c, m, g].result())) for c in CLUSTERS for m in METHODS}
    finals = {key: [start(study, *key, *best[key], seed) for seed in study.seeds] for key in best}
    rows, gains = [], {}
    for c in CLUSTERS:
        known = {m: [f for f in (each.result() for each in finals[c, m]) if f] for m in METHODS}
        medians = {m: median([time(f) for f in known[m]]) if known[m] else math.inf for m in METHODS}
        base = min(medians[m] for m in list(METHODS)[:SYNCHRONOUS])
        for m in METHODS:
            if not known[m]:
                continue
            batch, momentum, rate = best[c, m]
            gain = base / medians[m]
            gains.setdefault(m, []).append(gain)
            rows.append([c, m, f"{batch}, {momentum}, {rate}", ", ".join(seconds_text(time(f)) for f in known[m]), seconds_text(medians[m]),
                         round(median([f.get("samples") or 0 for f in known[m]])), f"{median([f.get('utilisation') or 0 for f in known[m]]):.1%}", f"{gain:.2f} x"])
    lines = table(["cluster", "method", "micro-batch, momentum, rate", "seconds, each seed", "median", "samples", "of all speeds", "gain"], rows)
    means = ", ".join(f"{m} {statistics.geometric_mean(g):.2f} x" for m, g in list(gains.items())[SYNCHRONOUS:] if min(g) > 0)
    lines += ["", f"Virtual seconds to {study.size['target']:.0%}; gain: over the best of the first {SYNCHRONOUS} rows of the cluster. On average over the clusters (geometric mean): {means}. "
              f"{study.cost()}"]
    study.write(lines)


if __name__ == "__main__":
    main()
