"""Listen addresses as people write them, and other fields that several configurations have."""

from __future__ import annotations

import ipaddress
from typing import Annotated

from pydantic import AfterValidator, Field

MAX_PORT = 65535
MAX_SOCKET_PATH_BYTES = 100
"""Linux allows 107; the socket is created under a temporary name that is four bytes longer."""


def parse_address(text: str) -> tuple[str, int]:
    """Parse `HOST:PORT` or `[HOST]:PORT`, HOST an IP address or `localhost`. Raises `ValueError` with the fix."""
    host, separator, port = text.rpartition(":")
    host = host.removeprefix("[").removesuffix("]")
    if not separator or not (
        port.isascii() and port.isdecimal() and len(port) <= len(str(MAX_PORT)) and int(port) <= MAX_PORT
    ):
        raise ValueError(f"{text!r} is not HOST:PORT; give for example 127.0.0.1:12345")
    if host != "localhost":
        try:
            ipaddress.ip_address(host)
        except ValueError as error:
            raise ValueError(f"{text!r}: {host!r} is not an IP address; names may resolve to more than one") from error
    return host, int(port)


def is_loopback(address: str) -> bool:
    host, _ = parse_address(address)
    return host == "localhost" or ipaddress.ip_address(host).is_loopback


def _checked_address(text: str) -> str:
    parse_address(text)
    return text


def _checked_optional_address(text: str) -> str:
    return _checked_address(text) if text else text


def _checked_socket_path(text: str) -> str:
    if text and not (text.startswith("/") and len(text.encode()) <= MAX_SOCKET_PATH_BYTES):
        raise ValueError(f"{text!r} is not an absolute path of at most {MAX_SOCKET_PATH_BYTES} bytes")
    return text


ListenAddress = Annotated[str, AfterValidator(_checked_address), Field(examples=["127.0.0.1:12345"])]
OptionalListenAddress = Annotated[str, AfterValidator(_checked_optional_address), Field(examples=["127.0.0.1:12345"])]
OptionalSocketPath = Annotated[
    str, AfterValidator(_checked_socket_path), Field(examples=["/run/vrampack/agent-status.sock"])
]
ResourceName = Annotated[
    str,
    Field(
        pattern=r"^[a-z0-9]([-a-z0-9.]*[a-z0-9])?/[A-Za-z0-9]([-A-Za-z0-9_.]*[A-Za-z0-9])?$",
        examples=["aliyun.com/gpu-mem"],
    ),
]
OptionalNamespace = Annotated[
    str, Field(max_length=63, pattern=r"^([a-z0-9]([-a-z0-9]*[a-z0-9])?)?$", examples=["vrampack-system"])
]
