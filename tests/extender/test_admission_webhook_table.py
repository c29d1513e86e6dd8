"""The cases of `tests/support/admission/environment_cases.py` without an API server: what the webhook makes of each pod by itself.

There a guard checks the result, here there is none; so attacks on ephemeral containers that the guard answers are left out.
"""

from __future__ import annotations

import base64
import copy
import json
from collections.abc import Callable
from http import HTTPStatus

import pytest

from extender.http.admission_webhook import review_admission
from tests.support.admission import environment_cases
from tests.support.admission.attacks import Attack
from tests.support.admission.bench import AdmissionBench
from tests.support.control_plane.cluster import ControlPlane, Json
from vrampack.cards.env_injection import InjectionNames

LEFT_TO_THE_GUARD = (
    *(what for what in environment_cases.HOSTILE if "ephemeral container" in what and "image" not in what),
    "a sidecar that sees everything",
)
ATTACKS = {what: attack for what, attack in environment_cases.HOSTILE.items() if what not in LEFT_TO_THE_GUARD}
CHECKS = (
    environment_cases.check_a_container_that_asks_reads_its_card_from_the_annotations,
    environment_cases.check_hostile_values_are_replaced_and_the_rest_keeps_its_order,
    environment_cases.check_driver_capabilities_are_the_containers_own_as_far_as_they_bring_libraries,
    environment_cases.check_every_kind_of_container_gets_its_own,
    environment_cases.check_pods_that_ask_for_nothing_are_never_touched,
    environment_cases.check_an_ephemeral_container_keeps_its_own_entries_behind_ours,
    environment_cases.check_an_update_without_a_new_ephemeral_container_passes,
    environment_cases.check_an_ephemeral_container_of_a_pod_without_gpu_memory_is_its_own_affair,
)


class ClusterInMemory(ControlPlane):
    """An API server that asks the webhook and stores what it makes of a pod. Nothing else admits, refuses or fills in."""

    def __init__(self) -> None:
        self._pods: dict[str, Json] = {}

    def request(
        self,
        method: str,  # noqa: ARG002 - the real one's shape
        path: str,
        body: Json = None,
        *,
        token: str | None = None,  # noqa: ARG002 - the real one's shape
        content_type: str = "application/json",  # noqa: ARG002 - the real one's shape
    ) -> tuple[int, Json]:
        rest = path.partition("/pods")[2].strip("/")
        name, _, sub_resource = rest.partition("/")
        if not name and path.endswith("/pods"):
            name = f"pod-{len(self._pods)}"
            pod = copy.deepcopy(body)
            pod["metadata"]["name"] = name
            pod["spec"].setdefault("schedulerName", "default-scheduler")
            self._pods[name] = _admitted("CREATE", "", pod, None)
            return HTTPStatus.CREATED, self._pods[name]
        if sub_resource == "ephemeralcontainers":
            before = self._pods[name]
            after = copy.deepcopy(before)
            after["spec"].setdefault("ephemeralContainers", []).extend(body["spec"]["ephemeralContainers"])
            self._pods[name] = _admitted("UPDATE", sub_resource, after, before)
        elif sub_resource == "binding":
            self._pods[name]["metadata"]["annotations"] |= body["metadata"]["annotations"]
            return HTTPStatus.CREATED, {}
        return HTTPStatus.OK, self._pods.get(name, {"metadata": {"name": "of-a-config-map"}})


def _admitted(operation: str, sub_resource: str, pod: Json, before: Json) -> Json:
    asked = {"uid": "u", "operation": operation, "subResource": sub_resource, "object": pod, "oldObject": before}
    whole = {"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "request": asked}
    response = json.loads(review_admission(json.dumps(whole).encode(), InjectionNames()).body)["response"]
    made = copy.deepcopy(pod)
    for step in json.loads(base64.b64decode(response.get("patch", "")) or "[]"):
        _, _, kind, index, field = step["path"].split("/")
        made["spec"][kind][int(index)][field] = step["value"]
    return made


@pytest.fixture
def bench() -> AdmissionBench:
    return AdmissionBench(ClusterInMemory(), "tenant", "node", "tenant-token", "extender-token")


@pytest.mark.parametrize("attack", ATTACKS.values(), ids=ATTACKS)
def test_no_hostile_environment_gets_through(bench: AdmissionBench, attack: Attack) -> None:
    assert not attack(bench)


@pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.__name__.removeprefix("check_"))
def test_webhook_and_policies_produce_the_same_pod(
    bench: AdmissionBench, check: Callable[[AdmissionBench], None]
) -> None:
    check(bench)


@pytest.mark.parametrize(("written", "units"), [("4", 4), ("2k", 2000), ("1Ki", 1024), ("1048576", 1048576)])
def test_units_are_written_out(bench: AdmissionBench, written: str, units: int) -> None:
    environment_cases.check_units_are_written_out(bench, written, units)
