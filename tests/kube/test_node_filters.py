"""What kube-scheduler's filters say about a pod and one node: one row for each rule and each of its edges."""

from __future__ import annotations

import json
from typing import Any

import msgspec
import pytest

from vrampack.kube.examined_objects import ExaminedNode, ExaminedPod
from vrampack.kube.node_filters import (
    PODS_REASON,
    PORTS_REASON,
    SELECTOR_REASON,
    TAINT_REASON,
    UNSCHEDULABLE_REASON,
    find_node_obstacle,
    list_placement_obstacles,
    list_reasons,
    list_shortages,
    read_allocatable,
    read_host_use,
    sum_requests,
)

Json = Any
"""Any: objects as the API server writes them."""


def a_pod(*, requests: Json = None, ports: Json = None, **spec: Json) -> ExaminedPod:
    container = {"name": "main", "resources": {"requests": requests or {}}, "ports": ports or []}
    return msgspec.json.decode(json.dumps({"spec": {"containers": [container], **spec}}), type=ExaminedPod)


def a_node(*, labels: Json = None, allocatable: Json = None, **spec: Json) -> ExaminedNode:
    node = {
        "metadata": {"name": "gpu-0", "labels": {"zone": "a", "cards": "8", **(labels or {})}},
        "spec": spec,
        "status": {"allocatable": {"pods": "10", "cpu": "4", "memory": "8Gi", **(allocatable or {})}},
    }
    return msgspec.json.decode(json.dumps(node), type=ExaminedNode)


def requiring(*terms: Json) -> Json:
    required = {"nodeSelectorTerms": list(terms)}
    return {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": required}}


def on_label(key: str, operator: str, *values: str) -> Json:
    return {"matchExpressions": [{"key": key, "operator": operator, "values": list(values)}]}


def on_name(operator: str, *values: str) -> Json:
    return {"matchFields": [{"key": "metadata.name", "operator": operator, "values": list(values)}]}


SELECTION = {
    "no rule": ({}, True),
    "nodeSelector, equal": ({"nodeSelector": {"zone": "a"}}, True),
    "nodeSelector, one of two differs": ({"nodeSelector": {"zone": "a", "cards": "4"}}, False),
    "nodeSelector, no such label": ({"nodeSelector": {"rack": ""}}, False),
    "In": ({"affinity": requiring(on_label("zone", "In", "b", "a"))}, True),
    "In, another value": ({"affinity": requiring(on_label("zone", "In", "b"))}, False),
    "In, no such label": ({"affinity": requiring(on_label("rack", "In", ""))}, False),
    "NotIn": ({"affinity": requiring(on_label("zone", "NotIn", "b"))}, True),
    "NotIn, its value": ({"affinity": requiring(on_label("zone", "NotIn", "a"))}, False),
    "NotIn, no such label": ({"affinity": requiring(on_label("rack", "NotIn", "1"))}, True),
    "Exists": ({"affinity": requiring(on_label("zone", "Exists"))}, True),
    "Exists, no such label": ({"affinity": requiring(on_label("rack", "Exists"))}, False),
    "DoesNotExist": ({"affinity": requiring(on_label("rack", "DoesNotExist"))}, True),
    "DoesNotExist, but it does": ({"affinity": requiring(on_label("zone", "DoesNotExist"))}, False),
    "Gt, as numbers": ({"affinity": requiring(on_label("cards", "Gt", "07"))}, True),
    "Gt, equal": ({"affinity": requiring(on_label("cards", "Gt", "8"))}, False),
    "Lt, as numbers": ({"affinity": requiring(on_label("cards", "Lt", "10"))}, True),
    "Lt, equal": ({"affinity": requiring(on_label("cards", "Lt", "8"))}, False),
    "Gt, a label that is no number": ({"affinity": requiring(on_label("zone", "Gt", "1"))}, False),
    "Gt, no such label": ({"affinity": requiring(on_label("rack", "Gt", "1"))}, False),
    "an operator of another release": ({"affinity": requiring(on_label("zone", "Like", "a"))}, False),
    "no term": ({"affinity": requiring()}, False),
    "an empty term": ({"affinity": requiring({})}, False),
    "one of two terms": ({"affinity": requiring(on_label("zone", "In", "b"), on_label("zone", "In", "a"))}, True),
    "both requirements of a term": (
        {"affinity": requiring({**on_label("zone", "In", "a"), **on_name("In", "gpu-1")})},
        False,
    ),
    "its name": ({"affinity": requiring(on_name("In", "gpu-0"))}, True),
    "another name": ({"affinity": requiring(on_name("NotIn", "gpu-0"))}, False),
    "nodeSelector and affinity": (
        {"nodeSelector": {"zone": "b"}, "affinity": requiring(on_name("In", "gpu-0"))},
        False,
    ),
}


@pytest.mark.parametrize(("spec", "passes"), SELECTION.values(), ids=SELECTION)
def test_a_pod_selects_its_nodes(spec: Json, *, passes: bool) -> None:
    assert find_node_obstacle(a_pod(**spec), a_node(), []) == ("" if passes else SELECTOR_REASON)


def tainted(effect: str = "NoSchedule", value: str = "gpu") -> Json:
    return {"taints": [{"key": "dedicated", "value": value, "effect": effect}]}


def tolerating(**toleration: str) -> Json:
    return {"tolerations": [toleration]}


TAINTS = {
    "NoSchedule": (tainted(), {}, TAINT_REASON),
    "NoExecute": (tainted("NoExecute"), {}, TAINT_REASON),
    "PreferNoSchedule": (tainted("PreferNoSchedule"), {}, ""),
    "tolerated by value": (tainted(), tolerating(key="dedicated", value="gpu"), ""),
    "another value": (tainted(), tolerating(key="dedicated", operator="Equal", value="cpu"), TAINT_REASON),
    "tolerated by key": (tainted(), tolerating(key="dedicated", operator="Exists"), ""),
    "everything is tolerated": (tainted(), tolerating(operator="Exists"), ""),
    "another key": (tainted(), tolerating(key="other", operator="Exists"), TAINT_REASON),
    "another effect": (tainted(), tolerating(key="dedicated", operator="Exists", effect="NoExecute"), TAINT_REASON),
    "no value, and the taint has one": (tainted(), tolerating(key="dedicated"), TAINT_REASON),
    "greater than the toleration's": (tainted(value="8"), tolerating(key="dedicated", operator="Gt", value="7"), ""),
    "not greater": (tainted(value="7"), tolerating(key="dedicated", operator="Gt", value="7"), TAINT_REASON),
    "less": (tainted(value="-8"), tolerating(key="dedicated", operator="Lt", value="7"), ""),
    "no number to compare": (tainted(), tolerating(key="dedicated", operator="Lt", value="7"), TAINT_REASON),
    "an operator of another release": (tainted(), tolerating(key="dedicated", operator="Like"), TAINT_REASON),
    "cordoned": ({"unschedulable": True}, {}, UNSCHEDULABLE_REASON),
    "cordoned, and tolerated": (
        {"unschedulable": True},
        tolerating(key="node.kubernetes.io/unschedulable", operator="Exists"),
        "",
    ),
}


@pytest.mark.parametrize(("node", "pod", "reason"), TAINTS.values(), ids=TAINTS)
def test_a_node_keeps_pods_away_unless_they_tolerate_it(node: Json, pod: Json, reason: str) -> None:
    assert find_node_obstacle(a_pod(**pod), a_node(**node), []) == reason


RESOURCES = {
    "all fits": ({"cpu": "2", "memory": "4Gi"}, ""),
    # 4 - 1.5 of the other pod leave 2500m
    "exactly the rest": ({"cpu": "2500m"}, ""),
    "a thousandth more": ({"cpu": "2501m"}, "Insufficient cpu"),
    # 8 - 3 leave 5 Gi
    "memory": ({"memory": "5121Mi"}, "Insufficient memory"),
    "what the node does not have": ({"example.com/fpga": "1"}, "Insufficient example.com/fpga"),
    "none of what it does not have": ({"example.com/fpga": "0"}, ""),
}


@pytest.mark.parametrize(("requests", "reason"), RESOURCES.values(), ids=RESOURCES)
def test_requests_fit_beside_those_of_other_pods(requests: Json, reason: str) -> None:
    other = a_pod(requests={"cpu": "1.5", "memory": "3Gi"})
    assert find_node_obstacle(a_pod(requests=requests), a_node(), [other]) == reason


def test_a_node_takes_so_many_pods() -> None:
    others = [a_pod()] * 2
    assert find_node_obstacle(a_pod(), a_node(allocatable={"pods": "3"}), others) == ""
    assert find_node_obstacle(a_pod(), a_node(allocatable={"pods": "2"}), others) == PODS_REASON


def asking(cpu: str, **fields: Json) -> Json:
    return {"resources": {"requests": {"cpu": cpu}}, **fields}


SUMS = {
    # main 1 + 1
    "two containers": ({"containers": [asking("1"), asking("1")]}, 2),
    # the larger of main 1 and init 3
    "an init container": ({"containers": [asking("1")], "initContainers": [asking("3")]}, 3),
    # sidecar 2 + main 1
    "a sidecar": ({"containers": [asking("1")], "initContainers": [asking("2", restartPolicy="Always")]}, 3),
    # sidecar 2 + init 3, over sidecar 2 + main 1
    "an init container after a sidecar": (
        {"containers": [asking("1")], "initContainers": [asking("2", restartPolicy="Always"), asking("3")]},
        5,
    ),
    "the whole pod's": ({"containers": [asking("1")], "resources": {"requests": {"cpu": "4"}}}, 4),
    # main 1 + overhead 1
    # init 3 is gone when main 6 runs
    "a smaller init container": ({"containers": [asking("6")], "initContainers": [asking("3")]}, 6),
    # init 4, then sidecar 3 + main 2
    "an init container before a sidecar": (
        {"containers": [asking("2")], "initContainers": [asking("4"), asking("3", restartPolicy="Always")]},
        5,
    ),
    "overhead": ({"containers": [asking("1")], "overhead": {"cpu": "1"}}, 2),
    "not a quantity": ({"containers": [asking("much")]}, 0),
}


@pytest.mark.parametrize(("spec", "cpus"), SUMS.values(), ids=SUMS)
def test_requests_are_summed_as_the_scheduler_does(spec: Json, cpus: int) -> None:
    assert sum_requests(a_pod(**spec).spec)["cpu"] == cpus * 1000


QUANTITIES = {
    "cores in thousandths": ("cpu", "2", 2000),
    "thousandths": ("cpu", "250m", 250),
    "less than a thousandth is one": ("cpu", "100u", 1),
    "binary": ("memory", "64Gi", 64 * 2**30),
    "decimal": ("memory", "1.5G", 1_500_000_000),
    "part of a byte is one": ("memory", "100m", 1),
    "a number": ("pods", 110, 110),
}


@pytest.mark.parametrize(("name", "quantity", "amount"), QUANTITIES.values(), ids=QUANTITIES)
def test_quantities_are_rounded_up_as_by_the_scheduler(name: str, quantity: str | int, amount: int) -> None:
    assert read_allocatable(a_node(allocatable={name: quantity}))[name] == amount


def port(number: int, **fields: str) -> Json:
    return {"containerPort": 80, "hostPort": number, **fields}


PORTS = {
    "the same": (port(80), PORTS_REASON),
    "another": (port(81), ""),
    "another protocol": (port(80, protocol="UDP"), ""),
    "one address of all": (port(80, hostIP="10.0.0.1"), PORTS_REASON),
    "none of the host": (port(0), ""),
}


@pytest.mark.parametrize(("wanted", "reason"), PORTS.values(), ids=PORTS)
def test_ports_of_the_host_are_taken_once(wanted: Json, reason: str) -> None:
    """The other pod takes port 80 on all addresses."""
    assert find_node_obstacle(a_pod(ports=[wanted]), a_node(), [a_pod(ports=[port(80)])]) == reason


def test_one_port_may_be_taken_on_each_address() -> None:
    taken = a_pod(ports=[port(80, hostIP="10.0.0.1")])
    assert find_node_obstacle(a_pod(ports=[port(80, hostIP="10.0.0.2")]), a_node(), [taken]) == ""
    assert find_node_obstacle(a_pod(ports=[port(80, hostIP="10.0.0.1")]), a_node(), [taken]) == PORTS_REASON


DETAILS = {
    "selector and taint": (
        {"nodeSelector": {"zone": "b", "cards": "8"}},
        tainted("NoExecute"),
        ["taint dedicated=gpu:NoExecute is not tolerated", "nodeSelector wants zone=b"],
    ),
    # the control plane taints what is cordoned
    "cordoned": (
        {},
        {"unschedulable": True, "taints": [{"key": "node.kubernetes.io/unschedulable", "effect": "NoSchedule"}]},
        ["the node is cordoned"],
    ),
    "terms": (
        {"affinity": requiring(on_label("zone", "In", "b", "c"), {**on_label("rack", "Exists"), **on_name("In", "x")})},
        {},
        ["node affinity wants zone in (b,c) or rack,metadata.name=x"],
    ),
    "more terms": (
        {
            "affinity": requiring(
                *(on_label(key, "DoesNotExist") for key in ("zone", "cards")),
                on_label("cards", "Gt", "8"),
                on_label("cards", "NotIn", "8"),
            )
        },
        {},
        ["node affinity wants !zone or !cards or cards>8 or 1 more"],
    ),
}


@pytest.mark.parametrize(("spec", "node", "details"), DETAILS.values(), ids=DETAILS)
def test_all_that_keeps_the_pod_away_is_named(spec: Json, node: Json, details: list[str]) -> None:
    assert [each.detail for each in list_placement_obstacles(a_pod(**spec).spec, a_node(**node))] == details


def test_every_shortage_is_named_with_what_is_free() -> None:
    used = read_host_use(a_pod(requests={"cpu": "1.5", "memory": "3Gi"}, ports=[port(80)]).spec)
    asking = a_pod(requests={"cpu": "2501m", "memory": "6Gi", "example.com/fpga": "1"}, ports=[port(80)]).spec
    node, ignored = a_node(allocatable={"pods": "1"}), {"example.com/fpga"}
    found = list_shortages(read_host_use(asking), read_allocatable(node), used, ignored=ignored)
    assert [each.detail for each in found] == [
        "its port 80 is taken",
        "it takes 1 pods, and has as many",
        "too little cpu (2.5 of 4 are free, 2.501 needed)",
        "too little memory (5 GiB of 8 GiB are free, 6 GiB needed)",
    ]
    assert list_reasons(asking, node, read_allocatable(node), used, ignored=ignored) == [PORTS_REASON]


def test_what_a_pod_took_is_free_again() -> None:
    one, other = (read_host_use(a_pod(requests={"cpu": cpu}, ports=[port(80)]).spec) for cpu in ("1.5", "1"))
    assert one + other - other == one
