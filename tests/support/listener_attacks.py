"""What somebody who reaches a listener can do to it without being authorized, for the duration of a block.

    python -m tests.support.listener_attacks ATTACK PORT PATH [CA_FILE]

It runs in a process of its own with low priority, so that what is measured beside it is what the attack costs the other side.
"""

from __future__ import annotations

import json
import socket
import ssl
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import IO, TypeAlias

from tests.support.processes import LOOPBACK, REPOSITORY
from tests.support.verb_listener import build_request, open_connection, read_reply

CROWD = 512
LARGE_CROWD = 64
CONTAINERS = 100_000
LARGE_BYTES = 8 * 1024 * 1024
LESS_URGENT = ("nice", "-n", "10")


@dataclass(frozen=True, slots=True)
class AttackedListener:
    """Where it is, and what is asked there."""

    port: int
    path: str
    ca_file: Path | None = None
    """The authority a client trusts, where the listener has TLS."""

    def build_usual_call(self) -> bytes:
        return build_request(self.path, b"", method="GET")

    def connect(self) -> socket.socket:
        client = open_connection((LOOPBACK, self.port))
        if self.ca_file is None:
            return client
        context = ssl.create_default_context(cafile=str(self.ca_file))
        return context.wrap_socket(client, server_hostname=LOOPBACK)


Attack: TypeAlias = Callable[[AttackedListener], Iterator[None]]
"""A generator: each step performs a part of the attack."""


def keep_idle_connections(target: AttackedListener) -> Iterator[None]:
    """Connections that stay; each has asked something where that needs no handshake."""
    return _keep_crowd(target, b"" if target.ca_file else target.build_usual_call())


def keep_half_sent_requests(target: AttackedListener) -> Iterator[None]:
    """Requests, or handshakes, that do not end."""
    return _keep_crowd(target, b"\x16\x03\x01\x02" if target.ca_file else target.build_usual_call()[:-10])


def keep_half_sent_bodies(target: AttackedListener) -> Iterator[None]:
    """The largest bodies that are read, each without its last byte: half a gigabyte."""
    crowd = [target.connect() for _ in range(LARGE_CROWD)]
    for client in crowd:
        with suppress(ConnectionError, ssl.SSLError):
            client.sendall(build_request(target.path, b" " * LARGE_BYTES)[:-1])
    yield
    sys.stdin.read()


def send_countless_containers(target: AttackedListener) -> Iterator[None]:
    """Pods of 100,000 containers, each asking for a card: reviews of the webhook, arguments of filter elsewhere."""
    container = {"name": "c", "resources": {"limits": {"aliyun.com/gpu-mem": "1"}}}
    pod = {"metadata": {"name": "a", "namespace": "b", "uid": "c"}, "spec": {"containers": [container] * CONTAINERS}}
    request = {"uid": "u", "operation": "CREATE", "object": pod}
    review = {"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "request": request}
    body = review if target.ca_file else {"Pod": pod, "NodeNames": ["a"]}
    return _send_bodies(target, json.dumps(body, separators=(",", ":")).encode())


def send_large_bodies(target: AttackedListener) -> Iterator[None]:
    """Bodies of the largest size that is read, with nothing in them."""
    return _send_bodies(target, b" " * LARGE_BYTES)


ATTACKS: dict[str, Attack] = {
    "idle connections": keep_idle_connections,
    "half-sent requests": keep_half_sent_requests,
    "half-sent bodies": keep_half_sent_bodies,
    "100,000 containers": send_countless_containers,
    "8 MiB bodies": send_large_bodies,
}


@contextmanager
def run_attack(name: str, target: AttackedListener) -> Iterator[None]:
    """The attack has started when the block begins, and runs until it ends."""
    command = [*LESS_URGENT, sys.executable, "-m", __name__, name, str(target.port), target.path]
    command += [str(target.ca_file)] if target.ca_file else []
    with subprocess.Popen(command, cwd=REPOSITORY, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as running:
        try:
            assert _pipe(running.stdout).readline() == b"begun\n"
            yield
            assert running.poll() is None, f"the attack has ended by itself: {name}"
        finally:
            running.kill()


def _keep_crowd(target: AttackedListener, beginning: bytes) -> Iterator[None]:
    crowd = [open_connection((LOOPBACK, target.port)) for _ in range(CROWD)]
    for client in crowd:
        with suppress(ConnectionError):  # it may have made room for a later one
            client.sendall(beginning)
    yield
    sys.stdin.read()


def _send_bodies(target: AttackedListener, body: bytes) -> Iterator[None]:
    """One after the other; a line that is cut is called again."""
    call = build_request(target.path, body)
    while True:
        with suppress(ConnectionError, ssl.SSLError), target.connect() as client:
            client.sendall(call)
            read_reply(client)
        yield


def _pipe(stream: IO[bytes] | None) -> IO[bytes]:
    assert stream is not None
    return stream


def main(name: str, port: str, path: str, ca_file: str = "") -> None:
    steps = ATTACKS[name](AttackedListener(int(port), path, Path(ca_file) if ca_file else None))
    for number, _ in enumerate(steps):
        if not number:
            sys.stdout.write("begun\n")
            sys.stdout.flush()


if __name__ == "__main__":
    main(*sys.argv[1:])
