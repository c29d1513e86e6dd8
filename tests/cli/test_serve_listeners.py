"""The listeners of the real process: a certificate that is renewed while it runs, and probes that no crowd keeps out."""

from __future__ import annotations

import shutil
import ssl
from collections.abc import AsyncIterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from tests.support import recorded_requests
from tests.support.certificates import CertificateAuthority
from tests.support.extender_process import ExtenderProcess, run_extender_process
from tests.support.verb_listener import Address, build_request, open_connection, read_reply
from vrampack.simulator.apiserver import ApiServer

FILTER = build_request(
    "/gpushare-scheduler/filter", recorded_requests.read_recording("filter.ncc-true.scheduler-1.36.3.json")
)
HEALTHZ = build_request("/healthz", b"", method="GET")
CROWD = 512


@pytest.fixture
async def api() -> AsyncIterator[ApiServer]:
    async with ApiServer() as server:
        for node in recorded_requests.recorded_nodes():
            server.restore({"kind": "Node", **node})
        yield server


def _address(url: str) -> Address:
    host, _, port = url.removeprefix("http://").rpartition(":")
    return host, int(port)


def _is_served(address: Address, scheduler: CertificateAuthority, server: CertificateAuthority) -> bool:
    """Whether a client signed by `scheduler` gets an answer from a server signed by `server`."""
    context = ssl.create_default_context(cafile=str(server.ca_file))
    shown = scheduler.issue_pair("scheduler")
    context.load_cert_chain(shown.certificate, shown.key)
    try:
        with context.wrap_socket(open_connection(address), server_hostname="127.0.0.1") as client:
            client.sendall(FILTER)
            return read_reply(client)[0] == 200
    except (ssl.SSLError, ConnectionError):
        return False


async def test_the_verbs_listener_follows_its_certificate_and_its_client_authority(
    api: ApiServer, tmp_path: Path
) -> None:
    """A rotating issuer renews all three files; clients of the old authority are refused from then on, and nothing restarts."""
    first, second = CertificateAuthority(tmp_path / "first"), CertificateAuthority(tmp_path / "second")
    names = {name: tmp_path / f"{name}.pem" for name in ("cert_file", "key_file", "client_ca_file")}
    config = tmp_path / "extender.yaml"
    config.write_text(f"apiVersion: vrampack.dev/v1\nkind: ExtenderConfiguration\ntls: {names_as_yaml(names)}\n")

    def write_files(authority: CertificateAuthority) -> None:
        pair = authority.issue_pair("server")
        content = {"cert_file": pair.certificate, "key_file": pair.key, "client_ca_file": authority.ca_file}
        for field, path in content.items():
            Path(shutil.copy(path, f"{names[field]}.new")).replace(names[field])

    write_files(first)
    async with run_extender_process(tmp_path, api.url, "--config", str(config)) as service:
        await service.wait_for_answer(f"{service.health}/readyz", lambda status, _: status == 200)
        verbs = _address(service.verbs)
        assert _is_served(verbs, first, first)
        write_files(second)
        await service.wait_for_answer(f"{service.health}/healthz", lambda *_: _is_served(verbs, second, second))
        assert not _is_served(verbs, first, second)
        page = (await service.get(f"{service.health}/metrics"))[1]
        assert 'vrampack_certificate_expiry_seconds{listener="verbs"}' in page


def names_as_yaml(names: dict[str, Path]) -> str:
    return "{" + ", ".join(f"{field}: {path}" for field, path in names.items()) + "}"


async def test_many_connections_do_not_block_probes(api: ApiServer, tmp_path: Path) -> None:
    """Silent ones on the listener of the verbs; idle ones, then half requests, on that of the probes."""
    async with run_extender_process(tmp_path, api.url) as service:
        await service.wait_until_ready()
        for listener, beginning in (("verbs", b""), ("health", HEALTHZ), ("health", HEALTHZ[:20])):
            address = _address(getattr(service, listener))
            with ExitStack() as stack:
                for client in [stack.enter_context(open_connection(address)) for _ in range(CROWD)]:
                    client.sendall(beginning)
                probes = [await _probe(service, listener) for _ in range(6)]
            assert (listener, beginning, probes) == (listener, beginning, [200] * 6)


async def _probe(service: ExtenderProcess, listener: str) -> int:
    """As kubelet does, by a connection of its own."""
    with open_connection(_address(getattr(service, listener))) as client:
        client.sendall(HEALTHZ)
        return read_reply(client)[0]
