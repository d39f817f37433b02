#!/usr/bin/env python3
"""`dear` beside `allreduce` on 64 virtual workers, 4 per host: five published profiles, two networks.

usage: bench/dear_simulated.py build/skein [--json FILE]

The time of `dear` with `auto` is that of the size the tuner ended with, not a median over its trials.
`possible` is what the schedule can gain over an allreduce that is ideal as well, without latency:
(t_ff + max(t_bp, t_ar)) / (max(t_ff, t_ar/2) + max(t_bp, t_ar/2)).
`published` is Horovod's time over that of a scheme which overlaps all communication. About seven minutes.
"""
import argparse
import json
import sys

sys.dont_write_bytecode = True  # the import leaves nothing behind
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
    return row


def print_times(rows):
    print("| network | profile | allreduce none | 25 MB | at the tuned size | dear none | 25 MB | auto: tuned size |")
    print("|---|---|---|---|---|---|---|---|")
    keys = [f"{strategy}_{fusion}_ms" for strategy in ("allreduce", "dear") for fusion in ("none", "25MB", "auto")]
    for row in rows:
        times = " | ".join(f"{row[key]:.1f}" for key in keys)
        print(f"| {row['network']} | {row['profile']} | {times}: {row['dear_auto_bytes'] / 2**20:.1f} MiB |", flush=True)
        yield row


def print_gains(rows):
    print("| network | profile | both none | both 25 MB | both at the tuned size | possible | auto over the best of none, 25 MB "
          "| auto over published Horovod | published |")
    print("|---|---|---|---|---|---|---|---|---|")
    keys = ("gain_none", "gain_25MB", "gain_auto", "possible", "gain", "gain_over_published", "published_gain")
    for row in rows:
        gains = " | ".join(f"{row[key]:.2f}" if key in row else "–" for key in keys)
        print(f"| {row['network']} | {row['profile']} | {gains} |")
    for network, claim in CLAIMED.items():
        best = max((row for row in rows if row["network"] == network), key=lambda row: row["gain"])
        print(f"\n{network}: up to {best['gain']:.2f} x ({best['profile']}) over the best allreduce; "
              f"the paper: up to {claim} x over the best method before it")


def main():
    parser = argparse.ArgumentParser(description="dear beside allreduce on the virtual cluster")
    parser.add_argument("skein", nargs="?", default="build/skein")
    parser.add_argument("--json", metavar="FILE", help="write every figure")
    arguments = parser.parse_args()
    print(f"{WORKERS} workers, 4 per host, ms per iteration")
    cases = [(profile, network) for network in NETWORKS for profile in PUBLISHED]
    rows = list(print_times(measure(arguments.skein, *case) for case in cases))
    print("\nallreduce over dear, times")
    print_gains(rows)
    if arguments.json:
        with open(arguments.json, "w") as file:
            json.dump({"workers": WORKERS, "claimed": CLAIMED, "rows": rows}, file, indent=2)


if __name__ == "__main__":
    main()
