"""The pictures of docs/ui.md: `python -m tests.e2e.ui_pictures` makes them again."""

from __future__ import annotations

import asyncio
import tempfile
from collections.abc import Iterator
from itertools import product
from pathlib import Path

from tests.cli.ui.objects import Object, a_bound_pod, a_node, a_waiting_pod
from tests.cli.ui.ui_site import PodRights, run_ui
from tests.e2e.chromium import run_chromium
from tests.support.processes import REPOSITORY

FOLDER = REPOSITORY / "docs" / "images"
WIDTH, HEIGHT = 1000, 620
SHADES = ("", "-dark")
"""Light and dark, as they end the pictures' names."""
PODS = {
    ("gpu-1", 0): (("ml", "train-0", 8), ("ml", "notebook-anna", 4)),
    ("gpu-1", 1): (("serving", "chat-7d9f-x2k4p", 10),),
    ("gpu-2", 0): (("serving", "embed-0", 3), ("serving", "embed-1", 3), ("serving", "embed-2", 3)),
    ("gpu-2", 1): (("ml", "batch-11", 12),),
}
SAID = "0/3 nodes are available: 1 card unhealthy or cordoned, 2 no card with enough free memory."


def list_objects() -> Iterator[Object]:
    """Three nodes of two cards, one of them with a cordoned card, and two pods that wait."""
    yield from (a_node("gpu-1"), a_node("gpu-2"), a_node("gpu-3", 1, cordoned="GPU-gpu-3-0"))
    for (node, card), pods in PODS.items():
        yield from (a_bound_pod(name, node, card, units, namespace=namespace) for namespace, name, units in pods)
    yield a_waiting_pod("train-1", 8, namespace="ml", said=SAID)
    yield a_waiting_pod("rerank-0", 14, namespace="serving", said=SAID)


async def save_pictures() -> None:
    """Each page as it is described in docs/ui.md, in light and dark."""
    FOLDER.mkdir(exist_ok=True)
    pages = (("ui-cluster", "/"), ("ui-pod", "/pods/ml/train-1"))
    some = PodRights({"ml"}, ["ml", "serving"])
    for rights, pictures in ((None, pages), (some, (("ui-held-elsewhere", "/"),))):
        with tempfile.TemporaryDirectory() as folder:
            async with (
                run_ui(Path(folder), list_objects(), rights=rights, is_logged_in=False) as site,
                run_chromium(Path(folder)) as browser,
            ):
                page = await browser.open_page(site.gate.url, loads=2)
                for (name, path), shade in product(pictures, SHADES):
                    await page.set_dark(is_dark=bool(shade))
                    await page.set_size(WIDTH, HEIGHT)
                    await page.open_url(site.url + path)
                    await page.save_picture(FOLDER / f"{name}{shade}.png", width=WIDTH, height=HEIGHT)


if __name__ == "__main__":
    asyncio.run(save_pictures())
