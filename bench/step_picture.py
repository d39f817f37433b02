#!/usr/bin/env python3
"""Draws what one worker computes and sends under several strategies, on one axis of time, from traces of `skein simulate`: measures nothing.

The clusters are virtual, so the picture is the same on every machine. What is drawn as waiting is a worker that has nothing to compute.

usage: bench/step_picture.py build/skein docs/images/steps.svg
"""
import html
import json
import os
import subprocess
import sys
import tempfile

JOB = ["--workers", "2", "--profile", "resnet50", "--network", "link:bandwidth=2500mbit", "--iterations", "12"]
STRATEGIES = [
    ("allreduce", ["--set", "strategy.fusion=4MB"], "the all-reduce hides behind backward; the rest of it is waited for"),
    ("dear", ["--set", "strategy.fusion=4MB"], "its second half hides behind the next forward, too"),
    ("lasgd", [], "nobody waits: models are averaged while all go on"),
]
FROM_STEP = 5
WIDTH, LEFT, RIGHT, TOP = 1000, 96, 14, 34
SPAN_MS = 900
ROW, GAP, BLOCK = 24, 4, 92
STYLE = """
text { font: 13px system-ui, sans-serif; fill: #22262b } .name { font-weight: 700; font-size: 15px } .faint { fill: #5b626b } .in { fill: #fff; font-size: 12px }
.forward { fill: #0072b2 } .backward { fill: #004f7c } .network { fill: #d55e00 } .second { fill: #009e73 } .wait { fill: #b9bec6 } .axis { stroke: #b9bec6 } .in.dark { fill: #22262b }
@media (prefers-color-scheme: dark) { text { fill: #e6e8eb } .faint { fill: #a3abb5 } .in { fill: #fff } .wait { fill: #4c535c } .in.dark { fill: #e6e8eb } .axis { stroke: #4c535c } .forward { fill: #2b8fce } .backward { fill: #1a6aa0 } }
"""
NETWORK = {"all-reduce": "network", "reduce-scatter": "network", "all-gather": "second"}


def spans(skein, strategy, settings):
    with tempfile.TemporaryDirectory() as folder:
        file = os.path.join(folder, "trace.json")
        subprocess.run([skein, "simulate", "--strategy", strategy, *JOB, *settings, "--trace", file, "--quiet"], check=True, stdout=subprocess.DEVNULL)
        with open(file) as trace:
            events = json.load(trace)["traceEvents"]
    own = [e for e in events if e["ph"] == "X" and e["pid"] == 0]
    # A forward pass is in pieces where it waits for parameters: a step begins with the first one after backward.
    passes = sorted((e["ts"], e["cat"]) for e in own if e["cat"] in ("forward", "backward"))
    begin = [at for i, (at, kind) in enumerate(passes) if kind == "forward" and (i == 0 or passes[i - 1][1] == "backward")][FROM_STEP]
    out = []
    for e in own:
        at, end = (e["ts"] - begin) / 1e3, (e["ts"] + e["dur"] - begin) / 1e3
        if end > 0 and at < SPAN_MS and end - at > 0.3:
            out.append((e["cat"], max(at, 0), min(end, SPAN_MS)))
    return out


def without_overlap(bars):
    """Operations of one lane go over the wire in turns: one that began before the last had ended is drawn from there on."""
    drawn, free = [], 0
    for kind, begin, end in sorted(bars, key=lambda bar: (bar[2], bar[1])):
        drawn.append((kind, max(begin, free), end))
        free = max(free, end)
    return drawn


def main():
    if len(sys.argv) != 3:
        sys.exit(__doc__)
    skein, picture = sys.argv[1:]
    scale = (WIDTH - LEFT - RIGHT) / SPAN_MS
    parts = []
    y = TOP
    for strategy, settings, says in STRATEGIES:
        all_spans = spans(skein, strategy, settings)
        parts.append(f'<text class="name" x="{LEFT}" y="{y - 8}">{strategy}<tspan class="faint" font-weight="400" font-size="13" dx="8">{html.escape(says)}</tspan></text>')
        rows = [("computes", [s for s in all_spans if s[0] in ("forward", "backward", "wait")]),
                ("network", without_overlap([s for s in all_spans if s[0] in NETWORK]))]
        for number, (label, bars) in enumerate(rows):
            top = y + number * (ROW + GAP)
            parts.append(f'<text class="faint" x="{LEFT - 8}" y="{top + 17}" text-anchor="end">{label}</text>')
            for kind, begin, end in bars:
                width = (end - begin) * scale
                if width < 0.6:
                    continue
                parts.append(f'<rect class="{NETWORK.get(kind, kind)}" x="{LEFT + begin * scale:.1f}" y="{top}" width="{max(width - 1, 0.5):.1f}" height="{ROW}" rx="2"/>')
                if width > 7.5 * len(kind) + 6 and label == "computes":
                    parts.append(f'<text class="in{" dark" if kind == "wait" else ""}" x="{LEFT + (begin + end) / 2 * scale:.1f}" y="{top + 16}" text-anchor="middle">{kind}</text>')
        y += BLOCK
    axis = y - 22
    parts.append(f'<line class="axis" x1="{LEFT}" x2="{WIDTH - RIGHT}" y1="{axis}" y2="{axis}"/>')
    for tick in range(0, SPAN_MS + 1, 100):
        last = tick == SPAN_MS
        parts.append(f'<text class="faint" x="{LEFT + tick * scale:.1f}" y="{axis + 18}" text-anchor="{"end" if last else "middle"}">{tick}{" ms" if last else ""}</text>')
    legend = [("network", "all-reduce, reduce-scatter"), ("second", "all-gather"), ("wait", "waits")]
    x = LEFT
    for kind, label in legend:
        parts.append(f'<rect class="{kind}" x="{x}" y="{axis + 32}" width="14" height="14" rx="2"/><text class="faint" x="{x + 20}" y="{axis + 44}">{label}</text>')
        x += 40 + 7 * len(label)
    height = axis + 56
    text = (f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" width="{WIDTH}" height="{height}" role="img">'
            f"<title>What a worker computes and sends under allreduce, dear and lasgd</title><style>{STYLE}</style>{''.join(parts)}</svg>\n")
    with open(picture + ".tmp", "w", encoding="utf-8") as file:
        file.write(text)
    os.replace(picture + ".tmp", picture)
    print(f"{picture}: {height} high")


if __name__ == "__main__":
    main()
