#!/usr/bin/env python3
"""How fast `gossip` and `acid` bring models together on different graphs: averaging alone, from random vectors, no gradients.

Prints the mean squared distance of the models from their mean over time, for rings of 16 and 64 workers and other graphs of 64
(means over seeds), and for four graphs of 1,024 workers (one seed) with the simulator's events per second; draws both.

usage: bench/gossip_consensus.py [build/skein] [OUT_DIR, default docs/images] [--seeds 10]
Two minutes on one core.
"""
import argparse
import json
import math
import os
import statistics
import subprocess
import tempfile

TIMES = (20, 50, 100, 200)
SMALL = [("ring", 16, 1), ("ring", 16, 2), ("ring", 64, 1), ("ring", 64, 2), ("torus", 64, 1), ("exponential", 64, 1)]
LARGE = ["ring", "torus", "exponential", "random-regular:4"]
COLOURS = {"gossip": "#5b7fa6", "acid": "#c07a45", "gossip, rate 2": "#7f9f7c"}
STYLE = """<style>
text { font: 12px "DejaVu Sans", Verdana, sans-serif; fill: #2b2b2b; }
.tick { fill: #6a6a66; font-size: 11px; } .end { text-anchor: end; } .middle { text-anchor: middle; }
.title { font-weight: bold; font-size: 13px; } .grid { stroke: #e4e4df; } .line { fill: none; stroke-width: 2; }
</style>"""


def simulate(skein, *arguments):
    with tempfile.TemporaryDirectory() as folder:
        out = os.path.join(folder, "out.json")
        command = [skein, "simulate", *map(str, arguments), "--quiet", "--json", out]
        done = subprocess.run(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
        if done.returncode != 0:
            raise RuntimeError(f"{' '.join(command)}: {done.stderr}")
        with open(out) as file:
            return json.load(file)


def consensus(skein, strategy, graph, workers, rate, seed, time):
    """The run's report; its `curve` is [(gradients, distance)]. A gradient takes 100 ms, so it is seen every second one."""
    result = simulate(skein, "--objective", "consensus", "--workers", workers, "--time", time, "--observe-every", "200ms",
                      "--strategy", strategy, "--topology", graph, "--rate", rate, "--seed", seed)
    result["curve"] = [(seen["time"], seen["value"]) for seen in result["consensus"]]
    return result


def mean_curve(curves):
    return [(points[0][0], statistics.fmean(value for _, value in points)) for points in zip(*curves)]


def at(curve, time):
    return min(curve, key=lambda point: abs(point[0] - time))[1]


def svg(width, height, title, parts):
    return (f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}" height="{height}" role="img">\n'
            f'<title>{title}</title>\n{STYLE}\n<rect width="{width}" height="{height}" fill="#ffffff"/>\n' + "\n".join(parts) + "\n</svg>\n")


def text(x, y, words, kind="", colour=None):
    fill = f' style="fill: {colour}"' if colour else ""
    return f'<text x="{x:.1f}" y="{y:.1f}" class="{kind}"{fill}>{words}</text>'


def free_place(x, y, words, taken):
    """Upwards from (x, y) until the label overlaps no other."""
    half = 6.5
    while any(abs(y - other_y) < 2 * half and x < other_x + 6.6 * len(other) and other_x < x + 6.6 * len(words)
              for other_x, other_y, other in taken):
        y -= half
    taken.append((x, y, words))
    return x, y


def panel(left, top, width, height, title, curves, longest, floor, ceiling):
    """Curves {label: points} on a logarithmic axis of 10^floor to 10^ceiling; each has its label where it ends or leaves."""
    def x_of(time):
        return left + width * time / longest

    def y_of(value):
        power = math.log10(max(value, 1e-300))
        return top + height * (ceiling - power) / (ceiling - floor)

    parts = [text(left, top - 12, title, "title")]
    for power in range(floor, ceiling + 1, 2):
        y = y_of(10.0 ** power)
        parts.append(f'<line class="grid" x1="{left}" y1="{y:.1f}" x2="{left + width}" y2="{y:.1f}"/>')
        parts.append(text(left - 6, y + 4, f'10<tspan dy="-4" font-size="8">{power}</tspan>' if power else "1", "tick end"))
    for time in range(0, longest + 1, longest // 4 if width > 250 else longest // 2):
        parts.append(text(x_of(time), top + height + 16, time, "tick middle"))
    taken = []
    for label, points in sorted(curves.items(), key=lambda curve: curve[1][-1][1]):  # labels give way upwards
        inside = [point for point in points if point[1] >= 10.0 ** floor]
        after = points[len(inside):len(inside) + 1]
        line = [(x_of(time), y_of(value)) for time, value in inside]
        if after:  # to the axis, on the way to the first point below it
            (x, y), (next_x, next_y) = line[-1], (x_of(after[0][0]), y_of(after[0][1]))
            share = (top + height - y) / (next_y - y)
            line.append((x + share * (next_x - x), top + height))
        colour = COLOURS[label]
        parts.append(f'<path class="line" stroke="{colour}" d="M{" L".join(f"{x:.1f} {y:.1f}" for x, y in line)}"/>')
        x, y = free_place(line[-1][0] + 5, min(line[-1][1] + 4, top + height - 4), label, taken)
        parts.append(text(x, y, label, "", colour))
    return parts


def ring_picture(curves):
    parts = []
    for i, workers in enumerate((16, 64)):
        lines = {"gossip": curves["gossip", "ring", workers, 1], "gossip, rate 2": curves["gossip", "ring", workers, 2],
                 "acid": curves["acid", "ring", workers, 1]}
        parts += panel(70 + i * 450, 40, 310, 280, f"ring of {workers}", lines, 200, -8, 2)
        parts.append(text(225 + i * 450, 355, "gradients of each worker", "tick middle"))
    return svg(940, 370, "Consensus distance over time on rings of 16 and 64 workers", parts)


def large_picture(curves):
    parts = []
    for i, graph in enumerate(LARGE):
        lines = {strategy: curves[strategy, graph] for strategy in ("gossip", "acid")}
        parts += panel(45 + i * 240, 40, 145, 240, graph, lines, 100, -12, 2)
        parts.append(text(117 + i * 240, 315, "gradients of each worker", "tick middle"))
    return svg(980, 330, "Consensus distance over time on four graphs of 1,024 workers", parts)


def row(*cells):
    print("| " + " | ".join(map(str, cells)) + " |", flush=True)


def small(skein, seeds):
    print(f"mean squared distance of the models from their mean, mean of {seeds} seeds, after so many gradients of each worker")
    row("graph", "rate", "strategy", *(f"t = {time}" for time in (0, *TIMES)))
    print("|" + "---|" * 8)
    curves = {}
    for graph, workers, rate in SMALL:
        for strategy in ("gossip", "acid"):
            curve = mean_curve([consensus(skein, strategy, graph, workers, rate, seed, 200)["curve"] for seed in range(1, seeds + 1)])
            curves[strategy, graph, workers, rate] = curve
            row(f"{graph} {workers}", rate, f"`{strategy}`", *(f"{at(curve, time):.2g}" for time in (0, *TIMES)))
    return curves


def large(skein):
    print("\n1,024 workers, rate 1, one seed")
    row("graph", "strategy", *(f"t = {time}" for time in (0, *TIMES[:3])), "events", "wall s", "M events/s")
    print("|" + "---|" * 9)
    curves = {}
    for graph in LARGE:
        for strategy in ("gossip", "acid"):
            result = consensus(skein, strategy, graph, 1024, 1, 1, 100)
            curves[strategy, graph] = result["curve"]
            row(graph, f"`{strategy}`", *(f"{at(result['curve'], time):.2g}" for time in (0, *TIMES[:3])),
                f"{result['events'] / 1e6:.1f} M", f"{result['wall_seconds']:.1f}", f"{result['events_per_second'] / 1e6:.1f}")
    return curves


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("skein", nargs="?", default="build/skein")
    parser.add_argument("out", nargs="?", default="docs/images")
    parser.add_argument("--seeds", type=int, default=10)
    arguments = parser.parse_args()
    pictures = {"acid-ring.svg": ring_picture(small(arguments.skein, arguments.seeds)), "acid-1024.svg": large_picture(large(arguments.skein))}
    for name, picture in pictures.items():
        with open(os.path.join(arguments.out, name), "w") as file:
            file.write(picture)


if __name__ == "__main__":
    main()
