#!/usr/bin/env python3
"""`dear` and `allreduce` over tcp beside PyTorch's DistributedDataParallel with Gloo, on two hosts (network namespaces) with a limited link.

Runs are taken in turns; the best median of the rounds counts. The bound is max(t_ff, t_ag) + max(t_bp, t_rs) + t_opt/N as in dear.py.
Needs root, iproute2 and a Python with torch (and, for PowerSGD, numpy).

usage: bench/hosts.py build-pip/skein [--python build-pip/venv/bin/python] [--rate 1gbit] [--rounds 2] [--json FILE]
"""
import argparse
import json
import os
import resource
import subprocess
import tempfile

HERE = os.path.dirname(os.path.abspath(__file__))
ON_HOSTS = os.path.join(HERE, "../tests/hosts/on_hosts.sh")
BYTES = 25_000_000
MODELS = {
    "resnet18": (["--model", "resnet18"], 8, 25, 11_173_962),
    "mlp": (["--model", "mlp", "--set", "model.width=2048", "--set", "model.depth=6"], 32, 15, 27_295_754),
}


def on_hosts(rate, *command):
    """Returns the processor time that it took for each byte on the wire, in nanoseconds."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    with tempfile.NamedTemporaryFile("r") as sent:
        done = subprocess.run([ON_HOSTS, "2", "1", rate, "--", *command], stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True,
                              env={**os.environ, "BYTES": sent.name})
        total = sum(int(line) for line in sent)
    if done.returncode != 0:
        raise RuntimeError(f"{' '.join(command)}: exit code {done.returncode}: {(done.stderr.strip().splitlines() or [''])[-1]}")
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return (after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime) / total * 1e9


def loaded(path):
    with open(path) as file:
        return json.load(file)


class Bench:
    def __init__(self, options, folder):
        self.skein, self.python, self.rate, self.folder = options.skein, options.python, options.rate, folder
        self.secret = os.path.join(folder, "secret")
        with open(os.open(self.secret, os.O_CREAT | os.O_WRONLY, 0o600), "wb") as file:
            file.write(os.urandom(32))
        self.out = os.path.join(folder, "out.json")
        self.cost = {}  # of a byte, by --encrypt

    def train(self, strategy, model, *more):
        arguments, batch, steps, _ = MODELS[model]
        on_hosts(self.rate, self.skein, "train", "--fabric", "tcp", "--secret", self.secret, "--strategy", strategy, "--data", "glyphs", *arguments,
                 "--batch", str(batch), "--samples", str(2 * batch * steps), "--lr", "0.01", "--momentum", "0.9", "--quiet", "--json", self.out, *more)
        return loaded(self.out)["iteration_ms"]["p50"]

    def ddp(self, model, hook):
        _, batch, steps, _ = MODELS[model]
        on_hosts(self.rate, self.python, os.path.join(HERE, "ddp_worker.py"), model, str(batch), str(steps), hook, self.out)
        return loaded(self.out)["ms"]

    def gloo(self):
        on_hosts(self.rate, self.python, os.path.join(HERE, "ddp_worker.py"), f"bytes:{BYTES}", "0", "20", "none", self.out)
        return loaded(self.out)["ms"]

    def tcp(self, encrypt):
        self.cost[encrypt] = on_hosts(self.rate, self.skein, "bench", "fabric", "--fabric", "tcp", "--secret", self.secret, "--encrypt", encrypt, "--bytes", str(BYTES),
                 "--quiet", "--json", self.out)
        times = {each["name"]: each["p50_ms"] for each in loaded(self.out)["operations"]}
        return times["reduce_scatter"] + times["all_gather"]

    def bound(self, model):
        arguments, batch, _, parameters = MODELS[model]
        out = os.path.join(self.folder, "profile.json")
        subprocess.run([self.skein, "profile", *arguments, "--batch", str(batch), "--workers", "2", "--quiet", "--json", out], check=True,
                       stdout=subprocess.DEVNULL)
        times = loaded(out)
        half = parameters * 4 / 2 / (float(self.rate.removesuffix("gbit")) * 125e6) * 1e3 if self.rate.endswith("gbit") else 0
        return max(times["forward_ms"], half) + max(times["backward_ms"], half) + times["update_ms"] / 2


def in_turns(rounds, contestants):
    best = {}
    for _ in range(rounds):
        for name, run in contestants.items():
            try:
                time = run()
            except RuntimeError as error:
                print(f"  {name}: not run: {error}", flush=True)
                continue
            best[name] = min(time, best.get(name, time))
    return best


def table(title, times, reference):
    print(f"\n{title}")
    for name, time in times.items():
        print(f"  {name:<34}{time:>9.1f} ms{times[reference] / time:>8.2f} x", flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("skein")
    parser.add_argument("--python", default=os.path.join(HERE, "../build-pip/venv/bin/python"))
    parser.add_argument("--rate", default="1gbit")
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--models", default="resnet18,mlp")
    parser.add_argument("--json")
    options = parser.parse_args()
    results = {"rate": options.rate}
    with tempfile.TemporaryDirectory() as folder:
        bench = Bench(options, folder)
        print(f"two hosts, links of {options.rate}; the best of {options.rounds} medians, taken in turns")
        times = in_turns(options.rounds, {"gloo all_reduce": bench.gloo, "skein, TLS": lambda: bench.tcp("on"), "skein, clear": lambda: bench.tcp("off")})
        table("reduce-scatter + all-gather of 25 MB, and how many times as fast as Gloo", times, "gloo all_reduce")
        print("  processor time for each byte, start and zeroing included: " + ", ".join(f"--encrypt {k} {v:.2f} ns" for k, v in bench.cost.items()))
        results["25MB"], results["ns_of_a_byte"] = times, bench.cost
        for model in options.models.split(","):
            contestants = {
                "DDP": lambda: bench.ddp(model, "none"),
                "skein allreduce": lambda: bench.train("allreduce", model),
                "skein dear": lambda: bench.train("dear", model, "--set", "strategy.fusion=4MB"),
                "DDP, fp16 hook": lambda: bench.ddp(model, "half"),
                "skein dear, bf16 on the wire": lambda: bench.train("dear", model, "--set", "strategy.fusion=4MB", "--wire", "bf16"),
                "DDP, PowerSGD of rank 4": lambda: bench.ddp(model, "powersgd"),
            }
            times = in_turns(options.rounds, contestants)
            times["bound of dear"] = bench.bound(model)
            table(f"{model}: a step, and how many times as fast as DDP", times, "DDP")
            results[model] = times
    if options.json:
        with open(options.json, "w") as file:
            json.dump(results, file, indent=1)


if __name__ == "__main__":
    main()
