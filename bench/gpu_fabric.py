#!/usr/bin/env python3
"""Skein's local fabric on a GPU beside NCCL, among as many processes, in turns.

    bench/gpu_fabric.py [--skein build/skein] [--workers 4] [--bytes 25MB,4KB] [--rounds 3] [--json FILE]

Needs a GPU and a Python that has PyTorch with NCCL. Medians of each run, then the median over the rounds.
"""
import argparse
import json
import os
import pathlib
import statistics
import subprocess
import sys
import tempfile

HERE = pathlib.Path(__file__).resolve().parent
UNITS = {"KB": 1000, "MB": 1000**2, "GB": 1000**3}


def to_bytes(text):
    for unit, factor in UNITS.items():
        if text.upper().endswith(unit):
            return int(float(text[: -len(unit)]) * factor)
    return int(text)


def skein(options, size, folder):
    path = pathlib.Path(folder, "skein.json")
    command = [options.skein, "bench", "fabric", "--device", "cuda", "--workers", str(options.workers), "--bytes",
               size, "--repeat", str(options.repeat), "--quiet", "--json", str(path)]
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL, timeout=120)
    found = json.loads(path.read_text())
    return {each["name"]: each["p50_ms"] for each in found["operations"]}, command


def nccl(options, size, folder, port):
    path = pathlib.Path(folder, "nccl.json")
    command = [sys.executable, str(HERE / "nccl_worker.py"), str(to_bytes(size)), str(options.repeat), str(path)]
    workers = []
    for rank in range(options.workers):
        environment = dict(os.environ, RANK=str(rank), WORLD_SIZE=str(options.workers), MASTER_ADDR="127.0.0.1",
                           MASTER_PORT=str(port), OMP_NUM_THREADS="1")
        workers.append(subprocess.Popen(command, env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE))
    for worker in workers:
        _, errors = worker.communicate(timeout=120)
        if worker.returncode != 0:
            raise RuntimeError(f"NCCL's worker: {errors.decode()[-800:]}")
    found = json.loads(path.read_text())
    return {name: each["p50_ms"] for name, each in found["operations"].items()}, command


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--skein", default="build/skein")
    parser.add_argument("--workers", type=int, default=4)
    parser.add_argument("--bytes", default="25MB,4KB")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--repeat", type=int, default=30, help="of each operation in a run")
    parser.add_argument("--json")
    options = parser.parse_args()
    rows, commands = [], {}
    with tempfile.TemporaryDirectory() as folder:
        for size in options.bytes.split(","):
            times = {"skein": {}, "nccl": {}}
            for turn in range(options.rounds):
                runs = {"skein": lambda: skein(options, size, folder),
                        "nccl": lambda: nccl(options, size, folder, 29500 + turn)}
                for name, run in runs.items():
                    found, command = run()
                    commands[name] = " ".join(command)
                    for operation, ms in found.items():
                        times[name].setdefault(operation, []).append(ms)
            print(f"{options.workers} processes on one GPU, {size}, {options.rounds} rounds, medians")
            print(f"{'operation':<16}{'Skein ms':>10}{'NCCL ms':>10}{'NCCL/Skein':>12}")
            for operation, found in times["skein"].items():
                own = statistics.median(found)
                row = {"bytes": size, "operation": operation, "skein_ms": own}
                if operation in times["nccl"]:
                    row["nccl_ms"] = statistics.median(times["nccl"][operation])
                    print(f"{operation:<16}{own:>10.3f}{row['nccl_ms']:>10.3f}{row['nccl_ms'] / own:>12.2f}")
                else:
                    print(f"{operation:<16}{own:>10.3f}{'-':>10}{'-':>12}")
                rows.append(row)
    if options.json:
        pathlib.Path(options.json).write_text(json.dumps({"rows": rows, "commands": commands}, indent=2) + "\n")


main()
