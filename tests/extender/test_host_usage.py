"""What hosts have left, by what the sinks are told: sums of all pods, and nothing where no policy asks."""

from __future__ import annotations

import json

import msgspec

from extender.state.host_usage import HostUsage
from vrampack.cards.host_room import HostResources
from vrampack.kube.objects import NodeObject, PodObject


def node(name: str, cpu: str = "8", memory: str = "16Gi") -> NodeObject:
    body = {"metadata": {"name": name}, "status": {"allocatable": {"cpu": cpu, "memory": memory}}}
    return msgspec.json.decode(json.dumps(body), type=NodeObject)


def pod(uid: str, on: str = "n", cpu: str = "1", phase: str = "Running") -> PodObject:
    container = {"name": "c", "resources": {"requests": {"cpu": cpu, "memory": "1Gi"}}}
    body = {"metadata": {"uid": uid}, "spec": {"nodeName": on, "containers": [container]}, "status": {"phase": phase}}
    return msgspec.json.decode(json.dumps(body), type=PodObject)


def list_pods(usage: HostUsage, *pods: PodObject) -> None:
    known = usage.begin_list()
    for each in pods:
        usage.update_pod(each)
    usage.end_list(known, {each.metadata.uid for each in pods})


def build_usage(*pods: PodObject) -> HostUsage:
    usage = HostUsage(is_kept=True)
    list_pods(usage, *pods)
    usage.update_node(node("n"))
    return usage


def test_every_bound_pod_is_charged_its_request_until_it_ends() -> None:
    usage = build_usage(pod("a"), pod("b", cpu="2500m"), pod("waits", on=""), pod("done", phase="Succeeded"))
    assert usage.rooms.rooms == {"n": HostResources(4500, 14 * 1024)}
    usage.update_pod(pod("b", cpu="2500m", phase="Failed"))
    usage.remove_pod("a")
    assert usage.rooms.rooms == {"n": HostResources(8000, 16 * 1024)}
    usage.remove_node("n")
    assert usage.rooms.rooms == {}


def test_small_usage_changes_are_ignored() -> None:
    """Rooms are rounded down to half a CPU."""
    usage = build_usage(pod("a", cpu="1100m"))
    generation = usage.rooms.changes.generation
    usage.update_pod(pod("a", cpu="1200m"))
    assert usage.rooms.changes.generation == generation
    assert usage.rooms.rooms["n"].cpu_milli == 6500


def test_a_list_releases_pods_it_does_not_contain() -> None:
    usage = build_usage(pod("a"), pod("b"))
    list_pods(usage, pod("b"))
    assert usage.rooms.rooms["n"].cpu_milli == 7000


def test_no_host_usage_is_kept_unless_a_policy_needs_it() -> None:
    usage = HostUsage(is_kept=False)
    list_pods(usage, pod("a"))
    usage.update_node(node("n"))
    assert usage.rooms.rooms == {}
    assert usage.read_request(pod("a").spec) is None


def test_after_a_reload_no_host_is_known_before_the_next_list() -> None:
    """A list that had already begun may have counted none of its first pages."""
    usage = HostUsage(is_kept=False)
    began = usage.begin_list()
    assert usage.set_kept(is_kept=True)
    usage.update_node(node("n"))
    usage.end_list(began, set())
    assert usage.rooms.rooms == {}
    list_pods(usage, pod("a"))
    assert usage.rooms.rooms["n"].cpu_milli == 7000
    assert not usage.set_kept(is_kept=True)
    usage.set_kept(is_kept=False)
    assert usage.rooms.rooms == {}
