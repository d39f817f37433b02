"""The demo's page: a table and a plot of accuracy over time in one file that needs nothing else."""
import html
import os

WIDTH, HEIGHT = 760, 340
LEFT, RIGHT, TOP, BOTTOM = 52, 16, 14, 44

# One per strategy, on white and on black; neighbours can be told apart with any kind of colour vision.
LIGHT = ["#0072b2", "#d55e00", "#009e73", "#b5558c", "#b58500", "#5f7d1c", "#7a55a6", "#8a6216"]
DARK = ["#56b4e9", "#f28e4b", "#2fc59b", "#e59ac4", "#f0c040", "#b8d05c", "#b79be0", "#cfa25a"]


def palette(colours):
    return " ".join(f"--c{i}: {colour};" for i, colour in enumerate(colours))


STYLE = f"""
:root {{ color-scheme: light dark; --text: #1c1e21; --faint: #666c75; --line: #d9dce1; --back: #fff; {palette(LIGHT)} }}
@media (prefers-color-scheme: dark) {{
  :root {{ --text: #e4e6ea; --faint: #9aa1ab; --line: #3a3f47; --back: #16181c; {palette(DARK)} }}
}}
body {{ font: 15px/1.5 system-ui, sans-serif; color: var(--text); background: var(--back);
       max-width: 800px; margin: 2.5rem auto; padding: 0 1.2rem; }}
h1 {{ font-size: 1.35rem; margin-bottom: .2rem; }}
h2 {{ font-size: 1.05rem; margin: 2rem 0 .6rem; }}
p, figcaption {{ color: var(--faint); }}
figure {{ margin: 0; }}
.scroll {{ overflow-x: auto; }}
table {{ border-collapse: collapse; width: 100%; font-variant-numeric: tabular-nums; }}
td {{ white-space: nowrap; }}
th, td {{ padding: .45rem .7rem; text-align: right; border-bottom: 1px solid var(--line); }}
th:first-child, td:first-child {{ text-align: left; padding-left: 0; }}
th {{ vertical-align: bottom; font-weight: 600; color: var(--faint); font-size: .87rem; }}
.key {{ display: inline-block; width: 14px; height: 4px; border-radius: 2px; margin-right: .55rem; vertical-align: middle; }}
svg {{ width: 100%; min-width: 560px; height: auto; display: block; }}
svg text {{ fill: var(--faint); font-size: 12px; }}
svg .grid {{ stroke: var(--line); }}
svg .target {{ stroke: var(--faint); stroke-dasharray: 4 4; }}
svg .curve {{ fill: none; stroke-width: 2.2; stroke-linejoin: round; }}
pre {{ overflow-x: auto; font-size: .82rem; color: var(--faint); border-left: 3px solid var(--line); padding-left: .8rem; }}
"""


def tick_step(longest, most=8):
    """The least round number of seconds that cuts `longest` into at most `most` parts."""
    scale = 1
    while True:
        for step in (1, 2, 5):
            if longest / (step * scale) <= most:
                return step * scale
        scale *= 10


def plot(target, results):
    step = tick_step(max([seconds for result in results for seconds, _ in result["points"]] + [1]))
    longest = max([seconds for result in results for seconds, _ in result["points"]] + [step])

    def x(seconds):
        return LEFT + seconds / longest * (WIDTH - LEFT - RIGHT)

    def y(accuracy):
        return HEIGHT - BOTTOM - accuracy * (HEIGHT - TOP - BOTTOM)

    parts = []
    for percent in range(0, 101, 20):
        level = y(percent / 100)
        parts.append(f'<line class="grid" x1="{LEFT}" x2="{WIDTH - RIGHT}" y1="{level:.1f}" y2="{level:.1f}"/>')
        parts.append(f'<text x="{LEFT - 8}" y="{level + 4:.1f}" text-anchor="end">{percent} %</text>')
    seconds = 0
    while seconds <= longest:
        parts.append(f'<text x="{x(seconds):.1f}" y="{HEIGHT - BOTTOM + 18}" text-anchor="middle">{seconds}</text>')
        seconds += step
    middle = (LEFT + WIDTH - RIGHT) / 2
    parts.append(f'<text x="{middle}" y="{HEIGHT - 6}" text-anchor="middle">seconds of training</text>')
    level = y(target)
    parts.append(f'<line class="target" x1="{LEFT}" x2="{WIDTH - RIGHT}" y1="{level:.1f}" y2="{level:.1f}"/>')
    parts.append(f'<text x="{LEFT + 6}" y="{level + 16:.1f}">target {100 * target:.0f} %</text>')
    for colour, result in zip(colours(results), results):
        corners = " ".join(f"{x(s):.1f},{y(a):.1f}" for s, a in result["points"])
        name = html.escape(result["name"])
        parts.append(f'<polyline class="curve" style="stroke:{colour}" points="{corners}"><title>{name}</title></polyline>')
        for s, a in result["points"]:
            parts.append(f'<circle cx="{x(s):.1f}" cy="{y(a):.1f}" r="3" style="fill:{colour}">'
                         f"<title>{name}: {100 * a:.1f} % after {s:.1f} s</title></circle>")
    return f'<svg viewBox="0 0 {WIDTH} {HEIGHT}" role="img" aria-label="Test accuracy over time">{"".join(parts)}</svg>'


def colours(results):
    return [f"var(--c{i % len(LIGHT)})" for i in range(len(results))]


def table(columns, rows, results):
    head = "".join(f"<th>{html.escape(name).replace(' %', '&nbsp;%')}</th>" for name in columns)
    lines = []
    for colour, cells in zip(colours(results), rows):
        key = f'<span class="key" style="background:{colour}"></span>'
        rest = "".join(f"<td>{html.escape(cell)}</td>" for cell in cells[1:])
        lines.append(f"<tr><td>{key}{html.escape(cells[0])}</td>{rest}</tr>")
    return f'<div class="scroll"><table><thead><tr>{head}</tr></thead><tbody>{"".join(lines)}</tbody></table></div>'


def write_page(path, cluster, target, columns, rows, results):
    commands = html.escape("\n".join(result["typed"] for result in results))
    page = f"""<!doctype html>
<html lang="en"><head><meta charset="utf-8"><meta name="viewport" content="width=device-width, initial-scale=1">
<title>Skein: strategies on an unequal cluster</title><style>{STYLE}</style></head><body>
<h1>Strategies on a slow and unequal cluster</h1>
<p>A CNN on glyphs. {html.escape(cluster)}. Emulated on one host.</p>
{table(columns, rows, results)}
<h2>Test accuracy over time</h2>
<figure class="scroll">{plot(target, results)}</figure>
<p>Time is training time: start-up and evaluations are not counted. The summed speed is what the workers would reach
together if nobody ever waited. Exposed communication is what a worker waits per iteration with nothing to compute
(for the network, and for slower workers), as a mean over the workers. Sent is the sum over all workers.</p>
<h2>Commands</h2>
<pre>{commands}</pre>
</body></html>
"""
    # By rename: whoever looks while it is written sees the old page or the new one.
    draft = path.with_suffix(".tmp")
    draft.write_text(page, encoding="utf-8")
    os.replace(draft, path)
