"""Lists and watches of an API server over the standard library's HTTP client: raw JSON out, nothing else."""

import json
import ssl
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass
from http.client import HTTPConnection, HTTPResponse, HTTPSConnection
from urllib.parse import quote, urlsplit

from tests.auditor.raw import Raw, listing, mapping, metadata, text

PAGE = 500  # the size at which Kubernetes' own clients page
TIMEOUT_SECONDS = 30.0  # a list page that takes longer is an answer too: the server is not there
WATCH_SECONDS = 20  # shorter than the timeout, so that a quiet watch ends by itself


class ApiError(Exception):
    """The API server refused or answered something that is not a list."""

    def __init__(self, path: str, status: int, body: str) -> None:
        self.status = status
        super().__init__(f"GET {path}: status {status}: {body[:200]}")


@dataclass(frozen=True, slots=True)
class AuditorApi:
    """Where the API server is and who asks."""

    url: str
    tls: ssl.SSLContext | None = None
    token: str = ""

    def list(self, kind: str) -> tuple[list[Raw], str]:
        """All objects of a kind (`pods`, `nodes`) in all namespaces, and the version of the list."""
        found: list[Raw] = []
        token = ""
        while True:
            page = self._get(f"/api/v1/{kind}?limit={PAGE}" + (f"&continue={quote(token)}" if token else ""))
            found += [mapping(item) for item in listing(page.get("items"))]
            token = text(metadata(page).get("continue"))
            if not token:
                return found, text(metadata(page).get("resourceVersion"))

    def watch(self, kind: str, version: str) -> Iterator[Raw]:
        """Events after a version, until the server ends the stream."""
        path = f"/api/v1/{kind}?watch=true&resourceVersion={quote(version)}&timeoutSeconds={WATCH_SECONDS}"
        with closing(self._connect()) as connection:
            for line in self._ask(connection, path):
                if line.strip():
                    yield mapping(json.loads(line))

    def _get(self, path: str) -> Raw:
        with closing(self._connect()) as connection:
            return mapping(json.loads(self._ask(connection, path).read()))

    def _ask(self, connection: HTTPConnection, path: str) -> HTTPResponse:
        headers = {"Authorization": f"Bearer {self.token}"} if self.token else {}
        connection.request("GET", path, headers=headers | {"Accept": "application/json"})
        response = connection.getresponse()
        if response.status != 200:
            raise ApiError(path, response.status, response.read().decode(errors="replace"))
        return response

    def _connect(self) -> HTTPConnection:
        at = urlsplit(self.url)
        if at.scheme == "https":
            return HTTPSConnection(at.hostname or "", at.port, timeout=TIMEOUT_SECONDS, context=self.tls)
        return HTTPConnection(at.hostname or "", at.port, timeout=TIMEOUT_SECONDS)
