"""One control plane for the whole suite; around every test: the auditor, no refusal of our account, an empty cluster."""

from __future__ import annotations

import secrets
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack, suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.e2e import in_cluster
from tests.e2e.auditing import audit_cluster
from tests.e2e.in_cluster import EXTENDER_PORT, URL_PREFIX, ExtenderProgram
from tests.fakes.proxy_thread import FaultProxyThread
from tests.support.admission.bench import AdmissionBench, create_admission_bench
from tests.support.control_plane.cluster import ControlPlane
from tests.support.processes import ManagedProcess, choose_free_ports

HERE = Path(__file__).parent
RECIPES = HERE / "recipes"
"""A suite of its own with the fixtures of this one: what is installed there by others takes minutes."""


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark what lies in this folder, before `-m` looks at marks: no test can forget it."""
    for item in items:
        if item.path.is_relative_to(RECIPES):
            item.add_marker(pytest.mark.recipes)
        elif item.path.is_relative_to(HERE):
            item.add_marker(pytest.mark.e2e)


@pytest.fixture(scope="session")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ControlPlane]:
    """A running control plane with the recommended install, its pods left out."""
    with ControlPlane.start(tmp_path_factory.mktemp("cluster")) as running:
        running.install_manifests()
        yield running


@pytest.fixture(scope="module")
def tenant(cluster: ControlPlane) -> AdmissionBench:
    """One namespace for all attacks of a module, which leave nothing in force; its node comes and goes with each test."""
    return create_admission_bench(cluster)


@pytest.fixture
def extender(
    cluster: ControlPlane, transcript: Path, _programs: ExitStack, _fronts: list[FaultProxyThread]
) -> Callable[..., ExtenderProgram]:
    """Starts an extender, with the arguments of `in_cluster.start_extender`; it ends with the test.

    A proxy that writes the transcript stands before it on the shipped port; `fronted=False` for a second extender.
    """

    def start(*, fronted: bool = True, port: int | None = None, **options: Any) -> ExtenderProgram:  # noqa: ANN401 - passed on
        chosen = port or choose_free_ports(1)[0]
        made = in_cluster.start_extender(cluster, port=chosen, **options)
        _programs.callback(_end, made.process)
        if not fronted:
            return made
        front = _programs.enter_context(FaultProxyThread(chosen, port=EXTENDER_PORT, transcript=transcript))
        _fronts.append(front)
        return replace(made, url=front.url + URL_PREFIX, front=front)

    return start


@pytest.fixture
def scheduler(cluster: ControlPlane, _programs: ExitStack) -> Callable[..., ManagedProcess]:
    """Starts a kube-scheduler, with the arguments of `in_cluster.start_scheduler`; it ends with the test."""

    def start(**options: Any) -> ManagedProcess:  # noqa: ANN401 - passed on
        made = in_cluster.start_scheduler(cluster, **options)
        _programs.callback(_end, made)
        return made

    return start


@pytest.fixture
def api_proxy(cluster: ControlPlane) -> Iterator[FaultProxyThread]:
    """A failing proxy before the API server, under the cluster's own authority: `extender(api=(LOOPBACK, api_proxy.port))`."""
    with _before_the_api(cluster) as proxy:
        yield proxy


@pytest.fixture
def scheduler_proxy(cluster: ControlPlane) -> Iterator[FaultProxyThread]:
    """Another one for the scheduler, so that it and the extender can see and write at different times."""
    with _before_the_api(cluster) as proxy:
        yield proxy


@pytest.fixture
def transcript(tmp_path: Path) -> Path:
    """Where the verb calls of this test are written down, for the auditor."""
    return tmp_path / "transcript.jsonl"


@pytest.fixture
def excused() -> list[str]:
    """Objects that the test itself spoils, which the auditor must not count as the product's fault."""
    return []


@pytest.fixture(autouse=True)
def _checked(request: pytest.FixtureRequest) -> Iterator[None]:
    """Every test that touches the cluster is checked and cleaned up after: a promise must hold in all tests."""
    if "cluster" not in request.fixturenames:
        yield
        return
    running: ControlPlane = request.getfixturevalue("cluster")
    calls: Path = request.getfixturevalue("transcript")
    spoiled: list[str] = request.getfixturevalue("excused")
    yield
    try:
        refused = running.refusals.drain()
        broken = audit_cluster(running, transcript=calls, excused=spoiled)
        assert not refused, f"the API server refused our account: {refused}"
        assert not broken, f"the auditor reports:\n{broken}"
    finally:
        running.reset()


@pytest.fixture
def _programs(_fronts: list[FaultProxyThread]) -> Iterator[ExitStack]:
    """Ends what a test started, last first, and fails the test if something had already ended by itself."""
    with ExitStack() as stack:
        yield stack
        for front in _fronts:
            _let_settle(front)


@pytest.fixture
def _fronts() -> list[FaultProxyThread]:
    """The proxies whose transcripts the auditor will read."""
    return []


def _before_the_api(cluster: ControlPlane) -> FaultProxyThread:
    tls = cluster.authority.build_server_tls(f"proxy-{secrets.token_hex(4)}")
    return FaultProxyThread(cluster.api_port, upstream_tls=cluster.tls, tls=tls)


def _let_settle(front: FaultProxyThread) -> None:
    """Let calls in flight end while the scheduler still listens; one that a test left hanging is cut afterwards.

    A pod is bound a moment before the scheduler learns of it: killed in between, the answer would count as unknown.
    """
    with suppress(TimeoutError):
        front.settled(within=2)


def _end(process: ManagedProcess) -> None:
    has_crashed = process.has_crashed
    process.kill()
    sys.stdout.write(f"--- {process.log_path}\n{process.log_tail()}\n")  # pytest shows it if the test failed
    assert not has_crashed, f"{process.name} ended by itself"
