"""Who may read the pages: the browser that showed the key first, and no page of another origin."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import aiohttp
import pytest
import pytest_asyncio

from tests.cli.ui.objects import a_node
from tests.cli.ui.ui_site import UiSite, run_ui
from vrampack.cli.ui.app import choose_way_back

PAGES = (
    "/",
    "/nodes/gpu-1",
    "/pending",
    "/simulate",
    "/reports/given",
    "/style.css",
    "/nothing",
    "/docs",
    "/openapi.json",
)


@pytest_asyncio.fixture
async def site(tmp_path: Path) -> AsyncIterator[UiSite]:
    """Before the key was shown."""
    async with run_ui(tmp_path, [a_node("gpu-1")], is_logged_in=False) as running:
        yield running


async def test_the_key_opens_the_pages_once(site: UiSite) -> None:
    key_path = site.gate.url.removeprefix(site.url)
    opened = await site.ask(key_path)
    assert (opened.status, 'content="0;url=/"' in opened.text) == (200, True)
    cookie = opened.headers["Set-Cookie"]
    assert "HttpOnly" in cookie
    assert "SameSite=strict" in cookie
    assert (await site.ask("/")).status == 200
    assert (await site.ask(key_path)).status == 303  # a browser may fetch the address twice
    async with aiohttp.ClientSession() as stranger, stranger.get(site.url + key_path) as refused:
        assert (refused.status, "Set-Cookie" in refused.headers) == (403, False)


@pytest.mark.parametrize("key", ["", "wrong", "\u00e9", "x" * 5000], ids=["none", "wrong", "not ASCII", "long"])
async def test_a_wrong_key_is_refused_and_does_not_use_up_the_right_one(site: UiSite, key: str) -> None:
    assert (await site.ask("/open", params={"key": key})).status == 403
    assert (await site.ask("/")).status == 403
    assert (await site.log_in()).status == 200


@pytest.mark.parametrize("path", PAGES)
async def test_every_page_needs_the_session(site: UiSite, path: str) -> None:
    answer = await site.ask(path, headers={"Cookie": f"{site.gate.cookie_name}=guessed"})
    assert answer.status == 403
    assert "gpu-1" not in answer.text


@pytest.mark.parametrize(
    "host", ["evil.example", "127.0.0.1", "127.0.0.1:1", "localhost.evil.example:{port}", "[::1]:{port}"]
)
async def test_a_foreign_host_name_for_this_address_is_refused(site: UiSite, host: str) -> None:
    """DNS rebinding: the browser sends no cookie of ours there, and would be refused with one."""
    await site.log_in()
    port = site.url.rpartition(":")[2]
    assert (await site.ask("/", headers={"Host": host.format(port=port)})).status == 403
    assert (await site.ask("/", headers={"Host": f"LOCALHOST:{port}"})).status == 200


@pytest.mark.parametrize(
    "origin", ["https://evil.example", "null", "http://127.0.0.1:1", "", "https://127.0.0.1:{port}"]
)
@pytest.mark.parametrize("method", ["GET", "POST"])
async def test_a_page_of_another_origin_is_refused(site: UiSite, origin: str, method: str) -> None:
    await site.log_in()
    given = {"Origin": origin.format(port=site.url.rpartition(":")[2])}
    assert (await site.ask("/read-again" if method == "POST" else "/", method, headers=given)).status == 403


async def test_a_change_without_an_origin_is_refused(site: UiSite) -> None:
    await site.log_in()
    assert (await site.ask("/simulate", "POST", data={"policy": "spread"})).status == 403
    assert (await site.post("/read-again")).status == 303


@pytest.mark.parametrize(
    ("site_word", "destination", "status"),
    [
        ("same-origin", "style", 200),
        ("none", "document", 200),
        ("same-site", "document", 200),
        ("same-site", "image", 403),
        ("same-site", "iframe", 403),
        ("cross-site", "empty", 403),
    ],
)
async def test_page_on_another_port_may_link_here_but_load_nothing(
    site: UiSite, site_word: str, destination: str, status: int
) -> None:
    """Its requests carry the cookie, as cookies know no ports."""
    await site.log_in()
    headers = {"Sec-Fetch-Site": site_word, "Sec-Fetch-Dest": destination}
    assert (await site.ask("/", headers=headers)).status == status


async def test_every_answer_forbids_loading_anything_from_elsewhere(site: UiSite) -> None:
    refused = await site.ask("/")
    await site.log_in()
    for answer in [refused, *[await site.ask(path) for path in PAGES]]:
        policy = dict(part.strip().partition(" ")[::2] for part in answer.headers["Content-Security-Policy"].split(";"))
        assert policy["default-src"] == "'none'"
        assert "script-src" not in policy
        assert "http" not in answer.headers["Content-Security-Policy"]
        assert answer.headers["Cache-Control"] == "no-store"
        assert answer.headers["Referrer-Policy"] == "same-origin"


CASES = {
    "/pending?page=2": "/pending?page=2",
    "//evil.example": "/",
    "/\\evil.example": "/",
    "https://evil.example": "/",
    "": "/",
}


@pytest.mark.parametrize(("asked", "path"), CASES.items())
def test_the_return_link_leads_to_one_of_our_pages(asked: str, path: str) -> None:
    assert choose_way_back(asked) == path
