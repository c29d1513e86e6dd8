"""The calls of `vrampack certificates`: one Secret, and the authorities of one webhook."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from tests.fakes.faults import api_status
from tests.fakes.upstream import FakeUpstream, http_reply
from tests.support.recorded_api_calls import RecordedApiCalls
from vrampack.kube.aio_client import Configuration
from vrampack.kube.certificate_api import CertificateApi
from vrampack.kube.credentials import Credentials
from vrampack.kube.errors import NoAnswerError, RefusedError

SOON = 5.0
SECRETS = "/api/v1/namespaces/system/secrets"


@asynccontextmanager
async def open_api(url: str, calls: RecordedApiCalls | None = None) -> AsyncIterator[CertificateApi]:
    api = CertificateApi(Credentials(Configuration(host=url)), observe=calls or RecordedApiCalls())
    try:
        yield api
    finally:
        await api.close()


def sent(upstream: FakeUpstream) -> tuple[str, bytes, Any]:
    """First line, head and body of the one request."""
    (whole,) = upstream.requests
    head, _, body = whole.partition(b"\r\n\r\n")
    return head.split(b"\r\n")[0].decode(), head.lower(), json.loads(body or b"null")


async def test_a_secret_is_read_and_its_data_decoded() -> None:
    reply = http_reply(b'{"kind":"Secret","metadata":{"name":"a","resourceVersion":"7"},"data":{"tls.crt":"UEVN"}}')
    async with FakeUpstream(replies=[reply]) as upstream, open_api(f"http://127.0.0.1:{upstream.port}") as api:
        found = await api.get_secret("system", "a", timeout_seconds=SOON)
        assert found is not None
        assert (found.metadata.resource_version, found.data) == ("7", {"tls.crt": b"PEM"})
        assert sent(upstream)[0] == f"GET {SECRETS}/a HTTP/1.1"


async def test_a_missing_secret_is_none_and_any_other_failure_is_an_error() -> None:
    missing = api_status(404) | {"details": {"kind": "secrets", "name": "a"}}
    broken = {"kind": "Secret", "metadata": {"name": "a"}, "data": {"a": "?"}}
    replies = [
        http_reply(json.dumps(body).encode(), status)
        for body, status in ((missing, 404), (api_status(403), 403), (broken, 200))
    ]
    async with FakeUpstream(replies=replies) as upstream, open_api(f"http://127.0.0.1:{upstream.port}") as api:
        assert await api.get_secret("system", "a", timeout_seconds=SOON) is None
        with pytest.raises(RefusedError):
            await api.get_secret("system", "a", timeout_seconds=SOON)
        with pytest.raises(NoAnswerError, match="get secret system/a"):
            await api.get_secret("system", "a", timeout_seconds=SOON)


@pytest.mark.parametrize(
    ("version", "line", "verb"),
    [("", f"POST {SECRETS} HTTP/1.1", "create"), ("7", f"PUT {SECRETS}/a HTTP/1.1", "update")],
)
async def test_a_secret_is_created_or_replaced_at_the_version_that_was_read(version: str, line: str, verb: str) -> None:
    calls = RecordedApiCalls()
    reply = http_reply(b'{"kind":"Secret","metadata":{"name":"a"}}')
    async with FakeUpstream(replies=[reply]) as upstream, open_api(f"http://127.0.0.1:{upstream.port}", calls) as api:
        await api.write_secret("system", "a", {"tls.crt": b"PEM"}, version=version, timeout_seconds=SOON)
        first, _, body = sent(upstream)
    assert first == line
    assert (body["type"], body["data"]) == ("kubernetes.io/tls", {"tls.crt": "UEVN"})
    assert body["metadata"].get("resourceVersion", "") == version
    assert calls.made == [(verb, "secrets", 200)]


async def test_only_the_ca_bundles_of_one_webhook_configuration_are_written() -> None:
    """Merged by name: a plain merge would replace the list and lose the rest of the webhook."""
    reply = http_reply(b'{"kind":"MutatingWebhookConfiguration","metadata":{"name":"configuration"}}')
    async with FakeUpstream(replies=[reply]) as upstream, open_api(f"http://127.0.0.1:{upstream.port}") as api:
        await api.patch_webhook_ca_bundle("configuration", "webhook", b"PEM", timeout_seconds=SOON)
        first, head, body = sent(upstream)
    group = "/apis/admissionregistration.k8s.io/v1"
    assert first == f"PATCH {group}/mutatingwebhookconfigurations/configuration HTTP/1.1"
    assert b"content-type: application/strategic-merge-patch+json" in head
    assert body == {"webhooks": [{"name": "webhook", "clientConfig": {"caBundle": "UEVN"}}]}
