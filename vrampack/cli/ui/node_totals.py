"""What all pods hold on each node, according to the extender's metrics: figures without names."""

from __future__ import annotations

from collections.abc import Mapping
from http import HTTPStatus

import aiohttp
from prometheus_client.parser import text_string_to_metric_families

ALLOCATED = "vrampack_node_memory_allocated_bytes"
TIMEOUT_SECONDS = 10.0


class NodeTotalsError(Exception):
    """The metrics page cannot be fetched or read; the message says why."""


async def read_node_totals(url: str) -> Mapping[str, int]:
    """The held bytes by node. Raises `NodeTotalsError`."""
    try:
        timeout = aiohttp.ClientTimeout(total=TIMEOUT_SECONDS)
        async with aiohttp.ClientSession(timeout=timeout) as session, session.get(url) as answer:
            text, status = await answer.text(errors="replace"), answer.status
    except (aiohttp.ClientError, TimeoutError, OSError, ValueError) as error:
        raise NodeTotalsError(f"{url}: {str(error) or type(error).__name__}") from error
    if status != HTTPStatus.OK:
        raise NodeTotalsError(f"{url}: answered {status}")
    return parse_node_totals(text)


def parse_node_totals(text: str) -> Mapping[str, int]:
    """The held bytes by node in a metrics page, or in a part of one. Raises `NodeTotalsError`."""
    lines = [line for line in text.splitlines() if line.startswith(ALLOCATED + "{")]
    try:
        families = list(text_string_to_metric_families("\n".join(lines) + "\n"))
        found = {sample.labels["node"]: int(sample.value) for family in families for sample in family.samples}
    except (ValueError, KeyError, OverflowError) as error:
        raise NodeTotalsError(f"not a page of metrics: {error}") from error
    if not found:
        raise NodeTotalsError(f"the page has no {ALLOCATED}; give the extender's own /metrics")
    return found
