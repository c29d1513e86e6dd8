"""A node that is the best one for every pod, and on which no bind ever succeeds: pods try it and go elsewhere.

Its cards hold one pod exactly and nothing else fits as tightly, so each pod is sent there first.
"""

from __future__ import annotations

import json
import sys
from collections import Counter
from collections.abc import Callable
from http import HTTPStatus

import pytest

from tests.e2e.auditing import wait_until_recounted
from tests.e2e.in_cluster import ExtenderProgram
from tests.fakes.proxy_thread import FaultProxyThread
from tests.support.control_plane.cluster import ControlPlane
from tests.support.manifest_builders import PODS, cards_annotation, pod_manifest, published_card
from tests.support.processes import LOOPBACK, ManagedProcess

COUNT = 100
UNITS, CARDS = 4, 8
HELD_BY_A_NODE = CARDS * (15 // UNITS)
FAILING = "failing"
MOST_ATTEMPTS = {HTTPStatus.FORBIDDEN: 3, HTTPStatus.INTERNAL_SERVER_ERROR: 4}
"""The API server's first failure for a pod on a node is not counted against either of them."""
LEAST_SHARE = 0.99


@pytest.mark.parametrize("status", [HTTPStatus.FORBIDDEN, HTTPStatus.INTERNAL_SERVER_ERROR])
@pytest.mark.parametrize("decide", ["prioritize", "filter"])
def test_pods_leave_a_node_on_which_every_bind_fails(
    cluster: ControlPlane,
    extender: Callable[..., ExtenderProgram],
    scheduler: Callable[..., ManagedProcess],
    api_proxy: FaultProxyThread,
    decide: str,
    status: HTTPStatus,
) -> None:
    add_nodes(cluster)
    configuration = f"apiVersion: vrampack.dev/v1\nkind: ExtenderConfiguration\ndecide: {decide}\n"
    ours = extender(api=(LOOPBACK, api_proxy.port), configuration=configuration)
    failing = api_proxy.when("POST", "/binding$", body=rb'"name": ?"failing"').answer(status)
    scheduler()
    names = [f"p{number}" for number in range(COUNT)]
    for name in names:
        cluster.request_ok("POST", PODS, pod_manifest(name, UNITS))
    cluster.wait_until(lambda: not unbound(cluster), 60, what=lambda: f"bound: {unbound(cluster)}")
    assert ours.front
    ours.front.settled()

    asked = Counter(
        json.loads(call.body)["Pod"]["metadata"]["name"] for call in ours.front.matching("POST", "/filter$")
    )
    attempts = Counter(asked[name] for name in names)
    sys.stdout.write(f"decide {decide}, {status}: binds that failed {failing.hits}, pods by attempts {attempts}\n")
    in_time = sum(pods for tried, pods in attempts.items() if tried <= MOST_ATTEMPTS[status])
    assert in_time >= LEAST_SHARE * COUNT
    # After a 500 the place stays held until the outcome is known: then no more pods fit there than there are cards.
    assert failing.hits >= CARDS, "hardly a pod tried the node"
    wait_until_recounted(cluster, ours)


def add_nodes(cluster: ControlPlane) -> None:
    """The failing one, whose cards 4 units fill, and others with room for all pods: three on a card, and 3 units free."""
    tight = (
        published_card(index, units=UNITS, memory_mib=UNITS * 1024, uuid=f"{FAILING}-{index}") for index in range(CARDS)
    )
    cluster.add_node(FAILING, cards=cards_annotation(*tight))
    for number in range(-(-COUNT // HELD_BY_A_NODE) + 1):
        name = f"gpu-{number:02}"
        cluster.add_node(
            name, cards=cards_annotation(*(published_card(index, uuid=f"{name}-{index}") for index in range(CARDS)))
        )


def unbound(cluster: ControlPlane) -> list[str]:
    return [
        pod["metadata"]["name"] for pod in cluster.request_ok("GET", PODS)["items"] if "nodeName" not in pod["spec"]
    ]
