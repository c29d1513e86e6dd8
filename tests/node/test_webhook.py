"""The form for clusters before 1.36: no policy changes a pod, the webhook does, with a certificate that a Job made."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.fakes.nvml.machine import FakeNvmlMachine
from tests.node.admission import TOLD, dry_run_create
from tests.node.card_agreement import assert_environment_matches, inspect_holdings, list_kubelet_holdings
from tests.node.conftest import EXACT, SHAPE
from tests.node.node import NAMESPACE, LiveNode, has_ready_condition
from tests.node.pods import a_pod

POLICIES = "mutatingadmissionpolicies,mutatingadmissionpolicybindings"
OURS = ("-l", "app.kubernetes.io/part-of=vrampack")
WEBHOOK = "mutatingwebhookconfigurations"
SECRET = "vrampack-admission"


@pytest.fixture
def with_webhook(node: LiveNode) -> Iterator[LiveNode]:
    """The other shape is applied over the first, as it is; afterwards the first again."""
    node.kubectl("delete", POLICIES, "--all")
    node.install("webhook/second-scheduler")
    try:
        node.wait(lambda: node.get("secret", SECRET, "-n", NAMESPACE), what="the Job has made the certificate")
        for name in ("vrampack-scheduler", "vrampack-admission"):
            _rolled_out(node, name)
        yield node
    finally:
        node.clear()
        node.install(SHAPE, EXACT)
        node.kubectl("delete", WEBHOOK, *OURS)
        node.kubectl("delete", "cronjobs,jobs", "-n", NAMESPACE, *OURS)
        node.kubectl("delete", "deployments,secrets,services", "vrampack-admission", "-n", NAMESPACE)
        _rolled_out(node, "vrampack-scheduler")
        node.wait(lambda: TOLD in dry_run_create(node, a_pod("probe")), what="the policies change pods again")


def test_a_container_gets_its_card_without_a_mutating_policy(with_webhook: LiveNode, cards: FakeNvmlMachine) -> None:
    node, (gpu,) = with_webhook, cards.gpus
    assert node.list_objects(POLICIES) == []
    node.wait(lambda: TOLD in dry_run_create(node, a_pod("probe")), what="the API server calls the webhook")
    node.apply(a_pod("told", main=4, beside=0), a_pod("plain", main=0))
    both = ("told", "plain")
    node.wait(lambda: all(has_ready_condition(node.get("pod", name)) for name in both), what=lambda: node.describe(""))
    assert node.get("pod", "told")["spec"]["schedulerName"] == "vrampack"
    assert_environment_matches(node, "told")
    seen = node.environment("told", container="main")
    assert (seen["NVIDIA_VISIBLE_DEVICES"], seen["NVIDIA_GPU_MEMORY_LIMIT"]) == (gpu.uuid, "4301")  # 16130 * 4 / 15
    assert node.environment("told", container="beside")["NVIDIA_VISIBLE_DEVICES"] == "void"
    assert "NVIDIA_VISIBLE_DEVICES" not in node.environment("plain")
    assert inspect_holdings(node) == list_kubelet_holdings() == {("told", gpu.uuid): 4}


def _rolled_out(node: LiveNode, name: str) -> None:
    node.kubectl("rollout", "status", f"deployment/{name}", "-n", NAMESPACE, "--timeout=100s")
    node.wait_ready(f"app.kubernetes.io/name={name}", namespace=NAMESPACE)
