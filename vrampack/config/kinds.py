"""The kinds of files that people mistake for one another, with the program that reads each."""

from __future__ import annotations

FILE_OWNERS = {
    "ExtenderConfiguration": "the extender's file",
    "PlacementPolicy": "a policy file",
    "AgentConfiguration": "the agent's file",
    "AdmissionWebhookConfiguration": "the admission webhook's file",
    "KubeSchedulerConfiguration": "kube-scheduler's file",
    "ConfigMap": "a ConfigMap; the file is the text under its data",
}


def find_wrong_kind(found: object, expected: str) -> str | None:
    """A text about a file of another known kind, in which every line would be a fault; None for other files."""
    owner = FILE_OWNERS.get(found) if isinstance(found, str) and found != expected else None
    if owner is None:
        return None
    wanted = FILE_OWNERS.get(expected)
    return f"found {found}: this is {owner}; allowed: {expected}{f', {wanted}' if wanted else ''}"
