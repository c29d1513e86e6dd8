"""The command line of the wheel, against the node's cluster."""

from __future__ import annotations

import re
import subprocess
from http.cookiejar import CookieJar
from pathlib import Path
from urllib.request import HTTPCookieProcessor, build_opener

from tests.node.node import LiveNode
from tests.support.processes import ManagedProcess

TIMEOUT_SECONDS = 60
ADDRESS = re.compile(r"^Open (http://127\.0\.0\.1:\d+/open\?key=[\w-]+)$", re.MULTILINE)


def run_inspect(program: Path, node: LiveNode) -> str:
    """`vrampack inspect -d`."""
    command: list[str | Path] = [program, "inspect", "-d", "--kubeconfig", node.cluster.admin]
    return subprocess.run(command, capture_output=True, text=True, check=True, timeout=TIMEOUT_SECONDS).stdout


def run_ui_page(program: Path, node: LiveNode, folder: Path) -> str:
    """The first page of `vrampack ui`, opened by the address that it prints; then it is ended."""
    process = ManagedProcess("ui", [program, "ui", "--kubeconfig", node.cluster.admin], directory=folder)
    process.start()
    try:
        (address,) = node.wait(lambda: ADDRESS.findall(process.log_path.read_text()), what=process.log_tail)
        browser = build_opener(HTTPCookieProcessor(CookieJar()))
        browser.open(address, timeout=TIMEOUT_SECONDS).close()  # the cookie; its page leads on to the first one
        with browser.open(f"{address.partition('/open')[0]}/", timeout=TIMEOUT_SECONDS) as page:
            text: str = page.read().decode()
    finally:
        process.stop()
    return text
