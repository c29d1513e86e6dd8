"""`vrampack admission`: the real process, which needs no cluster and serves only the clients it was told to."""

from __future__ import annotations

import json
import ssl
from pathlib import Path

import pytest

from tests.support.admission.pods import admission_pod
from tests.support.admission_process import AdmissionProcess, run_admission_process
from tests.support.certificates import CertificateAuthority
from tests.support.verb_listener import build_request, open_connection, read_reply
from vrampack.cli.main import main

REVIEW = {
    "apiVersion": "admission.k8s.io/v1",
    "kind": "AdmissionReview",
    "request": {"uid": "u-1", "operation": "CREATE", "object": admission_pod()},
}
CALL = build_request("/mutate", json.dumps(REVIEW).encode())


def _read_page(webhook: AdmissionProcess, path: str) -> tuple[int, str]:
    with open_connection(webhook.health) as client:
        client.sendall(build_request(path, b"", method="GET"))
        status, body = read_reply(client)
    return status, body.decode()


def test_the_webhook_answers_reports_and_exits_0(tmp_path: Path) -> None:
    with run_admission_process(tmp_path) as webhook:
        with webhook.connect() as client:
            client.sendall(CALL)
            status, body = read_reply(client)
        assert (status, json.loads(body)["response"]["patchType"]) == (200, "JSONPatch")
        assert [_read_page(webhook, path)[0] for path in ("/healthz", "/readyz", "/version", "/mutate")] == [
            200,
            200,
            200,
            404,
        ]
        page = _read_page(webhook, "/metrics")[1]
        assert 'vrampack_admission_request_duration_seconds_count{result="changed"} 1.0' in page
        assert 'vrampack_certificate_expiry_seconds{listener="admission"} ' in page
        assert webhook.process.stop() == 0


def test_only_the_api_server_is_admitted_when_a_client_authority_is_set(tmp_path: Path) -> None:
    api_servers = CertificateAuthority(tmp_path / "api-servers")
    with run_admission_process(tmp_path, client_ca_file=api_servers.ca_file) as webhook:
        served = []
        for signer in (None, webhook.authority, api_servers):
            context = ssl.create_default_context(cafile=str(webhook.authority.ca_file))
            if signer is not None:
                pair = signer.issue_pair("api-server")
                context.load_cert_chain(pair.certificate, pair.key)
            served.append(_is_answered(webhook, context))
        assert served == [False, False, True]
        assert _read_page(webhook, "/readyz")[0] == 200, "probes show none"


def _is_answered(webhook: AdmissionProcess, context: ssl.SSLContext) -> bool:
    try:
        with webhook.connect(context) as client:
            client.sendall(CALL)
            return read_reply(client)[0] == 200
    except (ssl.SSLError, ConnectionError):
        return False


def test_the_webhook_does_not_start_without_a_usable_certificate(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    config = tmp_path / "admission.yaml"
    head = "apiVersion: vrampack.dev/v1\nkind: AdmissionWebhookConfiguration\n"
    for text, code, said in (
        ("", 2, "give tls.cert_file and tls.key_file"),
        (
            "tls: {cert_file: /nowhere/c, key_file: /nowhere/k}\n",
            2,
            "tls.cert_file /nowhere/c, tls.key_file /nowhere/k",
        ),
    ):
        config.write_text(head + text)
        assert main(["admission", "--config", str(config)]) == code
        assert said in capsys.readouterr().err
