"""The demo's page: a table and a plot of accuracy over time in one file that needs nothing else."""
import html
import os

# Of the plot on a wide page and on a narrow one. It is as wide as it is shown, so its text stays readable.
WIDE, NARROW = (760, 330), (380, 300)
LEFT, RIGHT, BOTTOM = 46, 14, 44
LABEL_HEIGHT, LETTER = 16, 6.6  # of a label above the plot; about what a letter takes

# One per strategy, on white and on black; hue and lightness differ, and every second curve is dashed.
LIGHT = ["#1f5fbf", "#e4572e", "#12894a", "#8e3fb8", "#0099b4", "#d81b7a", "#3b3f45", "#c99700"]
DARK = ["#6ea8fe", "#ff8a65", "#52d68a", "#c792ea", "#4dd6e8", "#ff6fb5", "#eceff1", "#ffd54a"]


def palette(colours):
    return " ".join(f"--c{i}: {colour};" for i, colour in enumerate(colours))


STYLE = f"""
:root {{ color-scheme: light dark; --text: #1c1e21; --faint: #666c75; --line: #d9dce1; --back: #fff; {palette(LIGHT)} }}
@media (prefers-color-scheme: dark) {{
  :root {{ --text: #e4e6ea; --faint: #9aa1ab; --line: #3a3f47; --back: #16181c; {palette(DARK)} }}
}}
body {{ font: 15px/1.5 system-ui, sans-serif; color: var(--text); background: var(--back);
       max-width: 800px; margin: 2rem auto; padding: 0 1rem; }}
h1 {{ font-size: 1.35rem; margin-bottom: .2rem; }}
h2 {{ font-size: 1.05rem; margin: 2rem 0 .6rem; }}
h3 {{ font-size: .93rem; margin: 1.1rem 0 .3rem; font-weight: 600; }}
p {{ color: var(--faint); }}
figure {{ margin: 0; }}
table {{ border-collapse: collapse; width: 100%; font-variant-numeric: tabular-nums; }}
th, td {{ padding: .45rem .6rem; text-align: right; border-bottom: 1px solid var(--line); }}
th:first-child, td:first-child {{ text-align: left; padding-left: 0; }}
th {{ vertical-align: bottom; font-weight: 600; color: var(--faint); font-size: .87rem; }}
td {{ white-space: nowrap; }}
.key {{ width: 26px; height: 10px; margin-right: .5rem; display: inline-block; vertical-align: middle; }}
.curve {{ fill: none; stroke-width: 2.2; stroke-linejoin: round; }}
.dashed {{ stroke-dasharray: 6 4; }}
.plot {{ width: 100%; height: auto; display: block; }}
.plot text {{ fill: var(--faint); font-size: 12px; }}
.plot .name {{ font-weight: 600; }}
.plot .grid {{ stroke: var(--line); }}
.plot .leader {{ stroke: var(--line); stroke-width: 1; }}
.plot .target {{ stroke: var(--faint); stroke-dasharray: 2 4; }}
.narrow {{ display: none; }}
.command {{ position: relative; }}
pre {{ white-space: pre-wrap; overflow-wrap: anywhere; font-size: .8rem; margin: 0; padding: .6rem 4.6rem .6rem .8rem;
      border: 1px solid var(--line); border-radius: 6px; }}
button {{ position: absolute; top: .45rem; right: .45rem; font: inherit; font-size: .78rem; color: var(--text);
         background: var(--back); border: 1px solid var(--line); border-radius: 5px; padding: .15rem .6rem; cursor: pointer; }}
@media (max-width: 640px) {{
  .wide {{ display: none; }}
  .narrow {{ display: block; }}
  thead {{ display: none; }}
  tr {{ display: block; padding: .6rem 0; border-bottom: 1px solid var(--line); }}
  td, td:first-child {{ display: flex; justify-content: space-between; gap: 1rem; padding: .1rem 0; border: 0; text-align: right; }}
  td:first-child {{ justify-content: flex-start; gap: 0; align-items: center; font-weight: 600; }}
  td[data-label]::before {{ content: attr(data-label); color: var(--faint); text-align: left; }}
}}
"""

SCRIPT = """
for (const button of document.querySelectorAll("button")) button.onclick = async () => {
  const text = button.previousElementSibling;
  try { await navigator.clipboard.writeText(text.textContent); button.textContent = "copied"; }
  catch { getSelection().selectAllChildren(text); button.textContent = "selected"; }
  setTimeout(() => { button.textContent = "copy"; }, 1500);
};
"""


def tick_step(longest, most=8):
    """The least round number of seconds that cuts `longest` into at most `most` parts."""
    scale = 1
    while True:
        for step in (1, 2, 5):
            if longest / (step * scale) <= most:
                return step * scale
        scale *= 10


def place_labels(ends, width):
    """A row (0: the lowest) and a middle for the name of each curve, which stands above the end of the curve."""
    rows, places = [], {}
    for x, name in sorted(ends):
        half = len(name) * LETTER / 2 + 5
        middle = min(max(x, LEFT + half), width - RIGHT - half)
        row = next((i for i, end in enumerate(rows) if end <= middle - half), len(rows))
        if row == len(rows):
            rows.append(0)
        rows[row] = middle + half
        places[name] = (row, middle)
    return places, len(rows)


def plot(target, results, shape, kind):
    width, height = shape
    longest = max([seconds for result in results for seconds, _ in result["points"]] + [1])
    step = tick_step(longest, most=width // 90)

    def x(seconds):
        return LEFT + seconds / longest * (width - LEFT - RIGHT)

    curves = [(colour, dash, result) for (colour, dash), result in zip(styles(results), results) if result["points"]]
    places, rows = place_labels([(x(result["points"][-1][0]), result["name"]) for _, _, result in curves], width)
    top = rows * LABEL_HEIGHT + 12
    height += top

    def y(accuracy):
        return height - BOTTOM - accuracy * (height - top - BOTTOM)

    parts = []
    for percent in range(0, 101, 20):
        level = y(percent / 100)
        parts.append(f'<line class="grid" x1="{LEFT}" x2="{width - RIGHT}" y1="{level:.1f}" y2="{level:.1f}"/>')
        parts.append(f'<text x="{LEFT - 8}" y="{level + 4:.1f}" text-anchor="end">{percent} %</text>')
    for seconds in range(0, int(longest) + 1, step):
        parts.append(f'<text x="{x(seconds):.1f}" y="{height - BOTTOM + 18}" text-anchor="middle">{seconds}</text>')
    middle = (LEFT + width - RIGHT) / 2
    parts.append(f'<text x="{middle}" y="{height - 6}" text-anchor="middle">seconds of training</text>')
    level = y(target)
    parts.append(f'<line class="target" x1="{LEFT}" x2="{width - RIGHT}" y1="{level:.1f}" y2="{level:.1f}"/>')
    parts.append(f'<text x="{width - RIGHT}" y="{level + 16:.1f}" text-anchor="end">target {100 * target:.0f} %</text>')
    for colour, dash, result in curves:
        name = html.escape(result["name"])
        row, label = places[result["name"]]
        base = top - 12 - row * LABEL_HEIGHT
        last_x, last_y = x(result["points"][-1][0]), y(result["points"][-1][1])
        parts.append(f'<line class="leader" x1="{label:.1f}" y1="{base + 3:.1f}" x2="{last_x:.1f}" y2="{last_y:.1f}"/>')
        corners = " ".join(f"{x(s):.1f},{y(a):.1f}" for s, a in result["points"])
        parts.append(f'<polyline class="curve {dash}" style="stroke:{colour}" points="{corners}"><title>{name}</title></polyline>')
        for s, a in result["points"]:
            parts.append(f'<circle cx="{x(s):.1f}" cy="{y(a):.1f}" r="{3 if kind == "wide" else 2}" style="fill:{colour}">'
                         f"<title>{name}: {100 * a:.1f} % after {s:.1f} s</title></circle>")
        parts.append(f'<text class="name" x="{label:.1f}" y="{base:.1f}" text-anchor="middle" style="fill:{colour}">{name}</text>')
    return (f'<svg class="plot {kind}" viewBox="0 0 {width} {height}" role="img" '
            f'aria-label="Test accuracy over time">{"".join(parts)}</svg>')


def styles(results):
    """A colour and whether the curve is dashed; beyond as many as there are colours, the other way round."""
    count = len(LIGHT)
    return [(f"var(--c{i % count})", "dashed" if (i + i // count) % 2 else "") for i in range(len(results))]


def table(columns, rows, results):
    head = "".join(f"<th>{html.escape(name).replace(' %', '&nbsp;%')}</th>" for name in columns)
    lines = []
    for (colour, dash), cells in zip(styles(results), rows):
        key = f'<svg class="key" viewBox="0 0 26 10"><path class="curve {dash}" style="stroke:{colour}" d="M0 5H26"/></svg>'
        rest = "".join(f'<td data-label="{html.escape(name)}">{html.escape(cell)}</td>'
                       for name, cell in zip(columns[1:], cells[1:]))
        lines.append(f"<tr><td>{key}{html.escape(cells[0])}</td>{rest}</tr>")
    return f'<table><thead><tr>{head}</tr></thead><tbody>{"".join(lines)}</tbody></table>'


def commands(results):
    return "".join(f'<h3>{html.escape(result["name"])}</h3><div class="command"><pre>{html.escape(result["typed"])}</pre>'
                   f"<button>copy</button></div>" for result in results)


def write_page(path, cluster, target, columns, rows, results):
    page = f"""<!doctype html>
<html lang="en"><head><meta charset="utf-8"><meta name="viewport" content="width=device-width, initial-scale=1">
<title>Skein: strategies on an unequal cluster</title><style>{STYLE}</style></head><body>
<h1>Strategies on a slow and unequal cluster</h1>
<p>A CNN on glyphs. {html.escape(cluster)}. Emulated on one host.</p>
{table(columns, rows, results)}
<h2>Test accuracy over time</h2>
<figure>{plot(target, results, WIDE, "wide")}{plot(target, results, NARROW, "narrow")}</figure>
<p>Time is training time: start-up and evaluations are not counted. The summed speed is what the workers would reach
together if nobody ever waited. Exposed communication is what a worker waits per iteration with nothing to compute
(for the network, and for slower workers), as a mean over the workers. Sent is the sum over all workers.</p>
<h2>Commands</h2>
{commands(results)}
<script>{SCRIPT}</script>
</body></html>
"""
    # By rename: whoever looks while it is written sees the old page or the new one.
    draft = path.with_suffix(".tmp")
    draft.write_text(page, encoding="utf-8")
    os.replace(draft, path)
