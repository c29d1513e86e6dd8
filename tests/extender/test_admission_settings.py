"""The webhook's own configuration: it has a certificate or does not start, and every field is documented."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from extender.admission_settings import AdmissionWebhookConfiguration, load_admission_settings
from tests.support.settings_documents import assert_fault, assert_fields_documented, read_value
from vrampack.config.errors import SettingsError

HEAD = "apiVersion: vrampack.dev/v1\nkind: AdmissionWebhookConfiguration\n"
TLS = "tls: {cert_file: a, key_file: b}\n"
DOCUMENTATION = Path(__file__).parents[2] / "docs" / "configuration.md"


def loaded(tmp_path: Path, text: str) -> AdmissionWebhookConfiguration:
    path = tmp_path / "admission.yaml"
    path.write_text(HEAD + text)
    return load_admission_settings(path)


@pytest.mark.parametrize(
    ("text", "fault"),
    [
        ("", "tls: an API server calls webhooks by TLS only; give tls.cert_file and tls.key_file"),
        ("tls: {cert_file: /a}", "give tls.cert_file and tls.key_file"),
        (TLS + "scheduler_name: 'a b'", "scheduler_name: found the text 'a b'; allowed: a text such as vrampack"),
        (TLS + "listen: {admission: 'x'}", "listen.admission: 'x' is not HOST:PORT"),
        (TLS + "listen: {verbs: '127.0.0.1:1'}", "listen.verbs: no such field"),
    ],
)
def test_a_fault_names_file_and_path(tmp_path: Path, text: str, fault: str) -> None:
    with pytest.raises(SettingsError) as raised:
        loaded(tmp_path, text)
    assert_fault(raised, tmp_path / "admission.yaml", fault)


def _fields_table() -> str:
    return DOCUMENTATION.read_text().partition("\n## The admission webhook\n")[2].partition("\n## ")[0]


def test_every_field_is_documented_and_nothing_else() -> None:
    assert_fields_documented(AdmissionWebhookConfiguration, _fields_table())


def test_documented_defaults_are_the_defaults(tmp_path: Path) -> None:
    document = loaded(tmp_path, TLS).model_dump()
    rows = re.findall(r"^\| `([a-z_.]+)` \| `([^`]+)` \|", _fields_table(), re.MULTILINE)
    assert len(rows) > 3
    for path, text in rows:
        assert str(read_value(document, path)).removesuffix(".0") == text, path
