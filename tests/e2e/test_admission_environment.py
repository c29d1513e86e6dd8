"""A container's environment: what the policies make of it whichever user writes it, and which pods they leave alone.

Every test runs twice: with the mutating policies, and with the webhook in their place.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from http import HTTPStatus

import pytest

from tests.e2e import webhook
from tests.support.admission import environment_cases
from tests.support.admission.attacks import (
    ALLOCATION,
    asks_bytes,
    created_with,
    debugged_with,
    is_injected,
    written_by_hand_with,
)
from tests.support.admission.bench import AdmissionBench, open_admission_bench
from tests.support.admission.pods import (
    MEMORY,
    RECORDS,
    VOID,
    admission_container,
    admission_pod,
    container_of,
    env_entry,
    guarded_entries,
    has_exact_environment,
)
from tests.support.admission.policies import sidecar_injector, with_installed_policies
from tests.support.control_plane.cluster import ControlPlane, Json


@pytest.fixture(scope="module", params=["policies", "webhook"])
def form(
    request: pytest.FixtureRequest, cluster: ControlPlane, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[webhook.WebhookForm]:
    if request.param == "policies":
        yield webhook.PolicyForm(cluster)
        return
    with webhook.with_installed_form(cluster, tmp_path_factory.mktemp("mounted")) as made:
        yield made


@pytest.fixture
def bench(tenant: AdmissionBench, form: webhook.WebhookForm) -> Iterator[AdmissionBench]:
    with tenant.with_node():
        yield tenant


@pytest.fixture
def injected_bench(cluster: ControlPlane, form: webhook.WebhookForm) -> Iterator[AdmissionBench]:
    """A namespace of its own, as an injector is in force for a moment after it was removed."""
    with open_admission_bench(cluster) as made:
        yield made


def test_no_hostile_environment_gets_through(bench: AdmissionBench) -> None:
    assert [what for what, attack in environment_cases.HOSTILE.items() if attack(bench)] == []


def test_a_container_that_asks_reads_its_card_from_the_annotations(bench: AdmissionBench) -> None:
    environment_cases.check_a_container_that_asks_reads_its_card_from_the_annotations(bench)


def test_hostile_values_are_replaced_and_the_rest_keeps_its_order(bench: AdmissionBench) -> None:
    environment_cases.check_hostile_values_are_replaced_and_the_rest_keeps_its_order(bench)


def test_driver_capabilities_are_kept_only_if_they_bring_no_devices(bench: AdmissionBench) -> None:
    environment_cases.check_driver_capabilities_are_the_containers_own_as_far_as_they_bring_libraries(bench)


def test_every_kind_of_container_gets_its_own_environment(bench: AdmissionBench) -> None:
    environment_cases.check_every_kind_of_container_gets_its_own(bench)


@pytest.mark.parametrize(("written", "units"), [("4", 4), ("2k", 2000), ("1Ki", 1024), ("1048576", 1048576)])
def test_unit_quantities_are_written_out_as_plain_numbers(bench: AdmissionBench, written: str, units: int) -> None:
    environment_cases.check_units_are_written_out(bench, written, units)


@pytest.mark.parametrize("quantity", ["-1", "1500m", "0.5", "9223372036854775808", "1e30"])
def test_quantity_that_is_no_valid_count_is_refused_with_its_field(bench: AdmissionBench, quantity: str) -> None:
    status, answer = bench.post_pod(admission_pod(admission_container(units=quantity)))
    assert status == HTTPStatus.UNPROCESSABLE_ENTITY
    assert f"resources.limits[{MEMORY}]" in answer["message"]
    assert "expression" not in answer["message"], "an error in our own expression"


@pytest.mark.parametrize("position", ["in front", "behind", "an init container in front"])
def test_sidecar_injected_afterwards_does_not_shift_other_environments(
    injected_bench: AdmissionBench, position: str
) -> None:
    """Values are found by container name, and the mutation runs again: the newcomer sees no card."""
    at = {
        "in front": "/spec/containers/0",
        "behind": "/spec/containers/-",
        "an init container in front": "/spec/initContainers/0",
    }[position]
    plain = admission_container("injected", env=[env_entry("MESH", "on")])
    first = {"at": "/spec/containers/0", "value": plain}  # by which the injector is known to be in force
    additions = [first] if at == first["at"] else [first, {"at": at, "value": {**plain, "name": "other"}}]
    with with_installed_policies(injected_bench.cluster, *sidecar_injector(injected_bench.namespace, additions)):
        _wait_until_injected(injected_bench, at)
        made = injected_bench.read_pod(
            injected_bench.create_pod(
                admission_pod(
                    admission_container(units=4, env=[env_entry("A", "b")]), init=[admission_container("init")]
                )
            )
        )
    names = [container["name"] for container in made["spec"]["containers"]]
    assert names[0] == "injected"
    assert has_exact_environment(made)
    assert container_of(made, "injected")["env"] == [*VOID, env_entry("MESH", "on")]
    assert container_of(made, "main")["env"][-1] == env_entry("A", "b")


def test_variable_added_by_another_plugin_to_an_asking_container_is_overruled(injected_bench: AdmissionBench) -> None:
    addition = {"at": "/spec/containers/0/env", "value": [env_entry("NVIDIA_VISIBLE_DEVICES"), env_entry("X", "y")]}
    with with_installed_policies(injected_bench.cluster, *sidecar_injector(injected_bench.namespace, [addition])):
        injected_bench.cluster.wait_until(
            lambda: injected_bench.read_pod(injected_bench.create_pod(admission_pod(admission_container())))["spec"][
                "containers"
            ][0].get("env"),
            what="the injector is in force",
        )
        status, made = injected_bench.post_pod(admission_pod())
    assert status == HTTPStatus.CREATED, made
    assert has_exact_environment(made)


def test_pods_that_ask_for_nothing_are_never_touched(bench: AdmissionBench) -> None:
    environment_cases.check_pods_that_ask_for_nothing_are_never_touched(bench)


def test_dcgm_exporter_is_byte_identical_with_and_without_our_policies(
    bench: AdmissionBench, form: webhook.WebhookForm
) -> None:
    """What the API server would store, once with every policy and once with none that touches pods."""
    exporter = admission_pod(
        admission_container(
            "exporter",
            env=[env_entry("DCGM_EXPORTER_LISTEN", ":9400"), env_entry("NVIDIA_VISIBLE_DEVICES")],
            securityContext={"capabilities": {"add": ["SYS_ADMIN"]}},
        ),
        automountServiceAccountToken=False,
    )

    def stored() -> str:
        status, made = bench.cluster.request("POST", f"{bench.pods}?dryRun=All", exporter, token=bench.tenant)
        assert status == HTTPStatus.CREATED, made
        for key in ("uid", "name", "creationTimestamp", "managedFields"):  # new with each request
            made["metadata"].pop(key)
        return json.dumps(made)

    def is_bare() -> bool:
        status, made = bench.post_pod(admission_pod())
        return status == HTTPStatus.CREATED and "env" not in container_of(made, "main")

    with_policies = stored()
    guards = ("vrampack-environment-guard", "vrampack-void-guard", "vrampack-requests", "vrampack-records")
    touching = ("vrampack-environment-inject", *guards)
    with form.without(*touching):
        bench.cluster.wait_until(is_bare, what="the policies are off")
        assert stored() == with_policies
    bench.cluster.wait_until(lambda: not is_bare() and _is_as_shipped(bench), what="the policies are in force again")


def test_kubectl_debug_with_a_cuda_image_sees_no_card(bench: AdmissionBench) -> None:
    """As a user with the right does it: nothing to add to the command, and the next one works too."""
    name = bench.create_bound_pod()
    user = bench.cluster.kubeconfig(bench.namespace, "tenant")
    command = ("debug", name, "--image=example.com/cuda:1", "-n", bench.namespace, "--attach=false")
    bench.cluster.kubectl(*command, kubeconfig=user)
    bench.cluster.kubectl(*command, "--target=main", "--env=TERM=xterm", kubeconfig=user)
    first, second = bench.add_ephemeral_container(name)
    assert first["image"] == second["image"] == "example.com/cuda:1"
    assert first["env"] == VOID
    assert second["env"] == [*VOID, env_entry("TERM", "xterm")]
    assert bench.annotations(name) == RECORDS


def test_an_ephemeral_container_keeps_its_own_entries_behind_ours(bench: AdmissionBench) -> None:
    environment_cases.check_an_ephemeral_container_keeps_its_own_entries_behind_ours(bench)


def test_an_ephemeral_container_may_set_void_itself(bench: AdmissionBench) -> None:
    """So that what was read can be sent again, and a tool that knows the rule needs no mutation."""
    name = bench.create_bound_pod()
    env = [env_entry("TERM", "xterm"), *VOID]
    status, answer = bench.add_debug_container(name, admission_container("debugger", env=env))
    assert status == HTTPStatus.OK, answer
    read = bench.read_pod(name)
    path = f"{bench.pods}/{name}/ephemeralcontainers"
    status, answer = bench.cluster.request("PUT", path, read, token=bench.tenant)
    assert status == HTTPStatus.OK, answer
    assert [made["env"] for made in bench.add_ephemeral_container(name)] == [env]


def test_ephemeral_containers_from_before_the_policies_are_never_touched(
    bench: AdmissionBench, form: webhook.WebhookForm
) -> None:
    """They cannot be changed: to put the entry in, or to ask for it, would refuse every later one."""
    name = bench.create_bound_pod()
    old = [
        admission_container("image"),
        admission_container("names", env=[env_entry("NVIDIA_VISIBLE_DEVICES")], env_from="any"),
    ]
    ours = ("vrampack-environment-ephemeral", "vrampack-environment-guard", "vrampack-void-guard")
    with form.without(*ours):
        bench.cluster.wait_until(lambda: debugged_with(env_from="any")(bench), what="the guard is off")
        bench.cluster.wait_until(lambda: debugged_with()(bench), what="the mutation is off")
        # Two guards may refuse these, and each goes out of force in its own time.
        bench.cluster.wait_until(
            lambda: bench.add_debug_container(name, *old)[0] == HTTPStatus.OK, what="both guards are off"
        )
        before = bench.add_ephemeral_container(name)
    bench.cluster.wait_until(
        lambda: not debugged_with(env_from="any")(bench) and _debugs_with_void(bench), what="they are in force again"
    )
    status, answer = bench.add_debug_container(name, admission_container("new"))
    assert status == HTTPStatus.OK, answer
    after = {made["name"]: made for made in bench.add_ephemeral_container(name)}
    assert after.pop("new")["env"] == VOID
    assert after == {made["name"]: made for made in before}
    assert ["env" in made for made in before] == [False, True]


def test_an_update_without_a_new_ephemeral_container_passes(bench: AdmissionBench) -> None:
    environment_cases.check_an_update_without_a_new_ephemeral_container_passes(bench)


def test_ephemeral_container_of_a_pod_without_gpu_memory_is_left_alone(bench: AdmissionBench) -> None:
    environment_cases.check_an_ephemeral_container_of_a_pod_without_gpu_memory_is_its_own_affair(bench)


def test_the_refusal_of_an_ephemeral_container_names_field_and_fix(bench: AdmissionBench) -> None:
    name = bench.create_bound_pod()
    for debugger, cure in (
        (admission_container("debugger", env=[env_entry("NVIDIA_GPU_MEMORY_LIMIT")]), "leave them out"),
        (admission_container("debugger", env_from="any"), "write the variables out in env"),
    ):
        status, answer = bench.add_debug_container(name, debugger)
        assert status == HTTPStatus.UNPROCESSABLE_ENTITY
        assert "spec.ephemeralContainers" in answer["message"]
        assert cure in answer["message"]


def test_a_mirror_pod_takes_no_ephemeral_container(bench: AdmissionBench) -> None:
    """The API server itself refuses it, so the policies need not."""
    bench.as_kubelet(bench.build_static_pod())
    status, answer = bench.add_debug_container("static", admission_container("debugger"))
    assert status == HTTPStatus.UNPROCESSABLE_ENTITY
    assert "static pods do not support ephemeral containers" in answer["message"]


def test_a_mirror_pod_of_a_node_stays_as_it_is(bench: AdmissionBench) -> None:
    """Kubelet reports a static pod: refused or changed, it would be reported again and again."""
    bench.as_kubelet(bench.build_static_pod())
    assert container_of(bench.read_pod("static"), "main")["env"] == [env_entry("NVIDIA_VISIBLE_DEVICES", "0")]


def test_pods_of_a_statefulset_and_a_deployment_are_made(bench: AdmissionBench) -> None:
    template = admission_pod(
        admission_container(units=4, env=[env_entry("NVIDIA_VISIBLE_DEVICES")]), labels={"app": "made"}
    )
    for kind in ("statefulsets", "deployments"):
        body = {
            "metadata": {"name": kind},
            "spec": {
                "replicas": 2,
                "selector": {"matchLabels": {"app": "made", "kind": kind}},
                "template": {"metadata": {"labels": {"app": "made", "kind": kind}}, "spec": template["spec"]},
                **({"serviceName": "made", "podManagementPolicy": "Parallel"} if kind == "statefulsets" else {}),
            },
        }
        bench.cluster.request_ok("POST", f"/apis/apps/v1/namespaces/{bench.namespace}/{kind}", body)
    path = f"{bench.pods}?labelSelector=app%3Dmade"
    bench.cluster.wait_until(
        lambda: len(bench.cluster.request_ok("GET", path)["items"]) == 4, what="four pods are made"
    )
    assert all(has_exact_environment(pod) for pod in bench.cluster.request_ok("GET", path)["items"])


def test_very_large_pod_stays_within_the_cost_limit(bench: AdmissionBench) -> None:
    """The API server stops an expression that costs too much, which would refuse the pod for no fault of its own."""
    env = [env_entry(f"A_VARIABLE_WITH_A_LONG_NAME_{index}", "x" * 50) for index in range(200)]
    pod = admission_pod(
        *[admission_container(f"c{index}", units=1, env=env) for index in range(40)],
        annotations={f"example.com/annotation-{index}": "x" for index in range(3000)},
    )
    name = bench.create_pod(pod)
    assert has_exact_environment(bench.read_pod(name))
    status, answer = bench.patch(name, {"metadata": {"labels": {"a": "b"}}})
    assert status == HTTPStatus.OK, answer
    status, answer = bench.add_debug_container(
        name, *[admission_container(f"debugger-{index}", env=env[:50]) for index in range(20)]
    )
    assert status == HTTPStatus.OK, answer
    assert [guarded_entries(made) for made in bench.add_ephemeral_container(name)] == [VOID] * 20


def _debugs_with_void(bench: AdmissionBench) -> bool:
    name = bench.create_pod()
    bench.add_debug_container(name, admission_container("debugger"))
    return [made.get("env") for made in bench.add_ephemeral_container(name)] == [VOID]


def _is_as_shipped(bench: AdmissionBench) -> bool:
    """Whether each of the four policies that were off does its work again."""
    status, made = bench.post_pod(admission_pod())
    attacks = (asks_bytes, created_with(ALLOCATION), written_by_hand_with("CGPU_DISABLE"))
    is_mutated = status == HTTPStatus.CREATED and has_exact_environment(made)
    return is_mutated and not any(attack(bench) for attack in attacks) and not debugged_with(env_from="any")(bench)


def _wait_until_injected(bench: AdmissionBench, at: str) -> None:
    if at.startswith("/spec/initContainers"):
        # The injector needs a list to put something in front of.
        bench.cluster.wait_until(
            lambda: (
                bench.post_pod(admission_pod(admission_container(), init=[admission_container("init")]))[1]["spec"][
                    "initContainers"
                ][0]["name"]
                == "other"
            ),
            what="the injector is in force",
        )
    else:
        bench.cluster.wait_until(lambda: is_injected(bench), what="the injector is in force")


def _sorted(entries: list[Json]) -> list[Json]:
    return sorted(entries, key=repr)
