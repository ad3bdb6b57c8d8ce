"""Rows of the table and how they are written: Markdown, JSON, SVG."""
import dataclasses
import html
import json
import statistics


@dataclasses.dataclass
class Row:
    """One line: a figure of ours, the best peer's, and what was to be reached."""
    key: str             # unique; a later run of the same key replaces the row
    work: str
    unit: str
    ours: list           # one value a round
    peers: dict          # name -> one value a round
    goal: float          # bound on ours / best peer (or on ours, see `against`)
    higher: bool = True  # better
    against: str = "peer"  # or "": the goal bounds our figure itself
    note: str = ""

    def best(self):
        found = [(statistics.median(v), n) for n, v in self.peers.items() if v]
        if not found:
            return None, None
        return (max if self.higher else min)(found)

    def ratio(self):
        """What the goal bounds; None without a peer to compare with."""
        mine = statistics.median(self.ours)
        if not self.against:
            return mine
        peer, _ = self.best()
        return mine / peer if peer else None

    def met(self):
        ratio = self.ratio()
        if ratio is None:
            return None
        return ratio >= self.goal if self.higher else ratio <= self.goal


def number(x):
    return f"{x:.0f}" if x >= 1000 else f"{x:.3g}"


def spread(values):
    if not values:
        return "-"
    text = number(statistics.median(values))
    if len(values) > 1:
        text += f" ({number(min(values))}–{number(max(values))})"
    return text


def markdown(machine, rows):
    lines = [machine, "",
             "| work | unit | ours | best peer | ratio | asked | met |",
             "|---|---|---|---|---|---|---|"]
    for row in rows:
        peer, name = row.best()
        ratio, met = row.ratio(), row.met()
        lines.append(
            f"| {row.work} | {row.unit} | {spread(row.ours)} | "
            f"{name + ' ' + spread(row.peers[name]) if name else '-'} | "
            f"{'-' if ratio is None or not row.against else f'{ratio:.2f}'} | "
            f"{'≥' if row.higher else '≤'} {row.goal:g} | "
            f"{'-' if met is None else 'yes' if met else '**no**'} |")
    notes = [f"- {row.work}: {row.note}" for row in rows if row.note]
    return "\n".join(lines + ([""] + notes if notes else [])) + "\n"


def svg(machine, rows):
    """How far each row stands from its goal: a bar to 1 is just there."""
    shown = []
    for row in rows:
        ratio = row.ratio()
        if ratio:
            shown.append((row, ratio / row.goal if row.higher else row.goal / ratio))
    width, left, step = 900, 380, 22
    scale = (width - left - 70) / 4.0
    out = [f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" '
           f'height="{60 + step * len(shown)}" font-family="sans-serif" font-size="12">',
           f'<text x="8" y="18" font-size="13">{html.escape(machine)}: '
           'multiples of what was asked (line: 1)</text>']
    for i, (row, value) in enumerate(shown):
        y = 36 + i * step
        colour = "#3a7d44" if value >= 1 else "#b23a48"
        out.append(f'<text x="{left - 8}" y="{y + 12}" text-anchor="end">'
                   f'{html.escape(row.work)}</text>'
                   f'<rect x="{left}" y="{y}" width="{min(value, 4) * scale:.1f}" '
                   f'height="{step - 6}" fill="{colour}"/>'
                   f'<text x="{left + min(value, 4) * scale + 4:.1f}" y="{y + 12}">{value:.2f}</text>')
    x = left + scale
    out.append(f'<line x1="{x}" y1="28" x2="{x}" y2="{36 + step * len(shown)}" stroke="#333"/></svg>')
    return "\n".join(out)


def load(path):
    try:
        with open(path, encoding="utf-8") as f:
            fields = {field.name for field in dataclasses.fields(Row)}
            return [Row(**{k: v for k, v in r.items() if k in fields}) for r in json.load(f)["rows"]]
    except FileNotFoundError:
        return []


def save(stem, machine, rows):
    with open(stem + ".json", "w", encoding="utf-8") as f:
        json.dump(dict(machine=machine, rows=[dict(dataclasses.asdict(r), ratio=r.ratio(), met=r.met())
                                              for r in rows]), f, indent=1)
    with open(stem + ".md", "w", encoding="utf-8") as f:
        f.write(markdown(machine, rows))
    with open(stem + ".svg", "w", encoding="utf-8") as f:
        f.write(svg(machine, rows))
