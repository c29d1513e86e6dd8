"""A headless Chromium, driven as its own developer tools drive it: over one WebSocket for each page.

async with run_chromium(folder) as browser:
    page = await browser.open_page(url)
    await page.press_key("Tab")
    assert await page.evaluate("document.activeElement.textContent") == "Skip to the content"
"""

from __future__ import annotations

import asyncio
import base64
import itertools
import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, TypeAlias

import aiohttp

from tests.support.polling import wait_until

Json: TypeAlias = Any
"""What the browser says: single fields are read, each asserted where it is read."""

FLAGS = (
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--hide-scrollbars",
    "--remote-debugging-port=0",
    "--no-first-run",
    "--no-proxy-server",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
)
WITHIN_SECONDS = 60
KEYS = {"Tab": (9, ""), "Enter": (13, "\r"), " ": (32, " ")}
"""Key codes, and the text that a key types."""


class BrowserPage:
    """One tab. What it requested and what its console said is kept from its first request on."""

    def __init__(self, socket: aiohttp.ClientWebSocketResponse) -> None:
        self._socket = socket
        self._numbers = itertools.count(1)
        self._answers: dict[int, asyncio.Future[Json]] = {}
        self._loaded = asyncio.Event()
        self._load_count = 0
        self._following = asyncio.create_task(self._follow_events())
        self.requested_urls: list[str] = []
        self.messages: list[str] = []

    async def call(self, method: str, **parameters: object) -> Json:
        """One command of the developer tools' protocol; its answer."""
        number = next(self._numbers)
        answer = self._answers[number] = asyncio.get_running_loop().create_future()
        await self._socket.send_json({"id": number, "method": method, "params": parameters})
        async with asyncio.timeout(WITHIN_SECONDS):
            return await answer

    async def open_url(self, url: str, *, loads: int = 1) -> None:
        """Go there and wait until it has loaded; `loads` times where it redirects by itself."""
        wanted = self._load_count + loads
        await self.call("Page.navigate", url=url)
        await self._wait_for_loads(wanted)

    async def evaluate(self, expression: str) -> Json:
        """The value of an expression in the page."""
        answer = await self.call("Runtime.evaluate", expression=expression, returnByValue=True, awaitPromise=True)
        assert "exceptionDetails" not in answer, answer
        return answer["result"].get("value")

    async def press_key(self, key: str, times: int = 1) -> None:
        """As a keyboard does: Tab, Enter, a space, or a letter."""
        code, text = KEYS.get(key, (ord(key[0].upper()), key))
        pressed = {"key": key, "windowsVirtualKeyCode": code, "text": text}
        for _ in range(times):
            await self.call("Input.dispatchKeyEvent", type="keyDown", **pressed)
            await self.call("Input.dispatchKeyEvent", type="keyUp", key=key, windowsVirtualKeyCode=code)

    async def press_key_and_wait(self, key: str, *, loads: int = 1) -> None:
        """A key that leads to another page."""
        wanted = self._load_count + loads
        await self.press_key(key)
        await self._wait_for_loads(wanted)

    async def type_text(self, text: str) -> None:
        await self.call("Input.insertText", text=text)

    async def focus(self, selector: str) -> None:
        assert await self.evaluate(
            f"(e => (e.focus(), e === document.activeElement))(document.querySelector({selector!r}))"
        )

    async def wait_until_true(self, expression: str) -> None:
        """Wait until the expression is true, across reloads of the page."""
        async with asyncio.timeout(WITHIN_SECONDS):
            count = self._load_count
            while not await self.evaluate(expression):
                await self._wait_for_loads(count + 1)
                count = self._load_count

    async def save_picture(self, file: Path, *, width: int, height: int) -> None:
        """A PNG of this size."""
        await self.set_size(width, height)
        answer = await self.call("Page.captureScreenshot", format="png")
        await asyncio.to_thread(file.write_bytes, base64.b64decode(answer["data"]))

    async def set_size(self, width: int, height: int) -> None:
        await self.call(
            "Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=False
        )

    async def set_dark(self, *, is_dark: bool) -> None:
        """Whether the reader prefers dark."""
        feature = {"name": "prefers-color-scheme", "value": "dark" if is_dark else "light"}
        await self.call("Emulation.setEmulatedMedia", features=[feature])

    async def list_roles(self) -> list[tuple[str, str]]:
        """Role and name of everything that a screen reader is told of."""
        nodes = (await self.call("Accessibility.getFullAXTree"))["nodes"]
        shown = [each for each in nodes if not each.get("ignored")]
        return [(each["role"]["value"], each.get("name", {}).get("value", "")) for each in shown]

    async def close(self) -> None:
        await self._socket.close()
        await self._following

    async def _wait_for_loads(self, wanted: int) -> None:
        """Until this many pages have loaded since the first."""
        async with asyncio.timeout(WITHIN_SECONDS):
            while self._load_count < wanted:
                self._loaded.clear()
                await self._loaded.wait()

    async def _follow_events(self) -> None:
        async for message in self._socket:
            told = message.json()
            if "id" in told:
                answer = self._answers.pop(told["id"])
                if "error" in told:
                    answer.set_exception(AssertionError(told["error"]))
                else:
                    answer.set_result(told["result"])
            elif told["method"] == "Page.loadEventFired":
                self._load_count += 1
                self._loaded.set()
            elif told["method"] == "Network.requestWillBeSent":
                self.requested_urls.append(told["params"]["request"]["url"])
            elif told["method"] == "Log.entryAdded":
                self.messages.append(told["params"]["entry"]["text"])
            elif told["method"] == "Page.javascriptDialogOpening":
                self.messages.append(f"dialog: {told['params']['message']}")


class HeadlessChromium:
    """A running browser."""

    def __init__(self, session: aiohttp.ClientSession, port: int) -> None:
        self._session = session
        self._port = port
        self._pages: list[BrowserPage] = []

    async def open_page(self, url: str, *, loads: int = 1) -> BrowserPage:
        """A new tab, loaded; `loads` times where the page redirects by itself."""
        async with self._session.put(f"http://127.0.0.1:{self._port}/json/new?about:blank") as answer:
            target = await answer.json(content_type=None)
        socket = await self._session.ws_connect(target["webSocketDebuggerUrl"], max_msg_size=0)
        page = BrowserPage(socket)
        self._pages.append(page)
        for domain in ("Page", "Network", "Log", "Runtime", "Accessibility"):
            await page.call(f"{domain}.enable")
        await page.open_url(url, loads=loads)
        return page

    async def close_pages(self) -> None:
        for page in self._pages:
            await page.close()


@asynccontextmanager
async def run_chromium(folder: Path) -> AsyncIterator[HeadlessChromium]:
    """A browser without cookies or history, whose files lie in `folder`."""
    process = await asyncio.create_subprocess_exec(
        "chromium",
        *FLAGS,
        f"--user-data-dir={folder / 'browser'}",
        "about:blank",
        stdout=asyncio.subprocess.DEVNULL,
        stderr=asyncio.subprocess.DEVNULL,
        env={**os.environ, "HOME": str(folder)},
        process_group=0,
    )
    try:
        port = await asyncio.to_thread(_wait_for_port, folder / "browser" / "DevToolsActivePort")
        async with aiohttp.ClientSession() as session:
            browser = HeadlessChromium(session, port)
            try:
                yield browser
            finally:
                await browser.close_pages()
    finally:
        os.killpg(process.pid, 9)
        await process.wait()


def _wait_for_port(file: Path) -> int:
    def read_port() -> int:
        lines = file.read_text(encoding="ascii").splitlines() if file.exists() else []
        return int(lines[0]) if lines else 0

    return wait_until(read_port, timeout_seconds=WITHIN_SECONDS, what="chromium's port")
