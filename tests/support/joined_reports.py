"""One report for a suite that runs as several pytest processes side by side."""

from __future__ import annotations

import os
import re
import tempfile
import xml.etree.ElementTree as ET
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

OPTIONS = "PYTEST_ADDOPTS"
JUNIT = re.compile(r"--junitxml=(\S+)")


@contextmanager
def joined_reports(count: int, environ: Mapping[str, str] = os.environ) -> Iterator[list[dict[str, str]]]:
    """The environments of that many processes; afterwards the file of `--junitxml` in $PYTEST_ADDOPTS has what all of them wrote."""
    given = environ.get(OPTIONS, "")
    with tempfile.TemporaryDirectory() as name:
        reports = [Path(name) / f"{number}.xml" for number in range(count)]
        yield [{**environ, OPTIONS: JUNIT.sub(f"--junitxml={report}", given)} for report in reports]
        if asked := JUNIT.search(given):
            whole = ET.Element("testsuites")
            for report in reports:
                if report.exists():
                    whole.extend(ET.parse(report).getroot())  # noqa: S314 - a file that pytest has just written
            ET.ElementTree(whole).write(asked[1])
