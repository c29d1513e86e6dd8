"""A real control plane under load: many nodes and pods made at once, and the moments at which pods are bound.

The control plane, the programs and their rights are those of the end-to-end tests; `live_programs.py` starts the others.
"""

from __future__ import annotations

import http.client
import json
import socket
import threading
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager, suppress
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Self

from tests.e2e import nodes
from tests.e2e.cluster import Cluster
from tests.e2e.objects import PODS, a_card, cards

CARDS, UNITS = 8, 16
CONNECTIONS = 4
"""Over so many at once nodes and pods are made; more do not make it faster on two cores."""
CALL_SECONDS = 30
AT_ONCE = {"gracePeriodSeconds": 0}

Call = tuple[str, str, object]
"""Method, path, body."""


@contextmanager
def running() -> Iterator[Cluster]:
    """A control plane with the recommended install, its pods left out; nothing of it is left afterwards."""
    with TemporaryDirectory(prefix="vrampack-bench-") as folder, Cluster.start(Path(folder) / "cluster") as cluster:
        cluster.install_manifests()
        yield cluster


def pids(cluster: Cluster) -> dict[str, int]:
    """The control plane's processes, by name."""
    return {process.name: process.pid for process in cluster.processes}


def add_nodes(cluster: Cluster, count: int) -> None:
    """GPU nodes of 8 cards of 16 units, with CPU and memory for whatever the benchmarks put there."""
    send(cluster, [("POST", "/api/v1/nodes", _a_node(f"gpu-{number:04}")) for number in range(count)])


def delete_pods(cluster: Cluster, *, label: str = "") -> None:
    """Those with this label, or all, are gone afterwards."""
    chosen = f"{PODS}?labelSelector={label}"
    cluster.must("DELETE", chosen, AT_ONCE)
    cluster.wait(lambda: not cluster.must("GET", f"{chosen}&limit=1")["items"], 60, what="no pod is left")


def send(cluster: Cluster, calls: Sequence[Call]) -> None:
    """All of these calls, several at a time; each must succeed."""
    shares = [calls[first::CONNECTIONS] for first in range(CONNECTIONS)]
    with ThreadPoolExecutor(CONNECTIONS) as pool:
        for _ in pool.map(partial(_send_in_turn, cluster), shares):
            pass


class Caller:
    """One connection to the API server as administrator, kept open: a call costs what the server takes."""

    def __init__(self, cluster: Cluster) -> None:
        self._connection = http.client.HTTPSConnection(
            cluster.api_host, cluster.api_port, timeout=CALL_SECONDS, context=cluster.tls
        )
        self._headers = {"Authorization": f"Bearer {cluster.admin_token}", "Content-Type": "application/json"}

    def call(self, method: str, path: str, body: object = None) -> bytes:
        self._connection.request(method, path, json.dumps(body), self._headers)
        answer = self._connection.getresponse()
        said = answer.read()
        if answer.status >= http.client.BAD_REQUEST:
            raise RuntimeError(f"{method} {path}: {answer.status} {said.decode()}")
        return said

    def stream(self, path: str) -> http.client.HTTPResponse:
        """An answer that goes on until it is silent for 30 s, or `hang_up` ends it."""
        self._connection.request("GET", path, headers=self._headers)
        return self._connection.getresponse()

    def hang_up(self) -> None:
        """From any thread: whoever reads sees the end."""
        if self._connection.sock is not None:
            with suppress(OSError):  # closed meanwhile
                self._connection.sock.shutdown(socket.SHUT_RDWR)

    def close(self) -> None:
        self._connection.close()


class BoundWatch:
    """A context manager that sees pods being bound: when, by the clock of this process, as `time.monotonic` shows it.

    It selects pods with a node, so a pod is added in its eyes when it is bound. Only the line and its time are kept
    while pods come: reading them would take time from the programs that are measured.
    """

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._lines: list[tuple[float, bytes]] = []
        self._is_over = False
        self._caller = Caller(cluster)
        self._version = json.loads(self._caller.call("GET", f"{PODS}?limit=1"))["metadata"]["resourceVersion"]
        self._reader = threading.Thread(target=self._read, daemon=True)

    @property
    def count(self) -> int:
        """How many pods were bound so far."""
        if not self._reader.is_alive():
            raise RuntimeError("the watch of bound pods has ended")
        return len(self._lines)

    def times(self) -> dict[str, float]:
        """By name."""
        return {json.loads(line)["object"]["metadata"]["name"]: when for when, line in self._lines}

    def __enter__(self) -> Self:
        self._reader.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._is_over = True
        while self._reader.is_alive():  # more than once: it may have been between two connections
            self._caller.hang_up()
            self._reader.join(timeout=0.1)

    def _read(self) -> None:
        """Until it is over: a quiet watch ends, and so does one whose reader is late, as it is when all cores are busy."""
        while not self._is_over:
            with closing(self._caller):
                self._read_once()
            self._caller = Caller(self._cluster)

    def _read_once(self) -> None:
        path = f"{PODS}?watch=true&fieldSelector=spec.nodeName%21%3D&resourceVersion={self._version}"
        last = b""
        with suppress(OSError, http.client.HTTPException):  # hung up
            for line in self._caller.stream(path):
                last = line if line.endswith(b"\n") else last
                if line.startswith(b'{"type":"ADDED"'):
                    self._lines.append((time.monotonic(), line))
        if last:
            self._version = json.loads(last)["object"]["metadata"]["resourceVersion"]


def _send_in_turn(cluster: Cluster, calls: Sequence[Call]) -> None:
    with closing(Caller(cluster)) as caller:
        for call in calls:
            caller.call(*call)


def _a_node(name: str) -> dict[str, Any]:
    its = (a_card(index, units=UNITS, memory_mib=UNITS * 1024, uuid=f"{name}-{index}") for index in range(CARDS))
    return nodes.made_up(name, cards=cards(*its), allocatable={}, annotations={}, labels={})
