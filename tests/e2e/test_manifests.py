"""What ships says what it should: the scheduler's configuration, the roles, and no warning from the API server.

The fields are compared with plain values on purpose: a change of any of them is a change of the product
and has to be made twice.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.e2e.cluster import MANIFESTS, Cluster

SHIPPED = sorted(MANIFESTS.rglob("*.yaml"))
READ = ["get", "list", "watch"]


def objects(path: Path) -> list[Any]:
    return [loaded for loaded in yaml.safe_load_all(path.read_text()) if loaded]


def roles() -> dict[tuple[str, str], list[Any]]:
    found = [item for path in SHIPPED for item in objects(path) if item["kind"] in {"Role", "ClusterRole"}]
    return {(item["kind"], item["metadata"]["name"]): item["rules"] for item in found}


def bindings() -> set[tuple[str, str, str]]:
    """Who is bound to which role: (namespace or empty, role, account)."""
    found = [
        item for path in SHIPPED for item in objects(path) if item["kind"] in {"RoleBinding", "ClusterRoleBinding"}
    ]
    return {
        (item["metadata"].get("namespace", ""), item["roleRef"]["name"], f"{who['namespace']}/{who['name']}")
        for item in found
        for who in item["subjects"]
    }


@pytest.mark.parametrize("path", SHIPPED, ids=lambda path: str(path.relative_to(MANIFESTS)))
def test_every_object_applies_without_a_warning(cluster: Cluster, path: Path) -> None:
    """Server side and strict: an unknown field is an error there, a deprecated one a warning."""
    cluster.kubectl("apply", "--warnings-as-errors", "--dry-run=server", "--validate=strict", "-f", path)


def test_roles_grant_the_allowed_list_and_nothing_else() -> None:
    """No wildcard, no secret, no pod update, no node proxy: each rule is listed, so an added one fails here."""
    assert roles() == {
        ("ClusterRole", "vrampack-extender"): [
            {"apiGroups": [""], "resources": ["pods", "nodes"], "verbs": READ},
            {"apiGroups": [""], "resources": ["pods/binding"], "verbs": ["create"]},
            {"apiGroups": [""], "resources": ["events"], "verbs": ["create", "patch"]},
        ],
        ("Role", "vrampack-scheduler-lease"): [
            {"apiGroups": ["coordination.k8s.io"], "resources": ["leases"], "verbs": ["create"]},
            {
                "apiGroups": ["coordination.k8s.io"],
                "resources": ["leases"],
                "resourceNames": ["vrampack-scheduler"],
                "verbs": ["get", "update"],
            },
        ],
    }


def test_accounts_are_bound_to_the_listed_roles_and_no_other() -> None:
    scheduler = "vrampack-system/vrampack-scheduler"
    assert bindings() == {
        ("", "vrampack-extender", "vrampack-system/vrampack-extender"),
        ("", "system:kube-scheduler", scheduler),
        ("", "system:volume-scheduler", scheduler),
        ("kube-system", "extension-apiserver-authentication-reader", scheduler),
        ("vrampack-system", "vrampack-scheduler-lease", scheduler),
    }


def test_the_scheduler_configuration_says_what_the_extender_relies_on() -> None:
    """kube-scheduler is its strict parser (it starts with it in the other tests); here its values are pinned."""
    (config_map,) = objects(MANIFESTS / "scheduler" / "configmap.yaml")
    configuration = yaml.safe_load(config_map["data"]["scheduler.yaml"])
    (profile,) = configuration["profiles"]
    (extender,) = configuration["extenders"]

    assert configuration["apiVersion"] == "kubescheduler.config.k8s.io/v1"
    assert configuration["leaderElection"] == {
        "leaderElect": True,
        "resourceLock": "leases",
        "resourceName": "vrampack-scheduler",
        "resourceNamespace": "vrampack-system",
    }
    assert "kubeconfig" not in configuration["clientConnection"]
    assert profile == {
        "schedulerName": "vrampack",
        "percentageOfNodesToScore": 100,
        "plugins": {
            "score": {
                "disabled": [
                    {"name": "NodeResourcesFit"},
                    {"name": "NodeResourcesBalancedAllocation"},
                    {"name": "ImageLocality"},
                ]
            }
        },
    }
    assert extender == {
        "urlPrefix": "http://127.0.0.1:12345/gpushare-scheduler",
        "filterVerb": "filter",
        "prioritizeVerb": "prioritize",
        "weight": 10,
        "bindVerb": "bind",
        "nodeCacheCapable": True,
        "httpTimeout": "5s",
        "managedResources": [{"name": "aliyun.com/gpu-mem", "ignoredByScheduler": False}],
        "ignorable": False,
    }
