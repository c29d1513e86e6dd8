"""The configuration file: what is good, and that every fault names file and path and says what to do."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from extender.settings import ExtenderConfiguration, load_settings
from tests.support.settings_documents import assert_fault, assert_fields_documented, read_value
from vrampack.config.addresses import is_loopback, parse_address
from vrampack.config.errors import SettingsError

HEAD = "apiVersion: vrampack.dev/v1\nkind: ExtenderConfiguration\n"
DOCUMENTATION = Path(__file__).parents[2] / "docs" / "configuration.md"


def loaded(tmp_path: Path, text: str, **overrides: str) -> ExtenderConfiguration:
    path = tmp_path / "extender.yaml"
    path.write_bytes(text.encode("latin-1"))
    return load_settings(path, {f"listen.{name}": value for name, value in overrides.items()})


FAULTS = {
    "unknown key": ("polcy: {}", "polcy: no such field; did you mean policy? Allowed here: apiVersion,"),
    "unknown key inside": ("listen: {verb: '127.0.0.1:1'}", "listen.verb: no such field"),
    "text for a number": ("unit_mib: '1024'", "3: unit_mib: found the text '1024'; allowed: a whole number from 1 to 1048576"),
    "fraction for a number": ("unit_mib: 1024.0", "unit_mib: found 1024.0; allowed: a whole number"),
    "bool for a number": ("unit_mib: true", "unit_mib: found true; allowed: a whole number"),
    "text for a bool": ("nvidia_fractions: 'yes'", "nvidia_fractions: found the text 'yes'; allowed: true or false"),
    "number for an address": ("listen: {verbs: 12345}", "listen.verbs: found 12345; allowed: a text such as 127.0.0.1:12345"),
    "too small": ("unit_mib: 0", "unit_mib: found 0; allowed: a whole number from 1 to 1048576"),
    "too large": ("deadlines: {bind_seconds: 61}", "deadlines.bind_seconds: found 61; allowed: a number above 0, up to 60"),
    "not finite": ("deadlines: {bind_seconds: .nan}", "deadlines.bind_seconds: "),
    "infinite": ("deadlines: {stale_seconds: .inf}", "deadlines.stale_seconds: "),
    "key twice": ("unit_mib: 1\nunit_mib: 2", "4: unit_mib: is given twice, first in line 3"),
    "key twice inside": ("tls:\n  key_file: a\n  key_file: b", "5: tls.key_file: is given twice, first in line 4"),
    "key twice in a flow": ("listen: {verbs: a, verbs: b}", "listen.verbs: is given twice"),
    "unknown decision": ("decide: best", "decide.default: found the text 'best'; allowed: one of prioritize, filter, auto"),
    "unknown decision for a scheduler": ("decide: {schedulers: {x: best}}", "decide.schedulers.x: found the text 'best'; allowed: one of prioritize"),
    "decide a number": ("decide: 3", "decide: 3 is neither prioritize, filter or auto nor a mapping with default and schedulers"),
    "decide by another key": ("decide: {x: filter}", "decide.x: no such field"),
    "two TLS files": ("tls: {cert_file: a, key_file: b}", "tls: give cert_file, key_file and client_ca_file together"),
    "one TLS file": ("tls: {client_ca_file: a}", "tls: give cert_file, key_file and client_ca_file together"),
    "a host name": ("listen: {verbs: 'gpu.example:1'}", "listen.verbs: 'gpu.example:1': 'gpu.example' is not an IP address"),
    "no port": ("listen: {verbs: '127.0.0.1'}", "listen.verbs: '127.0.0.1' is not HOST:PORT; give for example"),
    "no such port": ("listen: {verbs: '127.0.0.1:65536'}", "listen.verbs: '127.0.0.1:65536' is not HOST:PORT"),
    "monstrous port": (f"listen: {{verbs: '127.0.0.1:{'1' * 5000}'}}", "is not HOST:PORT"),
    "bad health address": ("listen: {health: '127.0.0.1'}", "listen.health: '127.0.0.1' is not HOST:PORT"),
    "open door": ("listen: {verbs: '0.0.0.0:1'}", "listen.verbs: 0.0.0.0:1 is not loopback and tls is not set"),
    "the webhook, which has moved": ("listen: {admission: '0.0.0.0:1'}", "a program of its own, `vrampack admission`"),
    "its certificate": ("admission: {cert_file: /a}", "AdmissionWebhookConfiguration, as listen.admission, tls and scheduler_name"),
    "open door, IPv6": ("listen: {verbs: '[fd00::1]:1'}", "listen.verbs: [fd00::1]:1 is not loopback"),
    "prefix without a slash": ("listen: {url_prefix: verbs}", "listen.url_prefix: 'verbs' must begin with one slash"),
    "prefix with a slash too many": ("listen: {url_prefix: /x/}", "listen.url_prefix: '/x/' must begin with one slash"),
    "unknown policy": ("policy: {default: best}", "policy.default: found the text 'best'; allowed: one of binpack, spread, node-binpack, sum-of-squares, fragmentation, tessellate"),
    "unknown policy allowed": ("policy: {allowed: [spread, best]}", "policy.allowed.1: found the text 'best'; allowed: one of binpack"),
    "weights of a policy that has none": ("policy: {default: spread, weights: {opening: 2}}", "policy.weights: spread has no weights; these policies have: tessellate"),
    "unknown weight of a profile": ("profiles: [{name: a, policy: tessellate, weights: {opning: 2}}]", "profiles.0.weights.opning: no such field; did you mean opening? Allowed here: opening, leftover_share, pressure, starvation"),
    "a bound of a profile": ("profiles: [{name: a, policy: spread, bounds: {card_use_percent: 0}}]", "profiles.0.bounds.card_use_percent: found 0; allowed: a whole number from 1 to 100"),
    "resource without a domain": ("resources: {memory: gpu-mem}", "resources.memory: found the text 'gpu-mem'; allowed: a text such as aliyun.com/gpu-mem"),
    "empty section": ("listen:", "listen: found nothing; allowed: a mapping with the keys verbs, health, url_prefix"),
    "not YAML": ("a: [", "not YAML: "),
    "deep YAML": ("a: " + "[" * 600, "not YAML: "),
    "not UTF-8": ("a: \xff", "not YAML: "),
    "a list for a key": ("? [a]\n: 1", "not YAML: "),
    "no such day": ("unit_mib: 2020-13-45", "3: unit_mib: not YAML: month must be in 1..12"),
    "a number too long": (f"unit_mib: {'1' * 5000}", "not YAML: Exceeds the limit"),
    "a tag that lies": ("nvidia_fractions: !!bool x", "not YAML: 'x'"),
    "a tag on nothing": ("unit_mib: !!int ''", "not YAML: string index out of range"),
    "no date at all": ("unit_mib: !!timestamp x", "not YAML: 'NoneType' object"),
    "two documents": ("---\na: 1", "not YAML: "),
    "a Python object": ("a: !!python/object/apply:os.getcwd []", "not YAML: "),
}  # fmt: skip


@pytest.mark.parametrize(("text", "fault"), FAULTS.values(), ids=FAULTS)
def test_a_fault_names_file_and_path(tmp_path: Path, text: str, fault: str) -> None:
    with pytest.raises(SettingsError) as raised:
        loaded(tmp_path, HEAD + text)
    assert_fault(raised, tmp_path / "extender.yaml", fault)


def test_all_faults_of_a_file_are_reported_at_once(tmp_path: Path) -> None:
    with pytest.raises(SettingsError) as raised:
        loaded(tmp_path, "kind: Other\nunit_mib: 0\nnew: 1\n")
    places = [
        line.removeprefix(f"{tmp_path}/extender.yaml:").split(": ")[:2] for line in str(raised.value).splitlines()
    ]
    assert places == [["1", "apiVersion"], ["1", "kind"], ["2", "unit_mib"], ["3", "new"]]


@pytest.mark.parametrize("text", ["", "[]", "text", "# nothing\n"])
def test_a_file_that_is_no_mapping_is_refused_with_its_first_lines(tmp_path: Path, text: str) -> None:
    with pytest.raises(SettingsError, match=r"not a mapping; begin with apiVersion: vrampack\.dev/v1"):
        loaded(tmp_path, text)


def test_a_file_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(SettingsError, match=f"{tmp_path}/none.yaml: No such file or directory"):
        load_settings(tmp_path / "none.yaml")
    with pytest.raises(SettingsError, match=f"{tmp_path}: Is a directory"):
        load_settings(tmp_path)


def test_no_file_and_a_minimal_file_give_the_defaults(tmp_path: Path) -> None:
    assert loaded(tmp_path, HEAD) == load_settings(None)
    assert load_settings(None).listen.verbs == "127.0.0.1:12345"


def test_a_full_file_is_read(tmp_path: Path) -> None:
    text = """
unit_mib: 256
reserve_mib: 450
listen: {verbs: '0.0.0.0:12345', health: '', url_prefix: /x}
tls: {cert_file: a, key_file: b, client_ca_file: c}
deadlines: {bind_seconds: 2, drain_seconds: 0}
policy: {default: spread, allowed: [binpack]}
decide: prioritize
"""
    settings = loaded(tmp_path, HEAD + text)
    assert (settings.unit_mib, settings.reserve_mib, settings.deadlines.bind_seconds) == (256, 450, 2.0)
    assert (settings.tls.key_file, settings.listen.health) == (Path("b"), "")
    assert (settings.policy.default, settings.policy.allowed) == ("spread", ("binpack",))


def test_decide_applies_to_all_schedulers_or_to_named_ones(tmp_path: Path) -> None:
    for text, want in {
        "": ("prioritize", "prioritize"),
        "decide: filter": ("filter", "filter"),
        "decide: {default: auto}": ("auto", "auto"),
        "decide: {schedulers: {batch: filter}}": ("filter", "prioritize"),
    }.items():
        decide = loaded(tmp_path, HEAD + text).decide
        assert (decide.get_deciding_verb("batch"), decide.get_deciding_verb("other")) == want
        assert decide.can_decide_in_filter == (text != "")


def test_flags_win_over_the_file(tmp_path: Path) -> None:
    settings = loaded(tmp_path, HEAD + "listen: {verbs: '127.0.0.1:1', url_prefix: /x}", verbs="127.0.0.1:2")
    assert (settings.listen.verbs, settings.listen.url_prefix) == ("127.0.0.1:2", "/x")


def test_a_bad_flag_is_reported_as_command_line() -> None:
    with pytest.raises(SettingsError, match=r"command line: listen\.verbs: 'x' is not HOST:PORT"):
        load_settings(None, {"listen.verbs": "x"})


def test_a_flag_cannot_set_a_non_loopback_address_without_tls() -> None:
    with pytest.raises(SettingsError, match="is not loopback and tls is not set"):
        load_settings(None, {"listen.verbs": "0.0.0.0:12345"})


ADDRESSES = {
    "127.0.0.1:12345": (("127.0.0.1", 12345), True),
    "127.9.9.9:1": (("127.9.9.9", 1), True),
    "localhost:80": (("localhost", 80), True),
    "[::1]:12345": (("::1", 12345), True),
    "0.0.0.0:0": (("0.0.0.0", 0), False),
    "[::]:65535": (("::", 65535), False),
    "10.0.0.1:1": (("10.0.0.1", 1), False),
}


@pytest.mark.parametrize(("text", "want", "loopback"), [(text, *want) for text, want in ADDRESSES.items()])
def test_addresses_are_parsed(text: str, want: tuple[str, int], loopback: bool) -> None:  # noqa: FBT001 - a table
    assert (parse_address(text), is_loopback(text)) == (want, loopback)


def test_every_field_is_documented_and_nothing_else() -> None:
    fields_table = DOCUMENTATION.read_text(encoding="utf-8").partition("Which verb decides:")[0]
    assert_fields_documented(ExtenderConfiguration, fields_table)


def test_documented_defaults_are_the_defaults() -> None:
    document = load_settings(None).model_dump()
    fields_table = DOCUMENTATION.read_text(encoding="utf-8").partition("Which verb decides:")[0]
    rows = re.findall(r"^\| `([a-z_.]+)` \| `([^`]+)` \|", fields_table, re.MULTILINE)
    assert len(rows) > 10
    for path, text in rows:
        assert str(read_value(document, path)).lower().removesuffix(".0") == text, path
