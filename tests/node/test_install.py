"""The install page, step by step, on a node that could be anybody's."""

from __future__ import annotations

from tests.node.node import NAMESPACE, Node, is_ready


def test_both_replicas_become_ready_from_the_manifests_as_they_are(installed: Node) -> None:
    pods = installed.all("pods", "-n", NAMESPACE, "-l", "app.kubernetes.io/name=vrampack-scheduler")
    assert [is_ready(pod) for pod in pods] == [True, True]


def test_the_agent_becomes_ready_where_there_are_cards(node: Node) -> None:
    """Without a restart, unless somebody killed it: tests before this one do."""
    (pod,) = node.all("pods", "-n", NAMESPACE, "-l", "app.kubernetes.io/name=vrampack-agent")
    (status,) = pod["status"]["containerStatuses"]
    killed = status["lastState"].get("terminated", {}).get("exitCode", 137)
    assert (status["ready"], killed) == (True, 137)
