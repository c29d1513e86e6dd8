"""What kube-scheduler is told, in both shapes. kube-scheduler is its own strict parser, in the end-to-end tests.

The fields are compared with plain values on purpose: a change of any of them is a change of the product
and has to be made twice.
"""

from __future__ import annotations

import pytest
import yaml

from extender.settings import ExtenderConfiguration
from tests.support.manifests import (
    ON_THE_HOST,
    SHAPES,
    load_documents,
    load_rendered,
    load_scheduler_configuration,
)


@pytest.mark.parametrize("name", SHAPES)
def test_the_scheduler_configuration_has_the_settings_the_extender_relies_on(name: str) -> None:
    (extender,) = load_scheduler_configuration(name)["extenders"]
    assert load_scheduler_configuration(name)["apiVersion"] == "kubescheduler.config.k8s.io/v1"
    assert load_scheduler_configuration(name)["enableProfiling"] is False
    assert extender == {
        "urlPrefix": "http://127.0.0.1:12345/gpushare-scheduler",
        "filterVerb": "filter",
        "prioritizeVerb": "prioritize",
        "weight": 10,
        "bindVerb": "bind",
        "preemptVerb": "preempt",
        "nodeCacheCapable": True,
        "httpTimeout": "5s",
        "managedResources": [{"name": "aliyun.com/gpu-mem", "ignoredByScheduler": False}],
        "ignorable": False,
    }


@pytest.mark.parametrize("name", SHAPES)
def test_the_extenders_bind_deadline_is_shorter_than_the_schedulers(name: str) -> None:
    (extender,) = load_scheduler_configuration(name)["extenders"]
    (text,) = [item["data"]["extender.yaml"] for item in load_rendered(name) if "extender.yaml" in item.get("data", {})]
    settings = ExtenderConfiguration.model_validate(yaml.safe_load(text))
    assert settings.deadlines.bind_seconds < float(extender["httpTimeout"].removesuffix("s"))
    assert extender["urlPrefix"] == f"http://{settings.listen.verbs}{settings.listen.url_prefix}"


def test_the_second_scheduler_has_its_own_name_and_lease() -> None:
    found = load_scheduler_configuration("second-scheduler")
    (profile,) = found["profiles"]
    assert found["leaderElection"] == {
        "leaderElect": True,
        "resourceLock": "leases",
        "resourceName": "vrampack-scheduler",
        "resourceNamespace": "vrampack-system",
    }
    assert found["clientConnection"] == {"qps": 2000, "burst": 4000}
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


def test_the_clusters_own_scheduler_stays_as_it_is_but_for_the_extender() -> None:
    found = load_scheduler_configuration("kubeadm")
    assert found["clientConnection"] == {"kubeconfig": "/etc/kubernetes/scheduler.conf"}
    assert found["leaderElection"] == {"leaderElect": True}
    assert "profiles" not in found
    assert "percentageOfNodesToScore" not in found


def test_the_host_patch_only_adds() -> None:
    (patch,) = load_documents(ON_THE_HOST / "patches" / "kube-scheduler+json.yaml")
    assert [step["op"] for step in patch] == ["add", "add", "add"]
    assert all(step["path"].endswith("/-") for step in patch)
