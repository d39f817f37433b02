#!/usr/bin/env python3
"""Runs the benchmarks one after the other, keeps what each printed as JSON, and writes docs/benchmarks.md from that.

    all.py [--only NAME,NAME] [--all] [--write-only] [--out DIR] [--page FILE]

A section of the page says what was run, when, on what, and what it printed. Sections that are not run now stay as they are. A benchmark that cannot run here (no root, no PyTorch, …)
is named with the reason. Some take very long and are run with --all, or by name, alone.
"""
import argparse
import datetime
import glob
import json
import os
import platform
import re
import subprocess
import sys
import time

HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.dirname(HERE)


class Section:
    def __init__(self, name, title, says, command, root=False, pip=False, long=False, minutes=2):
        self.name, self.title, self.says, self.command = name, title, says, command
        self.root, self.pip, self.long, self.minutes = root, pip, long, minutes

    def why_not(self, options):
        if self.root and os.geteuid() != 0:
            return "it makes network namespaces, which needs root"
        if self.pip and not os.path.exists(os.path.join(ROOT, "build-pip/skein")):
            return "it needs PyTorch's own LibTorch: make build TORCH=pip"
        if self.long and not options.all and self.name not in (options.only or []):
            return f"it takes {self.minutes} minutes: make bench ONLY={self.name}"
        program = self.command.split()[0]
        if program.startswith("build") and not os.path.exists(os.path.join(ROOT, program)):
            return f"there is no {program}: it was not built"
        return None


SECTIONS = [
    Section("ddp-1gbit", "Training on two hosts, 1 Gb/s, beside PyTorch DDP",
            "Milliseconds for a step. Two hosts are two network namespaces, joined by a link of 1 Gb/s; the workers of all contestants run there in turns. DDP is PyTorch's "
            "DistributedDataParallel with Gloo. The last column is how many times as fast as DDP each is.",
            "bench/hosts.py build-pip/skein --parts resnet18,mlp --train-rate 1gbit --rounds 2 --json out/bench/ddp-1gbit.figures.json", root=True, pip=True, minutes=10),
    Section("ddp-10gbit", "Training on two hosts, 10 Gb/s, beside PyTorch DDP", "The same with a link of 10 Gb/s.",
            "bench/hosts.py build-pip/skein --parts resnet18,mlp --train-rate 10gbit --rounds 2 --json out/bench/ddp-10gbit.figures.json", root=True, pip=True, minutes=8),
    Section("tcp", "Vectors between two hosts, beside Gloo and Open MPI", "Reduce-scatter and all-gather of 25 MB, and an all-reduce of 4 KB.",
            "bench/hosts.py build-pip/skein --parts vectors --rates 1gbit,10gbit,none --rounds 2 --json out/bench/tcp.figures.json", root=True, pip=True, minutes=6),
    Section("fabric-2", "Vectors on one host, 2 ranks", "The fabrics on one host beside Gloo and Open MPI's own collectives.", "build/bench/bench_fabric 2"),
    Section("fabric-4", "Vectors on one host, 4 ranks", "", "build/bench/bench_fabric 4", minutes=3),
    Section("local-fabric", "Vectors on one host beside memcpy", "The fabric `local`, 2 ranks. The bytes that each rank must move are copied in turns with it.", "bench/local_fabric.py build/skein", minutes=1),
    Section("one-worker", "One worker beside a bare LibTorch loop", "What Skein costs where it has nothing to do.", "build/bench/bench_one_worker", minutes=4),
    Section("dear", "dear beside its bound", "Two workers on an emulated link of 1 Gb/s.", "bench/dear.py build/skein", minutes=3),
    Section("unequal-speed", "Unequal machines: samples per second over the summed speed", "Four workers of speeds 1, 1, 2 and 4, emulated.", "bench/unequal_speed.py build/skein", minutes=5),
    Section("abs-accuracy", "abs beside SGD without delay at equal samples", "A virtual cluster with real gradients, so that every run of this gives the same figures on one kind of processor.",
            "bench/abs_accuracy.py build/skein", minutes=4),
    Section("advise", "skein advise beside real runs", "Twelve emulated clusters: what was recommended, and how near it came to the best that was measured.", "bench/advise.py build/skein", minutes=12),
    Section("predict", "skein simulate beside real runs", "", "bench/predict.py build/skein", minutes=5),
    Section("virtual-cluster", "The virtual cluster: speed, and published times", "", "bench/virtual_cluster.py build/skein"),
    Section("page", "What the live page costs", "", "bench/page_cost.py build/skein"),
    Section("startup", "How long the program takes to start", "Commands that need no torch: by `skein`, which has none, and by `skein-torch`, which it becomes where it needs it.", "bench/startup.py build/skein", minutes=1),
    Section("save-pause", "How long a checkpoint stops training", "", "build/bench/bench_save_pause"),
    Section("kernels", "Vector operations beside memcpy", "", "build/bench/bench_kernels", minutes=1),
    Section("kernel-threads", "Large vectors on several threads", "", "build/bench/bench_kernel_threads", minutes=1),
    Section("large-model", "Memory of a large model", "100 million parameters, two workers, plain SGD. Model and gradients are two planes.", "build/bench/bench_large_model", minutes=2),
    Section("first-table", "From git clone to a table", "A fresh clone and `make demo`, with an empty cache of the compiler; packages are installed.", "bench/first_table.py", long=True, minutes=10),
    Section("dear-tuner", "Where the fusion tuner ends", "", "bench/dear_tuner.py build/skein", long=True, minutes=7),
    Section("unequal-accuracy", "Time to an accuracy on unequal machines", "", "bench/unequal_accuracy.py build/skein", long=True, minutes=40),
]


def output_of(*command):
    try:
        return subprocess.run(command, capture_output=True, text=True, check=True, cwd=ROOT).stdout.strip()
    except (OSError, subprocess.CalledProcessError):
        return ""


def machine():
    with open("/proc/cpuinfo") as file:
        model = next((line.split(":")[1].strip() for line in file if line.startswith("model name")), platform.machine())
    with open("/proc/meminfo") as file:
        memory = int(file.readline().split()[1]) / 2**20
    return f"{os.cpu_count()} cores ({model}), {memory:.0f} GiB, Linux {platform.release()}"


def versions():
    doctor = output_of("build/skein", "doctor")
    torch = re.search(r"(?:LibTorch|torch)\s+(\d[\w.+]*)", doctor)
    compiler = output_of("g++", "-dumpfullversion")
    pip = output_of("build-pip/venv/bin/python", "-c", "import torch; print(torch.__version__)") if os.path.exists(os.path.join(ROOT, "build-pip/venv")) else ""
    return ", ".join(filter(None, [output_of("build/skein", "--version"), torch and f"LibTorch {torch[1]}", pip and f"PyTorch {pip} (pip)", f"g++ {compiler}"]))


def run(section, folder):
    began = time.monotonic()
    load = os.getloadavg()[0]
    print(f"== {section.name}: {section.command}", flush=True)
    words = section.command.split()
    if words[0].endswith(".py"):
        words.insert(0, sys.executable)
    process = subprocess.Popen(words, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, errors="replace")
    lines = []
    for line in process.stdout:
        print(line, end="", flush=True)
        lines.append(line.rstrip())
    code = process.wait()
    record = {"name": section.name, "title": section.title, "command": section.command, "code": code, "seconds": round(time.monotonic() - began), "load_before": round(load, 1),
              "at": datetime.datetime.now(datetime.timezone.utc).strftime("%Y-%m-%d %H:%M UTC"), "machine": machine(), "versions": versions(), "output": "\n".join(lines).strip()}
    path = os.path.join(folder, f"{section.name}.json")
    with open(path + ".tmp", "w") as file:
        json.dump(record, file, indent=1)
    os.replace(path + ".tmp", path)
    return record


def section_text(section, record):
    text = f"## {section.title}\n{section.says}\n" if section.says else f"## {section.title}\n"
    text += f"\n<!-- test: skip: a benchmark of {section.minutes} minutes -->\n```sh\n{record['command']}\n```\n```\n{record['output']}\n```\n"
    text += f"{record['at']}, {record['seconds']} s; {record['machine']}; {record['versions']}; load {record['load_before']} when it began."
    return text + ("" if record["code"] == 0 else f" **It ended with exit code {record['code']}.**")


def budgets(texts):
    rows = []
    for section in SECTIONS:
        for line in texts.get(section.name, "").splitlines():
            if "budget" in line and re.search(r"\b(ok|MISSED)\W*$", line):
                rows.append(f"| [{section.title}](#{anchor(section.title)}) | {line.strip().replace('|', '/')} |")
    return rows


def anchor(title):
    return re.sub(r"[^a-z0-9 -]", "", title.lower()).replace(" ", "-")


def read_page(path):
    """What each section of the page says now."""
    if not os.path.exists(path):
        return {}
    with open(path, encoding="utf-8") as file:
        return dict(re.findall(r"<!-- section (\S+) -->\n(.*?)\n<!-- end -->", file.read(), re.S))


def write_page(path, folder):
    texts = read_page(path)
    for file in glob.glob(os.path.join(folder, "*.json")):
        if file.endswith(".figures.json"):
            continue
        with open(file) as opened:
            record = json.load(opened)
        section = next((each for each in SECTIONS if each.name == record["name"]), None)
        if section:
            texts[section.name] = section_text(section, record)
    rows = budgets(texts)
    page = ["# Benchmarks", "",
            "`make bench` runs these and writes this page; `make bench ONLY=dear,tcp` runs some of them and leaves the rest as it is. Each compares things that ran in turns on one machine: the",
            "ratios mean something, the times alone do not, since the machines are shared. Each section ends with when and where it was measured.", "",
            "## Budgets", "| measured by | what it printed |", "|---|---|", *rows, ""]
    for section in SECTIONS:
        if section.name in texts:
            page += [f"<!-- section {section.name} -->", texts[section.name].strip(), "<!-- end -->", ""]
    with open(path + ".tmp", "w", encoding="utf-8") as file:
        file.write("\n".join(page))
    os.replace(path + ".tmp", path)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", type=lambda text: [each for each in text.split(",") if each], help="names, with commas")
    parser.add_argument("--all", action="store_true", help="those that take very long, too")
    parser.add_argument("--write-only", action="store_true", help="run nothing: write the page from what was measured")
    parser.add_argument("--out", default=os.path.join(ROOT, "out/bench"))
    parser.add_argument("--page", default=os.path.join(ROOT, "docs/benchmarks.md"))
    options = parser.parse_args()
    names = [section.name for section in SECTIONS]
    for name in options.only or []:
        if name not in names:
            sys.exit(f"--only {name}: there is no such benchmark; expected some of {', '.join(names)}")
    os.makedirs(options.out, exist_ok=True)
    left_out, failed = [], []
    for section in SECTIONS:
        if options.write_only or (options.only and section.name not in options.only):
            continue
        why_not = section.why_not(options)
        if why_not:
            left_out.append(f"{section.name}: not run: {why_not}")
        elif run(section, options.out)["code"] != 0:
            failed.append(section.name)
        write_page(options.page, options.out)  # after each: nothing is lost when the next is ended
    write_page(options.page, options.out)
    for line in left_out:
        print(line)
    print(f"{options.page} is written; the records are in {options.out}")
    if failed:
        sys.exit(f"failed: {', '.join(failed)}")


if __name__ == "__main__":
    main()
