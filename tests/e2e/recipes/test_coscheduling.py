"""Groups of the plugin Coscheduling: scheduler-plugins v0.34.7, built of its module, a scheduler of Kubernetes 1.34 beside a newer API server.

`VRAMPACK_GROUP_ROUNDS` (3) says how often two groups compete.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from tests.e2e.auditing import assert_never_oversold, wait_until_recounted
from tests.e2e.competing_groups import CompetingGroups, Pod
from tests.e2e.in_cluster import SCHEDULER, installed_configuration
from tests.e2e.recipes.definitions import establish_definition
from tests.support.control_plane.cluster import ControlPlane
from tests.support.coscheduling.scheduler import add_plugin, build_scheduler, locate_definition

API = "scheduling.x-k8s.io/v1alpha1"
GROUPS = f"/apis/{API}/namespaces/default/podgroups"
ROUNDS = int(os.environ.get("VRAMPACK_GROUP_ROUNDS", "3"))

Start = Callable[..., Any]


@pytest.fixture
def make_group(cluster: ControlPlane) -> Iterator[Callable[[str, int], Callable[[Pod], Pod]]]:
    """Makes a group, while the API server has them. Returns what puts a pod into it."""
    definition = locate_definition()
    establish_definition(cluster, definition)

    def create_group(name: str, minimum: int) -> Callable[[Pod], Pod]:
        made = {"apiVersion": API, "kind": "PodGroup", "metadata": {"name": name}, "spec": {"minMember": minimum}}
        cluster.request_ok("POST", GROUPS, made)

        def join(pod: Pod) -> Pod:
            pod["metadata"]["labels"] = {"scheduling.x-k8s.io/pod-group": name}
            return pod

        return join

    yield create_group
    cluster.kubectl("delete", "-f", definition)


@pytest.mark.timeout(60 + 60 * ROUNDS)
def test_of_two_groups_that_do_not_both_fit_one_starts_whole_and_then_the_other(
    cluster: ControlPlane,
    make_group: Callable[[str, int], Callable[[Pod], Pod]],
    extender: Start,
    scheduler: Start,
) -> None:
    ours = extender()
    scheduler(program=build_scheduler(), configuration=add_plugin(installed_configuration(cluster, SCHEDULER)))
    rounds = CompetingGroups(cluster, ours, make_group)
    with assert_never_oversold(cluster):
        for number in range(ROUNDS):
            rounds.run_round(number)
    wait_until_recounted(cluster, ours)
