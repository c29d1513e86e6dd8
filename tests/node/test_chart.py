"""A release of the chart on a node with running pods: installed, upgraded, taken back, removed. The pods notice nothing.

The earlier release is the same build under another tag. With VRAMPACK_EARLIER it is another commit: a folder where its
sources are, `make image` done. `docs/decisions/0070` says why.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.fakes.driver.driver import FakeDriver
from tests.node.card_agreement import list_container_starts
from tests.node.chart_release import NodeChart, prepare_namespace
from tests.node.containerd_release import BUILT_2
from tests.node.controlplane import NODE_NAME
from tests.node.images import BUILT_NAME, CUDA_NAME, SHIPPED_NAME
from tests.node.memory_apps import APP, USED_MIB, an_app, in_use_mib
from tests.node.node import LiveNode
from tests.node.pods import a_set
from tests.support.chart.helm import RELEASES
from tests.support.chart.values import CHART
from tests.support.limit_cases import LIMIT_MIB, REFUSED

pytestmark = [pytest.mark.containerd(BUILT_2), pytest.mark.timeout(900)]

EARLIER_TAG = "earlier"
EARLIER_NAME = f"{SHIPPED_NAME.rpartition(':')[0]}:{EARLIER_TAG}"
EARLIER = os.environ.get("VRAMPACK_EARLIER", "")
RULE = ("--set", "rules.share_with=same-namespace")
TRIES = "tries"
RUNNING = (f"{APP}-0", f"{APP}-1", f"{TRIES}-0")


@pytest.fixture(params=RELEASES)
def chart(request: pytest.FixtureRequest, installed: LiveNode, tmp_path: Path) -> NodeChart:
    """The first of them takes over what kubectl has installed."""
    if EARLIER:
        installed.containerd.load_images([Path(EARLIER, "build/image/vrampack.tar")], names={})
    installed.containerd.load_images([], names={BUILT_NAME: EARLIER_NAME})
    prepare_namespace(installed)
    return NodeChart(installed, request.param, tmp_path)


def test_running_pods_are_undisturbed_by_release_changes(chart: NodeChart, driver: FakeDriver) -> None:
    """0 containers started again, 0 limits lifted, and a pod that comes in the middle of an upgrade or a rollback is bound.

    In the middle of a first installation no policy holds a pod yet, so those of the last step come after it.
    """
    node = chart.node
    chart.set_up(Path(EARLIER, "charts/vrampack") if EARLIER else CHART, "--set", f"image.tag={EARLIER_TAG}")
    chart.wait_rolled_out()
    chart.wait_until_images_are(EARLIER_NAME)
    start_apps(node, driver)
    before = list_starts(node)

    def change_to(change: Callable[[], None], name: str) -> None:
        change()
        node.apply(a_set(name, main=1))
        chart.wait_rolled_out()
        node.wait_ready(f"name={name}", timeout_seconds=120)
        node.apply(a_set(f"{name}-behind", main=1))
        node.wait_ready(f"name={name}-behind", timeout_seconds=120)
        assert list_starts(node) == before
        check_limits(node, driver)
        node.kubectl("delete", "statefulset", name, f"{name}-behind", "--cascade=foreground")

    change_to(lambda: chart.set_up(CHART, *RULE), "upgraded")
    chart.wait_until_images_are(SHIPPED_NAME)
    change_to(lambda: chart.change("rollback"), "taken-back")
    chart.wait_until_images_are(EARLIER_NAME)

    chart.change("uninstall")
    chart.wait_until_images_are()
    assert list_starts(node) == before
    assert in_use_mib(driver) == 2 * USED_MIB

    chart.set_up(CHART)
    change_to(chart.wait_rolled_out, "installed-again")
    chart.change("uninstall")


def start_apps(node: LiveNode, driver: FakeDriver) -> None:
    """Two that hold memory, and one that asks for more than its limit, again and again."""
    node.wait(lambda: node.get("node", NODE_NAME)["metadata"]["labels"].get("vrampack.dev/enforcement") == "preload")
    tries = a_set(TRIES, main=4)
    (container,) = tries["spec"]["template"]["spec"]["containers"]
    container |= {"image": CUDA_NAME, "command": ["sh", "-c", f"while :; do app {LIMIT_MIB + 100}; sleep 1; done"]}
    node.apply(an_app(APP, str(USED_MIB), "--total", "--hold", replicas=2), tries)
    for name in (APP, TRIES):
        node.wait_ready(f"name={name}", timeout_seconds=120)
    node.wait(lambda: in_use_mib(driver) == 2 * USED_MIB, what=lambda: f"{in_use_mib(driver)} MiB in use")


def list_starts(node: LiveNode) -> list[object]:
    return [list_container_starts(node, pod) for pod in RUNNING]


def check_limits(node: LiveNode, driver: FakeDriver) -> None:
    """Of the pods that hold memory, now; of the one that tries, at any time since it started."""
    for pod in RUNNING[:2]:
        assert node.exec(pod, "sh", "-c", "app 1200 || true").strip() == REFUSED
    assert in_use_mib(driver) == 2 * USED_MIB
    said = node.kubectl("logs", RUNNING[2]).stdout.splitlines()
    assert set(said) == {REFUSED}, said
