"""I2, seeded: every way in which a bound pod's card set, limits or annotations can be wrong is reported."""

import pytest

from tests.auditor.audit import audit_objects
from tests.auditor.builders import (
    V1,
    a_legacy_node,
    a_pod,
    a_pod_with_init,
    assert_reported,
    bound_elsewhere,
    clean_scene,
)
from tests.auditor.spoils import (
    Spoil,
    add_pod,
    apply_both,
    move_pod,
    rebind_pod,
    remove_annotation,
    rename_in_record,
    rewrite_record,
    unbind_pod,
    unit_of,
    write_annotation,
    write_label,
)
from tests.auditor.terms import ALLOCATION_V2

ALLOCATION = "vrampack.dev/allocation"

SEEDED: dict[str, tuple[Spoil, set[tuple[str, str]], str]] = {
    # I2: the record and the request
    "two cards for an ask of one": (
        rebind_pod("n1", lambda: a_pod("four", {"main": 4}), 0, 1),
        {("I2", "pod ml/four")},
        "2 cards, it asks for 1",
    ),
    "one card for an ask of two": (
        write_label("four", "aliyun.com/gpu-count", "2"),
        {("I2", "pod ml/four")},
        "1 cards, it asks for 2",
    ),
    "card twice": (
        rewrite_record("two", "cards", uuid="GPU-n2-1", index=1),
        {("I2", "pod ml/two")},
        "names a card twice",
    ),
    "card the node lacks": (rewrite_record("four", "cards", uuid="GPU-x"), {("I2", "pod ml/four")}, "does not have"),
    "card of another node": (
        move_pod("cdi", "n2"),
        {("I2", "pod ml/cdi"), ("I4", "pod ml/cdi"), ("I1", "node n2 card 0")},
        "does not have",
    ),
    "node the API does not show": (lambda s: s.nodes.pop("cdi"), {("I2", "pod ml/cdi")}, "which the API does not show"),
    "index of another card": (rewrite_record("init", "cards", index=0), {("I2", "pod ml/init")}, "GPU-n1-1 is index 0"),
    "units differ from the request": (
        rewrite_record("four", "cards", units=3),
        {("I2", "pod ml/four")},
        "holds 3 units",
    ),
    "init container ignored": (
        rebind_pod("n1", a_pod_with_init, 1, held=3),
        {("I2", "pod ml/init")},
        "holds 3 units of card 1, its request comes to 7",
    ),
    "whole card counted by units": (
        rewrite_record("whole", "cards", units=6),
        {("I2", "pod ml/whole")},
        "request comes to 15",
    ),
    "whole without asking": (
        rewrite_record("four", "cards", whole=True),
        {("I1", "node n1 card 0"), ("I2", "pod ml/four")},
        "whole=True",
    ),
    "units that do not divide": (
        write_label("two", "aliyun.com/gpu-count", "3"),
        {("I2", "pod ml/two")},
        "do not divide by 3",
    ),
    "record for a pod that asks nothing": (
        lambda s: s.pods["four"]["spec"]["containers"][0].pop("resources"),
        {("I2", "pod ml/four")},
        "asks for nothing and holds 4",
    ),
    "unreadable record": (
        write_annotation("cdi", "vrampack.dev/allocation", "{"),
        {("I2", "pod ml/cdi")},
        "cannot be read",
    ),
    "key twice in the record": (
        write_annotation("cdi", "vrampack.dev/allocation", '{"v":1,"v":1}'),
        {("I2", "pod ml/cdi")},
        "a key comes twice",
    ),
    "whole card for an ask larger than it": (
        rebind_pod("n2", lambda: a_pod("whole", {"main": 16}, whole=True), 0, held=15),
        {("I2", "pod ml/whole")},
        "asks 16 units of card 0, which has 15",
    ),
    "unreadable cards of a node": (
        lambda s: s.nodes["cdi"]["metadata"]["annotations"].update(
            {"vrampack.dev/cards": '{"cards":[{"uuid":"GPU-cdi-0"}]}'}
        ),
        {("I2", "pod ml/cdi")},
        "does not have",
    ),
    "node of another unit": (unit_of("cdi", 256), {("I2", "pod ml/cdi")}, "units of 256 MiB"),
    "v1 record of another size": (
        write_annotation("v1", f"{V1}POD", "3"),
        {("I2", "pod ml/v1")},
        "v1 record holds 3 units",
    ),
    "v2 record of another size": (
        write_annotation("v2", ALLOCATION_V2, '{"0":{"0":3}}'),
        {("I2", "pod ml/v2")},
        "v2 record holds 3 units",
    ),
    # I2: containers, limits, environment
    "container missing": (
        rename_in_record("init", "warm", "quiet"),
        {("I2", "pod ml/init")},
        "container warm is missing from the record",
    ),
    "container's units differ": (
        rewrite_record("four", "main", units=3),
        {("I2", "pod ml/four")},
        "3 units of card 0, it asks for 4",
    ),
    "container on another card": (
        rewrite_record("four", "main", uuid="GPU-n1-1"),
        {("I2", "pod ml/four")},
        "on other cards",
    ),
    # floor(16130 * 4 / 15) = 4301
    "limit off by one": (rewrite_record("four", "main", mib=4302), {("I2", "pod ml/four")}, "the rule gives 4301"),
    "limit annotation differs": (
        write_annotation("four", "limit-mib.vrampack.dev/main", "4302"),
        {("I2", "pod ml/four")},
        "limit annotation '4302', the record gives 4301",
    ),
    "limit annotation on a legacy node": (
        write_annotation("legacy", "limit-mib.vrampack.dev/main", "5376"),
        {("I2", "pod ml/legacy")},
        "the record gives None",
    ),
    "visible devices name another card": (
        write_annotation("four", "visible-devices.vrampack.dev/main", "GPU-n1-1"),
        {("I2", "pod ml/four")},
        "sees 'GPU-n1-1', the record gives it 'GPU-n1-0'",
    ),
    "visible devices missing for an init container": (
        remove_annotation("init", "visible-devices.vrampack.dev/warm"),
        {("I2", "pod ml/init")},
        "container warm sees None",
    ),
    "visible devices for a container that asks nothing": (
        write_annotation("init", "visible-devices.vrampack.dev/quiet", "GPU-n1-1"),
        {("I2", "pod ml/init")},
        "no part in the record",
    ),
    "uuid where the node wants a CDI name": (
        write_annotation("cdi", "visible-devices.vrampack.dev/main", "GPU-cdi-0"),
        {("I2", "pod ml/cdi")},
        "gpu=GPU-cdi-0",
    ),
    # I2: what older readers read
    "gpushare value on another card": (
        write_annotation("four", ALLOCATION_V2, '{"0":{"1":4}}'),
        {("I2", "pod ml/four")},
        "gives card 0 0 units",
    ),
    "gpushare value of another sum": (
        write_annotation("four", ALLOCATION_V2, '{"0":{"0":5}}'),
        {("I2", "pod ml/four")},
        "gives card 0 5 units",
    ),
    "gpushare value on one card too many": (
        write_annotation("four", ALLOCATION_V2, '{"0":{"0":4,"1":4}}'),
        {("I2", "pod ml/four")},
        "comes to",
    ),
    "gpushare value for the wrong container": (
        write_annotation("init", ALLOCATION_V2, '{"0":{"1":5},"1":{"1":2}}'),
        {("I2", "pod ml/init")},
        "comes to {'1': {1: 7}}",
    ),
    "gpushare value missing": (remove_annotation("four", ALLOCATION_V2), {("I2", "pod ml/four")}, "is missing"),
    "IDX of another card": (write_annotation("four", f"{V1}IDX", "1"), {("I2", "pod ml/four")}, "IDX is '1'"),
    "IDX for two cards": (write_annotation("two", f"{V1}IDX", "1"), {("I2", "pod ml/two")}, "the record gives None"),
    "POD of one card only": (write_annotation("two", f"{V1}POD", "5"), {("I2", "pod ml/two")}, "the record gives '10'"),
    "DEV of another card": (write_annotation("two", f"{V1}DEV", "15"), {("I2", "pod ml/two")}, "the record gives '11'"),
    "ASSIGNED left open": (
        write_annotation("four", f"{V1}ASSIGNED", "false"),
        {("I2", "pod ml/four")},
        "ASSIGNED is 'false'",
    ),
    "ASSUME_TIME missing": (
        remove_annotation("four", f"{V1}ASSUME_TIME"),
        {("I2", "pod ml/four")},
        "not Unix nanoseconds",
    ),
}


@pytest.mark.parametrize(("spoil", "want", "says"), SEEDED.values(), ids=SEEDED)
def test_a_wrong_allocation_is_reported(spoil: Spoil, want: set[tuple[str, str]], says: str) -> None:
    scene = clean_scene()
    spoil(scene)
    found = audit_objects(scene.pods.values(), scene.nodes.values(), scene.transcript, complete=True)
    assert_reported(found, want, says)


UNREADABLE = {
    "another version": (
        ALLOCATION,
        '{"v":2,"cards":[{"uuid":null,"index":0,"units":4,"whole":false}],"containers":{}}',
    ),
    "no cards": (ALLOCATION, '{"v":1,"cards":[],"containers":{}}'),
    "no containers": (ALLOCATION, '{"v":1,"cards":[{"uuid":null,"index":0,"units":4,"whole":false}]}'),
    "negative index": (
        ALLOCATION,
        '{"v":1,"cards":[{"uuid":null,"index":-1,"units":4,"whole":false}],"containers":{}}',
    ),
    "negative units": (
        ALLOCATION,
        '{"v":1,"cards":[{"uuid":null,"index":0,"units":-4,"whole":false}],"containers":{}}',
    ),
    "true for a number": (
        ALLOCATION,
        '{"v":1,"cards":[{"uuid":null,"index":0,"units":true,"whole":false}],"containers":{}}',
    ),
    "whole unsaid": (ALLOCATION, '{"v":1,"cards":[{"uuid":null,"index":0,"units":4}],"containers":{}}'),
    "empty uuid": (ALLOCATION, '{"v":1,"cards":[{"uuid":"","index":0,"units":4,"whole":false}],"containers":{}}'),
    "NaN": (ALLOCATION, '{"v":1,"cards":[{"uuid":null,"index":0,"units":NaN,"whole":false}],"containers":{}}'),
    "v2 without units": (ALLOCATION_V2, '{"0":{}}'),
    "v2 with a card that is no number": (ALLOCATION_V2, '{"0":{"x":4}}'),
    "v3 that is a list": ("gpushare.alibabacloud.com/gpumemory", "[]"),
    "v1 on no card": (f"{V1}IDX", "-1"),
}


@pytest.mark.parametrize(("key", "value"), UNREADABLE.values(), ids=UNREADABLE)
def test_an_unreadable_record_is_reported_and_counts_on_every_card(key: str, value: str) -> None:
    """Of 11 units it leaves no room for 5 more on any card of its node."""
    scene = clean_scene()
    scene.notes("unrecorded")[key] = value
    apply_both(unbind_pod("cdi"), add_pod(5, card=0, node="cdi"))(scene)
    found = audit_objects(scene.pods.values(), scene.nodes.values())
    assert [(violation.invariant, violation.object) for violation in found] == [
        ("I1", "node cdi card 0"),
        ("I2", "pod ml/unrecorded"),
    ]
    assert "cannot be read" in found[1].text


def test_a_whole_card_that_gpushare_gave_is_valid() -> None:
    pod = bound_elsewhere("whole", "old", {ALLOCATION_V2: '{"0":{"1":15}}'})
    pod["metadata"]["labels"]["ack.gpushare.placement"] = "require-whole-device"
    assert audit_objects([pod], [a_legacy_node()]) == []
