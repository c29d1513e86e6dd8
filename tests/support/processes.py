"""Programs under test: started with a clean environment, logged to a file, dead for certain afterwards.

Every program asks the kernel to be killed when the suite dies (PR_SET_PDEATHSIG, through `setpriv`), so
not even `kill -9` of pytest leaves a control plane behind. The signal follows the *thread* that started
the program: start programs from the main thread.
"""

from __future__ import annotations

import http.client
import os
import secrets
import socket
import ssl
import subprocess
import urllib.parse
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import cache
from itertools import cycle, islice
from pathlib import Path
from signal import SIGCONT, SIGKILL, SIGSTOP, SIGTERM, Signals

from tests.support.polling import wait_until

REPOSITORY = Path(__file__).parents[2]
LOOPBACK = "127.0.0.1"
PORTS = range(20_000, 32_000)
"""Below Linux's ephemeral range (32768 and up): no outgoing connection takes a port between choice and use."""
WORKER_SHARES = 16
"""Of the ports, for pytest's workers: two of them never choose alike between choice and use, unless there are more."""
DIE_WITH_PARENT = ("setpriv", "--pdeathsig", "KILL", "--")


class ManagedProcess:
    """One program in its own process group. `start` may be called again after it has ended."""

    def __init__(
        self, name: str, command: Sequence[str | Path], *, directory: Path, environment: Mapping[str, str] | None = None
    ) -> None:
        self.name = name
        self.log_path = directory / f"{name}.log"
        self._command = [*DIE_WITH_PARENT, *map(str, command)]
        self._environment = {**_plain_environment(directory), **(environment or {})}
        self._running: subprocess.Popen[bytes] | None = None
        self._was_stopped = False

    @property
    def pid(self) -> int:
        return self._popen.pid

    @property
    def is_running(self) -> bool:
        return self._running is not None and self._running.poll() is None

    @property
    def has_crashed(self) -> bool:
        """Whether it ended without being stopped here."""
        return self._running is not None and not self.is_running and not self._was_stopped

    def start(self) -> None:
        self._was_stopped = False
        with self.log_path.open("ab") as log:
            self._running = subprocess.Popen(
                self._command,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                env=self._environment,
                cwd=REPOSITORY,
                start_new_session=True,
            )

    def signal(self, number: Signals) -> None:
        """Send any signal."""
        os.killpg(self.pid, number)

    @contextmanager
    def paused(self) -> Iterator[None]:
        """The program is stopped inside the block, and continues afterwards."""
        self.signal(SIGSTOP)
        try:
            yield
        finally:
            self.signal(SIGCONT)

    def stop(self, number: Signals = SIGTERM, *, timeout_seconds: float = 15) -> int:
        """End it by `number` and return its exit code; kill it and raise when it does not obey in time."""
        self._was_stopped = True
        if not self.is_running:
            return self._popen.wait()
        self.signal(number)
        try:
            return self._popen.wait(timeout_seconds)
        except subprocess.TimeoutExpired:
            self.kill()
            raise

    def kill(self) -> None:
        """SIGKILL to the whole group; does nothing to a program that has ended or never started."""
        self._was_stopped = True
        if self.is_running:
            self.signal(SIGKILL)
        if self._running is not None:
            self._running.wait()

    def wait_ready(self, url: str, *, ca_file: Path | None = None, timeout_seconds: float = 30) -> None:
        """Wait until `url` answers 200. A program that ends meanwhile is reported at once; one that is late is killed."""

        def answers() -> bool:
            if not self.is_running:
                raise RuntimeError(f"{self.name} ended with {self._popen.returncode}\n{self.log_tail()}")
            return _answers_ok(url, ca_file)

        try:
            wait_until(answers, timeout_seconds=timeout_seconds, what=lambda: f"{url}: 200\n{self.log_tail()}")
        except BaseException:
            self.kill()
            raise

    def wait(self, *, timeout_seconds: float = 15) -> int:
        """The exit code of a program that is meant to end by itself."""
        self._was_stopped = True
        return self._popen.wait(timeout_seconds)

    def log_tail(self, lines: int = 30) -> str:
        return "\n".join(self.log_path.read_text(errors="replace").splitlines()[-lines:])

    @property
    def _popen(self) -> subprocess.Popen[bytes]:
        if self._running is None:
            raise RuntimeError(f"{self.name} was not started")
        return self._running


def choose_free_ports(count: int) -> list[int]:
    """Ports on which nothing listens now. One that was chosen recently is left out: its user may not listen yet."""
    return list(islice(filter(_is_free, _ports_in_turn()), count))


@cache
def _ports_in_turn() -> Iterator[int]:
    """The ports of this process, over and over. The first is random, so that two suites do not choose the same ports."""
    share = _ports_of_worker()
    start = secrets.randbelow(len(share))  # not with `random`: a plugin of pytest seeds that
    return cycle([*share[start:], *share[:start]])


def _ports_of_worker() -> range:
    """The share of this process; all ports where pytest has no workers. They are called gw0, gw1 .."""
    name = os.environ.get("PYTEST_XDIST_WORKER", "")
    return PORTS[int(name.removeprefix("gw")) % WORKER_SHARES :: WORKER_SHARES] if name else PORTS


def _plain_environment(directory: Path) -> dict[str, str]:
    """Proxies, credentials and KUBECONFIG of the user who runs the suite do not reach the programs under test."""
    return {"PATH": os.environ["PATH"], "HOME": str(directory), "LANG": "C.UTF-8"}


def _answers_ok(url: str, ca_file: Path | None) -> bool:
    parts = urllib.parse.urlsplit(url)
    host, port = parts.hostname or LOOPBACK, parts.port
    connection = (
        http.client.HTTPSConnection(host, port, timeout=2, context=ssl.create_default_context(cafile=ca_file))
        if parts.scheme == "https"
        else http.client.HTTPConnection(host, port, timeout=2)
    )
    try:
        connection.request("GET", parts.path or "/")
        return connection.getresponse().status == http.client.OK
    except (OSError, http.client.HTTPException):
        return False
    finally:
        connection.close()


def _is_free(port: int) -> bool:
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((LOOPBACK, port))
        except OSError:
            return False
        return True
