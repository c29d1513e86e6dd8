"""Calls an extender as the scheduler does, and reads what it shows."""

from __future__ import annotations

import http.client
import json
import urllib.request
from typing import Any
from urllib.parse import urlsplit

from tests.e2e.in_cluster import ExtenderProgram

TIMEOUT_SECONDS = 15
"""More than the scheduler's 5: a test wants to see the late answer too."""


def post_verb(extender: ExtenderProgram, verb: str, body: object) -> Any:  # noqa: ANN401 - the answer as JSON, asserted where it is read
    """One verb call that must be answered with 200."""
    where = urlsplit(extender.url)
    connection = http.client.HTTPConnection(where.hostname or "", where.port, timeout=TIMEOUT_SECONDS)
    try:
        connection.request("POST", f"{where.path}/{verb}", json.dumps(body), {"Content-Type": "application/json"})
        answer = connection.getresponse()
        text = answer.read()
        assert answer.status == http.client.OK, text
        return json.loads(text)
    finally:
        connection.close()


def post_bind(extender: ExtenderProgram, pod: dict[str, Any], node: str) -> str:
    """The `Error` of a bind of this very pod, empty for success."""
    metadata = pod["metadata"]
    body = {"PodName": metadata["name"], "PodNamespace": metadata["namespace"], "PodUID": metadata["uid"], "Node": node}
    return str(post_verb(extender, "bind", body)["Error"])


def get_inspect(extender: ExtenderProgram) -> Any:  # noqa: ANN401 - the answer as JSON, asserted where it is read
    with urllib.request.urlopen(f"{extender.url}/inspect", timeout=TIMEOUT_SECONDS) as answer:  # noqa: S310 - our own http address
        return json.load(answer)


def read_metric(extender: ExtenderProgram, line: str) -> float:
    """The value of the series written exactly so, 0 without it."""
    with urllib.request.urlopen(f"{extender.health_url}/metrics", timeout=TIMEOUT_SECONDS) as answer:  # noqa: S310 - our own http address
        text = answer.read().decode()
    return next((float(each.rsplit(" ", 1)[1]) for each in text.splitlines() if each.rsplit(" ", 1)[0] == line), 0.0)


def count_pending_pods(extender: ExtenderProgram) -> int:
    """Unbound pods that the ledger knows."""
    return sum(
        int(read_metric(extender, f'vrampack_pending_pods{{reason="{why}"}}'))
        for why in ("fits", "fragmented", "full", "never")
    )


def read_ledger_states(extender: ExtenderProgram) -> dict[str, str]:
    """Where the ledger holds something, as `pod on node/card: state, units`."""
    return {
        f"{pod['name']} on {node['name']}/{card['id']}": f"{pod['state']}, {pod['usedGPU']}"
        for node in get_inspect(extender)["nodes"]
        for card in node["devs"]
        for pod in card["pods"]
    }
