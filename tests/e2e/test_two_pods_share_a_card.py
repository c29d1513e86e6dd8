"""The founding scenario on real parts: two pods of 4 units on one card of 15, each bound by one Binding.

The shipped example says nothing of a scheduler or of cards: admission wires its pods.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

from tests.e2e.in_cluster import ExtenderProgram
from tests.support.control_plane.cluster import ControlPlane
from tests.support.manifests import MANIFESTS, load_objects
from tests.support.processes import ManagedProcess

PODS = "/api/v1/namespaces/default/pods"
UUID = "GPU-11111111-2222-3333-4444-555555555555"
V100 = {
    "v": 1,
    "unit_mib": 1024,
    "injection": "exact",
    "devices": "uuid",
    "cards": [
        {
            "uuid": UUID,
            "index": 0,
            "model": "Tesla V100-SXM2-16GB",
            "memory_mib": 16130,
            "units": 15,
            "healthy": True,
            "numa": 0,
            "mig_parent": None,
        }
    ],
}
"""16130 MiB are 15 whole units; 4 of them may use floor(16130 * 4 / 15) = 4301 MiB."""


def test_a_stateful_set_of_two_lands_on_one_card_in_one_step_each(
    cluster: ControlPlane, extender: Callable[..., ExtenderProgram], scheduler: Callable[..., ManagedProcess]
) -> None:
    cluster.add_node("cn-hangzhou.192.168.2.167", cards=json.dumps(V100))
    extender()
    scheduler()
    since = cluster.request_ok("GET", "/api/v1/pods")["metadata"]["resourceVersion"]
    (example,) = [made for made in load_objects(MANIFESTS / "examples") if made["kind"] == "StatefulSet"]
    cluster.request_ok("POST", "/apis/apps/v1/namespaces/default/statefulsets", example)

    pods = cluster.wait_until(lambda: _all_bound(cluster, 2), what="both pods bound")

    for pod in pods:
        annotations = pod["metadata"]["annotations"]
        share = {"uuid": UUID, "units": 4}
        assert pod["spec"]["nodeName"] == "cn-hangzhou.192.168.2.167"
        assert json.loads(annotations["vrampack.dev/allocation"]) == {
            "v": 1,
            "cards": [share | {"index": 0, "of": 15, "whole": False}],
            "containers": {"app-3g-v1": [share | {"mib": 4301}]},
        }
        assert annotations["visible-devices.vrampack.dev/app-3g-v1"] == UUID
        assert annotations["limit-mib.vrampack.dev/app-3g-v1"] == "4301"
        assert annotations["scheduler.framework.gpushare.allocation"] == '{"0":{"0":4}}'
        assert annotations["ALIYUN_COM_GPU_MEM_IDX"] == "0"
        assert annotations["ALIYUN_COM_GPU_MEM_POD"] == "4"
        assert annotations["ALIYUN_COM_GPU_MEM_DEV"] == "15"
        assert annotations["ALIYUN_COM_GPU_MEM_ASSIGNED"] == "true"
        assert annotations["ALIYUN_COM_GPU_MEM_ASSUME_TIME"].isdecimal()
        _assert_one_step(cluster, pod["metadata"]["name"], since)


def _all_bound(cluster: ControlPlane, count: int) -> Any:  # noqa: ANN401 - the pods as the API server holds them
    pods = cluster.request_ok("GET", PODS)["items"]
    return pods if len(pods) == count and all("nodeName" in pod["spec"] for pod in pods) else None


def _assert_one_step(cluster: ControlPlane, name: str, since: str) -> None:
    """No version of the pod shows the node without the record, or the record without the node."""
    path = f"{PODS}?watch=true&resourceVersion={since}&timeoutSeconds=1&fieldSelector=metadata.name={name}"
    events = [json.loads(line) for line in cluster.kubectl("get", "--raw", path).stdout.splitlines()]
    steps = [
        (
            "nodeName" in event["object"]["spec"],
            "vrampack.dev/allocation" in event["object"]["metadata"].get("annotations", {}),
        )
        for event in events
    ]
    assert steps[0] == (False, False)
    assert steps[-1] == (True, True)
    assert set(steps) == {(False, False), (True, True)}
