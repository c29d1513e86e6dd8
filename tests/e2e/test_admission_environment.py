"""A container's environment: what the policies make of it, whoever writes it, and whom they leave alone.

Every test runs twice: with the mutating policies, and with the webhook in their place.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from http import HTTPStatus

import pytest

from tests.e2e import admission_bench, webhook
from tests.e2e.admission_attacks import (
    ALLOCATION,
    Attack,
    asks_bytes,
    asks_with_variable,
    created_with,
    debugged_and_stripped,
    debugged_with,
    injected_in_front,
    says_it_is_a_mirror_pod,
    sibling_from_config_map,
    sibling_with_variable,
    wait_for_injection,
    written_by_hand_with,
)
from tests.e2e.admission_bench import Bench
from tests.e2e.admission_pods import (
    GUARDED,
    MEMORY,
    MIRROR,
    RECORDS,
    VOID,
    a_container,
    a_pod,
    container_of,
    environment,
    guarded,
    has_exact_environment,
    init_asks,
    own,
    variable,
)
from tests.e2e.admission_policies import injector, installed
from tests.e2e.cluster import Cluster, Json

NAMES = (*GUARDED, "ALIYUN_COM_GPU_MEM_CONTAINER", "ALIYUN_COM_GPU_MEM_DEV", "ALIYUN_COM_GPU_ANYTHING")

FROM_ANNOTATION = {
    "name": "NVIDIA_VISIBLE_DEVICES",
    "valueFrom": {"fieldRef": {"fieldPath": "metadata.annotations['cards']"}},
}

HOSTILE: dict[str, Attack] = {
    **{f"{name} of the container": asks_with_variable(name) for name in NAMES},
    **{f"{name} of the init container": asks_with_variable(name, init=True) for name in NAMES},
    **{f"{name} of the sibling": sibling_with_variable(name) for name in NAMES},
    **{f"{name} of the init sibling": sibling_with_variable(name, init=True) for name in NAMES},
    **{f"{name} beside the right ones": written_by_hand_with(name) for name in NAMES},
    **{f"{name} in an ephemeral container": debugged_with(variable(name)) for name in NAMES},
    **{f"{name} beside void in an ephemeral container": debugged_with(*VOID, variable(name)) for name in NAMES},
    "envFrom": sibling_from_config_map,
    "envFrom in an ephemeral container": debugged_with(env_from="any"),
    "envFrom beside void in an ephemeral container": debugged_with(*VOID, env_from="any"),
    "the image of an ephemeral container": debugged_with(),
    "the image of an ephemeral container, where an init container asks": debugged_with(of=init_asks()),
    "an annotation shown to an ephemeral container": debugged_with(FROM_ANNOTATION),
    "an ephemeral container stripped by another plugin": debugged_and_stripped,
    **{
        f"NVIDIA_VISIBLE_DEVICES={value!r} in an ephemeral container": debugged_with(
            variable("NVIDIA_VISIBLE_DEVICES", value)
        )
        for value in ("", "0", "Void", "void,0", "$(CARDS)")
    },
    "a forged mirror pod": says_it_is_a_mirror_pod,
    "a sidecar that sees everything": injected_in_front,
}

LONGEST_NAME = "c" * 63


@pytest.fixture(scope="module", params=["policies", "webhook"])
def form(
    request: pytest.FixtureRequest, cluster: Cluster, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[webhook.Form]:
    if request.param == "policies":
        yield webhook.Policies(cluster)
        return
    with webhook.installed(cluster, tmp_path_factory.mktemp("mounted")) as made:
        yield made


@pytest.fixture
def bench(cluster: Cluster, form: webhook.Form) -> Iterator[Bench]:
    with admission_bench.bench(cluster) as made:
        yield made


def test_no_hostile_environment_gets_through(bench: Bench) -> None:
    assert [what for what, attack in HOSTILE.items() if attack(bench)] == []


def test_a_container_that_asks_reads_its_card_from_the_annotations(bench: Bench) -> None:
    made = bench.read(bench.pod(a_pod(a_container(units=4))))
    assert _sorted(container_of(made, "main")["env"]) == _sorted(environment("main", 4))


def test_hostile_values_are_replaced_and_the_rest_keeps_its_order(bench: Bench) -> None:
    """The user's entries may refer to ours, which come first."""
    users = [
        variable("FIRST", "1"),
        variable("SHARE", "$(ALIYUN_COM_GPU_MEM_CONTAINER)/$(ALIYUN_COM_GPU_MEM_DEV)"),
        {"name": "CPU", "valueFrom": {"resourceFieldRef": {"resource": "limits.cpu", "divisor": "1m"}}},
        {"name": "PASSWORD", "valueFrom": {"secretKeyRef": {"name": "db", "key": "password", "optional": True}}},
        variable("NVIDIA_DRIVER_CAPABILITIES", "compute,utility"),
        variable("CUDA_VISIBLE_DEVICES", "0"),
        variable("FIRST", "again"),
    ]
    hostile = [
        variable(name) for name in ("NVIDIA_VISIBLE_DEVICES", "NVIDIA_VISIBLE_DEVICES", "ALIYUN_COM_GPU_MEM_POD")
    ]
    mixed = [hostile[0], users[0], hostile[1], *users[1:5], hostile[2], *users[5:]]
    main = container_of(bench.read(bench.pod(a_pod(a_container(units=4, env=mixed)))), "main")
    assert own(main) == users
    assert _sorted(guarded(main)) == _sorted(environment("main", 4))
    assert main["env"] == [*guarded(main), *users]


def test_every_kind_of_container_gets_its_own(bench: Bench) -> None:
    """Init, restartable init, plain; asking and not: by name, wherever it stands."""
    made = bench.read(
        bench.pod(
            a_pod(
                a_container("main", units=4),
                a_container("sibling"),
                a_container("zero", units=0),
                a_container(LONGEST_NAME, units=1),
                init=[
                    a_container("sidecar", units=2, restartPolicy="Always"),
                    a_container("proxy", restartPolicy="Always"),
                    a_container("init", units=8),
                    a_container("migrate"),
                ],
            )
        )
    )
    asked = {"main": 4, LONGEST_NAME: 1, "sidecar": 2, "init": 8}
    for name, units in asked.items():
        assert _sorted(container_of(made, name)["env"]) == _sorted(environment(name, units)), name
    for name in ("sibling", "zero", "proxy", "migrate"):
        assert container_of(made, name)["env"] == VOID, name


@pytest.mark.parametrize(("written", "units"), [("4", 4), ("2k", 2000), ("1Ki", 1024), ("1048576", 1048576)])
def test_units_are_written_out(bench: Bench, written: str, units: int) -> None:
    made = bench.read(bench.pod(a_pod(a_container(units=written))))
    assert variable("ALIYUN_COM_GPU_MEM_CONTAINER", str(units)) in container_of(made, "main")["env"]


@pytest.mark.parametrize("quantity", ["-1", "1500m", "0.5", "9223372036854775808", "1e30"])
def test_a_quantity_that_is_no_count_is_refused_with_its_field(bench: Bench, quantity: str) -> None:
    status, answer = bench.create(a_pod(a_container(units=quantity)))
    assert status == HTTPStatus.UNPROCESSABLE_ENTITY
    assert f"resources.limits[{MEMORY}]" in answer["message"]
    assert "expression" not in answer["message"], "an error in our own expression"


@pytest.mark.parametrize("position", ["in front", "behind", "an init container in front"])
def test_a_sidecar_injected_afterwards_shifts_nothing(bench: Bench, position: str) -> None:
    """Values are found by container name, and the mutation runs again: the newcomer sees no card."""
    at = {
        "in front": "/spec/containers/0",
        "behind": "/spec/containers/-",
        "an init container in front": "/spec/initContainers/0",
    }[position]
    plain = a_container("injected", env=[variable("MESH", "on")])
    first = {"at": "/spec/containers/0", "value": plain}  # by which the injector is known to be in force
    additions = [first] if at == first["at"] else [first, {"at": at, "value": {**plain, "name": "other"}}]
    with installed(bench.cluster, *injector(bench.namespace, additions)):
        _wait_until_injected(bench, at)
        made = bench.read(bench.pod(a_pod(a_container(units=4, env=[variable("A", "b")]), init=[a_container("init")])))
    names = [container["name"] for container in made["spec"]["containers"]]
    assert names[0] == "injected"
    assert has_exact_environment(made)
    assert container_of(made, "injected")["env"] == [*VOID, variable("MESH", "on")]
    assert container_of(made, "main")["env"][-1] == variable("A", "b")


def test_a_plugin_that_adds_a_variable_to_the_asking_container_loses(bench: Bench) -> None:
    addition = {"at": "/spec/containers/0/env", "value": [variable("NVIDIA_VISIBLE_DEVICES"), variable("X", "y")]}
    with installed(bench.cluster, *injector(bench.namespace, [addition])):
        bench.cluster.wait(
            lambda: bench.read(bench.pod(a_pod(a_container())))["spec"]["containers"][0].get("env"),
            what="the injector is in force",
        )
        status, made = bench.create(a_pod())
    assert status == HTTPStatus.CREATED, made
    assert has_exact_environment(made)


def test_pods_that_ask_for_nothing_are_never_touched(bench: Bench) -> None:
    """dcgm-exporter and its like: seen by the API server exactly as without any policy of ours."""
    pods = {
        "dcgm-exporter": a_pod(
            a_container(
                "exporter",
                env=[
                    variable("DCGM_EXPORTER_LISTEN", ":9400"),
                    variable("NVIDIA_VISIBLE_DEVICES"),
                    variable("CGPU_DISABLE", "1"),
                ],
                env_from="settings",
            )
        ),
        "nothing": a_pod(a_container()),
        "zero": a_pod(a_container(units=0), init=[a_container("init", units="0")]),
        "whole cards of another plugin": a_pod(
            {**a_container(env=[variable("ALIYUN_COM_GPU_MEM_DEV")]), "resources": {"limits": {"nvidia.com/gpu": "1"}}}
        ),
    }
    for what, pod in pods.items():
        made = bench.read(bench.pod(pod))
        for kind in ("containers", "initContainers"):
            sent = [container.get("env") for container in pod["spec"][kind]]
            assert [container.get("env") for container in made["spec"].get(kind, [])] == sent, what
        assert made["spec"]["schedulerName"] == "default-scheduler", what


def test_dcgm_exporter_is_the_same_byte_for_byte_without_our_policies(bench: Bench, form: webhook.Form) -> None:
    """What the API server would store, once with every policy and once with none that touches pods."""
    exporter = a_pod(
        a_container(
            "exporter",
            env=[variable("DCGM_EXPORTER_LISTEN", ":9400"), variable("NVIDIA_VISIBLE_DEVICES")],
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
        status, made = bench.create(a_pod())
        return status == HTTPStatus.CREATED and "env" not in container_of(made, "main")

    with_policies = stored()
    touching = ("vrampack-environment-inject", "vrampack-environment-guard", "vrampack-requests", "vrampack-records")
    with form.without(*touching):
        bench.cluster.wait(is_bare, what="the policies are off")
        assert stored() == with_policies
    bench.cluster.wait(lambda: not is_bare() and _is_as_shipped(bench), what="the policies are in force again")


def test_kubectl_debug_with_a_cuda_image_sees_no_card(bench: Bench) -> None:
    """As a user does it, who has the right: nothing to add to the command, and the next one works too."""
    name = bench.bound_pod()
    user = bench.cluster.kubeconfig(bench.namespace, "tenant")
    command = ("debug", name, "--image=example.com/cuda:1", "-n", bench.namespace, "--attach=false")
    bench.cluster.kubectl(*command, kubeconfig=user)
    bench.cluster.kubectl(*command, "--target=main", "--env=TERM=xterm", kubeconfig=user)
    first, second = bench.ephemeral(name)
    assert first["image"] == second["image"] == "example.com/cuda:1"
    assert first["env"] == VOID
    assert second["env"] == [*VOID, variable("TERM", "xterm")]
    assert bench.annotations(name) == RECORDS


def test_an_ephemeral_container_keeps_its_own_entries_behind_ours(bench: Bench) -> None:
    users = [variable("TERM", "xterm"), variable("SEEN", "$(NVIDIA_VISIBLE_DEVICES)"), variable("TERM", "again")]
    name = bench.bound_pod()
    status, answer = bench.debug(name, a_container("one", env=users), a_container("two"))
    assert status == HTTPStatus.OK, answer
    assert [made["env"] for made in bench.ephemeral(name)] == [[*VOID, *users], VOID]


def test_an_ephemeral_container_may_say_void_itself(bench: Bench) -> None:
    """So that what was read can be sent again, and a tool that knows the rule needs no mutation."""
    name = bench.bound_pod()
    env = [variable("TERM", "xterm"), *VOID]
    status, answer = bench.debug(name, a_container("debugger", env=env))
    assert status == HTTPStatus.OK, answer
    read = bench.read(name)
    path = f"{bench.pods}/{name}/ephemeralcontainers"
    status, answer = bench.cluster.request("PUT", path, read, token=bench.tenant)
    assert status == HTTPStatus.OK, answer
    assert [made["env"] for made in bench.ephemeral(name)] == [env]


def test_ephemeral_containers_from_before_the_policies_are_never_touched(bench: Bench, form: webhook.Form) -> None:
    """They cannot be changed: to put the entry in, or to ask for it, would refuse every later one."""
    name = bench.bound_pod()
    old = [a_container("image"), a_container("names", env=[variable("NVIDIA_VISIBLE_DEVICES")], env_from="any")]
    ours = ("vrampack-environment-ephemeral", "vrampack-environment-guard")
    with form.without(*ours):
        bench.cluster.wait(lambda: debugged_with(env_from="any")(bench), what="the guard is off")
        bench.cluster.wait(lambda: debugged_with()(bench), what="the mutation is off")
        status, answer = bench.debug(name, *old)
        assert status == HTTPStatus.OK, answer
        before = bench.ephemeral(name)
    bench.cluster.wait(
        lambda: not debugged_with(env_from="any")(bench) and _debugs_with_void(bench), what="they are in force again"
    )
    status, answer = bench.debug(name, a_container("new"))
    assert status == HTTPStatus.OK, answer
    after = {made["name"]: made for made in bench.ephemeral(name)}
    assert after.pop("new")["env"] == VOID
    assert after == {made["name"]: made for made in before}
    assert ["env" in made for made in before] == [False, True]


def test_an_update_without_a_new_ephemeral_container_passes(bench: Bench) -> None:
    name = bench.bound_pod()
    status, answer = bench.debug(name)
    assert status == HTTPStatus.OK, answer


def test_an_ephemeral_container_of_a_pod_without_gpu_memory_is_its_own_affair(bench: Bench) -> None:
    name = bench.pod(a_pod(a_container()))
    sent = [a_container("names", env=[variable("NVIDIA_VISIBLE_DEVICES")], env_from="any"), a_container("plain")]
    status, answer = bench.debug(name, *sent)
    assert status == HTTPStatus.OK, answer
    made = bench.ephemeral(name)
    assert [container.get("env") for container in made] == [container.get("env") for container in sent]


def test_the_refusal_of_an_ephemeral_container_names_field_and_cure(bench: Bench) -> None:
    name = bench.bound_pod()
    for debugger, cure in (
        (a_container("debugger", env=[variable("NVIDIA_VISIBLE_DEVICES")]), "leave them out"),
        (a_container("debugger", env_from="any"), "write the variables out in env"),
    ):
        status, answer = bench.debug(name, debugger)
        assert status == HTTPStatus.UNPROCESSABLE_ENTITY
        assert "spec.ephemeralContainers" in answer["message"]
        assert cure in answer["message"]


def a_static_pod(bench: Bench) -> Json:
    """The mirror pod by which the bench's kubelet reports a static pod that asks."""
    node = bench.cluster.must("GET", f"/api/v1/nodes/{bench.node}")
    owner = {"apiVersion": "v1", "kind": "Node", "name": bench.node, "uid": node["metadata"]["uid"], "controller": True}
    pod = a_pod(
        a_container(units=4, env=[variable("NVIDIA_VISIBLE_DEVICES", "0")]),
        annotations={MIRROR: "hash", "kubernetes.io/config.hash": "hash", "kubernetes.io/config.source": "file"},
        nodeName=bench.node,
    )
    pod["metadata"] |= {"name": "static", "namespace": bench.namespace, "ownerReferences": [owner]}
    del pod["metadata"]["generateName"]
    return pod


def test_a_mirror_pod_takes_no_ephemeral_container(bench: Bench) -> None:
    """The API server says so itself, so the policies need no word about it."""
    bench.as_kubelet(a_static_pod(bench))
    status, answer = bench.debug("static", a_container("debugger"))
    assert status == HTTPStatus.UNPROCESSABLE_ENTITY
    assert "static pods do not support ephemeral containers" in answer["message"]


def test_a_mirror_pod_of_a_node_stays_as_it_is(bench: Bench) -> None:
    """Kubelet reports a static pod: refused or changed, it would be reported again and again."""
    bench.as_kubelet(a_static_pod(bench))
    assert container_of(bench.read("static"), "main")["env"] == [variable("NVIDIA_VISIBLE_DEVICES", "0")]


def test_pods_of_a_statefulset_and_a_deployment_are_made(bench: Bench) -> None:
    template = a_pod(a_container(units=4, env=[variable("NVIDIA_VISIBLE_DEVICES")]), labels={"app": "made"})
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
        bench.cluster.must("POST", f"/apis/apps/v1/namespaces/{bench.namespace}/{kind}", body)
    path = f"{bench.pods}?labelSelector=app%3Dmade"
    bench.cluster.wait(lambda: len(bench.cluster.must("GET", path)["items"]) == 4, what="four pods are made")
    assert all(has_exact_environment(pod) for pod in bench.cluster.must("GET", path)["items"])


def test_a_pod_as_large_as_they_come_stays_within_the_cost_limit(bench: Bench) -> None:
    """The API server stops an expression that costs too much, which would refuse the pod for no fault of its own."""
    env = [variable(f"A_VARIABLE_WITH_A_LONG_NAME_{index}", "x" * 50) for index in range(200)]
    pod = a_pod(
        *[a_container(f"c{index}", units=1, env=env) for index in range(40)],
        annotations={f"example.com/annotation-{index}": "x" for index in range(3000)},
    )
    name = bench.pod(pod)
    assert has_exact_environment(bench.read(name))
    status, answer = bench.patch(name, {"metadata": {"labels": {"a": "b"}}})
    assert status == HTTPStatus.OK, answer
    status, answer = bench.debug(name, *[a_container(f"debugger-{index}", env=env[:50]) for index in range(20)])
    assert status == HTTPStatus.OK, answer
    assert [guarded(made) for made in bench.ephemeral(name)] == [VOID] * 20


def _debugs_with_void(bench: Bench) -> bool:
    name = bench.pod()
    bench.debug(name, a_container("debugger"))
    return [made.get("env") for made in bench.ephemeral(name)] == [VOID]


def _is_as_shipped(bench: Bench) -> bool:
    """Whether each of the four policies that were off does its work again."""
    status, made = bench.create(a_pod())
    attacks = (asks_bytes, created_with(ALLOCATION), written_by_hand_with("CGPU_DISABLE"))
    is_mutated = status == HTTPStatus.CREATED and has_exact_environment(made)
    return is_mutated and not any(attack(bench) for attack in attacks) and not debugged_with(env_from="any")(bench)


def _wait_until_injected(bench: Bench, at: str) -> None:
    if at.startswith("/spec/initContainers"):
        # The injector needs a list to put something in front of.
        bench.cluster.wait(
            lambda: (
                bench.create(a_pod(a_container(), init=[a_container("init")]))[1]["spec"]["initContainers"][0]["name"]
                == "other"
            ),
            what="the injector is in force",
        )
    else:
        wait_for_injection(bench)


def _sorted(entries: list[Json]) -> list[Json]:
    return sorted(entries, key=repr)
