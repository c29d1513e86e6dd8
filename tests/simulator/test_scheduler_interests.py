"""For which pods the embedded scheduler asks the extender."""

from __future__ import annotations

from typing import Any

import pytest

from vrampack.simulator.scheduling.filters import requests_any

GPU = "example.com/gpu"

INTERESTS = {
    "requests": ({"containers": [{"resources": {"requests": {GPU: "1"}}}]}, True),
    "limits": ({"containers": [{"resources": {"limits": {GPU: "1"}}}]}, True),
    "init container": ({"containers": [{}], "initContainers": [{"resources": {"limits": {GPU: "1"}}}]}, True),
    "zero": ({"containers": [{"resources": {"limits": {GPU: "0"}}}]}, True),
    "something else": ({"containers": [{"resources": {"limits": {"cpu": "1"}}}]}, False),
    "ephemeral container": ({"ephemeralContainers": [{"resources": {"limits": {GPU: "1"}}}]}, False),
}


@pytest.mark.parametrize(("spec", "want"), INTERESTS.values(), ids=INTERESTS)
def test_the_extender_is_called_for_pods_with_managed_resources(spec: dict[str, Any], want: bool) -> None:  # noqa: FBT001 - a table
    assert requests_any({"spec": spec}, {GPU}) is want
