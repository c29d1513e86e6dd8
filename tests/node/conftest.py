"""One node for the whole suite, with the product on it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.node.containerd import Driver
from tests.node.node import NAMESPACE, Node
from tests.node.surroundings import Surroundings

HERE = Path(__file__).parent
SHAPE = "second-scheduler"


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark what lies in this folder, before `-m` looks at marks: no test can forget it."""
    for item in items:
        if item.path.is_relative_to(HERE):
            item.add_marker(pytest.mark.node)


@pytest.fixture(scope="session")
def bare_node() -> Iterator[Node]:
    """Ready, and nothing of ours on it."""
    with Node.boot(Surroundings.inside(), Driver(mounts={})) as running:
        yield running


@pytest.fixture(scope="session")
def node(bare_node: Node) -> Node:
    """The recommended install on it, both programs of the scheduler's pod ready."""
    bare_node.install(SHAPE)
    bare_node.wait_ready("app.kubernetes.io/name=vrampack-scheduler", namespace=NAMESPACE)
    return bare_node
