#!/usr/bin/env python3
"""The virtual cluster on a GPU: samples per real second of many virtual workers beside plain training there, and memory.

usage: bench/virtual_gpu.py build/skein cifar10:DIR [--device cuda:0] [--model resnet18] [--batch 32] [--workers 16,64]
                            [--steps 12] [--strategies allreduce,acid]

A row is the difference of two runs, of 2 x STEPS and of STEPS steps after the first six: what is done once, data, models and
recording, is in neither. Messages travel whole (chunk=none), computation takes 40 virtual ms.
"""
import argparse
import json
import os
import subprocess
import sys
import tempfile


def run(skein, *arguments):
    with tempfile.TemporaryDirectory() as folder:
        out = os.path.join(folder, "out.json")
        command = [skein, *arguments, "--quiet", "--json", out]
        done = subprocess.run(command, stdout=subprocess.DEVNULL)
        if done.returncode != 0:
            sys.exit(f"failed: {' '.join(command)}")
        with open(out) as file:
            return json.load(file)


def plain(options, *more):
    """Training as skein train does it, alone."""
    samples = options.batch * max(200, 8 * options.steps)
    result = run(options.skein, "train", "--device", options.device, "--workers", "1", "--model", options.model, "--data", options.data,
                 "--batch", str(options.batch), "--samples", str(samples), *more)
    return result["samples_per_second"], result.get("device_memory_bytes", 0)


def virtual(options, strategy, workers, *more):
    def once(steps):
        return run(options.skein, "simulate", "--objective", "model", "--device", options.device, "--model", options.model, "--data",
                   options.data, "--workers", str(workers), "--batch", str(options.batch), "--strategy", strategy,
                   "--network", "10gbe:chunk=none", "--emulate-step", "40ms", "--iterations", str(steps), "--observe-every", "100000s", *more)
    short, long = once(6 + options.steps), once(6 + 2 * options.steps)
    speed = (long["samples"] - short["samples"]) / max(1e-9, long["wall_seconds"] - short["wall_seconds"])
    return speed, long.get("device_memory_bytes", 0), long["trace_hash"]


def main():
    parser = argparse.ArgumentParser(usage=__doc__)
    parser.add_argument("skein")
    parser.add_argument("data")
    parser.add_argument("--device", default="cuda:0")
    parser.add_argument("--model", default="resnet18")
    parser.add_argument("--batch", type=int, default=32)
    parser.add_argument("--workers", default="16,64")
    parser.add_argument("--steps", type=int, default=12)
    parser.add_argument("--strategies", default="allreduce,acid")
    options = parser.parse_args()
    print(f"{options.model}, {options.data.split(':')[0]}, batch {options.batch} of each worker, {options.device}")
    print(f"{'':<34}{'samples/s':>10}{'beside plain':>14}{'GB':>8}  trace hash")
    base = 0
    for name, more in (("plain training", []), ("plain training, --deterministic", ["--deterministic"])):
        speed, memory = plain(options, *more)
        base = base or speed
        print(f"{name:<34}{speed:>10.0f}{speed / base:>13.2f}x{memory / 1e9:>8.2f}", flush=True)
    for workers in (int(word) for word in options.workers.split(",")):
        for strategy in options.strategies.split(","):
            for graphs in ("on", "off"):
                speed, memory, trace = virtual(options, strategy, workers, "--graphs", graphs)
                name = f"{workers} x {strategy}{'' if graphs == 'on' else ', --graphs off'}"
                print(f"{name:<34}{speed:>10.0f}{speed / base:>13.2f}x{memory / 1e9:>8.2f}  {trace}", flush=True)


main()
