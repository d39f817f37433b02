#!/usr/bin/env python3
"""`dear` beside `allreduce` and beside its bound, on two workers whose link is the limit.

The bound is max(t_ff, t_ag) + max(t_bp, t_rs) + t_opt/N with t_ff, t_bp, t_opt as `skein profile` measures them on two
workers at once, and t_ag = t_rs from the bytes that a worker sends and the link's rate. Budget: at most 1.05 x the bound.

usage: bench/dear.py build/skein
"""
import json
import os
import subprocess
import sys
import tempfile

BUDGET = 1.05
LINK = "1gbit"
BYTES_PER_SECOND = 125e6
WORKERS = 2
# name, model options, batch, steps
CASES = [
    ("resnet18, batch 8", ["--model", "resnet18"], 8, 25),
    ("mlp 2048 wide, batch 32", ["--model", "mlp", "--set", "model.width=2048"], 32, 40),
    ("mlp 2048 x 6, batch 32", ["--model", "mlp", "--set", "model.width=2048", "--set", "model.depth=6"], 32, 20),
]


def run(skein, folder, *arguments):
    out = os.path.join(folder, "out.json")
    subprocess.run([skein, *arguments, "--quiet", "--json", out], check=True, stdout=subprocess.DEVNULL)
    with open(out) as file:
        return json.load(file)


def train(skein, folder, strategy, model, batch, steps):
    return run(skein, folder, "train", "--workers", str(WORKERS), "--strategy", strategy, "--data", "glyphs", *model, "--batch", str(batch),
               "--samples", str(steps * batch * WORKERS), "--lr", "0.01", "--emulate-link", LINK, "--set", "strategy.fusion=4MB")


def main():
    skein = sys.argv[1] if len(sys.argv) > 1 else "build/skein"
    print(f"{WORKERS} workers, {LINK}, buckets of 4 MB, ms per iteration; the best of two runs each, taken in turns")
    print(f"{'model':<26}{'t_ff':>7}{'t_bp':>7}{'t_opt':>7}{'t_rs':>8}{'bound':>8}{'dear':>8}{'ratio':>8}{'allreduce':>11}{'gain':>8}{'possible':>10}")
    worst = 0
    with tempfile.TemporaryDirectory() as folder:
        for name, model, batch, steps in CASES:
            times = run(skein, folder, "profile", *model, "--batch", str(batch), "--workers", str(WORKERS), "--pause", "20ms")
            forward, backward, update = (times[key] for key in ("forward_ms", "backward_ms", "update_ms"))
            best = {}
            for _ in range(2):
                for strategy in ("allreduce", "dear"):
                    result = train(skein, folder, strategy, model, batch, steps)
                    time = result["iteration_ms"]["p50"]
                    best[strategy] = min(time, best.get(strategy, time))
                    half = result["bytes_sent"] / WORKERS / result["iterations"] / BYTES_PER_SECOND * 1e3 / 2
            bound = max(forward, half) + max(backward, half) + update / WORKERS
            ideal = forward + max(backward, 2 * half) + update
            ratio = best["dear"] / bound
            worst = max(worst, ratio)
            print(f"{name:<26}{forward:>7.1f}{backward:>7.1f}{update:>7.1f}{half:>8.1f}{bound:>8.1f}{best['dear']:>8.1f}{ratio:>6.2f} x"
                  f"{best['allreduce']:>11.1f}{best['allreduce'] / best['dear']:>6.2f} x{ideal / bound:>8.2f} x", flush=True)
    print(f"dear over its bound: budget <= {BUDGET} x: {worst:.2f} x {'ok' if worst <= BUDGET else 'MISSED'}")


if __name__ == "__main__":
    main()
