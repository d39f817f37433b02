#!/usr/bin/env python3
"""A2CiD2: does the continuous momentum do what doubling the rate of averagings does? Accuracy, loss and distance at equal samples.

usage: bench/papers/acid.py [build/skein] [--scale small|cifar|resnet|full] [--data cifar10:DIR] [--jobs J] [--seeds 3] [--minutes M]

Real gradients in virtual time on rings of 16, 32 and 64 workers, a torus and an exponential graph; short runs and long ones. The rate falls to
nothing over a run (a cosine), and samples are those of all workers together, so that more workers make fewer steps each. Every
method has the momentum and rate of one grid with the lowest test loss on the ring of 32 (16 at the scale resnet), the mean of all seeds, for each length. The distance is the mean squared
distance of the workers' models from their mean, halfway. The paper: on a ring the momentum does what doubling the rate does, with gains up to 64 workers.
"""
import statistics

from picture import COLOURS, dots
from study import Study, per_cent, table

SIZES = {
    "small": dict(lengths={"short": 12288, "long": 40960}, batch=4, graphs=[("ring", 16), ("ring", 32), ("ring", 64), ("torus", 32), ("exponential", 32)],
                  grid=[(0.9, 0.01), (0.9, 0.02), (0.9, 0.05), (0.9, 0.1)]),
    "cifar": dict(lengths={"5 passes": 250000}, batch=16, graphs=[("ring", 32)], grid=[(0.9, 0.01), (0.9, 0.03)]),
    "resnet": dict(lengths={"3 passes": 150000}, batch=16, graphs=[("ring", 16)], grid=[(0.9, 0.02), (0.9, 0.05)]),
    "full": dict(lengths={"30 passes": 1500000}, batch=32, graphs=[("ring", 16), ("ring", 32), ("ring", 64)], grid=[(0.9, 0.05), (0.9, 0.1)]),
}
METHODS = {
    "`allreduce`": ["allreduce"],
    "`gossip`": ["gossip", "--rate", 1],
    "`gossip`, rate 2": ["gossip", "--rate", 2],
    "`acid`, strength 0.25": ["acid", "--rate", 1, "--set", "strategy.strength=0.25"],
    "`acid`, strength 0.5": ["acid", "--rate", 1, "--set", "strategy.strength=0.5"],
    "`acid`, strength 1": ["acid", "--rate", 1, "--set", "strategy.strength=1"],
}
STEP_MS = 100


def start(study, length, graph, workers, method, momentum, rate, seed):
    graphs = [] if method == "`allreduce`" else ["--topology", graph]
    steps = study.size["lengths"][length] / (study.size["batch"] * workers)
    return study.start("--workers", workers, "--objective", "model", *study.model, "--strategy", *METHODS[method], *graphs, "--batch", study.size["batch"],
                       "--samples", study.size["lengths"][length], "--momentum", momentum, "--lr", rate, "--schedule", "cosine", "--observe-every", f"{STEP_MS * steps / 2:.0f}ms", "--emulate-step", f"{STEP_MS}ms", "--seed", seed)


def main():
    study = Study("acid", __doc__, SIZES, seeds=3)
    lengths, grid, graphs = study.size["lengths"], study.size["grid"], study.size["graphs"]
    tuned_on = graphs[0] if len(graphs) == 1 else ("ring", 32)
    tries = {(l, m, g): [start(study, l, *tuned_on, m, *g, seed) for seed in study.seeds] for l in lengths for m in METHODS for g in grid}
    loss = lambda key: statistics.fmean((each.result() or {}).get("loss") or 1e9 for each in tries[key])
    best = {(l, m): min(grid, key=lambda g: loss((l, m, g))) for l in lengths for m in METHODS}
    finals = {(l, g, m): [start(study, l, *g, m, *best[l, m], seed) for seed in study.seeds] for l in lengths for g in graphs for m in METHODS}
    lines, panels = [], {}
    for l in lengths:
        rows = []
        for g in graphs:
            known = {m: [f for f in (each.result() for each in finals[l, g, m]) if f] for m in METHODS}
            mean = lambda m, figure: statistics.fmean(f[figure] for f in known[m]) if known[m] else float("nan")
            for m in METHODS:
                if known[m]:
                    gossip = m != "`allreduce`" and m != "`gossip`"
                    doubled = mean("`gossip`", "loss") - mean("`gossip`, rate 2", "loss")  # what twice the rate gains
                    rows.append([f"{g[0]} {g[1]}", m, ", ".join(map(str, best[l, m])), per_cent([f["accuracy"] for f in known[m]]), f"{mean(m, 'loss'):.3f}", f"{mean(m, 'distance'):.2g}",
                                 f"{100 * (mean(m, 'accuracy') - mean('`gossip`', 'accuracy')):+.1f}" if gossip else "",
                                 f"{mean('`gossip`', 'distance') / mean(m, 'distance'):.1f} ×" if gossip else "",
                                 f"{(mean('`gossip`', 'loss') - mean(m, 'loss')) / doubled:.0%}" if m.startswith("`acid`") and doubled > 0 else "–" if m.startswith("`acid`") else ""])
            panels[f"{g[0]} of {g[1]}, {l}"] = {m: [100 * f["accuracy"] for f in known[m]] for m in METHODS}
        lines += [f"{l.capitalize()} runs, {lengths[l]:,} samples:" if len(lengths) > 1 else f"{lengths[l]:,} samples:", "",
                  *table(["graph", "method", "momentum, rate", "accuracy, mean (each seed)", "loss", "distance halfway", "points over `gossip`", "distance, times smaller", "gain in loss, of that of rate 2"], rows), ""]
    lines += [study.cost()]
    colour = lambda m: COLOURS[1] if m.startswith("`acid`") else COLOURS[0]
    study.write(lines, dots("Accuracy at equal samples", panels, "test accuracy in per cent of the mean model; a point is a seed, a bar their median; scales differ", low=None, colour_of=colour))


if __name__ == "__main__":
    main()
