"""The agent's file: what is valid, and that every error names file and path and says what to do."""

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
    return load_settings(path, {f"listen.{name}": value for name, value in overrides.items()})


FAULTS = {
    "unknown key": ("card: {}", "card: no such field; did you mean cards? Allowed here: apiVersion,"),
    "unknown key inside": ("cards: {only: []}", "cards.only: no such field"),
    "a field of the extender": ("policy: {default: spread}", "policy: no such field"),
    "text for a number": ("unit_mib: '1024'", "3: unit_mib: found the text '1024'; allowed: a whole number"),
    "bool for a number": ("unit_mib: true", "unit_mib: found true; allowed: a whole number"),
    "too small": ("unit_mib: 0", "unit_mib: found 0; allowed: a whole number from 1"),
    "no units on a card": ("units_per_card: {Tesla T4: 0}", "units_per_card.Tesla T4: found 0; allowed: a whole number from 1"),
    "too many units on a card": ("units_per_card: {T4: 1048577}", "units_per_card.T4: found 1048577; allowed: a whole number from 1 to"),
    "unknown containers without the module": ("kmod: {unknown: deny}", "kmod.unknown: deny needs enforcement: kmod"),
    "unknown containers on some cards": ("enforcement: kmod\nkmod: {unknown: deny}\ncards: {exclude: [a]}", "deny covers every card"),
    "a cgroup without a root": ("kmod: {unknown_cgroups: [system.slice]}", "kmod.unknown_cgroups.0: found the text 'system.slice'"),
    "both lists of cards": ("cards: {include: [a], exclude: [b]}", "cards: give include or exclude, not both"),
    "a text for a list": ("cards: {include: GPU-1}", "cards.include: found the text 'GPU-1'; allowed: a list, each entry a text"),
    "numbers for cards": ("cards: {include: [0]}", "cards.include.0: found 0; allowed: a text"),
    "unknown back end": ("enforcement: mps", "enforcement: found the text 'mps'; allowed: one of auto, native, kmod, preload, watch, none"),
    "unknown naming": ("devices: index", "devices: found the text 'index'; allowed: one of auto, uuid, cdi"),
    "unknown injection": ("injection: none", "injection: found the text 'none'; allowed: one of auto, cdi, exact"),
    "unknown action": ("refused: {action: kill}", "refused.action: found the text 'kill'; allowed: one of evict, keep"),
    "no time at all": ("refused: {after_seconds: 0}", "refused.after_seconds: found 0; allowed: a number above 0"),
    "not finite": ("health: {check_seconds: .nan}", "health.check_seconds: "),
    "infinite": ("health: {call_seconds: .inf}", "health.call_seconds: found inf; allowed: a number above 0, up to 120"),
    "XID 0": ("health: {xids: {ignore: [0]}}", "health.xids.ignore.0: found 0; allowed: a whole number from 1"),
    "no port": ("listen: {health: '0.0.0.0'}", "listen.health: '0.0.0.0' is not HOST:PORT; give for example"),
    "a host name": ("listen: {health: 'gpu:1'}", "listen.health: 'gpu:1': 'gpu' is not an IP address"),
    "resource without a domain": ("resources: {memory: gpu-mem}", "resources.memory: found the text 'gpu-mem'; allowed: a text such as aliyun"),
    "key twice": ("unit_mib: 1\nunit_mib: 2", "4: unit_mib: is given twice, first in line 3"),
    "empty section": ("health:", "health: found nothing; allowed: a mapping with the keys check_seconds"),
    "not YAML": ("a: [", "not YAML: "),
}  # fmt: skip


@pytest.mark.parametrize(("text", "fault"), FAULTS.values(), ids=FAULTS)
def test_a_fault_names_file_and_path(tmp_path: Path, text: str, fault: str) -> None:
    with pytest.raises(SettingsError) as raised:
        loaded(tmp_path, text)
    assert_fault(raised, tmp_path / "agent.yaml", fault)


def test_all_faults_of_a_file_are_reported_at_once(tmp_path: Path) -> None:
    path = tmp_path / "agent.yaml"
    path.write_text("kind: Agent\nunit_mib: 0\n")
    with pytest.raises(SettingsError) as raised:
        load_settings(path)
    assert [line.split(": ")[1] for line in str(raised.value).splitlines()] == ["apiVersion", "kind", "unit_mib"]


def test_the_extender_s_file_is_recognized(tmp_path: Path) -> None:
    """Its lines are not reported as faults one by one."""
    path = tmp_path / "agent.yaml"
    path.write_text("apiVersion: vrampack.dev/v1\nkind: ExtenderConfiguration\npolicy: {}\nunit_mib: 0\n")
    with pytest.raises(SettingsError) as raised:
        load_settings(path)
    assert str(raised.value) == (
        f"{path}:2: kind: found ExtenderConfiguration: this is the extender's file; "
        "allowed: AgentConfiguration, the agent's file"
    )


def test_minimal_file_gives_the_defaults(tmp_path: Path) -> None:
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
        load_settings(None, {"listen.health": "x"})


def test_shipped_files_are_valid() -> None:
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
        value = ", ".join(value) if isinstance(value, tuple) else value
        assert (str(value).removesuffix(".0") if value or type(value) is int else "") == text, path
