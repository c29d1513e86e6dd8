"""Does what `explain` tells programs to do about a waiting pod, until the scheduler binds it or nothing can be done."""

from __future__ import annotations

import asyncio
from pathlib import Path
from random import Random
from typing import Any

from extender.settings import load_settings
from tests.support.control_plane.cluster import ControlPlane
from tests.support.manifest_builders import PODS, cards_annotation, pod_manifest, published_card
from vrampack.cli.explain.main import explain_pod
from vrampack.cli.explain.schema import ActionView, Explanation
from vrampack.kube.client import Api
from vrampack.kube.credentials import load_credentials

CARD_UNITS = 15
MERGE = "application/merge-patch+json"
OBSTACLES = ("cordoned", "tainted", "not labelled", "card cordoned", "none")
GATE = "example.com/until-all-is-done"
TAINT = {"key": "example.com/team", "effect": "NoSchedule"}


class DrawnPod:
    """A pod that waits beside two nodes of its own, for one of several reasons."""

    def __init__(self, cluster: ControlPlane, number: int) -> None:
        self._cluster = cluster
        self._number = number
        self._random = Random(number)
        self._pool = f"pool-{number}"
        self.name = f"drawn-{number}"
        self.units = self._random.choice((8, 10, 14, 20))
        self._nodes = [self._add_node(f"{self._pool}-{at}") for at in range(2)]

    def fill_nodes(self) -> list[str]:
        """Pods that take most of each card; returns their names."""
        names = []
        for node in self._nodes:
            name = f"fill-{node}"
            pod = pod_manifest(name, self._random.choice((6, 9, 12)))
            pod["spec"]["nodeSelector"] = {"kubernetes.io/hostname": node}
            self._cluster.request_ok("POST", PODS, pod)
            names.append(name)
        return names

    def create(self) -> None:
        """First the obstacles, of the first pods one of each kind, then the pod behind a gate."""
        for node in self._nodes:
            kind = OBSTACLES[self._number] if self._number < len(OBSTACLES) else self._random.choice(OBSTACLES)
            if kind in ("cordoned", "tainted"):
                self._patch_node(node, {"spec": {"unschedulable": True} if kind == "cordoned" else {"taints": [TAINT]}})
            if kind == "not labelled":
                self._patch_node(node, {"metadata": {"labels": {"pool": None}}})
            if kind == "card cordoned":
                self._patch_node(node, {"metadata": {"annotations": {"vrampack.dev/cordoned-cards": f"GPU-{node}"}}})
        self._cluster.request_ok("POST", PODS, self._build_pod())

    def open_gate(self) -> None:
        """The scheduler tries it once all is done, and needs no second attempt."""
        body = {"spec": {"schedulingGates": None}}
        self._cluster.request_ok("PATCH", f"{PODS}/{self.name}", body, content_type=MERGE)

    def do(self, action: ActionView) -> None:
        """As docs/explain.md describes it."""
        match action.kind:
            case "free":
                self._cluster.request_ok("DELETE", f"{PODS}/fill-{action.node}")
            case "uncordon" if action.card is not None:
                self._patch_node(action.node, {"metadata": {"annotations": {"vrampack.dev/cordoned-cards": None}}})
            case "uncordon":
                self._patch_node(action.node, {"spec": {"unschedulable": None}})
            case "label":
                self._patch_node(action.node, {"metadata": {"labels": {action.key: action.value}}})
            case "remove-taint":
                self._patch_node(action.node, {"spec": {"taints": None}})
            case "change-request":
                self.units = action.amount
                self._cluster.request_ok("DELETE", f"{PODS}/{self.name}")
                self._cluster.request_ok("POST", PODS, self._build_pod())

    def _build_pod(self) -> dict[str, Any]:
        pod = pod_manifest(self.name, self.units)
        pod["spec"] |= {"nodeSelector": {"pool": self._pool}, "schedulingGates": [{"name": GATE}]}
        return pod

    def _add_node(self, name: str) -> str:
        cards = cards_annotation(published_card(0, uuid=f"GPU-{name}", units=CARD_UNITS))
        self._cluster.add_node(name, cards=cards, labels={"pool": self._pool})
        return name

    def _patch_node(self, name: str, body: dict[str, Any]) -> None:
        self._cluster.request_ok("PATCH", f"/api/v1/nodes/{name}", body, content_type=MERGE)


def explain_now(kubeconfig: Path, name: str) -> Explanation:
    """As the command does, in this process."""

    async def explain() -> Explanation:
        api = Api(await load_credentials(kubeconfig, None))
        try:
            return await explain_pod(api, load_settings(None), "default", name)
        finally:
            await api.close()

    return asyncio.run(explain())
