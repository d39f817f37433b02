#!/usr/bin/env python3
"""`skein advise` beside the truth: on 12 emulated clusters, does the recommended strategy come within 10 % of the fastest one?

Real processes train the `mlp` with emulated computation (a micro-batch at speed 1 takes 80 ms, nearly all of it sleep, so that two
cores suffice) on emulated links. For each cluster `skein advise` recommends; then every candidate trains at the settings that
advise gave it, one after the other, and all of them again: the faster of a candidate's runs counts, since whatever else the
machine does can only slow one down. Budget: at least 11 of 12.

With --again FILE nothing is trained: advice is asked for anew and held against the runs in the FILE of an earlier --json.

usage: bench/advise.py [build/skein] [--seconds S] [--repeat N] [--clusters N] [--json FILE] [--again FILE]
"""
import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time

STEP = "80ms"
BATCH = 16
WITHIN = 0.10
BUDGET = 11 / 12
CLUSTERS = [(speeds, link)
            for speeds in ([1, 1], [1, 2, 3], [1, 1, 1, 1], [1, 1, 2, 4])
            for link in ("100mbit", "500mbit", "40gbit")]


def run(skein, *arguments):
    with tempfile.TemporaryDirectory() as folder:
        out = os.path.join(folder, "out.json")
        subprocess.run([skein, *arguments, "--quiet", "--json", out], check=True, stdout=subprocess.DEVNULL)
        with open(out) as file:
            return json.load(file)


def name(candidate):
    settings = candidate["settings"]
    return candidate["strategy"] + (", balanced" if settings.get("balance") == "true" else "") + \
        (", bf16" if candidate["wire"] == "bf16" else "")


def train(skein, candidate, cluster, workers, seconds):
    """Samples per second of a real run that takes about so long."""
    # Whole rounds of those that meet every few steps.
    unit = BATCH * workers * (int(candidate["settings"].get("period", 1)) if candidate["strategy"] == "local" else 1)
    samples = max(1, round(seconds * candidate["samples_per_second"] / unit)) * unit
    settings = [word for key, value in candidate["settings"].items() for word in ("--set", f"strategy.{key}={value}")]
    result = run(skein, "train", "--model", "mlp", "--data", "glyphs", "--set", "data.test=32", "--set", "data.train=4096",
                 "--batch", str(BATCH), "--lr", "0.01", "--samples", str(samples), "--strategy", candidate["strategy"],
                 *settings, *cluster)
    return result["samples_per_second"]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("skein", nargs="?", default="build/skein")
    parser.add_argument("--seconds", type=float, default=3, help="of each run")
    parser.add_argument("--repeat", type=int, default=2, help="runs of each candidate, in turns; the fastest counts")
    parser.add_argument("--clusters", type=int, default=len(CLUSTERS), help="how many of the 12, from the first")
    parser.add_argument("--json", help="file for all figures")
    parser.add_argument("--again", help="file of an earlier --json, whose runs count in place of new ones")
    arguments = parser.parse_args()
    begin = time.monotonic()
    earlier = {}
    if arguments.again:
        with open(arguments.again) as file:
            before = json.load(file)
        arguments.seconds = before["seconds"]
        for row in before["clusters"]:
            for each in row["candidates"]:
                earlier[(tuple(row["speeds"]), row["link"], each["name"])] = each["runs"]
    skein = arguments.skein
    with tempfile.TemporaryDirectory() as folder:
        profile = os.path.join(folder, "mlp.json")
        run(skein, "profile", "--model", "mlp", "--batch", str(BATCH), "--iterations", "5", "--warmup", "2", "--out", profile)
        print(f"mlp, batch {BATCH}, {STEP} for a micro-batch at speed 1; samples/s of real runs of {arguments.seconds:g} s")
        print("| workers | link | recommended | predicted | measured | best measured | its rate | ratio | median error of all predictions |")
        print("|---|---|---|---|---|---|---|---|---|")
        rows = []
        for speeds, link in CLUSTERS[:arguments.clusters]:
            cluster = ["--workers", str(len(speeds)), "--emulate-step", STEP, "--emulate-link", link]
            if len(set(speeds)) > 1:
                cluster += ["--emulate-speeds", ",".join(map(str, speeds))]
            advice = run(skein, "advise", "--profile", profile, *cluster)
            measured = [[] for _ in advice["candidates"]]
            if arguments.again:
                known = [each for each in advice["candidates"] if (tuple(speeds), link, name(each)) in earlier]
                measured = [earlier[(tuple(speeds), link, name(each))] for each in known]
                advice["candidates"] = known
            for _ in range(0 if arguments.again else arguments.repeat):
                for rates, candidate in zip(measured, advice["candidates"]):
                    rates.append(train(skein, candidate, cluster, len(speeds), arguments.seconds))
            rates = [max(each) for each in measured]
            candidates = advice["candidates"]
            place = next(i for i, each in enumerate(candidates) if all(
                each[key] == advice["recommended"][key] for key in ("strategy", "settings", "wire")))
            best = max(range(len(rates)), key=lambda i: rates[i])
            errors = [candidates[i]["samples_per_second"] / rates[i] - 1 for i in range(len(rates))]
            error = statistics.median(map(abs, errors))
            print(f"| {':'.join(map(str, speeds))} | {link} | {name(candidates[place])} | {candidates[place]['samples_per_second']:.0f}"
                  f" | {rates[place]:.0f} | {name(candidates[best])} | {rates[best]:.0f} | {rates[place] / rates[best]:.3f}"
                  f" | {error:.1%} |", flush=True)
            rows.append({"speeds": speeds, "link": link, "recommended": name(candidates[place]), "ratio": rates[place] / rates[best],
                         "best": name(candidates[best]), "median_error": error, "reason": advice["recommended"]["reason"],
                         "command": advice["recommended"]["command"],
                         "candidates": [{"name": name(each), "settings": each["settings"], "predicted": each["samples_per_second"],
                                         "measured": rate, "runs": runs, "error": off}
                                        for each, rate, runs, off in zip(candidates, rates, measured, errors)]})
    within = sum(row["ratio"] >= 1 - WITHIN for row in rows)
    enough = within >= BUDGET * len(rows)
    print(f"recommended within {WITHIN:.0%} of the best measured: {within} of {len(rows)}; budget 11 of 12: {'ok' if enough else 'MISSED'}")
    print(f"in {(time.monotonic() - begin) / 60:.1f} minutes")
    if arguments.json:
        with open(arguments.json, "w") as file:
            json.dump({"step": STEP, "batch": BATCH, "seconds": arguments.seconds, "within": within, "clusters": rows}, file, indent=1)
    sys.exit(0 if enough else 1)


if __name__ == "__main__":
    main()
