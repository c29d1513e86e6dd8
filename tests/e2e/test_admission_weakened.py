"""Each attack fails on the shipped policies and gets through when the part that stops it is taken away.

Without this an attack that fails for another reason (a typing error, a missing right) would look like protection.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager, nullcontext
from http import HTTPStatus

import pytest

from tests.e2e.second_scheduler import without_second_scheduler
from tests.e2e.weakened_records import OF_RECORDS
from tests.support.admission.attacks import (
    Attack,
    asks_bytes,
    asks_bytes_in_init,
    asks_for_an_endless_model,
    asks_for_cores,
    asks_for_too_many_cards,
    asks_with_variable,
    debugged_and_stripped,
    debugged_with,
    debugs_naming_cards_with,
    injected_in_front,
    names_cards_with,
    says_it_is_a_mirror_pod,
    sibling_from_config_map,
    sibling_with_variable,
    written_by_hand_with,
)
from tests.support.admission.bench import AdmissionBench, create_admission_bench
from tests.support.admission.pods import (
    CAPABILITIES,
    GUARDED,
    VOID,
    admission_container,
    admission_pod,
    env_by_annotation,
    env_entry,
    has_exact_environment,
    pod_with_asking_init_container,
)
from tests.support.admission.policies import (
    EXACT,
    ON_EXACT,
    SHIPPED,
    Edit,
    wait_for_policies,
    with_text,
    with_validation_switched_off,
    with_weakened_policies,
    without_reinvocation,
    without_resource,
    without_showing,
    without_validation,
)
from tests.support.control_plane.cluster import ControlPlane

RECORDS, INJECT, EPHEMERAL, GUARD, VOID_GUARD, REQUESTS = (
    "vrampack-records",
    "vrampack-environment-inject",
    "vrampack-environment-ephemeral",
    "vrampack-environment-guard",
    "vrampack-void-guard",
    "vrampack-requests",
)
OF_OTHER_TABLES = (
    "vrampack-agent",
    "vrampack-annotation-guard",
    "vrampack-cdi-guard",
    "vrampack-extender-nodes",
    "vrampack-runtime-guard",
)

CARDS, LIMIT, DEV = (
    env_entry(name) for name in ("NVIDIA_VISIBLE_DEVICES", "NVIDIA_GPU_MEMORY_LIMIT", "ALIYUN_COM_GPU_MEM_DEV")
)

OF_GUARD: dict[str, tuple[Edit, Attack]] = {
    "resource pods/ephemeralcontainers": (without_resource("pods/ephemeralcontainers"), debugged_with(CARDS)),
    "validation 1": (without_validation(1), debugged_with(env_from="any")),
    "validation 2": (without_validation(2), debugged_with(CARDS)),
    "validation 2, beside void": (without_validation(2), debugged_with(*VOID, CARDS)),
    "validation 2, limit": (without_validation(2), debugged_with(LIMIT)),
    "validation 2, ALIYUN": (without_validation(2), debugged_with(DEV)),
    "any value": (with_text("e.?value.orValue('') == 'void'", "true"), debugged_with(CARDS)),
    "any name": (
        with_text("!(e.name == 'NVIDIA_VISIBLE_DEVICES' && e.?value", "!(e.?value"),
        debugged_with(env_entry("CGPU_DISABLE", "void")),
    ),
}

WITHOUT_ENTRY: dict[str, tuple[dict[str, Edit], Attack]] = {
    # What an ephemeral container is given, and what the guard asks for when it was not: both must be gone.
    f"{GUARD}: validation 3": (
        {EPHEMERAL: with_validation_switched_off, GUARD: without_validation(3)},
        debugged_with(),
    ),
    f"{EPHEMERAL}: init containers not looked at": (
        {
            EPHEMERAL: with_text(
                "object.spec.containers + object.spec.?initContainers.orValue([])", "object.spec.containers"
            ),
            GUARD: without_validation(3),
        },
        debugged_with(of=pod_with_asking_init_container()),
    ),
    f"{EPHEMERAL}: not run again": (
        {EPHEMERAL: without_reinvocation, GUARD: without_validation(3)},
        debugged_and_stripped,
    ),
    f"{EPHEMERAL}: another value": (
        {EPHEMERAL: with_text("'value': 'void'", "'value': 'all'"), GUARD: without_validation(2)},
        debugged_with(),
    ),
}

WITHOUT_INJECTION: dict[str, tuple[Edit, Attack]] = {
    # What the guard stops when the mutation is absent. Where both are there, the mutation is first.
    "resource pods": (without_resource("pods"), asks_with_variable("NVIDIA_VISIBLE_DEVICES")),
    "validation 0": (without_validation(0), sibling_with_variable("NVIDIA_VISIBLE_DEVICES")),
    "validation 0, envFrom": (without_validation(0), sibling_from_config_map),
    "validation 0, init": (without_validation(0), sibling_with_variable("NVIDIA_VISIBLE_DEVICES", init=True)),
    "too many entries": (
        with_text("c.found.size() != c.expected.size()", "false"),
        written_by_hand_with("NVIDIA_VISIBLE_DEVICES"),
    ),
    "two capabilities": (
        with_text("c.capabilities.size() == 1", "c.capabilities.size() > 0"),
        written_by_hand_with(CAPABILITIES),
    ),
    "request not named": (
        with_text(", 'NVIDIA_GPU_MEMORY_REQUEST'", ""),
        written_by_hand_with("NVIDIA_GPU_MEMORY_REQUEST"),
    ),
    "switch not named": (with_text(", 'CGPU_DISABLE'", ""), written_by_hand_with("CGPU_DISABLE")),
    "prefix shorter": (
        with_text("e.name.startsWith('ALIYUN_COM_GPU_')", "e.name.startsWith('ALIYUN_COM_GPU_MEM_')"),
        written_by_hand_with("ALIYUN_COM_GPU_SCHD_WEIGHT"),
    ),
    "init containers not looked at": (
        with_text("object.spec.containers + object.spec.?initContainers.orValue([])", "object.spec.containers"),
        written_by_hand_with("NVIDIA_VISIBLE_DEVICES", init=True),
    ),
}

WITHOUT_GUARD: dict[str, tuple[Edit, Attack]] = {
    # What the mutation removes where no guard checks its result.
    "visible devices not removed": (
        with_text("e.name in ['NVIDIA_VISIBLE_DEVICES', ", "e.name in ["),
        asks_with_variable("NVIDIA_VISIBLE_DEVICES"),
    ),
    "limit not removed": (
        with_text("'NVIDIA_GPU_MEMORY_LIMIT', 'NVIDIA_GPU_MEMORY_REQUEST'", "'NVIDIA_GPU_MEMORY_REQUEST'"),
        asks_with_variable("NVIDIA_GPU_MEMORY_LIMIT"),
    ),
    "request not removed": (
        with_text(", 'NVIDIA_GPU_MEMORY_REQUEST'", ""),
        asks_with_variable("NVIDIA_GPU_MEMORY_REQUEST"),
    ),
    "switch not removed": (with_text(", 'CGPU_DISABLE'", ""), asks_with_variable("CGPU_DISABLE")),
    "prefix not removed": (
        with_text("e.name.startsWith('ALIYUN_COM_GPU_')", "false"),
        asks_with_variable("ALIYUN_COM_GPU_MEM_DEV"),
    ),
    "not run again": (without_reinvocation, injected_in_front),
}

OWN_ANNOTATION = """!= "metadata.annotations['visible-devices.vrampack.dev/" + c.name + "']\""""
OF_VOID_GUARD: dict[str, tuple[Edit, Attack]] = {
    # What it refuses alone, as it stands on a cluster without `exact` nodes.
    "resource pods": (without_resource("pods"), names_cards_with(CARDS)),
    "validation 0": (without_validation(0), names_cards_with(CARDS)),
    "init containers not looked at": (
        with_text("object.spec.containers + object.spec.?initContainers.orValue([])", "object.spec.containers"),
        names_cards_with(CARDS, init=True),
    ),
    "any annotation": (
        with_text(OWN_ANNOTATION, "== ''"),
        names_cards_with(env_by_annotation("NVIDIA_VISIBLE_DEVICES", "cards")),
    ),
    "any container's annotation": (
        with_text(OWN_ANNOTATION, "!= \"metadata.annotations['visible-devices.vrampack.dev/other']\""),
        names_cards_with(env_by_annotation("NVIDIA_VISIBLE_DEVICES", "visible-devices.vrampack.dev/other")),
    ),
}
DEBUGGING_UNDER_VOID_GUARD: dict[str, tuple[Edit, Attack]] = {
    # The pod is created as usual; the mutation leaves a container alone that names the variable.
    "resource pods/ephemeralcontainers": (
        without_resource("pods/ephemeralcontainers"),
        debugs_naming_cards_with(CARDS),
    ),
    "validation 1": (without_validation(1), debugs_naming_cards_with(CARDS)),
}

OF_REQUESTS: dict[str, tuple[Edit, Attack]] = {
    "resource pods": (without_resource("pods"), asks_bytes),
    "condition, memory": (with_text("c.?resources.?limits[?'aliyun.com/gpu-mem'].hasValue()", "false"), asks_bytes),
    "condition, init": (
        with_text(" + object.spec.?initContainers.orValue([])).exists", ").exists"),
        asks_bytes_in_init,
    ),
    "condition, cores": (
        with_text("c.?resources.?limits[?'aliyun.com/gpu-core.percentage'].hasValue()", "false"),
        asks_for_cores,
    ),
    "validation 0": (without_validation(0), asks_bytes),
    "validation 0, init": (without_validation(0), asks_bytes_in_init),
    "validation 1": (without_validation(1), asks_for_cores),
    "validation 2": (without_validation(2), asks_for_too_many_cards),
    "validation 3": (without_validation(3), asks_for_an_endless_model),
}

MIRROR = with_text(" && 'system:nodes' in request.userInfo.?groups.orValue([])", "")

WITHOUT_VOID_GUARD: dict[str, Edit] = {VOID_GUARD: with_validation_switched_off}
"""It stops some attacks beside the policies for `exact` nodes, and would hide what those do."""
WITHOUT_EXACT = dict.fromkeys((INJECT, GUARD), with_validation_switched_off)

WEAKENINGS: dict[str, tuple[dict[str, Edit], Attack]] = {
    **{f"{RECORDS}: {what}": ({RECORDS: edit}, attack) for what, (edit, attack) in OF_RECORDS.items()},
    **{f"{GUARD}: {what}": (WITHOUT_VOID_GUARD | {GUARD: edit}, attack) for what, (edit, attack) in OF_GUARD.items()},
    **{what: (WITHOUT_VOID_GUARD | edits, attack) for what, (edits, attack) in WITHOUT_ENTRY.items()},
    **{
        f"{GUARD}: {what}": (WITHOUT_VOID_GUARD | {INJECT: with_validation_switched_off, GUARD: edit}, attack)
        for what, (edit, attack) in WITHOUT_INJECTION.items()
    },
    **{
        f"{INJECT}: {what}": (WITHOUT_VOID_GUARD | {INJECT: edit, GUARD: without_validation(0)}, attack)
        for what, (edit, attack) in WITHOUT_GUARD.items()
    },
    **{
        f"{VOID_GUARD}: {what}": (WITHOUT_EXACT | {VOID_GUARD: edit}, attack)
        for what, (edit, attack) in OF_VOID_GUARD.items()
    },
    **{
        f"{VOID_GUARD}: {what}": ({GUARD: with_validation_switched_off, VOID_GUARD: edit}, attack)
        for what, (edit, attack) in DEBUGGING_UNDER_VOID_GUARD.items()
    },
    **{f"{REQUESTS}: {what}": ({REQUESTS: edit}, attack) for what, (edit, attack) in OF_REQUESTS.items()},
    f"{INJECT}: any capability": (
        {INJECT: with_text("(compute|utility|video)(,", "[a-z]+(,"), GUARD: without_validation(0)},
        asks_with_variable(CAPABILITIES),
    ),
    f"{INJECT}: anybody's mirror pod": (
        dict.fromkeys((INJECT, GUARD, VOID_GUARD), MIRROR),
        says_it_is_a_mirror_pod,
    ),
}


@pytest.fixture(scope="module")
def tenant(cluster: ControlPlane) -> AdmissionBench:
    """One for all: each test waits at its end until nothing of it is in force any more."""
    return create_admission_bench(cluster)


@pytest.fixture
def bench(tenant: AdmissionBench) -> Iterator[AdmissionBench]:
    with tenant.with_node():
        yield tenant


def is_normal(bench: AdmissionBench) -> bool:
    """Whether both mutations do their work: a hostile pod is made with the right environment, and debugged."""
    hostile = [env_entry(name) for name in (*GUARDED, "ALIYUN_COM_GPU_ANYTHING")]
    status, made = bench.post_pod(admission_pod(admission_container(units=4, env=hostile)))
    if status != HTTPStatus.CREATED or not has_exact_environment(made):
        return False
    name = made["metadata"]["name"]
    bench.add_debug_container(name, admission_container("debugger"))
    return [debugger.get("env") for debugger in bench.add_ephemeral_container(name)] == [VOID]


@pytest.mark.parametrize(("edits", "attack"), WEAKENINGS.values(), ids=WEAKENINGS)
def test_attack_gets_through_a_weakened_policy(bench: AdmissionBench, edits: dict[str, Edit], attack: Attack) -> None:
    wait_for_policies(bench.cluster, lambda: not attack(bench), what="the shipped policies refuse it")
    mutations = {policy: edit for policy, edit in edits.items() if policy in {INJECT, EPHEMERAL}}
    validations = {policy: edit for policy, edit in edits.items() if policy not in mutations}
    # A mirror pod must name its node, which the second scheduler's guard refuses by itself.
    is_mirror = attack is says_it_is_a_mirror_pod
    placed_freely: AbstractContextManager[None] = (
        without_second_scheduler(bench.cluster) if is_mirror else nullcontext()
    )
    with placed_freely, with_weakened_policies(bench.cluster, ON_EXACT, mutations):
        with with_weakened_policies(bench.cluster, ON_EXACT, validations):
            wait_for_policies(bench.cluster, lambda: attack(bench), what="the attack gets through")
        # Before the mutations are back: they would hide a validation that is not yet in force for the next test.
        wait_for_policies(bench.cluster, lambda: not attack(bench), what="the validations alone refuse it again")
    wait_for_policies(
        bench.cluster, lambda: is_normal(bench) and not attack(bench), what="the shipped policies are in force again"
    )
    bench.take_expected_refusals()


def test_guard_refuses_a_pod_when_the_mutation_is_absent(bench: AdmissionBench) -> None:
    """The mutation absent altogether: the pod is refused, not let through as it is."""
    with with_weakened_policies(bench.cluster, ON_EXACT, WITHOUT_VOID_GUARD | {INJECT: with_validation_switched_off}):
        bench.cluster.wait_until(lambda: bench.post_pod(admission_pod())[0] == HTTPStatus.UNPROCESSABLE_ENTITY)
        assert [what for what, (_, attack) in WITHOUT_INJECTION.items() if attack(bench)] == []
    bench.cluster.wait_until(lambda: is_normal(bench), what="the mutation is in force again")


@pytest.mark.parametrize("edit", [with_validation_switched_off, without_reinvocation], ids=["absent", "not run again"])
def test_guard_refuses_an_ephemeral_container_when_the_mutation_is_absent(bench: AdmissionBench, edit: Edit) -> None:
    """The entry was not given, or another plugin took it away: refused, not let through as it is."""
    attack = debugged_with() if edit is with_validation_switched_off else debugged_and_stripped
    with with_weakened_policies(bench.cluster, ON_EXACT, WITHOUT_VOID_GUARD | {EPHEMERAL: edit}):
        if edit is with_validation_switched_off:
            bench.cluster.wait_until(
                lambda: (
                    bench.add_debug_container(bench.create_pod(), admission_container("debugger"))[0] != HTTPStatus.OK
                )
            )
        assert not attack(bench)
    bench.cluster.wait_until(lambda: is_normal(bench), what="the mutation is in force again")


def test_every_resource_and_validation_is_shown_to_matter() -> None:
    """A resize cannot carry an environment today, so nothing can be shown for it; two policies have tables of their own."""
    missing = without_showing(WEAKENINGS, SHIPPED, EXACT)
    assert {part for part in missing if not part.startswith(OF_OTHER_TABLES)} == {f"{GUARD}: resource pods/resize"}
