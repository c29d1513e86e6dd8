"""Reads the cluster through `kubectl get --raw`, with the user's kubectl login.

It accepts kubectl's flags that choose the cluster and the user, and passes them on; `$KUBECTL` names another kubectl.
Pages are read one after the other, because a login helper may have to ask the user, and two at once would ask twice.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import threading
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import IO, Any
from urllib.parse import urlencode

from vrampack.cli.inspect.api_objects import read_continue_token
from vrampack.cli.inspect.cluster import Resource
from vrampack.cli.inspect.errors import DamagedObjectError, ExpiredListError, ForbiddenListError, ReadError

PAGE_SIZE = 2000
"""About 10 MB of pods. Every page starts a kubectl process, and often a login helper that takes a second; a page ten times
as large would cost the API server and us ten times the memory."""
MAX_PAGE_BYTES = 64 * 1024 * 1024
"""A larger page is requested again with half the objects: pods may have 1.5 MB."""

VALUE_FLAGS = {
    "--as": "USER",
    "--as-group": "GROUP",
    "--as-uid": "UID",
    "--as-user-extra": "KEY=VALUE",
    "--cache-dir": "FOLDER",
    "--certificate-authority": "FILE",
    "--client-certificate": "FILE",
    "--client-key": "FILE",
    "--cluster": "NAME",
    "--context": "NAME",
    "--kubeconfig": "FILE",
    "--kuberc": "FILE",
    "--password": "TEXT",
    "--request-timeout": "TIME",
    "--server": "URL",
    "--tls-server-name": "NAME",
    "--token": "TEXT",
    "--user": "NAME",
    "--username": "NAME",
    "--v": "LEVEL",
}
SWITCHES = ("--disable-compression", "--insecure-skip-tls-verify", "--match-server-version")
SHORT_FLAGS = {"--server": "-s", "--v": "-v"}

_FIELD_SELECTORS = {"nodes": "", "pods": "spec.nodeName!=,status.phase!=Succeeded,status.phase!=Failed"}
"""Pods that are not bound or have finished hold nothing, so the API server need not send them."""


def add_kubectl_flags(parser: argparse.ArgumentParser) -> None:
    """Add kubectl's flags; those given are collected in `options.kubectl`, ready to be passed on."""
    group = parser.add_argument_group("kubectl's own flags, passed on to it")
    for flag, metavar in VALUE_FLAGS.items():
        names = [SHORT_FLAGS[flag], flag] if flag in SHORT_FLAGS else [flag]
        group.add_argument(*names, action=_PassToKubectl, dest="kubectl", metavar=metavar)
    for flag in SWITCHES:
        # kubectl's switches take a value only after an equals sign: each such spelling is a flag of its own.
        names = [flag, f"{flag}=true", f"{flag}=false"]
        group.add_argument(*names, action=_PassToKubectl, dest="kubectl", nargs=0, help=argparse.SUPPRESS)
    parser.set_defaults(kubectl=())


class _PassToKubectl(argparse.Action):
    def __call__(
        self,
        parser: argparse.ArgumentParser,  # noqa: ARG002 - argparse's own signature
        namespace: argparse.Namespace,
        values: str | Sequence[Any] | None,
        option_string: str | None = None,
    ) -> None:
        given = option_string if self.nargs == 0 else f"{self.option_strings[-1]}={values}"
        namespace.kubectl = (*namespace.kubectl, given)


@dataclass(frozen=True, slots=True)
class KubectlReader:
    """A `ListReader` that shows kubectl's stderr as it comes, as it may ask the user something."""

    flags: Sequence[str]
    program: str = ""

    def read_pages(self, resource: Resource) -> Iterable[bytes]:
        token, limit = "", PAGE_SIZE
        while True:
            query = {"limit": str(limit), "fieldSelector": _FIELD_SELECTORS[resource], "continue": token}
            given = urlencode({key: value for key, value in query.items() if value})
            body = self._get(resource, f"/api/v1/{resource}?{given}", MAX_PAGE_BYTES if limit > 1 else -1)
            if body is None:
                limit //= 2
                continue
            try:
                token = read_continue_token(body)
            except DamagedObjectError as error:
                raise ReadError(f"the list of {resource} cannot be read: {error}") from error
            yield body
            if not token:
                return

    def read_own_pods(self) -> Iterable[bytes]:
        """The pods of the context's namespace, which kubectl knows."""
        body = self._run_get("pods", ("pods", "-o", "json"), -1)
        return () if body is None else (body,)

    def _get(self, resource: Resource, path: str, max_bytes: int) -> bytes | None:
        return self._run_get(resource, ("--raw", path), max_bytes)

    def _run_get(self, resource: Resource, arguments: Sequence[str], max_bytes: int) -> bytes | None:
        """What `kubectl get` prints; None if that is more than `max_bytes`."""
        program = self.program or os.environ.get("KUBECTL") or "kubectl"
        try:
            process = subprocess.Popen(  # noqa: S603 - the user's own kubectl with the user's own flags
                [program, *self.flags, "get", *arguments], stdout=subprocess.PIPE, stderr=subprocess.PIPE
            )
        except OSError as error:
            text = f"cannot run {program}: {error.strerror}; install kubectl, or name it in $KUBECTL"
            raise ReadError(text) from error
        with process:
            said = _StderrTee(process.stderr)
            said.start()
            body: bytes = process.stdout.read(max_bytes) if process.stdout else b""
            is_cut = len(body) == max_bytes
            if is_cut and process.stdout:
                process.kill()
                process.stdout.close()  # a child of a wrapper ends too
            said.join()
        if is_cut:
            return None
        if process.returncode:
            raise _to_read_error(resource, said.captured_text())
        return body


class _StderrTee(threading.Thread):
    """Copies a pipe to stderr and remembers its text."""

    def __init__(self, pipe: IO[bytes] | None) -> None:
        super().__init__(daemon=True)
        self._pipe = pipe
        self._chunks: list[bytes] = []

    def run(self) -> None:
        while self._pipe and (chunk := os.read(self._pipe.fileno(), 4096)):
            self._chunks.append(chunk)
            sys.stderr.write(chunk.decode(errors="replace"))
            sys.stderr.flush()

    def captured_text(self) -> str:
        return b"".join(self._chunks).decode(errors="replace")


def _to_read_error(resource: Resource, said: str) -> ReadError:
    """The error for kubectl's message, which has been shown already."""
    if "Error from server (Expired)" in said or "Error from server (Gone)" in said:
        return ExpiredListError(f"the list of {resource} expired while it was read, twice; try again")
    if "Error from server (Forbidden)" in said:
        return ForbiddenListError(
            f'the right to list {resource} in the whole cluster is missing: inspect needs a ClusterRole with the verb "list" on '
            '"nodes" and "pods"'
        )
    return ReadError(f"kubectl could not list {resource}")
