"""The API server calls of `vrampack certificates`: one Secret, and the CA bundle in one webhook configuration."""

from __future__ import annotations

import base64
from collections.abc import Mapping
from urllib.parse import quote

from vrampack.kube.answers import decode_answer
from vrampack.kube.api_request import STRATEGIC_MERGE_PATCH, build_path
from vrampack.kube.client import Api
from vrampack.kube.objects import SecretObject

TLS_SECRET = "kubernetes.io/tls"  # noqa: S105 - a type of Secret


class CertificateApi(Api):
    """`Api`, with the three calls that read, renew and trust a certificate."""

    async def get_secret(self, namespace: str, name: str, *, timeout_seconds: float) -> SecretObject | None:
        """One Secret; None when there is none."""
        body = await self._get_object(
            build_path("secrets", namespace, name), "secrets", "Secret", name, timeout_seconds
        )
        return None if body is None else decode_answer(body, SecretObject, f"get secret {namespace}/{name}")

    async def write_secret(
        self, namespace: str, name: str, data: Mapping[str, bytes], *, version: str, timeout_seconds: float
    ) -> None:
        """Replace the Secret of this resourceVersion, or create it if `version` is empty. 409: it was changed or created meanwhile."""
        metadata = {"name": name, "namespace": namespace} | ({"resourceVersion": version} if version else {})
        encoded = {key: base64.b64encode(value).decode() for key, value in data.items()}
        body = {"apiVersion": "v1", "kind": "Secret", "type": TLS_SECRET, "metadata": metadata, "data": encoded}
        path = build_path("secrets", namespace, name if version else "")
        method = "PUT" if version else "POST"
        await self._call(method, path, "secrets", wanted=("Secret", name), body=body, seconds=timeout_seconds)

    async def patch_webhook_ca_bundle(
        self, configuration: str, webhook: str, bundle: bytes, *, timeout_seconds: float
    ) -> None:
        """Tell the API server which authorities (PEM) sign the server of one mutating webhook."""
        trusted = {"name": webhook, "clientConfig": {"caBundle": base64.b64encode(bundle).decode()}}
        resource = "mutatingwebhookconfigurations"
        path = f"/apis/admissionregistration.k8s.io/v1/{resource}/{quote(configuration, safe='')}"
        body = {"webhooks": [trusted]}
        wanted = ("MutatingWebhookConfiguration", configuration)
        await self._call(
            "PATCH", path, resource, wanted=wanted, body=body, seconds=timeout_seconds, patch=STRATEGIC_MERGE_PATCH
        )
