"""Containers that ask for no GPU get `void`, whatever their image, `envFrom` or the pod says; NVIDIA's own are left alone."""

from __future__ import annotations

from collections.abc import Iterator
from http import HTTPStatus

import pytest

from tests.support.admission.bench import AdmissionBench, ensure_namespace
from tests.support.admission.pods import (
    VOID,
    admission_container,
    admission_pod,
    container_of,
    env_entry,
    has_exact_environment,
)
from tests.support.admission.policies import (
    SHIPPED,
    Edit,
    apply_policies,
    delete_policies,
    wait_for_policies,
    with_text,
    with_validation_switched_off,
    with_weakened_policies,
)
from tests.support.control_plane.access_denials import NAMESPACE
from tests.support.control_plane.cluster import ControlPlane, Json
from tests.support.gpu_operator import objects
from tests.support.manifests import find_pod_template, find_workload

FOLDER = SHIPPED / "void"
CLASS_COLLECTION = "/apis/node.k8s.io/v1/runtimeclasses"
POLICY, EPHEMERAL = "vrampack-void", "vrampack-void-ephemeral"
CARDS = env_entry("NVIDIA_VISIBLE_DEVICES")
WEAKENINGS: dict[str, dict[str, Edit]] = {
    "off": {POLICY: with_validation_switched_off},
    "init containers not looked at": {
        POLICY: with_text("object.spec.?initContainers.orValue([]).transformList", "[].transformList")
    },
    "what the pod says is kept": {
        POLICY: with_text(
            "c.?env.orValue([]).filter(e, e.name == 'NVIDIA_VISIBLE_DEVICES') != [{'name': 'NVIDIA_VISIBLE_DEVICES', 'value': 'void'}]",
            "!c.?env.orValue([]).exists(e, e.name == 'NVIDIA_VISIBLE_DEVICES')",
        )
    },
    "nothing is enough of another resource": {
        POLICY: with_text(".isGreaterThan(quantity('0'))", ".isGreaterThan(quantity('-1'))")
    },
    "a resource that no scheduler looked for": {POLICY: with_text("object.spec.?nodeName.orValue('') == ''", "true")},
    "ephemeral containers": {EPHEMERAL: with_validation_switched_off},
    "an entry behind void": {
        EPHEMERAL: with_text(
            "c.?env.orValue([]).filter(e, e.name == 'NVIDIA_VISIBLE_DEVICES') != [{'name': 'NVIDIA_VISIBLE_DEVICES', 'value': 'void'}]",
            "!c.?env.orValue([]).exists(e, e.name == 'NVIDIA_VISIBLE_DEVICES' && e.?value.orValue('') == 'void')",
        )
    },
}


def with_resources(container: Json, **resources: Json) -> Json:
    return {**container, "resources": resources}


def is_shown_cards(bench: AdmissionBench) -> list[str]:
    """The containers that ask for nothing and end without `void`. An entry overrides image and `envFrom`."""
    zero = {"limits": {"nvidia.com/gpu": "0"}}
    name = bench.create_pod(
        admission_pod(
            admission_container("plain"),
            admission_container("names", env=[env_entry("FIRST", "1"), CARDS]),
            admission_container("twice", env=[*VOID, CARDS]),
            admission_container("from", env_from="settings"),
            with_resources(admission_container("zero"), **zero),
            with_resources(admission_container("cpu"), limits={"cpu": "1"}, requests={"memory": "1Mi"}),
            init=[admission_container("init"), admission_container("sidecar", env=[CARDS], restartPolicy="Always")],
        )
    )
    debuggers = {"debugger": [], "naming": [CARDS], "repeating": [*VOID, CARDS]}
    bench.add_debug_container(name, *(admission_container(each, env=env) for each, env in debuggers.items()))
    bogus = with_resources(admission_container("bogus", env=[CARDS]), limits={"nvidia.com/bogus": "1"})
    placed = bench.create_pod(admission_pod(bogus, nodeName=bench.node))
    spec = bench.read_pod(name)["spec"]
    spec["containers"] += bench.read_pod(placed)["spec"]["containers"]
    return [
        each["name"]
        for kind in ("containers", "initContainers", "ephemeralContainers")
        for each in spec.get(kind, [])
        if [e for e in each.get("env", []) if e["name"] == "NVIDIA_VISIBLE_DEVICES"] != VOID
    ]


@pytest.fixture(scope="module")
def _installed(cluster: ControlPlane) -> Iterator[None]:
    pods = "/api/v1/namespaces/default/pods?dryRun=All"

    def is_void() -> bool:
        _, made = cluster.request("POST", pods, admission_pod(admission_container()))
        return bool(made["spec"]["containers"][0].get("env") == VOID)

    apply_policies(cluster, FOLDER)
    try:
        wait_for_policies(cluster, is_void, what="the policy is in force")
        yield
    finally:
        delete_policies(cluster, FOLDER)
        wait_for_policies(cluster, lambda: not is_void(), what="the policy is off")


@pytest.fixture
def bench(tenant: AdmissionBench, _installed: None) -> Iterator[AdmissionBench]:
    with tenant.with_node():
        wait_for_policies(tenant.cluster, lambda: is_shown_cards(tenant) == [], what="both policies are in force")
        yield tenant


@pytest.mark.parametrize("edits", WEAKENINGS.values(), ids=WEAKENINGS)
def test_a_container_without_a_request_sees_cards_under_a_weakened_policy(
    bench: AdmissionBench, edits: dict[str, Edit]
) -> None:
    with with_weakened_policies(bench.cluster, FOLDER, edits):
        wait_for_policies(bench.cluster, lambda: is_shown_cards(bench), what="a container is shown cards")
    wait_for_policies(bench.cluster, lambda: is_shown_cards(bench) == [], what="the shipped policy is in force again")


def test_other_environment_entries_keep_their_order(bench: AdmissionBench) -> None:
    env = [env_entry("FIRST", "1"), CARDS, env_entry("LAST", "2")]
    made = bench.read_pod(bench.create_pod(admission_pod(admission_container(env=env))))
    assert container_of(made, "main")["env"] == [*VOID, env[0], env[2]]


def test_containers_that_ask_are_left_alone(bench: AdmissionBench) -> None:
    """For GPU memory, for whole cards or slices of another plugin. Cards of a claim come by CDI, which `void` does not stop."""
    asking = [
        with_resources(admission_container("whole"), limits={"nvidia.com/gpu": "1"}),
        with_resources(admission_container("slice"), limits={"nvidia.com/mig-1g.10gb": "1"}),
        with_resources(admission_container("claim", env=[CARDS]), claims=[{"name": "nic"}]),
    ]
    claims = [{"name": "nic", "resourceClaimTemplateName": "nic"}]
    made = bench.read_pod(bench.create_pod(admission_pod(*asking, admission_container("plain"), resourceClaims=claims)))
    assert {each["name"]: each.get("env") for each in made["spec"]["containers"]} == {
        **dict.fromkeys(("whole", "slice")),
        **dict.fromkeys(("claim", "plain"), VOID),
    }
    ours = bench.read_pod(bench.create_pod(admission_pod(admission_container(units=4), admission_container("plain"))))
    assert has_exact_environment(ours)


def test_a_mirror_pod_stays_as_it_is(bench: AdmissionBench) -> None:
    static = bench.build_static_pod()
    static["spec"]["containers"] = [admission_container("main", env=[CARDS])]
    bench.as_kubelet(static)
    assert container_of(bench.read_pod("static"), "main")["env"] == [CARDS]


@pytest.mark.usefixtures("_installed")
def test_gpu_management_pods_see_the_cards(cluster: ControlPlane) -> None:
    """Our agents, and the GPU Operator's operands, dcgm-exporter among them, in their namespaces."""
    agent = find_pod_template(find_workload("second-scheduler", "vrampack-agent"))
    templates = {"vrampack-agent": (NAMESPACE, agent)} | {
        each["metadata"]["name"]: (objects.NAMESPACE, each["spec"]["template"]) for each in objects.load_operands()
    }
    assert {"vrampack-agent", "nvidia-dcgm-exporter", "nvidia-operator-validator"} <= templates.keys()
    for namespace in (NAMESPACE, objects.NAMESPACE):
        ensure_namespace(cluster, namespace)
    cluster.request_ok("POST", CLASS_COLLECTION, {"metadata": {"name": "nvidia"}, "handler": "nvidia"})
    try:
        for name, (namespace, template) in templates.items():
            # Objects that the operator makes beside its pods.
            left_out = {"serviceAccountName", "serviceAccount", "priorityClassName"}
            spec = {field: value for field, value in template["spec"].items() if field not in left_out}
            pod = {"metadata": {"name": "probe"}, "spec": spec}
            status, made = cluster.request("POST", f"/api/v1/namespaces/{namespace}/pods?dryRun=All", pod)
            assert status == HTTPStatus.CREATED, (name, made)
            assert _shown_values(made["spec"]) == _shown_values(spec), name
            pod = {"metadata": {"name": "probe"}, "spec": spec | {"serviceAccountName": "default"}}
            status, made = cluster.request("POST", "/api/v1/namespaces/default/pods?dryRun=All", pod)
            assert set(_shown_values(made["spec"]).values()) == {"void"}, f"{name} elsewhere"
    finally:
        cluster.request_ok("DELETE", f"{CLASS_COLLECTION}/nvidia")


def _shown_values(spec: Json) -> dict[str, str | None]:
    """What each container's environment says of cards."""
    return {
        each["name"]: next((e["value"] for e in each.get("env", []) if e["name"] == "NVIDIA_VISIBLE_DEVICES"), None)
        for kind in ("containers", "initContainers")
        for each in spec.get(kind, [])
    }
