"""Renders each page from values. Templates escape whatever they print, and an unknown name in them is an error."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path
from urllib.parse import urlencode

from jinja2 import Environment, FileSystemLoader, StrictUndefined

from vrampack.cli.explain.explanations import describe_request
from vrampack.cli.explain.pod import ExplainedPod
from vrampack.cli.explain.schema import Explanation, NodeView
from vrampack.cli.ui.cluster_reading import ClusterReading, NodeOverview
from vrampack.cli.ui.cluster_rows import build_node_section, format_elsewhere, format_mib, format_mib_range
from vrampack.cli.ui.node_filter import ORDERS, NodeFilter, filter_nodes
from vrampack.cli.ui.paging import PageRange, select_page
from vrampack.cli.ui.replay_job import JobStatus, list_policy_choices
from vrampack.cli.ui.section_size import SHOWN_PODS

TEMPLATES = Path(__file__).parent / "templates"
PAGE_BYTES = 250_000
"""For the nodes on a page; with heading, form and footer it stays below 300 KB."""
NODES_PER_PAGE = 50
PODS_PER_PAGE = 100


class PageRenderer:
    """Fills templates. Every page says which cluster it shows and when that was read; `unit_mib` is the cluster's unit."""

    def __init__(self, unit_mib: int, cluster_name: str) -> None:
        self._unit_mib = unit_mib
        self._cluster_name = cluster_name
        self._environment = Environment(
            loader=FileSystemLoader(TEMPLATES),
            autoescape=True,
            undefined=StrictUndefined,
            trim_blocks=True,
            lstrip_blocks=True,
            auto_reload=False,
        )
        self._environment.filters |= {"mib": format_mib, "mib_range": format_mib_range, "age": format_age}

    def render_cluster(self, reading: ClusterReading, chosen: NodeFilter, number: int = 1) -> bytes:
        """Nodes with their cards, as many as fit a page."""
        found = filter_nodes(reading.nodes, chosen)
        weights = [each.section_bytes for each in found]
        shown = select_page(weights, number, budget=PAGE_BYTES, most_items=NODES_PER_PAGE)
        sections = [build_node_section(each) for each in found[shown.start : shown.stop]]
        links = _build_links(shown, "/", {"q": chosen.text, "order": chosen.order})
        return self._render_reading("cluster.html", reading, nodes=sections, chosen=chosen, orders=ORDERS, **links)

    def render_node(self, reading: ClusterReading, node: NodeOverview) -> bytes:
        """One node with all pods."""
        return self._render_reading("node.html", reading, node=build_node_section(node, most_pods=None))

    def render_pending(self, reading: ClusterReading, number: int = 1) -> bytes:
        """Pods that wait, the oldest first."""
        waiting = reading.cluster.waiting_pods
        shown = select_page([1] * len(waiting), number, budget=PODS_PER_PAGE, most_items=PODS_PER_PAGE)
        rows = [(each, self._describe_request(each)) for each in waiting[shown.start : shown.stop]]
        return self._render_reading("pending.html", reading, pods=rows, **_build_links(shown, "/pending", {}))

    def render_pod(self, reading: ClusterReading, explanation: Explanation, number: int = 1) -> bytes:
        """One pod's explanation, with its nodes in pages."""
        nodes, pod = explanation.nodes, explanation.pod
        weights = [_estimate_bytes(each) for each in nodes]
        shown = select_page(weights, number, budget=PAGE_BYTES, most_items=NODES_PER_PAGE)
        links = _build_links(shown, f"/pods/{pod.namespace}/{pod.name}", {})
        part = nodes[shown.start : shown.stop]
        return self._render_reading(
            "pod.html", reading, explained=explanation, nodes=part, shown_pods=SHOWN_PODS, **links
        )

    def render_simulation(
        self, reading: ClusterReading, status: JobStatus, given_report: str, *, is_nothing_chosen: bool
    ) -> bytes:
        """The form, the state of the last replay, and the existing reports."""
        values = {"status": status, "given_report": given_report, "is_nothing_chosen": is_nothing_chosen}
        return self._render_reading("simulate.html", reading, choices=list_policy_choices(), **values)

    def render_error(self, status: int, text: str) -> bytes:
        return self._render("error.html", status=status, text=text)

    def _describe_request(self, subject: ExplainedPod) -> str:
        request = subject.pod.request
        return "" if request is None else describe_request(request, self._unit_mib)

    def _render_reading(self, template: str, reading: ClusterReading, **values: object) -> bytes:
        elsewhere = format_elsewhere(reading.sums.elsewhere_mib)
        return self._render(template, reading=reading, sums=reading.sums, elsewhere=elsewhere, **values)

    def _render(self, template: str, **values: object) -> bytes:
        template_values = {"cluster_name": self._cluster_name, **values}
        return self._environment.get_template(template).render(template_values).encode()


def format_age(written: str | datetime) -> str:
    """How long ago a time was, also one in the API server's form, in the largest unit that fits."""
    try:
        then = datetime.fromisoformat(written) if isinstance(written, str) else written
        seconds = max(0, int((datetime.now(UTC) - then).total_seconds()))
    except (ValueError, TypeError):
        return "unknown"
    for length, unit in ((86400, "d"), (3600, "h"), (60, "min")):
        if seconds >= length:
            return f"{seconds // length} {unit}"
    return f"{seconds} s"


def _build_links(shown: PageRange, path: str, query: Mapping[str, str]) -> dict[str, object]:
    """The values for a template's links between pages."""

    def link_page(number: int) -> str:
        asked = {key: text for key, text in query.items() if text} | {"page": str(number)}
        return f"{path}?{urlencode(asked)}"

    return {"shown": shown, "link_page": link_page, "back": link_page(shown.number)}


def _estimate_bytes(node: NodeView) -> int:
    """An upper bound of the bytes of the node's rows."""
    size = 500 + 3 * len(node.name) + 6 * len(node.problem)
    for card in node.cards:
        size += 500 + 6 * len(card.why)
        size += sum(150 + 2 * (len(pod.namespace) + len(pod.name)) for pod in card.pods[:SHOWN_PODS])
    return size
