"""`vrampack ui` as a browser, a keyboard and a screen reader find it, on the embedded cluster."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from itertools import pairwise
from pathlib import Path

from tests.cli.ui.objects import a_bound_pod, a_node, a_waiting_pod
from tests.cli.ui.ui_site import PodRights, UiSite, run_ui
from tests.e2e.chromium import BrowserPage, HeadlessChromium, run_chromium

SAID = '0/60 nodes are available: <img src="https://example.com/a.png" onerror="window.hit=1"><script>window.hit=1</script>'
CLUSTER = (
    *(a_node(f"gpu-{number:02}") for number in range(60)),
    a_bound_pod("mine", "gpu-00", 0, 8),
    a_bound_pod("theirs", "gpu-00", 1, 6, namespace="secret"),
    a_waiting_pod("late", 12, said=SAID),
)
"""Sixty nodes of two cards of 15: two pages. The pod that waits has room, and its scheduler says markup."""
SMALL = (a_node("gpu-1"), a_bound_pod("a", "gpu-1", 0, 8), a_bound_pod("b", "gpu-1", 1, 6), a_waiting_pod("w", 10))
ALL_PATHS = ("/", "/nodes/gpu-00", "/pending", "/pods/default/late", "/simulate", "/none")

UNLABELLED = "[...document.querySelectorAll('input:not([type=hidden]),select')].filter(e => !e.labels.length).length"
UNSCOPED = "document.querySelectorAll('th:not([scope]), table:not(:has(caption))').length"
LEVELS = "[...document.querySelectorAll('h1,h2,h3')].map(e => Number(e.tagName[1]))"
DUPLICATE_IDS = "(ids => ids.length - new Set(ids).size)([...document.querySelectorAll('[id]')].map(e => e.id))"
FAINTEST = """(() => {
  const channels = text => text.match(/[\\d.]+/g).slice(0, 3).map(Number);
  const light = rgb => rgb.map(c => c / 255).map(c => c <= .04045 ? c / 12.92 : ((c + .055) / 1.055) ** 2.4)
    .reduce((sum, c, at) => sum + c * [.2126, .7152, .0722][at], 0);
  const ground = e => { for (; e; e = e.parentElement) { const c = getComputedStyle(e).backgroundColor;
    if (c !== 'rgba(0, 0, 0, 0)') return c; } return 'rgb(255, 255, 255)'; };
  const texts = [...document.querySelectorAll('main *, header *, footer *')].filter(e => !e.closest('svg, option, iframe')
    && !e.matches('button, input, select') && [...e.childNodes].some(n => n.nodeType === 3 && n.data.trim()));
  return Math.min(...texts.map(e => { const [a, b] = [getComputedStyle(e).color, ground(e)].map(c => light(channels(c)));
    return (Math.max(a, b) + .05) / (Math.min(a, b) + .05); }));
})()"""
"""The least contrast of a text with what is behind it, as WCAG 2 computes it."""
READABLE = 4.5


@asynccontextmanager
async def show_cluster(
    folder: Path,
    objects: tuple[dict[str, object], ...] = CLUSTER,
    rights: PodRights | None = None,
    report: Path | None = None,
) -> AsyncIterator[tuple[UiSite, HeadlessChromium, BrowserPage]]:
    """The pages, and a browser that opened the printed URL."""
    async with (
        run_ui(folder, objects, rights=rights, report_file=report, is_logged_in=False) as site,
        run_chromium(folder) as browser,
    ):
        yield site, browser, await browser.open_page(site.gate.url, loads=2)


async def test_printed_url_works_once_and_its_key_leaves_the_address_bar(tmp_path: Path) -> None:
    async with show_cluster(tmp_path) as (site, _, page):
        key_url = page.requested_urls[0]
        assert "key=" in key_url
        assert await page.evaluate("location.href") == site.url + "/"
        assert await page.evaluate("document.title") == "Cluster · vrampack"
        assert await page.evaluate("document.cookie") == ""  # no script could read it
        await page.call("Network.clearBrowserCookies")
        await page.open_url(key_url)
        assert "was used already" in await page.evaluate("document.body.textContent")
        assert {url.partition("/open")[0].removesuffix("/") for url in page.requested_urls} <= {
            site.url,
            site.url + "/style.css",
            site.url + "/favicon.ico",
        }


async def test_the_url_may_be_clicked_on_a_page_of_another_site(tmp_path: Path) -> None:
    """A terminal in the browser is such a page: its links are followed without strict cookies."""
    terminal = tmp_path / "terminal.html"
    async with run_ui(tmp_path, SMALL, is_logged_in=False) as site, run_chromium(tmp_path) as browser:
        terminal.write_text(f'<a href="{site.gate.url}">Open</a>')
        page = await browser.open_page(terminal.as_uri())
        await page.focus("a")
        await page.press_key_and_wait("Enter", loads=2)
        assert await page.evaluate("location.href") == site.url + "/"
        assert await page.evaluate("document.title") == "Cluster · vrampack"


async def test_every_page_tells_a_screen_reader_what_it_is(tmp_path: Path) -> None:
    async with show_cluster(tmp_path) as (site, _, page):
        titles = set()
        for path in ALL_PATHS:
            await page.open_url(site.url + path)
            roles = await page.list_roles()
            assert [role for role, _ in roles].count("main") == 1, path
            assert ("navigation", "Pages") in roles, path
            assert await page.evaluate("document.documentElement.lang") == "en"
            assert await page.evaluate(UNLABELLED) == 0, path
            assert await page.evaluate(UNSCOPED) == 0, path
            assert await page.evaluate(DUPLICATE_IDS) == 0, path
            levels = await page.evaluate(LEVELS)
            assert levels.count(1) == 1, path
            assert all(after - before <= 1 for before, after in pairwise(levels)), path
            assert await page.evaluate("document.scripts.length") == 0, path
            titles.add(await page.evaluate("document.title"))
        assert len(titles) == len(ALL_PATHS)
        await page.open_url(site.url + "/")
        roles = await page.list_roles()
        assert ("columnheader", "Held") in roles
        assert ("rowheader", "0") in roles
        assert ("table", "Cards of gpu-00") in roles
        assert ("region", "gpu-00") in roles
        assert ("search", "") in roles
        assert not [role for role, _ in roles if role in ("image", "graphics-document")]  # the bar repeats the numbers
        assert await page.evaluate("document.querySelector('[aria-current=page]').textContent") == "Cluster"


async def test_everything_is_reached_with_the_keyboard(tmp_path: Path) -> None:
    async with show_cluster(tmp_path) as (site, _, page):
        await page.press_key("Tab")
        assert await page.evaluate("document.activeElement.textContent") == "Skip to the content"
        assert await page.evaluate("document.activeElement.getBoundingClientRect().left") >= 0
        await page.press_key("Enter")
        await page.press_key("Tab")
        assert await page.evaluate("!!document.activeElement.closest('main')")
        for _ in range(8):
            assert await page.evaluate("getComputedStyle(document.activeElement).outlineStyle") != "none"
            await page.press_key("Tab")
        await page.focus("#q")
        await page.type_text("gpu-07")
        await page.press_key_and_wait("Enter")
        assert await page.evaluate("document.querySelectorAll('section').length") == 1
        assert await page.evaluate("document.querySelector('#q').value") == "gpu-07"
        await page.open_url(site.url + "/")
        await page.focus("a[rel=next]")
        await page.press_key_and_wait("Enter")
        assert "Page 2 of 2: nodes 51 to 60 of 60" in await page.evaluate("document.body.textContent")
        assert await page.evaluate("!document.querySelector('a[rel=next]') && !!document.querySelector('a[rel=prev]')")


async def test_pages_are_readable_in_light_and_dark_and_on_a_narrow_screen(tmp_path: Path) -> None:
    async with show_cluster(tmp_path, rights=PodRights({"default"}, ["default", "secret"])) as (site, _, page):
        grounds = []
        for is_dark in (False, True):
            await page.set_dark(is_dark=is_dark)
            grounds.append(await page.evaluate("getComputedStyle(document.body).backgroundColor"))
            for path in ALL_PATHS:
                await page.open_url(site.url + path)
                assert await page.evaluate(FAINTEST) >= READABLE, (path, is_dark)
        assert grounds == ["rgb(245, 246, 248)", "rgb(15, 18, 21)"]
        await page.set_size(400, 800)
        for path in ALL_PATHS:
            await page.open_url(site.url + path)
            assert await page.evaluate("document.scrollingElement.scrollWidth") <= 400, path
        await page.open_url(site.url + "/")
        roles = await page.list_roles()
        assert ("table", "Cards of gpu-00") in roles  # still one, though its rows are folded
        assert {"row", "rowheader", "columnheader", "cell"} <= {role for role, _ in roles}


async def test_scheduler_messages_are_shown_as_text(tmp_path: Path) -> None:
    async with show_cluster(tmp_path) as (site, _, page):
        for path in ("/pending", "/pods/default/late"):
            await page.open_url(site.url + path)
            assert SAID[:40] in await page.evaluate("document.querySelector('main').textContent")
            assert await page.evaluate("typeof window.hit") == "undefined"
        assert [url for url in page.requested_urls if not url.startswith(site.url)] == []


async def test_pending_pod_links_to_the_node_that_it_would_go_to(tmp_path: Path) -> None:
    async with show_cluster(tmp_path) as (_, __, page):
        await page.focus("a[href='/pending']")
        await page.press_key_and_wait("Enter")
        await page.focus("a[href='/pods/default/late']")
        await page.press_key_and_wait("Enter")
        assert await page.evaluate("document.querySelector('h1').textContent") == "Pod default/late"
        assert await page.evaluate("document.querySelector('tbody th').scope") == "rowgroup"
        await page.focus("tbody th a")
        await page.press_key_and_wait("Enter")
        assert await page.evaluate("document.querySelector('h1').textContent.startsWith('Node gpu-')")


async def test_memory_of_other_namespaces_is_shown_without_names(tmp_path: Path) -> None:
    async with show_cluster(tmp_path, rights=PodRights({"default"}, ["default", "secret"])) as (_, __, page):
        roles = await page.list_roles()
        assert not [name for _, name in roles if "secret" in name or "theirs" in name]
        assert "0 to 7 GiB held elsewhere" in await page.evaluate("document.querySelector('section').textContent")
        assert ("note", "") in roles


async def test_a_replay_is_chosen_and_shown(tmp_path: Path) -> None:
    async with show_cluster(tmp_path, SMALL) as (site, _, page):
        await page.open_url(site.url + "/simulate")
        await page.focus("#policy-binpack")
        await page.press_key(" ")
        await page.focus("main button")
        await page.press_key_and_wait("Enter")
        await page.wait_until_true("!!document.querySelector('iframe[title=\"Report of the replay\"]')")
        assert "has ended" in await page.evaluate("document.querySelector('[role=status]').textContent")
        await page.focus("a[href='/reports/replay']")
        await page.press_key_and_wait("Enter")
        rows = (
            "[...document.querySelectorAll('tbody tr')].map(e => e.cells[0].textContent + ' ' + e.cells[1].textContent)"
        )
        assert await page.evaluate(rows) == ["as it is 2/3", "binpack 3/3"]
        assert await page.evaluate("origin") == "null"  # the sandbox


async def test_a_report_runs_and_loads_nothing(tmp_path: Path) -> None:
    report = tmp_path / "out.html"
    report.write_text('<h1>R</h1><script>document.title="run"</script><img src="https://example.com/a.png">')
    async with show_cluster(tmp_path, SMALL, report=report) as (site, _, page):
        await page.open_url(site.url + "/simulate")
        await page.open_url(site.url + "/reports/given")
        assert await page.evaluate("document.querySelector('h1').textContent") == "R"
        assert await page.evaluate("document.title") != "run"
        assert any("Content Security Policy" in text for text in page.messages), page.messages
        assert any("sandboxed" in text for text in page.messages), page.messages


async def test_a_page_of_another_origin_can_neither_send_nor_show_anything(tmp_path: Path) -> None:
    """To a browser `localhost` is a different site from 127.0.0.1, and an opener on the same machine."""
    foreign = tmp_path / "foreign.html"
    async with show_cluster(tmp_path, SMALL) as (site, browser, page):
        foreign.write_text(
            f'<iframe src="{site.url}/"></iframe><form id="f" method="post" action="{site.url}/simulate">'
            '<input name="policy" value="spread"></form>'
        )
        other = await browser.open_page(foreign.as_uri())
        assert any("frame-ancestors" in text for text in other.messages), other.messages
        other.messages.clear()
        await other.evaluate("document.getElementById('f').submit()")
        await other.wait_until_true("document.body.textContent.startsWith('vrampack ui: ')")
        assert "a page of another origin sent this request" in await other.evaluate("document.body.textContent")
        await page.open_url(site.url + "/simulate")
        assert "Replaying" not in await page.evaluate("document.body.textContent")
