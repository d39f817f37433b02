#!/usr/bin/env python3
"""LASGD: time to an accuracy and accuracy at equal samples beside `allreduce` and `gossip`, 8 and 16 workers.

usage: bench/papers/lasgd.py [build/skein] [--scale small|cifar|full] [--data cifar10:DIR] [--jobs J] [--seeds 2] [--minutes M]

Real gradients in virtual time; equal and unequal workers (half of them half as fast), a fast network and one that takes as long for
an all-reduce as a worker for two micro-batches. On every cluster each method has the momentum and rate of one grid with which it reached the
accuracy soonest there at seed 1, or, if it never did, came nearest. The paper: faster than synchronous SGD and gossip at equal accuracy.
"""
import math

from picture import COLOURS, dots
from study import Study, median, seconds_text, table, time_to

SIZES = {
    "small": dict(target=0.9, samples=20000, batch=4, step_ms=20, looks=16, parameters=6106, workers=(8, 16), grid=[(0.9, 0.01), (0.9, 0.03), (0, 0.03), (0, 0.1), (0, 0.3)]),
    "cifar": dict(target=0.5, samples=100000, batch=16, step_ms=40, looks=12, parameters=23274, workers=(8,), grid=[(0.9, 0.01), (0.9, 0.03), (0, 0.03), (0, 0.1), (0, 0.3)]),
    "full": dict(target=0.8, samples=500000, batch=32, step_ms=40, looks=20, parameters=11173962, workers=(8, 16), grid=[(0.9, 0.02), (0.9, 0.05), (0, 0.2)]),
}
CLUSTERS = [(pace, network) for network in ("fast", "slow") for pace in ("equal", "unequal")]
GRAPH = ["--topology", "exponential", "--rate", "1"]
OUTER = ["--set", "strategy.outer_momentum=0.7"]
METHODS = {
    "`allreduce`": ["allreduce"],
    "`dear`, balanced": ["dear", "--set", "strategy.balance=true"],
    "`gossip`": ["gossip", *GRAPH],
    "`acid`": ["acid", *GRAPH],
    "`local`": ["local"],
    "`lasgd`": ["lasgd"],
    "`local`, outer momentum": ["local", *OUTER],
    "`lasgd`, outer momentum": ["lasgd", *OUTER],
    "`lasgd`, momentum averaged": ["lasgd", "--set", "strategy.average_momentum=true"],
}


def start(study, workers, cluster, method, momentum, rate, seed):
    size, (pace, network) = study.size, cluster
    link = ["--network", "10gbe:chunk=none"]
    if network == "slow":
        bits = 8 * 4 * size["parameters"] * 2 * (workers - 1) / workers / (2 * size["step_ms"] / 1e3)
        link = ["--network", f"link:chunk=none,bandwidth={bits / 1e6:.4g}mbit"]
    speeds = ["--emulate-speeds", ",".join(["1"] * (workers // 2) + ["2"] * (workers // 2))] if pace == "unequal" else []
    longest = size["samples"] / size["batch"] * size["step_ms"] / 1e3 / workers * (3 if network == "slow" else 1)
    return study.start("--workers", workers, "--objective", "model", *study.model, *link, *speeds, "--strategy", *METHODS[method], "--batch", size["batch"],
                       "--emulate-step", f"{size['step_ms']}ms", "--momentum", momentum, "--lr", rate, "--samples", size["samples"],
                       "--observe-every", f"{longest / size['looks']:.3g}s", "--seed", seed)


def main():
    study = Study("lasgd", __doc__, SIZES)
    time = lambda figures: time_to(figures, study.size["target"])
    keys = [(w, c, m) for w in study.size["workers"] for c in CLUSTERS for m in METHODS]
    tries = {(key, g): start(study, *key, *g, 1) for key in keys for g in study.size["grid"]}
    merit = lambda figures: (time(figures), -((figures or {}).get("accuracy") or 0))
    best = {key: min(study.size["grid"], key=lambda g: merit(tries[key, g].result())) for key in keys}
    finals = {key: [start(study, *key, *best[key], seed) for seed in study.seeds] for key in keys}
    rows, panels = [], {}
    for w in study.size["workers"]:
        for c in CLUSTERS:
            known = {m: [f for f in (each.result() for each in finals[w, c, m]) if f] for m in METHODS}
            panels[f"{w} workers, {', '.join(c)} network"] = {m: [time(f) for f in known[m]] for m in METHODS}
            medians = {m: median([time(f) for f in known[m]]) if known[m] else math.inf for m in METHODS}
            for m in METHODS:
                if known[m]:
                    momentum, rate = best[w, c, m]
                    rows.append([w, ", ".join(c), m, f"{momentum}, {rate}", ", ".join(seconds_text(time(f)) for f in known[m]), seconds_text(medians[m]),
                                 f"{medians['`allreduce`'] / medians[m]:.2f} ×", f"{medians['`gossip`'] / medians[m]:.2f} ×", ", ".join(f"{f['accuracy']:.1%}" for f in known[m]),
                                 f"{median([f.get('distance') or 0 for f in known[m]]):.2g}"])
    lines = table(["workers", "machines, network", "method", "momentum, rate", "seconds, each seed", "median", "over `allreduce`", "over `gossip`", "accuracy at the end", "distance"], rows)
    lines += ["", f"Virtual seconds to {study.size['target']:.0%}; all runs end after {study.size['samples']:,} samples. {study.cost()}"]
    colour = lambda m: COLOURS[1] if m.startswith("`lasgd`") else COLOURS[0]
    study.write(lines, dots("Time to an accuracy on 8 and 16 workers", panels, f"virtual seconds to {study.size['target']:.0%} test accuracy; a point is a seed, a bar their median", colour_of=colour))


if __name__ == "__main__":
    main()
