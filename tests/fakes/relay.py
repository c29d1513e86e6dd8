"""One caller's connection through the proxy, and its own connection upstream: requests one by one, faults where told.

    read request -> [hold | cut | answer here] -> write upstream -> read reply -> [hold | cut] -> write reply -> next request

A watch is passed on piece by piece, everything else when it is whole, so that a lost reply is lost entirely.
"""

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import suppress
from pathlib import Path

from tests.fakes.exchanges import Exchange, ExchangeLog
from tests.fakes.faults import ProxyFault, ProxyRule, api_status
from tests.fakes.http1 import (
    BrokenMessageError,
    HttpHead,
    chunk,
    chunk_content,
    content,
    ends_with_connection,
    read_head,
    reply_pieces,
    request_pieces,
)
from tests.fakes.transcript import TranscribedCall

Streams = tuple[asyncio.StreamReader, asyncio.StreamWriter]

EXPIRED = "expired"
ANSWERED = "answered"


class CutError(Exception):
    """The caller's connection has to be closed without an answer; carries the reason."""


class RelayConnection:
    """Serves one caller until it or the upstream leaves, or a fault cuts the line."""

    def __init__(
        self,
        caller: Streams,
        left: asyncio.Event,
        *,
        dial: Callable[[], Awaitable[Streams]],
        book: ExchangeLog,
        transcript: Path | None,
    ) -> None:
        self._reader, self._writer = caller
        self._left = left
        self._dial = dial
        self._book = book
        self._transcript = transcript
        self._upstream: Streams | None = None

    async def serve(self) -> None:
        """One request after the other; afterwards both connections are closed."""
        try:
            while await self._serve_one():
                pass
        except (BrokenMessageError, OSError):
            self._writer.transport.abort()
        finally:
            if self._upstream:
                self._upstream[1].transport.abort()
            self._writer.close()
            with suppress(OSError):
                await self._writer.wait_closed()

    async def _serve_one(self) -> bool:
        """Serve the next request; false when the connection is over."""
        head = await read_head(self._reader)
        if head is None:
            return False
        if not head.start[2].startswith("HTTP/1."):
            raise BrokenMessageError(f"no request: {head.raw[:60]!r}")
        if head.fields.get("expect", "").lower() == "100-continue":
            self._writer.write(b"HTTP/1.1 100 Continue\r\n\r\n")
        pieces = [piece async for piece in request_pieces(self._reader, head)]
        exchange = self._book.begin(head.start[0], head.start[1], content(head, pieces))
        verb = None
        if self._transcript and exchange.method == "POST":
            verb = TranscribedCall(self._transcript, exchange.target, exchange.body)
        goes_on = False
        try:
            goes_on = await self._race(exchange, self._relay(exchange, verb, head, pieces))
        finally:
            # Here a cancelled connection ends too: the proxy was closed.
            self._book.end(exchange, "proxy closed")
            if verb and exchange.outcome != ANSWERED:
                verb.lost(exchange.outcome)
        return goes_on

    async def _race(self, exchange: Exchange, relay: Awaitable[bool]) -> bool:
        """Relay unless the caller leaves or the exchange is stopped before."""
        task, left = asyncio.ensure_future(relay), asyncio.ensure_future(self._left.wait())
        exchange.cancel = task.cancel
        if exchange.outcome:  # stopped before there was a task to cancel
            task.cancel()
        try:
            await asyncio.wait({task, left}, return_when=asyncio.FIRST_COMPLETED)
            if not task.done():
                exchange.stop("caller left")
            goes_on = await task
            exchange.outcome = exchange.outcome or ANSWERED
        except CutError as error:
            exchange.outcome = str(error)
        except (BrokenMessageError, OSError) as error:
            exchange.outcome = f"connection lost: {error}"
        except asyncio.CancelledError:
            if not exchange.outcome:
                raise
        else:
            return goes_on
        finally:
            task.cancel()
            left.cancel()
            await asyncio.wait({task, left})
        if exchange.outcome == EXPIRED:
            await self._say_expired()
        else:
            self._writer.transport.abort()
        return False

    async def _relay(
        self, exchange: Exchange, verb: TranscribedCall | None, head: HttpHead, pieces: list[bytes]
    ) -> bool:
        rule = exchange.rule
        if rule and rule.fault is ProxyFault.CUT:
            self._book.apply_fault(rule)
            raise CutError("cut before forwarding")
        if rule and rule.fault is ProxyFault.ANSWER:
            await self._answer(exchange, verb, rule)
            return not head.wants_close
        if rule and rule.fault is ProxyFault.HOLD:
            await self._book.pause(rule)
        reply, answer = await self._ask_upstream(head, pieces)
        exchange.status = reply.status
        if exchange.is_watch:
            await self._stream(exchange, reply, answer)
        else:
            await self._pass_on(exchange, verb, reply, [piece async for piece in answer])
        return not (head.wants_close or reply.wants_close or ends_with_connection(reply, exchange.method))

    async def _answer(self, exchange: Exchange, verb: TranscribedCall | None, rule: ProxyRule) -> None:
        exchange.status = rule.status
        if verb:
            verb.answered(rule.status, rule.reply.partition(b"\r\n\r\n")[2])
        self._book.apply_fault(rule)
        await self._write(rule.reply)

    async def _ask_upstream(self, head: HttpHead, pieces: list[bytes]) -> tuple[HttpHead, AsyncIterator[bytes]]:
        """Send the request; returns the final reply's head, and its body to be read."""
        try:
            reader, writer = await self._connected()
            writer.write(b"".join([head.raw, *pieces]))
            await writer.drain()
            while reply := await read_head(reader):
                if reply.status >= 200:
                    return reply, reply_pieces(reader, reply, head.start[0])
        except OSError as error:
            raise CutError(f"upstream failed: {error}") from error
        raise CutError("upstream closed without a reply")

    async def _connected(self) -> Streams:
        if self._upstream and (self._upstream[0].at_eof() or self._upstream[1].is_closing()):
            self._upstream[1].transport.abort()
            self._upstream = None
        if not self._upstream:
            self._upstream = await self._dial()
        return self._upstream

    async def _pass_on(
        self, exchange: Exchange, verb: TranscribedCall | None, reply: HttpHead, pieces: list[bytes]
    ) -> None:
        await self._hold_or_cut(exchange.rule)
        if verb:
            verb.heard(reply.status, reply, pieces)
        await self._write(b"".join([reply.raw, *pieces]))

    async def _stream(self, exchange: Exchange, reply: HttpHead, pieces: AsyncIterator[bytes]) -> None:
        """Pass a watch on as it comes; frozen, nothing more is read or written."""
        await self._hold_or_cut(exchange.rule)
        await self._book.thawed(exchange)
        await self._write(reply.raw)
        exchange.is_between_events = reply.is_chunked
        self._expire_if_asked(exchange)
        async for piece in pieces:
            await self._book.thawed(exchange)
            exchange.is_between_events = reply.is_chunked and chunk_content(piece).endswith(b"\n")
            await self._write(piece)
            self._expire_if_asked(exchange)

    def _expire_if_asked(self, exchange: Exchange) -> None:
        if exchange.is_expired and exchange.is_between_events:
            exchange.stop(EXPIRED)

    async def _hold_or_cut(self, rule: ProxyRule | None) -> None:
        """Called when the upstream has answered and the caller has received nothing yet."""
        if rule and rule.fault is ProxyFault.HOLD_REPLY:
            await self._book.pause(rule)
        if rule and rule.fault is ProxyFault.CUT_AFTER_WRITE:
            self._book.apply_fault(rule)
            raise CutError("cut after the write")

    async def _say_expired(self) -> None:
        """End a watch as an API server does that no longer has its history."""
        event = json.dumps({"type": "ERROR", "object": api_status(410)}).encode() + b"\n"
        await self._write(chunk(event) + chunk(b""))

    async def _write(self, raw: bytes) -> None:
        self._writer.write(raw)
        await self._writer.drain()
