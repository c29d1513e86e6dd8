"""One node at a time, with the product on it. The driver is simulated: a library, and a file that says what it sees.

Tests of one containerd share a node; `containerd_release.py` says how a test chooses.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.fakes.driver import build as driver_programs
from tests.fakes.driver.driver import FakeCard, FakeDriver
from tests.fakes.nvml.build import LIBRARY, build_stub
from tests.fakes.nvml.machine import OLD_DRIVER, FakeNvmlMachine
from tests.fakes.nvml.profiles import PROFILES
from tests.node.containerd import DriverMounts
from tests.node.containerd_release import DEBIAN_1_6, RELEASES, ContainerdRelease
from tests.node.controlplane import NODE_NAME
from tests.node.node import NAMESPACE, LiveNode
from tests.node.node_site import NodeSite
from tests.node.nvidia_spec import write_nvidia_spec

HERE = Path(__file__).parent
SUITES = {HERE / "recipes": pytest.mark.recipes, HERE / "release": pytest.mark.release}
"""Folders of other suites, which need what recipes install, or the files of a release."""
SHAPE, OLD_SHAPE, EXACT = "second-scheduler", "before-1.36", "admission/exact"
TIMEOUT_SECONDS = 300
"""The first test of a node has its boot and the install in its time, and other programs may run beside it."""
GPU_LABEL = "nvidia.com/gpu.present"
"""What NVIDIA's operator, or node feature discovery, says of a node; agents go where it says so."""


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--containerd",
        action="append",
        metavar="RELEASE",
        help="only tests of the nodes with this containerd; may be given again",
    )


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """A test of a node runs once for each containerd of its mark, and on Debian's without a mark."""
    if "release" in metafunc.fixturenames:
        mark = metafunc.definition.get_closest_marker("containerd")
        chosen = mark.args if mark else (DEBIAN_1_6,)
        metafunc.parametrize("release", chosen, scope="session", ids=[release.name for release in chosen])


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Mark what lies in this folder, before `-m` looks at marks: no test can forget it.

    Of those that share a node the ones without the agent come first: a node that had a plugin is never again one that had
    none. Last come those that put another install in its place.
    """
    wanted = config.getoption("containerd")
    others = [item for item in items if wanted and _find_release(item) not in wanted]
    if others:
        config.hook.pytest_deselected(items=others)
        items[:] = [item for item in items if item not in set(others)]
    for item in items:
        if item.path.is_relative_to(HERE):
            of_others = [mark for folder, mark in SUITES.items() if item.path.is_relative_to(folder)]
            item.add_marker(of_others[0] if of_others else pytest.mark.node)
            if item.get_closest_marker("timeout") is None:
                item.add_marker(pytest.mark.timeout(TIMEOUT_SECONDS))
    items.sort(key=_node_order)


def _find_release(item: pytest.Item) -> str | None:
    """The containerd of the node that this test is on; Debian's for one that is on no node."""
    if not isinstance(item, pytest.Function) or "release" not in item.fixturenames:
        return DEBIAN_1_6.name
    release = item.callspec.params["release"]
    return release.name if isinstance(release, ContainerdRelease) else None


def _node_order(item: pytest.Item) -> tuple[int, int]:
    """By the node that it shares, then by what must be there."""
    if (
        not isinstance(item, pytest.Function)
        or not item.path.is_relative_to(HERE)
        or "release" not in item.fixturenames
    ):
        return (-1, 0)
    needs = [name in item.fixturenames for name in ("installed", "node")]
    place = len(needs) + 1 if "chart" in item.fixturenames else sum(needs)
    return (RELEASES.index(item.callspec.params["release"]), place)


@pytest.fixture(scope="session")
def around() -> NodeSite:
    return NodeSite.inside_namespaces()


@pytest.fixture(scope="session")
def cards(around: NodeSite) -> FakeNvmlMachine:
    """What the driver sees; a test that changes it puts it back with `holds(PROFILES["v100"])` and `heal()`."""
    return FakeNvmlMachine(around.site / "nvml" / "state", gpus=PROFILES["v100"], driver=OLD_DRIVER)


@pytest.fixture(scope="session")
def driver(around: NodeSite) -> Iterator[FakeDriver]:
    """The driver's own files, for programs that take memory: the card of the founding story."""
    (gpu,) = PROFILES["v100"]
    fakes = [FakeCard(gpu.uuid, gpu.memory_mib, gpu.minor)]
    server = driver_programs.build_fake_driver(around.site).server
    with FakeDriver(server, around.site / "driver", cards=fakes, version=OLD_DRIVER) as serving:
        yield serving


@pytest.fixture(scope="session")
def bare_node(
    around: NodeSite, release: ContainerdRelease, cards: FakeNvmlMachine, driver: FakeDriver
) -> Iterator[LiveNode]:
    """Ready, and nothing of ours on it but the driver: in every container, or described for CDI as NVIDIA's tools do."""
    library = build_stub(around.site) / LIBRARY
    mounts = {
        f"/usr/lib/x86_64-linux-gnu/{LIBRARY}": library,
        # Not read-only: the driver keeps limits, and this one has no other place for them.
        "/run/vrampack-nvml": cards.state.parent,
        "/usr/bin/nvidia-smi": driver_programs.build_fake_driver(around.site).smi,
        "/dev/nvidiactl": driver.control,
        "/dev/nvidia0": driver.card_file(driver.cards[0]),
        "/dev/nvidia-uvm": driver.uvm,
    }
    if not release.is_driver_everywhere:
        write_nvidia_spec(cards.gpus, mounts)
    with LiveNode.boot(around, release, DriverMounts(mounts)) as running:
        yield running


@pytest.fixture(scope="session")
def installed(bare_node: LiveNode) -> LiveNode:
    """The recommended install, both programs of the scheduler's pods ready. No node is known to have cards.

    Where every container has the driver, the card is told by the environment: that is a component.
    """
    release = bare_node.release
    bare_node.install(OLD_SHAPE if release.kubernetes else SHAPE, *([EXACT] if release.is_driver_everywhere else []))
    bare_node.wait_ready("app.kubernetes.io/name=vrampack-scheduler", namespace=NAMESPACE)
    return bare_node


@pytest.fixture(scope="session")
def restarts_until_ready(installed: LiveNode) -> list[int]:
    """Start the agent. Returns how often kubelet had to restart each of its containers until all were ready."""
    agent = "app.kubernetes.io/name=vrampack-agent"
    installed.kubectl("label", "node", NODE_NAME, f"{GPU_LABEL}=true")
    installed.wait_ready(agent, namespace=NAMESPACE)
    pods = installed.list_objects("pods", "-n", NAMESPACE, "-l", agent)
    return [status["restartCount"] for pod in pods for status in pod["status"]["containerStatuses"]]


@pytest.fixture(scope="session")
def node(installed: LiveNode, restarts_until_ready: list[int]) -> LiveNode:
    """The same, with the agent at work."""
    return installed


@pytest.fixture(autouse=True)
def _empty_afterwards(request: pytest.FixtureRequest) -> Iterator[None]:
    """The next test finds namespace `default` without pods: what a test leaves would hold cards."""
    yield
    if "bare_node" in request.fixturenames:
        running: LiveNode = request.getfixturevalue("bare_node")
        running.clear()
