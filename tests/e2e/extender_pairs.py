"""Two extenders at once, each behind a proxy of its own: what either answers is written into the one transcript."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from urllib.parse import urlsplit

from tests.e2e.in_cluster import URL_PREFIX, Address, ExtenderProgram
from tests.fakes.proxy_thread import FaultProxyThread


@contextmanager
def start_two_extenders(
    start: Callable[..., ExtenderProgram], transcript: Path, *, api: Address
) -> Iterator[tuple[ExtenderProgram, ExtenderProgram]]:
    """The first on the shipped port, the second on another one."""
    first, second = start(api=api), start(api=api, fronted=False)
    port = urlsplit(second.url).port
    assert port
    with FaultProxyThread(port, transcript=transcript) as front:
        yield first, replace(second, url=front.url + URL_PREFIX, front=front)
        front.settled()
