"""What `vrampack ui` costs its reader on 5,000 nodes with 40,000 pods: the lists before the URL, and pages after it.

The command runs as a separate program; nodes of 6 KB and pods of 4.5 KB are prebuilt bytes over loopback, so the time in which an
API server builds those lists is not included. The pages are the first one and up to fifty that follow.
"""

from __future__ import annotations

import re
import sys
import tempfile
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from http.cookiejar import CookieJar
from pathlib import Path

from benchmarks.benchmark_row import BenchmarkRow
from benchmarks.canned_api import CannedApiServer
from benchmarks.cluster_objects import BenchmarkCluster
from benchmarks.options import BenchmarkOptions
from benchmarks.percentiles import compute_median
from tests.support.polling import wait_until
from tests.support.processes import ManagedProcess
from vrampack.simulator.kubeconfig import write_kubeconfig

NODE_COUNT = 5000
POD_COUNT = 40_000
PAGE_COUNT = 50
WITHIN_SECONDS = 600
COMMAND = "python -m benchmarks ui"
PRINTED_URL = re.compile(r"^Open (\S+)$", re.MULTILINE)
NEXT_PAGE = re.compile(rb'rel="next" href="([^"]+)"')


def measure_rows(options: BenchmarkOptions) -> Iterator[BenchmarkRow]:
    """Measure the time to the URL, time and size of the first page, and of the largest page that follows."""
    nodes = options.scale_count(NODE_COUNT)
    cluster = BenchmarkCluster(nodes, options.scale_count(POD_COUNT), others=0, full_share=0.5, seed=options.seed)
    lists = {"nodes": cluster.encode_node_pages(), "pods": cluster.encode_pod_pages()}
    with CannedApiServer(lists) as api, _run_ui(api.url) as (url, seconds):
        opener = urllib.request.build_opener(urllib.request.HTTPCookieProcessor(CookieJar()))
        opener.open(url, timeout=WITHIN_SECONDS).close()
        pages = list(_read_pages(opener, url.partition("/open")[0]))
    what = f"ui, {nodes:,} nodes"
    yield BenchmarkRow("ui-start", f"{what}, start to the URL", COMMAND, seconds, "s", None, None)
    first_seconds, first_kb = pages[0]
    yield BenchmarkRow("ui-first-page", f"{what}, the first page", COMMAND, first_seconds, "s", 1, 1)
    yield BenchmarkRow("ui-first-page-size", f"{what}, the first page", COMMAND, first_kb, "kB", 300, 300)
    times, sizes = [each[0] for each in pages], [each[1] for each in pages]
    note = f"{len(pages)} pages, at most {max(times):.2f} s"
    yield BenchmarkRow("ui-page", f"{what}, a page", COMMAND, compute_median(times), "s", 1, 1, note=note)
    yield BenchmarkRow("ui-page-size", f"{what}, the largest page", COMMAND, max(sizes), "kB", 300, 300)


@contextmanager
def _run_ui(api_url: str) -> Iterator[tuple[str, float]]:
    """Run the command; the printed URL, and how long it took."""
    with tempfile.TemporaryDirectory(prefix="vrampack-bench-") as name:
        folder = Path(name)
        kubeconfig = write_kubeconfig(folder, api_url)
        command = [sys.executable, "-m", "vrampack.cli", "ui", "--kubeconfig", str(kubeconfig)]
        process = ManagedProcess("ui", command, directory=folder)

        def read_url() -> str:
            found = PRINTED_URL.search(process.log_tail())
            if found is None and not process.is_running:
                raise RuntimeError(f"vrampack ui has ended:\n{process.log_tail()}")
            return found[1] if found else ""

        started = time.monotonic()
        process.start()
        try:
            url = wait_until(read_url, timeout_seconds=WITHIN_SECONDS, what=process.log_tail)
            yield url, time.monotonic() - started
        finally:
            process.stop()


def _read_pages(opener: urllib.request.OpenerDirector, site: str) -> Iterator[tuple[float, float]]:
    """The seconds and kB of the first pages."""
    path = "/"
    for _ in range(PAGE_COUNT):
        started = time.monotonic()
        with opener.open(site + path, timeout=WITHIN_SECONDS) as answer:
            page = answer.read()
        yield time.monotonic() - started, len(page) / 1000
        found = NEXT_PAGE.search(page)
        if found is None:
            return
        path = found[1].decode().replace("&amp;", "&")
