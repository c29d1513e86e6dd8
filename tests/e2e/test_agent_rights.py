"""A stolen token of one agent, tried on everything that the API server serves; docs/agent-rights.md lists what passes.

Every verb of every resource and sub-resource that discovery shows is really called: as the agent itself, as the node that the
token names, as another node, and as an administrator. What is answered with anything but 403 passes.
"""

from __future__ import annotations

import http.client
import json
import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from http import HTTPStatus
from pathlib import Path
from urllib.parse import urlencode

import pytest

from tests.e2e.metrics_by_token import with_metrics_by_token
from tests.support.admission.agent_bench import AGENT, an_agent_pod
from tests.support.admission.bench import CARDS, STRATEGIC, SYSTEM, ensure_object
from tests.support.admission.pods import admission_container, admission_pod
from tests.support.control_plane.cluster import ControlPlane, Json
from vrampack.kube.credentials import load_credentials
from vrampack.kube.errors import RefusedError
from vrampack.kube.node_api import NodeApi, ReadIdentity

PAGE = Path(__file__).parents[2] / "docs" / "agent-rights.md"
VERBS = ("get", "list", "watch", "create", "update", "patch", "delete", "deletecollection")
METHODS = {"create": "POST", "update": "PUT", "patch": "PATCH", "delete": "DELETE", "deletecollection": "DELETE"}
COLLECTIVE = frozenset({"list", "watch", "deletecollection"})
EVERY_ACCOUNTS = "selfsubject"
"""What each account may ask about itself."""


@dataclass(frozen=True, slots=True)
class Target:
    """A resource of the cluster."""

    group: str
    prefix: str
    resource: str
    is_namespaced: bool
    kind: str

    @property
    def plain(self) -> str:
        return self.resource.partition("/")[0]


@dataclass(frozen=True, slots=True)
class StolenToken:
    """What a thief has: a token, two nodes of which it names the first, and a pod on each."""

    cluster: ControlPlane
    token: str
    own: str
    other: str
    namespace: str
    pod: str
    """The agent's, to which the token is bound."""

    def list_targets(self) -> Iterator[Target]:
        """Everything that discovery shows."""
        groups = self.cluster.request_ok("GET", "/apis")["groups"]
        prefixes = [("", "/api/v1")]
        prefixes += [(group["name"], f"/apis/{each['groupVersion']}") for group in groups for each in group["versions"]]
        for group, prefix in prefixes:
            for each in self.cluster.request_ok("GET", prefix)["resources"]:
                yield Target(group, prefix, each["name"], each["namespaced"], each["kind"])

    def list_names(self, target: Target) -> Mapping[str, str]:
        """By what the page calls it: objects of the own node, of the other one, or any."""
        whose = {"own": self.own, "other": self.other}
        if target.group == "" and target.plain in {"nodes", "pods"}:
            return whose
        if target.plain == "leases":
            return {key: f"vrampack-usage-{name}" for key, name in whose.items()}
        return {"any": "any"}

    def build_selectors(self, target: Target) -> Mapping[str, str]:
        """The same for lists; `all` without a selector."""
        field = {"pods": "spec.nodeName", "nodes": "metadata.name"}.get(target.resource if not target.group else "")
        if field is None:
            return {"any": ""}
        return {"all": "", "own": f"{field}={self.own}", "other": f"{field}={self.other}"}

    def build_body(self, target: Target, name: str) -> Json:
        """Something that the agent itself would write there, else the least that is an object."""
        meta: Json = {"name": name}
        api = {"apiVersion": target.prefix.removeprefix("/apis/").removeprefix("/api/"), "kind": target.kind}
        if target.resource == "nodes":
            return api | {"metadata": meta | {"annotations": {"vrampack.dev/cards": CARDS}}}
        if target.resource == "nodes/status":
            condition = {"type": "VrampackCardsHealthy", "status": "True"}
            return api | {"metadata": meta, "status": {"conditions": [condition]}}
        if target.resource == "events":
            event = {"involvedObject": {"kind": "Node", "name": self.own, "namespace": "default"}}
            says = {"reason": "GPUMemoryInjection", "source": {"component": AGENT}, "reportingComponent": AGENT}
            return api | {"metadata": meta} | event | says
        if target.plain == "leases":
            # An update without the version of what is there is refused before any policy is asked.
            status, there = self.cluster.request("GET", f"{target.prefix}/namespaces/{SYSTEM}/leases/{name}")
            version = {"resourceVersion": there["metadata"]["resourceVersion"]} if status == HTTPStatus.OK else {}
            holder = self.own if name.endswith(self.own) else self.other
            return api | {"metadata": meta | version, "spec": {"holderIdentity": holder}}
        return api | {"metadata": meta}


@pytest.fixture
def stolen(cluster: ControlPlane) -> Iterator[StolenToken]:
    """The shipped roles and policies, and nothing granted beside them but for `_metrics_by_token`."""
    own, other = "stolen-from", "elsewhere"
    for name in (own, other):
        cluster.add_node(name, cards=CARDS)
    namespace = cluster.namespace("tenant")
    for name in (own, other):
        pod = {**admission_pod(admission_container(), nodeName=name), "metadata": {"name": name}}
        pod["spec"]["containers"][0].pop("resources", None)
        cluster.request_ok("POST", f"/api/v1/namespaces/{namespace}/pods", pod)
        lease = {"metadata": {"name": f"vrampack-usage-{name}"}, "spec": {"holderIdentity": name}}
        ensure_object(cluster, f"/apis/coordination.k8s.io/v1/namespaces/{SYSTEM}/leases", lease)
    pod = cluster.request_ok("POST", f"/api/v1/namespaces/{SYSTEM}/pods", an_agent_pod(own))["metadata"]["name"]
    yield StolenToken(cluster, cluster.token(SYSTEM, AGENT, pod=pod), own, other, namespace, pod)
    cluster.request_ok("DELETE", f"/api/v1/namespaces/{SYSTEM}/pods/{pod}", {"gracePeriodSeconds": 0})
    for name in (own, other):
        path = f"/apis/coordination.k8s.io/v1/namespaces/{SYSTEM}/leases/vrampack-usage-{name}"
        cluster.request("DELETE", path)


@pytest.fixture
def _metrics_by_token(stolen: StolenToken) -> Iterator[None]:
    """What the chart grants in addition where `agent.metrics.tlsSecret` is set."""
    review = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenReview", "spec": {"token": "any"}}
    path = "/apis/authentication.k8s.io/v1/tokenreviews"

    def may_ask() -> bool:
        return stolen.cluster.request("POST", path, review, token=stolen.token)[0] == HTTPStatus.CREATED

    with with_metrics_by_token(stolen.cluster):
        stolen.cluster.wait_until(may_ask, what="RBAC lets the agent ask")
        yield
    stolen.cluster.wait_until(lambda: not may_ask(), what="it does no more")


@contextmanager
def open_calls(stolen: StolenToken, user: str | None) -> Iterator[RawCalls]:
    connection = http.client.HTTPSConnection(
        stolen.cluster.api_host, stolen.cluster.api_port, timeout=30, context=stolen.cluster.tls
    )
    headers = {"Authorization": f"Bearer {stolen.token}"} | ({"Impersonate-User": user} if user else {})
    try:
        yield RawCalls(connection, headers)
    finally:
        connection.close()


@dataclass(frozen=True, slots=True)
class RawCalls:
    """One connection, kept: thousands of calls are made."""

    connection: http.client.HTTPSConnection
    headers: Mapping[str, str]

    def call(self, verb: str, path: str, body: Json, query: Mapping[str, str]) -> tuple[int, str]:
        is_patch, has_body = verb == "patch", verb in {"create", "update", "patch"}
        sent = STRATEGIC if is_patch else "application/json"
        url = path + (f"?{urlencode(query)}" if query else "")
        payload = json.dumps(body) if has_body else None
        self.connection.request(METHODS.get(verb, "GET"), url, payload, {**self.headers, "Content-Type": sent})
        answer = self.connection.getresponse()
        return answer.status, answer.read().decode(errors="replace")


Row = tuple[str, str, str, str, str]
"""Identity, verb, resource, its owner and the outcome: a row of the page."""


def try_everything(stolen: StolenToken, identity: str, user: str | None) -> tuple[set[Row], int]:
    """The rows of all that is not simply forbidden, and how many calls were made."""
    rows: set[Row] = set()
    calls = 0
    with open_calls(stolen, user) as raw:
        for target in list(stolen.list_targets()):
            spaces = (SYSTEM, stolen.namespace) if target.is_namespaced else ("",)
            for verb in VERBS:
                is_collective = verb in COLLECTIVE or (verb == "create" and "/" not in target.resource)
                whose = stolen.build_selectors(target) if verb in COLLECTIVE else stolen.list_names(target)
                for of, name in whose.items():
                    for space in spaces:
                        path = _build_path(target, space, "" if is_collective else name)
                        query = {"fieldSelector": name} if verb in COLLECTIVE and name else {}
                        query |= {"watch": "true", "timeoutSeconds": "1"} if verb == "watch" else {}
                        status, text = raw.call(verb, path, stolen.build_body(target, name), query)
                        calls += 1
                        result = _judge(status, text)
                        if result and EVERY_ACCOUNTS not in target.resource:
                            at = f"{target.resource}.{target.group}".rstrip(".")
                            rows.add((identity, verb, at, of + _name_space(stolen, space), result))
    return rows, calls


def _build_path(target: Target, namespace: str, name: str) -> str:
    space = f"/namespaces/{namespace}" if namespace else ""
    plain, _, sub = target.resource.partition("/")
    return f"{target.prefix}{space}/{plain}" + (f"/{name}" if name else "") + (f"/{sub}" if sub else "")


def _name_space(stolen: StolenToken, namespace: str) -> str:
    return {"": "", SYSTEM: " in vrampack-system", stolen.namespace: " in a tenant's namespace"}[namespace]


def _judge(status: int, text: str) -> str:
    if status != HTTPStatus.FORBIDDEN:
        return "passes"
    found = re.search(r"ValidatingAdmissionPolicy '([a-z-]+)'", text)
    return f"`{found.group(1)}`" if found else ""


def read_page() -> set[Row]:
    """The rows of its table; backquotes of the first four columns are taken off."""
    rows = re.findall(r"^\| (itself|own node) \|(.+?)\|(.+?)\|(.+?)\|(.+?)\|", PAGE.read_text(), re.MULTILINE)
    return {
        (who, verb, resource, of.strip(), result.strip())
        for who, verbs, resource, of, result in rows
        for verb, resource in ((each.strip(), resource.strip().strip("`")) for each in verbs.split(","))
    }


Rules = set[tuple[str, str, str]]
"""Verb, group and resource."""
EVERYWHERE: Rules = {
    ("impersonate:associated-node", "authentication.k8s.io", "nodes"),
    *(
        (f"impersonate-on:associated-node:{verb}", "", resource)
        for verb in ("get", "list", "watch")
        for resource in ("pods", "nodes")
    ),
    ("list", "resource.k8s.io", "resourceslices"),
    ("patch", "", "nodes"),
    ("patch", "", "nodes/status"),
    ("create", "", "events"),
}


def list_rules(stolen: StolenToken) -> tuple[Rules, Rules]:
    """What the API server says the account may do in a tenant's namespace, and in that of the release.

    Verbs that no call shows (`bind`, `escalate`, `approve`), wildcards and names of single objects would stand here.
    """
    review = {"apiVersion": "authorization.k8s.io/v1", "kind": "SelfSubjectRulesReview"}
    found: list[Rules] = []
    for space in (stolen.namespace, SYSTEM):
        body = review | {"spec": {"namespace": space}}
        path = "/apis/authorization.k8s.io/v1/selfsubjectrulesreviews"
        _, answer = stolen.cluster.request("POST", path, body, token=stolen.token)
        found.append(
            {
                (verb, group, resource)
                for rule in answer["status"]["resourceRules"]
                for verb in rule["verbs"]
                for group in rule["apiGroups"]
                for resource in rule["resources"]
                if not resource.startswith(EVERY_ACCOUNTS)
            }
        )
    elsewhere, in_system = found
    return elsewhere, in_system


@pytest.mark.usefixtures("_metrics_by_token")
def test_the_token_allows_exactly_the_calls_that_the_page_lists(stolen: StolenToken) -> None:
    rows, calls = try_everything(stolen, "itself", None)
    as_node, more = try_everything(stolen, "own node", f"system:node:{stolen.own}")
    assert calls == more > 500
    assert rows | as_node == read_page()


@pytest.mark.parametrize(
    "user", ["system:node:elsewhere", "admin", f"system:serviceaccount:{SYSTEM}:vrampack-extender"]
)
def test_impersonating_another_user_allows_nothing(stolen: StolenToken, user: str) -> None:
    rows, _ = try_everything(stolen, "another", user)
    assert rows == set()


def test_api_server_lists_no_other_rule(stolen: StolenToken) -> None:
    """As it is installed, without metrics by token."""
    elsewhere, in_system = list_rules(stolen)
    leases = {(verb, "coordination.k8s.io", "leases") for verb in ("create", "patch")}
    assert (elsewhere, in_system) == (EVERYWHERE, EVERYWHERE | leases)


@pytest.mark.usefixtures("_metrics_by_token")
def test_metrics_by_token_add_only_two_review_rules(stolen: StolenToken) -> None:
    elsewhere, _ = list_rules(stolen)
    assert elsewhere - EVERYWHERE == {
        ("create", "authentication.k8s.io", "tokenreviews"),
        ("create", "authorization.k8s.io", "subjectaccessreviews"),
    }


async def test_a_token_that_names_no_node_reads_nothing(stolen: StolenToken) -> None:
    """Any account that may create tokens of this one can get such a token."""
    kubeconfig = stolen.cluster.kubeconfig(SYSTEM, AGENT)
    api = NodeApi(
        await load_credentials(kubeconfig),
        ReadIdentity(stolen.own, "auto", on_change=lambda _: None),
        observe=lambda **_: None,
        user_agent="test",
    )
    try:
        with pytest.raises(RefusedError):
            await api.list_page("pods", limit=1, field_selector=f"spec.nodeName={stolen.own}")
    finally:
        await api.close()


async def test_agent_reads_its_node_and_its_pods_but_no_other_pod(stolen: StolenToken) -> None:
    """Its pods in one list, each by its name, and its Node. A pod of another node is as if it were not there."""
    identities: list[str] = []
    kubeconfig = stolen.cluster.kubeconfig(SYSTEM, AGENT, pod=stolen.pod)
    reads = ReadIdentity(stolen.own, "auto", on_change=identities.append)
    api = NodeApi(await load_credentials(kubeconfig), reads, observe=lambda **_: None, user_agent="test")
    try:
        listed = json.loads(await api.list_page("pods", limit=500, field_selector=f"spec.nodeName={stolen.own}"))
        assert {item["spec"]["nodeName"] for item in listed["items"]} == {stolen.own}
        own, other, none = [
            await api.get_pod_bytes(stolen.namespace, name, timeout_seconds=5)
            for name in (stolen.own, stolen.other, "none")
        ]
        assert (json.loads(own or b"{}")["metadata"]["name"], other, none) == (stolen.own, None, None)
        node = await api.get_node(stolen.own, timeout_seconds=5)
        assert node is not None
        assert identities == ["node"]
    finally:
        await api.close()
