"""Asks the independent auditor about a cluster, through the public command line."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager, redirect_stdout
from io import StringIO
from pathlib import Path

from tests.auditor import __main__ as auditor
from tests.auditor.api import AuditorApi
from tests.auditor.ledgers import stale_places, wrong_ledger
from tests.auditor.terms import Terms, Violation
from tests.auditor.watch import LiveWatch
from tests.e2e.in_cluster import ExtenderProgram
from tests.e2e.verb_calls import get_inspect
from tests.support.control_plane.cluster import ControlPlane

QUIET_SECONDS = 5
"""Within so much of quiet the ledger must equal a recount (I3)."""


def audit_cluster(cluster: ControlPlane, *, transcript: Path, excused: Sequence[str] = ()) -> str:
    """What the auditor reports, empty when every promise is kept; `excused` are objects that a test spoiled itself."""
    token = cluster.directory / "admin.token"
    token.write_text(cluster.admin_token)
    arguments = ["--api", cluster.api_url, "--ca", str(cluster.ca_file), "--token-file", str(token)]
    arguments += [f"--excuse={one}" for one in excused]
    if transcript.exists():
        arguments += ["--transcript", str(transcript), "--complete"]
    with redirect_stdout(StringIO()) as report:
        auditor.main(arguments)
    return report.getvalue()


def find_ledger_faults(cluster: ControlPlane, extender: ExtenderProgram) -> list[Violation]:
    """Where this extender's ledger differs from a recount of the API now."""
    api = _api(cluster)
    shown, pods = get_inspect(extender), api.list("pods")[0]
    return wrong_ledger(shown, pods, api.list("nodes")[0]) + stale_places(shown, pods)


def wait_until_recounted(cluster: ControlPlane, extender: ExtenderProgram) -> None:
    """Call it when no more pods are bound: waits until the ledger equals a recount, for as long as that may take."""

    def differences() -> str:
        return "\n".join(map(str, find_ledger_faults(cluster, extender)))

    cluster.wait_until(
        lambda: not differences(), QUIET_SECONDS, what=lambda: f"the ledger equals the API:\n{differences()}"
    )


@contextmanager
def assert_never_oversold(cluster: ControlPlane) -> Iterator[None]:
    """No card may be over capacity at any moment that the API shows inside the block (I1)."""
    seen: list[Violation] = []
    watch = LiveWatch(_api(cluster), Terms(), seen.append)
    watch.start()
    try:
        yield
    finally:
        watch.stop()
    assert not seen, "\n".join(map(str, seen))


def _api(cluster: ControlPlane) -> AuditorApi:
    return AuditorApi(cluster.api_url, cluster.tls, cluster.admin_token)
