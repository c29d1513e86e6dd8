"""What a pod says of its runtime, node and host: runtime classes, `spec.nodeName`, and what is Pod Security's work."""

from __future__ import annotations

from collections.abc import Iterator
from http import HTTPStatus

import pytest

from tests.e2e.second_scheduler import without_second_scheduler
from tests.support.admission.attacks import Attack
from tests.support.admission.bench import AdmissionBench
from tests.support.admission.pods import VOID, admission_container, admission_pod, has_exact_environment
from tests.support.admission.policies import (
    EXACT,
    SHIPPED,
    Edit,
    apply_policies,
    delete_policies,
    wait_for_policies,
    with_validation_switched_off,
    with_weakened_policies,
    without_resource,
    without_showing,
    without_validation,
)
from tests.support.control_plane.cluster import ControlPlane, Json

GUARD, NODE_GUARD = "vrampack-runtime-guard", "vrampack-node-guard"
INJECT, ENVIRONMENT_GUARD, EPHEMERAL = (
    "vrampack-environment-inject",
    "vrampack-environment-guard",
    "vrampack-environment-ephemeral",
)
KUBEADM = SHIPPED / "kubeadm"
CLASSES = ("nvidia", "nvidia-cdi", "nvidia-legacy", "gvisor")
CLASS_COLLECTION = "/apis/node.k8s.io/v1/runtimeclasses"


@pytest.fixture(scope="module")
def _classes(cluster: ControlPlane) -> Iterator[None]:
    for name in CLASSES:
        cluster.request_ok("POST", CLASS_COLLECTION, {"metadata": {"name": name}, "handler": name})
    yield
    for name in CLASSES:
        cluster.request_ok("DELETE", f"{CLASS_COLLECTION}/{name}")


@pytest.fixture
def bench(tenant: AdmissionBench, _classes: None) -> Iterator[AdmissionBench]:
    with tenant.with_node():
        yield tenant


def runs_in(name: str) -> Attack:
    def attack(bench: AdmissionBench) -> bool:
        return bench.post_pod(admission_pod(runtimeClassName=name))[0] == HTTPStatus.CREATED

    return attack


def has_its_images_word(bench: AdmissionBench) -> bool:
    """A container beside one that asks, whose image may say that every card is visible, where nothing writes `void`."""
    pod = admission_pod(
        admission_container(units=4, env=VOID), init=[admission_container("init")], runtimeClassName="nvidia"
    )
    return bench.post_pod(pod)[0] == HTTPStatus.CREATED


def is_debugged_with_its_images_word(bench: AdmissionBench) -> bool:
    pod = admission_pod(admission_container(units=4, env=VOID), runtimeClassName="nvidia")
    name = bench.create_pod(pod)
    bench.add_debug_container(name, admission_container("debugger"))
    return bench.add_ephemeral_container(name) != []


WITHOUT_EXACT: dict[str, Edit] = dict.fromkeys((INJECT, EPHEMERAL, ENVIRONMENT_GUARD), with_validation_switched_off)
WEAKENINGS: dict[str, tuple[dict[str, Edit], Attack]] = {
    f"{GUARD}: resource pods": ({GUARD: without_resource("pods")}, runs_in("nvidia-legacy")),
    f"{GUARD}: validation 0": ({GUARD: without_validation(0)}, runs_in("nvidia-cdi")),
}
WITHOUT_VARIABLE: dict[str, tuple[dict[str, Edit], Attack]] = {
    f"{GUARD}: validation 1": ({GUARD: without_validation(1)}, has_its_images_word),
    f"{GUARD}: resource pods/ephemeralcontainers": (
        {GUARD: without_resource("pods/ephemeralcontainers")},
        is_debugged_with_its_images_word,
    ),
}


def check_weakening(bench: AdmissionBench, edits: dict[str, Edit], attack: Attack) -> None:
    assert not attack(bench)
    with with_weakened_policies(bench.cluster, SHIPPED, edits):
        wait_for_policies(bench.cluster, lambda: attack(bench), what="the attack gets through")
    wait_for_policies(bench.cluster, lambda: not attack(bench), what="the shipped policy is in force again")


@pytest.mark.parametrize(("edits", "attack"), WEAKENINGS.values(), ids=WEAKENINGS)
def test_attack_gets_through_a_weakened_policy(bench: AdmissionBench, edits: dict[str, Edit], attack: Attack) -> None:
    check_weakening(bench, edits, attack)


@pytest.mark.parametrize(("edits", "attack"), WITHOUT_VARIABLE.values(), ids=WITHOUT_VARIABLE)
def test_attack_gets_through_a_weakened_policy_where_cards_come_by_cdi(
    bench: AdmissionBench, edits: dict[str, Edit], attack: Attack
) -> None:
    """There nothing writes `void`."""
    with with_weakened_policies(bench.cluster, EXACT, WITHOUT_EXACT):
        wait_for_policies(bench.cluster, lambda: _is_given(bench, None), what="nothing writes the environment")
        check_weakening(bench, edits, attack)
    wait_for_policies(bench.cluster, lambda: _is_given(bench, VOID), what="the environment is written again")


def test_the_runtime_class_is_refused_with_field_and_fix(bench: AdmissionBench) -> None:
    assert [name for name in CLASSES if runs_in(name)(bench)] == ["nvidia"]
    status, answer = bench.post_pod(admission_pod(runtimeClassName="nvidia-legacy"))
    assert status == HTTPStatus.UNPROCESSABLE_ENTITY
    assert "spec.runtimeClassName: 'nvidia-legacy'" in answer["message"]
    assert "leave it out" in answer["message"]


def test_pods_without_gpu_memory_may_choose_their_runtime_class(bench: AdmissionBench) -> None:
    for name in CLASSES:
        bench.create_pod(admission_pod(admission_container(), runtimeClassName=name))


def test_pods_in_the_nvidia_class_get_their_environment_on_exact_nodes(bench: AdmissionBench) -> None:
    """Written as docs/install.md says; a debug container is accepted too, and sees no card."""
    pod = admission_pod(admission_container(units=4), admission_container("sidecar"), runtimeClassName="nvidia")
    name = bench.create_pod(pod)
    assert has_exact_environment(bench.read_pod(name))
    bench.add_debug_container(name, admission_container("debugger"))
    assert [made["env"] for made in bench.add_ephemeral_container(name)] == [VOID]


def names_its_node(bench: AdmissionBench) -> bool:
    return bench.post_pod(admission_pod(nodeName=bench.node))[0] == HTTPStatus.CREATED


@pytest.fixture
def _kubeadm(bench: AdmissionBench) -> Iterator[None]:
    """The policies of the shape in which the cluster's own scheduler calls the extender."""
    with without_second_scheduler(bench.cluster):
        apply_policies(bench.cluster, KUBEADM)
        try:
            wait_for_policies(bench.cluster, lambda: not names_its_node(bench), what="the policy is in force")
            yield
        finally:
            delete_policies(bench.cluster, KUBEADM)


@pytest.mark.usefixtures("_kubeadm")
def test_only_gpu_memory_pods_may_not_name_their_node_in_the_kubeadm_shape(bench: AdmissionBench) -> None:
    status, answer = bench.post_pod(admission_pod(nodeName=bench.node))
    assert status == HTTPStatus.UNPROCESSABLE_ENTITY
    assert "spec.nodeName: " in answer["message"]
    assert "spec.nodeSelector" in answer["message"]
    bench.create_pod(admission_pod(admission_container(), nodeName=bench.node))
    bench.create_pod()
    bench.as_kubelet(bench.build_static_pod())
    assert bench.read_pod("static")["spec"]["nodeName"] == bench.node
    _make_daemon_set(bench)
    for edit in (without_resource("pods"), without_validation(0)):
        with with_weakened_policies(bench.cluster, KUBEADM, {NODE_GUARD: edit}):
            wait_for_policies(bench.cluster, lambda: names_its_node(bench), what="a pod gets past every scheduler")
        wait_for_policies(bench.cluster, lambda: not names_its_node(bench), what="the policy is in force again")


HOST = {
    "the devices of the host": {"volumes": [{"name": "a", "hostPath": {"path": "/dev"}}]},
    "specs of cards": {"volumes": [{"name": "a", "hostPath": {"path": "/var/run/cdi"}}]},
    "the driver's root": {"volumes": [{"name": "a", "hostPath": {"path": "/run/nvidia/driver"}}]},
    "kubelet's sockets": {"volumes": [{"name": "a", "hostPath": {"path": "/var/lib/kubelet/device-plugins"}}]},
    "the host's processes": {"hostPID": True},
    "a privileged container": {
        "containers": [admission_container(securityContext={"privileged": True})],
    },
    "a capability": {
        "containers": [admission_container(securityContext={"capabilities": {"add": ["SYS_ADMIN"]}})],
    },
}
"""Ways to a card that no variable or annotation closes."""


def test_pod_security_refuses_what_bypasses_every_policy(bench: AdmissionBench) -> None:
    """By its profile `baseline`, set by a namespace's label; pods that ask are created there as in any other namespace."""
    level = {"metadata": {"labels": {"pod-security.kubernetes.io/enforce": "baseline"}}}
    path = f"/api/v1/namespaces/{bench.namespace}"
    assert [
        what for what, spec in HOST.items() if bench.post_pod(_pod_of_the_host(spec))[0] != HTTPStatus.CREATED
    ] == []
    bench.cluster.request_ok("PATCH", path, level, content_type="application/merge-patch+json")
    bench.cluster.wait_until(
        lambda: bench.post_pod(_pod_of_the_host(HOST["the host's processes"]))[0] == HTTPStatus.FORBIDDEN
    )
    for what, spec in HOST.items():
        status, answer = bench.post_pod(_pod_of_the_host(spec))
        assert status == HTTPStatus.FORBIDDEN, what
        assert "violates PodSecurity" in answer["message"], what
    bench.create_pod()


def test_every_resource_and_validation_is_shown_to_matter() -> None:
    missing = without_showing({**WEAKENINGS, **WITHOUT_VARIABLE}, SHIPPED)
    assert {part for part in missing if part.startswith(GUARD)} == set()


def _pod_of_the_host(spec: Json) -> Json:
    return admission_pod(
        *spec.get("containers", [admission_container()]), **{k: v for k, v in spec.items() if k != "containers"}
    )


def _is_given(bench: AdmissionBench, env: list[Json] | None) -> bool:
    """Whether a container beside one that asks has this environment, and the guard for `exact` nodes accepts it."""
    status, made = bench.post_pod(admission_pod(admission_container(units=4), admission_container("plain")))
    return status == HTTPStatus.CREATED and made["spec"]["containers"][1].get("env") == env


def _make_daemon_set(bench: AdmissionBench) -> None:
    """Its pods name their node by an affinity, which is the scheduler's to read."""
    template = {"metadata": {"labels": {"app": "daemon"}}, "spec": admission_pod()["spec"]}
    body = {
        "metadata": {"name": "daemon"},
        "spec": {"selector": {"matchLabels": {"app": "daemon"}}, "template": template},
    }
    bench.cluster.request_ok("POST", f"/apis/apps/v1/namespaces/{bench.namespace}/daemonsets", body)
    made = bench.cluster.wait_until(
        lambda: bench.cluster.request_ok("GET", f"{bench.pods}?labelSelector=app%3Ddaemon")["items"],
        what="the DaemonSet's pod is made",
    )
    assert "nodeName" not in made[0]["spec"]
