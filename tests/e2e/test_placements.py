"""Where pods go under the real scheduler: packing across nodes, several cards, whole cards, old plugins, full clusters."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tests.e2e.cluster import Cluster
from tests.e2e.in_cluster import Extender
from tests.e2e.objects import PODS, RESOURCE, a_card, a_pod, allocation, cards
from tests.e2e.verb_calls import bind, states

Start = Callable[..., Any]


def run(cluster: Cluster, *pods: dict[str, Any]) -> list[Any]:
    """Create the pods one after another and wait until each is bound."""
    return [bound(cluster, cluster.must("POST", PODS, pod)["metadata"]["name"]) for pod in pods]


def bound(cluster: Cluster, name: str) -> Any:  # noqa: ANN401 - the pod as the API server holds it
    def look() -> Any:  # noqa: ANN401 - as above
        pod = cluster.must("GET", f"{PODS}/{name}")
        return pod if "nodeName" in pod["spec"] else None

    return cluster.wait(look, what=lambda: f"{name} bound: {refusal(cluster, name)}")


def refusal(cluster: Cluster, name: str) -> str:
    conditions = cluster.must("GET", f"{PODS}/{name}")["status"].get("conditions", [])
    return next((str(each.get("message", "")) for each in conditions if each["type"] == "PodScheduled"), "")


def places(pods: list[Any]) -> list[tuple[str, list[int]]]:
    return [(pod["spec"]["nodeName"], [card["index"] for card in allocation(pod)["cards"]]) for pod in pods]


def test_pods_pack_onto_one_card_although_other_nodes_are_empty(
    cluster: Cluster, extender: Start, scheduler: Start
) -> None:
    """Left to itself the scheduler would spread them: the extender's order must outweigh it."""
    for name in ("gpu-0", "gpu-1", "gpu-2"):
        cluster.add_node(name, cards=cards(a_card(0, uuid=f"{name}-a"), a_card(1, uuid=f"{name}-b")))
    extender()
    scheduler()

    pods = run(cluster, *(a_pod(f"p{number}", 4) for number in range(4)))

    # 15 units hold three pods of 4; the fourth opens the next card, of the node whose name comes first
    assert places(pods) == [("gpu-0", [0]), ("gpu-0", [0]), ("gpu-0", [0]), ("gpu-0", [1])]


def test_a_small_pod_takes_the_tightest_card_of_a_mixed_cluster(
    cluster: Cluster, extender: Start, scheduler: Start
) -> None:
    cluster.add_node("a-large", cards=cards(a_card(0, units=80, memory_mib=81920, uuid="GPU-a100")))
    cluster.add_node("b-small", cards=cards(a_card(0, units=24, memory_mib=24576, uuid="GPU-l4"), a_card(1)))
    extender()
    scheduler()

    pods = run(cluster, a_pod("small", 10), a_pod("middle", 20), a_pod("large", 40))

    assert places(pods) == [("b-small", [1]), ("b-small", [0]), ("a-large", [0])]


def test_spread_is_the_operators_choice(cluster: Cluster, extender: Start, scheduler: Start) -> None:
    for name in ("gpu-0", "gpu-1"):
        cluster.add_node(name, cards=cards(a_card(0, uuid=name)))
    extender(configuration="apiVersion: vrampack.dev/v1\nkind: ExtenderConfiguration\npolicy: {default: spread}\n")
    scheduler()

    assert places(run(cluster, a_pod("a", 4), a_pod("b", 4))) == [("gpu-0", [0]), ("gpu-1", [0])]


def test_several_cards_and_whole_cards(cluster: Cluster, extender: Start, scheduler: Start) -> None:
    cluster.add_node("gpu-0", cards=cards(*(a_card(index) for index in range(4))))
    extender()
    scheduler()
    two = a_pod("two", 8, labels={"aliyun.com/gpu-count": "2"})
    whole = a_pod("whole", 4, labels={"ack.gpushare.placement": "require-whole-device"})

    pods = run(cluster, a_pod("one", 5), two, whole)

    # `two` takes 4 units on the card in use and on one more; the whole card must be empty
    assert places(pods) == [("gpu-0", [0]), ("gpu-0", [0, 1]), ("gpu-0", [2])]
    assert [card["units"] for card in allocation(pods[1])["cards"]] == [4, 4]
    assert allocation(pods[2])["cards"] == [{"uuid": "GPU-2", "index": 2, "units": 15, "whole": True}]
    assert allocation(pods[2])["containers"] == {"main": [{"uuid": "GPU-2", "units": 4, "mib": 16130}]}


def test_init_containers_and_sidecars_count_as_the_scheduler_counts_them(
    cluster: Cluster, extender: Start, scheduler: Start
) -> None:
    """Sidecar 2 + main 4 = 6; the init container after the sidecar needs 7 + 2 = 9 for a while: 9 are held."""
    cluster.add_node("gpu-0", cards=cards(a_card(0)))
    running: Extender = extender()
    scheduler()
    pod = a_pod("pod", 4)
    pod["spec"]["initContainers"] = [
        an_init_container("sidecar", 2) | {"restartPolicy": "Always"},
        an_init_container("warm-up", 7),
    ]

    (found,) = run(cluster, pod)

    annotations = found["metadata"]["annotations"]
    assert allocation(found)["cards"][0]["units"] == 9
    assert {name: share[0]["units"] for name, share in allocation(found)["containers"].items()} == {
        "sidecar": 2,
        "warm-up": 7,
        "main": 4,
    }
    assert annotations["limit-mib.vrampack.dev/warm-up"] == "7527"  # 16130 * 7 / 15 = 7527.3
    assert annotations["scheduler.framework.gpushare.allocation"] == '{"0":{"0":9}}'
    cluster.wait(lambda: states(running) == {"pod on gpu-0/0": "bound, 9"}, what="the watch confirms it")


def an_init_container(name: str, units: int) -> dict[str, Any]:
    return {"name": name, "image": "example.com/cuda:1", "resources": {"limits": {RESOURCE: units}}}


def test_a_node_with_an_old_plugin_is_served_in_its_own_words(
    cluster: Cluster, extender: Start, scheduler: Start
) -> None:
    cluster.add_node("old", allocatable={RESOURCE: "30", "aliyun.com/gpu-count": "2"})
    extender()
    scheduler()

    (pod,) = run(cluster, a_pod("pod", 4))

    annotations = pod["metadata"]["annotations"]
    assert allocation(pod) == {
        "v": 1,
        "cards": [{"uuid": None, "index": 0, "units": 4, "whole": False}],
        "containers": {"main": [{"uuid": None, "units": 4}]},
    }
    assert annotations["visible-devices.vrampack.dev/main"] == "0"
    assert "limit-mib.vrampack.dev/main" not in annotations
    assert (annotations["ALIYUN_COM_GPU_MEM_IDX"], annotations["ALIYUN_COM_GPU_MEM_ASSIGNED"]) == ("0", "false")


def test_a_pod_that_no_single_card_can_hold_waits_and_says_why(
    cluster: Cluster, extender: Start, scheduler: Start
) -> None:
    """The node has 14 units free, 7 on each card: the scheduler's own sum would let it pass."""
    cluster.add_node("gpu-0", cards=cards(a_card(0), a_card(1)))
    extender()
    scheduler()
    first, _ = run(cluster, a_pod("a", 8), a_pod("b", 8))
    cluster.must("POST", PODS, a_pod("waits", 8))

    cluster.wait(lambda: "1 no card with enough free memory" in refusal(cluster, "waits"))

    cluster.must("DELETE", f"{PODS}/{first['metadata']['name']}")
    assert places([bound(cluster, "waits")]) == [("gpu-0", [0])]


def test_a_cordoned_or_sick_card_gets_no_pod(cluster: Cluster, extender: Start, scheduler: Start) -> None:
    published = cards(a_card(0, healthy=False), a_card(1), a_card(2))
    cluster.add_node("gpu-0", cards=published, annotations={"vrampack.dev/cordoned-cards": "GPU-1"})
    extender()
    scheduler()

    assert places(run(cluster, a_pod("a", 4))) == [("gpu-0", [2])]


def test_a_killed_extender_comes_back_with_the_same_ledger(cluster: Cluster, extender: Start) -> None:
    cluster.add_node("gpu-0", cards=cards(a_card(0), a_card(1)))
    pods = [cluster.must("POST", PODS, a_pod(f"p{number}", 6)) for number in range(3)]
    first: Extender = extender()
    assert [bind(first, pod, "gpu-0") for pod in pods] == ["", "", ""]
    cluster.wait(lambda: set(states(first).values()) == {"bound, 6"}, what="the watch confirms them")

    first.process.kill()
    second: Extender = extender(fronted=False)

    # 15 units hold two pods of 6; the third is on the second card
    expected = {"p0 on gpu-0/0": "bound, 6", "p1 on gpu-0/0": "bound, 6", "p2 on gpu-0/1": "bound, 6"}
    assert states(second) == expected


def test_every_bind_is_told_on_the_pod(cluster: Cluster, extender: Start, scheduler: Start) -> None:
    cluster.add_node("gpu-0", cards=cards(a_card(0)))
    extender()
    scheduler()
    run(cluster, a_pod("a", 4))

    def told() -> list[str]:
        events = cluster.must("GET", "/api/v1/namespaces/default/events")["items"]
        return [each["message"] for each in events if each["reason"] == "GPUMemoryAssigned"]

    assert cluster.wait(told) == ["4 units on card 0 of node gpu-0"]
