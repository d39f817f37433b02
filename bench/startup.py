#!/usr/bin/env python3
"""How long commands take that need no torch, in turns by the program without it and by the one that has it.

    startup.py SKEIN [--json FILE] [--rounds N]
"""
import argparse
import json
import os
import statistics
import subprocess
import time

COMMANDS = [["--help"], ["train", "--help"], ["train", "--strategy", "dera"], ["topology", "--kind", "ring", "--workers", "64"]]


def milliseconds(command):
    began = time.perf_counter()
    subprocess.run(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, check=False)
    return 1e3 * (time.perf_counter() - began)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("skein")
    parser.add_argument("--json")
    parser.add_argument("--rounds", type=int, default=20)
    options = parser.parse_args()
    with_torch = os.path.join(os.path.dirname(os.path.abspath(options.skein)), "skein-torch")
    rows = []
    for words in COMMANDS:
        times = {program: [] for program in (options.skein, with_torch)}
        for _ in range(options.rounds):
            for program, taken in times.items():
                taken.append(milliseconds([program, *words]))
        rows.append({"command": " ".join(["skein", *words]), "skein_ms": statistics.median(times[options.skein]),
                     "skein_torch_ms": statistics.median(times[with_torch])})
    print(f"{'milliseconds, medians of ' + str(options.rounds):<44}{'skein':>10}{'skein-torch':>14}")
    for row in rows:
        print(f"{row['command']:<44}{row['skein_ms']:>10.1f}{row['skein_torch_ms']:>14.1f}")
    longest = max(row["skein_ms"] for row in rows)
    print(f"longest without torch: {longest:.1f} ms (budget 50 ms): {'ok' if longest <= 50 else 'MISSED'}")
    if options.json:
        with open(options.json, "w", encoding="utf-8") as file:
            json.dump({"rounds": options.rounds, "rows": rows}, file, indent=1)


main()
