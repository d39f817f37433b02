#!/usr/bin/env python3
"""How well the virtual cluster predicts real runs: profiles a model on this machine, then trains it on an emulated link
and simulates the same run. Budget: iteration times within 10 %.

usage: bench/predict.py build/skein
"""
import json
import os
import subprocess
import sys
import tempfile

BUDGET = 0.10
# model, batch, step that four workers on two cores can keep, links
CASES = [("mlp", 32, "60ms", ("100mbit", "1gbit")), ("resnet18", 8, "1500ms", ("200mbit", "1gbit"))]
STEPS = 12


def run(skein, folder, *arguments):
    out = os.path.join(folder, "out.json")
    subprocess.run([skein, *arguments, "--quiet", "--json", out], check=True, stdout=subprocess.DEVNULL)
    with open(out) as file:
        return json.load(file)


def main():
    skein = sys.argv[1] if len(sys.argv) > 1 else "build/skein"
    print(f"{'model':<10}{'workers':>8}{'link':>10}{'compute':>12}{'real ms':>10}{'simulated':>11}{'error':>9}")
    worst = 0
    with tempfile.TemporaryDirectory() as folder:
        for model, batch, step, links in CASES:
            for workers in (2, 4):
                profile = os.path.join(folder, "profile.json")
                run(skein, folder, "profile", "--model", model, "--batch", str(batch), "--workers", "2", "--pause", "20ms",
                    "--out", profile)
                # Two cores cannot compute for four workers at once: there the computation is emulated in both worlds.
                pace = ["--emulate-step", step] if workers > 2 else []
                for link in links:
                    shared = ["--workers", str(workers), "--batch", str(batch), "--samples", str(STEPS * batch * workers),
                              "--emulate-link", link, *pace]
                    real = run(skein, folder, "train", "--model", model, "--data", "glyphs", *shared)["iteration_ms"]["p50"]
                    simulated = run(skein, folder, "simulate", "--profile", profile, *shared)["iteration_ms"]["p50"]
                    error = simulated / real - 1
                    worst = max(worst, abs(error))
                    print(f"{model:<10}{workers:>8}{link:>10}{'emulated' if pace else 'real':>12}{real:>10.1f}{simulated:>11.1f}"
                          f"{error:>+9.1%}", flush=True)
    print(f"largest error {worst:.1%}: budget <= {BUDGET:.0%}: {'ok' if worst <= BUDGET else 'MISSED'}")


if __name__ == "__main__":
    main()
