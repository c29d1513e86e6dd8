"""A greedy neighbour harms only itself: programs that take memory, held by the library, on a simulated driver.

Containers, kubelet, agent and library are real. The judge is what the driver counts, independently of the product.
"""

from __future__ import annotations

import json
import subprocess
from functools import partial

import pytest

from tests.fakes.driver.build import build_fake_driver
from tests.fakes.driver.driver import MIB, FakeDriver
from tests.fakes.nvml.machine import FakeNvmlMachine
from tests.node.card_agreement import list_container_starts
from tests.node.containerd_release import BUILT_2, DEBIAN_1_6
from tests.node.controlplane import NODE_NAME
from tests.node.memory_apps import APP, USED_MIB, an_app, in_use_mib
from tests.node.metrics import sum_metric
from tests.node.node import NAMESPACE, LiveNode
from tests.node.node_site import NodeSite
from tests.support.limit_cases import REFUSED

AGENT = "vrampack-agent"
GREEDY = "app-6g-v1"
LIMIT_MIB = 4301  # 16130 * 4 / 15, rounded down
AWAY_SECONDS = 20
QUERY = ("nvidia-smi", "--query-gpu=memory.total,memory.used,memory.free", "--format=csv,noheader,nounits")


def largest_mib(driver: FakeDriver) -> float:
    """The use of the process that uses most."""
    return max(driver.state().cards[0].by_process.values(), default=0) / MIB


def read_charged_bytes(node: LiveNode) -> dict[int, int]:
    """Bytes by process, as the agent counts."""
    (pod,) = node.list_objects("pods", "-n", NAMESPACE, "-l", f"app.kubernetes.io/name={AGENT}")
    said = node.exec(pod["metadata"]["name"], "vrampack", "limits", "status", "-o", "json", namespace=NAMESPACE)
    processes = [process for each in json.loads(said)["containers"] for process in each["processes"]]
    return {each["pid"]: each["heldBytes"] for each in processes}


def is_logged(node: LiveNode, pod: str, text: str) -> bool:
    """By the container that there is now."""
    return text in node.kubectl("logs", pod, check=False).stdout


@pytest.fixture
def apps(node: LiveNode, driver: FakeDriver) -> LiveNode:
    """Two pods of 4 units on one card, each with 3193 MiB in use."""
    node.wait(lambda: node.get("node", NODE_NAME)["metadata"]["labels"].get("vrampack.dev/enforcement") == "preload")
    node.apply(an_app(APP, str(USED_MIB), "--total", "--hold", replicas=2))
    node.wait_ready(f"name={APP}")
    node.wait(
        lambda: in_use_mib(driver) == 2 * USED_MIB, what=lambda: f"the driver has {in_use_mib(driver)} MiB in use"
    )
    return node


def test_each_container_sees_its_limit_and_the_node_sees_the_sum(
    apps: LiveNode, driver: FakeDriver, around: NodeSite, cards: FakeNvmlMachine
) -> None:
    for pod in (f"{APP}-0", f"{APP}-1"):
        assert apps.exec(pod, *QUERY).strip() == f"{LIMIT_MIB}, {USED_MIB}, {LIMIT_MIB - USED_MIB}"
        assert f"{USED_MIB}MiB /   {LIMIT_MIB}MiB" in apps.exec(pod, "nvidia-smi")
        apps.wait(
            partial(is_logged, apps, pod, f"{LIMIT_MIB} MBytes ({LIMIT_MIB * MIB} bytes)"), what=f"the limit, by {pod}"
        )

    smi = build_fake_driver(around.site).smi
    outside = subprocess.run([smi, "--control", driver.control, *QUERY[1:]], capture_output=True, text=True, check=True)
    assert outside.stdout.startswith(f"16130, {2 * USED_MIB}, ")
    driver.show_to(cards)
    try:
        used = "vrampack_agent_card_memory_used_bytes"
        apps.wait(lambda: sum_metric(apps, AGENT, used) == 2 * USED_MIB * MIB)
    finally:
        cards.clear_processes()
    assert sum_metric(apps, AGENT, "vrampack_agent_container_memory_used_bytes", pod=f"{APP}-0") == USED_MIB * MIB


@pytest.mark.containerd(DEBIAN_1_6, BUILT_2)
def test_a_container_over_its_limit_fails_alone(apps: LiveNode, driver: FakeDriver) -> None:
    """6 GiB in a container of 4 units: error 2, CrashLoopBackOff, and no other pod notices."""
    before = [list_container_starts(apps, f"{APP}-{number}") for number in (0, 1)]
    apps.apply(an_app(GREEDY, str(6 * 1024)))

    def waits() -> bool:
        (status,) = (apps.get("pod", f"{GREEDY}-0") or {"status": {}})["status"].get("containerStatuses", [{}])
        return bool(status.get("state", {}).get("waiting", {}).get("reason") == "CrashLoopBackOff")

    apps.wait(waits, what=lambda: apps.describe(f"name={GREEDY}"))
    # The next container may have begun by now, and have printed nothing yet.
    apps.wait(lambda: is_logged(apps, f"{GREEDY}-0", REFUSED), what="its error in its log")
    assert apps.exec(f"{APP}-0", "sh", "-c", "app 1200 || true").strip() == REFUSED

    assert [list_container_starts(apps, f"{APP}-{number}") for number in (0, 1)] == before
    assert [each.restarts for pod in before for each in pod] == [0, 0]
    assert in_use_mib(driver) == 2 * USED_MIB
    refused = "vrampack_agent_container_refused_allocations_total"
    apps.wait(lambda: sum_metric(apps, AGENT, refused, pod=f"{GREEDY}-0") >= 1)
    assert sum_metric(apps, AGENT, refused, pod=f"{APP}-1") == 0


@pytest.mark.timeout(600)
def test_the_limit_holds_while_the_agent_is_killed_and_absent(apps: LiveNode, driver: FakeDriver) -> None:
    """Killed, replaced, and gone for a while, while programs take and free; afterwards the agent's accounts equal the driver's."""
    apps.apply(an_app("churns", "--loop", "1000000", "512", "1024", "4000"))
    apps.wait_ready("name=churns")
    apps.wait(lambda: largest_mib(driver) >= 4000)

    apps.kill_agent()
    apps.wait(apps.agent_pids, what="the agent runs again")
    apps.kubectl("rollout", "restart", f"daemonset/{AGENT}", "-n", NAMESPACE)
    apps.kubectl("rollout", "status", f"daemonset/{AGENT}", "-n", NAMESPACE)

    away = '{"spec":{"template":{"spec":{"nodeSelector":{"nowhere":"yes"}}}}}'
    back = '{"spec":{"template":{"spec":{"nodeSelector":null}}}}'
    apps.kubectl("patch", f"daemonset/{AGENT}", "-n", NAMESPACE, "-p", away)
    apps.wait(lambda: not apps.agent_pids(), what="the agent is away")
    grows = apps.start_exec(f"{APP}-0", "app", "64")
    with pytest.raises(TimeoutError):
        apps.wait(lambda: largest_mib(driver) > LIMIT_MIB or grows.poll() is not None, AWAY_SECONDS)

    apps.kubectl("patch", f"daemonset/{AGENT}", "-n", NAMESPACE, "-p", back)
    apps.wait_ready(f"app.kubernetes.io/name={AGENT}", namespace=NAMESPACE)
    out, _ = grows.communicate(timeout=60)
    assert out.strip() == "allocated 64 MiB", "who waited is given it"

    apps.kubectl("delete", "statefulset", "churns", "--cascade=foreground")
    apps.wait(lambda: in_use_mib(driver) == 2 * USED_MIB)
    apps.wait(
        lambda: read_charged_bytes(apps) == driver.state().cards[0].by_process,
        what=lambda: f"{read_charged_bytes(apps)} {driver.state()}",
    )
