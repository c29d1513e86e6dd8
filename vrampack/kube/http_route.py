"""How a server is reached: directly or through a proxy, with or without TLS.

A proxy is asked for a tunnel to an https server (CONNECT), and TLS with the server goes through it. Requests to an http
server are sent to the proxy itself, each with the server's address in its first line.
"""

from __future__ import annotations

import base64
from collections.abc import Sequence
from dataclasses import dataclass
from urllib.parse import SplitResult, unquote, urlsplit

from vrampack.kube.aio_client import Configuration

PORTS = {"https": 443, "http": 80}


@dataclass(frozen=True, slots=True)
class HttpRoute:
    """The same for every connection of a client."""

    address: tuple[str, int]
    """Host and port of the server, or of the proxy."""
    tls_name: str | None
    """The name in the certificate at that address; None: no TLS."""
    target_prefix: str
    """Of the target in a request's first line."""
    header_lines: Sequence[str]
    """Of every request."""
    tunnel_request: bytes = b""
    """Asks the proxy for a tunnel; empty: none is needed."""
    tunnel_tls_name: str = ""
    """The name in the certificate of the server behind the tunnel."""


def find_route(configuration: Configuration) -> HttpRoute:
    """Raises `ConnectionError` for an invalid address of the server or of its proxy."""
    server = _parse_url("server", configuration.host)
    tls_name: str | None = (configuration.tls_server_name or server.hostname) if server.scheme == "https" else None
    netloc, path = server.netloc.rpartition("@")[2], server.path.rstrip("/")
    host_line = f"Host: {netloc}"
    if not configuration.proxy:
        return HttpRoute(_read_address(server), tls_name, path, [host_line])
    proxy = _parse_url("proxy", configuration.proxy)
    address = _read_address(proxy)
    proxy_tls_name = proxy.hostname if proxy.scheme == "https" else None
    authorization = _build_authorization(proxy)
    if tls_name is None:
        return HttpRoute(address, proxy_tls_name, f"http://{netloc}{path}", [host_line, *authorization])
    host, port = _read_address(server)
    target = f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
    lines = [f"CONNECT {target} HTTP/1.1", f"Host: {target}", *authorization, "", ""]
    return HttpRoute(address, proxy_tls_name, path, [host_line], "\r\n".join(lines).encode(), tls_name)


def _parse_url(role: str, text: str) -> SplitResult:
    """`role` is whose address it is, for the error. That shows no password."""
    try:
        url = urlsplit(text)
        is_valid = url.scheme in PORTS and url.hostname and url.hostname.encode("idna") and url.port != 0
    except ValueError:
        is_valid = False
    if not is_valid:
        raise ConnectionError(f"{role} {text.rpartition('@')[2]}: not a URL as https://HOST:PORT or http://HOST:PORT")
    return url


def _read_address(url: SplitResult) -> tuple[str, int]:
    return url.hostname or "", url.port or PORTS[url.scheme]


def _build_authorization(proxy: SplitResult) -> list[str]:
    """The header for the user and password in the proxy's URL, if there are any."""
    if proxy.username is None:
        return []
    pair = f"{unquote(proxy.username)}:{unquote(proxy.password or '')}"
    return [f"Proxy-Authorization: Basic {base64.b64encode(pair.encode()).decode()}"]
