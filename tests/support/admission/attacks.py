"""Attacks on what admission protects. Each is a plain function that creates what it needs and returns whether it got through.

So the same attack shows two things: the shipped policy stops it, and a weaker policy does not. Getting through
is judged by what the API server stored, not by a status code.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http import HTTPStatus
from typing import TypeAlias

from tests.support.admission.bench import AdmissionBench
from tests.support.admission.pods import (
    MIRROR,
    PROTECTED,
    VOID,
    admission_container,
    admission_pod,
    container_of,
    env_entry,
    expected_environment,
    guarded_entries,
    has_exact_environment,
)
from tests.support.admission.policies import sidecar_injector, with_installed_policies
from tests.support.control_plane.cluster import Json

Attack: TypeAlias = Callable[[AdmissionBench], bool]

ALLOCATION = "vrampack.dev/allocation"
ROUTES = {"pods": "", "pods/status": "/status"}
"""The ways to a pod that is there already: resource, and what it adds to the pod's path."""


def created_with(key: str) -> Attack:
    """A pod created with a record, as by a controller from a copied template."""

    def attack(bench: AdmissionBench) -> bool:
        status, made = bench.post_pod(admission_pod(annotations={key: PROTECTED[key]}))
        return status == HTTPStatus.CREATED and key in made["metadata"]["annotations"]

    return attack


def added_by(resource: str, key: str = ALLOCATION) -> Attack:
    """A record added to a waiting pod."""

    def attack(bench: AdmissionBench) -> bool:
        return _alters(bench, bench.create_pod(), resource, key, PROTECTED[key])

    return attack


def added_once_bound_by(resource: str, key: str) -> Attack:
    """A record added to a pod that the tenant bound without any, where it would be the first one read."""

    def attack(bench: AdmissionBench) -> bool:
        name = bench.create_pod()
        status, answer = bench.bind(name)
        if status != HTTPStatus.CREATED:
            raise RuntimeError(f"the tenant's own Binding: {status} {answer}")
        return _alters(bench, name, resource, key, PROTECTED[key])

    return attack


def changed_by(resource: str, key: str = ALLOCATION) -> Attack:
    def attack(bench: AdmissionBench) -> bool:
        return _alters(bench, bench.create_bound_pod(PROTECTED), resource, key, "forged")

    return attack


def removed_by(resource: str, key: str = ALLOCATION) -> Attack:
    def attack(bench: AdmissionBench) -> bool:
        return _alters(bench, bench.create_bound_pod(PROTECTED), resource, key, None)

    return attack


def bound_with(key: str = ALLOCATION, *, legacy: bool = False) -> Attack:
    """The tenant's own Binding carries a record."""

    def attack(bench: AdmissionBench) -> bool:
        name = bench.create_pod()
        bench.bind(name, annotations={key: PROTECTED[key]}, legacy=legacy)
        return key in bench.annotations(name)

    return attack


def extender_writes_by(resource: str) -> Attack:
    """The extender's own account writes by a request that it never needs."""

    def attack(bench: AdmissionBench) -> bool:
        name = bench.create_bound_pod()
        bench.patch(
            name,
            {"metadata": {"annotations": {ALLOCATION: "forged"}}},
            subresource=ROUTES[resource],
            token=bench.extender,
        )
        return bench.annotations(name)[ALLOCATION] == "forged"

    return attack


def relabelled_by(resource: str, label: str, value: str | None, *, was: str | None) -> Attack:
    """A label that is part of the pod's request is added, changed or (`value` None) removed."""

    def attack(bench: AdmissionBench) -> bool:
        name = bench.create_pod(admission_pod(labels={} if was is None else {label: was}))
        bench.patch(name, {"metadata": {"labels": {label: value}}}, subresource=ROUTES[resource])
        return bench.labels(name).get(label) != was

    return attack


def bound_with_label(label: str, *, legacy: bool = False, by_extender: bool = False) -> Attack:
    """A Binding whose labels the API server would merge over the pod's."""

    def attack(bench: AdmissionBench) -> bool:
        name = bench.create_pod()
        token = bench.extender if by_extender else bench.tenant
        bench.bind(name, labels={label: "2"}, legacy=legacy, token=token)
        return label in bench.labels(name)

    return attack


def asks_with_variable(name: str, *, init: bool = False) -> Attack:
    """The requesting container sets by itself what it may see or use."""
    return _stored_with_other_environment(admission_container(units=4, env=[env_entry(name)]), init=init)


def sibling_with_variable(name: str, *, init: bool = False) -> Attack:
    """A container that requests nothing, beside one that does, sets by itself what it may see."""
    return _stored_with_other_environment(
        admission_container("sibling", env=[env_entry(name)]), admission_container(units=4), init=init
    )


def written_by_hand_with(name: str, *, init: bool = False) -> Attack:
    """The pod already has the right environment, as if it had been through the mutation, and one more entry.

    With `init` that entry is in an init container, where a check of `containers` alone misses it.
    """

    def attack(bench: AdmissionBench) -> bool:
        extra = [env_entry(name)]
        main = admission_container(units=4, env=[*expected_environment("main", 4), *([] if init else extra)])
        pod = admission_pod(main, init=[admission_container("init", env=extra)] if init else [])
        return _is_stored(bench, pod, lambda made: not has_exact_environment(made))

    return attack


def says_it_is_a_mirror_pod(bench: AdmissionBench) -> bool:
    """Mirror pods are not checked, so the tenant writes the annotation that marks them."""
    hostile = admission_container(units=4, env=[env_entry("NVIDIA_VISIBLE_DEVICES")])
    pod = admission_pod(hostile, annotations={MIRROR: "forged"}, nodeName=bench.node)
    return _is_stored(bench, pod, lambda made: not has_exact_environment(made))


def sibling_from_config_map(bench: AdmissionBench) -> bool:
    """As before, the variable comes from a ConfigMap, where admission cannot see it."""
    collection = f"/api/v1/namespaces/{bench.namespace}/configmaps"
    hostile = {"metadata": {"generateName": "hostile-"}, "data": {"NVIDIA_VISIBLE_DEVICES": "all"}}
    name = bench.cluster.request_ok("POST", collection, hostile)["metadata"]["name"]
    pod = admission_pod(admission_container(units=4, env_from=name), admission_container("sibling", env_from=name))
    status, made = bench.post_pod(pod)
    return status == HTTPStatus.CREATED and not has_exact_environment(made)


def debugged_with(*env: Json, env_from: str | None = None, of: Json | None = None) -> Attack:
    """An ephemeral container joins a pod that shares a card. Without `env` it has the image's value: every card."""

    def attack(bench: AdmissionBench) -> bool:
        name = bench.create_pod(of)
        bench.add_debug_container(name, admission_container("debugger", env=env, env_from=env_from))
        return any("envFrom" in made or guarded_entries(made) != VOID for made in bench.add_ephemeral_container(name))

    return attack


def debugged_and_stripped(bench: AdmissionBench) -> bool:
    """Another plugin, which may run after ours, removes the environment of an ephemeral container."""
    addition = {"at": "/spec/ephemeralContainers/0/env", "value": [env_entry("STRIPPED", "yes")]}
    with _with_other_plugin(bench, addition, into="pods/ephemeralcontainers", is_in_force=_is_stripped):
        return debugged_with()(bench)


def names_cards_with(entry: Json, *, init: bool = False) -> Attack:
    """A pod that shares a card has this entry of NVIDIA_VISIBLE_DEVICES in the end, in a container that asks for nothing."""

    def attack(bench: AdmissionBench) -> bool:
        plain = admission_container("plain", env=[entry])
        asks = admission_container(units=4)
        pod = admission_pod(asks, init=[plain]) if init else admission_pod(asks, plain)
        return _is_stored(bench, pod, lambda made: entry["name"] in _names_without_void(container_of(made, "plain")))

    return attack


def debugs_naming_cards_with(entry: Json) -> Attack:
    """An ephemeral container joins a pod that shares a card, and has this entry in the end."""

    def attack(bench: AdmissionBench) -> bool:
        name = bench.create_pod()
        bench.add_debug_container(name, admission_container("debugger", env=[entry]))
        return any(entry["name"] in _names_without_void(made) for made in bench.add_ephemeral_container(name))

    return attack


def injected_in_front(bench: AdmissionBench) -> bool:
    """Another plugin, which may run after ours, adds a sidecar in front that sees every card."""
    sidecar = admission_container("injected", env=[env_entry("NVIDIA_VISIBLE_DEVICES")])
    with _with_other_plugin(bench, {"at": "/spec/containers/0", "value": sidecar}, is_in_force=is_injected):
        status, made = bench.post_pod(admission_pod())
    return status == HTTPStatus.CREATED and not has_exact_environment(made)


def is_injected(bench: AdmissionBench) -> bool | None:
    """Whether a pod without GPU memory gets what the injector adds: from then on it is in force. None if the pod was refused."""
    status, made = bench.post_pod(admission_pod(admission_container()))
    return made["spec"]["containers"][0]["name"] == "injected" if status == HTTPStatus.CREATED else None


def asks_bytes(bench: AdmissionBench) -> bool:
    return _is_stored(bench, admission_pod(admission_container(units="10G")))


def asks_bytes_in_init(bench: AdmissionBench) -> bool:
    return _is_stored(bench, admission_pod(admission_container(), init=[admission_container("init", units="10G")]))


def asks_for_cores(bench: AdmissionBench) -> bool:
    return _is_stored(bench, admission_pod(_with_limit(admission_container(), "aliyun.com/gpu-core.percentage", "30")))


def asks_for_too_many_cards(bench: AdmissionBench) -> bool:
    annotations = {"vrampack.dev/card-uuid": ",".join(f"GPU-{number}" for number in range(65))}
    return _is_stored(bench, admission_pod(admission_container(units=4), annotations=annotations))


def asks_for_an_endless_model(bench: AdmissionBench) -> bool:
    annotations = {"vrampack.dev/card-model": "x" * 129}
    return _is_stored(bench, admission_pod(admission_container(units=4), annotations=annotations))


def other_scheduler(bench: AdmissionBench) -> bool:
    return _is_stored(bench, admission_pod(schedulerName="someone-else"))


def default_scheduler(bench: AdmissionBench) -> bool:
    """Where a second scheduler is ours, a pod that goes to the cluster's own has no card."""
    return _is_stored(bench, admission_pod(), lambda made: made["spec"]["schedulerName"] == "default-scheduler")


def names_its_node(bench: AdmissionBench) -> bool:
    return _is_stored(bench, admission_pod(schedulerName="vrampack", nodeName=bench.node))


def names_its_node_for_an_init_container(bench: AdmissionBench) -> bool:
    asks = admission_container("init", units=4)
    return _is_stored(
        bench, admission_pod(admission_container(), init=[asks], schedulerName="vrampack", nodeName=bench.node)
    )


def sees_cards_unasked(bench: AdmissionBench) -> bool:
    """No GPU memory asked for, every card named: what the optional policy is for."""
    return _is_stored(bench, admission_pod(admission_container(env=[env_entry("NVIDIA_VISIBLE_DEVICES")])))


def debugs_with_cards_unasked(bench: AdmissionBench) -> bool:
    name = bench.create_pod(admission_pod(admission_container()))
    bench.add_debug_container(name, admission_container("debugger", env=[env_entry("NVIDIA_VISIBLE_DEVICES")]))
    return bench.add_ephemeral_container(name) != []


@contextmanager
def _with_other_plugin(
    bench: AdmissionBench, addition: Json, *, into: str = "pods", is_in_force: Callable[[AdmissionBench], bool | None]
) -> Iterator[None]:
    """In force inside, and out of force afterwards: other tests share the tenant's namespace."""
    with with_installed_policies(bench.cluster, *sidecar_injector(bench.namespace, [addition], into=into)):
        bench.cluster.wait_until(lambda: is_in_force(bench), what="the other plugin is in force")
        yield
    bench.cluster.wait_until(lambda: is_in_force(bench) is False, what="the other plugin is out of force")


def _is_stripped(bench: AdmissionBench) -> bool:
    """Seen in a pod that our policies do not check."""
    name = bench.create_pod(admission_pod(admission_container()))
    bench.add_debug_container(name, admission_container("debugger"))
    return [made.get("env") for made in bench.add_ephemeral_container(name)] == [[env_entry("STRIPPED", "yes")]]


def _alters(bench: AdmissionBench, name: str, resource: str, key: str, value: str | None) -> bool:
    before = bench.annotations(name)
    bench.patch(name, {"metadata": {"annotations": {key: value}}}, subresource=ROUTES[resource])
    return bench.annotations(name) != before


def _stored_with_other_environment(*containers: Json, init: bool) -> Attack:
    def attack(bench: AdmissionBench) -> bool:
        pod = admission_pod(admission_container("plain"), init=containers) if init else admission_pod(*containers)
        return _is_stored(bench, pod, lambda made: not has_exact_environment(made))

    return attack


def _is_stored(bench: AdmissionBench, pod: Json, is_harmful: Callable[[Json], bool] = lambda _: True) -> bool:
    status, made = bench.post_pod(pod)
    return status == HTTPStatus.CREATED and is_harmful(made)


def _names_without_void(container: Json) -> list[str]:
    return [made["name"] for made in container.get("env", []) if made not in VOID]


def _with_limit(container: Json, resource: str, quantity: str) -> Json:
    limits = {**container.get("resources", {}).get("limits", {}), resource: quantity}
    return {**container, "resources": {"limits": limits}}
