"""A real control plane under load: creates many nodes and pods at once, and records when pods are bound.

The control plane, the programs and their rights are those of the end-to-end tests; `live_programs.py` starts the others.
"""

from __future__ import annotations

import http.client
import json
import socket
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager, suppress
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Self

from tests.support import node_manifests
from tests.support.control_plane.cluster import ControlPlane
from tests.support.manifest_builders import PODS, cards_annotation, published_card

CARDS_PER_NODE, UNITS_PER_CARD = 8, 16
CONNECTIONS = 4
"""How many connections create nodes and pods; more are not faster on two cores."""
CALL_SECONDS = 30
IMMEDIATE_DELETION = {"gracePeriodSeconds": 0}

ApiCall = tuple[str, str, object]
"""Method, path, body."""


@contextmanager
def run_control_plane() -> Iterator[ControlPlane]:
    """Run a control plane with the recommended install, but without its pods; it leaves nothing behind."""
    with (
        TemporaryDirectory(prefix="vrampack-bench-") as folder,
        ControlPlane.start(Path(folder) / "cluster") as cluster,
    ):
        cluster.install_manifests()
        yield cluster


def collect_pids(cluster: ControlPlane) -> dict[str, int]:
    """The control plane's processes, by name."""
    return {process.name: process.pid for process in cluster.processes}


def add_nodes(cluster: ControlPlane, count: int) -> None:
    """Add GPU nodes with 8 cards of 16 units, and enough CPU and memory for everything the benchmarks put there."""
    send_calls(cluster, [("POST", "/api/v1/nodes", _build_node(f"gpu-{number:04}")) for number in range(count)])


def delete_pods(cluster: ControlPlane, *, label: str = "") -> None:
    """Delete the pods with this label, or all, and wait until they are gone."""
    chosen = f"{PODS}?labelSelector={label}"
    cluster.request_ok("DELETE", chosen, IMMEDIATE_DELETION)
    cluster.wait_until(lambda: not cluster.request_ok("GET", f"{chosen}&limit=1")["items"], 60, what="no pod is left")


def send_calls(
    cluster: ControlPlane, calls: Sequence[ApiCall], *, wait_turn: Callable[[int], object] | None = None
) -> None:
    """Make these calls, several at a time; each must succeed. Before each, `wait_turn` waits until the call of that number is due."""
    shares = [range(first, len(calls), CONNECTIONS) for first in range(CONNECTIONS)]

    def send_share(share: Sequence[int]) -> None:
        with closing(ApiServerClient(cluster)) as caller:
            for number in share:
                if wait_turn is not None:
                    wait_turn(number)
                caller.send_request(*calls[number])

    with ThreadPoolExecutor(CONNECTIONS) as pool:
        for _ in pool.map(send_share, shares):
            pass


class ApiServerClient:
    """One open connection to the API server as administrator, so that a call costs only what the server takes."""

    def __init__(self, cluster: ControlPlane, *, content_type: str = "application/json") -> None:
        self._connection = http.client.HTTPSConnection(
            cluster.api_host, cluster.api_port, timeout=CALL_SECONDS, context=cluster.tls
        )
        self._headers = {"Authorization": f"Bearer {cluster.admin_token}", "Content-Type": content_type}

    def send_request(self, method: str, path: str, body: object = None) -> bytes:
        self._connection.request(method, path, json.dumps(body), self._headers)
        answer = self._connection.getresponse()
        said = answer.read()
        if answer.status >= http.client.BAD_REQUEST:
            raise RuntimeError(f"{method} {path}: {answer.status} {said.decode()}")
        return said

    def open_stream(self, path: str) -> http.client.HTTPResponse:
        """A streaming answer, which ends after 30 s of silence, or by `shut_down`."""
        self._connection.request("GET", path, headers=self._headers)
        return self._connection.getresponse()

    def shut_down(self) -> None:
        """End all answers; may be called from any thread."""
        if self._connection.sock is not None:
            with suppress(OSError):  # closed meanwhile
                self._connection.sock.shutdown(socket.SHUT_RDWR)

    def close(self) -> None:
        self._connection.close()


class BoundPodWatch:
    """A context manager that records when pods are bound, by `time.monotonic` of this process.

    It selects pods with a node, so the watch adds a pod when it is bound. While pods come it only stores each line with its
    time, because parsing would take CPU time from the measured programs.
    """

    def __init__(self, cluster: ControlPlane) -> None:
        self._cluster = cluster
        self._lines: list[tuple[float, bytes]] = []
        self._is_stopped = False
        self._caller = ApiServerClient(cluster)
        self._version = json.loads(self._caller.send_request("GET", f"{PODS}?limit=1"))["metadata"]["resourceVersion"]
        self._reader = threading.Thread(target=self._read_lines, daemon=True)

    @property
    def bound_count(self) -> int:
        """How many pods were bound so far."""
        if not self._reader.is_alive():
            raise RuntimeError("the watch of bound pods has ended")
        return len(self._lines)

    def read_bind_times(self) -> dict[str, float]:
        """By name."""
        return {json.loads(line)["object"]["metadata"]["name"]: when for when, line in self._lines}

    def __enter__(self) -> Self:
        self._reader.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._is_stopped = True
        while self._reader.is_alive():  # more than once: it may have been between two connections
            self._caller.shut_down()
            self._reader.join(timeout=0.1)

    def _read_lines(self) -> None:
        """Watch again and again until stopped: a quiet watch ends, and so does one with a late reader, as on busy cores."""
        while not self._is_stopped:
            with closing(self._caller):
                self._read_once()
            self._caller = ApiServerClient(self._cluster)

    def _read_once(self) -> None:
        path = f"{PODS}?watch=true&fieldSelector=spec.nodeName%21%3D&resourceVersion={self._version}"
        last = b""
        with suppress(OSError, http.client.HTTPException):  # hung up
            for line in self._caller.open_stream(path):
                last = line if line.endswith(b"\n") else last
                if line.startswith(b'{"type":"ADDED"'):
                    self._lines.append((time.monotonic(), line))
        if last:
            self._version = json.loads(last)["object"]["metadata"]["resourceVersion"]


def _build_node(name: str) -> dict[str, Any]:
    its = (
        published_card(index, units=UNITS_PER_CARD, memory_mib=UNITS_PER_CARD * 1024, uuid=f"{name}-{index}")
        for index in range(CARDS_PER_NODE)
    )
    return node_manifests.gpu_node_manifest(
        name, cards=cards_annotation(*its), allocatable={}, annotations={}, labels={}
    )
