"""Two extenders at once, each behind a proxy of its own: what either answers is written into the one transcript."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from urllib.parse import urlsplit

from tests.e2e.in_cluster import (
    EXTENDER_PORT,
    SCHEDULER,
    URL_PREFIX,
    Address,
    ExtenderProgram,
    installed_configuration,
)
from tests.fakes.proxy_thread import FaultProxyThread
from tests.support.control_plane.cluster import ControlPlane


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


def calling(cluster: ControlPlane, extender: ExtenderProgram) -> dict[str, str]:
    """For the start of a scheduler: the shipped configuration, with another port where this extender has another."""
    assert extender.front
    shipped = installed_configuration(cluster, SCHEDULER)
    assert shipped.count(f":{EXTENDER_PORT}/") == 1
    return {"configuration": shipped.replace(f":{EXTENDER_PORT}/", f":{extender.front.port}/")}
