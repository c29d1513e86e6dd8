"""Raw API objects for the auditor's own tests, right in every part, so that a test can spoil one of them.

A clean scene has one of each kind: shared and whole cards, two cards, init and sidecar containers, the three older
generations, a legacy node, pods that are pending, over, and bound by somebody else.
"""

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from tests.auditor.terms import Violation

Object = dict[str, Any]  # Any: raw API objects are what the auditor reads

MEMORY_MIB = 16130
V1 = "ALIYUN_COM_GPU_MEM_"


def a_node(
    name: str = "n1", units: Sequence[int] = (15, 15), memory_mib: int = MEMORY_MIB, devices: str = "uuid"
) -> Object:
    """A node with our agent, cards of the units given."""
    cards = [
        {"uuid": f"GPU-{name}-{index}", "index": index, "model": "T4", "memory_mib": memory_mib, "units": count}
        | {"healthy": True, "numa": 0, "mig_parent": None}
        for index, count in enumerate(units)
    ]
    published = {"v": 1, "unit_mib": 1024, "injection": "exact", "devices": devices, "cards": cards}
    return {"metadata": {"name": name, "annotations": {"vrampack.dev/cards": json.dumps(published)}}}


def a_legacy_node(name: str = "old", units: int = 30, count: int = 2) -> Object:
    """A node that another plugin runs: totals only."""
    return {
        "metadata": {"name": name},
        "status": {"allocatable": {"aliyun.com/gpu-mem": str(units), "aliyun.com/gpu-count": str(count)}},
    }


def a_pod(
    name: str,
    own: Mapping[str, int] | None = None,
    *,
    init: Mapping[str, int] | None = None,
    sidecars: Mapping[str, int] | None = None,
    count: int = 1,
    whole: bool = False,
) -> Object:
    """A pending pod; `own` are its containers' units, sidecars come before plain init containers."""
    labels = {"aliyun.com/gpu-count": str(count)} if count > 1 else {}
    labels |= {"ack.gpushare.placement": "require-whole-device"} if whole else {}
    early = [_container(n, u) | {"restartPolicy": "Always"} for n, u in (sidecars or {}).items()]
    early += [_container(n, u) for n, u in (init or {}).items()]
    return {
        "metadata": {"namespace": "ml", "name": name, "uid": f"uid-{name}", "labels": labels, "annotations": {}},
        "spec": {"initContainers": early, "containers": [_container(n, u) for n, u in (own or {"main": 4}).items()]},
        "status": {"phase": "Pending"},
    }


def a_pod_with_init() -> Object:
    """Holds max(2 + 1 (sidecar), 6 (init) + 1 (sidecar before it)) = 7 for life."""
    return a_pod("init", {"quiet": 0, "main": 2}, init={"warm": 6}, sidecars={"side": 1})


def bound(pod: Object, node: Object, cards: Sequence[int] = (0,), *, held: int | None = None) -> Object:
    """The pod as our Binding leaves it, `held` units on each card (its containers' sum unless given)."""
    name, spec = node["metadata"]["name"], pod["spec"]
    own = {
        c["name"]: int(c["resources"]["limits"]["aliyun.com/gpu-mem"])
        for c in spec["initContainers"] + spec["containers"]
    }
    own = {container: units // len(cards) for container, units in own.items() if units}
    plain = [c["name"] for c in spec["containers"]]
    each = sum(own.get(container, 0) for container in plain) if held is None else held
    published = json.loads(node["metadata"].get("annotations", {}).get("vrampack.dev/cards", "{}"))
    on = [card for card in published.get("cards", []) if card["index"] in cards]
    whole = "ack.gpushare.placement" in pod["metadata"]["labels"]
    notes = (
        _ours(own, on, each, whole=whole, cdi=published.get("devices") == "cdi")
        if on
        else _ours_legacy(own, cards, each)
    )
    shares = {str(i): {str(c): own[n] for c in cards} for i, n in enumerate(plain) if n in own} or {
        "0": dict.fromkeys(map(str, cards), 0)
    }
    for share in (first := shares[min(shares)]):
        first[share] += each - sum(units[share] for units in shares.values())
    notes |= {
        "scheduler.framework.gpushare.allocation": json.dumps(shares),
        f"{V1}POD": str(each * len(cards)),
        f"{V1}DEV": str(min(on, key=lambda card: card["index"])["units"] if on else 15),
        f"{V1}ASSIGNED": "true" if on else "false",
        f"{V1}ASSUME_TIME": "1790000000000000000",
    } | ({f"{V1}IDX": str(cards[0])} if len(cards) == 1 else {})
    pod["metadata"]["annotations"] |= notes
    spec["nodeName"], pod["status"]["phase"] = name, "Running"
    return pod


def bound_elsewhere(name: str, node: str, notes: Mapping[str, str], units: int = 4) -> Object:
    """A running pod that another scheduler bound, with that scheduler's annotations."""
    pod = a_pod(name, {"main": units})
    pod["metadata"]["annotations"], pod["spec"]["nodeName"], pod["status"]["phase"] = dict(notes), node, "Running"
    return pod


def a_bind(
    pod: str, node: str, problem: str = "", *, uid: str = "", status: int = 200, cut: str | None = None
) -> Object:
    """One line of the transcript."""
    asked = {"PodName": pod, "PodNamespace": "ml", "PodUID": uid or f"uid-{pod}", "Node": node}
    answer = None if cut else {"Error": problem}
    return {
        "t": 1.0,
        "verb": "bind",
        "request": asked,
        "status": None if cut else status,
        "answer": answer,
        "error": cut,
    }


@dataclass(slots=True)
class AuditScene:
    """A cluster and the transcript of its bind calls."""

    nodes: dict[str, Object] = field(default_factory=dict)
    pods: dict[str, Object] = field(default_factory=dict)
    transcript: list[Object] = field(default_factory=list)

    def add(self, pod: Object) -> None:
        self.pods[pod["metadata"]["name"]] = pod

    def notes(self, pod: str) -> dict[str, str]:
        found: dict[str, str] = self.pods[pod]["metadata"]["annotations"]
        return found

    def add_bind_answer(self, pod: str, node: str, problem: str = "", **how: Any) -> None:  # noqa: ANN401 - passed on to a_bind
        """Replace what bind said about a pod by one answer."""
        self.transcript = [line for line in self.transcript if line["request"]["PodName"] != pod]
        self.transcript.append(a_bind(pod, node, problem, **how))


def clean_scene() -> AuditScene:
    """Every kind of pod, nothing wrong. Card n1/0 is full: 8 + 4 + 3 = 15."""
    n1, n2, old, cdi = a_node("n1"), a_node("n2", units=(15, 11, 15)), a_legacy_node(), a_node("cdi", devices="cdi")
    scene = AuditScene(nodes={"n1": n1, "n2": n2, "old": old, "cdi": cdi})
    ours = [
        bound(a_pod("eight", {"main": 8}), n1),
        bound(a_pod("four", {"main": 4}), n1),
        bound(a_pod("leaving", {"main": 3}), n1),
        bound(a_pod_with_init(), n1, [1], held=7),
        bound(a_pod("whole", {"main": 6}, whole=True), n2, [0], held=15),
        bound(a_pod("two", {"a": 8, "b": 2}, count=2), n2, [1, 2]),
        bound(a_pod("cdi", {"main": 4}), cdi),
        bound(a_pod("legacy", {"main": 5}), old, [1]),
    ]
    ours[2]["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z"
    for pod in ours:
        scene.add(pod)
        scene.transcript.append(a_bind(pod["metadata"]["name"], pod["spec"]["nodeName"]))
    scene.add(bound_elsewhere("v1", "old", {f"{V1}IDX": "0", f"{V1}POD": "4", f"{V1}DEV": "15"}))
    scene.add(bound_elsewhere("v2", "old", {"scheduler.framework.gpushare.allocation": '{"0":{"0":1,"1":3}}'}))
    scene.add(bound_elsewhere("v3", "old", {"gpushare.alibabacloud.com/gpumemory": '{"0":{"0":4}}'}))
    scene.add(bound_elsewhere("unrecorded", "cdi", {}, units=11))
    over = bound(a_pod("over", {"main": 15}), n1)
    over["status"]["phase"] = "Succeeded"
    scene.add(over)
    scene.transcript += [
        a_bind("over", "n1"),
        a_bind("gone", "n1"),
        a_bind("pending", "n1", "no card with enough free memory"),
    ]
    scene.add(a_pod("pending", {"main": 15}))
    return scene


def assert_reported(found: Iterable[Violation], want: set[tuple[str, str]], says: str) -> None:
    """These invariants are broken, by these objects, and no others; one of the texts says so."""
    violations = list(found)
    assert {(violation.invariant, violation.object) for violation in violations} == want
    assert any(says in violation.text for violation in violations)


def _container(name: str, units: int) -> Object:
    return {"name": name, "resources": {"limits": {"aliyun.com/gpu-mem": str(units)}}}


def _ours(own: Mapping[str, int], on: Sequence[Object], each: int, *, whole: bool, cdi: bool) -> dict[str, str]:
    cards = [{"uuid": c["uuid"], "index": c["index"], "units": each, "of": c["units"], "whole": whole} for c in on]
    limits = {n: [c["memory_mib"] * (each if whole else units) // c["units"] for c in on] for n, units in own.items()}
    shares = {
        n: [{"uuid": c["uuid"], "units": units, "mib": mib} for c, mib in zip(on, limits[n], strict=True)]
        for n, units in own.items()
    }
    devices = ",".join(f"k8s.device-plugin.nvidia.com/gpu={c['uuid']}" if cdi else c["uuid"] for c in on)
    return (
        {"vrampack.dev/allocation": json.dumps({"v": 1, "cards": cards, "containers": shares})}
        | {f"visible-devices.vrampack.dev/{n}": devices for n in own}
        | {f"limit-mib.vrampack.dev/{n}": str(min(limits[n])) for n in own}
    )


def _ours_legacy(own: Mapping[str, int], on: Sequence[int], each: int) -> dict[str, str]:
    cards = [{"uuid": None, "index": index, "units": each, "whole": False} for index in on]
    shares = {n: [{"uuid": None, "units": units} for _ in on] for n, units in own.items()}
    return {"vrampack.dev/allocation": json.dumps({"v": 1, "cards": cards, "containers": shares})} | {
        f"visible-devices.vrampack.dev/{n}": ",".join(map(str, on)) for n in own
    }
