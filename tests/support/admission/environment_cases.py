"""How admission changes a container's environment: attacks on it, and checks of the stored pods.

The same cases run for the policies, for the webhook behind a real API server, and for the webhook alone.
"""

from __future__ import annotations

from http import HTTPStatus

from tests.support.admission.attacks import (
    Attack,
    asks_with_variable,
    debugged_and_stripped,
    debugged_with,
    injected_in_front,
    says_it_is_a_mirror_pod,
    sibling_from_config_map,
    sibling_with_variable,
    written_by_hand_with,
)
from tests.support.admission.bench import AdmissionBench
from tests.support.admission.pods import (
    CAPABILITIES,
    GUARDED,
    VOID,
    admission_container,
    admission_pod,
    container_of,
    env_entry,
    expected_environment,
    guarded_entries,
    pod_with_asking_init_container,
    unguarded_entries,
)
from tests.support.control_plane.cluster import Json

ASKING = ("container", "init container")
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
    **{f"{CAPABILITIES} of the {kind}": asks_with_variable(CAPABILITIES, init=kind != "container") for kind in ASKING},
    f"{CAPABILITIES} beside the right ones": written_by_hand_with(CAPABILITIES),
    **{f"{name} in an ephemeral container": debugged_with(env_entry(name)) for name in NAMES},
    **{f"{name} beside void in an ephemeral container": debugged_with(*VOID, env_entry(name)) for name in NAMES},
    "envFrom": sibling_from_config_map,
    "envFrom in an ephemeral container": debugged_with(env_from="any"),
    "envFrom beside void in an ephemeral container": debugged_with(*VOID, env_from="any"),
    "the image of an ephemeral container": debugged_with(),
    "the image of an ephemeral container, where an init container asks": debugged_with(
        of=pod_with_asking_init_container()
    ),
    "an annotation shown to an ephemeral container": debugged_with(FROM_ANNOTATION),
    "an ephemeral container stripped by another plugin": debugged_and_stripped,
    **{
        f"NVIDIA_VISIBLE_DEVICES={value!r} in an ephemeral container": debugged_with(
            env_entry("NVIDIA_VISIBLE_DEVICES", value)
        )
        for value in ("", "0", "Void", "void,0", "$(CARDS)")
    },
    "a forged mirror pod": says_it_is_a_mirror_pod,
    "a sidecar that sees everything": injected_in_front,
}


LONGEST_NAME = "c" * 63


def check_a_container_that_asks_reads_its_card_from_the_annotations(bench: AdmissionBench) -> None:
    made = bench.read_pod(bench.create_pod(admission_pod(admission_container(units=4))))
    assert _sorted(container_of(made, "main")["env"]) == _sorted(expected_environment("main", 4))


def check_hostile_values_are_replaced_and_the_rest_keeps_its_order(bench: AdmissionBench) -> None:
    """The user's entries may refer to ours, which come first."""
    users = [
        env_entry("FIRST", "1"),
        env_entry("SHARE", "$(ALIYUN_COM_GPU_MEM_CONTAINER)/$(ALIYUN_COM_GPU_MEM_DEV)"),
        {"name": "CPU", "valueFrom": {"resourceFieldRef": {"resource": "limits.cpu", "divisor": "1m"}}},
        {"name": "PASSWORD", "valueFrom": {"secretKeyRef": {"name": "db", "key": "password", "optional": True}}},
        env_entry("NVIDIA_REQUIRE_CUDA", "cuda>=12.0"),
        env_entry("CUDA_VISIBLE_DEVICES", "0"),
        env_entry("FIRST", "again"),
    ]
    hostile = [
        env_entry(name) for name in ("NVIDIA_VISIBLE_DEVICES", "NVIDIA_VISIBLE_DEVICES", "ALIYUN_COM_GPU_MEM_POD")
    ]
    mixed = [hostile[0], users[0], hostile[1], *users[1:5], hostile[2], *users[5:]]
    main = container_of(
        bench.read_pod(bench.create_pod(admission_pod(admission_container(units=4, env=mixed)))), "main"
    )
    assert unguarded_entries(main) == users
    assert _sorted(guarded_entries(main)) == _sorted(expected_environment("main", 4))
    assert main["env"] == [*guarded_entries(main), *users]


def check_driver_capabilities_are_the_containers_own_as_far_as_they_bring_libraries(bench: AdmissionBench) -> None:
    """`graphics`, `display` and `all` bring devices below /dev/dri; a value from elsewhere is not known yet."""
    kept = ("compute", "utility", "compute,video", "utility,compute")
    replaced = ("all", "graphics", "compute,display", "", "compute,", "compute, utility", "ngx", "$(CAPABILITIES)")
    said = {value: env_entry(CAPABILITIES, value) for value in (*kept, *replaced)}
    said["a field"] = {"name": CAPABILITIES, "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}}
    asking = [admission_container(f"c{at}", units=1, env=[entry]) for at, entry in enumerate(said.values())]
    twice = admission_container("twice", units=1, env=[said["all"], said["compute"]])
    plain = admission_container("plain", env=[said["all"]])
    made = bench.read_pod(bench.create_pod(admission_pod(*asking, twice, plain)))
    found = {each["name"]: [e for e in each["env"] if e["name"] == CAPABILITIES] for each in made["spec"]["containers"]}
    for at, value in enumerate(said):
        wanted = value if value in kept else "compute,utility"
        assert found[f"c{at}"] == [env_entry(CAPABILITIES, wanted)], value
    assert found["twice"] == [said["compute"]]
    assert found["plain"] == [said["all"]], "it sees no card"


def check_every_kind_of_container_gets_its_own(bench: AdmissionBench) -> None:
    """Init, restartable init, plain; asking and not: by name, wherever it stands."""
    made = bench.read_pod(
        bench.create_pod(
            admission_pod(
                admission_container("main", units=4),
                admission_container("sibling"),
                admission_container("zero", units=0),
                admission_container(LONGEST_NAME, units=1),
                init=[
                    admission_container("sidecar", units=2, restartPolicy="Always"),
                    admission_container("proxy", restartPolicy="Always"),
                    admission_container("init", units=8),
                    admission_container("migrate"),
                ],
            )
        )
    )
    asked = {"main": 4, LONGEST_NAME: 1, "sidecar": 2, "init": 8}
    for name, units in asked.items():
        assert _sorted(container_of(made, name)["env"]) == _sorted(expected_environment(name, units)), name
    for name in ("sibling", "zero", "proxy", "migrate"):
        assert container_of(made, name)["env"] == VOID, name


def check_units_are_written_out(bench: AdmissionBench, written: str, units: int) -> None:
    made = bench.read_pod(bench.create_pod(admission_pod(admission_container(units=written))))
    assert env_entry("ALIYUN_COM_GPU_MEM_CONTAINER", str(units)) in container_of(made, "main")["env"]


def check_pods_that_ask_for_nothing_are_never_touched(bench: AdmissionBench) -> None:
    """dcgm-exporter and its like: seen by the API server exactly as without any policy of ours."""
    pods = {
        "dcgm-exporter": admission_pod(
            admission_container(
                "exporter",
                env=[
                    env_entry("DCGM_EXPORTER_LISTEN", ":9400"),
                    env_entry("NVIDIA_VISIBLE_DEVICES"),
                    env_entry("CGPU_DISABLE", "1"),
                ],
                env_from="settings",
            )
        ),
        "nothing": admission_pod(admission_container()),
        "zero": admission_pod(admission_container(units=0), init=[admission_container("init", units="0")]),
        "whole cards of another plugin": admission_pod(
            {
                **admission_container(env=[env_entry("ALIYUN_COM_GPU_MEM_DEV")]),
                "resources": {"limits": {"nvidia.com/gpu": "1"}},
            }
        ),
    }
    for what, pod in pods.items():
        made = bench.read_pod(bench.create_pod(pod))
        for kind in ("containers", "initContainers"):
            sent = [container.get("env") for container in pod["spec"][kind]]
            assert [container.get("env") for container in made["spec"].get(kind, [])] == sent, what
        assert made["spec"]["schedulerName"] == "default-scheduler", what


def check_an_ephemeral_container_keeps_its_own_entries_behind_ours(bench: AdmissionBench) -> None:
    users = [env_entry("TERM", "xterm"), env_entry("SEEN", "$(NVIDIA_VISIBLE_DEVICES)"), env_entry("TERM", "again")]
    name = bench.create_bound_pod()
    status, answer = bench.add_debug_container(name, admission_container("one", env=users), admission_container("two"))
    assert status == HTTPStatus.OK, answer
    assert [made["env"] for made in bench.add_ephemeral_container(name)] == [[*VOID, *users], VOID]


def check_an_update_without_a_new_ephemeral_container_passes(bench: AdmissionBench) -> None:
    name = bench.create_bound_pod()
    status, answer = bench.add_debug_container(name)
    assert status == HTTPStatus.OK, answer


def check_an_ephemeral_container_of_a_pod_without_gpu_memory_is_its_own_affair(bench: AdmissionBench) -> None:
    name = bench.create_pod(admission_pod(admission_container()))
    sent = [
        admission_container("names", env=[env_entry("NVIDIA_VISIBLE_DEVICES")], env_from="any"),
        admission_container("plain"),
    ]
    status, answer = bench.add_debug_container(name, *sent)
    assert status == HTTPStatus.OK, answer
    made = bench.add_ephemeral_container(name)
    assert [container.get("env") for container in made] == [container.get("env") for container in sent]


def _sorted(entries: list[Json]) -> list[Json]:
    return sorted(entries, key=repr)
