"""Reads objects of the API server as `kubectl get` does, without a program for each: tests look again every 50 ms.

A kubectl takes a tenth of a second of a core: polling with it would slow down the node that is waited for.
"""

from __future__ import annotations

import json
import ssl
from collections.abc import Sequence
from http import HTTPStatus
from http.client import HTTPException, HTTPSConnection
from typing import Any, TypeAlias
from urllib.parse import quote, urlencode

from tests.node.controlplane import SERVICE_ADDRESS, NodeControlPlane

Json: TypeAlias = Any
"""Whatever the API server answered: tests read single fields of many kinds of objects, each asserted where it is read."""

CORE, APPS = "/api/v1", "/apis/apps/v1"
KINDS = {
    "nodes": (CORE, False),
    "pods": (CORE, True),
    "events": (CORE, True),
    "secrets": (CORE, True),
    "serviceaccounts": (CORE, True),
    "daemonsets": (APPS, True),
    "deployments": (APPS, True),
}
"""By their name in addresses: where they are, and whether they are in namespaces."""
OPTIONS = {"-l": "labelSelector", "--field-selector": "fieldSelector"}
TIMEOUT_SECONDS = 30


class ApiReader:
    """As cluster administrator, on one connection."""

    def __init__(self, cluster: NodeControlPlane) -> None:
        pair = cluster.authority.issue_pair("reader", organization="system:masters")
        context = ssl.create_default_context(cafile=str(cluster.authority.ca_file))
        context.load_cert_chain(pair.certificate, pair.key)
        self._connection = HTTPSConnection(SERVICE_ADDRESS, context=context, timeout=TIMEOUT_SECONDS)

    def close(self) -> None:
        self._connection.close()

    def can_read(self, kind: str) -> bool:
        """Whether it knows where these are."""
        return _get_plural(kind) in KINDS

    def read_objects(self, kind: str, arguments: Sequence[str]) -> Json | None:
        """One object or a list, by arguments of `kubectl get`; None when it is not there."""
        address = _build_address(_get_plural(kind), arguments)
        try:
            status, body = self._ask(address)
        except (HTTPException, OSError):  # a connection that was idle for long, or whose server is another now
            self._connection.close()
            status, body = self._ask(address)
        if status == HTTPStatus.NOT_FOUND:
            return None
        if status != HTTPStatus.OK:
            raise RuntimeError(f"{address}: {status} {body.decode()}")
        return json.loads(body)

    def _ask(self, address: str) -> tuple[int, bytes]:
        self._connection.request("GET", address)
        answer = self._connection.getresponse()
        return answer.status, answer.read()


def _get_plural(kind: str) -> str:
    return kind if kind.endswith("s") else f"{kind}s"


def _build_address(plural: str, arguments: Sequence[str]) -> str:
    root, has_namespace = KINDS[plural]
    names, query, namespace, rest = [], {}, "default", list(arguments)
    while rest:
        argument = rest.pop(0)
        if argument == "-n":
            namespace = rest.pop(0)
        elif argument in OPTIONS:
            query[OPTIONS[argument]] = rest.pop(0)
        else:
            names.append(argument)
    parts = [root, *(["namespaces", namespace] if has_namespace else []), plural, *map(quote, names)]
    return f"{'/'.join(parts)}?{urlencode(query)}"
