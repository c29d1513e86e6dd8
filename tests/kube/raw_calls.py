"""Answers as bytes, and calls whose outcome is a word."""

from __future__ import annotations

import asyncio
import json

from tests.kube.byte_server import AfterReply
from vrampack.kube.client import Api
from vrampack.kube.errors import NoAnswerError, RefusedError, UnsentError
from vrampack.kube.watch_lag import WatchLag
from vrampack.kube.watch_reader import WatchReader

SOON = 5.0
KEEP, CLOSE, RESET = AfterReply
LIST_BYTES = 200_000
WRITTEN = "written"
NO_ANSWER = "NoAnswerError"
NOT_SENT = "UnsentError"
TIMED_OUT = "timed out"
BROKEN = "BrokenWatchError"
OK = b"HTTP/1.1 200 OK\r\n"
CREATED = b"HTTP/1.1 201 Created\r\n"
CHUNKED = b"Transfer-Encoding: chunked\r\n\r\n"
SUCCESS = b'{"kind":"Status","status":"Success"}'
SUCCESS_LENGTH = b"Content-Length: %d\r\n" % len(SUCCESS)
BOUND = CREATED + SUCCESS_LENGTH + b"\r\n" + SUCCESS


def refusal(status: int, message: str = "no") -> bytes:
    body = json.dumps({"kind": "Status", "reason": "Because", "message": message}, ensure_ascii=False).encode()
    return b"HTTP/1.1 %d No\r\nContent-Length: %d\r\n\r\n%b" % (status, len(body), body)


async def bind(api: Api, *, timeout_seconds: float = SOON) -> str:
    """How a Binding ended."""
    try:
        await api.bind("default", "p", "u", "n", {"a": "\u00fc"}, timeout_seconds=timeout_seconds)
    except UnsentError:
        return NOT_SENT
    except NoAnswerError as error:
        return TIMED_OUT if "TimeoutError" in str(error) else NO_ANSWER
    except RefusedError as error:
        return f"{type(error).__name__} {error}"
    return WRITTEN


def chunks(*bodies: bytes) -> bytes:
    """A chunk for each body; an empty body ends the answer."""
    return b"".join(b"%x\r\n%b\r\n" % (len(body), body) for body in bodies)


async def read_lines(api: Api, *, silence_seconds: float = SOON) -> tuple[list[bytes], str]:
    """The lines of a watch, and how it ended."""
    lines: list[bytes] = []
    try:
        async with api.watch("pods", "1", server_seconds=60, silence_seconds=silence_seconds) as stream:
            with WatchReader(stream, WatchLag("pods", clock=asyncio.get_running_loop().time)) as reader:
                while (line := await reader.read_line()) is not None:
                    lines.append(line)
    except (NoAnswerError, RefusedError) as error:
        return lines, type(error).__name__
    return lines, "ended"


async def list_pods(api: Api) -> str:
    """How a list of one page ended."""
    try:
        return (await api.list_page("pods", limit=1, max_bytes=LIST_BYTES)).decode()
    except UnsentError:
        return NOT_SENT
    except NoAnswerError:
        return NO_ANSWER
