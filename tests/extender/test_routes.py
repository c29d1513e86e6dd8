"""The paths of the service: what each answers with, ready or not, and what no request can do."""

from __future__ import annotations

import json
import logging
from typing import Any

import pytest
from prometheus_client.parser import text_string_to_metric_families

from extender.http.routes import build_health_app
from extender.http.timed_verbs import MAX_BODY_BYTES
from tests.support import recorded_requests
from tests.support.in_memory_extender import PREFIX, InMemoryExtender, call_asgi

FILTER = recorded_requests.read_recording("filter.ncc-true.scheduler-1.36.3.json")
BIND = recorded_requests.read_recording("bind.ncc-true_ignoredByScheduler-true.json")


@pytest.fixture
def extender() -> InMemoryExtender:
    """The recorded cluster."""
    return InMemoryExtender(recorded_requests.recorded_nodes(), recorded_requests.recorded_pods())


async def test_verbs_report_that_the_lists_are_incomplete(extender: InMemoryExtender) -> None:
    extender.readiness.problem = "the list of pods is not complete yet"
    filtered = await extender.post_verb("filter", FILTER)
    assert (filtered.status, filtered.json()["NodeNames"]) == (200, [])
    assert extender.readiness.problem in filtered.json()["Error"]
    prioritized = await extender.post_verb("prioritize", FILTER)
    assert (prioritized.status, list(prioritized.json())) == (503, ["error"])
    bound = await extender.post_verb("bind", BIND)
    assert bound.status == 200
    assert extender.readiness.problem in bound.json()["Error"]
    assert extender.memory.gets == []


async def test_readyz_follows_the_problem_and_healthz_does_not(extender: InMemoryExtender) -> None:
    for problem, status in (("", 200), ("stopping", 503)):
        extender.readiness.problem = problem
        ready = await extender.get_path("/readyz")
        assert (ready.status, problem in ready.body.decode()) == (status, True)
        assert (await extender.get_path("/healthz")).status == 200


@pytest.mark.parametrize(
    ("method", "path", "status"),
    [
        ("GET", f"{PREFIX}/filter", 405),
        ("POST", "/filter", 404),
        ("POST", f"{PREFIX}/filter/", 404),
        ("GET", f"{PREFIX}/preempt", 405),
        ("POST", f"{PREFIX}/inspect", 405),
        ("GET", f"{PREFIX}/inspect/gpu-node-0/x", 404),
        ("GET", "/docs", 404),
        ("GET", "/redoc", 404),
        ("GET", "/openapi.json", 404),
        ("GET", "/", 404),
    ],
)
async def test_unserved_paths_and_methods_are_answered_404_or_405(
    extender: InMemoryExtender, method: str, path: str, status: int
) -> None:
    assert (await call_asgi(extender.app, method, path, b"{}")).status == status


@pytest.mark.parametrize("verb", ["filter", "prioritize", "bind", "preempt"])
@pytest.mark.parametrize("method", ["GET", "PUT", "DELETE"])
async def test_a_verb_is_called_by_post(extender: InMemoryExtender, verb: str, method: str) -> None:
    reply = await call_asgi(extender.app, method, f"{PREFIX}/{verb}", FILTER)
    assert (reply.status, reply.headers["allow"]) == (405, "POST")
    assert reply.json() == {"error": "call a verb by POST"}


async def test_other_paths_name_the_allowed_method(extender: InMemoryExtender) -> None:
    reply = await call_asgi(extender.app, "POST", f"{PREFIX}/inspect")
    assert (reply.status, reply.headers["allow"], reply.json()) == (405, "GET", {"detail": "Method Not Allowed"})


@pytest.mark.parametrize("verb", ["filter", "prioritize", "bind", "preempt"])
async def test_no_verb_is_reached_through_the_health_listener(extender: InMemoryExtender, verb: str) -> None:
    app = build_health_app(extender.service)
    assert (await call_asgi(app, "POST", f"{PREFIX}/{verb}", FILTER)).status == 404
    assert (await call_asgi(app, "GET", f"{PREFIX}/inspect")).status == 404
    assert (await call_asgi(app, "GET", "/healthz")).status == 200


@pytest.mark.parametrize("verb", ["filter", "prioritize", "bind", "preempt"])
async def test_a_body_over_the_cap_is_413(extender: InMemoryExtender, verb: str) -> None:
    before = extender.state()
    reply = await extender.post_verb(verb, b" " * (MAX_BODY_BYTES + 1))
    assert (reply.status, reply.json()) == (413, {"error": f"the body is larger than {MAX_BODY_BYTES} bytes"})
    assert extender.state() == before


async def test_a_body_at_the_cap_is_read(extender: InMemoryExtender) -> None:
    reply = await extender.post_verb("filter", FILTER + b" " * (MAX_BODY_BYTES - len(FILTER)))
    assert (reply.status, reply.json()["Error"]) == (200, "")


async def test_a_caller_that_disconnects_is_no_internal_error(
    extender: InMemoryExtender, caplog: pytest.LogCaptureFixture
) -> None:
    async def receive() -> dict[str, Any]:
        return {"type": "http.disconnect"}

    async def send(message: Any) -> None:  # noqa: ANN401 - an ASGI message
        assert message.get("status") != 500

    scope = {"type": "http", "method": "POST", "path": f"{PREFIX}/filter", "headers": [], "query_string": b""}
    await extender.app({**scope, "root_path": "", "http_version": "1.1"}, receive, send)
    assert [record for record in caplog.records if record.levelno >= logging.WARNING] == []


async def test_a_running_pod_that_is_resized_in_place_passes_where_it_runs(extender: InMemoryExtender) -> None:
    """`filler-0` holds 11 of 15 units on gpu-node-0: they must not be asked for a second time."""
    running = next(pod for pod in recorded_requests.recorded_pods() if pod["metadata"]["name"] == "filler-0")
    body = {"Pod": running, "Nodes": None, "NodeNames": ["gpu-node-1", "gpu-node-0"]}
    reply = await extender.post_verb("filter", json.dumps(body).encode())
    assert reply.json()["NodeNames"] == ["gpu-node-0"]


async def test_inspect_answers_in_gpushares_format(extender: InMemoryExtender) -> None:
    """Their names and nesting, sorted; 11 + 4 units on card 0 of gpu-node-0."""
    everything = (await extender.get_path(f"{PREFIX}/inspect")).json()
    assert [node["name"] for node in everything["nodes"]] == ["gpu-node-0", "gpu-node-1"]
    one = (await extender.get_path(f"{PREFIX}/inspect/gpu-node-0")).json()
    assert one == {"nodes": everything["nodes"][:1]}
    node = one["nodes"][0]
    assert (node["totalGPU"], node["usedGPU"]) == (15, 15)
    (card,) = node["devs"]
    assert (card["id"], card["totalGPU"], card["usedGPU"]) == (0, 15, 15)
    pods = [(pod["namespace"], pod["name"], pod["usedGPU"]) for pod in card["pods"]]
    assert pods == [("default", "binpack-1", 4), ("default", "filler-0", 11)]
    assert {"uuid", "model", "healthy"} <= set(card)


async def test_inspect_of_an_unknown_node_is_404(extender: InMemoryExtender) -> None:
    reply = await extender.get_path(f"{PREFIX}/inspect/nope")
    assert reply.status == 404
    assert "nope" in reply.json()["error"]


async def test_metrics_parse_and_carry_no_pod_and_no_card(extender: InMemoryExtender) -> None:
    await extender.post_verb("filter", FILTER)
    families = list(text_string_to_metric_families((await extender.get_path("/metrics")).body.decode()))
    assert all(family.name.startswith("vrampack_") for family in families)
    labels = {label for family in families for sample in family.samples for label in sample.labels}
    assert not labels & {"pod", "card", "uid", "container", "namespace"}
    rejected = next(family for family in families if family.name == "vrampack_extender_rejected_nodes")
    counted = {sample.labels["reason"]: sample.value for sample in rejected.samples if sample.name.endswith("_total")}
    assert counted["no card with enough free memory"] == 1


VICTIM = recorded_requests.recorded_pods()[0]["metadata"]["uid"]


@pytest.mark.parametrize(
    "binding",
    [
        {"PodName": "nobody", "PodNamespace": "default", "PodUID": VICTIM, "Node": "gpu-node-1"},
        {"PodName": "filler-0", "PodNamespace": "other", "PodUID": VICTIM, "Node": "gpu-node-1"},
        {"PodName": "filler-1", "PodNamespace": "default", "PodUID": VICTIM, "Node": "gpu-node-0"},
        {"PodName": "filler-0", "PodNamespace": "default", "PodUID": VICTIM, "Node": "gpu-node-1"},
        {"PodName": "filler-0", "PodNamespace": "default", "PodUID": VICTIM, "Node": "gpu-node-0"},
        {"PodName": "filler-0", "PodNamespace": "default", "PodUID": "other", "Node": "gpu-node-0"},
    ],
)
@pytest.mark.parametrize("is_known_to_the_api", [True, False])
async def test_no_bind_frees_or_moves_what_another_pod_holds(
    binding: dict[str, str],
    is_known_to_the_api: bool,  # noqa: FBT001 - a table
) -> None:
    """A call that names somebody else's uid, or a pod that is not there, changes nothing."""
    extender = InMemoryExtender(recorded_requests.recorded_nodes(), recorded_requests.recorded_pods())
    if not is_known_to_the_api:
        extender.memory.pods.clear()
    before = extender.state()
    reply = await extender.post_verb("bind", json.dumps(binding).encode())
    assert reply.status == 200
    assert reply.json()["Error"]
    assert extender.memory.bindings == []
    assert extender.state() == before
