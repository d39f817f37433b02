#!/usr/bin/env python3
"""DeAR: an iteration beside that of `allreduce`: five published models on 64 simulated GPUs, and real workers on two and four hosts beside PyTorch DDP.

usage: bench/papers/dear.py [build/skein] [--parts simulated,hosts] [--out out/papers] [--page docs/papers.md] [--write-only]

Simulated: 64 workers, 4 per host. The time of `dear` with `auto` is that of the size the tuner ended with, not a median over its trials; `possible` is
what the schedule can gain over an allreduce that is ideal as well, without latency:
(t_ff + max(t_bp, t_ar)) / (max(t_ff, t_ar/2) + max(t_bp, t_ar/2)). `published` is Horovod's time over that of a scheme which overlaps all communication.
Hosts: network namespaces and limited links, by bench/hosts.py (root; make build TORCH=pip; half an hour on a machine that does nothing else).
What the folder has is not measured again. The paper: up to 1.83 x over the best method before it on 10 GbE, up to 1.15 x on InfiniBand.
"""
import argparse
import json
import math
import os
import subprocess
import sys
import time

HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.dirname(os.path.dirname(HERE))
sys.dont_write_bytecode = True  # the imports leave nothing behind
sys.path[:0] = [HERE, os.path.dirname(HERE)]
from picture import COLOURS, dots
from study import table, write_part
from virtual_cluster import PUBLISHED, simulate

WORKERS = 64
# As docs/simulate.md has them: the bandwidth of a host in bytes per second.
NETWORKS = {"10gbe": 1.158e9, "100gib": 3.337e9}
# The paper's own: up to so much over the best method before it.
CLAIMED = {"10gbe": 1.83, "100gib": 1.15}
# Published for 10 GbE beside Horovod's times: all communication overlapped across forward and backward.
HIDDEN = {"resnet50": 245.4, "densenet201": 264.1, "inceptionv4": 405.2, "bert-base": 745.8, "bert-large": 2289.0}
BACKWARD_SHARE = 2 / 3  # of the profiles' computation
# Steps enough for ten trials of one step each: about five a trial, with the agreement and settling.
TUNING_STEPS = 60
# Hosts, link, models; on four hosts two cores have four workers.
CASES = [(2, "1gbit", "resnet18,mlp"), (2, "10gbit", "resnet18,mlp"), (4, "1gbit", "resnet18"), (4, "10gbit", "resnet18")]
TRAINED = ["DDP", "skein allreduce", "skein allreduce, 4 MB", "skein dear", "skein dear, in clear as DDP"]


def run(skein, profile, network, strategy, iterations, **settings):
    arguments = ["--workers", str(WORKERS), "--gpus-per-host", "4", "--profile", profile, "--strategy", strategy,
                 "--network", f"{network}:chunk=512KB", "--iterations", str(iterations)]
    for key, value in settings.items():
        arguments += ["--set", f"strategy.{key}={value}"]
    return simulate(skein, *arguments)[0]


def fixed(skein, profile, network, strategy, fusion):
    """ms per iteration. One bucket per tensor costs many events, and the second step is already like all that follow."""
    return run(skein, profile, network, strategy, 2 if fusion == "none" else 3, fusion=fusion)["iteration_ms"]["p50"]


def tuned(skein, profile, network, **settings):
    """What the tuner ended with: bytes, ms per iteration, trials."""
    result = run(skein, profile, network, "dear", TUNING_STEPS, trial_steps=1, **settings)
    if not result["summary"].startswith("fusion tuned to"):
        raise SystemExit(f"{profile} on {network}: the tuner did not end in {TUNING_STEPS} steps: {result['summary']}")
    figures = result["figures"]
    times = {trial["bytes"]: trial["ms"] for trial in figures["fusion_curve"]}
    return figures["fusion_bytes"], times[figures["fusion_bytes"]], len(figures["fusion_curve"])


def possible(alone, parameters, bandwidth):
    forward, backward = alone * (1 - BACKWARD_SHARE), alone * BACKWARD_SHARE
    half = 4 * parameters * (WORKERS - 1) / WORKERS / bandwidth * 1e3
    return (forward + max(backward, 2 * half)) / (max(forward, half) + max(backward, half))


def measure(skein, profile, network):
    """All times of a profile on a network, and what follows from them."""
    began = time.monotonic()
    alone, _ = simulate(skein, "--workers", "1", "--profile", profile, "--iterations", "3")
    size, auto, _ = tuned(skein, profile, network)
    row = {"profile": profile, "network": network, "dear_auto_ms": auto, "dear_auto_bytes": size,
           "allreduce_auto_ms": fixed(skein, profile, network, "allreduce", int(size))}
    for strategy in ("allreduce", "dear"):
        for fusion in ("none", "25MB"):
            row[f"{strategy}_{fusion}_ms"] = fixed(skein, profile, network, strategy, fusion)
    for fusion in ("none", "25MB", "auto"):
        row[f"gain_{fusion}"] = row[f"allreduce_{fusion}_ms"] / row[f"dear_{fusion}_ms"]
    row["gain"] = min(row["allreduce_none_ms"], row["allreduce_25MB_ms"]) / auto
    row["possible"] = possible(alone["iteration_ms"]["p50"], alone["parameters"], NETWORKS[network])
    if network == "10gbe":
        row["gain_over_published"] = PUBLISHED[profile] / auto
        row["published_gain"] = PUBLISHED[profile] / HIDDEN[profile]
    row["wall_seconds"] = time.monotonic() - began
    return row


def simulated_lines(rows):
    keys = [f"{strategy}_{fusion}_ms" for strategy in ("allreduce", "dear") for fusion in ("none", "25MB", "auto")]
    lines = ["Milliseconds of an iteration:", "",
             *table(["network", "profile", "allreduce none", "25 MB", "at the tuned size", "dear none", "25 MB", "auto: tuned size"],
                    [[row["network"], row["profile"], *(f"{row[key]:.1f}" for key in keys[:-1]), f"{row[keys[-1]]:.1f}: {row['dear_auto_bytes'] / 2**20:.1f} MiB"] for row in rows])]
    keys = ("gain_none", "gain_25MB", "gain_auto", "possible", "gain", "gain_over_published", "published_gain")
    lines += ["", "How many times as long an iteration of `allreduce` is:", "",
              *table(["network", "profile", "both none", "both 25 MB", "both at the tuned size", "possible", "auto over the best of none, 25 MB", "auto over published Horovod", "published"],
                     [[row["network"], row["profile"], *(f"{row[key]:.2f}" if key in row else "–" for key in keys)] for row in rows])]
    for network, claim in CLAIMED.items():
        best = max((row for row in rows if row["network"] == network), key=lambda row: row["gain"], default=None)
        if best:
            lines += ["", f"{network}: up to {best['gain']:.2f} × ({best['profile']}) over the best `allreduce`; the paper: up to {claim} × over the best method before it."]
    return lines + ["", f"{sum(row['wall_seconds'] for row in rows) / 60:.0f} minutes of one core in all."]


def read(path):
    if not os.path.exists(path):
        return None
    with open(path) as file:
        return json.load(file)


def keep(path, figures):
    with open(path + ".tmp", "w") as file:
        json.dump(figures, file, indent=1)
    os.replace(path + ".tmp", path)


def simulated(options):
    path = os.path.join(options.out, "dear-simulated.json")
    known = {(row["profile"], row["network"]): row for row in read(path) or []}
    for case in ((profile, network) for network in NETWORKS for profile in PUBLISHED):
        if case not in known and not options.write_only:
            known[case] = measure(options.skein, *case)
            print(case, {key: round(value, 2) for key, value in known[case].items() if isinstance(value, float)}, flush=True)
            keep(path, list(known.values()))
    panels = {f"64 GPUs, {network}": {profile: [known[profile, network]["gain_auto"]] for profile in PUBLISHED if (profile, network) in known} for network in NETWORKS}
    picture = dots("allreduce over dear, times", panels, "how many times as long an iteration of allreduce is at equal buckets, simulated", low=0.9, shared=True, colour_of=lambda _: COLOURS[1])
    complete = len(known) == len(NETWORKS) * len(PUBLISHED)
    write_part(options.out, options.page, "dear-simulated", simulated_lines(list(known.values())), picture, complete)


def hosts(options):
    rows, complete, panels = [], True, {}
    for count, rate, parts in CASES:
        path = os.path.join(options.out, f"dear-hosts-{count}-{rate}.json")
        if not read(path) and not options.write_only:
            subprocess.run([sys.executable, os.path.join(ROOT, "bench/hosts.py"), os.path.join(ROOT, "build-pip/skein"), "--hosts", str(count), "--parts", parts, "--train-rate", rate,
                            "--rounds", "2", "--only", ";".join(TRAINED), "--json", path], check=True)
        figures = read(path)
        complete = complete and figures is not None
        for model, times in (figures or {"ms": {}})["ms"].items():
            best = {name: min(each) for name, each in times.items() if each}
            ratio = lambda name: f"{best['DDP'] / best[name]:.2f} ×" if "DDP" in best and name in best else "–"
            own = min(best.get("skein allreduce", math.inf), best.get("skein allreduce, 4 MB", math.inf))
            rows.append([f"{count}, {rate.replace('gbit', ' Gb/s')}", model, *(f"{best[name]:.0f}" if name in best else "–" for name in [*TRAINED, "bound of dear"]),
                         ratio("skein dear"), ratio("skein dear, in clear as DDP"), ratio("bound of dear"), f"{own / best['skein dear']:.2f} ×"])
            panels[f"{count} hosts, {rate.replace('gbit', ' Gb/s')}, {model}"] = {name.replace("skein ", ""): times.get(name) or [] for name in TRAINED}
    lines = table(["hosts, link", "model", "DDP", "`allreduce`", "with 4 MB", "`dear`", "`dear`, in clear", "bound of `dear`", "`dear` over DDP", "in clear", "its bound allows", "over the better `allreduce`"], rows)
    lines += ["", "Milliseconds of a step, the best of the medians of runs in turns (points of the picture); DDP is PyTorch 2.13 with Gloo, which does not encrypt; Skein does unless it says otherwise."]
    picture = dots("A step on hosts", panels, "milliseconds of a step; a point is the median of a run, a bar the median of these", colour_of=lambda name: COLOURS[1] if name.startswith("dear") else COLOURS[0])
    write_part(options.out, options.page, "dear-hosts", lines, picture, complete)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("skein", nargs="?", default=os.path.join(ROOT, "build/skein"))
    parser.add_argument("--parts", default="simulated,hosts")
    parser.add_argument("--out", default=os.path.join(ROOT, "out/papers"))
    parser.add_argument("--page", default=os.path.join(ROOT, "docs/papers.md"))
    parser.add_argument("--write-only", action="store_true", help="measure nothing: the tables of what is known")
    options = parser.parse_args()
    parts = {"simulated": simulated, "hosts": hosts}
    for part in options.parts.split(","):
        if part not in parts:
            parser.error(f"--parts {part}: expected some of {', '.join(parts)}")
    os.makedirs(options.out, exist_ok=True)
    for part in options.parts.split(","):
        parts[part](options)


if __name__ == "__main__":
    main()
