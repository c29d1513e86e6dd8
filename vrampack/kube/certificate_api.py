"""The API server calls of `vrampack certificates`: one Secret, and the CA bundle in one webhook configuration."""

from __future__ import annotations

import base64
from collections.abc import Mapping
from urllib.parse import quote

import msgspec

from vrampack.kube.client import STRATEGIC_MERGE_PATCH, Api
from vrampack.kube.errors import NoAnswerError
from vrampack.kube.objects import UNDECODABLE, SecretObject

TLS_SECRET = "kubernetes.io/tls"  # noqa: S105 - a type of Secret


class CertificateApi(Api):
    """`Api`, with the three calls that read, renew and trust a certificate."""

    async def get_secret(self, namespace: str, name: str, *, timeout_seconds: float) -> SecretObject | None:
        """One Secret; None when there is none."""
        path = _secrets_path(namespace) + f"/{quote(name, safe='')}"
        body = await self._get_object(path, "secrets", "Secret", name, timeout_seconds)
        if body is None:
            return None
        try:
            return msgspec.json.decode(body, type=SecretObject)
        except UNDECODABLE as error:
            raise NoAnswerError(f"get secret {namespace}/{name}: {error}") from error

    async def write_secret(
        self, namespace: str, name: str, data: Mapping[str, bytes], *, version: str, timeout_seconds: float
    ) -> None:
        """Replace the Secret of this resourceVersion, or create it if `version` is empty. 409: it was changed or created meanwhile."""
        metadata = {"name": name, "namespace": namespace} | ({"resourceVersion": version} if version else {})
        encoded = {key: base64.b64encode(value).decode() for key, value in data.items()}
        body = {"apiVersion": "v1", "kind": "Secret", "type": TLS_SECRET, "metadata": metadata, "data": encoded}
        path = _secrets_path(namespace) + (f"/{quote(name, safe='')}" if version else "")
        method, verb = ("PUT", "update") if version else ("POST", "create")
        wanted = ("Secret", name)
        await self._call(method, path, verb=verb, resource="secrets", wanted=wanted, body=body, seconds=timeout_seconds)

    async def patch_webhook_ca_bundle(
        self, configuration: str, webhook: str, bundle: bytes, *, timeout_seconds: float
    ) -> None:
        """Tell the API server which authorities (PEM) sign the server of one mutating webhook."""
        trusted = {"name": webhook, "clientConfig": {"caBundle": base64.b64encode(bundle).decode()}}
        resource = "mutatingwebhookconfigurations"
        path = f"/apis/admissionregistration.k8s.io/v1/{resource}/{quote(configuration, safe='')}"
        body = {"webhooks": [trusted]}
        await self._call(
            "PATCH",
            path,
            verb="patch",
            resource=resource,
            wanted=("MutatingWebhookConfiguration", configuration),
            body=body,
            seconds=timeout_seconds,
            patch=STRATEGIC_MERGE_PATCH,
        )


def _secrets_path(namespace: str) -> str:
    return f"/api/v1/namespaces/{quote(namespace, safe='')}/secrets"
