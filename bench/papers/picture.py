"""Pictures of the studies: a point for each seed, a bar at their median, a row for each method, a panel for each cluster."""
import math
import os
import sys

sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
from gossip_consensus import svg, text

COLOURS = ["#5b7fa6", "#c07a45", "#7f9f7c", "#8d6a9f"]
ROW, TITLE, AXIS, NAMES, WIDTH = 17, 34, 26, 205, 300


def nice_step(span):
    """A round number of which a few fit into `span`."""
    power = 10 ** math.floor(math.log10(span / 4))
    return next(power * factor for factor in (1, 2, 5, 10) if span / (power * factor) <= 5)


def panel(left, top, title, rows, low, high, unit, colour_of, names):
    """`rows`: {method: [values]}; infinite ones are written out at the right edge."""
    parts = [text(left, top + 14, title, "title")]
    bottom = top + TITLE + ROW * len(rows)
    x_of = lambda value: left + WIDTH * (value - low) / (high - low)
    step = nice_step(high - low)
    tick = math.ceil(low / step) * step
    while tick <= high * (1 + 1e-9):
        parts.append(f'<line class="grid" x1="{x_of(tick):.1f}" y1="{top + TITLE - 6}" x2="{x_of(tick):.1f}" y2="{bottom}"/>')
        parts.append(text(x_of(tick), bottom + 14, f"{tick:g}{unit}", "tick middle"))
        tick += step
    for i, (method, values) in enumerate(rows.items()):
        y, colour = top + TITLE + ROW * i + 4, colour_of(method)
        if names:
            parts.append(text(left - 8, y + 4, method.replace("`", ""), "end"))
        finite = sorted(value for value in values if math.isfinite(value))
        parts += [f'<circle cx="{x_of(value):.1f}" cy="{y}" r="3.5" fill="{colour}" fill-opacity="0.6"/>' for value in finite]
        if len(finite) < len(values) or not values:
            parts.append(text(left + WIDTH, y + 4, "not run" if not values else "never" if not finite else f"{len(values) - len(finite)} never", "tick end"))
        if finite:
            middle = (finite[(len(finite) - 1) // 2] + finite[len(finite) // 2]) / 2
            parts.append(f'<line x1="{x_of(middle):.1f}" y1="{y - 6}" x2="{x_of(middle):.1f}" y2="{y + 6}" stroke="{colour}" stroke-width="2"/>')
    return parts


def dots(title, panels, foot, unit="", low=0, columns=2, shared=False, colour_of=lambda method: COLOURS[0]):
    """`panels`: {title: {method: [values]}}, all with the same methods. `shared`: one scale for all of them. `low`: where scales begin; None: at the ten below the least."""
    parts, height = [], 0
    of = lambda rows: [value for values in rows.values() for value in values if math.isfinite(value)]
    everywhere = max((value for rows in panels.values() for value in of(rows)), default=1)
    for i, (name, rows) in enumerate(panels.items()):
        column, line = i % columns, i // columns
        top = 8 + line * (TITLE + ROW * len(rows) + AXIS + 12)
        high = everywhere if shared else max(of(rows), default=1)
        begin = 10 * (min(of(rows), default=0) // 10) if low is None else low
        parts += panel(NAMES + column * (WIDTH + 40), top, name, rows, begin, high + 0.04 * (high - begin), unit, colour_of, column == 0)
        height = max(height, top + TITLE + ROW * len(rows) + AXIS)
    width = NAMES + columns * (WIDTH + 40)
    parts.append(text(width / 2, height + 16, foot, "tick middle"))
    return svg(width, height + 28, title, parts)
