"""Pods and nodes that vanish during a bind, or come back as others: nothing stays held for them, and nothing is oversold."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest

from tests.e2e.bench import BINDING, BindBench, bind_bench, read_cards_of
from tests.e2e.in_cluster import ExtenderProgram
from tests.e2e.verb_calls import get_inspect, read_ledger_states
from tests.fakes.proxy_thread import FaultProxyThread
from tests.support.control_plane.cluster import ControlPlane
from tests.support.manifest_builders import cards_annotation, published_card


@pytest.fixture
def bench(
    cluster: ControlPlane, extender: Callable[..., ExtenderProgram], api_proxy: FaultProxyThread
) -> Iterator[BindBench]:
    with bind_bench(cluster, extender, api_proxy) as made:
        yield made


@pytest.fixture
def thread() -> Iterator[ThreadPoolExecutor]:
    """For a call that is under way while the test does something else."""
    with ThreadPoolExecutor() as pool:
        yield pool


def test_a_pod_deleted_during_its_bind_is_bound_nowhere_and_holds_nothing(
    bench: BindBench, thread: ThreadPoolExecutor
) -> None:
    pod = bench.create_pod()
    held = bench.api.when("POST", BINDING).hold(times=1)
    answer = thread.submit(bench.bind, pod)
    bench.api.reached(held)
    bench.delete("a")
    held.release()

    assert "nothing was bound" in answer.result()
    bench.recounted()


def test_pod_deleted_before_its_bind_is_answered_frees_its_place(bench: BindBench, thread: ThreadPoolExecutor) -> None:
    """The Binding was written, and the pod is gone before the extender learns of either."""
    pod = bench.create_pod()
    held = bench.api.when("POST", BINDING).hold_reply(times=1)
    answer = thread.submit(bench.bind, pod)
    bench.api.reached(held)
    bench.delete("a")
    held.release()

    answer.result()
    bench.recounted()
    assert bench.bind(bench.create_pod("b", 15)) == ""


def test_pod_bound_to_a_deleted_node_counts_again_when_the_node_returns(
    bench: BindBench, thread: ThreadPoolExecutor, excused: list[str]
) -> None:
    """The API server binds to a node that is gone. The answer says so, and the pod counts if the node comes back."""
    excused.append("pod default/a")
    pod = bench.create_pod(units=9)
    held = bench.api.when("POST", BINDING).hold(times=1)
    answer = thread.submit(bench.bind, pod)
    bench.api.reached(held)
    bench.cluster.request_ok("DELETE", "/api/v1/nodes/gpu-0")
    bench.cluster.wait_until(lambda: [each["name"] for each in get_inspect(bench.extender)["nodes"]] == ["gpu-1"])
    held.release()

    assert answer.result() == ""
    assert bench.read_node_of() == "gpu-0"
    bench.recounted()
    bench.cluster.add_node("gpu-0", cards=read_cards_of("gpu-0"))
    bench.cluster.wait_until(
        lambda: read_ledger_states(bench.extender) == {"a on gpu-0/0": "bound, 9"}, what="it counts again"
    )
    assert "no card with enough free memory" in bench.bind(bench.create_pod("b", 9))
    bench.recounted()


def test_old_pod_counts_on_every_card_of_a_node_that_returns_with_other_cards(
    bench: BindBench, excused: list[str]
) -> None:
    """Its old pod may be on any card now, so it counts on every card."""
    excused.append("pod default/a")
    bench.bound(units=9)
    bench.cluster.request_ok("DELETE", "/api/v1/nodes/gpu-0")
    bench.cluster.add_node(
        "gpu-0", cards=cards_annotation(published_card(0, uuid="GPU-new-0"), published_card(1, uuid="GPU-new-1"))
    )

    bench.cluster.wait_until(
        lambda: read_ledger_states(bench.extender) == {"a on gpu-0/0": "bound, 9", "a on gpu-0/1": "bound, 9"},
        what="the pod counts on both new cards",
    )
    assert "no card with enough free memory" in bench.bind(bench.create_pod("b", 9))
    assert bench.bind(bench.create_pod("c", 6)) == ""
    bench.recounted()
