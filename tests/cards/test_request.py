"""What a pod asks: the scheduler's own sum over its containers, cards, wishes, and what is refused with which words."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.support.builders import container_specs, pod_request
from vrampack.cards.request import CardRequest, ContainerKind, ContainerSpec, PodRequest, read_pod_request

PATIENT = settings(deadline=None)
"""A busy machine is no bug."""

COUNT = "aliyun.com/gpu-count"
PLACEMENT = "ack.gpushare.placement"
WHOLE = "require-whole-device"

HELD = {
    # sum of containers 4
    "one container": ([4], [], (), 4),
    # 4 + 3 = 7
    "containers run together": ([4, 3], [], (), 7),
    # max(4, init 2) = 4
    "a small init container hides behind the containers": ([4], [2], (), 4),
    # max(4, init 9) = 9
    "a large init container is the peak": ([4], [9], (), 9),
    # max(4 + 3, 5, 7, 2) = 7: init containers run one after the other
    "init containers do not add up": ([4, 3], [5, 7, 2], (), 7),
    # containers 4 + sidecar 2 = 6
    "a sidecar stays": ([4], [2], {0}, 6),
    # max(4 + 2, init 5 + sidecar before it 2) = 7
    "a sidecar declared before an init container runs beside it": ([4], [2, 5], {0}, 7),
    # max(4 + 2, init 5) = 6
    "a sidecar declared after it does not": ([4], [5, 2], {1}, 6),
    # max(4 + 2 + 3, init 5 + 2) = 9
    "only the sidecars before it": ([4], [2, 5, 3], {0, 2}, 9),
    # max(4 + 2 + 3, init 9 + 2) = 11
    "a peak between two sidecars": ([4], [2, 9, 3], {0, 2}, 11),
    # max(2 + 1 + 1 + 1, init 3 + 1, init 6 + 1 + 1) = 8
    "three sidecars around two init containers": ([2], [1, 3, 1, 6, 1], {0, 2, 4}, 8),
    # max(nothing, init 5) = 5
    "an init container alone": ([], [5], (), 5),
    # sidecars 3 + 4 = 7
    "sidecars alone": ([], [3, 4], {0, 1}, 7),
    # 0 + 4, init 0
    "zeroes beside an ask": ([0, 4], [0], (), 4),
    # max(4 + 3, init 6 + 3) = 9, with suffixes
    "quantities of every form": (["4000m"], ["3.0", "6e0"], {0}, 9),
}


@pytest.mark.parametrize(("main", "init", "sidecars", "want"), HELD.values(), ids=HELD)
def test_held_units_follow_the_schedulers_formula(
    main: list[object], init: list[object], sidecars: Sequence[int], want: int
) -> None:
    """max( sum(containers) + sum(restartable init), max over init i of (own + restartable init before it) )."""
    asked = ask(container_specs(main, init, sidecars=sidecars))
    assert (asked.card_request.units, asked.problem) == (want, "")


def ask(specs: Sequence[ContainerSpec], **labels: str) -> PodRequest:
    found = read_pod_request(specs, labels, {})
    assert found is not None
    return found


MOMENTS = st.lists(st.tuples(st.sampled_from(["init", "sidecar"]), st.integers(0, 9)), max_size=6)


@PATIENT
@given(MOMENTS, st.lists(st.integers(0, 9), max_size=4))
def test_units_held_are_the_peak_of_the_pods_life(init: list[tuple[str, int]], main: list[int]) -> None:
    """Simulates it: at every moment, add up who is alive."""
    moments = []
    for at, (_, units) in enumerate(init):
        alive = sum(own for kind, own in init[:at] if kind == "sidecar")
        moments.append(alive + units)
    moments.append(sum(own for kind, own in init if kind == "sidecar") + sum(main))
    sidecars = [at for at, (kind, _) in enumerate(init) if kind == "sidecar"]
    asked = read_pod_request(container_specs(main, [own for _, own in init], sidecars=sidecars), {}, {})
    assert (asked.card_request.units if asked else 0) == max(moments)


@PATIENT
@given(st.integers(1, 4), st.lists(st.integers(0, 5), max_size=3), st.lists(st.integers(0, 5), max_size=3))
def test_every_card_of_a_pod_holds_the_same_units(count: int, main: list[int], init: list[int]) -> None:
    """A pod with N cards requests of each what a pod with 1/N of every container requests of one."""
    one = read_pod_request(container_specs(main, init, sidecars={0}), {}, {})
    many = read_pod_request(
        container_specs([own * count for own in main], [own * count for own in init], sidecars={0}),
        {COUNT: str(count)},
        {},
    )
    assert (many and many.card_request) == (one and replace(one.card_request, count=count))


COUNTS = {
    "absent": ({}, CardRequest(8)),
    "one": ({COUNT: "1"}, CardRequest(8)),
    # 8 / 2 = 4 on each
    "two": ({COUNT: "2"}, CardRequest(4, count=2)),
    "eight": ({COUNT: "8"}, CardRequest(1, count=8)),
    # as every reader of decimal labels takes it: 8 / 2
    "with a leading zero": ({COUNT: "02"}, CardRequest(4, count=2)),
    "a whole card": ({PLACEMENT: WHOLE}, CardRequest(8, whole=True)),
    "two whole cards": ({COUNT: "2", PLACEMENT: WHOLE}, CardRequest(4, count=2, whole=True)),
}


@pytest.mark.parametrize(("labels", "want"), COUNTS.values(), ids=COUNTS)
def test_labels_set_the_number_of_cards_and_whole_cards(labels: dict[str, str], want: CardRequest) -> None:
    assert ask(container_specs([8]), **labels).card_request == want


BAD_COUNTS = ["0", "00", "-1", "+2", "two", "", " 2", "2 ", "1.0", "1e0", "0x2", "٢", "10000", "9" * 60]


@pytest.mark.parametrize("text", BAD_COUNTS, ids=ascii)
def test_an_invalid_number_of_cards_is_a_problem(text: str) -> None:
    problem = ask(container_specs([8]), **{COUNT: text}).problem
    assert problem.startswith(f'metadata.labels["{COUNT}"]: {text!r} is not a number of cards; give ')


UNDIVIDED = {
    # 7 = 2 x 3 + 1
    "a container": ([7], [], (), "7 units of container main0"),
    # 8 divides, 3 does not
    "the second container": ([8, 3], [], (), "3 units of container main1"),
    # 4 + 4 divides as a sum, each one does not: 3 and 5
    "containers whose sum divides": ([3, 5], [], (), "3 units of container main0"),
    "an init container": ([8], [5], (), "5 units of container init0"),
    "a sidecar": ([8], [1], {0}, "1 units of container init0"),
}


@pytest.mark.parametrize(("main", "init", "sidecars", "words"), UNDIVIDED.values(), ids=UNDIVIDED)
def test_every_containers_units_must_divide_by_the_card_count(
    main: list[int], init: list[int], sidecars: list[int], words: str
) -> None:
    asked = ask(container_specs(main, init, sidecars=sidecars), **{COUNT: "2"})
    assert asked.problem == f'metadata.labels["{COUNT}"]: {words} do not divide by 2 cards'


def test_more_cards_than_any_node_has_is_a_request_that_never_fits() -> None:
    assert ask(container_specs([9999]), **{COUNT: "9999"}).card_request == CardRequest(1, count=9999)


@pytest.mark.parametrize("value", ["", "whole", "require-whole-Device", "binpack"])
def test_an_unknown_placement_is_a_problem(value: str) -> None:
    request = ask(container_specs([4]), **{PLACEMENT: value})
    assert request.problem == f'metadata.labels["{PLACEMENT}"]: {value!r} is not known; only "{WHOLE}" is'
    assert not request.card_request.whole


NOT_OURS: dict[str, tuple[list[object], list[object]]] = {
    "no container at all": ([], []),
    "zero": ([0], []),
    "zero in every form": (["0", "0.0", "0Ki", "-0", "0m"], ["0", "0e3"]),
}


@pytest.mark.parametrize(("main", "init"), NOT_OURS.values(), ids=NOT_OURS)
@pytest.mark.parametrize("labels", [{}, {COUNT: "none", PLACEMENT: "?"}], ids=["plain", "with wrong labels"])
def test_a_pod_without_gpu_memory_has_no_request(
    main: list[object], init: list[object], labels: dict[str, str]
) -> None:
    assert read_pod_request(container_specs(main, init), labels, {}) is None


def test_containers_that_do_not_name_the_resource_request_nothing() -> None:
    silent = ContainerSpec("web", "main", 0)
    assert read_pod_request([silent], {}, {}) is None
    assert [each.name for each in ask([silent, ContainerSpec("gpu", "main", 1, "4")]).containers] == ["gpu"]


def test_only_asking_containers_are_listed_init_ones_first_with_their_own_index() -> None:
    asked = ask(container_specs([0, 4], [0, 3, 2], sidecars={2}))
    kinds: list[tuple[str, ContainerKind, int, int]] = [
        ("init1", "init", 1, 3),
        ("init2", "sidecar", 2, 2),
        ("main1", "main", 1, 4),
    ]
    assert [(each.name, each.kind, each.index, each.units) for each in asked.containers] == kinds


RESOURCE = '["aliyun.com/gpu-mem"]: '
REFUSED: dict[str, tuple[list[object], list[object], str]] = {
    "10G": (
        ["10G"],
        [],
        f"spec.containers[0].resources.limits{RESOURCE}'10G' is 10000000000 units, more than 1048576; give",
    ),
    "one more than a terabyte": ([1_048_577], [], f"spec.containers[0].resources.limits{RESOURCE}'1048577' is 1048577"),
    "2^63": ([2**63], [], f"spec.containers[0].resources.limits{RESOURCE}'9223372036854775808' is"),
    "in the second container": ([4, "10G"], [], f"spec.containers[1].resources.limits{RESOURCE}"),
    "in an init container": ([4], ["10G"], f"spec.initContainers[0].resources.limits{RESOURCE}"),
    "negative": ([-4], [], f"spec.containers[0].resources.limits{RESOURCE}'-4' is negative; give"),
    "not whole": (
        ["1.5"],
        [],
        f"spec.containers[0].resources.limits{RESOURCE}'1.5' is not a whole number of units; give",
    ),
    "no quantity": (["four"], [], f"spec.containers[0].resources.limits{RESOURCE}'four' is not a quantity; give"),
    "beside zero": ([0, "four"], [], f"spec.containers[1].resources.limits{RESOURCE}"),
}


@pytest.mark.parametrize(("main", "init", "words"), REFUSED.values(), ids=REFUSED)
def test_an_amount_that_cannot_be_served_names_field_and_fix(
    main: list[object], init: list[object], words: str
) -> None:
    request = ask(container_specs(main, init))
    assert request.problem.startswith(words)
    assert "give" in request.problem


def test_a_pod_of_too_many_containers_is_refused_and_those_before_are_counted() -> None:
    # two init containers and 254 others, so that the one at 254 is one too many
    asked = ask(container_specs([1] * 300, [1] * 2))
    assert asked.problem == (
        f"spec.containers[254].resources.limits{RESOURCE}more than 256 containers of the pod request memory; "
        "split the pod into several"
    )
    assert asked.card_request == CardRequest(254, is_valid=False)
    assert len(asked.containers) == 256
    # one less is served, beside any number that ask for nothing
    silent = [ContainerSpec(f"web{at}", "main", 254 + at) for at in range(1000)]
    assert ask([*container_specs([1] * 254, [1] * 2), *silent]).card_request == CardRequest(254, instances=257)


INSTANCES = {
    "one container": ([4], [], 1),
    # itself, and each of its containers
    "two containers": ([4, 3], [], 3),
    "an init container that asks is one, too": ([4], [2], 3),
    "a container that asks for nothing is none": ([4, 0], [0], 1),
}


@pytest.mark.parametrize(("main", "init", "want"), INSTANCES.values(), ids=INSTANCES)
def test_a_pod_takes_an_instance_and_one_for_each_of_several_containers(
    main: list[object], init: list[object], want: int
) -> None:
    assert ask(container_specs(main, init)).card_request.instances == want


def test_the_largest_amount_is_served() -> None:
    assert ask(container_specs([1_048_576])).card_request == CardRequest(1_048_576)


WISHES = {
    "none": ("", None),
    "one": ("GPU-a", {"GPU-a"}),
    "a list with blanks": (" GPU-b , GPU-a,", {"GPU-a", "GPU-b"}),
    "twice the same": ("GPU-a,GPU-a", {"GPU-a"}),
    "nothing but commas": (", ,", None),
    "with inner blanks": ("Tesla T4,A100", {"A100", "Tesla T4"}),
    "as many as may be": (",".join(f"GPU-{at}" for at in range(64)), {f"GPU-{at}" for at in range(64)}),
}


@pytest.mark.parametrize(("text", "want"), WISHES.values(), ids=WISHES)
def test_models_and_uuids_are_comma_lists_in_any_order(text: str, want: set[str] | None) -> None:
    asked = pod_request(annotations={"vrampack.dev/card-model": text, "vrampack.dev/card-uuid": text})
    assert (asked.card_request.models, asked.card_request.uuids, asked.problem) == (want, want, "")


TOO_MUCH = {
    "too many": (",".join(f"GPU-{at}" for at in range(65)), "65 entries are more than 64; give fewer"),
    "too many, all the same": ("GPU-0," * 64, "65 entries are more than 64; give fewer"),
    "a quarter of a megabyte": ("GPU-0123456789abcdef," * 12_000, "12001 entries are more than 64; give fewer"),
    "a name that is none": ("x" * 129, "has 129 characters, no name of a card has more than 128; give names as"),
}


@pytest.mark.parametrize(("text", "words"), TOO_MUCH.values(), ids=TOO_MUCH)
@pytest.mark.parametrize("key", ["vrampack.dev/card-model", "vrampack.dev/card-uuid"])
def test_a_list_that_is_too_long_is_a_problem_and_ignored(key: str, text: str, words: str) -> None:
    asked = pod_request(annotations={key: text})
    assert asked.problem.startswith(f'metadata.annotations["{key}"]: ')
    assert words in asked.problem
    assert asked.card_request == CardRequest(4, is_valid=False)


def test_problem_texts_do_not_make_requests_different() -> None:
    """A problem's text quotes the pod, so every pod could have a request of its own."""
    wrong = [
        pod_request(3, labels={COUNT: "2"}),
        pod_request(3, labels={COUNT: "two"}, annotations={"vrampack.dev/card-uuid": "GPU-a"}),
        pod_request(3, labels={COUNT: "none"}, annotations={"vrampack.dev/card-model": "A100"}),
    ]
    assert len({each.problem for each in wrong}) == 3
    assert {each.card_request for each in wrong} == {CardRequest(3, is_valid=False)}


def test_the_policy_annotation_is_not_part_of_the_card_request() -> None:
    asked = pod_request(annotations={"vrampack.dev/policy": "spread"})
    assert asked.policy == "spread"
    assert asked.card_request == pod_request().card_request
    assert pod_request(annotations={"vrampack.dev/policy": ""}).policy is None
    assert pod_request(annotations={"vrampack.dev/policy": "x" * 64}).policy is None


def test_every_asking_container_needs_its_reference() -> None:
    wired = ContainerSpec("a", "main", 0, "4", has_reference=True)
    bare = ContainerSpec("b", "main", 1, "4")
    assert ask([wired]).has_references
    assert not ask([wired, bare]).has_references
    assert ask([wired, replace(bare, quantity="0")]).has_references


TEXTS = st.text(max_size=12) | st.sampled_from(["4", "8", "10G", "-1", "0", "1e9", WHOLE, "2"])


@PATIENT
@given(st.lists(TEXTS, max_size=3), st.lists(TEXTS, max_size=3), TEXTS, TEXTS, TEXTS)
def test_no_pod_annotation_or_label_raises(
    main: list[object], init: list[object], count: str, placement: str, wish: str
) -> None:
    labels = {COUNT: count, PLACEMENT: placement}
    annotations = {"vrampack.dev/card-model": wish, "vrampack.dev/card-uuid": wish, "vrampack.dev/policy": wish}
    asked = read_pod_request(container_specs(main, init, sidecars={1}), labels, annotations)
    if asked is not None:
        assert asked.problem or asked.card_request.units > 0
        assert asked.card_request.count > 0
