#!/usr/bin/env python3
"""ABS-SGD: time to an accuracy on four workers, every method with the micro-batch, rate and momentum that suit it best.

usage: bench/papers/abs.py [build/skein] [--scale small|cifar|resnet|full] [--data cifar10:DIR] [--jobs J] [--seeds 2] [--minutes M] [--only times|looks]

Real gradients in virtual time. A sample takes the same time in a micro-batch of any size; the slow network takes as long for one
all-reduce as a worker of speed 1 for a micro-batch of the larger size. For each cluster and method every point of one grid is run
with seed 1, the two fastest with all seeds, and the one with the smaller median counts. The time is read off the curve of accuracies, between two looks at the model. The
paper: 1.30 x on average over the best baseline (ResNet-18, four workers, three kinds of cluster).

A second table has the accuracy after equal samples for each way to look ahead, with SGD and AdamW.
"""
import math
import statistics

from picture import COLOURS, dots
from study import Study, median, seconds_text, table, time_to

SGD = lambda momentum, rate: ["--momentum", momentum, "--lr", rate]
SIZES = {
    "small": dict(target=0.9, samples=24000, batches=(2, 4, 8), step_ms=40, looks=16, parameters=6106, look_batch=8, look_samples=16000,
                  grid=[(0.9, 0.01), (0.9, 0.03), (0, 0.1), (0, 0.3)],
                  look_rates={"SGD, momentum 0.9": [(0.9, 0.01), (0.9, 0.02)], "SGD without momentum": [(0, 0.1), (0, 0.3)], "AdamW": [(None, 0.001), (None, 0.003)]}),
    "cifar": dict(target=0.5, samples=120000, batches=(16,), step_ms=40, looks=16, parameters=23274, look_batch=16, look_samples=60000,
                  grid=[(0.9, 0.01), (0.9, 0.03)],
                  look_rates={"SGD, momentum 0.9": [(0.9, 0.01), (0.9, 0.03)], "SGD without momentum": [(0, 0.1), (0, 0.3)], "AdamW": [(None, 0.001), (None, 0.003)]}),
    "resnet": dict(target=0.55, samples=80000, batches=(16,), step_ms=40, looks=16, parameters=176402, look_batch=16, look_samples=60000, look_seeds=2,
                   clusters=("1:1:2:4", "1:1:2:4, slow network"), methods=("`allreduce`, balanced", "`lasgd`", "`abs`, the paper's", "`abs`, delay auto"),
                   grid=[(0.9, 0.02), (0.9, 0.05)], look_rates={"SGD, momentum 0.9": [(0.9, 0.02)], "AdamW": [(None, 0.001)]}),
    "full": dict(target=0.8, samples=400000, batches=(16, 32), step_ms=40, looks=24, parameters=11173962, look_batch=16, look_samples=400000,
                 grid=[(0.9, 0.02), (0.9, 0.05), (0, 0.2)],
                 look_rates={"SGD, momentum 0.9": [(0.9, 0.02), (0.9, 0.05)], "SGD without momentum": [(0, 0.2)], "AdamW": [(None, 0.001)]}),
}
SPEEDS = ["--emulate-speeds", "1,1,2,4"]
CLUSTERS = {
    "1:1:2:4": SPEEDS,
    "1:4:4:4": ["--emulate-speeds", "1,4,4,4"],
    "changing": ["--jitter", "0.2", "--slowdowns", "every=2s,for=2s,factor=4"],
    "1:1:2:4, slow network": SPEEDS,
    "equal, slow network": [],
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
SYNCHRONOUS = ("`allreduce`", "`allreduce`, balanced", "`dear`, balanced")  # the baselines
LOOK_SEEDS = 4
LOOKS = {
    "no delay": ["--set", "strategy.delay=0"],
    **{each: ["--set", "strategy.delay=1", "--set", f"strategy.lookahead={each}"] for each in ("none", "momentum", "share", "own")},
}


def start(study, cluster, method, batch, momentum, rate, seed):
    size = study.size
    network = ["--network", "10gbe:chunk=none"]
    if "slow" in cluster:
        bits = 8 * 4 * size["parameters"] * 2 * 3 / 4 / (size["step_ms"] / 1e3)
        network = ["--network", f"link:chunk=none,bandwidth={bits / 1e6:.4g}mbit"]
    longest = size["samples"] / size["batches"][-1] * size["step_ms"] / 1e3 / 4  # four workers of speed 1
    return study.start("--workers", 4, "--objective", "model", *study.model, *network, *CLUSTERS[cluster], "--strategy", *METHODS[method],
                       "--batch", batch, "--emulate-step", f"{size['step_ms'] * batch / size['batches'][-1]:g}ms", *SGD(momentum, rate),
                       "--samples", size["samples"], "--target-accuracy", size["target"], "--observe-every", f"{longest / size['looks'] / 2:.3g}s", "--seed", seed)


def look(study, way, momentum, rate, seed):
    """One run of the second table: the same samples in rounds of eight micro-batches."""
    size = study.size
    optimizer = ["--optimizer", "adamw", "--lr", rate] if momentum is None else SGD(momentum, rate)
    return study.start("--workers", 4, "--objective", "model", *study.model, "--network", "10gbe:chunk=none", *SPEEDS, "--strategy", "abs", *LOOKS[way],
                       "--batch", size["look_batch"], "--emulate-step", "40ms", *optimizer, "--samples", size["look_samples"], "--observe-every", "100000s", "--seed", seed)


def times(study):
    clusters, methods = study.size.get("clusters", CLUSTERS), study.size.get("methods", METHODS)
    time = lambda figures: time_to(figures, study.size["target"])
    grid = [(batch, *pair) for batch in study.size["batches"] for pair in study.size["grid"]]
    tries = {(c, m, g): start(study, c, m, *g, 1) for c in clusters for m in methods for g in grid}
    fastest = {(c, m): sorted(grid, key=lambda g: time(tries[c, m, g].result()))[:2] for c in clusters for m in methods}
    runs = {key: {g: [start(study, *key, *g, seed) for seed in study.seeds] for g in points} for key, points in fastest.items()}
    best = {key: min(points, key=lambda g: median([time(each.result()) for each in points[g]])) for key, points in runs.items()}
    finals = {key: runs[key][g] for key, g in best.items()}
    rows, gains, panels = [], {}, {}
    for c in clusters:
        known = {m: [f for f in (each.result() for each in finals[c, m]) if f] for m in methods}
        panels[c] = {m: [time(f) for f in known[m]] for m in methods}
        medians = {m: median(panels[c][m]) if known[m] else math.inf for m in methods}
        base = min(medians[m] for m in methods if m in SYNCHRONOUS)
        for m in methods:
            if not known[m]:
                continue
            batch, momentum, rate = best[c, m]
            gain = base / medians[m]
            gains.setdefault(m, []).append(gain)
            rows.append([c, m, f"{batch}, {momentum}, {rate}", ", ".join(seconds_text(each) for each in panels[c][m]), seconds_text(medians[m]),
                         round(median([f.get("samples") or 0 for f in known[m]])), f"{median([f.get('utilisation') or 0 for f in known[m]]):.1%}", f"{gain:.2f} ×"])
    lines = table(["cluster", "method", "micro-batch, momentum, rate", "seconds, each seed", "median", "samples", "of all speeds", "gain"], rows)
    means = ", ".join(f"{m} {statistics.geometric_mean(g):.2f} ×" for m, g in gains.items() if m not in SYNCHRONOUS and min(g) > 0)
    lines += ["", f"Virtual seconds to {study.size['target']:.0%}; gain: over the best of the cluster's rows of `allreduce` and `dear`. " + (f"On average over the clusters (geometric mean): {means}. " if means else "") +
              f"{study.cost()}"]
    colour = lambda m: COLOURS[1] if m.startswith("`abs`") else COLOURS[0]
    study.write(lines, dots("Time to an accuracy on four workers", panels, f"virtual seconds to {study.size['target']:.0%} test accuracy; a point is a seed, a bar their median", "", colour_of=colour))


def looks(study):
    seeds = range(1, study.size.get("look_seeds", LOOK_SEEDS) + 1)
    tries = {(o, w, pair): [look(study, w, *pair, seed) for seed in seeds] for o, pairs in study.size["look_rates"].items() for pair in pairs for w in LOOKS}
    rows = []
    for optimizer, pairs in study.size["look_rates"].items():
        for pair in pairs:
            cells = [[f for f in (each.result() for each in tries[optimizer, w, pair]) if f] for w in LOOKS]
            rows.append([optimizer, pair[1], *(f"{100 * statistics.fmean(f['accuracy'] for f in cell):.1f}, {statistics.fmean(f['loss'] for f in cell):.3f}" if cell else "–" for cell in cells)])
    lines = table(["optimizer", "rate", "no delay", "`none`: the paper's", "`momentum`", "`share`", "`own`"], rows)
    lines += ["", f"Test accuracy in per cent and test loss after {study.size['look_samples']:,} samples, means of {len(seeds)} seeds; speeds 1:1:2:4, micro-batches of {study.size['look_batch']}, rounds of eight."]
    study.write(lines, part="lookahead")


def main():
    study = Study("abs", __doc__, SIZES, parts=("looks", "times"))
    for part in (looks, times):
        if study.options.only in (None, part.__name__):
            part(study)


if __name__ == "__main__":
    main()
