"""A control plane of the release that `VRAMPACK_KUBERNETES` names, with the install for it; nothing there is for `exact` nodes."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from http import HTTPStatus
from pathlib import Path

import yaml

from tests.e2e.render import render_manifests
from tests.support.control_plane.binaries import FIRST_WITH_MUTATING_POLICIES, read_minor_version
from tests.support.control_plane.cluster import WORKLOADS, ControlPlane
from tests.support.manifest_builders import PODS, pod_manifest
from tests.support.manifests import MANIFESTS

HAS_MUTATING_POLICIES = read_minor_version() >= FIRST_WITH_MUTATING_POLICIES
SHAPE = MANIFESTS / ("second-scheduler" if HAS_MUTATING_POLICIES else "before-1.36")


@contextmanager
def start_release(folder: Path, *, apiserver_flags: Sequence[str] = ()) -> Iterator[ControlPlane]:
    """Its pods are left out: tests start the two programs themselves."""
    with ControlPlane.start(folder, apiserver_flags=apiserver_flags) as running:
        items = [item for item in yaml.safe_load_all(render_manifests(SHAPE)) if item["kind"] not in WORKLOADS]
        whole = json.dumps({"apiVersion": "v1", "kind": "List", "items": items})
        running.kubectl("apply", "--warnings-as-errors", "-f", "-", input=whole)
        running.wait_until(lambda: not takes_a_forged_record(running), what="the policies are in force")
        yield running


def takes_a_forged_record(cluster: ControlPlane) -> bool:
    """A pod that brings its own record is refused where the policies are in force."""
    pod = pod_manifest("forged", 4, annotations={"vrampack.dev/allocation": '{"v": 1, "cards": []}'})
    return cluster.request("POST", f"{PODS}?dryRun=All", pod)[0] == HTTPStatus.CREATED
