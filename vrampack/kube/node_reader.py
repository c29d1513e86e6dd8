"""One node and all pods on it as the API server has them now, for a close look."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import msgspec

from vrampack.kube.client import Api
from vrampack.kube.examined_objects import ExaminedNode, ExaminedPod
from vrampack.kube.list_page import ListPage, decode_page
from vrampack.kube.objects import FINISHED_PHASES

MAX_PODS = 1000
"""No kubelet takes so many."""
_NODES = msgspec.json.Decoder(ListPage[ExaminedNode])
_PODS = msgspec.json.Decoder(ListPage[ExaminedPod])


class NodeWithPods(NamedTuple):
    """A node and the pods on it that have not finished."""

    node: ExaminedNode
    pods: Sequence[ExaminedPod]


async def read_node_state(api: Api, name: str) -> NodeWithPods | None:
    """None when there is no such node, or more pods on it than a kubelet takes. Raises `RefusedError` or `NoAnswerError`."""
    by_name, by_node = f"metadata.name={name}", f"spec.nodeName={name}"
    nodes = decode_page(await api.list_page("nodes", limit=1, field_selector=by_name), _NODES, "nodes")
    pods = decode_page(await api.list_page("pods", limit=MAX_PODS, field_selector=by_node), _PODS, "pods")
    if not nodes.items or pods.metadata.continue_:
        return None
    return NodeWithPods(nodes.items[0], [pod for pod in pods.items or () if pod.status.phase not in FINISHED_PHASES])
