"""What a platform team does with a release, from its files alone: install, watch, look, upgrade, roll back, remove.

Each step prints how long it took, as `make release-node` shows.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from release.programs import build_program
from tests.fakes.nvml.machine import FakeNvmlMachine
from tests.node.card_agreement import list_container_starts, list_kubelet_holdings
from tests.node.chart_release import NodeChart, prepare_namespace
from tests.node.containerd_release import BUILT_2
from tests.node.injected_cards import assert_cards_injected
from tests.node.node import NAMESPACE, LiveNode
from tests.node.pods import FOUNDING_APP, FOUNDING_PODS, a_set
from tests.node.release.command_line import run_inspect, run_ui_page
from tests.node.release.release_files import ReleaseFiles
from tests.node.release.watched_node import read_monitoring_objects, watch_node
from tests.support.chart.kinds import list_definitions

pytestmark = [pytest.mark.containerd(BUILT_2), pytest.mark.timeout(1500)]

NEXT_TAG = "next"
VALUES = ("second-scheduler", "runtime-class", "monitoring")


@contextmanager
def step(title: str, began: float | None = None) -> Iterator[None]:
    began = time.monotonic() if began is None else began
    yield
    sys.stdout.write(f"{time.monotonic() - began:7.1f} s  {title}\n")
    sys.stdout.flush()


@pytest.fixture
def chart(bare_node: LiveNode, tmp_path: Path) -> NodeChart:
    """Helm 4, on a node whose cluster knows the kinds of Prometheus Operator."""
    prepare_namespace(bare_node)
    files = [option for path in list_definitions() if "monitoring" in path.name for option in ("-f", path)]
    bare_node.kubectl("apply", "--server-side", *files)
    return NodeChart(bare_node, "helm-4", tmp_path)


async def test_a_release_can_be_installed_and_operated_from_its_files_alone(
    chart: NodeChart, cards: FakeNvmlMachine, tmp_path: Path
) -> None:
    node, files = chart.node, ReleaseFiles.locate()
    flags = install(chart, files, tmp_path)
    (gpu,) = cards.gpus
    start_two_pods(node, files, tmp_path, {gpu.uuid: gpu.minor})
    before = list_starts(node)

    with step("monitors, rules and dashboards read from the cluster"):
        told = read_monitoring_objects(node)
    began = time.monotonic()
    async with watch_node(node, tmp_path, told) as watched:
        with step("two panels show what the records say, with the start of Prometheus", began):
            await watched.wait_for_panels()
        with step("VrampackCardUnhealthy fires, and arrives"):
            cards.fail("nvmlDeviceGetMemoryInfo", 999, gpu.uuid)
            await watched.wait_until_notified("VrampackCardUnhealthy", "firing")
        with step("VrampackCardUnhealthy clears"):
            cards.heal()
            await watched.wait_until_notified("VrampackCardUnhealthy", "resolved")
        assert watched.names == {"VrampackCardUnhealthy"}
    assert list_starts(node) == before

    with step("wheel installed in a new virtual environment"):
        program = files.install_wheel(tmp_path / "venv")
    with step("vrampack inspect, and the plugin"):
        for table in (run_inspect(program, node), files.run_plugin(node.cluster.admin, "-d")):
            assert all(pod in table for pod in FOUNDING_PODS), table
    with step("vrampack ui"):
        page = run_ui_page(program, node, tmp_path)
        assert all(pod in page for pod in FOUNDING_PODS), page

    next_name = f"{files.image_name.rpartition(':')[0]}:{NEXT_TAG}"
    node.containerd.load_images([], names={files.image_name: next_name})
    with step("helm upgrade, rolled out"):
        changes = ("--set", f"image.tag={NEXT_TAG}", "--set", "rules.share_with=same-namespace")
        chart.change("upgrade", files.chart, *flags, *changes)
        chart.wait_rolled_out()
    check_change(chart, before, next_name)
    with step("helm rollback, rolled out"):
        chart.change("rollback")
        chart.wait_rolled_out()
    check_change(chart, before, files.image_name)
    with step("helm uninstall, and what docs/chart.md says to delete"):
        chart.change("uninstall")
        chart.wait_until_images_are()
        node.kubectl("-n", NAMESPACE, "delete", "configmaps", "-l", "app.kubernetes.io/part-of=vrampack")
        node.kubectl("delete", "namespace", NAMESPACE)
    assert list_starts(node) == before
    assert list_leftovers(node) == ""


def install(chart: NodeChart, files: ReleaseFiles, folder: Path) -> list[str]:
    """Checked, imported, installed. The flags of its values."""
    node = chart.node
    with step("checksums"):
        assert files.check_sums() > 0
    with step("signature"):
        files.verify_signature(build_program("cosign"))
    with step("image imported"):
        node.containerd.load_images([files.image], names={})
    values = files.unpack_chart(folder / "chart")
    flags = [f"--values={values / name}.yaml" for name in VALUES]
    with step("helm install, rolled out"):
        chart.change("install", files.chart, *flags)
        chart.wait_rolled_out()
    chart.wait_until_images_are(files.image_name)
    return flags


def start_two_pods(node: LiveNode, files: ReleaseFiles, folder: Path, cards: dict[str, int]) -> None:
    """The release's example: both on one card, as kubelet and the containers say too."""
    with step("two pods share a card"):
        node.kubectl("apply", "-f", files.unpack_examples(folder / "manifests") / "statefulset.yaml")
        node.wait_ready(f"app={FOUNDING_APP}", timeout_seconds=120)
    assert list_kubelet_holdings() == {(name, uuid): 4 for name in FOUNDING_PODS for uuid in cards}
    for name in FOUNDING_PODS:
        assert_cards_injected(node, name, cards)


def check_change(chart: NodeChart, before: list[object], image: str) -> None:
    """The programs run this image, the pods noticed nothing, and a new pod starts."""
    node = chart.node
    with step("the replaced pods have ended"):
        chart.wait_until_images_are(image)
    with step("a new pod"):
        node.apply(a_set("new", main=4))
        node.wait_ready("name=new", timeout_seconds=120)
    node.kubectl("delete", "statefulset", "new", "--cascade=foreground")
    assert list_starts(node) == before


def list_starts(node: LiveNode) -> list[object]:
    return [list_container_starts(node, pod) for pod in FOUNDING_PODS]


def list_leftovers(node: LiveNode) -> str:
    """Of kinds without a namespace, and in kube-system: docs/install.md says that there is nothing."""
    kinds = (
        "clusterroles,clusterrolebindings,validatingadmissionpolicies,mutatingadmissionpolicies,"
        "validatingadmissionpolicybindings,mutatingadmissionpolicybindings,mutatingwebhookconfigurations"
    )
    label = ("-l", "app.kubernetes.io/part-of=vrampack", "-o", "name")
    of_cluster = node.kubectl("get", kinds, *label).stdout
    return of_cluster + node.kubectl("-n", "kube-system", "get", "rolebindings", *label).stdout
