"""Asks the independent auditor about a cluster, through the command line that anybody else would use."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import redirect_stdout
from io import StringIO
from pathlib import Path

from tests.auditor import __main__ as auditor
from tests.e2e.cluster import Cluster


def broken_promises(cluster: Cluster, *, transcript: Path, excused: Sequence[str] = ()) -> str:
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
