"""The install page, step by step, on a node that could be anybody's."""

from __future__ import annotations

from tests.node.node import NAMESPACE, LiveNode, has_ready_condition


def test_both_replicas_become_ready_from_the_manifests_as_they_are(installed: LiveNode) -> None:
    pods = installed.list_objects("pods", "-n", NAMESPACE, "-l", "app.kubernetes.io/name=vrampack-scheduler")
    assert [has_ready_condition(pod) for pod in pods] == [True, True]


def test_the_agent_becomes_ready_where_there_are_cards(node: LiveNode) -> None:
    """Without a restart, unless somebody killed it: tests before this one do."""
    (pod,) = node.list_objects("pods", "-n", NAMESPACE, "-l", "app.kubernetes.io/name=vrampack-agent")
    (status,) = pod["status"]["containerStatuses"]
    killed = status["lastState"].get("terminated", {}).get("exitCode", 137)
    assert (status["ready"], killed) == (True, 137)
