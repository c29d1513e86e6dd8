"""The record that a proxy keeps: every request and what became of it, the rules in force, and the waiters.

Everything here runs on the proxy's loop. Waiters wait for a state, never for a time: every change of the record wakes them all.
"""

import asyncio
import re
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial

from tests.fakes.faults import ProxyRule

_WATCH = re.compile(r"[?&]watch=(?:true|1)\b")


@dataclass(slots=True, eq=False)
class Exchange:
    """One request and what became of it."""

    method: str
    target: str
    body: bytes
    rule: ProxyRule | None = field(default=None, repr=False)
    status: int | None = None
    """The upstream's status, also when its reply was lost; or the status answered by the proxy."""

    outcome: str = ""
    """Empty while in flight; then `answered`, or why the caller got no whole answer."""

    is_between_events: bool = field(default=False, repr=False)
    """Of a watch: the caller has the reply's head and no part of an event."""

    is_expired: bool = field(default=False, repr=False)
    cancel: Callable[[], object] = field(default=lambda: None, repr=False)

    @property
    def is_watch(self) -> bool:
        return self.method == "GET" and bool(_WATCH.search(self.target))

    def stop(self, outcome: str) -> None:
        """End the request now, for this reason."""
        if not self.outcome:
            self.outcome = outcome
            self.cancel()


class ExchangeLog:
    """Exchanges and rules of one proxy."""

    def __init__(self) -> None:
        self.exchanges: list[Exchange] = []
        self.in_flight: set[Exchange] = set()
        self.frozen: list[re.Pattern[str]] = []
        self._rules: list[ProxyRule] = []
        self._changed = asyncio.Event()

    def add(self, rule: ProxyRule) -> None:
        """Add a rule behind those already in force."""
        loop = asyncio.get_running_loop()
        rule.changed = partial(loop.call_soon_threadsafe, self.notify)
        self._rules.append(rule)

    def clear(self) -> None:
        """End all rules and release the requests that they hold."""
        for rule in self._rules:
            rule.stop()
            rule.released = True
        self._rules.clear()
        self.notify()

    def begin(self, method: str, target: str, body: bytes) -> Exchange:
        """A request has arrived; the first rule that matches applies to it."""
        rule = next((rule for rule in self._rules if rule.matches(method, target, body)), None)
        if rule:
            rule.use_turn()
        exchange = Exchange(method, target, body, rule)
        self.exchanges.append(exchange)
        self.in_flight.add(exchange)
        self.notify()
        return exchange

    def end(self, exchange: Exchange, outcome: str) -> None:
        """The request is over. The first reason given is kept."""
        exchange.outcome = exchange.outcome or outcome
        self.in_flight.discard(exchange)
        self.notify()

    def apply_fault(self, rule: ProxyRule) -> None:
        """The rule's fault has happened once more."""
        rule.hits += 1
        self.notify()

    def matching(self, method: str, pattern: str) -> list[Exchange]:
        """All requests so far of a method (`*`: any) whose path and query match."""
        found = re.compile(pattern)
        return [e for e in self.exchanges if method in {e.method, "*"} and found.search(e.target)]

    async def pause(self, rule: ProxyRule) -> None:
        """Wait until the rule is released, or until its delay is over."""
        self.apply_fault(rule)
        with suppress(TimeoutError):
            await self.wait_until(lambda: rule.released, within=rule.seconds)

    async def thawed(self, exchange: Exchange) -> None:
        """Wait while the exchange's stream is frozen."""
        await self.wait_until(lambda: not any(pattern.search(exchange.target) for pattern in self.frozen))

    async def wait_until(self, holds: Callable[[], bool], *, within: float | None = None) -> None:
        """Wait until `holds` is true."""
        async with asyncio.timeout(within):
            while not holds():
                await self._changed.wait()

    def notify(self) -> None:
        """Something has changed: wake all waiters."""
        changed, self._changed = self._changed, asyncio.Event()
        changed.set()
