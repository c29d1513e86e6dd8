"""The client of the API server: what each status means, what a cut or a time-out means, and the one Binding."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import pytest

from tests.fakes.faults import api_status
from tests.fakes.proxy import FaultProxy
from tests.fakes.upstream import FakeUpstream
from tests.support.recorded_api_calls import RecordedApiCalls, open_api
from vrampack.kube.client import FOREIGN_CODE, Api
from vrampack.kube.credentials import load_credentials
from vrampack.kube.errors import CredentialsError, NoAnswerError, RefusedError, ResourceExpiredError, SilentWatchError
from vrampack.simulator.apiserver import ApiServer
from vrampack.simulator.kubeconfig import write_kubeconfig

KICK = {"vrampack.dev/retry": "1-1"}
SOON = 5.0
"""A deadline that no call should reach."""
ANNOTATIONS = {"vrampack.dev/allocation": "{}", "limit-mib.vrampack.dev/main": "4301"}


class ClientHarness:
    """A client behind a proxy in front of an API server with one pod."""

    def __init__(self, server: ApiServer, proxy: FaultProxy, api: Api, calls: RecordedApiCalls) -> None:
        self.server, self.proxy, self.api, self.calls = server, proxy, api, calls
        self.pod = server.create({"kind": "Pod", "metadata": {"name": "p"}, "spec": {"containers": [{"name": "main"}]}})

    async def bind(self, *, uid: str = "", name: str = "p", node: str = "n", timeout_seconds: float = SOON) -> None:
        uid = uid or self.pod["metadata"]["uid"]
        await self.api.bind("default", name, uid, node, ANNOTATIONS, timeout_seconds=timeout_seconds)

    async def watch_to_its_end(self, *, silence_seconds: float = SOON, on_line: Callable[[], object] = int) -> None:
        async with self.api.watch("pods", "1", server_seconds=60, silence_seconds=silence_seconds) as lines:
            while await lines.readany():
                on_line()

    def bound_to(self) -> str | None:
        node: str | None = self.server.get("pods", "p")["spec"].get("nodeName")
        return node


@pytest.fixture
async def setting() -> AsyncIterator[ClientHarness]:
    calls = RecordedApiCalls()
    async with (
        ApiServer() as server,
        FaultProxy(int(server.url.rpartition(":")[2])) as proxy,
        open_api(proxy.url, calls) as api,
    ):
        yield ClientHarness(server, proxy, api, calls)


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


async def test_the_status_of_a_pod_of_another_uid_is_refused(setting: ClientHarness) -> None:
    with pytest.raises(RefusedError, match=r"metadata\.uid") as caught:
        await setting.api.patch_pod_status("default", "p", "another", KICK, timeout_seconds=SOON)
    assert caught.value.status == 422
    assert "annotations" not in setting.server.get("pods", "p")["metadata"]


async def test_a_status_patch_that_times_out_has_an_unknown_outcome(setting: ClientHarness) -> None:
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
    setting.proxy.when("POST", "/binding$").hang()
    with pytest.raises(NoAnswerError, match="TimeoutError"):
        await setting.bind(timeout_seconds=0.05)
    assert setting.calls.made == [("create", "pods/binding", 0)]


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


async def test_an_event_is_created_in_its_namespace(setting: ClientHarness) -> None:
    event = {"metadata": {"generateName": "p."}, "involvedObject": {"namespace": "default", "name": "p"}, "reason": "R"}
    await setting.api.create_event("default", event, timeout_seconds=SOON)
    assert [each["reason"] for each in setting.server.list_events()] == ["R"]
    assert setting.calls.made == [("create", "events", 201)]


async def test_a_watch_gives_one_line_per_event_until_the_server_ends_it(setting: ClientHarness) -> None:
    since = str(setting.server.resource_version)
    async with setting.api.watch("pods", since, server_seconds=1, silence_seconds=SOON) as lines:
        setting.server.patch("pods", "p", {"metadata": {"labels": {"a": "b"}}})
        assert b'"type":"MODIFIED"' in await lines.readany()
        rest = b""
        while piece := await lines.readany():
            rest += piece
        assert b'"type":"BOOKMARK"' not in rest
    (watch,) = setting.proxy.matching("GET", "watch")
    query = f"watch=true&allowWatchBookmarks=true&resourceVersion={since}&timeoutSeconds=1"
    assert watch.target == f"/api/v1/pods?{query}"
    assert setting.calls.made == [("watch", "pods", 200)]


async def test_a_watch_that_is_silent_for_too_long_is_given_up(setting: ClientHarness) -> None:
    with pytest.raises(SilentWatchError, match=r"nothing received for 0\.1 s"):
        await setting.watch_to_its_end(silence_seconds=0.1)
    await setting.proxy.finished("GET", "watch")


async def test_a_watch_without_a_response_counts_as_silent(setting: ClientHarness) -> None:
    setting.proxy.freeze_watches()
    with pytest.raises(SilentWatchError):
        async with setting.api.watch("pods", "1", server_seconds=60, silence_seconds=0.1):
            pass


WATCH_ERRORS: dict[int, type[Exception]] = {410: ResourceExpiredError, 403: RefusedError, 500: NoAnswerError}


@pytest.mark.parametrize(("status", "error"), WATCH_ERRORS.items())
async def test_a_refused_watch_raises_the_error_for_its_status(
    setting: ClientHarness, status: int, error: type[Exception]
) -> None:
    setting.proxy.when("GET", "watch").answer(status)
    with pytest.raises(error):
        async with setting.api.watch("pods", "1", server_seconds=60, silence_seconds=SOON):
            pass
    assert setting.calls.made == [("watch", "pods", status)]


async def test_a_watch_cut_in_the_middle_is_reported_as_broken_not_silent(setting: ClientHarness) -> None:
    with pytest.raises(NoAnswerError) as caught:
        await setting.watch_to_its_end(on_line=setting.proxy.cut_watches)
    assert not isinstance(caught.value, SilentWatchError)


async def test_leaving_a_watch_closes_its_connection(setting: ClientHarness) -> None:
    async with setting.api.watch("pods", "1", server_seconds=60, silence_seconds=SOON):
        pass
    assert [watch.outcome for watch in await setting.proxy.finished("GET", "watch")] == ["caller left"]


async def test_a_cancelled_call_is_cancelled_and_counted(setting: ClientHarness) -> None:
    held = setting.proxy.when("POST", "/binding$").hold()
    task = asyncio.create_task(setting.bind())
    await setting.proxy.reached(held)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert setting.calls.made == [("create", "pods/binding", 0)]


KUBECONFIG = """
apiVersion: v1
kind: Config
current-context: one
contexts:
- {name: one, context: {cluster: here, user: me}}
- {name: two, context: {cluster: here, user: nobody}}
clusters:
- {name: here, cluster: {server: "http://127.0.0.1:%d"}}
users:
- {name: me, user: {token: secret-of-me}}
- {name: nobody, user: {}}
"""


@pytest.mark.parametrize(("context", "has_token"), [(None, True), ("two", False)])
async def test_a_kubeconfig_sets_server_and_credentials(tmp_path: Path, context: str | None, has_token: bool) -> None:  # noqa: FBT001 - a table
    async with FakeUpstream() as upstream:
        (tmp_path / "config").write_text(KUBECONFIG % upstream.port)
        api = Api(
            await load_credentials(tmp_path / "config", context), observe=RecordedApiCalls(), user_agent="vrampack/test"
        )
        await api.list_page("pods", limit=1)
        await api.close()
    (request,) = upstream.requests
    assert (b"Authorization: Bearer secret-of-me\r\n" in request) == has_token
    assert b"User-Agent: vrampack/test\r\n" in request


SPOILED = {
    "no YAML": "a: [",
    "a list": "- 1\n",
    "a text": "hello\n",
    "empty": "",
    "contexts that are none": "apiVersion: v1\nkind: Config\ncurrent-context: one\ncontexts: 4\n",
    "a context without a cluster": KUBECONFIG.replace("cluster: here, ", ""),
    "a cluster that is none": KUBECONFIG.replace('{server: "http://127.0.0.1:%d"}', "7"),
}


@pytest.mark.parametrize("text", SPOILED.values(), ids=SPOILED)
async def test_an_invalid_kubeconfig_is_named_in_the_error(tmp_path: Path, text: str) -> None:
    (tmp_path / "config").write_text(text)
    with pytest.raises(CredentialsError, match="config: "):
        await load_credentials(tmp_path / "config")


async def test_missing_credentials_are_reported_with_the_fix(tmp_path: Path) -> None:
    (tmp_path / "config").write_text("apiVersion: v1\n")
    with pytest.raises(CredentialsError, match=r"config: .*give --kubeconfig FILE"):
        await load_credentials(tmp_path / "config")
    with pytest.raises(CredentialsError, match="none: no such file"):
        await load_credentials(tmp_path / "none")
    with pytest.raises(CredentialsError, match="service account of this pod"):
        await load_credentials(None)


PROXIES = {
    "none": ({}, None),
    "one": ({"https_proxy": "http://proxy:3128"}, "http://proxy:3128"),
    "one for others": ({"http_proxy": "http://proxy:3128"}, None),
    "not for this host": ({"https_proxy": "http://proxy:3128", "no_proxy": "10.0.0.1,example.com"}, None),
}


@pytest.mark.parametrize(("environment", "proxy"), PROXIES.values(), ids=PROXIES)
async def test_the_environments_proxy_is_used_unless_it_excludes_the_host(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, environment: dict[str, str], proxy: str | None
) -> None:
    for name in ("http_proxy", "https_proxy", "no_proxy"):
        monkeypatch.delenv(name, raising=False)
        monkeypatch.delenv(name.upper(), raising=False)
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    kubeconfig = write_kubeconfig(tmp_path, "https://10.0.0.1:6443")
    configuration = (await load_credentials(kubeconfig)).configuration
    assert configuration.proxy == proxy
