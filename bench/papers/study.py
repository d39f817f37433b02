"""What the scripts of this folder share: runs that are kept, and what becomes of them on docs/papers.md.

A run is one `skein simulate`. Its figures are kept in out/papers/STUDY.json under its command, so a study that was ended goes
on where it was, and every figure of a table can be had again by its command. The page has a section for each study,
between `<!-- study NAME -->` and `<!-- end -->`, which a study that is complete writes anew.
"""
import argparse
import concurrent.futures
import json
import math
import os
import re
import shlex
import statistics
import subprocess
import tempfile
import threading

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
KEPT = ("samples", "seconds", "accuracy", "loss", "samples_per_second", "utilisation", "wall_seconds", "curve", "bytes_sent")
LONGEST_RUN_S = 3600
# What is trained. `small` is for two cores, `cifar` and `resnet` for two cores and patience, `full` for a GPU; all but the first take CIFAR-10.
SCALES = {
    "small": ["--model", "cnn", "--set", "model.width=4", "--data", "glyphs", "--set", "data.train=4000", "--set", "data.test=2000"],
    "cifar": ["--model", "cnn", "--set", "model.width=8"],
    "resnet": ["--model", "resnet18", "--set", "model.width=8"],
    "full": ["--model", "resnet18", "--device", "cuda", "--tf32", "on"],
}


class Study:
    def __init__(self, name, about, sizes, seeds=2, parts=()):
        """`sizes`: {scale: whatever the script needs to know}; `parts`: which --only may name."""
        parser = argparse.ArgumentParser(description=about, formatter_class=argparse.RawDescriptionHelpFormatter)
        parser.add_argument("skein", nargs="?", default=os.path.join(ROOT, "build/skein"))
        parser.add_argument("--scale", choices=sizes, default="small")
        parser.add_argument("--data", help="of all scales but small: cifar10:DIR")
        parser.add_argument("--jobs", type=int, default=os.cpu_count(), help="runs at a time")
        parser.add_argument("--seeds", type=int, default=seeds)
        parser.add_argument("--minutes", type=float, default=math.inf, help="begin no run after so many: what is known is printed")
        if parts:
            parser.add_argument("--only", choices=parts, help="this table alone")
        parser.add_argument("--out", default=os.path.join(ROOT, "out/papers"))
        parser.add_argument("--page", default=os.path.join(ROOT, "docs/papers.md"), help="whose section of this study is written anew")
        parser.add_argument("--write-only", action="store_true", help="run nothing: the table of what is known")
        self.options = parser.parse_args()
        for option in ("jobs", "seeds"):
            if getattr(self.options, option) < 1:
                parser.error(f"--{option} {getattr(self.options, option)}: expected at least 1")
        if not self.options.write_only and not os.access(self.options.skein, os.X_OK):
            parser.error(f"{self.options.skein}: expected the program skein; make build makes build/skein")
        if self.options.scale != "small" and not self.options.data:
            parser.error(f"--scale {self.options.scale} needs --data cifar10:DIR")
        self.name, self.size = f"{name}-{self.options.scale}", sizes[self.options.scale]
        self.model = SCALES[self.options.scale] + (["--data", self.options.data] if self.options.data else [])
        self.seeds = range(1, self.options.seeds + 1)
        os.makedirs(self.options.out, exist_ok=True)
        self.path = os.path.join(self.options.out, f"{self.name}.json")
        self.known, self.lock, self.began, self.missing = {}, threading.Lock(), os.times().elapsed, 0
        if os.path.exists(self.path):
            with open(self.path) as file:
                self.known = json.load(file)
        self.pool = concurrent.futures.ThreadPoolExecutor(self.options.jobs)

    def run(self, *arguments):
        """The figures of `skein simulate ARGUMENTS`; None where there is no time for it. Diverged: accuracy 0 and no time."""
        words = ["simulate", *map(str, arguments)]
        key = shlex.join(words).replace(self.options.data or "\0", "cifar10:DIR")
        if key in self.known:
            return self.known[key]
        if self.options.write_only or os.times().elapsed - self.began > 60 * self.options.minutes:
            self.missing += 1
            return None
        with tempfile.TemporaryDirectory() as folder:
            out = os.path.join(folder, "out.json")
            done = subprocess.run([self.options.skein, *words, "--quiet", "--json", out], stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True, timeout=LONGEST_RUN_S)
            if not os.path.exists(out):
                if "the loss is" not in done.stderr:
                    raise RuntimeError(f"skein {key}: {done.stderr}")
                figures = {"accuracy": 0, "loss": math.inf, "diverged": True}
            else:
                with open(out) as file:
                    result = json.load(file)
                figures = {each: result.get(each) for each in KEPT}
                # Models are averaged at the end and alike at the beginning: in between they differ.
                distances = [each["value"] for each in result.get("consensus") or []][1:-1]
                figures["distance"] = distances[(len(distances) - 1) // 2] if distances else 0
        with self.lock:
            self.known[key] = figures
            with open(self.path + ".tmp", "w") as file:
                json.dump(self.known, file, indent=1)
            os.replace(self.path + ".tmp", self.path)
        return figures

    def start(self, *arguments):
        return self.pool.submit(self.run, *arguments)

    def write(self, lines, picture=None, part=None):
        """Prints the lines, and keeps them beside the runs; where no run is missing they go to the page, and the SVG `picture` beside it."""
        if self.missing:
            print(f"{self.missing} runs are missing")
        write_part(self.options.out, self.options.page, f"{self.name}-{part}" if part else self.name, lines, picture, not self.missing)

    def cost(self):
        wall = sum(each.get("wall_seconds") or 0 for each in self.known.values())
        return f"{len(self.known)} runs, {wall / 60:.0f} minutes of one core in all."


def write_part(out, page, name, lines, picture, complete):
    """What a study says, on the terminal and in its folder; on the page too, with the SVG `picture`, where it is complete."""
    text = "\n".join(lines)
    print(text, flush=True)
    with open(os.path.join(out, f"{name}.md"), "w", encoding="utf-8") as file:
        file.write(text + "\n")
    if not complete:
        print(f"not complete: {page} stays as it is")
        return
    if picture:
        images = os.path.join(os.path.dirname(os.path.abspath(page)), "images")
        os.makedirs(images, exist_ok=True)
        with open(os.path.join(images, f"papers-{name}.svg"), "w", encoding="utf-8") as file:
            file.write(picture)
    write_section(page, name, text)


def write_section(page, name, text):
    """Puts it in the place of the page's section, if the page has one."""
    if not os.path.exists(page):
        return
    with open(page, encoding="utf-8") as file:
        before = file.read()
    found = re.search(rf"(<!-- study {re.escape(name)} -->\n).*?(\n<!-- end -->)", before, re.S)
    if not found:
        print(f"{page} has no section {name}")
        return
    after = before[:found.end(1)] + "\n" + text.strip() + "\n" + before[found.start(2):]
    with open(page + ".tmp", "w", encoding="utf-8") as file:
        file.write(after)
    os.replace(page + ".tmp", page)


def table(head, rows):
    return ["| " + " | ".join(map(str, head)) + " |", "|" + "---|" * len(head), *("| " + " | ".join(map(str, row)) + " |" for row in rows)]


def time_to(figures, target):
    """Seconds until the accuracy was there, between two looks at the model; infinite where it was not reached."""
    before = None
    for look in (figures or {}).get("curve") or []:
        if look["accuracy"] >= target:
            if before is None or look["accuracy"] == before["accuracy"]:
                return look["seconds"]
            part = (target - before["accuracy"]) / (look["accuracy"] - before["accuracy"])
            return before["seconds"] + part * (look["seconds"] - before["seconds"])
        before = look
    return math.inf


def seconds_text(value):
    return "never" if math.isinf(value) else f"{value:.1f}"


def median(values):
    return statistics.median(values)


def per_cent(accuracies):
    """Their mean, and each."""
    if not accuracies:
        return "–"
    return f"{100 * statistics.fmean(accuracies):.1f} ({', '.join(f'{100 * each:.1f}' for each in accuracies)})"
