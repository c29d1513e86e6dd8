"""`explain` for readers with rights in one namespace: what is written on the pod, and never an error."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.cli.explain.objects import Object, a_bound_pod, a_gpu_node, a_waiting_pod
from tests.cli.explain.scenes import LIMITS
from tests.fakes.proxy import FaultProxy
from vrampack.cli.explain.main import main
from vrampack.simulator.apiserver import ApiServer
from vrampack.simulator.kubeconfig import write_kubeconfig

Said = pytest.CaptureFixture[str]
TEXT = "asks for 20 units (20 GiB) on one card; large enough when empty: A100"


def an_answered_pod(reason: str, **spec: object) -> Object:
    condition = {"type": "VrampackPlacement", "status": "False", "reason": reason, "message": TEXT}
    said = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": "0/3 nodes are available"}
    conditions = [condition | {"lastTransitionTime": "2030-01-02T03:04:05Z"}, said]
    return a_waiting_pod(units=20, spec=spec, status={"conditions": conditions})


async def explain(folder: Path, pod: Object, hidden: str, *arguments: str) -> int:
    """By a reader who may not list `hidden`."""
    async with ApiServer() as api, FaultProxy(int(api.url.rpartition(":")[2])) as proxy:
        api.create(a_gpu_node("gpu-1"))
        api.restore(pod)
        proxy.when("GET", hidden).answer(403)
        kubeconfig = str(write_kubeconfig(folder, proxy.url))
        return await asyncio.to_thread(main, ["pod", pod["metadata"]["name"], *arguments, "--kubeconfig", kubeconfig])


STEPS = {
    "waiting may help": ("NoCardWithEnoughFreeMemory", "wait until memory is freed, or ask for less"),
    "waiting does not": ("LargerThanAnyCard", "change the request or the pod's selectors: waiting does not help"),
    "the reason of a later version": ("Unheard", "wait for the extender's answer"),
}


@pytest.mark.parametrize(("reason", "step"), STEPS.values(), ids=STEPS)
@pytest.mark.parametrize("hidden", ["/api/v1/nodes", "/api/v1/pods"])
async def test_a_pending_pod_is_explained_by_its_conditions(
    hidden: str, reason: str, step: str, tmp_path: Path, capsys: Said
) -> None:
    assert await explain(tmp_path, an_answered_pod(reason), hidden) == 0
    said = capsys.readouterr()
    assert said.err == ""
    headline, findings = said.out.split("\n\n")
    assert headline == "Pod default/w is pending and asks for 20 units (20 GiB) on one card."
    lines = findings.splitlines()
    assert lines[:2] == [
        f"The extender says ({reason}, 2030-01-02T03:04:05Z): it {TEXT}.",
        "Scheduler vrampack says: 0/3 nodes are available",
    ]
    assert lines[-1].startswith(f"Next: {step}")


async def test_rules_that_name_labels_of_namespaces_need_no_right_to_read_them(tmp_path: Path, capsys: Said) -> None:
    """Nodes and pods may be listed, but which cards the rules leave to the pod is not known."""
    config = tmp_path / "extender.yaml"
    profile = {"name": "s", "policy": "spread", "users": {"namespace_labels": {"team": "a"}}}
    head = {"apiVersion": "vrampack.dev/v1", "kind": "ExtenderConfiguration"}
    config.write_text(yaml.safe_dump({**head, "profiles": [profile]}))
    assert await explain(tmp_path, an_answered_pod("Unheard"), r"/api/v1/namespaces\?", "--config", str(config)) == 0
    said = capsys.readouterr().out
    assert "You may not list namespaces, whose labels the rules name, so no cards are shown" in said
    assert "NODE " not in said


async def test_a_bound_pod_shows_cards_and_limits_by_its_record(tmp_path: Path, capsys: Said) -> None:
    pod = a_bound_pod("mine", "gpu-1", {0: 4}, annotations=LIMITS)
    assert await explain(tmp_path, pod, "/api/v1/nodes", "-o", "json") == 0
    placement = json.loads(capsys.readouterr().out)["placement"]
    assert (placement["node"], placement["limitsMib"], placement["problem"]) == (
        "gpu-1",
        {"init": 2150, "main": 4301},
        "",
    )
    assert [(card["index"], card["units"]) for card in placement["cards"]] == [(0, 4)]


async def test_the_namespace_is_that_of_the_context(tmp_path: Path, capsys: Said) -> None:
    pod: Any = a_waiting_pod(units=0)
    pod["metadata"]["namespace"] = "ml"
    async with ApiServer() as api:
        api.restore(pod)
        kubeconfig = write_kubeconfig(tmp_path, api.url)
        written = yaml.safe_load(kubeconfig.read_text())
        written["contexts"][0]["context"]["namespace"] = "ml"
        kubeconfig.write_text(yaml.safe_dump(written))
        arguments = ["pod", "w", "--kubeconfig", str(kubeconfig)]
        assert await asyncio.to_thread(main, arguments) == 0
        assert await asyncio.to_thread(main, [*arguments, "-n", "default"]) == 1
    assert capsys.readouterr().out.startswith("Pod ml/w requests no")
