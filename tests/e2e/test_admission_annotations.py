"""Annotations that programs of the node obey: none in a pod that asks for GPU memory, and no CDI devices in any other."""

from __future__ import annotations

from collections.abc import Iterator
from http import HTTPStatus

import pytest

from tests.support.admission.attacks import Attack
from tests.support.admission.bench import AdmissionBench, ensure_namespace
from tests.support.admission.pods import admission_container, admission_pod
from tests.support.admission.policies import (
    SHIPPED,
    Edit,
    wait_for_policies,
    with_text,
    with_weakened_policies,
    without_operation,
    without_resource,
    without_showing,
    without_validation,
)
from tests.support.control_plane.access_denials import NAMESPACE
from tests.support.control_plane.cluster import ControlPlane, Json

GUARD, CDI_GUARD = "vrampack-annotation-guard", "vrampack-cdi-guard"
OF_ONE = "nvidia.cdi.k8s.io/container.main"
OF_ALL = "nvidia.cdi.k8s.io"
FRACTION = "nvidia.com/container.main.gpus.devices"
CDI = (OF_ALL, OF_ONE, "nvidia.cdi.k8s.io/pod", "cdi.k8s.io/any", "cdi.k8s.io/nvidia-container-runtime_1")
CRIO, INJECTED, CRUN = "devices.crio.io", "cdi-devices.noderesource.dev/container.main", "run.oci.hooks.stdout"
MOUNTED = "mounts.noderesource.dev/container.main"
OF_RUNTIMES = (
    INJECTED,
    MOUNTED,
    CRUN,
    *(f"cdi-devices.nri.io{of}" for of in ("", "/pod")),
    "cdi.nri.io/container.main",
    CRIO,
    "devices.crio.io/main",
    "devices.gke.io/container.main",
    "devices.noderesource.dev",
    *(f"devices.nri.io{of}" for of in ("", "/container.main", "/pod")),
    *(f"io.kubernetes.container.{field}" for field in ("name",)),
    *(f"io.kubernetes.cri-o.{field}" for field in ("ContainerName", "ContainerType", "Devices", "Namespace")),
    *(f"io.kubernetes.cri.container-{field}" for field in ("name", "type")),
    *(f"io.kubernetes.cri.sandbox-{field}" for field in ("id", "name", "namespace", "uid")),
    *(f"io.kubernetes.pod.{field}" for field in ("name", "namespace", "uid")),
    *(f"mounts.nri.io{of}" for of in ("", "/pod")),
    *(f"org.systemd.property.Device{field}" for field in ("Allow", "Policy")),
    *(f"run.oci.{field}" for field in ("handler", "hooks.stderr", "systemd.subgroup")),
)
FREE = (
    "cdi.k8s.io.example.com/any",
    "devices.example.com/any",
    "devices.nri.io.example.com",
    "io.kubernetes.cri-o.userns-mode",
    "io.kubernetes.pod.terminationGracePeriod",
    "io-priority.noderesource.dev",
    "mounts.example.com",
    "nvidia.cdi.k8s.io.example.com",
    "nvidia.com/gpu.product",
    "org.systemd.property.CPUWeight",
    "run.ocidental.example.com",
)
"""Nearly the same, or of the same programs, and nothing that decides about devices."""
CARD = "nvidia.com/gpu=all"


def pod_with(key: str, *, units: int | None = 4) -> Json:
    return admission_pod(admission_container(units=units), annotations={key: CARD})


def created_with(key: str, *, units: int | None = 4) -> Attack:
    def attack(bench: AdmissionBench) -> bool:
        return bench.post_pod(pod_with(key, units=units))[0] == HTTPStatus.CREATED

    return attack


def added_by(subresource: str, key: str = OF_ONE, *, units: int | None = 4) -> Attack:
    """Before its sandbox is created, or recreated."""

    def attack(bench: AdmissionBench) -> bool:
        name = bench.create_pod(admission_pod(admission_container(units=units)))
        bench.patch(name, {"metadata": {"annotations": {key: CARD}}}, subresource=subresource)
        return key in bench.annotations(name)

    return attack


def bound_with(key: str, *, legacy: bool) -> Attack:
    def attack(bench: AdmissionBench) -> bool:
        name = bench.create_pod()
        bench.bind(name, annotations={key: CARD}, legacy=legacy)
        return key in bench.annotations(name)

    return attack


def bound_by_the_extender(bench: AdmissionBench) -> str:
    return bench.create_bound_pod({FRACTION: "GPU-0"})


def loses_its_limit(bench: AdmissionBench) -> bool:
    """The extender wrote it; without it fractiond sets none."""
    name = bound_by_the_extender(bench)
    bench.patch(name, {"metadata": {"annotations": {FRACTION: None}}})
    return FRACTION not in bench.annotations(name)


WEAKENINGS: dict[str, tuple[dict[str, Edit], Attack]] = {
    f"{GUARD}: resource pods": ({GUARD: without_resource("pods")}, created_with(OF_RUNTIMES[0])),
    f"{GUARD}: resource pods, update": ({GUARD: without_operation("UPDATE", "pods")}, added_by("", FRACTION)),
    f"{GUARD}: resource pods/status": ({GUARD: without_resource("pods/status")}, added_by("/status", FRACTION)),
    f"{GUARD}: resource pods/binding": ({GUARD: without_resource("pods/binding")}, bound_with(OF_ONE, legacy=False)),
    f"{GUARD}: resource bindings": ({GUARD: without_resource("bindings")}, bound_with(OF_ONE, legacy=True)),
    f"{GUARD}: validation 0": ({GUARD: without_validation(0)}, created_with(OF_RUNTIMES[0])),
    f"{GUARD}: validation 0, CRI-O's not named": (
        {GUARD: with_text("|devices[.]crio[.]io(/|$)", "")},
        created_with(CRIO),
    ),
    f"{GUARD}: validation 0, device injectors' not named": (
        {GUARD: with_text("|((cdi-)?devices|cdi|mounts)[.](nri[.]io|noderesource[.]dev|gke[.]io)(/|$)", "")},
        created_with(INJECTED),
    ),
    f"{GUARD}: validation 0, mounts not named": ({GUARD: with_text("|cdi|mounts)", "|cdi)")}, created_with(MOUNTED)),
    f"{GUARD}: validation 0, crun's not named": ({GUARD: with_text("|run[.]oci[.])", ")")}, created_with(CRUN)),
    f"{GUARD}: validation 1": ({GUARD: without_validation(1)}, bound_with(FRACTION, legacy=False)),
    f"{GUARD}: validation 1, removal unseen": (
        {GUARD: with_text("!(k in variables.after) && ", "false && ")},
        loses_its_limit,
    ),
    f"{CDI_GUARD}: resource pods": ({CDI_GUARD: without_resource("pods")}, created_with(OF_ALL, units=None)),
    f"{CDI_GUARD}: resource pods, update": (
        {CDI_GUARD: without_operation("UPDATE", "pods")},
        added_by("", "cdi.k8s.io/any", units=None),
    ),
    f"{CDI_GUARD}: resource pods/status": (
        {CDI_GUARD: without_resource("pods/status")},
        added_by("/status", units=None),
    ),
    f"{CDI_GUARD}: condition, creation": (
        {CDI_GUARD: with_text("? object.metadata.?annotations.hasValue()", "? false")},
        created_with(OF_ALL, units=None),
    ),
    f"{CDI_GUARD}: condition, update": (
        {CDI_GUARD: with_text("oldObject.metadata.?annotations != object.metadata.?annotations", "false")},
        added_by("/status", units=None),
    ),
    f"{CDI_GUARD}: validation 0": ({CDI_GUARD: without_validation(0)}, created_with("cdi.k8s.io/any", units=None)),
}


@pytest.fixture
def bench(tenant: AdmissionBench) -> Iterator[AdmissionBench]:
    with tenant.with_node():
        yield tenant


@pytest.mark.parametrize(("edits", "attack"), WEAKENINGS.values(), ids=WEAKENINGS)
def test_attack_gets_through_a_weakened_policy(bench: AdmissionBench, edits: dict[str, Edit], attack: Attack) -> None:
    assert not attack(bench)
    with with_weakened_policies(bench.cluster, SHIPPED, edits):
        wait_for_policies(bench.cluster, lambda: attack(bench), what="the attack gets through")
    wait_for_policies(bench.cluster, lambda: not attack(bench), what="the shipped policy is in force again")


def test_gpu_memory_pod_carries_no_annotation_that_node_programs_obey(bench: AdmissionBench) -> None:
    everything = (*CDI, *OF_RUNTIMES, FRACTION)
    assert [key for key in everything if created_with(key)(bench)] == []
    (asks_in_init,) = [admission_pod(admission_container(), init=[admission_container("init", units=1)])]
    asks_in_init["metadata"]["annotations"] = {CDI[-1]: CARD}
    assert bench.post_pod(asks_in_init)[0] == HTTPStatus.FORBIDDEN
    assert [key for key in FREE if not created_with(key)(bench)] == []


def test_pod_without_gpu_memory_carries_no_cdi_annotation(bench: AdmissionBench) -> None:
    assert [key for key in CDI if created_with(key, units=None)(bench)] == []
    others = (*OF_RUNTIMES, FRACTION, *FREE)
    assert [key for key in others if not created_with(key, units=None)(bench)] == []


def test_namespaces_of_gpu_management_programs_may_use_cdi_annotations(cluster: ControlPlane) -> None:
    """Of the GPU Operator and of our agents; a pod that asks may not have them there either."""
    for namespace in ("kube-system", NAMESPACE):
        ensure_namespace(cluster, namespace)
        pods = f"/api/v1/namespaces/{namespace}/pods?dryRun=All"
        for key in CDI:
            assert cluster.request("POST", pods, pod_with(key, units=None))[0] == HTTPStatus.CREATED, (namespace, key)
        assert cluster.request("POST", pods, pod_with(OF_ONE))[0] == HTTPStatus.FORBIDDEN


def test_only_the_extender_writes_what_fractiond_reads(bench: AdmissionBench) -> None:
    name = bound_by_the_extender(bench)
    assert bench.annotations(name)[FRACTION] == "GPU-0"
    for value in ("GPU-1", None):
        status, _ = bench.patch(name, {"metadata": {"annotations": {FRACTION: value}}}, token=bench.extender)
        assert status == HTTPStatus.FORBIDDEN, "not even the extender, but in its Binding"
    assert bench.patch(name, {"metadata": {"annotations": {"team": "a"}}})[0] == HTTPStatus.OK
    bench.take_expected_refusals()


@pytest.mark.parametrize(
    ("key", "units", "cure"),
    [
        (OF_RUNTIMES[0], 4, "leave the annotation out"),
        (FRACTION, 4, "only the extender writes it"),
        (OF_ONE, None, "ask for aliyun.com/gpu-mem"),
    ],
)
def test_an_invalid_pod_is_refused_with_field_and_fix(
    bench: AdmissionBench, key: str, units: int | None, cure: str
) -> None:
    status, answer = bench.post_pod(pod_with(key, units=units))
    assert status == HTTPStatus.FORBIDDEN
    assert f"metadata.annotations: '{key}'" in answer["message"]
    assert cure in answer["message"]


def test_every_resource_and_validation_is_shown_to_matter() -> None:
    missing = without_showing(WEAKENINGS, SHIPPED)
    assert {part for part in missing if part.startswith((GUARD, CDI_GUARD))} == set()
