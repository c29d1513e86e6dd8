"""The mode belongs to the container: after a change in either direction, containers of both modes run and restart side by side."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.fakes.nvml.machine import FakeNvmlMachine
from tests.node.admission import TOLD, dry_run_create
from tests.node.agent_settings import set_injection, wait_for_injection
from tests.node.card_agreement import assert_environment_matches, inspect_holdings, list_container_starts
from tests.node.conftest import EXACT
from tests.node.containerd_release import BUILT_2
from tests.node.injected_cards import assert_cards_injected
from tests.node.node import LiveNode, has_ready_condition
from tests.node.pods import a_pod
from tests.support.manifests import MANIFESTS

pytestmark = pytest.mark.containerd(BUILT_2)


@pytest.fixture
def both_kinds(node: LiveNode) -> Iterator[LiveNode]:
    """With the policies that a node needs to have `exact`; afterwards the mode is the agent's own choice again."""
    node.kubectl("apply", "-k", MANIFESTS / EXACT)
    node.wait(lambda: TOLD in dry_run_create(node, a_pod("probe")), what="new pods are told their card")
    yield node
    node.clear()
    node.kubectl("delete", "-k", MANIFESTS / EXACT)
    node.wait(lambda: (made := dry_run_create(node, a_pod("probe"))) and TOLD not in made, what="pods are left alone")
    set_injection(node, "auto")
    wait_for_injection(node, "cdi")


def start(node: LiveNode, name: str) -> None:
    node.apply(a_pod(name, main=4))
    node.wait(lambda: has_ready_condition(node.get("pod", name)), what=lambda: node.describe(""))


def restart_containers(node: LiveNode, *names: str) -> None:
    """End each, and wait until kubelet has started it again."""
    before = {name: [each.restarts for each in list_container_starts(node, name)] for name in names}
    for name in names:
        node.kubectl("exec", name, "--", "kill", "1", check=False)

    def are_back() -> bool:
        now = {name: [each.restarts for each in list_container_starts(node, name)] for name in names}
        return now == {name: [count + 1 for count in counts] for name, counts in before.items()}

    node.wait(are_back, what=lambda: node.describe(""))


def test_containers_keep_the_mode_that_they_got_their_card_in(both_kinds: LiveNode, cards: FakeNvmlMachine) -> None:
    node, (gpu,) = both_kinds, cards.gpus
    minors = {gpu.uuid: gpu.minor}
    start(node, "by-spec")

    set_injection(node, "exact")
    wait_for_injection(node, "exact")
    start(node, "by-name")
    restart_containers(node, "by-spec", "by-name")
    assert_cards_injected(node, "by-spec", minors)
    assert_environment_matches(node, "by-name")

    set_injection(node, "cdi")
    wait_for_injection(node, "cdi")
    start(node, "last")
    restart_containers(node, "by-spec", "by-name")
    assert_cards_injected(node, "by-spec", minors)
    assert_environment_matches(node, "by-name")
    assert_cards_injected(node, "last", minors)
    assert inspect_holdings(node) == {(name, gpu.uuid): 4 for name in ("by-spec", "by-name", "last")}
