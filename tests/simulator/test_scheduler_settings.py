"""The shipped KubeSchedulerConfiguration is followed; what cannot be followed is refused by name."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.support.scheduler_recordings.scenarios import CONFIGURATION
from vrampack.simulator.scheduler import SchedulerSettings

MANIFESTS = Path(__file__).parents[2] / "manifests"
SHIPPED = "kind: KubeSchedulerConfiguration"


def shipped_configurations() -> Iterator[str]:
    """Wherever a manifest carries one: a file of its own, or a key of a ConfigMap."""
    for path in sorted(MANIFESTS.rglob("*.yaml")):
        text = path.read_text()
        if f"\n{SHIPPED}" in text:
            yield text
        elif SHIPPED in text:
            documents = [document for document in yaml.safe_load_all(text) if document]
            texts = (str(value) for document in documents for value in (document.get("data") or {}).values())
            yield from (value for value in texts if SHIPPED in value)


def test_shipped_configurations_are_supported() -> None:
    found = [SchedulerSettings.from_yaml(text) for text in shipped_configurations()]
    assert found
    for settings in found:
        assert settings.url_prefix.endswith("/gpushare-scheduler")
        assert "aliyun.com/gpu-mem" in settings.managed_resources
        assert settings.ignored_resources == frozenset()
        assert (settings.filter_verb, settings.prioritize_verb, settings.bind_verb) == ("filter", "prioritize", "bind")
        assert (settings.weight, settings.http_timeout_seconds) == (10, 5.0)


def test_the_extender_url_can_be_overridden() -> None:
    settings = SchedulerSettings.from_yaml(a_configuration(), url_prefix="http://127.0.0.1:9/x")
    assert settings.url_prefix == "http://127.0.0.1:9/x"
    assert settings.scheduler_names == ("vrampack",)


def a_configuration(**extender: object) -> str:
    """The scenarios' configuration with changed fields of its extender; None removes a field."""
    body: dict[str, Any] = yaml.safe_load(CONFIGURATION.format(url="http://127.0.0.1:1/scripted"))
    (given,) = body["extenders"]
    given.update(extender)
    body["extenders"] = [{key: value for key, value in given.items() if value is not None}]
    return yaml.safe_dump(body)


TIMEOUTS = {"5s": 5.0, "500ms": 0.5, "1m30s": 90.0, "1.5s": 1.5, "0s": 5.0, None: 5.0}


@pytest.mark.parametrize(("given", "want"), TIMEOUTS.items(), ids=map(str, TIMEOUTS))
def test_extender_timeouts_are_read(given: str | None, want: float) -> None:
    assert SchedulerSettings.from_yaml(a_configuration(httpTimeout=given)).http_timeout_seconds == want


def test_resources_ignored_by_the_scheduler_are_read() -> None:
    managed = [{"name": "a/b", "ignoredByScheduler": True}, {"name": "c/d"}]
    settings = SchedulerSettings.from_yaml(a_configuration(managedResources=managed))
    assert settings.managed_resources == {"a/b", "c/d"}
    assert settings.ignored_resources == {"a/b"}


REFUSED = {
    "whole nodes": (a_configuration(nodeCacheCapable=None), "nodeCacheCapable"),
    "ignorable": (a_configuration(ignorable=True), "ignorable"),
    "https": (a_configuration(enableHTTPS=True), "enableHTTPS"),
    "no weight": (a_configuration(weight=None), "weight"),
    "no address": (a_configuration(urlPrefix=None), "urlPrefix"),
    "no duration": (a_configuration(httpTimeout="soon"), "httpTimeout"),
    "another kind": ("kind: ConfigMap", "KubeSchedulerConfiguration"),
    "no extender": ("kind: KubeSchedulerConfiguration", "extenders"),
    "two extenders": ("kind: KubeSchedulerConfiguration\nextenders: [{}, {}]", "extenders"),
}


@pytest.mark.parametrize(("text", "named"), REFUSED.values(), ids=REFUSED)
def test_unsupported_settings_are_named(text: str, named: str) -> None:
    with pytest.raises(ValueError, match=named):
        SchedulerSettings.from_yaml(text)
