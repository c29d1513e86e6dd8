"""Who may read the pages: one browser, which presented the key that the command printed.

    the URL with the key --once--> a cookie --> every page

A page of another origin can make a browser send requests here, and its owner can make a DNS name resolve to this address. So
the Host must be this listener, the origin that a browser reports must be this listener's, and the cookie is never sent with a
request that another site caused. For a browser, other ports of this machine are the same site: pages there may link here, but
can neither load nor frame anything.
"""

from __future__ import annotations

import secrets
from http import HTTPStatus
from http.cookies import CookieError, SimpleCookie

from starlette.datastructures import Headers, MutableHeaders
from starlette.requests import Request
from starlette.responses import HTMLResponse, PlainTextResponse, RedirectResponse, Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

OPEN_PATH = "/open"
KEY_BYTES = 32
SAFE_METHODS = ("GET", "HEAD")
PAGE_POLICY = "default-src 'none'; style-src 'self'; form-action 'self'; frame-src 'self'; frame-ancestors 'none'; base-uri 'none'"
"""Pages load nothing from elsewhere, send nothing elsewhere, and run no script."""
OWN_SITES = ("same-origin", "none")
"""`Sec-Fetch-Site` of requests from our own pages, and of a typed address."""
OPENED_PAGE = (
    '<!DOCTYPE html><html lang="en"><meta charset="utf-8"><meta http-equiv="refresh" content="0;url=/">'
    '<title>vrampack</title><p><a href="/">To the cluster</a></p></html>\n'
)
"""Leads to the cluster from our own page. The browser would attribute a redirect to the page on which the URL was clicked, for
example a terminal in the browser, and follow it without the cookie."""
HEADERS = {
    "Content-Security-Policy": PAGE_POLICY,
    "Cache-Control": "no-store",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    # With `no-referrer` browsers send `null` as the Origin of our own forms.
    "Referrer-Policy": "same-origin",
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "SAMEORIGIN",
}
"""The headers of every answer, unless a route set its own."""


class AccessGate:
    """The key, the session and the address of one listener."""

    def __init__(self, port: int) -> None:
        self._hosts = frozenset(f"{name}:{port}" for name in ("127.0.0.1", "localhost"))
        self._key: str | None = secrets.token_urlsafe(KEY_BYTES)
        self._session = secrets.token_urlsafe(KEY_BYTES)
        self._port = port

    @property
    def cookie_name(self) -> str:
        """Unique for each port: browsers send cookies to every port of a host, so two of these commands must not share a name."""
        return f"vrampack-ui-{self._port}"

    @property
    def url(self) -> str:
        """The URL that opens the pages; its key works once."""
        return f"http://127.0.0.1:{self._port}{OPEN_PATH}?key={self._key or ''}"

    def exchange_key(self, key: str) -> str | None:
        """The session for the key, once; None for any other text, and for later uses."""
        if self._key is None or not secrets.compare_digest(key.encode(), self._key.encode()):
            return None
        self._key = None
        return self._session

    def has_session(self, cookie_header: str) -> bool:
        """Whether the request's `Cookie` carries the session."""
        try:
            found = SimpleCookie(cookie_header).get(self.cookie_name)
        except CookieError:
            return False
        return found is not None and secrets.compare_digest(found.value.encode(), self._session.encode())

    def is_own_host(self, host: str) -> bool:
        return host.lower() in self._hosts

    def is_own_origin(self, origin: str) -> bool:
        """Whether the request comes from our own page. A sandboxed or local page sends `null`."""
        scheme, separator, host = origin.partition("://")
        return bool(separator) and scheme == "http" and self.is_own_host(host)


class GuardedApp:
    """The application behind the gate; every answer has `HEADERS`."""

    def __init__(self, app: ASGIApp, gate: AccessGate) -> None:
        self._app = app
        self._gate = gate

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        async def send_guarded(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = MutableHeaders(scope=message)
                for name, value in HEADERS.items():
                    headers.setdefault(name, value)
            await send(message)

        answer = self._refuse_stranger(scope) or self._open_session(scope)
        await (answer or self._app)(scope, receive, send_guarded)

    def _refuse_stranger(self, scope: Scope) -> Response | None:
        headers = Headers(scope=scope)
        if not self._gate.is_own_host(headers.get("host", "")):
            return _refuse("this address answers only under its own name, as the command printed it")
        origin = headers.get("origin")
        if origin is not None and not self._gate.is_own_origin(origin):
            return _refuse("a page of another origin sent this request")
        if scope["method"] not in SAFE_METHODS and origin is None:
            return _refuse("a change must send its Origin, as browsers do")
        if headers.get("sec-fetch-site", "none") not in OWN_SITES and headers.get("sec-fetch-dest") != "document":
            return _refuse("a page of another origin loads this page")
        return None

    def _open_session(self, scope: Scope) -> Response | None:
        """A redirect for the key, None for a request with the session, a refusal for all others."""
        is_known = self._gate.has_session(Headers(scope=scope).get("cookie", ""))
        if scope["path"] != OPEN_PATH:
            return None if is_known else _refuse("open the URL that the command printed; its key works once")
        if is_known:  # a browser that prefetched the URL, and then opened it
            return RedirectResponse("/", HTTPStatus.SEE_OTHER)
        session = self._gate.exchange_key(Request(scope).query_params.get("key", ""))
        if session is None:
            return _refuse("this key is wrong or was used already; start vrampack ui again for another")
        answer = HTMLResponse(OPENED_PAGE)
        answer.set_cookie(self._gate.cookie_name, session, path="/", httponly=True, samesite="strict")
        return answer


def _refuse(reason: str) -> Response:
    return PlainTextResponse(f"vrampack ui: {reason}\n", HTTPStatus.FORBIDDEN)
