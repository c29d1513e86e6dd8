"""The scheduler's configuration, one field at a time: what is wrong, where, and what to change."""

from __future__ import annotations

import copy
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from extender.checks.scheduler_config import Finding, check_scheduler_config
from extender.settings import ExtenderConfiguration
from tests.support.manifests import SHAPES, load_scheduler_configuration
from vrampack.config.errors import SettingsError

SETTINGS = ExtenderConfiguration(apiVersion="vrampack.dev/v1", kind="ExtenderConfiguration")
OTHER = {"urlPrefix": "http://127.0.0.1:9/other", "filterVerb": "filter"}
"""Somebody else's extender."""
TWIN = {"urlPrefix": "http://127.0.0.1:9/gpushare-scheduler"}
"""On another port, under our path."""

Configuration = dict[str, Any]  # Any: a document as a user writes it
Change = Callable[[Configuration], object]


def check(folder: Path, document: object, *, decides_in_filter: bool = False) -> list[Finding]:
    path = folder / "scheduler.yaml"
    path.write_text(document if isinstance(document, str) else json.dumps(document))
    return check_scheduler_config(path, SETTINGS, decides_in_filter=decides_in_filter)


def shipped(change: Change) -> Configuration:
    made: Configuration = copy.deepcopy(load_scheduler_configuration("second-scheduler"))
    change(made)
    return made


def our(**fields: object) -> Change:
    """Fields of our entry; None takes one away."""

    def change(document: Configuration) -> None:
        entry = document["extenders"][0]
        entry.update(fields)
        for name in [name for name, value in fields.items() if value is None]:
            del entry[name]

    return change


def profile(**fields: object) -> Change:
    return lambda document: document.update(profiles=[{"schedulerName": "s", **fields}])


def extenders(*entries: object) -> Change:
    """Our entry takes the place of the text `ours`."""

    def change(document: Configuration) -> None:
        (ours,) = document["extenders"]
        document["extenders"] = [ours if entry == "ours" else entry for entry in entries]

    return change


FINDINGS: dict[str, tuple[Change, str]] = {
    "no extender at all": (
        lambda document: document.pop("extenders"),
        (
            "extenders: no urlPrefix ends in /gpushare-scheduler, the extender's listen.url_prefix: the extender is never "
            "called; add its entry, or correct the urlPrefix"
        ),
    ),
    "another one's only": (extenders(OTHER), "extenders: no urlPrefix ends in /gpushare-scheduler, "),
    "an address that is none": (our(urlPrefix="http://[::1/gpushare-scheduler"), "extenders: no urlPrefix ends in "),
    "two with our path, neither with our port": (
        extenders(TWIN, TWIN),
        "extenders: no urlPrefix ends in /gpushare-scheduler, the extender's listen.url_prefix, and has its port 12345: ",
    ),
    "no filter": (our(filterVerb=None), "extenders[0].filterVerb is missing; set it to filter"),
    "no prioritize": (our(prioritizeVerb=None), "extenders[0].prioritizeVerb is missing; set it to prioritize"),
    "no bind": (our(bindVerb=""), "extenders[0].bindVerb is missing; set it to bind"),
    "another verb": (
        our(filterVerb="sort"),
        "extenders[0].filterVerb is sort, which the extender does not know; set it to filter",
    ),
    "whole nodes": (
        our(nodeCacheCapable=None),
        (
            "extenders[0].nodeCacheCapable is not true: whole nodes are sent, which the extender answers with an error; "
            "set it to true"
        ),
    ),
    "whole nodes, said": (our(nodeCacheCapable=False), "extenders[0].nodeCacheCapable is not true: "),
    "all pods": (
        our(managedResources=None),
        (
            "extenders[0].managedResources does not contain aliyun.com/gpu-mem: every pod of the cluster is sent to the "
            "extender; add `- name: aliyun.com/gpu-mem`"
        ),
    ),
    "other pods": (
        our(managedResources=[{"name": "example.com/other"}]),
        (
            "extenders[0].managedResources does not contain aliyun.com/gpu-mem: no pod that asks for it is sent to the "
            "extender; add `- name: aliyun.com/gpu-mem`"
        ),
    ),
    "not counted by the scheduler": (
        our(managedResources=[{"name": "aliyun.com/gpu-mem", "ignoredByScheduler": True}]),
        (
            "extenders[0].managedResources: ignoredByScheduler is true for aliyun.com/gpu-mem: node totals no longer "
            "protect anything, and preemption does not work; set it to false"
        ),
    ),
    "ignorable": (
        our(ignorable=True),
        (
            "extenders[0].ignorable is true: without an answer the scheduler binds by itself, to a node and to no card; "
            "set it to false"
        ),
    ),
    # a bind has 3 s
    "no time to spare": (
        our(httpTimeout="3s"),
        (
            "extenders[0].httpTimeout is 3s, not more than deadlines.bind_seconds (3 s): the scheduler gives up on binds that "
            "succeed; raise it, or lower deadlines.bind_seconds"
        ),
    ),
    "too little time": (our(httpTimeout="2s999ms"), "extenders[0].httpTimeout is 2s999ms, not more than "),
    "too little time, in milliseconds": (our(httpTimeout="100ms"), "extenders[0].httpTimeout is 100ms, "),
    "no duration": (our(httpTimeout="5 s"), "extenders[0].httpTimeout is '5 s', which is not a duration; set it to 5s"),
    "no unit": (our(httpTimeout="5"), "extenders[0].httpTimeout is '5', which is not a duration"),
    "an empty duration": (our(httpTimeout=""), "extenders[0].httpTimeout is '', which is not a duration"),
    "a small weight": (
        our(weight=9),
        "extenders[0].weight is 9: the scheduler's own scores outweigh packing; set it to 10 or more",
    ),
    "no weight": (our(weight=None), "extenders[0].weight is 0: "),
    "some nodes": (
        profile(percentageOfNodesToScore=50),
        (
            "profiles[0].percentageOfNodesToScore is 50 (s): among more than 100 nodes the scheduler stops looking early, "
            "often before the tightest card; set it to 100"
        ),
    ),
    "no share of nodes": (profile(), "profiles[0].percentageOfNodesToScore is missing (s): "),
    "null": (profile(percentageOfNodesToScore=None), "profiles[0].percentageOfNodesToScore is missing (s): "),
    "the second, by our port": (
        lambda document: document.update(extenders=[TWIN, {**document["extenders"][0], "bindVerb": ""}]),
        "extenders[1].bindVerb is missing; set it to bind",
    ),
}


@pytest.mark.parametrize(("change", "text"), FINDINGS.values(), ids=FINDINGS)
def test_a_finding_names_the_fault_its_place_and_the_fix(tmp_path: Path, change: Change, text: str) -> None:
    (finding,) = check(tmp_path, shipped(change))
    assert finding.text.startswith(text)
    assert not finding.is_fatal


CLEAN: dict[str, Change] = {
    "as shipped": our(),
    "another extender before ours": extenders(OTHER, "ours"),
    "another extender behind ours": extenders("ours", OTHER),
    "two with our path": extenders(TWIN, "ours"),
    "behind a proxy": our(urlPrefix="http://127.0.0.1:9/gpu/gpushare-scheduler"),
    "another port, our path": our(urlPrefix="http://127.0.0.1:9/gpushare-scheduler/"),
    "a heavy weight": our(weight=1000),
    "the scheduler's own time-out": our(httpTimeout=None),
    "a time-out of zero is that, too": our(httpTimeout="0s"),
    "just enough time": our(httpTimeout="3001ms"),
    "minutes": our(httpTimeout="1m0.5s"),
    "other resources beside ours": our(
        managedResources=[{"name": "example.com/other", "ignoredByScheduler": True}, {"name": "aliyun.com/gpu-mem"}]
    ),
    "all nodes in every profile": lambda document: document.update(percentageOfNodesToScore=100, profiles=[{}, {}]),
    "no profile of its own": lambda document: document.pop("profiles"),
    "null for nothing said": lambda document: document["extenders"][0].update(httpTimeout=None, ignorable=None),
    "fields of a later version": our(laterField={"a": [1]}),
}


@pytest.mark.parametrize("change", CLEAN.values(), ids=CLEAN)
def test_a_correct_configuration_has_no_finding(tmp_path: Path, change: Change) -> None:
    assert check(tmp_path, shipped(change)) == []


@pytest.mark.parametrize("decides_in_filter", [False, True])
@pytest.mark.parametrize("name", SHAPES)
def test_the_shipped_configuration_has_no_finding(tmp_path: Path, name: str, *, decides_in_filter: bool) -> None:
    assert check(tmp_path, load_scheduler_configuration(name), decides_in_filter=decides_in_filter) == []


def test_an_extender_that_decides_in_filter_must_be_the_last(tmp_path: Path) -> None:
    """Two others behind it would be asked about the one node that is left; one before it sees them all."""
    document = shipped(extenders(OTHER, "ours", OTHER, TWIN))
    found = check(tmp_path, document, decides_in_filter=True)
    assert [finding.text.partition(" ")[0] for finding in found if finding.is_fatal] == ["extenders[2]", "extenders[3]"]
    assert found[0].text == (
        "extenders[2] (http://127.0.0.1:9/other) comes after the extender, which decides in filter: it would be "
        "asked about one node only; move extenders[1] to the end, or set decide: prioritize"
    )
    assert check(tmp_path, shipped(extenders(OTHER, "ours")), decides_in_filter=True) == []


def test_all_findings_are_reported_at_once(tmp_path: Path) -> None:
    """3 verbs, whole nodes, all pods, no weight; the time-out has a default; and the profile."""
    bare = {"urlPrefix": "http://127.0.0.1:12345/gpushare-scheduler"}
    found = check(tmp_path, shipped(lambda document: document.update(extenders=[bare], profiles=[{}])))
    assert [finding.text.partition(" ")[0] for finding in found] == [
        "extenders[0].filterVerb",
        "extenders[0].prioritizeVerb",
        "extenders[0].bindVerb",
        "extenders[0].nodeCacheCapable",
        "extenders[0].managedResources",
        "extenders[0].weight",
        "profiles[0].percentageOfNodesToScore",
    ]


HEAD = "apiVersion: kubescheduler.config.k8s.io/v1\nkind: KubeSchedulerConfiguration\n"
FAULTS = {
    "not YAML": ("a: [", "not YAML: "),
    "a thousand brackets": ("[" * 1000, "not YAML: it is nested too deeply; "),
    "two documents": (f"{HEAD}---\n{HEAD}", "not YAML: "),
    "empty": ("", "not a mapping; "),
    "a list": ("- 1", "not a mapping; "),
    "another kind": (HEAD.replace("Kube", "Other"), "kind: Input should be 'KubeSchedulerConfiguration'; "),
    "no kind": ("a: b", "apiVersion: Field required; "),
    "an old version": (HEAD.replace("v1", "v1beta3"), "apiVersion: Input should be 'kubescheduler.config.k8s.io/v1'; "),
    "a text for a list": (f"{HEAD}extenders: none", "extenders: Input should be a valid list; "),
    "a text for a number": (
        f"{HEAD}extenders: [{{weight: ten}}]",
        "extenders.0.weight: Input should be a valid integer; ",
    ),
    "a text for yes": (
        f"{HEAD}extenders: [{{nodeCacheCapable: 'true'}}]",
        "extenders.0.nodeCacheCapable: Input should be a valid boolean; ",
    ),
}


@pytest.mark.parametrize(("text", "message"), FAULTS.values(), ids=FAULTS)
def test_an_unreadable_scheduler_configuration_is_refused(tmp_path: Path, text: str, message: str) -> None:
    with pytest.raises(SettingsError) as caught:
        check(tmp_path, text)
    assert str(caught.value).startswith(f"{tmp_path / 'scheduler.yaml'}: {message}")
    assert "--scheduler-config names the KubeSchedulerConfiguration" in str(caught.value)


def test_a_missing_file_and_one_in_another_encoding_are_named(tmp_path: Path) -> None:
    with pytest.raises(SettingsError, match="none: No such file or directory; --scheduler-config names"):
        check_scheduler_config(tmp_path / "none", SETTINGS, decides_in_filter=False)
    (tmp_path / "bytes").write_bytes(b"\xff\xfe")
    with pytest.raises(SettingsError, match="bytes: not YAML: "):
        check_scheduler_config(tmp_path / "bytes", SETTINGS, decides_in_filter=False)
