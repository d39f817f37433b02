#!/usr/bin/env python3
"""Does the momentum of `acid` help? Real gradients on virtual rings of 16, 32 and 64 workers, every method with the same samples.

A narrow `cnn` on `glyphs`, micro-batches of 4, SGD with momentum 0.9; short runs are three passes over the data, long ones ten,
over all workers together, so that more workers make fewer steps each. Prints test accuracy and loss of the mean model, as it is when
the run ends, and the mean squared distance of the workers' models from it; draws the accuracies. A last part has short runs of 32
workers with skewed labels.

The learning rate of each method (one for all of `gossip` and `acid`, that of `gossip` at rate 1) is that of three with the lowest
loss on 32 workers and seed 1, for each length; --tune prints what that choice was made from.

usage: bench/gossip_accuracy.py [build/skein] [--jobs 1] [--json FILE] [--seeds 1,2,3] [--out docs/images] [--tune [short] [long]]
Fifteen minutes on one core. Runs that FILE has already are not repeated.
"""
import argparse
import concurrent.futures
import json
import os
import statistics

from gossip_consensus import row, simulate, svg, text

BATCH, WORKERS = 4, (16, 32, 64)
SAMPLES = {"short": 12288, "long": 40960}
METHODS = {  # strategy and its options
    "allreduce": ("allreduce", []),
    "lasgd": ("lasgd", []),
    "gossip, rate 2": ("gossip", ["--topology", "ring", "--rate", "2"]),
    "gossip": ("gossip", ["--topology", "ring", "--rate", "1"]),
    "acid, strength 0.25": ("acid", ["--topology", "ring", "--rate", "1", "--set", "strategy.strength=0.25"]),
    "acid, strength 0.5": ("acid", ["--topology", "ring", "--rate", "1", "--set", "strategy.strength=0.5"]),
    "acid, strength 1": ("acid", ["--topology", "ring", "--rate", "1"]),
}
GRID = {"allreduce": (0.02, 0.05, 0.1), "lasgd": (0.01, 0.02, 0.05), "gossip": (0.01, 0.02, 0.04),
        "acid, strength 1": (0.01, 0.02, 0.04)}
RATES = {
    "short": {"allreduce": 0.05, "lasgd": 0.02, "gossip": 0.02},
    "long": {"allreduce": 0.05, "lasgd": 0.02, "gossip": 0.02},
}
COLOURS = {16: "#7f9f7c", 32: "#5b7fa6", 64: "#c07a45"}


def rate_of(length, method):
    strategy = METHODS[method][0]
    return RATES[length]["gossip" if strategy == "acid" else strategy]


def run(skein, length, workers, method, seed, dirichlet=None, lr=None):
    """Ends by virtual time where nobody waits, which is the same number of steps for all, and by steps where all do."""
    strategy, options = METHODS[method]
    steps = SAMPLES[length] // (BATCH * workers)
    lr = lr or rate_of(length, method)
    skew = ["--dirichlet", dirichlet] if dirichlet else []
    result = simulate(skein, "--objective", "model", "--model", "cnn", "--set", "model.width=4", "--data", "glyphs",
                      "--set", "data.train=4000", "--set", "data.test=2000", "--workers", workers, "--batch", BATCH,
                      "--momentum", 0.9, "--lr", lr, "--strategy", strategy, *options, *skew,
                      "--iterations" if strategy == "allreduce" else "--time", steps, "--observe-every", "100000s", "--seed", seed)
    reached = [each.get("figures", {}).get("averagings_per_gradient", 0) for each in result["per_worker"]]
    return {"length": length, "workers": workers, "method": method, "seed": seed, "dirichlet": dirichlet, "lr": lr,
            "samples": result["samples"], "accuracy": result["accuracy"], "loss": result["loss"],
            "distance": result["consensus"][-1]["value"], "averagings_per_gradient": statistics.fmean(reached),
            "wall_seconds": result["wall_seconds"]}


def tune(skein, lengths):
    row("length", "method", *["learning rate: accuracy, loss"] * 3)
    print("|---|---|---|---|---|")
    for length in lengths:
        for method, rates in GRID.items():
            tries = [run(skein, length, 32, method, 1, lr=lr) for lr in rates]
            row(length, method, *(f"{one['lr']}: {one['accuracy']:.1%}, {one['loss']:.3f}" for one in tries))


def plan(seeds):
    for seed in seeds:
        for length in SAMPLES:
            for workers in WORKERS:
                for method in METHODS:
                    yield length, workers, method, seed, None
    for seed in seeds:
        for method in METHODS:
            yield "short", 32, method, seed, 0.5


def key_of(done):
    return done["length"], done["workers"], done["method"], done["seed"], done["dirichlet"]


def measure(skein, seeds, jobs, path):
    rows = []
    if path and os.path.exists(path):
        with open(path) as file:
            rows = json.load(file)
    known = {key_of(one) for one in rows}
    with concurrent.futures.ThreadPoolExecutor(jobs) as pool:
        for done in pool.map(lambda key: run(skein, *key), [key for key in plan(seeds) if key not in known]):
            rows.append(done)
            if path:
                with open(path, "w") as file:
                    json.dump(rows, file, indent=1)
    return rows


def table(title, rows):
    print(f"\n{title}")
    row("workers", "method", "lr", "accuracy, each seed", "mean", "loss (range)", "distance (range)")
    print("|" + "---|" * 7)
    for workers in WORKERS:
        for method in METHODS:
            runs = [one for one in rows if one["workers"] == workers and one["method"] == method]
            if not runs:
                continue
            losses, distances = ([one[name] for one in runs] for name in ("loss", "distance"))
            row(workers, method, runs[0]["lr"], ", ".join(f"{100 * one['accuracy']:.1f}" for one in runs),
                f"{statistics.fmean(100 * one['accuracy'] for one in runs):.1f}",
                f"{statistics.fmean(losses):.2f} ({min(losses):.2f} to {max(losses):.2f})",
                f"{statistics.fmean(distances):.2g} ({min(distances):.2g} to {max(distances):.2g})")


def gains(rows):
    """Beside `gossip` at rate 1 of the same seeds: what is won in accuracy, and how many times the distance is smaller."""
    print("\nbeside gossip: points of accuracy, mean (of each seed), and the mean distance, times smaller")
    row("runs", "workers", *(method for method in METHODS if METHODS[method][0] in ("gossip", "acid") and method != "gossip"))
    print("|" + "---|" * 6)
    for length in SAMPLES:
        for workers in WORKERS:
            of = {method: {one["seed"]: one for one in rows if (one["length"], one["workers"], one["method"]) == (length, workers, method)}
                  for method in METHODS if METHODS[method][0] in ("gossip", "acid")}
            plain, cells = of.pop("gossip"), []
            for runs in of.values():
                won = [100 * (runs[seed]["accuracy"] - plain[seed]["accuracy"]) for seed in runs]
                nearer = sum(plain[seed]["distance"] for seed in runs) / sum(one["distance"] for one in runs.values())
                cells.append(f"{statistics.fmean(won):+.1f} ({', '.join(f'{one:+.1f}' for one in won)}), {nearer:.1f} x")
            row(length, workers, *cells)


def half_picture(left, title, rows):
    """A band for each method, a line in it for each number of workers, a point for each seed and a bar at their mean."""
    width, top, band = 330, 62, 48
    low = int(10 * min(one["accuracy"] for one in rows)) / 10

    def x_of(accuracy):
        return left + width * (accuracy - low) / (1 - low)

    parts = [text(left, 24, title, "title")]
    bottom = top + band * len(METHODS)
    for tenth in range(round(low * 10), 11):
        x = x_of(tenth / 10)
        parts.append(f'<line class="grid" x1="{x:.1f}" y1="{top}" x2="{x:.1f}" y2="{bottom}"/>')
        parts.append(text(x, bottom + 16, f"{tenth * 10} %", "tick middle"))
    for i, method in enumerate(METHODS):
        for j, workers in enumerate(WORKERS):
            found = [one["accuracy"] for one in rows if one["workers"] == workers and one["method"] == method]
            y = top + band * i + 11 + 13 * j
            parts += [f'<circle cx="{x_of(one):.1f}" cy="{y}" r="3.5" fill="{COLOURS[workers]}" fill-opacity="0.65"/>' for one in found]
            if found:
                mean = x_of(statistics.fmean(found))
                parts.append(f'<line x1="{mean:.1f}" y1="{y - 6}" x2="{mean:.1f}" y2="{y + 6}" stroke="{COLOURS[workers]}" stroke-width="2"/>')
        parts.append(f'<line class="grid" x1="{left}" y1="{top + band * i}" x2="{left + width}" y2="{top + band * i}"/>')
    return parts


def picture(rows):
    parts = [text(138, 62 + 48 * i + 28, method, "end") for i, method in enumerate(METHODS)]
    for i, length in enumerate(SAMPLES):
        parts += half_picture(150 + 390 * i, f"{length} runs, {SAMPLES[length]:,} samples",
                              [one for one in rows if one["length"] == length])
    for i, workers in enumerate(WORKERS):
        parts.append(text(150 + 95 * i, 46, f"● {workers} workers", "", COLOURS[workers]))
    parts.append(text(510, 436, "test accuracy of the mean model; a point is a seed, a bar their mean; the two scales differ", "tick middle"))
    return svg(900, 450, "Test accuracy of each method on rings of 16, 32 and 64 workers", parts)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("skein", nargs="?", default="build/skein")
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--json")
    parser.add_argument("--seeds", default="1,2,3")
    parser.add_argument("--out", default="docs/images")
    parser.add_argument("--tune", nargs="*", choices=SAMPLES)
    arguments = parser.parse_args()
    if arguments.tune is not None:
        return tune(arguments.skein, arguments.tune or SAMPLES)
    rows = measure(arguments.skein, [int(seed) for seed in arguments.seeds.split(",")], arguments.jobs, arguments.json)
    equal = [one for one in rows if not one["dirichlet"]]
    for length, samples in SAMPLES.items():
        table(f"{length} runs, {samples} samples", [one for one in equal if one["length"] == length])
    gains(equal)
    table("short runs, labels skewed (--dirichlet 0.5)", [one for one in rows if one["dirichlet"]])
    print(f"\n{len(rows)} runs, {sum(one['wall_seconds'] for one in rows):.0f} s")
    with open(os.path.join(arguments.out, "acid-accuracy.svg"), "w") as file:
        file.write(picture(equal))


if __name__ == "__main__":
    main()
