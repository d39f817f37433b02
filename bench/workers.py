#!/usr/bin/env python3
"""How iterations grow with the workers of one host, beside PyTorch's DistributedDataParallel with Gloo.

    bench/workers.py [--skein build/skein] [--python python3] [--workers 2,8,16] [--batch 8] [--rounds 2] [--json FILE]

resnet18, one thread a worker, the fabrics local and mpi; everything in turns. With no more workers than cores. A table of
milliseconds per iteration of a worker, medians over the rounds, and of samples/s of all. --python: one that has torch.
"""
import argparse
import json
import os
import pathlib
import socket
import statistics
import subprocess
import sys
import tempfile

HERE = pathlib.Path(__file__).resolve().parent
STRATEGIES = ["allreduce", "dear", "lasgd", "acid"]
ENVIRONMENT = dict(os.environ, OMP_NUM_THREADS="1", OMPI_ALLOW_RUN_AS_ROOT="1", OMPI_ALLOW_RUN_AS_ROOT_CONFIRM="1",
                   OMPI_MCA_rmaps_base_oversubscribe="1")


def ddp(options, workers, out):
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    command = [options.python, str(HERE / "ddp_worker.py"), "resnet18", str(options.batch), str(options.steps), "none", str(out)]
    processes = [subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True,
                                  env=dict(ENVIRONMENT, RANK=str(rank), WORLD_SIZE=str(workers), MASTER_ADDR="127.0.0.1",
                                           MASTER_PORT=str(port), GLOO_SOCKET_IFNAME="lo"))
                 for rank in range(workers)]
    for process in processes:
        _, errors = process.communicate(timeout=300)
        if process.returncode != 0:
            raise RuntimeError(errors[-400:])
    ms = json.loads(out.read_text())["ms"]
    return ms, 1e3 * workers * options.batch / ms


def skein(options, strategy, fabric, workers, out):
    samples = options.steps * workers * options.batch
    command = [options.skein, "train", "--model", "resnet18", "--data", "glyphs", "--strategy", strategy, "--batch", str(options.batch),
               "--samples", str(samples), "--lr", "0.01", "--device", "cpu", "--set", "data.test=16",
               "--fabric", fabric, "--quiet", "--json", str(out)]
    start = ["mpirun", "--bind-to", "none", "-n", str(workers)] if fabric == "mpi" else []
    result = subprocess.run(start + command + ([] if start else ["--workers", str(workers)]), capture_output=True, text=True,
                            timeout=300, env=ENVIRONMENT)
    if result.returncode != 0:
        raise RuntimeError(result.stderr[-400:])
    found = json.loads(out.read_text())
    ms = found["iteration_ms"]["p50"]
    # All have their share of the same samples, so this is their rate while all compute.
    return ms, 1e3 * workers * options.batch / ms


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--skein", default="build/skein")
    parser.add_argument("--python", default=sys.executable)
    parser.add_argument("--workers", default="2,8,16")
    parser.add_argument("--fabrics", default="local,mpi")
    parser.add_argument("--batch", type=int, default=8)
    parser.add_argument("--steps", type=int, default=20)
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--json")
    options = parser.parse_args()
    counts = [int(each) for each in options.workers.split(",")]
    names = ["DDP, Gloo"] + [f"{strategy}, {fabric}" for fabric in options.fabrics.split(",") for strategy in STRATEGIES]
    found, failed = {}, False
    with tempfile.TemporaryDirectory() as folder:
        for _ in range(options.rounds):
            for workers in counts:
                for name in names:
                    out = pathlib.Path(folder, "out.json")
                    try:
                        strategy, fabric = name.split(", ")
                        result = ddp(options, workers, out) if strategy == "DDP" else skein(options, strategy, fabric, workers, out)
                        found.setdefault((name, workers), []).append(result)
                        print(f"{name}, {workers} workers: {result[0]:.1f} ms", file=sys.stderr, flush=True)
                    except (RuntimeError, OSError, subprocess.SubprocessError) as error:
                        print(f"{name}, {workers} workers: {error}", flush=True)
                        failed = True
    print(f"resnet18, batch {options.batch} each, ms per iteration (samples/s of all), medians of {options.rounds} runs, {os.cpu_count()} cores")
    print(f"{'':<18}" + "".join(f"{f'{count} workers':>22}" for count in counts))
    rows = []
    for name in names:
        cells = ""
        for workers in counts:
            results = found.get((name, workers))
            if not results:
                cells += f"{'-':>22}"
                continue
            ms, rate = (statistics.median(each) for each in zip(*results))
            rows.append({"name": name, "workers": workers, "ms": ms, "samples_per_second": rate, "runs_ms": [each[0] for each in results]})
            cells += f"{f'{ms:.0f} ({rate:.0f})':>22}"
        print(f"{name:<18}{cells}")
    if options.json:
        pathlib.Path(options.json).write_text(json.dumps(rows, indent=2) + "\n")
    sys.exit(1 if failed else 0)


if __name__ == "__main__":
    main()
