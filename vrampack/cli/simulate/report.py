"""The report of `vrampack simulate --report`: one self-contained HTML file with curves and a table."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from html import escape

Point = tuple[float, float]

COLOURS = ("#0b6e99", "#d9480f", "#2b8a3e", "#862e9c", "#c2255c", "#5f3dc4", "#495057")
WIDTH, HEIGHT, MARGIN = 640, 300, 48
STYLE = (
    ":root{color-scheme:light dark}body{font:15px/1.5 sans-serif;max-width:52em;margin:2em auto;padding:0 1em}"
    "table{border-collapse:collapse}th,td{padding:.2em .8em;border-bottom:1px solid #ced4da;text-align:left}"
    "td.number,th.number{text-align:right;font-variant-numeric:tabular-nums}svg{fill:currentColor}svg text{font-size:12px}"
)
LOADS_NOTHING = (
    "<meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; style-src 'unsafe-inline'\">"
)
"""Makes the browser enforce that the page loads nothing."""


@dataclass(frozen=True, slots=True)
class Chart:
    """The lines of one plot, by name; empty lines are left out."""

    title: str
    x_title: str
    y_title: str
    lines: Mapping[str, Sequence[Point]]


@dataclass(frozen=True, slots=True)
class ReportTable:
    """Rows of texts; the columns from `first_number` on have numbers."""

    heading: Sequence[str]
    rows: Sequence[Sequence[str]]
    first_number: int


def render_report(title: str, command: str, charts: Sequence[Chart], table: ReportTable) -> str:
    """The whole page. `command` is the command line that made it."""
    parts = [
        f'<!DOCTYPE html>\n<html lang="en"><head><meta charset="utf-8">{LOADS_NOTHING}<title>{escape(title)}</title>',
        f"<style>{STYLE}</style></head><body>\n<h1>{escape(title)}</h1>\n<p>Made by <code>{escape(command)}</code></p>",
        *(_render_chart(chart) for chart in charts),
        _render_table(table),
        "</body></html>\n",
    ]
    return "\n".join(parts)


def _render_chart(chart: Chart) -> str:
    lines = {name: points for name, points in chart.lines.items() if points}
    if not lines:
        return ""
    points = [point for line in lines.values() for point in line]
    x_range, y_range = _find_range([x for x, _ in points]), _find_range([y for _, y in points])
    drawn = [
        f"<h2>{escape(chart.title)}</h2>",
        f'<svg viewBox="0 0 {WIDTH} {HEIGHT}" width="{WIDTH}" role="img" aria-label="{escape(chart.title)}">',
        *_render_axes(chart, x_range, y_range),
    ]
    for position, (name, line) in enumerate(lines.items()):
        colour = COLOURS[position % len(COLOURS)]
        path = " ".join(f"{_place_x(x, x_range):.1f},{_place_y(y, y_range):.1f}" for x, y in line)
        drawn.append(f'<polyline fill="none" stroke="{colour}" stroke-width="2" points="{path}"/>')
        y = MARGIN / 2 + 16 * position
        drawn.append(f'<text x="{MARGIN + 12}" y="{y:.0f}" fill="{colour}">{escape(name)}</text>')
    return "\n".join([*drawn, "</svg>"])


def _render_axes(chart: Chart, x_range: Point, y_range: Point) -> list[str]:
    left, bottom, right = MARGIN, HEIGHT - MARGIN, WIDTH - 8
    return [
        f'<path d="M{left} 8V{bottom}H{right}" fill="none" stroke="#868e96"/>',
        *(
            f'<text x="{_place_x(x, x_range):.0f}" y="{bottom + 16}" text-anchor="middle">{x:g}</text>'
            for x in _list_ticks(x_range)
        ),
        *(
            f'<text x="{left - 6}" y="{_place_y(y, y_range) + 4:.0f}" text-anchor="end">{y:g}</text>'
            for y in _list_ticks(y_range)
        ),
        f'<text x="{(left + right) / 2:.0f}" y="{HEIGHT - 8}" text-anchor="middle">{escape(chart.x_title)}</text>',
        f'<text x="{right}" y="{bottom - 8}" text-anchor="end">{escape(chart.y_title)}</text>',
    ]


def _render_table(table: ReportTable) -> str:
    def render_row(tag: str, cells: Sequence[str], attributes: str = "") -> str:
        begun = tag + attributes
        told = [
            f'<{begun} class="number">{escape(cell)}</{tag}>'
            if at >= table.first_number
            else f"<{begun}>{escape(cell)}</{tag}>"
            for at, cell in enumerate(cells)
        ]
        return f"<tr>{''.join(told)}</tr>"

    body = "\n".join(render_row("td", row) for row in table.rows)
    head = render_row("th", table.heading, ' scope="col"')
    return f"<table>\n<thead>{head}</thead>\n<tbody>\n{body}\n</tbody>\n</table>"


def _find_range(values: Sequence[float]) -> Point:
    least, most = min(values), max(values)
    return (least, most) if most > least else (least - 0.5, most + 0.5)


def _list_ticks(value_range: Point) -> list[float]:
    least, most = value_range
    return [round(least + (most - least) * step / 4, 1) for step in range(5)]


def _place_x(x: float, x_range: Point) -> float:
    return MARGIN + (x - x_range[0]) / (x_range[1] - x_range[0]) * (WIDTH - 8 - MARGIN)


def _place_y(y: float, y_range: Point) -> float:
    return HEIGHT - MARGIN - (y - y_range[0]) / (y_range[1] - y_range[0]) * (HEIGHT - MARGIN - 8)
