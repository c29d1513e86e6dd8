"""Applies the shipped policies, and weakened ones for as long as a test looks at what then gets through.

A policy takes effect up to a second after it is applied. Nothing here sleeps: `with_weakened_policies` leaves the
waiting to the test, which repeats its attack until the answer changes.
"""

from __future__ import annotations

import copy
import json
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from http import HTTPStatus
from pathlib import Path
from typing import TypeAlias

from tests.support.control_plane.cluster import ControlPlane, Json
from tests.support.manifests import MANIFESTS, load_objects

SHIPPED = MANIFESTS / "admission"
EXACT = SHIPPED / "exact"
SECOND_SCHEDULER = SHIPPED / "second-scheduler"
OPTIONAL = SHIPPED / "optional"

ON_EXACT = (SHIPPED, EXACT)
"""What a cluster with `exact` nodes has, as the control plane of the end-to-end suite does."""

Edit: TypeAlias = Callable[[Json], Json]
"""Makes a weaker policy of the one given."""

PLURALS = {
    "ValidatingAdmissionPolicy": "validatingadmissionpolicies",
    "MutatingAdmissionPolicy": "mutatingadmissionpolicies",
    "ValidatingAdmissionPolicyBinding": "validatingadmissionpolicybindings",
    "MutatingAdmissionPolicyBinding": "mutatingadmissionpolicybindings",
}


def load_policies(*folders: Path) -> dict[str, Json]:
    """The policies of these folders by name, without other objects."""
    made = [item for folder in folders for item in load_objects(folder)]
    return {item["metadata"]["name"]: item for item in made if item["kind"].endswith("AdmissionPolicy")}


def apply_policies(cluster: ControlPlane, folder: Path) -> None:
    """As a user would; a warning of the API server is a failure."""
    cluster.kubectl("apply", "--warnings-as-errors", "-k", folder)


def delete_policies(cluster: ControlPlane, folder: Path) -> None:
    cluster.kubectl("delete", "--ignore-not-found", "-k", folder)


@contextmanager
def with_weakened_policies(
    cluster: ControlPlane, folders: Path | Sequence[Path], edits: dict[str, Edit]
) -> Iterator[None]:
    """Replace the named policies with weaker ones. Afterwards the shipped ones are restored, and soon in force."""
    shipped = load_policies(*([folders] if isinstance(folders, Path) else folders))
    try:
        for name, edit in edits.items():
            _replace(cluster, _changed(shipped[name], edit))
        yield
    finally:
        for name in edits:
            _replace(cluster, shipped[name])


def wait_for_policies(cluster: ControlPlane, is_in_force: Callable[[], object], *, what: str) -> None:
    """Wait until policies that were changed are in force. The API server reads them once a second, and an attack costs it 20 ms."""
    cluster.wait_until(is_in_force, 20, what=what, interval_seconds=0.2)


@contextmanager
def with_installed_policies(cluster: ControlPlane, *objects: Json) -> Iterator[None]:
    """Policies and bindings of a test's own, for as long as it needs them."""
    try:
        for made in objects:
            cluster.request_ok("POST", _collection(made), made)
        yield
    finally:
        for made in objects:
            cluster.request("DELETE", f"{_collection(made)}/{made['metadata']['name']}")


def sidecar_injector(namespace: str, additions: list[Json], *, into: str = "pods") -> tuple[Json, Json]:
    """Somebody else's mutating policy, for one namespace: adds to each new pod, or to what comes by a sub-resource."""
    meta = {"name": f"injector-{namespace}"}
    operation = "CREATE" if into == "pods" else "UPDATE"
    rule = {"apiGroups": [""], "apiVersions": ["v1"], "operations": [operation], "resources": [into]}
    patches = ", ".join(
        f"JSONPatch{{op: 'add', path: '{addition['at']}', value: {_cel(addition['value'])}}}" for addition in additions
    )
    policy = {
        "kind": "MutatingAdmissionPolicy",
        "metadata": meta,
        "spec": {
            "reinvocationPolicy": "Never",
            "matchConstraints": {"resourceRules": [rule]},
            "mutations": [{"patchType": "JSONPatch", "jsonPatch": {"expression": f"[{patches}]"}}],
        },
    }
    here = {"matchLabels": {"kubernetes.io/metadata.name": namespace}}
    binding = {
        "kind": "MutatingAdmissionPolicyBinding",
        "metadata": meta,
        "spec": {"policyName": meta["name"], "matchResources": {"namespaceSelector": here}},
    }
    return policy, binding


def without_resource(resource: str) -> Edit:
    def edit(policy: Json) -> Json:
        for rule in policy["spec"]["matchConstraints"]["resourceRules"]:
            # The API server wants at least one resource in a rule.
            rule["resources"] = [name for name in rule["resources"] if name != resource] or ["pods/none"]
        return policy

    return edit


def without_operation(operation: str, resource: str) -> Edit:
    def edit(policy: Json) -> Json:
        for rule in policy["spec"]["matchConstraints"]["resourceRules"]:
            if resource in rule["resources"]:
                rule["operations"] = [name for name in rule["operations"] if name != operation]
        return policy

    return edit


def without_validation(index: int) -> Edit:
    """The validation remains and is always true: a policy must have one."""

    def edit(policy: Json) -> Json:
        policy["spec"]["validations"][index] = {"expression": "true"}
        return policy

    return edit


def with_text(old: str, new: str) -> Edit:
    """Replace `old` with `new` in every expression."""

    def edit(policy: Json) -> Json:
        quoted_old, quoted_new = json.dumps(old)[1:-1], json.dumps(new)[1:-1]
        changed: Json = json.loads(json.dumps(policy).replace(quoted_old, quoted_new))
        return changed

    return edit


def with_variable(name: str, expression: str) -> Edit:
    def edit(policy: Json) -> Json:
        for declared in policy["spec"]["variables"]:
            if declared["name"] == name:
                declared["expression"] = expression
        return policy

    return edit


def with_validation_switched_off(policy: Json) -> Json:
    """Make the policy match nothing."""
    policy["spec"]["matchConditions"] = [{"name": "nothing", "expression": "false"}]
    return policy


def without_reinvocation(policy: Json) -> Json:
    policy["spec"]["reinvocationPolicy"] = "Never"
    return policy


def without_showing(shown: Iterable[str], *folders: Path) -> set[str]:
    """The resources and validations of the folders' validating policies that no entry of `shown` takes away.

    An entry is named `<policy>: resource <name>` or `<policy>: validation <index>`, with anything behind it.
    """
    parts = {
        f"{name}: {part}"
        for name, policy in load_policies(*folders).items()
        if policy["kind"] == "ValidatingAdmissionPolicy"
        for part in _parts(policy["spec"])
    }
    return {part for part in parts if not any(entry == part or entry.startswith(f"{part}, ") for entry in shown)}


def _parts(spec: Json) -> Iterator[str]:
    for rule in spec["matchConstraints"]["resourceRules"]:
        yield from (f"resource {resource}" for resource in rule["resources"])
    yield from (f"validation {index}" for index in range(len(spec["validations"])))


def _cel(value: Json) -> str:
    """JSON as a CEL literal: CEL wants its maps and lists of one type, unless told that they are not."""
    if isinstance(value, dict):
        return "{" + ", ".join(f"{json.dumps(key)}: dyn({_cel(item)})" for key, item in value.items()) + "}"
    if isinstance(value, list):
        return "[" + ", ".join(f"dyn({_cel(item)})" for item in value) + "]"
    return json.dumps(value)


def _changed(policy: Json, edit: Edit) -> Json:
    changed = edit(copy.deepcopy(policy))
    if changed == policy:
        raise ValueError(f"{policy['metadata']['name']}: the weakening changes nothing")
    return changed


def _replace(cluster: ControlPlane, policy: Json) -> None:
    """The type checker writes into the status meanwhile, so a conflict is no surprise."""
    path = f"{_collection(policy)}/{policy['metadata']['name']}"

    def put() -> bool:
        current = cluster.request_ok("GET", path)
        status, answer = cluster.request("PUT", path, {**current, "spec": policy["spec"]})
        if status not in {HTTPStatus.OK, HTTPStatus.CONFLICT}:
            raise RuntimeError(f"PUT {path}: {status} {answer}")
        return status == HTTPStatus.OK

    cluster.wait_until(put, what=f"{path} is replaced")


def _collection(made: Json) -> str:
    return f"/apis/admissionregistration.k8s.io/v1/{PLURALS[made['kind']]}"
