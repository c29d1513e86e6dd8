"""The API server for an agent, which reads pods and nodes as its own node if that is allowed.

From Kubernetes 1.36 on, an account whose token is bound to a pod may be allowed to read as the node of that pod
(`impersonate:associated-node`, KEP-5284). The API server's Node authorizer then shows it only that node's pods and that
Node. If that is not available, the account itself needs the right to read all of them.

Only reads do this. The agent writes as its own account, because admission policies check that account.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from http import HTTPStatus
from typing import Literal

import msgspec

from vrampack.kube.api_caller import CallObserver
from vrampack.kube.api_request import ApiRequest, build_path
from vrampack.kube.client import Api
from vrampack.kube.credentials import Credentials
from vrampack.kube.http_connection import StreamedReply
from vrampack.kube.list_page import ListPage, decode_page

log = logging.getLogger(__name__)

ReadAs = Literal["auto", "node", "account"]
READER_HEADER = "Impersonate-User"
CORE_PATH = "/api/v1/"
"""Paths of pods and nodes; the account itself reads Leases."""
_POD_PAGE = msgspec.json.Decoder(ListPage[msgspec.Raw])


class ReadIdentity:
    """The identity with which an agent reads. With `auto` it changes to the other one when the API server answers 403."""

    def __init__(self, node: str, read_as: ReadAs, *, on_change: Callable[[str], None]) -> None:
        """`on_change` is called with the new identity: `node` or `account`."""
        self.node = node
        self.is_node = read_as != "account"
        self._may_change = read_as == "auto"
        self._on_change = on_change
        on_change(_NAMES[self.is_node])

    def turn_after_refusal(self, *, was_node: bool) -> bool:
        """A read was answered 403. Returns whether to send it again with the other identity."""
        if self._may_change and self.is_node == was_node:
            self.is_node = not was_node
            log.warning("reads refused refused_as=%s trying_as=%s", _NAMES[was_node], _NAMES[self.is_node])
            self._on_change(_NAMES[self.is_node])
        return self._may_change


class NodeApi(Api):
    """`Api` with a `ReadIdentity`."""

    def __init__(
        self, credentials: Credentials, reads: ReadIdentity, *, observe: CallObserver, user_agent: str
    ) -> None:
        super().__init__(credentials, observe=observe, user_agent=user_agent)
        self._reads = reads

    async def get_pod_bytes(self, namespace: str, name: str, *, timeout_seconds: float) -> bytes | None:
        """Like `Api.get_pod_bytes`, but only for pods of this node if it reads as the node.

        A node may not get by name a pod that is gone, or that its authorizer has not seen yet; a list by selector works.
        """
        if not self._reads.is_node:
            return await super().get_pod_bytes(namespace, name, timeout_seconds=timeout_seconds)
        path = build_path("pods", namespace)
        query = {"fieldSelector": f"metadata.name={name},spec.nodeName={self._reads.node}"}
        body = await self._call("GET", path, "pods", query=query, seconds=timeout_seconds)
        items = decode_page(body, _POD_PAGE, "pods").items
        return bytes(items[0]) if items else None

    async def _send(self, request: ApiRequest) -> StreamedReply:
        was_node = self._reads.is_node
        reply = await super()._send(request)
        is_refused_read = reply.status == HTTPStatus.FORBIDDEN and _is_read(request)
        if is_refused_read and self._reads.turn_after_refusal(was_node=was_node):
            reply.close()
            reply = await super()._send(request)
        return reply

    def _build_headers(self, request: ApiRequest) -> dict[str, str]:
        is_as_node = self._reads.is_node and _is_read(request)
        return {READER_HEADER: f"system:node:{self._reads.node}"} if is_as_node else {}


def _is_read(request: ApiRequest) -> bool:
    return request.method == "GET" and request.path.startswith(CORE_PATH)


_NAMES = {True: "node", False: "account"}
