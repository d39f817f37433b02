#!/usr/bin/env python3
"""Training on one GPU: what Skein costs one worker beside a bare LibTorch loop and PyTorch's DistributedDataParallel of one
process, and four worker processes that share the GPU. Three minutes.

usage: bench/gpu.py [--build build-gpu] [--json gpu.json] [--seconds 1] [--only one,ddp,four] [--toy]

--toy: small models on the CPU, to try the script itself. The Python that runs this must have torch.
"""
import argparse
import json
import os
import shlex
import subprocess
import sys
import tempfile
import time

STRATEGIES = ["allreduce", "dear", "abs", "local", "lasgd", "gossip", "acid"]
HERE = os.path.dirname(os.path.abspath(__file__))


def run(words, commands):
    commands.append(shlex.join(words))
    print("$", commands[-1], flush=True)
    return subprocess.run(words).returncode


def measured(words, out, commands):
    """What a program leaves in `out`; none, and a word about it, when it fails."""
    code = run(words, commands)
    if code == 0 and os.path.exists(out):
        with open(out) as file:
            return json.load(file)
    print(f"failed with {code}", flush=True)
    return {"failed": code}


def four_workers(skein, folder, toy, commands):
    job = ["--model", "resnet18", "--data", "glyphs", "--set", f"data.test={20 if toy else 500}", "--precision", "bf16", "--lr", "0.02"]
    size = 2 if toy else 32
    steps = 2 if toy else 60
    rows = []
    for workers, batch, names in ((1, 4 * size, ["allreduce"]), (4, size, STRATEGIES)):
        for strategy in names:
            out = os.path.join(folder, f"{workers}-{strategy}.json")
            words = [skein, "train", "--quiet", "--device", "cpu" if toy else "cuda", "--workers", str(workers), "--strategy", strategy, *job,
                     "--batch", str(batch), "--samples", str(steps * 4 * size), "--json", out]
            run_json = measured(words, out, commands)
            if "failed" in run_json:
                rows.append({"workers": workers, "strategy": strategy, **run_json})
                continue
            rows.append({key: run_json[key] for key in ("workers", "strategy", "samples_per_second", "iteration_ms", "accuracy", "startup_seconds")}
                        | {"batch": batch, "device_memory_bytes": run_json.get("device_memory_bytes", 0)})
    print(f"\nresnet18 on glyphs, bf16, a global batch of {4 * size}: workers that share a GPU")
    print(f"{'workers':>8}  {'strategy':<10}{'samples/s':>12}{'iteration ms':>14}{'GPU memory':>14}")
    for row in rows:
        if "failed" in row:
            print(f"{row['workers']:>8}  {row['strategy']:<10}failed")
        else:
            print(f"{row['workers']:>8}  {row['strategy']:<10}{row['samples_per_second']:>12.0f}{row['iteration_ms']['p50']:>14.2f}"
                  f"{row['device_memory_bytes'] / 1e9:>11.1f} GB")
    return rows


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--build", default="build-gpu")
    parser.add_argument("--json", default="")
    parser.add_argument("--seconds", default="1")
    parser.add_argument("--only", default="one,ddp,four")
    parser.add_argument("--toy", action="store_true")
    options = parser.parse_args()
    toy = ["toy"] if options.toy else []
    parts, commands, result = options.only.split(","), [], {}
    begin = time.time()
    with tempfile.TemporaryDirectory() as folder:
        if "one" in parts:
            out = os.path.join(folder, "one.json")
            result["one_worker"] = measured([os.path.join(options.build, "bench/bench_gpu"), options.seconds, out, *toy], out, commands)
        if "ddp" in parts:
            out = os.path.join(folder, "ddp.json")
            result["ddp"] = measured([sys.executable, os.path.join(HERE, "ddp_gpu.py"), options.seconds, out, *toy], out, commands)
        if "four" in parts:
            result["four_workers"] = four_workers(os.path.join(options.build, "skein"), folder, options.toy, commands)
    result |= {"commands": commands, "seconds": time.time() - begin}
    if options.json:
        with open(options.json, "w") as file:
            json.dump(result, file, indent=1)
    print(f"{result['seconds']:.0f} s")


if __name__ == "__main__":
    main()
