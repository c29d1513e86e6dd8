"""The install page, step by step, on an ordinary node."""

from __future__ import annotations

import pytest

from tests.node.containerd_release import BUILT_2, DEBIAN_1_6
from tests.node.node import NAMESPACE, LiveNode, has_ready_condition

pytestmark = pytest.mark.containerd(DEBIAN_1_6, BUILT_2)


def test_both_replicas_become_ready_from_the_manifests_as_they_are(installed: LiveNode) -> None:
    """Both at some moment: on a busy machine either may miss a probe afterwards."""

    def are_ready() -> bool:
        pods = installed.list_objects("pods", "-n", NAMESPACE, "-l", "app.kubernetes.io/name=vrampack-scheduler")
        return [has_ready_condition(pod) for pod in pods] == [True, True]

    installed.wait(are_ready, what=lambda: installed.describe("", namespace=NAMESPACE))


def test_the_agent_becomes_ready_where_there_are_cards(node: LiveNode, restarts_until_ready: list[int]) -> None:
    """Without a restart before it was first ready, and ready again whatever the tests before this one did to it."""
    assert restarts_until_ready == [0]
    node.wait_ready("app.kubernetes.io/name=vrampack-agent", namespace=NAMESPACE)
