#!/usr/bin/env python3
"""The tcp fabric on two hosts or more (network namespaces) with limited links, beside what others use: Gloo and Open MPI for vectors, PyTorch's DistributedDataParallel with Gloo for training.

All are run in turns, round after round; the best median of the rounds counts, and --json has all of them, with the commands. The bound of dear is max(t_ff, t_ag) + max(t_bp, t_rs) + t_opt/N as in
dear.py. Processor time of a byte is that of both hosts together, from the difference between a long run and a short one: what a program needs to start is not in it.
Needs root, iproute2 and a Python with torch (and, for PowerSGD, numpy); Open MPI (mpicc, mpirun) and Debian's python3-torch where they are to be compared. What does not run says why.

usage: bench/hosts.py build-pip/skein [--python build-pip/venv/bin/python] [--debian-skein build/skein] [--rates 1gbit,10gbit,none] [--rounds 2] [--parts vectors,cost,resnet18,mlp] [--json FILE]
       --hosts 4 --parts resnet18: so many hosts, for training alone
       --only "DDP;skein allreduce;skein dear": of those that train, these
"""
import argparse
import json
import os
import resource
import shutil
import subprocess
import tempfile

HERE = os.path.dirname(os.path.abspath(__file__))
ON_HOSTS = os.path.join(HERE, "../tests/hosts/on_hosts.sh")
LONGEST_S = 240  # a run of any of them
SIZES = {"25MB": (25_000_000, 20), "4KB": (4096, 300)}  # bytes, rounds
GAIN, NO_LOSS = 1.3, 1.0  # dear over DDP: where its bound allows so much, and everywhere
LINK_SHARE = 0.95  # of 1 Gb/s, 25 MB over tcp with TLS
OVER_GLOO = 1.5  # the same without a limit on the link
SHORT, LONG = 5, 35  # rounds of 25 MB whose difference in processor time counts
MODELS = {
    "resnet18": (["--model", "resnet18"], 8, 25, 11_173_962),
    "mlp": (["--model", "mlp", "--set", "model.width=2048", "--set", "model.depth=6"], 32, 15, 27_295_754),
}
# What mpirun calls to get to another host, HOST COMMAND: 10.78.0.N is the N-th namespace. Each has a name of its own, or it would be taken for the same host.
AGENT = """#!/bin/sh
number=${1##*.}; shift
exec ip netns exec "$(echo $NAMESPACES | cut -d ' ' -f $number)" unshare --uts sh -c "hostname skein-$number; $*"
"""
MPIRUN = """[ "$RANK" = 0 ] || exit 0
exec unshare --uts sh -c 'hostname skein-1; agent=$1; shift; exec mpirun --allow-run-as-root --host 10.78.0.1,10.78.0.2 -np 2 --bind-to none --mca plm_rsh_agent $agent \\
  --mca btl tcp,self --mca btl_tcp_if_include eth0 --mca oob_tcp_if_include eth0 "$@"' sh "$@"
"""


def loaded(path):
    with open(path) as file:
        return json.load(file)


def python_with_torch(path):
    done = subprocess.run([path, "-c", "import torch.distributed as d, torch; assert d.is_gloo_available(); print(torch.__version__)"], capture_output=True, text=True)
    return done.stdout.strip() if done.returncode == 0 else None


class Bench:
    def __init__(self, options, folder):
        self.options, self.folder = options, folder
        self.secret = os.path.join(folder, "secret")
        with open(os.open(self.secret, os.O_CREAT | os.O_WRONLY, 0o600), "wb") as file:
            file.write(os.urandom(32))
        self.out = os.path.join(folder, "out.json")
        self.commands = {}  # of contestants
        self.make_mpi()

    def make_mpi(self):
        self.no_mpi = "" if shutil.which("mpicc") and shutil.which("mpirun") else "there is no mpicc and mpirun: apt install libopenmpi-dev openmpi-bin"
        if self.no_mpi:
            return
        for name, text in (("agent", AGENT), ("mpirun.sh", MPIRUN)):
            path = os.path.join(self.folder, name)
            with open(os.open(path, os.O_CREAT | os.O_WRONLY, 0o700), "w") as file:
                file.write(text)
        subprocess.run(["mpicc", "-O2", os.path.join(HERE, "mpi_worker.c"), "-o", os.path.join(self.folder, "mpi_worker")], check=True)

    def on_hosts(self, name, rate, *command):
        """Runs it, and returns the processor time in seconds that it took, and the bytes that both hosts sent."""
        hosts = str(self.options.hosts)
        self.commands[name] = f"{os.path.relpath(ON_HOSTS)} {hosts} 1 {rate} -- {' '.join(command)}"
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        with tempfile.NamedTemporaryFile("r") as sent:
            # Some of the others wait half an hour for a peer that is gone.
            done = subprocess.run(["timeout", "--kill-after=10", str(LONGEST_S), ON_HOSTS, hosts, "1", rate, "--", *command], stdout=subprocess.DEVNULL, stderr=subprocess.PIPE,
                                  text=True, env={**os.environ, "BYTES": sent.name})
            total = sum(int(line) for line in sent)
        if done.returncode == 124:
            raise RuntimeError(f"did not end within {LONGEST_S} s")
        if done.returncode != 0:
            said = [line.strip() for line in done.stderr.splitlines() if line.strip() and "on_hosts.sh: line" not in line]
            raise RuntimeError(f"exit code {done.returncode}" + (f": {said[-1]}" if said else ""))
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime, total

    # Vectors: each returns milliseconds and what on_hosts() does.
    def gloo(self, name, rate, count, rounds):
        cost = self.on_hosts(name, rate, self.options.python, os.path.join(HERE, "ddp_worker.py"), f"bytes:{count}", "0", str(rounds), "none", self.out)
        return loaded(self.out)["ms"], cost

    def mpi(self, name, rate, count, rounds):
        if self.no_mpi:
            raise RuntimeError(self.no_mpi)
        cost = self.on_hosts(name, rate, "sh", os.path.join(self.folder, "mpirun.sh"), os.path.join(self.folder, "agent"), os.path.join(self.folder, "mpi_worker"),
                             str(count), str(rounds), self.out)
        return loaded(self.out)["ms"], cost

    def tcp(self, name, rate, count, rounds, encrypt):
        cost = self.on_hosts(name, rate, self.options.skein, "bench", "fabric", "--fabric", "tcp", "--secret", self.secret, "--encrypt", encrypt, "--bytes", str(count),
                             "--repeat", str(rounds), "--quiet", "--json", self.out)
        times = {each["name"]: each["p50_ms"] for each in loaded(self.out)["operations"]}
        return times["reduce_scatter"] + times["all_gather"] if count >= 65536 else times["all_reduce"], cost

    def vectors(self):
        return {"Gloo": self.gloo, "Open MPI": self.mpi, "skein, TLS": lambda *a: self.tcp(*a, "on"), "skein, clear": lambda *a: self.tcp(*a, "off")}

    # Training: each returns milliseconds for a step.
    def train(self, name, skein, strategy, model, *more):
        arguments, batch, steps, _ = MODELS[model]
        self.on_hosts(name, self.options.train_rate, skein, "train", "--fabric", "tcp", "--secret", self.secret, "--strategy", strategy, "--data", "glyphs", *arguments,
                      "--batch", str(batch), "--samples", str(self.options.hosts * batch * steps), "--lr", "0.01", "--momentum", "0.9", "--quiet", "--json", self.out, *more)
        return loaded(self.out)["iteration_ms"]["p50"]

    def ddp(self, name, python, model, hook):
        _, batch, steps, _ = MODELS[model]
        self.on_hosts(name, self.options.train_rate, python, os.path.join(HERE, "ddp_worker.py"), model, str(batch), str(steps), hook, self.out)
        return loaded(self.out)["ms"]

    def trainings(self, model):
        skein, python, fusion = self.options.skein, self.options.python, ("--set", "strategy.fusion=4MB")
        out = {
            "DDP": lambda name: self.ddp(name, python, model, "none"),
            "skein allreduce": lambda name: self.train(name, skein, "allreduce", model),
            "skein allreduce, 4 MB": lambda name: self.train(name, skein, "allreduce", model, *fusion),
            "skein dear": lambda name: self.train(name, skein, "dear", model, *fusion),
            "skein dear, in clear as DDP": lambda name: self.train(name, skein, "dear", model, *fusion, "--encrypt", "off"),
            "DDP, fp16 hook": lambda name: self.ddp(name, python, model, "half"),
            "skein dear, bf16 on the wire": lambda name: self.train(name, skein, "dear", model, *fusion, "--wire", "bf16"),
            "DDP, PowerSGD of rank 4": lambda name: self.ddp(name, python, model, "powersgd"),
        }
        debian = "/usr/bin/python3"
        if os.path.realpath(python) != os.path.realpath(debian) and python_with_torch(debian):
            out["DDP of Debian"] = lambda name: self.ddp(name, debian, model, "none")
        if os.path.exists(self.options.debian_skein):
            out["skein dear, Debian's LibTorch"] = lambda name: self.train(name, self.options.debian_skein, "dear", model, *fusion)
        only = self.options.only.split(";") if self.options.only else list(out)
        return {name: run for name, run in out.items() if name in only}

    def bound(self, model):
        arguments, batch, _, parameters = MODELS[model]
        out, rate, hosts = os.path.join(self.folder, "profile.json"), self.options.train_rate, self.options.hosts
        subprocess.run([self.options.skein, "profile", *arguments, "--batch", str(batch), "--workers", str(hosts), "--quiet", "--json", out], check=True,
                       stdout=subprocess.DEVNULL)
        times = loaded(out)
        half = parameters * 4 * (hosts - 1) / hosts / (float(rate.removesuffix("gbit")) * 125e6) * 1e3 if rate.endswith("gbit") else 0
        return max(times["forward_ms"], half) + max(times["backward_ms"], half) + times["update_ms"] / hosts


def attempt(name, run):
    try:
        return run()
    except RuntimeError as error:
        print(f"  {name}: not run: {error}", flush=True)
        return None


def table(title, times, reference):
    """The best of each contestant's times, and how many times as fast as the reference that is."""
    print(f"\n{title}")
    best = {name: min(each) for name, each in times.items() if each}
    for name, time in best.items():
        ratio = f"{best[reference] / time:>8.2f} x" if reference in best else ""
        print(f"  {name:<34}{time:>10.3f} ms{ratio}   ({', '.join(f'{each:.3f}' for each in times[name])})", flush=True)


def verdict(what, wanted, got, unit):
    print(f"{what}: budget >= {wanted:.2f}{unit}: {got:.2f}{unit} {'ok' if got >= wanted else 'MISSED'}", flush=True)


def judge(times, rate):
    """A line for each budget of which both sides were measured; trainings were at `rate`."""
    best = {title: {name: min(each) for name, each in runs.items() if each} for title, runs in times.items()}
    print()
    for model in MODELS:
        runs = best.get(model, {})
        if "DDP" in runs and "skein dear" in runs:
            allowed = runs["DDP"] / runs["bound of dear"]
            verdict(f"{model} at {rate}, dear over DDP (its bound allows {allowed:.2f} x)", GAIN if allowed >= GAIN else NO_LOSS, runs["DDP"] / runs["skein dear"], " x")
    at_1gbit, unlimited = best.get("25MB, 1gbit", {}), best.get("25MB, none", {})
    if "skein, TLS" in at_1gbit:
        ideal_ms = SIZES["25MB"][0] / 125e6 * 1e3  # each of two ranks sends half of the vector twice
        verdict("tcp with TLS, reduce-scatter + all-gather of 25 MB, part of a link of 1 Gb/s", LINK_SHARE, ideal_ms / at_1gbit["skein, TLS"], "")
    if "skein, TLS" in unlimited and "Gloo" in unlimited:
        verdict("tcp with TLS, reduce-scatter + all-gather of 25 MB without a limit, over Gloo", OVER_GLOO, unlimited["Gloo"] / unlimited["skein, TLS"], " x")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("skein")
    parser.add_argument("--python", default=os.path.join(HERE, "../build-pip/venv/bin/python"))
    parser.add_argument("--debian-skein", default=os.path.join(HERE, "../build/skein"))
    parser.add_argument("--rates", default="1gbit,10gbit,none")
    parser.add_argument("--train-rate", default="1gbit")
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--hosts", type=int, default=2)
    parser.add_argument("--only")
    parser.add_argument("--parts", default="vectors,cost,resnet18,mlp")
    parser.add_argument("--json")
    options = parser.parse_args()
    parts, rates = options.parts.split(","), options.rates.split(",")
    if options.hosts != 2 and {"vectors", "cost"} & set(parts):
        parser.error(f"--hosts {options.hosts}: vectors and cost are of two hosts; expected --parts resnet18 or mlp")
    times, costs = {}, {}
    with tempfile.TemporaryDirectory() as folder:
        bench = Bench(options, folder)
        print(f"{options.hosts} hosts; the best of {options.rounds} medians, taken in turns (all of them in brackets)", flush=True)
        for _ in range(options.rounds):
            for rate in rates if "vectors" in parts else []:
                for size, (count, rounds) in SIZES.items():
                    for name, run in bench.vectors().items():
                        done = attempt(name, lambda: run(f"{name}, {size}, {rate}", rate, count, rounds))
                        times.setdefault(f"{size}, {rate}", {}).setdefault(name, []).extend([done[0]] if done else [])
            for name, run in bench.vectors().items() if "cost" in parts else []:
                ends = [attempt(name, lambda: run(f"{name}, cost of {rounds} rounds", options.train_rate, SIZES["25MB"][0], rounds)) for rounds in (SHORT, LONG)]
                if all(ends):
                    (_, (short, few)), (_, (long, many)) = ends
                    costs.setdefault(name, []).append((long - short) / (many - few) * 1e9)
            for model in (each for each in MODELS if each in parts):
                for name, run in bench.trainings(model).items():
                    done = attempt(name, lambda: run(f"{name}, {model}"))
                    times.setdefault(model, {}).setdefault(name, []).extend([done] if done else [])
        for model in (each for each in MODELS if each in parts):
            times[model]["bound of dear"] = [bench.bound(model)]
        for title, each in times.items():
            what = {"25MB": "reduce-scatter + all-gather of ", "4KB": "all-reduce of "}.get(title.split(",")[0], f"a step at {options.train_rate}, ")
            table(f"{what}{title}", each, "DDP" if title in MODELS else "Gloo")
        if costs:
            print("\nprocessor time for each byte on the wire, both hosts together")
        for name, each in costs.items():
            print(f"  {name:<34}{min(each):>10.2f} ns   ({', '.join(f'{one:.2f}' for one in each)})", flush=True)
        judge(times, options.train_rate)
        if options.json:
            os.makedirs(os.path.dirname(os.path.abspath(options.json)), exist_ok=True)
            with open(options.json, "w") as file:
                json.dump({"ms": times, "ns_of_a_byte": costs, "train_rate": options.train_rate, "commands": bench.commands}, file, indent=1)


if __name__ == "__main__":
    main()
