"""Cards taken out of use and put back: by which names, with which messages, and never undoing what another operator did."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Mapping
from pathlib import Path

import pytest

from tests.cli.explain.objects import a_gpu_node, a_node
from tests.fakes.proxy import FaultProxy
from tests.support.manifest_builders import published_card
from vrampack.cards import well_known
from vrampack.cli.card.main import MAX_ATTEMPTS, main
from vrampack.simulator.apiserver import ApiServer
from vrampack.simulator.kubeconfig import write_kubeconfig

Said = pytest.CaptureFixture[str]

CARDS = (
    published_card(0, uuid="GPU-aa11"),
    published_card(1, uuid="GPU-ab22", healthy=False),
    published_card(101, uuid="MIG-aa33"),
)


class CordonHarness:
    """Two nodes behind a proxy, and the command."""

    def __init__(self, api: ApiServer, proxy: FaultProxy, folder: Path) -> None:
        self.api = api
        self.proxy = proxy
        self._kubeconfig = write_kubeconfig(folder, proxy.url)

    async def card(self, *arguments: str) -> int:
        return await asyncio.to_thread(main, [*arguments, "--kubeconfig", str(self._kubeconfig)])

    def annotate(self, value: str) -> None:
        self.api.patch("nodes", "gpu-1", {"metadata": {"annotations": {well_known.CORDONED_CARDS: value}}})

    @property
    def annotations(self) -> Mapping[str, str]:
        annotations: Mapping[str, str] = self.api.get("nodes", "gpu-1")["metadata"]["annotations"]
        return annotations

    @property
    def cordoned(self) -> str | None:
        return self.annotations.get(well_known.CORDONED_CARDS)


@pytest.fixture
async def setting(tmp_path: Path) -> AsyncIterator[CordonHarness]:
    async with ApiServer() as api, FaultProxy(int(api.url.rpartition(":")[2])) as proxy:
        api.create(a_gpu_node("gpu-1", *CARDS))
        api.create(a_node("cpu-1"))
        yield CordonHarness(api, proxy, tmp_path)


NAMES = {
    "its uuid": ("GPU-aa11", "GPU-aa11"),
    "its index": ("0", "GPU-aa11"),
    "the index of an instance": ("101", "MIG-aa33"),
    "the beginning of its uuid": ("GPU-ab", "GPU-ab22"),
    "that without the kind": ("aa1", "GPU-aa11"),
}


@pytest.mark.parametrize(("named", "uuid"), NAMES.values(), ids=NAMES)
async def test_a_card_is_cordoned_and_uncordoned(named: str, uuid: str, setting: CordonHarness, capsys: Said) -> None:
    before = setting.annotations
    assert await setting.card("cordon", "gpu-1", named) == 0
    assert (setting.cordoned, capsys.readouterr().out) == (uuid, f"node/gpu-1 card {uuid} cordoned\n")
    assert await setting.card("cordon", "gpu-1", named) == 0
    assert (setting.cordoned, capsys.readouterr().out) == (uuid, f"node/gpu-1 card {uuid} already cordoned\n")
    assert await setting.card("uncordon", "node/gpu-1", named) == 0
    assert capsys.readouterr().out == f"node/gpu-1 card {uuid} uncordoned\n"
    assert setting.annotations == before
    assert await setting.card("uncordon", "gpu-1", named) == 0
    assert capsys.readouterr().out == f"node/gpu-1 card {uuid} already uncordoned\n"


async def test_other_cordoned_cards_stay_as_they_are(setting: CordonHarness) -> None:
    """Also what somebody wrote by hand, with blanks, and a card that is gone."""
    setting.annotate("GPU-gone , GPU-aa11,")
    assert await setting.card("cordon", "gpu-1", "1") == 0
    assert setting.cordoned == "GPU-gone,GPU-aa11,GPU-ab22"
    assert await setting.card("uncordon", "gpu-1", "0") == 0
    assert setting.cordoned == "GPU-gone,GPU-ab22"
    assert await setting.card("uncordon", "gpu-1", "GPU-gone") == 0
    assert setting.cordoned == "GPU-ab22"


UNKNOWN = {
    "another uuid": ("cordon", "GPU-zz", "there is no card 'GPU-zz'; cards of the node: GPU-aa11, GPU-ab22, MIG-aa33"),
    "an index too many": ("cordon", "2", "there is no card '2'"),
    "a beginning of two": ("cordon", "GPU-a", "'GPU-a' may be GPU-aa11 or GPU-ab22; give more of it"),
    "of two kinds": ("cordon", "aa", "'aa' may be GPU-aa11 or MIG-aa33"),
    "nothing to take back": ("uncordon", "GPU-zz", "there is no card 'GPU-zz'"),
}


@pytest.mark.parametrize(("action", "named", "text"), UNKNOWN.values(), ids=UNKNOWN)
async def test_a_card_that_is_not_there_is_refused(
    action: str, named: str, text: str, setting: CordonHarness, capsys: Said
) -> None:
    assert await setting.card(action, "gpu-1", named) == 1
    said = capsys.readouterr()
    assert (said.out, setting.cordoned) == ("", None)
    assert said.err.startswith("vrampack: node gpu-1: ")
    assert text in said.err


async def test_card_that_is_not_there_yet_is_cordoned_with_force(setting: CordonHarness, capsys: Said) -> None:
    assert await setting.card("cordon", "gpu-1", "GPU-new", "--force") == 0
    assert setting.cordoned == "GPU-new"
    assert await setting.card("cordon", "gpu-1", "GPU-a,GPU-b", "--force") == 1  # two in one argument are no card
    assert setting.cordoned == "GPU-new"
    assert "there is no card 'GPU-a,GPU-b'" in capsys.readouterr().err


async def test_node_without_cards_and_missing_node_are_reported(setting: CordonHarness, capsys: Said) -> None:
    assert await setting.card("cordon", "cpu-1", "0") == 1
    assert "node cpu-1: there is no card '0'; cards of the node: none" in capsys.readouterr().err
    assert await setting.card("cordon", "gpu-9", "0") == 1
    assert capsys.readouterr().err == "vrampack: there is no node gpu-9\n"


async def test_a_damaged_list_of_cards_is_named(setting: CordonHarness, capsys: Said) -> None:
    setting.api.create(a_node("gpu-2", "{"))
    assert await setting.card("cordon", "gpu-2", "0") == 1
    assert 'annotation "vrampack.dev/cards"' in capsys.readouterr().err


async def test_two_concurrent_cordons_both_take_effect(setting: CordonHarness) -> None:
    """The node changes between our read and our write: 409, read again, and the other's card is still out."""
    setting.proxy.when("GET", "/nodes/gpu-1").answer(200, setting.api.get("nodes", "gpu-1"), times=1)
    setting.annotate("GPU-ab22")
    assert await setting.card("cordon", "gpu-1", "0") == 0
    assert setting.cordoned == "GPU-ab22,GPU-aa11"


async def test_cordon_gives_up_on_a_node_that_never_stops_changing(setting: CordonHarness, capsys: Said) -> None:
    setting.proxy.when("PATCH", "/nodes/gpu-1").answer(409)
    assert await setting.card("cordon", "gpu-1", "0") == 1
    assert capsys.readouterr().err.startswith("vrampack: 409")
    assert setting.proxy.count("PATCH", "/nodes/gpu-1") == MAX_ATTEMPTS


async def test_a_forbidden_change_names_the_required_rights(setting: CordonHarness, capsys: Said) -> None:
    setting.proxy.when("PATCH", "/nodes/gpu-1").answer(403)
    assert await setting.card("cordon", "gpu-1", "0") == 1
    assert (
        "card needs get and list of nodes, patch to cordon and heal, and list of pods to drain"
        in capsys.readouterr().err
    )
    assert setting.proxy.count("PATCH", "/nodes/gpu-1") == 1


async def test_all_cards_are_listed(setting: CordonHarness, capsys: Said) -> None:
    setting.annotate("GPU-ab22,GPU-gone")
    setting.api.create(a_gpu_node("gpu-0", cordoned="GPU-0"))
    assert await setting.card("list") == 0
    assert capsys.readouterr().out.splitlines() == [
        "NODE   CARD  UUID      MODEL                 MEMORY(MiB)  UNITS  STATE",
        "gpu-0     0  GPU-0     Tesla V100-SXM2-16GB        16130     15  cordoned",
        "gpu-1     0  GPU-aa11  Tesla V100-SXM2-16GB        16130     15  ok",
        "gpu-1     1  GPU-ab22  Tesla V100-SXM2-16GB        16130     15  unhealthy, cordoned",
        "gpu-1   101  MIG-aa33  Tesla V100-SXM2-16GB        16130     15  ok",
        "gpu-1     -  GPU-gone  -                               -      -  cordoned, not there",
    ]


async def test_the_cards_of_one_node_as_json(setting: CordonHarness, capsys: Said) -> None:
    setting.annotate("GPU-gone")
    assert await setting.card("list", "gpu-1", "-o", "json") == 0
    said = json.loads(capsys.readouterr().out)
    assert [(card["uuid"], card["index"], card["healthy"], card["cordoned"]) for card in said] == [
        ("GPU-aa11", 0, True, False),
        ("GPU-ab22", 1, False, False),
        ("MIG-aa33", 101, True, False),
        ("GPU-gone", None, None, True),
    ]


async def test_a_node_without_cards_is_listed_as_such(setting: CordonHarness, capsys: Said) -> None:
    assert await setting.card("list", "cpu-1") == 0
    assert capsys.readouterr().out == "No cards are published.\n"


MISUSE = {
    "no action": (),
    "another action": ("evict", "gpu-1", "0"),
    "nothing to drain": ("drain",),
    "no node": ("cordon",),
    "no card": ("uncordon", "gpu-1"),
    "a card without a name": ("cordon", "gpu-1", ""),
    "a card to list": ("list", "gpu-1", "0"),
}


@pytest.mark.parametrize("arguments", MISUSE.values(), ids=MISUSE)
def test_misuse_exits_2(arguments: tuple[str, ...], capsys: Said) -> None:
    with pytest.raises(SystemExit) as raised:
        main(arguments)
    assert raised.value.code == 2
    assert "usage: vrampack card" in capsys.readouterr().err


SINCE = "2026-11-23T10:00:00Z"
VERDICT = {"cause": "remap-failed", "action": "human", "since": SINCE, "boot": "b", "nvml": False}
ROW = "a row of its memory could not be remapped: have a person look at it"
SICK = published_card(1, uuid="GPU-ab22", healthy=False) | {"reason": ROW, "verdict": VERDICT}
GONE = {"uuid": "GPU-cc44", "gpu": "GPU-cc44", "reason": "XID 79", "verdict": VERDICT | {"cause": "xid-79"}}

HEALS = {
    "a card that is out": (["GPU-ab22"], None, {"at": SINCE, "waived": []}),
    "whatever NVML says": (["GPU-ab22", "--force"], None, {"at": SINCE, "waived": ["remap-failed"]}),
    "one cause more": (
        ["1", "--force"],
        {"GPU-ab22": {"at": "2026-11-01T00:00:00Z", "waived": ["ecc"]}},
        {"at": SINCE, "waived": ["ecc", "remap-failed"]},
    ),
    "a card that is not there": (["GPU-cc44"], None, {"at": SINCE, "waived": []}),
    "the driver's word counts again": (
        ["GPU-aa11"],
        {"GPU-aa11": {"at": SINCE, "waived": ["remap-failed"]}},
        {"at": SINCE, "waived": []},
    ),
    "a healthy card": (["GPU-aa11", "--force"], None, None),
}


@pytest.mark.parametrize(("arguments", "before", "want"), HEALS.values(), ids=HEALS)
async def test_heal_writes_the_annotation(
    arguments: list[str],
    before: dict[str, object] | None,
    want: dict[str, object] | None,
    setting: CordonHarness,
    capsys: Said,
) -> None:
    cards = json.loads(setting.annotations[well_known.NODE_CARDS])
    text = json.dumps(cards | {"cards": [cards["cards"][0], SICK], "absent": [GONE]})
    was = {well_known.HEALED_CARDS: json.dumps({"v": 1, "cards": before})} if before else {}
    setting.api.patch("nodes", "gpu-1", {"metadata": {"annotations": {well_known.NODE_CARDS: text, **was}}})
    assert await setting.card("heal", "gpu-1", *arguments) == 0
    written = setting.annotations.get(well_known.HEALED_CARDS)
    assert list(json.loads(written)["cards"].values() if written else []) == ([want] if want else [])
    assert ("nothing to heal" in capsys.readouterr().out) == (want is None)


async def test_list_shows_why_a_card_is_unhealthy(setting: CordonHarness, capsys: Said) -> None:
    text = json.dumps(json.loads(setting.annotations[well_known.NODE_CARDS]) | {"cards": [SICK]})
    setting.api.patch("nodes", "gpu-1", {"metadata": {"annotations": {well_known.NODE_CARDS: text}}})
    assert await setting.card("list", "gpu-1") == 0
    assert f"unhealthy ({ROW})" in capsys.readouterr().out
