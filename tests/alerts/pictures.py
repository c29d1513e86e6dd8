"""`python -m tests.alerts.pictures`: draws docs/pictures from what the scenarios of panels recorded, and prints the table.

One SVG for each dashboard, in which each panel has its lines as Prometheus had them, and beside its values what was
counted. A panel's `desc` is the query that was asked: a test compares it with what is shipped.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from math import isnan
from pathlib import Path
from xml.sax.saxutils import escape

from dashboards.definitions import DASHBOARDS
from dashboards.panels import Dashboard, Panel, Unit
from tests.alerts.monitoring_stack import SPEED
from tests.alerts.panel_records import Labels, PanelRecord, Points, SeriesRecord, read_records

PICTURES = Path(__file__).parents[2] / "docs" / "pictures"
COLUMNS = 2
WIDTH, HEIGHT, GAP = 470, 218, 10
CHART_LEFT, CHART_TOP, CHART_WIDTH, CHART_HEIGHT = 70, 34, 385, 90
LEGEND_TOP, LEGEND_LINE = 152, 14
COLOURS = ("#1f60c4", "#c4442a", "#37872d", "#8f3bb8", "#b87d00")
TEXT, FAINT, PAPER = "#222", "#777", "#fff"
GIB = 1 << 30


def format_value(value: float, unit: Unit) -> str:
    """As Grafana writes it, nearly."""
    match unit:
        case "bytes":
            return f"{value / GIB:.4g} GiB"
        case "percentunit":
            return f"{value:.4g}" if value > 1 else f"{100 * value:.4g} %"
        case "s":
            return f"{1000 * value:.3g} ms"
        case "ops":
            return f"{value:.3g}/s"
        case "celsius":
            return f"{value:g} °C"
        case _:
            return f"{value:g}"


def format_counted(counted: str, unit: Unit) -> str:
    """The same for what was counted, a number or two bounds."""
    return " to ".join(format_value(float(bound), unit) for bound in counted.split(" to "))


def name_series(labels: Labels, panel: Panel) -> str:
    """The panel's legend with the labels' values; without one, all of them."""
    name = panel.legend or " ".join(f"{{{{{key}}}}}" for key, _ in labels)
    for key, value in labels:
        name = name.replace(f"{{{{{key}}}}}", value)
    return name


def draw_dashboard(dashboard: Dashboard, records: Sequence[PanelRecord]) -> str:
    """An SVG of all panels, in their order."""
    rows = -(-len(records) // COLUMNS)
    width, height = COLUMNS * (WIDTH + GAP) + GAP, rows * (HEIGHT + GAP) + GAP
    panels = "".join(
        f'<g transform="translate({GAP + at % COLUMNS * (WIDTH + GAP)},{GAP + at // COLUMNS * (HEIGHT + GAP)})">'
        f"{''.join(_draw_panel(panel, record))}</g>\n"
        for at, (panel, record) in enumerate(zip(dashboard.panels, records, strict=True))
    )
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}" height="{height}" '
        f'font-family="sans-serif" font-size="11" fill="{TEXT}" role="img" aria-label="{escape(dashboard.title)}">\n'
        f'<rect width="{width}" height="{height}" fill="#f4f5f5"/>\n{panels}</svg>\n'
    )


def _draw_panel(panel: Panel, record: PanelRecord) -> Iterator[str]:
    yield f"<title>{escape(panel.title)}</title><desc>{escape(record.query)}</desc>"
    yield f'<rect width="{WIDTH}" height="{HEIGHT}" rx="3" fill="{PAPER}" stroke="#ddd"/>'
    yield f'<text x="12" y="20" font-size="13" font-weight="bold">{escape(panel.title)}</text>'
    yield from _draw_lines(panel, record.series)
    for at, series in enumerate(record.series):
        y, colour = LEGEND_TOP + at * LEGEND_LINE, COLOURS[at % len(COLOURS)]
        shown, counted = format_value(series.shown, panel.unit), format_counted(series.counted, panel.unit)
        yield f'<rect x="12" y="{y - 8}" width="9" height="9" fill="{colour}"/>'
        yield f'<text x="26" y="{y}">{escape(name_series(series.labels, panel))}</text>'
        yield f'<text x="{WIDTH - 12}" y="{y}" text-anchor="end">{shown} <tspan fill="{FAINT}">counted {counted}</tspan></text>'


def _draw_lines(panel: Panel, series: Sequence[SeriesRecord]) -> Iterator[str]:
    """Lines over an axis of the cluster's minutes, from the first sample of any to the last."""
    points = [(at, value) for each in series for at, value in each.points if not isnan(value)]
    times = [at for at, _ in points]
    first, last = min(times), max(times)
    most = max(value for _, value in points) or 1
    bottom = CHART_TOP + CHART_HEIGHT
    minutes = (last - first) * SPEED / 60
    for value, y in ((most, CHART_TOP), (0, bottom)):
        yield f'<path d="M{CHART_LEFT} {y}h{CHART_WIDTH}" stroke="#e4e4e4"/>'
        label = format_value(value, panel.unit)
        yield f'<text x="{CHART_LEFT - 6}" y="{y + 4}" text-anchor="end" fill="{FAINT}">{label}</text>'
    right = f'x="{CHART_LEFT + CHART_WIDTH}" y="{bottom + 13}" text-anchor="end" fill="{FAINT}"'
    yield f"<text {right}>{minutes:.0f} minutes, {SPEED} times as fast</text>"
    for at, each in enumerate(series):
        d = "".join(_trace_line(each.points, first, (last - first) or 1, most))
        yield f'<path d="{d}" fill="none" stroke="{COLOURS[at % len(COLOURS)]}" stroke-width="1.5"/>'


def _trace_line(points: Points, first: float, span: float, most: float) -> Iterator[str]:
    """A path through the points that are numbers."""
    command = "M"
    for at, value in points:
        if not isnan(value):
            x = CHART_LEFT + CHART_WIDTH * (at - first) / span
            yield f"{command}{x:.0f} {CHART_TOP + CHART_HEIGHT * (1 - value / most):.1f}"
            command = "L"


def list_rows(records: Sequence[tuple[Panel, PanelRecord]]) -> Iterator[str]:
    """The rows of a table: panel, scenario, value, what was counted, scrapes until then."""
    for panel, record in records:
        shown = ", ".join(format_value(each.shown, panel.unit) for each in record.series)
        counted = ", ".join(format_counted(each.counted, panel.unit) for each in record.series)
        yield f"| {panel.title} | {record.scenario} | {shown} | {counted} | {record.scrapes} |\n"


def main() -> None:
    records = read_records()
    PICTURES.mkdir(exist_ok=True)
    for dashboard in DASHBOARDS:
        found = [(panel, records[dashboard.uid, panel.title]) for panel in dashboard.panels]
        (PICTURES / f"{dashboard.uid}.svg").write_text(draw_dashboard(dashboard, [record for _, record in found]))
        sys.stdout.write(
            f"\n{dashboard.title}\n\n| panel | scenario | shown | counted | scrapes |\n|---|---|---|---|---|\n"
        )
        sys.stdout.writelines(list_rows(found))


if __name__ == "__main__":
    main()
