"""The client of the API server: what each status means, what a cut or a time-out means, and the one Binding."""

from __future__ import annotations

import asyncio

import pytest

from tests.fakes.faults import api_status
from tests.kube.client_harness import ANNOTATIONS, SOON, ClientHarness
from tests.support.manifest_builders import pod_manifest
from tests.support.recorded_api_calls import open_api
from vrampack.kube.api_caller import FOREIGN_CODE
from vrampack.kube.errors import NoAnswerError, RefusedError, ResourceExpiredError
from vrampack.simulator.apiserver import ApiServer

KICK = {"vrampack.dev/retry": "1-1"}


async def test_a_binding_writes_node_and_annotations_in_one_step(setting: ClientHarness) -> None:
    """The answer is 201 with a Status of success, which is neither a Binding nor an error."""
    before = setting.server.resource_version
    await setting.bind()
    pod = setting.server.get("pods", "p")
    assert pod["spec"]["nodeName"] == "n"
    assert pod["metadata"]["annotations"] == ANNOTATIONS
    assert setting.server.resource_version == before + 1
    assert setting.proxy.count("*", "") == 1
    assert setting.calls.made == [("create", "pods/binding", 201)]


async def test_a_binding_without_annotations_writes_only_the_node(setting: ClientHarness) -> None:
    await setting.api.bind("default", "p", setting.pod["metadata"]["uid"], "n", {}, timeout_seconds=SOON)
    assert "annotations" not in setting.server.get("pods", "p")["metadata"]
    assert setting.bound_to() == "n"


async def test_a_pod_of_another_uid_is_refused_and_nothing_is_written(setting: ClientHarness) -> None:
    with pytest.raises(RefusedError, match="Precondition failed: UID") as caught:
        await setting.bind(uid="another")
    assert (caught.value.status, caught.value.reason) == (409, "Conflict")
    assert setting.bound_to() is None
    assert setting.calls.made == [("create", "pods/binding", 409)]


LEASE = {"metadata": {"name": "vrampack-usage-n"}, "spec": {"holderIdentity": "n"}}


async def test_a_lease_is_merged_or_created_if_missing(setting: ClientHarness) -> None:
    setting.proxy.when("PATCH", "/apis/coordination.k8s.io/v1/namespaces/ns/leases/vrampack-usage-n$").answer(404)
    lease = {"kind": "Lease", "metadata": {"name": "vrampack-usage-n"}}
    setting.proxy.when("POST", "/apis/coordination.k8s.io/v1/namespaces/ns/leases$").answer(201, lease)
    await setting.api.write_lease("ns", "vrampack-usage-n", LEASE, timeout_seconds=SOON)
    assert setting.calls.made == [("patch", "leases", 404), ("create", "leases", 201)]


async def test_a_lease_that_may_not_be_written_is_not_created(setting: ClientHarness) -> None:
    setting.proxy.when("PATCH", "/leases/").answer(403)
    with pytest.raises(RefusedError):
        await setting.api.write_lease("ns", "vrampack-usage-n", LEASE, timeout_seconds=SOON)
    assert setting.calls.made == [("patch", "leases", 403)]


async def test_a_second_binding_is_refused(setting: ClientHarness) -> None:
    await setting.bind()
    with pytest.raises(RefusedError, match='already assigned to node "n"') as caught:
        await setting.bind(node="m")
    assert caught.value.status == 409
    assert setting.bound_to() == "n"


async def test_a_pod_that_is_gone_is_refused(setting: ClientHarness) -> None:
    with pytest.raises(RefusedError) as caught:
        await setting.bind(name="gone")
    assert caught.value.status == 404


async def test_an_annotation_is_set_through_the_status_and_nothing_else_changes(setting: ClientHarness) -> None:
    await setting.api.patch_pod_status("default", "p", setting.pod["metadata"]["uid"], KICK, timeout_seconds=SOON)
    pod = setting.server.get("pods", "p")
    assert pod["metadata"]["annotations"] == KICK
    assert (pod["spec"], pod["status"]) == (setting.pod["spec"], setting.pod["status"])
    assert setting.calls.made == [("patch", "pods/status", 200)]


async def test_a_condition_is_set_and_the_others_stay(setting: ClientHarness) -> None:
    uid = setting.pod["metadata"]["uid"]
    for kind, reason in (("Theirs", "A"), ("Ours", "A"), ("Ours", "B")):
        condition = {"type": kind, "status": "False", "reason": reason}
        pod = await setting.api.patch_pod_condition("default", "p", uid, condition, timeout_seconds=SOON)
    assert pod.metadata.uid == uid
    conditions = setting.server.get("pods", "p")["status"]["conditions"]
    assert {each["type"]: each["reason"] for each in conditions} == {"Theirs": "A", "Ours": "B"}


async def test_the_status_of_a_pod_of_another_uid_is_refused(setting: ClientHarness) -> None:
    with pytest.raises(RefusedError, match=r"metadata\.uid") as caught:
        await setting.api.patch_pod_status("default", "p", "another", KICK, timeout_seconds=SOON)
    assert caught.value.status == 422
    assert "annotations" not in setting.server.get("pods", "p")["metadata"]


async def test_a_status_patch_that_times_out_has_an_unknown_outcome(setting: ClientHarness) -> None:
    """On a connection that is open already: to make one may take longer than that."""
    await setting.api.get_pod("default", "p", timeout_seconds=5)
    setting.proxy.when("PATCH", "/status$").hang()
    with pytest.raises(NoAnswerError, match="patch pods/status: TimeoutError"):
        await setting.api.patch_pod_status("default", "p", "u", KICK, timeout_seconds=0.05)


@pytest.mark.parametrize("status", [400, 401, 403, 404, 409, 422, 429])
async def test_4xx_is_a_definite_refusal(setting: ClientHarness, status: int) -> None:
    setting.proxy.when("POST", "/binding$").answer(status)
    with pytest.raises(RefusedError, match="as the test asked") as caught:
        await setting.bind()
    assert caught.value.status == status
    assert not isinstance(caught.value, ResourceExpiredError)


async def test_410_is_reported_as_an_expired_version(setting: ClientHarness) -> None:
    setting.proxy.when("GET", "/pods").gone()
    with pytest.raises(ResourceExpiredError) as caught:
        await setting.api.list_page("pods", limit=500)
    assert (caught.value.status, caught.value.reason) == (410, "Expired")


@pytest.mark.parametrize("status", [500, 502, 503, 504, 302])
async def test_5xx_and_malformed_answers_have_an_unknown_outcome(setting: ClientHarness, status: int) -> None:
    setting.proxy.when("POST", "/binding$").answer(status)
    with pytest.raises(NoAnswerError, match=str(status)):
        await setting.bind()
    assert setting.calls.made == [("create", "pods/binding", status)]


BODIES = [b"", b"<html>no</html>", b"[]", b"null", b'{"message":7}', b"\xff", b"[" * 100_000]


@pytest.mark.parametrize("body", BODIES, ids=lambda body: ascii(body[:20]))
@pytest.mark.parametrize("status", [200, 201, 400, 401, 403, 404, 409, 413, 422])
async def test_an_answer_of_another_server_has_an_unknown_outcome(
    setting: ClientHarness, status: int, body: bytes
) -> None:
    """A balancer that finds no server says 404, and a firewall's page comes with any status."""
    setting.proxy.when("POST", "/binding$").answer(status, body)
    with pytest.raises(NoAnswerError) as caught:
        await setting.bind()
    assert len(str(caught.value)) < 300
    assert setting.calls.made == [("create", "pods/binding", FOREIGN_CODE)]


async def test_overload_is_said_in_plain_text(setting: ClientHarness) -> None:
    """By the API server's protection, before it does anything."""
    setting.proxy.when("POST", "/binding$").answer(429, b"Too many requests, please try again later.\n")
    with pytest.raises(RefusedError, match="429: Too many requests"):
        await setting.bind()


PAUSES: dict[str, tuple[int, str | None, float]] = {
    "overloaded": (429, "7", 7),
    "not ready": (503, "7", 7),
    "any error of a server": (500, "7", 7),
    "longer than we ever wait": (429, "86400", 30),
    "digits without end": (503, "9" * 5000, 30),
    "a date": (503, "Fri, 27 Nov 2026 20:00:00 GMT", 0),
    "negative": (429, "-7", 0),
    "none": (429, None, 0),
    "a refusal": (403, "7", 0),
}


@pytest.mark.parametrize(("status", "text", "seconds"), PAUSES.values(), ids=PAUSES)
async def test_the_pause_that_a_server_asks_for_is_in_the_error(
    setting: ClientHarness, status: int, text: str | None, seconds: float
) -> None:
    """As client-go reads it: of 429 and 5xx, in whole seconds."""
    setting.proxy.when("*", "").answer(status, headers=None if text is None else {"retry-after": text})
    for call in (setting.bind(), setting.watch_to_its_end(), setting.api.list_page("pods", limit=1)):
        with pytest.raises((RefusedError, NoAnswerError)) as caught:
            await call
        assert isinstance(caught.value, RefusedError | NoAnswerError)
        assert caught.value.retry_after_seconds == seconds


async def test_a_pod_is_gone_only_if_the_api_server_says_so_of_this_pod(setting: ClientHarness) -> None:
    missing = api_status(404) | {"details": {"kind": "pods", "name": "p"}}
    others = (b"default backend - 404", b"404 page not found\n", api_status(404), missing | {"kind": "Error"})
    for body in (*others, missing | {"details": {"kind": "pods", "name": "q"}}):
        answered = setting.proxy.when("GET", "/pods/p$").answer(404, body, times=1)
        with pytest.raises(NoAnswerError):
            await setting.api.get_pod("default", "p", timeout_seconds=SOON)
        assert answered.hits == 1
    setting.proxy.when("GET", "/pods/p$").answer(404, missing)
    assert await setting.api.get_pod("default", "p", timeout_seconds=SOON) is None


async def test_a_connection_cut_before_the_write_has_an_unknown_outcome(setting: ClientHarness) -> None:
    setting.proxy.when("POST", "/binding$").cut()
    with pytest.raises(NoAnswerError):
        await setting.bind()
    assert setting.bound_to() is None
    assert setting.calls.made == [("create", "pods/binding", 0)]
    assert setting.proxy.count("POST", "/binding$") == 1


async def test_a_connection_cut_after_the_write_has_an_unknown_outcome_and_no_retry(setting: ClientHarness) -> None:
    lost = setting.proxy.when("POST", "/binding$").cut_after_write()
    with pytest.raises(NoAnswerError):
        await setting.bind()
    assert setting.bound_to() == "n"
    assert lost.hits == 1


async def test_a_binding_that_times_out_has_an_unknown_outcome(setting: ClientHarness) -> None:
    """On a connection that is open already: to make one may take longer than that."""
    await setting.api.get_pod("default", "p", timeout_seconds=5)
    setting.proxy.when("POST", "/binding$").hang()
    with pytest.raises(NoAnswerError, match="TimeoutError"):
        await setting.bind(timeout_seconds=0.05)
    assert setting.calls.made == [("get", "pods", 200), ("create", "pods/binding", 0)]


async def test_a_refused_connection_has_an_unknown_outcome() -> None:
    async with ApiServer() as server:
        url = server.url
    async with open_api(url) as api:
        with pytest.raises(NoAnswerError):
            await api.get_pod("default", "p", timeout_seconds=SOON)


async def test_get_pod_returns_none_for_a_missing_pod(setting: ClientHarness) -> None:
    pod = await setting.api.get_pod("default", "p", timeout_seconds=SOON)
    assert pod is not None
    assert pod.metadata.uid == setting.pod["metadata"]["uid"]
    assert await setting.api.get_pod("default", "q", timeout_seconds=SOON) is None


NO_PODS = [
    b"",
    b"[]",
    b'{"metadata":{"name":"p","uid":"7"}}',
    b'{"kind":"Status","metadata":{},"status":"Failure","code":503}',
    b'{"kind":"Pod","metadata":{"name":"q","uid":"7"}}',
    b'{"kind":"Pod","metadata":{"name":"p","uid":7}}',
    b'{"kind":"Pod","metadata":{"name":"p","uid":"\xff"}}',
]


@pytest.mark.parametrize("body", NO_PODS, ids=ascii)
async def test_a_look_up_that_returns_no_pod_counts_as_unanswered(setting: ClientHarness, body: bytes) -> None:
    setting.proxy.when("GET", "/pods/p$").answer(200, body)
    with pytest.raises(NoAnswerError, match="get pod"):
        await setting.api.get_pod("default", "p", timeout_seconds=SOON)


async def test_a_refused_look_up_is_not_a_missing_pod(setting: ClientHarness) -> None:
    setting.proxy.when("GET", "/pods/p$").answer(403)
    with pytest.raises(RefusedError):
        await setting.api.get_pod("default", "p", timeout_seconds=SOON)


async def test_a_name_stays_within_its_path(setting: ClientHarness) -> None:
    """`p/status` would be another call, `..` another object."""
    for name in ("p/status", "../pods/p", "p?x=1", "p#x"):
        assert await setting.api.get_pod("default", name, timeout_seconds=SOON) is None


async def test_a_list_comes_in_pages(setting: ClientHarness) -> None:
    setting.server.create({"kind": "Node", "metadata": {"name": "n"}})
    await setting.api.list_page("nodes", limit=500)
    await setting.api.list_page("pods", limit=2)
    with pytest.raises(RefusedError, match="invalid continue token"):
        await setting.api.list_page("pods", limit=2, token="a/b&c=d")
    assert [exchange.target for exchange in setting.proxy.matching("GET", "")] == [
        "/api/v1/nodes?limit=500",
        "/api/v1/pods?limit=2",
        "/api/v1/pods?limit=2&continue=a%2Fb%26c%3Dd",
    ]


async def test_get_node_returns_none_for_a_missing_node(setting: ClientHarness) -> None:
    setting.server.create({"kind": "Node", "metadata": {"name": "n", "annotations": {"a": "b"}}})
    node = await setting.api.get_node("n", timeout_seconds=SOON)
    assert node is not None
    assert (node.metadata.name, node.metadata.annotations) == ("n", {"a": "b"})
    assert await setting.api.get_node("m", timeout_seconds=SOON) is None
    setting.proxy.when("GET", "/nodes/n").answer(403)
    with pytest.raises(RefusedError):
        await setting.api.get_node("n", timeout_seconds=SOON)
    setting.proxy.clear()
    setting.proxy.when("GET", "/nodes/n").answer(200, {"metadata": 7})
    with pytest.raises(NoAnswerError, match="get nodes"):
        await setting.api.get_node("n", timeout_seconds=SOON)


async def test_a_node_patch_keeps_other_keys(setting: ClientHarness) -> None:
    """Null takes an annotation away; a resourceVersion that is over refuses all of it."""
    old = setting.server.create({"kind": "Node", "metadata": {"name": "n", "annotations": {"a": "1", "b": "2"}}})
    await setting.api.patch_node("n", {"metadata": {"annotations": {"b": None, "c": "3"}}}, timeout_seconds=SOON)
    assert setting.server.get("nodes", "n")["metadata"]["annotations"] == {"a": "1", "c": "3"}
    version = {"resourceVersion": old["metadata"]["resourceVersion"]}
    with pytest.raises(RefusedError) as refusal:
        await setting.api.patch_node("n", {"metadata": version | {"annotations": {"a": "9"}}}, timeout_seconds=SOON)
    assert refusal.value.status == 409
    assert setting.server.get("nodes", "n")["metadata"]["annotations"] == {"a": "1", "c": "3"}
    assert ("patch", "nodes", 200) in setting.calls.made


async def test_a_pod_is_made_and_deleted(setting: ClientHarness) -> None:
    """The uid of another pod changes nothing."""
    await setting.api.create_pod("default", pod_manifest("made", 4), timeout_seconds=SOON)
    uid = setting.server.get("pods", "made", namespace="default")["metadata"]["uid"]
    with pytest.raises(RefusedError) as refusal:
        await setting.api.delete_pod("default", "made", "another", timeout_seconds=SOON)
    assert refusal.value.status == 409
    await setting.api.delete_pod("default", "made", uid, timeout_seconds=SOON)
    assert await setting.api.get_pod("default", "made", timeout_seconds=SOON) is None


async def test_an_event_is_created_in_its_namespace(setting: ClientHarness) -> None:
    event = {"metadata": {"generateName": "p."}, "involvedObject": {"namespace": "default", "name": "p"}, "reason": "R"}
    await setting.api.create_event("default", event, timeout_seconds=SOON)
    assert [each["reason"] for each in setting.server.list_events()] == ["R"]
    assert setting.calls.made == [("create", "events", 201)]


async def test_a_cancelled_call_is_cancelled_and_counted(setting: ClientHarness) -> None:
    held = setting.proxy.when("POST", "/binding$").hold()
    task = asyncio.create_task(setting.bind())
    await setting.proxy.reached(held)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert setting.calls.made == [("create", "pods/binding", 0)]
