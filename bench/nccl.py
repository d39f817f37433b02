#!/usr/bin/env python3
"""Skein's nccl fabric on a GPU: beside raw NCCL, under every strategy, and when a rank is killed.

    bench/nccl.py [--skein build-gpu/skein] [--workers 4] [--parts fabric,strategies,killed] [--json FILE]

    fabric      each operation beside NCCL's own, in turns: milliseconds, and what ours takes longer, in microseconds
    strategies  samples/s of each on 4 workers, beside the local fabric
    killed      SIGKILL to the last rank of a run: seconds until every other has ended with its error

Needs one GPU or more, libnccl.so.2 where the dynamic linker or SKEIN_NCCL finds it (that of PyTorch is tried), and, for
`fabric`, a Python with PyTorch. Workers that share a GPU call themselves hosts (NCCL_HOSTID), as NCCL wants it.
On a machine without a network: TARGETS=skein LABELS=none tests/gpu/run.sh, then bench/nccl.py. About five minutes.
"""
import argparse
import glob
import json
import os
import pathlib
import signal
import socket
import statistics
import subprocess
import sys
import tempfile
import time

HERE = pathlib.Path(__file__).resolve().parent
STRATEGIES = ["allreduce", "dear", "local", "lasgd", "abs", "gossip", "acid"]


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def find_nccl():
    """PyTorch's own NCCL, where none is installed."""
    if os.environ.get("SKEIN_NCCL"):
        return os.environ["SKEIN_NCCL"]
    for folder in sys.path:
        for path in glob.glob(os.path.join(folder, "nvidia", "nccl", "lib", "libnccl.so.2")):
            return path
    return ""


class Workers:
    """Processes of one run, as torchrun would start them."""

    def __init__(self, count, command):
        port = free_port()
        self.processes, self.logs = [], []
        for rank in range(count):
            environment = dict(os.environ, RANK=str(rank), WORLD_SIZE=str(count), LOCAL_RANK=str(rank),
                               LOCAL_WORLD_SIZE=str(count), MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port),
                               NCCL_HOSTID=f"host{rank}", OMP_NUM_THREADS="1")
            environment.setdefault("NCCL_SOCKET_IFNAME", "lo")
            if find_nccl():
                environment["SKEIN_NCCL"] = find_nccl()
            log = tempfile.TemporaryFile("w+")
            self.logs.append(log)
            self.processes.append(subprocess.Popen(command, env=environment, stdout=log, stderr=log))

    def errors(self, rank):
        self.logs[rank].seek(0)
        return self.logs[rank].read()

    def wait(self, limit):
        end = time.monotonic() + limit
        for rank, process in enumerate(self.processes):
            try:
                process.wait(max(0.1, end - time.monotonic()))
            except subprocess.TimeoutExpired:
                self.stop()
                raise RuntimeError(f"rank {rank} is still running after {limit} s: {self.errors(rank)[-800:]}")
            if process.returncode != 0:
                self.stop()
                raise RuntimeError(f"rank {rank}: {self.errors(rank)[-800:]}")

    def stop(self):
        for process in self.processes:
            if process.poll() is None:
                process.kill()
                process.wait()


def bench_fabric(options, fabric, size, folder):
    path = pathlib.Path(folder, "skein.json")
    command = [options.skein, "bench", "fabric", "--fabric", fabric, "--device", options.device, "--bytes", size, "--repeat",
               str(options.repeat), "--quiet", "--json", str(path)]
    Workers(options.workers, command).wait(240)
    return {each["name"]: each["p50_ms"] for each in json.loads(path.read_text())["operations"]}


def raw_nccl(options, size, folder):
    path = pathlib.Path(folder, "nccl.json")
    sys.path.insert(0, str(HERE))
    count = int(float(size[:-2]) * {"KB": 1000, "MB": 1000**2}[size[-2:]])
    Workers(options.workers, [sys.executable, str(HERE / "nccl_worker.py"), str(count), str(options.repeat), str(path)]).wait(240)
    return {name: each["p50_ms"] for name, each in json.loads(path.read_text())["operations"].items()}


def fabric_part(options, folder):
    rows = []
    for size in options.bytes.split(","):
        times = {"skein": {}, "nccl": {}}
        for _ in range(options.rounds):
            for name, found in (("skein", bench_fabric(options, "nccl", size, folder)), ("nccl", raw_nccl(options, size, folder))):
                for operation, ms in found.items():
                    times[name].setdefault(operation, []).append(ms)
        median = {name: {op: statistics.median(all_) for op, all_ in found.items()} for name, found in times.items()}
        # Ours is a reduce-scatter and an all-gather: what NCCL's own two take, one after the other, is beside it too.
        print(f"{options.workers} processes, {size}, {options.rounds} rounds, medians")
        print(f"{'operation':<18}{'Skein ms':>10}{'NCCL ms':>10}{'overhead µs':>13}{'NCCL rs+ag ms':>15}{'overhead µs':>13}")
        for operation, own in median["skein"].items():
            raw = median["nccl"].get(operation)
            both = median["nccl"].get("both") if operation == "all_reduce" else None
            row = {"bytes": size, "operation": operation, "skein_ms": own, "nccl_ms": raw, "nccl_both_ms": both}
            cells = [f"{operation:<18}{own:>10.3f}"]
            for beside, width in ((raw, 10), (both, 15)):
                cells.append(f"{beside:>{width}.3f}{1e3 * (own - beside):>13.1f}" if beside else f"{'-':>{width}}{'-':>13}")
            print("".join(cells), flush=True)
            rows.append(row)
    return rows


def train(options, strategy, fabric, folder, samples):
    path = pathlib.Path(folder, f"{strategy}-{fabric}.json")
    command = [options.skein, "train", "--fabric", fabric, "--device", options.device, "--data", "glyphs", "--model", "cnn",
               "--strategy", strategy, "--samples", str(samples), "--batch", "64", "--quiet", "--deadline", "30s", "--json", str(path)]
    Workers(options.workers, command).wait(240)
    return json.loads(path.read_text())


def strategies_part(options, folder):
    print(f"{'strategy':<12}{'nccl samples/s':>16}{'local samples/s':>17}{'nccl loss':>11}{'local loss':>12}")
    rows = []
    for strategy in STRATEGIES:
        found = {fabric: train(options, strategy, fabric, folder, options.samples) for fabric in ("nccl", "local")}
        row = {"strategy": strategy}
        for fabric, result in found.items():
            row[f"{fabric}_samples_per_second"] = result.get("samples_per_second")
            row[f"{fabric}_loss"] = result.get("loss", result.get("final_loss"))
        print(f"{strategy:<12}" + "".join(f"{row[key]:>{width}.{digits}f}" if row[key] is not None else f"{'-':>{width}}"
                                          for key, width, digits in (("nccl_samples_per_second", 16, 0), ("local_samples_per_second", 17, 0),
                                                                     ("nccl_loss", 11, 3), ("local_loss", 12, 3))), flush=True)
        rows.append(row)
    return rows


def killed_part(options, _):
    rows = []
    for strategy in ("allreduce", "dear"):
        command = [options.skein, "train", "--fabric", "nccl", "--device", options.device, "--data", "glyphs", "--model", "cnn",
                   "--strategy", strategy, "--samples", "100000000", "--batch", "64", "--quiet", "--deadline", "30s"]
        workers = Workers(options.workers, command)
        time.sleep(options.before_kill)
        for rank, process in enumerate(workers.processes):
            if process.poll() is not None:
                raise RuntimeError(f"rank {rank} ended before the kill: {workers.errors(rank)[-800:]}")
        begin = time.monotonic()
        workers.processes[-1].send_signal(signal.SIGKILL)
        ends = {}
        while len(ends) < options.workers - 1 and time.monotonic() - begin < 60:
            for rank, process in enumerate(workers.processes[:-1]):
                if rank not in ends and process.poll() is not None:
                    ends[rank] = time.monotonic() - begin
            time.sleep(0.01)
        workers.stop()
        print(f"{strategy}: rank {options.workers - 1} killed")
        for rank in range(options.workers - 1):
            said = workers.errors(rank).strip().splitlines()
            print(f"  rank {rank}: " + (f"{ends[rank]:.2f} s, exit {workers.processes[rank].returncode}: {said[-1] if said else ''}"
                                        if rank in ends else "still running after 60 s"), flush=True)
        rows.append({"strategy": strategy, "seconds": [ends.get(rank) for rank in range(options.workers - 1)]})
    return rows


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--skein", default="build-gpu/skein")
    parser.add_argument("--workers", type=int, default=4)
    parser.add_argument("--device", default="cuda", help="cuda: the host's GPUs in turn")
    parser.add_argument("--parts", default="fabric,strategies,killed")
    parser.add_argument("--bytes", default="4KB,1MB,25MB")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--repeat", type=int, default=30, help="of each operation in a run")
    parser.add_argument("--samples", type=int, default=16384)
    parser.add_argument("--before-kill", type=float, default=20, help="seconds of training")
    parser.add_argument("--json")
    options = parser.parse_args()
    parts = {"fabric": fabric_part, "strategies": strategies_part, "killed": killed_part}
    results, failed = {}, False
    with tempfile.TemporaryDirectory() as folder:
        for name in options.parts.split(","):
            try:
                results[name] = parts[name](options, folder)
            except (RuntimeError, OSError, ValueError, KeyError) as error:
                print(f"{name}: {error}", flush=True)
                results[name], failed = str(error), True
    if options.json:
        pathlib.Path(options.json).write_text(json.dumps(results, indent=2) + "\n")
    sys.exit(1 if failed else 0)


if __name__ == "__main__":
    main()
