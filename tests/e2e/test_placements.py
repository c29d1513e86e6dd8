"""Where pods go under the real scheduler: packing across nodes, several cards, whole cards, old plugins, full clusters."""

from __future__ import annotations

from typing import Any

from tests.e2e.in_cluster import ExtenderProgram
from tests.e2e.pod_placements import Start, list_places, read_refusal, run_pods, wait_until_bound
from tests.e2e.verb_calls import post_bind, read_ledger_states
from tests.support.control_plane.cluster import ControlPlane
from tests.support.manifest_builders import (
    PODS,
    RESOURCE,
    cards_annotation,
    pod_manifest,
    published_card,
    read_allocation_record,
)


def test_pods_pack_onto_one_card_although_other_nodes_are_empty(
    cluster: ControlPlane, extender: Start, scheduler: Start
) -> None:
    """Left to itself the scheduler would spread them: the extender's order must outweigh it."""
    for name in ("gpu-0", "gpu-1", "gpu-2"):
        cluster.add_node(
            name, cards=cards_annotation(published_card(0, uuid=f"{name}-a"), published_card(1, uuid=f"{name}-b"))
        )
    extender()
    scheduler()

    pods = run_pods(cluster, *(pod_manifest(f"p{number}", 4) for number in range(4)))

    # 15 units hold three pods of 4; the fourth opens the next card, of the node whose name comes first
    assert list_places(pods) == [("gpu-0", [0]), ("gpu-0", [0]), ("gpu-0", [0]), ("gpu-0", [1])]


def test_a_small_pod_takes_the_tightest_card_of_a_mixed_cluster(
    cluster: ControlPlane, extender: Start, scheduler: Start
) -> None:
    cluster.add_node("a-large", cards=cards_annotation(published_card(0, units=80, memory_mib=81920, uuid="GPU-a100")))
    cluster.add_node(
        "b-small",
        cards=cards_annotation(published_card(0, units=24, memory_mib=24576, uuid="GPU-l4"), published_card(1)),
    )
    extender()
    scheduler()

    pods = run_pods(cluster, pod_manifest("small", 10), pod_manifest("middle", 20), pod_manifest("large", 40))

    assert list_places(pods) == [("b-small", [1]), ("b-small", [0]), ("a-large", [0])]


def test_spread_policy_places_pods_on_different_nodes(cluster: ControlPlane, extender: Start, scheduler: Start) -> None:
    for name in ("gpu-0", "gpu-1"):
        cluster.add_node(name, cards=cards_annotation(published_card(0, uuid=name)))
    extender(configuration="apiVersion: vrampack.dev/v1\nkind: ExtenderConfiguration\npolicy: {default: spread}\n")
    scheduler()

    assert list_places(run_pods(cluster, pod_manifest("a", 4), pod_manifest("b", 4))) == [
        ("gpu-0", [0]),
        ("gpu-1", [0]),
    ]


def test_pods_on_several_cards_and_on_a_whole_card_are_placed(
    cluster: ControlPlane, extender: Start, scheduler: Start
) -> None:
    cluster.add_node("gpu-0", cards=cards_annotation(*(published_card(index) for index in range(4))))
    extender()
    scheduler()
    two = pod_manifest("two", 8, labels={"aliyun.com/gpu-count": "2"})
    whole = pod_manifest("whole", 15, labels={"ack.gpushare.placement": "require-whole-device"})

    pods = run_pods(cluster, pod_manifest("one", 5), two, whole)

    # `two` takes 4 units on the card in use and on one more; the whole card must be empty
    assert list_places(pods) == [("gpu-0", [0]), ("gpu-0", [0, 1]), ("gpu-0", [2])]
    assert [card["units"] for card in read_allocation_record(pods[1])["cards"]] == [4, 4]
    assert read_allocation_record(pods[2])["cards"] == [
        {"uuid": "GPU-2", "index": 2, "units": 15, "of": 15, "whole": True}
    ]
    assert read_allocation_record(pods[2])["containers"] == {"main": [{"uuid": "GPU-2", "units": 15, "mib": 16130}]}


def test_init_containers_and_sidecars_count_as_the_scheduler_counts_them(
    cluster: ControlPlane, extender: Start, scheduler: Start
) -> None:
    """Sidecar 2 + main 4 = 6; the init container after the sidecar needs 7 + 2 = 9 for a while: 9 are held."""
    cluster.add_node("gpu-0", cards=cards_annotation(published_card(0)))
    running: ExtenderProgram = extender()
    scheduler()
    pod = pod_manifest("pod", 4)
    pod["spec"]["initContainers"] = [
        an_init_container("sidecar", 2) | {"restartPolicy": "Always"},
        an_init_container("warm-up", 7),
    ]

    (found,) = run_pods(cluster, pod)

    annotations = found["metadata"]["annotations"]
    assert read_allocation_record(found)["cards"][0]["units"] == 9
    assert {name: share[0]["units"] for name, share in read_allocation_record(found)["containers"].items()} == {
        "sidecar": 2,
        "warm-up": 7,
        "main": 4,
    }
    assert annotations["limit-mib.vrampack.dev/warm-up"] == "7527"  # 16130 * 7 / 15 = 7527.3
    assert annotations["scheduler.framework.gpushare.allocation"] == '{"0":{"0":9}}'
    cluster.wait_until(
        lambda: read_ledger_states(running) == {"pod on gpu-0/0": "bound, 9"}, what="the watch confirms it"
    )


def an_init_container(name: str, units: int) -> dict[str, Any]:
    return {"name": name, "image": "example.com/cuda:1", "resources": {"limits": {RESOURCE: units}}}


def test_node_with_an_old_plugin_gets_records_that_the_plugin_reads(
    cluster: ControlPlane, extender: Start, scheduler: Start
) -> None:
    cluster.add_node("old", allocatable={RESOURCE: "30", "aliyun.com/gpu-count": "2"})
    extender()
    scheduler()

    (pod,) = run_pods(cluster, pod_manifest("pod", 4))

    annotations = pod["metadata"]["annotations"]
    assert read_allocation_record(pod) == {
        "v": 1,
        "cards": [{"uuid": None, "index": 0, "units": 4, "whole": False}],
        "containers": {"main": [{"uuid": None, "units": 4}]},
    }
    assert annotations["visible-devices.vrampack.dev/main"] == "0"
    assert "limit-mib.vrampack.dev/main" not in annotations
    assert (annotations["ALIYUN_COM_GPU_MEM_IDX"], annotations["ALIYUN_COM_GPU_MEM_ASSIGNED"]) == ("0", "false")


def test_a_pod_that_no_single_card_can_hold_waits_and_says_why(
    cluster: ControlPlane, extender: Start, scheduler: Start
) -> None:
    """The node has 14 units free, 7 on each card: the scheduler's own sum would let it pass."""
    cluster.add_node("gpu-0", cards=cards_annotation(published_card(0), published_card(1)))
    extender()
    scheduler()
    first, _ = run_pods(cluster, pod_manifest("a", 8), pod_manifest("b", 8))
    cluster.request_ok("POST", PODS, pod_manifest("waits", 8))

    cluster.wait_until(lambda: "1 no card with enough free memory" in read_refusal(cluster, "waits"))

    cluster.request_ok("DELETE", f"{PODS}/{first['metadata']['name']}")
    assert list_places([wait_until_bound(cluster, "waits")]) == [("gpu-0", [0])]


def test_a_cordoned_or_sick_card_gets_no_pod(cluster: ControlPlane, extender: Start, scheduler: Start) -> None:
    published = cards_annotation(published_card(0, healthy=False), published_card(1), published_card(2))
    cluster.add_node("gpu-0", cards=published, annotations={"vrampack.dev/cordoned-cards": "GPU-1"})
    extender()
    scheduler()

    assert list_places(run_pods(cluster, pod_manifest("a", 4))) == [("gpu-0", [2])]


def test_a_killed_extender_comes_back_with_the_same_ledger(cluster: ControlPlane, extender: Start) -> None:
    cluster.add_node("gpu-0", cards=cards_annotation(published_card(0), published_card(1)))
    pods = [cluster.request_ok("POST", PODS, pod_manifest(f"p{number}", 6)) for number in range(3)]
    first: ExtenderProgram = extender()
    assert [post_bind(first, pod, "gpu-0") for pod in pods] == ["", "", ""]
    cluster.wait_until(lambda: set(read_ledger_states(first).values()) == {"bound, 6"}, what="the watch confirms them")

    first.process.kill()
    second: ExtenderProgram = extender(fronted=False)

    # 15 units hold two pods of 6; the third is on the second card
    expected = {"p0 on gpu-0/0": "bound, 6", "p1 on gpu-0/0": "bound, 6", "p2 on gpu-0/1": "bound, 6"}
    assert read_ledger_states(second) == expected


def test_every_bind_writes_an_event_about_the_pod(cluster: ControlPlane, extender: Start, scheduler: Start) -> None:
    cluster.add_node("gpu-0", cards=cards_annotation(published_card(0)))
    extender()
    scheduler()
    run_pods(cluster, pod_manifest("a", 4))

    def list_bind_messages() -> list[str]:
        events = cluster.request_ok("GET", "/api/v1/namespaces/default/events")["items"]
        return [each["message"] for each in events if each["reason"] == "GPUMemoryAssigned"]

    assert cluster.wait_until(list_bind_messages) == [
        "4 units (4 GiB) on card 0 (Tesla V100-SXM2-16GB) of node gpu-0; limits on a card: main 4301 MiB"
    ]
