"""The clusters of the golden files, as API objects. Each says what its numbers are made of."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from tests.cli.inspect.lists import Object, PagedLists

MEMORY, COUNT = "aliyun.com/gpu-mem", "aliyun.com/gpu-count"
T4, V100, A100 = "Tesla T4", "Tesla V100-SXM2-16GB", "NVIDIA A100-SXM4-80GB"
DELETED = "2026-01-01T00:00:00Z"


@dataclass(frozen=True)
class GoldenCluster:
    """A cluster."""

    nodes: Sequence[Object]
    pods: Sequence[Object] = ()

    def lists(self, page_size: int = 500) -> PagedLists:
        return PagedLists(self.nodes, self.pods, page_size)


def a_node(
    name: str,
    cards: Sequence[Object] | str | None = None,
    *,
    ip: str = "",
    unit_mib: int = 1024,
    allocatable: Mapping[str, str] | None = None,
    **annotations: object,
) -> Object:
    """A node with these cards published by its agent (a text: as it stands), else with what a plugin advertises."""
    notes = {f"vrampack.dev/{key.replace('_', '-')}": _text(value) for key, value in annotations.items()}
    if cards is not None:
        published = {"v": 1, "unit_mib": unit_mib, "injection": "exact", "devices": "uuid", "cards": cards}
        notes["vrampack.dev/cards"] = cards if isinstance(cards, str) else json.dumps(published)
    addresses = [{"type": "Hostname", "address": name}] + [{"type": "InternalIP", "address": ip}] * bool(ip)
    return {
        "metadata": {"name": name, "annotations": notes},
        "status": {"allocatable": {"cpu": "8", **(allocatable or {})}, "addresses": addresses},
    }


def a_legacy_node(name: str, units: int, cards: int, *, ip: str = "") -> Object:
    return a_node(name, ip=ip, allocatable={MEMORY: str(units), COUNT: str(cards)})


def a_card(node: str, index: int, units: int, *, model: str = T4, memory_mib: int = 0, **more: object) -> Object:
    """A healthy card `GPU-<node>-<index>` with 800 MiB more than its whole units, unless told otherwise."""
    card: Object = {"uuid": f"GPU-{node}-{index}", "index": index, "model": model, "units": units}
    return card | {"memory_mib": memory_mib or units * 1024 + 800, "healthy": True, "numa": 0} | more


def a_pod(
    name: str,
    node: str,
    *units: int | str,
    namespace: str = "default",
    record: Mapping[str, str] | None = None,
    init: Sequence[Object] = (),
    labels: Mapping[str, str] | None = None,
    phase: str = "Running",
    **metadata: object,
) -> Object:
    """A pod bound to `node` with one container for each of `units`."""
    return {
        "metadata": {
            "name": name,
            "namespace": namespace,
            "uid": f"uid-{namespace}-{name}",
            "labels": dict(labels or {}),
            "annotations": dict(record or {}),
            **metadata,
        },
        "spec": {
            "nodeName": node,
            "initContainers": list(init),
            "containers": [a_container(f"main{at}", each) for at, each in enumerate(units)],
        },
        "status": {"phase": phase},
    }


def a_container(name: str, units: int | str, **more: object) -> Object:
    return {"name": name, "image": "example.com/cuda:1", "resources": {"limits": {MEMORY: str(units)}}, **more}


def ours(*shares: tuple[str, int, int]) -> dict[str, str]:
    """Our record: uuid, index and units of each card."""
    cards = [{"uuid": uuid, "index": index, "units": units, "whole": False} for uuid, index, units in shares]
    return {"vrampack.dev/allocation": json.dumps({"v": 1, "cards": cards, "containers": {}})}


def gpushare_v1(index: int, units: int | None = None) -> dict[str, str]:
    size = {} if units is None else {"ALIYUN_COM_GPU_MEM_POD": str(units)}
    return {"ALIYUN_COM_GPU_MEM_IDX": str(index)} | size


def gpushare_v2(units: Mapping[str, int]) -> dict[str, str]:
    return {"scheduler.framework.gpushare.allocation": json.dumps({"0": units})}


def _text(value: object) -> str:
    return value if isinstance(value, str) else json.dumps(value)


ALI = "cn-hangzhou.192.168.2.167"
APP = [a_pod(f"app-3g-v1-{at}", ALI, 4, record=gpushare_v1(0, 4)) for at in (1, 0)]
V100S = [a_card("v", index, 15, model=V100, memory_mib=16130) for index in (1, 0)]
UNIT_256 = [a_card("n", index, 59, unit_mib=256, memory_mib=15109) for index in (0, 1)]
MIG = [
    a_card("m", index, units, model=model, uuid=f"MIG-{index}", memory_mib=mib, mig_parent="GPU-m")
    for index, (units, model, mib) in enumerate(
        [(39, f"{A100} MIG 3g.40gb", 40448), (19, f"{A100} MIG 2g.20gb", 19968), (9, f"{A100} MIG 1g.10gb", 9728)]
    )
]
LONG = "gke-inference-europe-west4-production-pool-0a1b2c3d-9zq8.c.some-company.internal"

CLUSTERS: dict[str, GoldenCluster] = {
    # The founding scenario as it was recorded, on a node of another plugin: 15 units on one card.
    "recorded-empty": GoldenCluster([a_legacy_node(ALI, 15, 1, ip="192.168.2.167")]),
    # 4 + 4 = 8 of 15: 53.3 %.
    "recorded": GoldenCluster([a_legacy_node(ALI, 15, 1, ip="192.168.2.167")], APP),
    # GPU0 6+4=10, GPU1 4+4=8: 18 of 32, 56.25 %. The other node: 3 on no known card of 16, 18.75 %. 21 of 48: 43.75 %.
    "gpushare": GoldenCluster(
        [a_legacy_node("gpu-node-2", 16, 1, ip="10.0.0.12"), a_legacy_node("gpu-node-1", 32, 2, ip="10.0.0.11")],
        [
            a_pod("web-0", "gpu-node-1", 6, record=gpushare_v1(0, 6)),
            a_pod("multi", "gpu-node-1", 8, record=gpushare_v2({"0": 4, "1": 4}), labels={COUNT: "2"}),
            a_pod("web-1", "gpu-node-1", 4, record=gpushare_v1(1, 4)),
            a_pod("stuck", "gpu-node-2", 3),
        ],
    ),
    # Two cards of 15: 4+5=9 on card 0 (by namespace, then name), 15 on card 1: 24 of 30, 80 %.
    "ours": GoldenCluster(
        [a_node("v", V100S, ip="10.0.0.1")],
        [
            a_pod("web", "v", 5, namespace="shop", record=ours(("GPU-v-0", 0, 5))),
            a_pod("full", "v", 15, namespace="ml", record=ours(("GPU-v-1", 1, 15))),
            a_pod("web", "v", 4, namespace="ml", record=ours(("GPU-v-0", 0, 4))),
        ],
    ),
    # 15+23+79=117 units; 10 on the A10, 40 on the A100: 50 of 117, 42.7 %. The other node has one card: 14.
    # 50 of 131: 38.2 %.
    "mixed-cards": GoldenCluster(
        [
            a_node("a", [a_card("a", 0, 15), a_card("a", 1, 23, model="NVIDIA A10"), a_card("a", 2, 79, model=A100)]),
            a_node("b", [a_card("b", 0, 14)], ip="10.0.0.2"),
        ],
        [
            a_pod("embed", "a", 10, record=ours(("GPU-a-1", 1, 10))),
            a_pod("llm", "a", 40, record=ours(("GPU-a-2", 2, 40))),
        ],
    ),
    # Instances are cards: 39+19+9=67; 30 on the first, 9 on the last: 39 of 67, 58.2 %.
    "mig": GoldenCluster(
        [a_node("m", MIG, ip="10.0.0.3")],
        [
            a_pod("a", "m", 30, record=ours(("MIG-0", 0, 30))),
            a_pod("b", "m", 9, record=ours(("MIG-2", 2, 9))),
        ],
    ),
    # Of 2 instances on card 0 both are taken, on card 1 one. 3+2+4=9 of 45: 20 %. The other node counts none.
    "instances": GoldenCluster(
        [
            a_node("k", [a_card("k", index, 15, instances=2) for index in range(2)], ip="10.0.0.7"),
            a_node("n", [a_card("n", 0, 15)]),
        ],
        [
            a_pod("a", "k", 3, record=ours(("GPU-k-0", 0, 3))),
            a_pod("b", "k", 2, record=ours(("GPU-k-0", 0, 2))),
            a_pod("c", "k", 4, record=ours(("GPU-k-1", 1, 4))),
        ],
    ),
    # 8 on each of two cards, and 6 beside it on the second: 8+8+6=22 of 45, 48.8 %.
    "several-cards": GoldenCluster(
        [a_node("n", [a_card("n", index, 15) for index in range(3)], ip="10.0.0.4")],
        [
            a_pod("pair", "n", 16, labels={COUNT: "2"}, record=ours(("GPU-n-0", 0, 8), ("GPU-n-1", 1, 8))),
            a_pod("side", "n", 6, record=ours(("GPU-n-1", 1, 6))),
        ],
    ),
    # Asks 4, holds all 15 of its card: 15 of 30, 50 %.
    "whole-device": GoldenCluster(
        [a_node("v", V100S, ip="10.0.0.1")],
        [
            a_pod(
                "alone",
                "v",
                4,
                labels={"ack.gpushare.placement": "require-whole-device"},
                record=ours(("GPU-v-0", 0, 15)),
            )
        ],
    ),
    # Known: 12 on card 0. On no known card: 2*3=6 (two cards), 2 (damaged), 5 (its card is gone), and a whole card of at
    # most 16: 29. 41 of 31, 132.2 %. Each of them counts on both cards: 3+2+5+all of it.
    "unknown-pods": GoldenCluster(
        [a_node("n", [a_card("n", 0, 15), a_card("n", 1, 16)], ip="10.0.0.5")],
        [
            a_pod("known", "n", 12, record=ours(("GPU-n-0", 0, 12))),
            a_pod("two-cards", "n", 6, labels={COUNT: "2"}),
            a_pod("damaged", "n", 2, record={"vrampack.dev/allocation": '{"v":2,"cards":[]}'}),
            a_pod("gone", "n", 5, record=ours(("GPU-other", 0, 5))),
            a_pod("whole", "n", 1, labels={"ack.gpushare.placement": "require-whole-device"}),
        ],
    ),
    # The agent says that the pod without a record has 7 on card 1: 7 of 30, 23.3 %, and nothing is unknown.
    "observed": GoldenCluster(
        [
            a_node(
                "v",
                V100S,
                ip="10.0.0.1",
                observed={"v": 1, "pods": {"uid-default-raw": [{"uuid": "GPU-v-1", "units": 7}]}},
            )
        ],
        [a_pod("raw", "v", 7)],
    ),
    # A pod bound by hand where 15 of 15 are held: 18 if it is there; 15 known. And 10+8=18 of 15 on the other node.
    # a: 15+3=18 of 30, 60 %; b: 18 of 15, 120 %; 36 of 45, 80 %.
    "overcommitted": GoldenCluster(
        [
            a_node("a", [a_card("a", 0, 15), a_card("a", 1, 15)], ip="10.0.0.1"),
            a_node("b", [a_card("b", 0, 15)], ip="10.0.0.2"),
        ],
        [
            a_pod("big", "a", 15, record=ours(("GPU-a-0", 0, 15))),
            a_pod("by-hand", "a", 3),
            a_pod("one", "b", 10, record=ours(("GPU-b-0", 0, 10))),
            a_pod("two", "b", 8, record=ours(("GPU-b-0", 0, 8))),
        ],
    ),
    # What a sick card holds is still held: 4 of 30, 13.3 %.
    "unhealthy": GoldenCluster(
        [a_node("n", [a_card("n", 0, 15, healthy=False), a_card("n", 1, 15)], ip="10.0.0.1")],
        [a_pod("p", "n", 4, record=ours(("GPU-n-0", 0, 4)))],
    ),
    # Card 1 is cordoned, and sick too; a uuid that is not there changes nothing. 2 of 30, 6.6 %.
    "cordoned": GoldenCluster(
        [
            a_node(
                "n",
                [a_card("n", 0, 15), a_card("n", 1, 15, healthy=False)],
                ip="10.0.0.1",
                cordoned_cards="GPU-n-1, GPU-x",
            )
        ],
        [a_pod("p", "n", 2, record=ours(("GPU-n-1", 1, 2)))],
    ),
    # Node a cannot be read: no card, its pod's 4 are on no known card. Node b lost what its agent observed, so 3 of its
    # 15 are unknown. Two pods and a node are no such objects, one annotation tries to move the cursor, and node d has
    # nothing but its problem. 7 of 15, 46.6 %.
    "damaged": GoldenCluster(
        [
            a_node("a", '{"v":1,"cards":[{"uuid":"GPU-a-0","index":0,"units":"15"}]}', ip="10.0.0.1"),
            a_node("b", [a_card("b", 0, 15, model="T4\x1b[2J\n! b")], ip="10.0.0.2", observed="[]"),
            {"metadata": {"name": "c", "annotations": {"vrampack.dev/cards": None}}},
            a_node("d", "[]", ip="10.0.0.4"),
        ],
        [
            a_pod("p", "a", 4, record=ours(("GPU-a-0", 0, 4))),
            a_pod("q", "b", 3),
            {"metadata": {"namespace": "default", "name": "r", "labels": ["app"]}, "spec": {"nodeName": "b"}},
            a_pod("s", "b", 1, deletionTimestamp=5),
        ],
    ),
    # 15109 MiB are 59 units of 256: 20 of 118, 16.9 %. The legacy node counts in the same unit: 40.
    # 20 of 158, 12.6 %.
    "unit-256": GoldenCluster(
        [a_node("n", UNIT_256, ip="10.0.0.1", unit_mib=256), a_legacy_node("old", 40, 1, ip="10.0.0.2")],
        [a_pod("p", "n", 20, record=ours(("GPU-n-0", 0, 20)))],
    ),
    # Most say 1024. What the node with 512 has cannot be added to it: 4 of 30, 13.3 %, and its own 6 of 29, 20.6 %.
    "another-unit": GoldenCluster(
        [
            a_node("a", [a_card("a", 0, 15)], ip="10.0.0.1"),
            a_node("b", [a_card("b", 0, 15)], ip="10.0.0.2"),
            a_node("c", [a_card("c", 0, 29, memory_mib=15109)], ip="10.0.0.3", unit_mib=512),
        ],
        [
            a_pod("p", "a", 4, record=ours(("GPU-a-0", 0, 4))),
            a_pod("q", "c", 6, record=ours(("GPU-c-0", 0, 6))),
        ],
    ),
    "no-gpu-nodes": GoldenCluster([a_node("cpu-1", ip="10.0.0.1")], [a_pod("web", "cpu-1", "0")]),
    # Node at has at of 15 units held, 0+1+..+11=66 of 180, 36.6 %; by name, so node-10 stands before node-2.
    "twelve-nodes": GoldenCluster(
        [a_node(f"node-{at}", [a_card(f"node-{at}", 0, 15)], ip=f"10.0.0.{at}") for at in range(12)],
        [a_pod(f"p{at}", f"node-{at}", at, record=ours((f"GPU-node-{at}-0", 0, at))) for at in range(1, 12)],
    ),
    # 12+3=15 of 15, and nothing is cut off.
    "long-names": GoldenCluster(
        [a_node(LONG, [a_card("l", 0, 15)], ip="fd00:1234:5678:9abc:def0:1234:5678:9abc")],
        [
            a_pod("r" * 63, LONG, 12, namespace="n" * 63, record=ours(("GPU-l-0", 0, 12))),
            a_pod("s", LONG, 3, record=ours(("GPU-l-0", 0, 3))),
        ],
    ),
    # A terminating pod holds its 4 until it is gone, finished ones hold nothing, one that waits holds nothing: 4 of 15.
    "terminating-and-finished": GoldenCluster(
        [a_node("n", [a_card("n", 0, 15)], ip="10.0.0.1")],
        [
            a_pod("leaving", "n", 4, record=ours(("GPU-n-0", 0, 4)), deletionTimestamp=DELETED),
            a_pod("done", "n", 5, record=ours(("GPU-n-0", 0, 5)), phase="Succeeded"),
            a_pod("broken", "n", 6, record=ours(("GPU-n-0", 0, 6)), phase="Failed"),
            a_pod("waiting", "", 7, phase="Pending"),
            a_pod("elsewhere", "no-such-node", 2, record=ours(("GPU-n-0", 0, 2))),
        ],
    ),
    # Records without a size: the request counts. Sum of containers 4+1=5, of the init container 6: 6. Sidecar 2 + main
    # 4 = 6 against init 3 + sidecar 2 = 5: 6. And one pod on no card, by the same sum: max(1, 8)=8. 6+6+8=20 of 32: 62.5 %.
    "init-containers": GoldenCluster(
        [a_legacy_node("old", 32, 2, ip="10.0.0.1")],
        [
            a_pod("init", "old", 4, 1, record=gpushare_v1(0), init=[a_container("fetch", 6)]),
            a_pod(
                "sidecar",
                "old",
                4,
                record=gpushare_v1(1),
                init=[a_container("proxy", 2, restartPolicy="Always"), a_container("fetch", 3)],
            ),
            a_pod("unknown", "old", 1, init=[a_container("fetch", 8)]),
        ],
    ),
    # Cards 0 and 2: card 1 was taken out. A node whose plugin is gone still has its pod. 3+2=5 of 23, 21.7 %.
    "card-taken-out": GoldenCluster(
        [a_node("n", [a_card("n", 0, 8), a_card("n", 2, 15)], ip="10.0.0.1"), a_node("o", ip="10.0.0.2")],
        [
            a_pod("p", "n", 3, record=ours(("GPU-n-2", 2, 3))),
            a_pod("q", "o", 2, record=gpushare_v1(0, 2)),
        ],
    ),
}
