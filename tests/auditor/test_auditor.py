"""The auditor finds nothing in a clean cluster and every seeded violation in a spoiled one."""

import ast
import sys
from pathlib import Path

import pytest

from tests.auditor.audit import audit_objects
from tests.auditor.builders import V1, AuditScene, a_bind, assert_reported, clean_scene
from tests.auditor.spoils import (
    Spoil,
    add_pod,
    apply_both,
    count_cards_in,
    recreate_pod,
    rewrite_record,
    unbind_pod,
    write_annotation,
    write_label,
)
from tests.auditor.terms import Terms, Violation

CARD_0, CARD_1 = ("I1", "node n1 card 0"), ("I1", "node n1 card 1")

SEEDED: dict[str, tuple[Spoil, set[tuple[str, str]], str]] = {
    # I1: n1/0 holds 8 + 4 + 3 = 15 of 15, n1/1 holds 7, n2/0 is held whole
    "card over by one unit": (add_pod(1, card=0, node="n1"), {CARD_0}, "16 of 15 units held"),
    "memory of a terminating pod resold": (add_pod(3, card=0, node="n1"), {CARD_0}, "leaving 3 (terminating)"),
    "peak of an init container resold": (add_pod(9, card=1, node="n1"), {CARD_1}, "16 of 15 units held"),
    "small card of mixed cards over": (
        add_pod(7, node="n2", card=1),
        {("I1", "node n2 card 1")},
        "12 of 11 units held",
    ),
    "whole card shared": (
        apply_both(rewrite_record("whole", "cards", units=6), add_pod(6, card=0, node="n2")),
        {("I1", "node n2 card 0"), ("I2", "pod ml/whole")},
        "held whole and shared: ml/new 6, ml/whole 15 (whole)",
    ),
    "card of a legacy node over": (
        add_pod(11, node="old", card=0),
        {("I1", "node old card 0")},
        "20 of 15 units held",
    ),
    # 15 units became 60: 8 + 4 + 3 are 32 + 16 + 12 of them. One record is older than `of`: its limit looks wrong too
    "card counted in other units": (
        apply_both(
            rewrite_record("four", "cards", of=None), count_cards_in("n1", units=60), add_pod(1, card=0, node="n1")
        ),
        {CARD_0, ("I2", "pod ml/four")},
        "61 of 60 units held: ml/eight 32, ml/four 16, ml/leaving 12 (terminating), ml/new 1",
    ),
    "pod without a record forgotten": (add_pod(5, node="cdi", card=1), {("I1", "node cdi card 1")}, "16 of 15 units"),
    "record naming a missing card counts everywhere": (
        rewrite_record("four", "cards", uuid="GPU-x", units=9),
        {CARD_0, CARD_1, ("I2", "pod ml/four")},
        "16 of 15 units held: ml/four 9 (on some card of this node), ml/init 7",
    ),
    "pod without a record that asks a whole card": (
        write_label("unrecorded", "ack.gpushare.placement", "require-whole-device"),
        {("I1", "node cdi card 0")},
        "19 of 15 units held",
    ),
    # I4
    "yes but unbound": (unbind_pod("four"), {("I4", "pod ml/four")}, "yes for node n1, the API shows no node"),
    "yes but on another node": (
        lambda s: s.add_bind_answer("four", "n2"),
        {("I4", "pod ml/four")},
        "yes for node n2, the API shows n1",
    ),
    "yes for two nodes": (
        lambda s: s.transcript.append(a_bind("four", "n2")),
        {("I4", "pod ml/four")},
        "yes for node n2, the API shows n1",
    ),
    "yes without a record": (
        lambda s: s.pods["four"]["metadata"].pop("annotations"),
        {("I4", "pod ml/four")},
        "without our record",
    ),
    "no but bound": (
        lambda s: s.add_bind_answer("four", "n1", "pod is gone"),
        {("I4", "pod ml/four")},
        "no for node n1",
    ),
    "status 500 but bound": (
        lambda s: s.add_bind_answer("four", "n1", status=500),
        {("I4", "pod ml/four")},
        "no for node n1",
    ),
    "yes for another uid": (
        recreate_pod("four"),
        {("I4", "pod ml/four")},
        "yes for uid uid-four, the API shows uid uid-four-again",
    ),
    "bound with no bind call": (lambda s: s.transcript.pop(0), {("I4", "pod ml/eight")}, "no bind call asked for that"),
    # I6
    "unbound with a record": (
        write_annotation("pending", "vrampack.dev/allocation", "{}"),
        {("I6", "pod ml/pending")},
        "allocation",
    ),
    "unbound with an old record": (
        write_annotation("pending", f"{V1}IDX", "0"),
        {("I6", "pod ml/pending")},
        f"{V1}IDX",
    ),
    "unbound with an environment": (
        write_annotation("pending", "visible-devices.vrampack.dev/main", "all"),
        {("I6", "pod ml/pending")},
        "visible-devices.vrampack.dev/main",
    ),
}


@pytest.mark.parametrize(("spoil", "want", "says"), SEEDED.values(), ids=SEEDED)
def test_a_seeded_violation_is_reported(spoil: Spoil, want: set[tuple[str, str]], says: str) -> None:
    scene = clean_scene()
    spoil(scene)
    assert_reported(judge(scene), want, says)


def test_a_clean_cluster_has_no_violation() -> None:
    assert judge(clean_scene()) == []


ALLOWED: dict[str, Spoil] = {
    "reply lost, and bound": lambda s: s.add_bind_answer("four", "n1", cut="connection closed"),
    "reply lost, not bound": apply_both(
        unbind_pod("four"), lambda s: s.add_bind_answer("four", "n1", cut="connection closed")
    ),
    "outcome unknown, and bound": lambda s: s.add_bind_answer("four", "n1", "bind outcome unknown: no answer in 3 s"),
    "outcome unknown, not bound": apply_both(
        unbind_pod("four"), lambda s: s.add_bind_answer("four", "n1", "bind outcome unknown")
    ),
    "no, then yes": lambda s: s.transcript.append(a_bind("four", "n1", "watch is stale")),
    "no for the node it is not on": lambda s: s.transcript.append(a_bind("four", "n2", "already bound to n1")),
    "empty answer, which the scheduler takes for success": lambda s: s.transcript[1].update(answer={}),
    "key in another letter case": lambda s: s.transcript[1].update(answer={"error": ""}),
    "bound by somebody else, bind said no": lambda s: s.transcript.append(a_bind("unrecorded", "cdi", "already bound")),
    "other verbs and bodies without a pod": lambda s: s.transcript.extend(
        [{"verb": "filter", "request": {}, "status": 200, "answer": {}}, {"verb": "bind", "request": None}, {}]
    ),
    "answer that is no object": apply_both(unbind_pod("four"), lambda s: s.transcript[1].update(answer=None)),
    "pod recreated, and pending": apply_both(recreate_pod("four"), unbind_pod("four")),
    "memory of a pod that is over": add_pod(8, card=1, node="n1"),
    "card counted in other units": count_cards_in("n1", units=60),
    "a kick on a pending pod": write_annotation("pending", "vrampack.dev/retry", "17-4"),
}


@pytest.mark.parametrize("change", ALLOWED.values(), ids=ALLOWED)
def test_allowed_differences_are_not_reported(change: Spoil) -> None:
    scene = clean_scene()
    change(scene)
    assert judge(scene) == []


def test_a_placement_without_a_bind_call_is_fine_when_the_transcript_is_not_complete() -> None:
    scene = clean_scene()
    scene.transcript.clear()
    assert judge(scene, complete=False) == []


def test_a_pod_of_another_uid_is_noticed_without_a_complete_transcript() -> None:
    scene = clean_scene()
    recreate_pod("four")(scene)
    assert [violation.invariant for violation in judge(scene, complete=False)] == ["I4"]


def test_a_pod_that_was_seen_on_a_card_counts_there_only() -> None:
    """11 units on card 0, where 4 are recorded: full; card 1 is free."""
    scene = clean_scene()
    seen = '{"v":1,"pods":{"uid-unrecorded":[{"uuid":"GPU-cdi-0","units":11}]}}'
    scene.nodes["cdi"]["metadata"]["annotations"]["vrampack.dev/observed"] = seen
    add_pod(15, card=1, node="cdi")(scene)
    assert judge(scene) == []
    add_pod(1, card=0, node="cdi")(scene)
    assert ["ml/unrecorded 11 (observed)" in violation.text for violation in judge(scene)] == [True]


def test_pods_without_a_record_can_be_left_out() -> None:
    scene = clean_scene()
    add_pod(5, card=1, node="cdi")(scene)
    assert audit_objects(scene.pods.values(), scene.nodes.values(), count_unrecorded=False) == []


def test_an_excused_object_still_counts_on_its_card() -> None:
    scene = clean_scene()
    rewrite_record("four", "cards", units=5)(scene)
    found = audit_objects(scene.pods.values(), scene.nodes.values(), excused={"pod ml/four"})
    assert [(violation.invariant, violation.object) for violation in found] == [CARD_0]


def test_memory_resource_domain_and_reserve_are_configurable() -> None:
    """With 500 MiB reserved the rule gives floor(15630 * 4 / 15) = 4168, where the clean scene recorded 4301."""
    scene = clean_scene()
    found = audit_objects([scene.pods["four"]], scene.nodes.values(), terms=Terms(reserve_mib=500))
    assert [violation.text for violation in found if "4168" in violation.text] == [
        "container main is limited to 4301 MiB of card 0, the rule gives 4168"
    ]
    assert (
        audit_objects(scene.pods.values(), scene.nodes.values(), terms=Terms(memory="a/b", domain="c.d"))[0].invariant
        == "I2"
    )


def test_the_auditor_imports_the_standard_library_and_itself_only() -> None:
    """An auditor that shares a line with what it judges shares its mistakes."""
    for file in sorted(Path(__file__).parent.glob("*.py")):
        if file.name.startswith("test_"):
            continue
        for node in ast.walk(ast.parse(file.read_text())):
            names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
            if isinstance(node, ast.ImportFrom):
                names = [node.module or ""]
                assert node.level == 0, f"{file.name} imports relatively"
            for name in names:
                ours = name == "tests.auditor" or name.startswith("tests.auditor.")
                assert ours or name.split(".")[0] in sys.stdlib_module_names, f"{file.name} imports {name}"


def judge(scene: AuditScene, *, complete: bool = True) -> list[Violation]:
    return audit_objects(scene.pods.values(), scene.nodes.values(), scene.transcript, complete=complete)
