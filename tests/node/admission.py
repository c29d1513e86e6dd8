"""The shipped policies, removed for a while: for pods created before them, or in spite of them."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.node.api_reader import Json
from tests.node.node import LiveNode
from tests.node.pods import a_pod
from tests.support.manifests import MANIFESTS

ENVIRONMENT = [MANIFESTS / "admission" / "exact" / f"environment-{name}.yaml" for name in ("inject", "guard")]
SCHEDULERS = [MANIFESTS / "admission" / "second-scheduler" / f"scheduler-{name}.yaml" for name in ("set", "guard")]

TOLD = "visible-devices.vrampack.dev/main"


@contextmanager
def before_policies(node: LiveNode, files: list[Path], pod: Json) -> Iterator[None]:
    """As if these policies did not exist when the pod is made; the API server needs a moment to notice, both times."""
    named = [option for file in files for option in ("-f", str(file))]
    node.kubectl("delete", *named)
    try:
        node.wait(lambda: (made := dry_run_create(node, pod)) and TOLD not in made, what="such a pod is left alone")
        yield
    finally:
        node.kubectl("apply", *named)
        node.wait(lambda: TOLD in dry_run_create(node, a_pod("probe")), what="new pods are told their card")


def dry_run_create(node: LiveNode, pod: Json) -> str:
    """What the API server would store, as text; empty while it refuses it."""
    asked = ("create", "--dry-run=server", "-o", "json", "-f", "-")
    return node.kubectl(*asked, input=json.dumps(pod), check=False).stdout
