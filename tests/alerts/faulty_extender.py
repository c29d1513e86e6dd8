"""The extender with one fault: it fails the first time that it summarizes a node named `faulty`."""

import sys

import pytest

from policies.engine import cluster_summaries
from vrampack.cards.node import Node
from vrampack.cards.node_summary import NodeSummary, summarize_node
from vrampack.cli.serve import main

failed: list[str] = []


def fail_once(node: Node) -> NodeSummary:
    if node.name == "faulty" and not failed:
        failed.append(node.name)
        raise ArithmeticError("a fault of ours")
    return summarize_node(node)


if __name__ == "__main__":
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(cluster_summaries, "summarize_node", fail_once)
        sys.exit(main(sys.argv[1:]))
