"""The rights that the accounts of our programs need, as the shipped roles grant them; a test compares the two."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

AccessNeed = tuple[str, str, tuple[str, ...]]
"""API group, resource with its subresource, verbs."""

_READ = ("get", "list", "watch")
ACCESS_NEEDS: Mapping[str, tuple[AccessNeed, ...]] = {
    "vrampack-extender": (
        ("", "pods", _READ),
        ("", "nodes", (*_READ, "patch")),
        ("", "namespaces", ("list", "watch")),
        ("", "pods/binding", ("create",)),
        ("", "pods/status", ("patch",)),
        ("", "pods/eviction", ("create",)),
        ("", "events", ("create", "patch")),
        ("resource.k8s.io", "deviceclasses", ("list",)),
        ("scheduling.k8s.io", "podgroups", ("list", "watch")),
        ("scheduling.x-k8s.io", "podgroups", ("list", "watch")),
    ),
    "vrampack-agent": (
        # Which identity reads depends on the version; the metric `vrampack_agent_read_identity_info` shows it.
        ("", "nodes", ("patch",)),
        ("", "nodes/status", ("patch",)),
        ("", "events", ("create",)),
        ("resource.k8s.io", "resourceslices", ("list",)),
    ),
}


def list_attributes(account: str) -> Iterator[dict[str, str]]:
    """The `resourceAttributes` of a SubjectAccessReview, one for each verb that the account needs."""
    for group, qualified, verbs in ACCESS_NEEDS[account]:
        resource, _, subresource = qualified.partition("/")
        for verb in verbs:
            yield {"verb": verb, "group": group, "resource": resource} | (
                {"subresource": subresource} if subresource else {}
            )
