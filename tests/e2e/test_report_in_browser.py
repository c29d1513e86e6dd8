"""The report of `vrampack simulate --report`, as a browser without a network shows it."""

from __future__ import annotations

import gzip
import os
import subprocess
from pathlib import Path

import pytest

from vrampack.cli.simulate.main import main

NODES = "sn,cpu_milli,memory_mib,gpu,model\nnode-a,8000,8192,1,A\nnode-b,8000,8192,1,A\n"
PODS = "name,cpu_milli,memory_mib,num_gpu,gpu_milli,gpu_spec\n" + "pod,10,10,1,20,\n" * 10
"""Each asks for a hundredth of both cards: the curve has a point at each per cent up to 130."""
NO_NETWORK = ("unshare", *(() if os.geteuid() == 0 else ("--map-root-user",)), "--net", "--")
TIMEOUT_SECONDS = 60


@pytest.fixture
def report(tmp_path: Path) -> Path:
    """Of two policies on a cluster of two cards."""
    data, page = tmp_path / "openb", tmp_path / "out.html"
    data.mkdir()
    (data / "openb_node_list_gpu_node.csv").write_text(NODES)
    (data / "openb_pod_list_default.csv.gz").write_bytes(gzip.compress(PODS.encode()))
    policies = ("--policy", "best-fit", "--policy", "tessellate")
    assert main(["openb", "--data", str(tmp_path), "--seeds", "1", *policies, "--report", str(page)]) == 0
    return page


def open_page(page: Path) -> tuple[str, list[str]]:
    """The document as the browser understood it, and what its console says of it; the browser's own pages have one, too."""
    flags = ("--headless", "--no-sandbox", "--disable-gpu", "--enable-logging=stderr", "--dump-dom")
    done = subprocess.run(
        [*NO_NETWORK, "chromium", *flags, f"--user-data-dir={page.parent / 'browser'}", page.as_uri()],
        capture_output=True,
        text=True,
        timeout=TIMEOUT_SECONDS,
        check=True,
        env={**os.environ, "HOME": str(page.parent)},
    )
    return done.stdout, [line for line in done.stderr.splitlines() if f"source: {page.as_uri()}" in line]


def test_the_report_shows_its_curves_and_its_table(report: Path) -> None:
    document, said = open_page(report)
    assert said == []
    assert document.count("</polyline>") == 2
    assert document.count("<tr>") == 1 + 2
    assert all(f">{policy}</text>" in document for policy in ("best-fit", "tessellate"))


def test_the_report_loads_nothing(report: Path) -> None:
    """The page itself forbids it, so the console reports whatever would be loaded."""
    report.write_text(report.read_text().replace("</body>", '<img src="https://example.com/a.png"></body>'))
    _, said = open_page(report)
    assert "violates the following Content Security Policy directive" in "\n".join(said)
