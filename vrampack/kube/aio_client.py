"""What loads credentials: the asyncio half of the official client, imported without the other half.

`kubernetes/__init__.py` also imports the blocking client, with requests, oauthlib and websocket: a fifth of the extender's
import time at each start, for code that is never called. So its body is not run. Its submodules can be imported as usual.
"""

from __future__ import annotations

import sys
from importlib.util import find_spec, module_from_spec

PACKAGE = "kubernetes"

if PACKAGE not in sys.modules and (_spec := find_spec(PACKAGE)) is not None:
    sys.modules[PACKAGE] = module_from_spec(_spec)

from kubernetes.aio import config as kube_config  # noqa: E402 - after its package exists
from kubernetes.aio.client import Configuration  # noqa: E402 - as above
from kubernetes.aio.config import incluster_config  # noqa: E402 - as above
from kubernetes.aio.config.kube_config import KubeConfigLoader, KubeConfigMerger  # noqa: E402 - as above

__all__ = ["Configuration", "KubeConfigLoader", "KubeConfigMerger", "incluster_config", "kube_config"]
