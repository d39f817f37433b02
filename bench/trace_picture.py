#!/usr/bin/env python3
"""A picture of a part of a trace (`--trace FILE` of skein train or simulate): an HTML page with one SVG, a row per lane and rank.

usage: bench/trace_picture.py TRACE.json PICTURE.html [--from STEP] [--steps N] [--title TEXT]
then:  chromium --headless --no-sandbox --hide-scrollbars --window-size=1400,HEIGHT --screenshot=PICTURE.png PICTURE.html
(it prints HEIGHT)

Operations of one lane go over the wire one after the other. One that was started before its predecessor had ended has a
bar from there on only, and until then a thin line below the bars.
"""
import argparse
import html
import json

WIDTH, LEFT, RIGHT, TOP = 1400, 150, 20, 84
ROW, QUEUE, GAP, BETWEEN_RANKS = 28, 4, 5, 24
BACKGROUND = "#f4f4f1"
COLOURS = {"forward": "#7fa3c7", "backward": "#5b7fa6", "all-reduce": "#a98bb8", "reduce-scatter": "#d39a6a", "all-gather": "#7fae8b",
           "update": "#b8a24a", "wait": "#c9a0a0", "hidden update": "#d3c88f", "loading": "#b5b5b0", "evaluation": "#9ab8b0",
           "checkpoint": "#8f8f9c"}
TICKS = (1, 2, 5, 10, 20, 50, 100, 200, 500, 1000, 2000, 5000)


def read(path):
    """The spans of each rank and lane, in ms and in the order of their ends."""
    with open(path) as file:
        events = json.load(file)["traceEvents"]
    ranks = {}
    for event in events:
        if event["ph"] == "X":
            begin = event["ts"] / 1e3
            lanes = ranks.setdefault(event["pid"], {})
            lanes.setdefault(event["cat"], []).append((begin, begin + event["dur"] / 1e3, event["name"]))
    for lanes in ranks.values():
        for spans in lanes.values():
            spans.sort(key=lambda span: (span[1], span[0]))
    return ranks


class Picture:
    def __init__(self, begin, end):
        self.begin, self.end = begin, end
        self.parts = []

    def x(self, ms):
        ms = min(max(ms, self.begin), self.end)
        return LEFT + (ms - self.begin) / (self.end - self.begin) * (WIDTH - LEFT - RIGHT)

    def rectangle(self, begin, end, y, height, colour):
        left, width = self.x(begin), max(self.x(end) - self.x(begin), 1.5)
        edge = 'stroke="#ffffff"' if width > 4 and colour != BACKGROUND else ""
        self.parts.append(f'<rect x="{left:.1f}" y="{y}" width="{width:.1f}" height="{height}" fill="{colour}" {edge}/>')

    def text(self, x, y, text, extra=""):
        self.parts.append(f'<text x="{x:.1f}" y="{y}" {extra}>{html.escape(text)}</text>')

    def lane(self, y, name, spans):
        bar = ROW - QUEUE - 2
        free = float("-inf")  # when the lane's last operation has ended
        for begin, end, label in spans:
            if end > self.begin and begin < self.end:
                turn = max(begin, free)
                if turn > begin:
                    self.rectangle(begin, turn, y + ROW - QUEUE, QUEUE, COLOURS[name])
                self.rectangle(turn, end, y, bar, COLOURS[name])
                self.label((self.x(turn) + self.x(end)) / 2, self.x(end) - self.x(turn), y, label)
            free = max(free, end)

    def label(self, middle, room, y, label):
        for text in (label, label.removeprefix("bucket ")):
            if len(text) * 7.5 < room - 2:
                self.text(middle, y + 16, text, 'text-anchor="middle"')
                return

    def axis(self, bottom):
        step = next(tick for tick in TICKS if (self.end - self.begin) / tick <= 20)
        for i in range(int((self.end - self.begin) / step) + 1):
            x = self.x(self.begin + i * step)
            self.parts.append(f'<line x1="{x:.1f}" y1="{TOP - 8}" x2="{x:.1f}" y2="{bottom}" stroke="#cfcfca" stroke-width="1"/>')
            self.text(x, TOP - 14, str(i * step), 'text-anchor="middle" class="dim"')
        self.text(LEFT - 10, TOP - 14, "ms", 'text-anchor="end" class="dim"')

    def legend(self, lanes):
        x = LEFT
        for name in lanes:
            self.parts.append(f'<rect x="{x}" y="34" width="14" height="14" fill="{COLOURS[name]}"/>')
            self.text(x + 20, 46, name)
            x += 46 + 8 * len(name)
        self.parts.append(f'<rect x="{x}" y="40" width="26" height="{QUEUE}" fill="#8a8a86"/>')
        self.text(x + 32, 46, "started, waits for those before it in its lane")


def draw(ranks, begin, end, title):
    rows, y = [], TOP  # (top, rank, lane)
    for rank in sorted(ranks):
        for name in (name for name in COLOURS if name in ranks[rank]):
            rows.append((y, rank, name))
            y += ROW + GAP
        y += BETWEEN_RANKS
    bottom = y - BETWEEN_RANKS

    picture = Picture(begin, end)
    picture.text(12, 22, title, 'class="title"')
    picture.legend([name for name in COLOURS if any(name in lanes for lanes in ranks.values())])
    for top, rank, name in rows:
        picture.rectangle(begin, end, top, ROW, BACKGROUND)
        picture.text(LEFT - 10, top + 18, name, 'text-anchor="end"')
        if (top, rank, name) == next(row for row in rows if row[1] == rank):
            picture.text(12, top + 18, f"rank {rank}", 'class="title"')
    picture.axis(bottom)
    for top, rank, name in rows:
        picture.lane(top, name, ranks[rank][name])
    return page(picture.parts, bottom + 10)


def page(parts, height):
    style = "text{font:13px 'DejaVu Sans',sans-serif;fill:#2b2b2b}.dim{fill:#6a6a66}.title{font-weight:bold}"
    svg = f'<svg xmlns="http://www.w3.org/2000/svg" width="{WIDTH}" height="{height}"><style>{style}</style>\n' + "\n".join(parts) + "</svg>"
    return f'<!doctype html><meta charset="utf-8"><body style="margin:0;background:#fff">{svg}</body>\n', height


def window(ranks, first, steps):
    """From just before a forward of rank 0 to just after the forward that follows `steps` steps later."""
    lanes = ranks[min(ranks)]
    # A forward pass is in pieces where it waits for parameters: those with no backward between them.
    pieces = sorted([(*span, kind) for kind in ("forward", "backward") for span in lanes.get(kind, [])])
    forwards = []
    for i, (begin, end, _, kind) in enumerate(pieces):
        if kind == "backward":
            continue
        if i > 0 and pieces[i - 1][3] == "forward":
            forwards[-1] = (forwards[-1][0], end)
        else:
            forwards.append((begin, end))
    if first + steps >= len(forwards):
        raise SystemExit(f"the trace has {len(forwards)} forwards: --from and --steps ask for {first + steps + 1}")
    begin, end = forwards[first][0], forwards[first + steps][1]
    margin = (end - begin) * 0.01
    return begin - margin, end + margin


def main():
    parser = argparse.ArgumentParser(description="a picture of a part of a trace")
    parser.add_argument("trace")
    parser.add_argument("picture")
    parser.add_argument("--from", dest="first", type=int, default=3, help="the first step shown, from 0")
    parser.add_argument("--steps", type=int, default=1, help="how many, and the forward after them")
    parser.add_argument("--title", default="")
    arguments = parser.parse_args()
    ranks = read(arguments.trace)
    begin, end = window(ranks, arguments.first, arguments.steps)
    text, height = draw(ranks, begin, end, arguments.title)
    with open(arguments.picture, "w") as file:
        file.write(text)
    print(height)


if __name__ == "__main__":
    main()
