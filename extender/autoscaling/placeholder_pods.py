"""What a placeholder is: a pod like those that wait, except that no node of today can take it.

No scheduler has the name in its `schedulerName`, so none tries it. It runs nothing, and in its own namespace no pod may do harm.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec

from extender.autoscaling.card_shortages import PodShape
from extender.autoscaling.node_rules import HOSTNAME
from vrampack.cards.well_known import ENFORCEMENT, PLACEHOLDER_NAMESPACE, PLACEHOLDER_SCHEDULER
from vrampack.kube.node_filters import CPU, Amounts

Json = dict[str, Any]  # Any: an object of the API


UNUSABLE_LABELS = {"karpenter": (ENFORCEMENT, HOSTNAME), "cluster-autoscaler": (HOSTNAME,)}
"""By the setting: a pod whose own rules name one would contradict what its placeholder excludes, or be refused."""


def exclude_agents() -> Json:
    """Excludes every node on which an agent runs. For Karpenter, which refuses pods with rules about host names."""
    return {"key": ENFORCEMENT, "operator": "DoesNotExist"}


def exclude_hosts(hostnames: Sequence[str]) -> Json:
    """For the Cluster Autoscaler, which gives a new node all labels of an old one but this."""
    return {"key": HOSTNAME, "operator": "NotIn", "values": list(hostnames)}


def build_placeholder(shape: PodShape, amounts: Amounts, exclusion: Json) -> Json:
    """`amounts` are what the pods of the shape ask for."""
    selector, affinity, tolerations = (msgspec.json.decode(part) for part in shape.rules)
    asked = {name: _format_quantity(name, amount) for name, amount in sorted(amounts.items()) if amount > 0}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": shape.name, "namespace": PLACEHOLDER_NAMESPACE},
        "spec": {
            "schedulerName": PLACEHOLDER_SCHEDULER,
            "nodeSelector": selector,
            "affinity": {
                "nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": _exclude(affinity, exclusion)}
            },
            "tolerations": tolerations,
            "automountServiceAccountToken": False,
            "terminationGracePeriodSeconds": 0,
            "securityContext": {"runAsNonRoot": True, "seccompProfile": {"type": "RuntimeDefault"}},
            "containers": [
                {
                    "name": "placeholder",
                    "image": "none",
                    "resources": {"requests": asked, "limits": asked},
                    "securityContext": {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}},
                }
            ],
        },
    }


def _exclude(affinity: Json | None, exclusion: Json) -> Json:
    """The required node affinity with one more requirement in each term. Terms that select nothing stay out."""
    terms = [{}] if affinity is None else [term for term in affinity["nodeSelectorTerms"] if term]
    return {
        "nodeSelectorTerms": [
            {**term, "matchExpressions": [*(term.get("matchExpressions") or ()), exclusion]} for term in terms
        ]
    }


def _format_quantity(name: str, amount: int) -> str:
    return f"{amount}m" if name == CPU else str(amount)
