"""What a runtime writes into a bundle's config.json."""

from __future__ import annotations

import json

CONTAINERD = {
    "io.kubernetes.cri.container-type": "container",
    "io.kubernetes.cri.sandbox-namespace": "ml",
    "io.kubernetes.cri.sandbox-name": "app-0",
    "io.kubernetes.cri.sandbox-uid": "u-1",
    "io.kubernetes.cri.container-name": "main",
}


def runtime_config(*env: object, annotations: object = None, **more: object) -> str:
    return json.dumps({"process": {"env": list(env)}, "annotations": annotations, **more})
