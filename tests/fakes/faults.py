"""What a proxy can be told to do to requests: the rule itself (`ProxyRule`), and the methods that create one (`FaultBuilder`).

    rule = proxy.when("POST", r"/binding$").cut_after_write(times=1)
    slow = proxy.when("GET", r"^/api/v1/pods").hold()      # until slow.release()

The pattern is searched in path and query; `when(..., body=b"...")` wants a pattern found in the body, too. The first rule that
matches a request and has turns left takes it.
"""

import json
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum


class ProxyFault(Enum):
    """What happens to a request."""

    HOLD = "hold before forwarding"
    HOLD_REPLY = "hold the reply"
    ANSWER = "answer here"
    CUT = "cut before forwarding"
    CUT_AFTER_WRITE = "cut after the write"


def _nothing() -> None:
    """Stands in for `ProxyRule.changed` until a proxy has registered the rule."""


@dataclass(slots=True, eq=False)
class ProxyRule:
    """One fault, for the requests that match; `hits` counts how often it happened."""

    method: str
    pattern: re.Pattern[str]
    fault: ProxyFault
    left: int | None = None
    seconds: float | None = None
    reply: bytes = b""
    status: int = 0
    hits: int = 0
    released: bool = False
    body: re.Pattern[bytes] | None = None
    changed: Callable[[], object] = field(default=_nothing, repr=False)

    def matches(self, method: str, target: str, body: bytes) -> bool:
        is_meant = self.left != 0 and self.method in {method, "*"} and bool(self.pattern.search(target))
        return is_meant and (self.body is None or bool(self.body.search(body)))

    def use_turn(self) -> None:
        """Use up one turn."""
        if self.left is not None:
            self.left -= 1

    def release(self) -> None:
        """Release what is held, and hold nothing from now on. Safe from any thread."""
        self.released = True
        self.changed()

    def stop(self) -> None:
        """Match no further request."""
        self.left = 0


@dataclass(frozen=True, slots=True)
class FaultBuilder:
    """Requests that match; each method says what happens to the next `times` of them, or to all."""

    method: str
    pattern: str
    register: Callable[[ProxyRule], None]
    body: bytes | None = None

    def hold(self, *, times: int | None = None) -> ProxyRule:
        """Keep the request here until `release`; nothing is forwarded before."""
        return self._rule(ProxyFault.HOLD, times)

    def hang(self, *, times: int | None = None) -> ProxyRule:
        """Never answer and never forward."""
        return self.hold(times=times)

    def delay(self, seconds: float, *, times: int | None = None) -> ProxyRule:
        """Forward after a delay."""
        return self._rule(ProxyFault.HOLD, times, seconds=seconds)

    def hold_reply(self, *, times: int | None = None) -> ProxyRule:
        """Forward, and keep the upstream's reply until `release`."""
        return self._rule(ProxyFault.HOLD_REPLY, times)

    def delay_reply(self, seconds: float, *, times: int | None = None) -> ProxyRule:
        """Forward, and pass the reply on after a delay."""
        return self._rule(ProxyFault.HOLD_REPLY, times, seconds=seconds)

    def cut(self, *, times: int | None = None) -> ProxyRule:
        """Close the caller's connection; nothing is forwarded."""
        return self._rule(ProxyFault.CUT, times)

    def cut_after_write(self, *, times: int | None = None) -> ProxyRule:
        """Forward, wait for the upstream's whole reply, and close the caller's connection instead of passing it on."""
        return self._rule(ProxyFault.CUT_AFTER_WRITE, times)

    def answer(
        self,
        status: int,
        body: bytes | Mapping[str, object] | Sequence[object] | None = None,
        *,
        headers: Mapping[str, str] | None = None,
        times: int | None = None,
    ) -> ProxyRule:
        """Answer here; a Kubernetes Status unless a body is given."""
        if body is None:
            body = api_status(status)
        written = body if isinstance(body, bytes) else json.dumps(body).encode()
        fields = {"Content-Type": "application/json"} | dict(headers or {}) | {"Content-Length": str(len(written))}
        lines = [f"HTTP/1.1 {status} Told", *(f"{name}: {value}" for name, value in fields.items())]
        return self._rule(
            ProxyFault.ANSWER, times, reply="\r\n".join([*lines, "", ""]).encode() + written, status=status
        )

    def gone(self, *, times: int | None = None) -> ProxyRule:
        """Answer 410: the requested version is too old."""
        return self.answer(410, times=times)

    def _rule(
        self, fault: ProxyFault, times: int | None, *, seconds: float | None = None, reply: bytes = b"", status: int = 0
    ) -> ProxyRule:
        pattern = re.compile(self.pattern)
        body = None if self.body is None else re.compile(self.body)
        rule = ProxyRule(
            self.method, pattern, fault, left=times, seconds=seconds, reply=reply, status=status, body=body
        )
        self.register(rule)
        return rule


def api_status(code: int) -> dict[str, object]:
    """A Kubernetes Status of failure."""
    about = {"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure", "code": code}
    return about | {"reason": REASONS.get(code, "InternalError"), "message": f"{code}, as the test asked"}


REASONS = {
    401: "Unauthorized",
    403: "Forbidden",
    404: "NotFound",
    409: "Conflict",
    410: "Expired",
    422: "Invalid",
    429: "TooManyRequests",
    503: "ServiceUnavailable",
    504: "Timeout",
}
