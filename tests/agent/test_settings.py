"""The agent's file: what is good, and that every fault names file and path and says what to do."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.support.settings_documents import assert_fault, assert_fields_documented, list_field_paths, read_value
from vrampack.agent.settings import AgentConfiguration, load_settings
from vrampack.config.errors import SettingsError

HEAD = "apiVersion: vrampack.dev/v1\nkind: AgentConfiguration\n"
ROOT = Path(__file__).parents[2]
SECTION = (ROOT / "docs" / "configuration.md").read_text(encoding="utf-8").partition("\n## The agent\n")[2]


def loaded(tmp_path: Path, text: str, **overrides: str) -> AgentConfiguration:
    path = tmp_path / "agent.yaml"
    path.write_text(HEAD + text)
    return load_settings(path, overrides)


FAULTS = {
    "unknown key": ("card: {}", "card: no such field; look for a misspelling in docs/configuration.md"),
    "unknown key inside": ("cards: {only: []}", "cards.only: no such field"),
    "a field of the extender": ("policy: {default: spread}", "policy: no such field"),
    "text for a number": ("unit_mib: '1024'", "unit_mib: Input should be a valid integer"),
    "bool for a number": ("unit_mib: true", "unit_mib: Input should be a valid integer"),
    "too small": ("unit_mib: 0", "unit_mib: Input should be greater than or equal to 1"),
    "no units on a card": ("units_per_card: {Tesla T4: 0}", "units_per_card.Tesla T4: Input should be greater than"),
    "too many units on a card": ("units_per_card: {T4: 1048577}", "units_per_card.T4: Input should be less than"),
    "both lists of cards": ("cards: {include: [a], exclude: [b]}", "cards: give include or exclude, not both"),
    "a text for a list": ("cards: {include: GPU-1}", "cards.include: Input should be a valid tuple"),
    "numbers for cards": ("cards: {include: [0]}", "cards.include.0: Input should be a valid string"),
    "unknown back end": ("enforcement: mps", "enforcement: Input should be 'auto', 'native', 'kmod', 'preload', 'watch' or 'none'"),
    "unknown naming": ("devices: index", "devices: Input should be 'auto', 'uuid' or 'cdi'"),
    "unknown injection": ("injection: none", "injection: Input should be 'auto', 'cdi' or 'exact'"),
    "unknown action": ("refused: {action: kill}", "refused.action: Input should be 'evict' or 'keep'"),
    "no time at all": ("refused: {after_seconds: 0}", "refused.after_seconds: Input should be greater than 0"),
    "not finite": ("health: {check_seconds: .nan}", "health.check_seconds: "),
    "infinite": ("health: {call_seconds: .inf}", "health.call_seconds: Input should be less than or equal to 120"),
    "XID 0": ("health: {xids: {ignore: [0]}}", "health.xids.ignore.0: Input should be greater than or equal to 1"),
    "no port": ("listen: {health: '0.0.0.0'}", "listen.health: '0.0.0.0' is not HOST:PORT; give for example"),
    "a host name": ("listen: {health: 'gpu:1'}", "listen.health: 'gpu:1': 'gpu' is not an IP address"),
    "resource without a domain": ("resources: {memory: gpu-mem}", "resources.memory: String should match pattern"),
    "key twice": ("unit_mib: 1\nunit_mib: 2", "unit_mib: stands twice, the second time in line 4"),
    "empty section": ("health:", "health: Input should be a valid dictionary"),
    "not YAML": ("a: [", "not YAML: "),
}  # fmt: skip


@pytest.mark.parametrize(("text", "fault"), FAULTS.values(), ids=FAULTS)
def test_a_fault_names_file_and_path(tmp_path: Path, text: str, fault: str) -> None:
    with pytest.raises(SettingsError) as raised:
        loaded(tmp_path, text)
    assert_fault(raised, tmp_path / "agent.yaml", fault)


def test_every_fault_is_said_at_once(tmp_path: Path) -> None:
    path = tmp_path / "agent.yaml"
    path.write_text("kind: ExtenderConfiguration\nunit_mib: 0\n")
    with pytest.raises(SettingsError) as raised:
        load_settings(path)
    assert [line.split(": ")[1] for line in str(raised.value).splitlines()] == ["apiVersion", "kind", "unit_mib"]


def test_the_smallest_file_is_the_defaults(tmp_path: Path) -> None:
    assert loaded(tmp_path, "") == load_settings(None)


def test_a_full_file(tmp_path: Path) -> None:
    settings = loaded(
        tmp_path,
        """
unit_mib: 256
units_per_card: {Tesla T4: 60}
devices: cdi
enforcement: native
cards: {exclude: [GPU-1, GPU-2]}
health: {check_seconds: 1, recover_after_checks: 5, xids: {ignore: [63], fatal: [31]}}
refused: {action: keep, after_seconds: 5}
kubelet_folder: /data/kubelet
""",
    )
    assert (settings.unit_mib, settings.units_per_card, settings.devices) == (256, {"Tesla T4": 60}, "cdi")
    assert (settings.cards.exclude, settings.cards.are_selected) == (("GPU-1", "GPU-2"), True)
    assert (settings.health.check_seconds, settings.health.xids.fatal) == (1.0, (31,))
    assert (settings.refused.action, settings.kubelet_folder) == ("keep", Path("/data/kubelet"))


def test_a_flag_wins_over_the_file(tmp_path: Path) -> None:
    text = "listen: {health: '127.0.0.1:1'}"
    assert loaded(tmp_path, text, health="127.0.0.1:2").listen.health == "127.0.0.1:2"
    with pytest.raises(SettingsError, match=r"command line: listen\.health: 'x' is not HOST:PORT"):
        load_settings(None, {"health": "x"})


def test_the_shipped_files_are_good() -> None:
    files = [path for path in (ROOT / "manifests").rglob("*agent*.yaml") if "\nkind: AgentConf" in path.read_text()]
    assert files
    for path in files:
        load_settings(path)


def test_every_field_is_documented_and_nothing_else() -> None:
    assert_fields_documented(AgentConfiguration, SECTION)


def test_documented_defaults_are_the_defaults() -> None:
    document = load_settings(None).model_dump()
    rows = re.findall(r"^\| `([a-z_.]+)` \| (?:`([^`]+)`|none) \|", SECTION, re.MULTILINE)
    assert len(rows) == len(list(list_field_paths(AgentConfiguration))) - 2  # apiVersion and kind have none
    for path, text in rows:
        value = read_value(document, path)
        assert (str(value).removesuffix(".0") if value else "") == text, path
