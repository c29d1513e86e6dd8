"""An explanation as a ranking: the nodes that fit, best first, with their scores term by term, then the cards of all."""

from __future__ import annotations

from vrampack.cli.explain.schema import Explanation, NodeView
from vrampack.cli.explain.text import render
from vrampack.cli.inspect.text_columns import align_columns, replace_unprintable


def render_ranking(explanation: Explanation, *, max_width: int | None = None) -> str:
    """The ranking above what `vrampack explain` shows."""
    fitting = sorted((node for node in explanation.nodes if node.score is not None), key=_get_rank)
    rows = [
        (str(place), node.name, f"{node.score:.4g}", _format_terms(node)) for place, node in enumerate(fitting, start=1)
    ]
    table = [("RANK", "NODE", "SCORE", "TERMS"), *rows]
    lines = align_columns(table, right_columns=(0, 2), max_width=max_width) if rows else ""
    ranking = "\n".join(map(replace_unprintable, lines.splitlines()))
    return "\n\n".join(part for part in (ranking, render(explanation, max_rows=None, max_width=max_width)) if part)


def _get_rank(node: NodeView) -> tuple[float, str]:
    return -(node.score or 0.0), node.name


def _format_terms(node: NodeView) -> str:
    return " + ".join(f"{term.value:.4g} {term.name}" for term in node.terms)
