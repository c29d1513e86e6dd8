"""`make ui-pictures`: the pictures of docs/ui.md, of `vrampack ui` in a browser, light and dark."""

from __future__ import annotations

import asyncio
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path

from tests.cli.ui.objects import a_bound_pod, a_node, a_waiting_pod
from tests.cli.ui.ui_site import PodRights, run_ui
from tests.e2e.chromium import run_chromium

PICTURES = Path(__file__).parents[2] / "docs" / "images"
WIDTH, HEIGHT = 1000, 620
NO_NODE = "0/3 nodes are available: 1 card unhealthy or cordoned, 2 no card with enough free memory."
CLUSTER = (
    a_node("gpu-1"),
    a_node("gpu-2"),
    a_node("gpu-3", cards=1, cordoned="GPU-gpu-3-0"),
    a_bound_pod("notebook-anna", "gpu-1", 0, 4, namespace="ml"),
    a_bound_pod("train-0", "gpu-1", 0, 8, namespace="ml"),
    a_bound_pod("chat-7d9f-x2k4p", "gpu-1", 1, 10, namespace="serving"),
    *(a_bound_pod(f"embed-{number}", "gpu-2", 0, 3, namespace="serving") for number in range(3)),
    a_bound_pod("batch-11", "gpu-2", 1, 12, namespace="ml"),
    a_waiting_pod("train-1", 8, namespace="ml", said=NO_NODE),
    a_waiting_pod("chat-7d9f-q8w2z", 10, namespace="serving", said=NO_NODE),
)


async def save_pictures(into: Path) -> None:
    """ui-cluster.png, ui-held-elsewhere.png, ui-pod.png, and each with `-dark`."""
    await _save_pages(into, {"ui-cluster": "/", "ui-pod": "/pods/ml/train-1"})
    await _save_pages(into, {"ui-held-elsewhere": "/"}, namespaces=["ml"])


async def _save_pages(into: Path, path_by_name: Mapping[str, str], namespaces: Sequence[str] = ()) -> None:
    """`namespaces`: those whose pods the reader may list; none: all pods."""
    rights = PodRights(namespaces) if namespaces else None
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch)
        async with (
            run_ui(folder, CLUSTER, rights=rights, namespaces=namespaces, is_logged_in=False) as site,
            run_chromium(folder) as browser,
        ):
            page = await browser.open_page(site.gate.url, loads=2)
            for name, path in path_by_name.items():
                for ending, is_dark in (("", False), ("-dark", True)):
                    await page.set_dark(is_dark=is_dark)
                    await page.open_url(site.url + path)
                    await page.save_picture(into / f"{name}{ending}.png", width=WIDTH, height=HEIGHT)


if __name__ == "__main__":
    asyncio.run(save_pictures(PICTURES))
