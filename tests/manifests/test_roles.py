"""Who may do what: every role, every binding and every account is listed here a second time, on purpose."""

from __future__ import annotations

import pytest
import yaml

from tests.support.manifests import SHAPES, Json, find_pod_template, load_rendered

READ = ["get", "list", "watch"]
EXTENDER = "vrampack-system/vrampack-extender"

EXTENDER_ROLE: list[Json] = [
    {"apiGroups": [""], "resources": ["pods", "nodes"], "verbs": READ},
    {"apiGroups": [""], "resources": ["namespaces"], "verbs": ["list", "watch"]},
    {"apiGroups": [""], "resources": ["pods/binding"], "verbs": ["create"]},
    {"apiGroups": [""], "resources": ["pods/status"], "verbs": ["patch"]},
    {"apiGroups": [""], "resources": ["pods/eviction"], "verbs": ["create"]},
    {"apiGroups": [""], "resources": ["nodes"], "verbs": ["patch"]},
    {"apiGroups": [""], "resources": ["events"], "verbs": ["create", "patch"]},
    {"apiGroups": ["resource.k8s.io"], "resources": ["deviceclasses"], "verbs": ["list"]},
    {
        "apiGroups": ["scheduling.k8s.io", "scheduling.x-k8s.io"],
        "resources": ["podgroups"],
        "verbs": ["list", "watch"],
    },
]
AGENT = "vrampack-system/vrampack-agent"

AGENT_ROLE: list[Json] = [
    {
        "apiGroups": ["authentication.k8s.io"],
        "resources": ["nodes"],
        "verbs": ["impersonate:associated-node"],
    },
    {
        "apiGroups": [""],
        "resources": ["pods", "nodes"],
        "verbs": [f"impersonate-on:associated-node:{verb}" for verb in READ],
    },
    {"apiGroups": ["resource.k8s.io"], "resources": ["resourceslices"], "verbs": ["list"]},
    {"apiGroups": [""], "resources": ["nodes", "nodes/status"], "verbs": ["patch"]},
    {"apiGroups": [""], "resources": ["events"], "verbs": ["create"]},
]
USAGE_ROLE: list[Json] = [
    {"apiGroups": ["coordination.k8s.io"], "resources": ["leases"], "verbs": ["create", "patch"]},
]
LEASES_ROLE: list[Json] = [
    {"apiGroups": ["coordination.k8s.io"], "resources": ["leases"], "verbs": ["list", "watch"]},
    {
        "apiGroups": ["coordination.k8s.io"],
        "resources": ["leases"],
        "resourceNames": ["vrampack-preemption", "vrampack-autoscaling"],
        "verbs": ["get", "patch"],
    },
]
LEASE_ROLE: list[Json] = [
    {"apiGroups": ["coordination.k8s.io"], "resources": ["leases"], "verbs": ["create"]},
    {
        "apiGroups": ["coordination.k8s.io"],
        "resources": ["leases"],
        "resourceNames": ["vrampack-scheduler"],
        "verbs": ["get", "update"],
    },
]
VIEWER_ROLE: list[Json] = [
    {"apiGroups": [""], "resources": ["nodes", "pods"], "verbs": READ},
    {"apiGroups": [""], "resources": ["namespaces"], "verbs": ["get", "list"]},
]
USER_ROLE: list[Json] = [{"apiGroups": [""], "resources": ["pods", "events"], "verbs": READ}]
ROLES: dict[str, Json] = {
    "second-scheduler": {
        ("ClusterRole", "vrampack-extender"): EXTENDER_ROLE,
        ("ClusterRole", "vrampack-agent"): AGENT_ROLE,
        ("ClusterRole", "vrampack-viewer"): VIEWER_ROLE,
        ("ClusterRole", "vrampack-user"): USER_ROLE,
        ("Role", "vrampack-agent-usage"): USAGE_ROLE,
        ("Role", "vrampack-extender"): LEASES_ROLE,
        ("Role", "vrampack-scheduler-lease"): LEASE_ROLE,
    },
    "kubeadm": {
        ("ClusterRole", "vrampack-extender"): EXTENDER_ROLE,
        ("ClusterRole", "vrampack-agent"): AGENT_ROLE,
        ("ClusterRole", "vrampack-viewer"): VIEWER_ROLE,
        ("ClusterRole", "vrampack-user"): USER_ROLE,
        ("Role", "vrampack-agent-usage"): USAGE_ROLE,
        ("Role", "vrampack-extender"): LEASES_ROLE,
    },
}
BINDINGS = {
    "second-scheduler": {
        ("", "vrampack-extender", EXTENDER),
        ("", "vrampack-agent", AGENT),
        ("vrampack-system", "vrampack-agent-usage", AGENT),
        ("vrampack-system", "vrampack-extender", EXTENDER),
        ("", "system:kube-scheduler", EXTENDER),
        ("", "system:volume-scheduler", EXTENDER),
        ("kube-system", "extension-apiserver-authentication-reader", EXTENDER),
        ("vrampack-system", "vrampack-scheduler-lease", EXTENDER),
    },
    # The cluster's scheduler has its own credentials; the extender has no use for a scheduler's rights.
    "kubeadm": {
        ("", "vrampack-extender", EXTENDER),
        ("", "vrampack-agent", AGENT),
        ("vrampack-system", "vrampack-agent-usage", AGENT),
        ("vrampack-system", "vrampack-extender", EXTENDER),
    },
}


@pytest.mark.parametrize("name", SHAPES)
def test_roles_grant_the_allowed_list_and_nothing_else(name: str) -> None:
    """No wildcard, no secret, no pod update, no node proxy: each rule is listed, so an added one fails here."""
    found = {
        (item["kind"], item["metadata"]["name"]): item["rules"]
        for item in load_rendered(name)
        if item["kind"].endswith("Role")
    }
    assert found == ROLES[name]


@pytest.mark.parametrize("name", SHAPES)
def test_accounts_are_bound_to_the_listed_roles_and_no_other(name: str) -> None:
    """Who is bound to which role: (namespace or empty, role, account)."""
    found = {
        (item["metadata"].get("namespace", ""), item["roleRef"]["name"], f"{who['namespace']}/{who['name']}")
        for item in load_rendered(name)
        if item["kind"].endswith("RoleBinding")
        for who in item["subjects"]
    }
    assert found == BINDINGS[name]


@pytest.mark.parametrize("name", SHAPES)
def test_pods_run_under_the_accounts_named_by_the_policies(name: str) -> None:
    """The extender's, which may write records, and the agents', which may change their own Node."""
    made = load_rendered(name)
    (policy,) = [
        item for item in made if item["metadata"]["name"] == "vrampack-records" and "variables" in item["spec"]
    ]
    writer = {variable["name"]: variable["expression"] for variable in policy["spec"]["variables"]}["extender"]
    accounts = {item["metadata"]["name"] for item in made if item["kind"] == "ServiceAccount"}
    assert accounts == {
        find_pod_template(item)["spec"]["serviceAccountName"] for item in made if find_pod_template(item)
    }
    assert accounts == {"vrampack-extender", "vrampack-agent"}
    assert writer == "'system:serviceaccount:vrampack-system:vrampack-extender'"
    for name_of_policy in ("vrampack-agent", "vrampack-agent-events", "vrampack-agent-lease"):
        (policy,) = [
            item for item in made if item["metadata"]["name"] == name_of_policy and "matchConditions" in str(item)
        ]
        (condition,) = policy["spec"]["matchConditions"]
        assert condition["expression"].endswith("== 'system:serviceaccount:vrampack-system:vrampack-agent'")


def test_the_role_names_the_lease_that_the_scheduler_uses() -> None:
    """Kubectl also adds the hash of a ConfigMap to equal names in a role."""
    made = load_rendered("second-scheduler")
    (role,) = [item for item in made if item["metadata"]["name"] == "vrampack-scheduler-lease" and "rules" in item]
    (text,) = [item["data"]["scheduler.yaml"] for item in made if "scheduler.yaml" in item.get("data", {})]
    lease = yaml.safe_load(text)["leaderElection"]["resourceName"]
    assert [rule["resourceNames"] for rule in role["rules"] if "resourceNames" in rule] == [[lease]]
