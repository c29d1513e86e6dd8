"""The extender with one fault: it fails the first time that it looks at a node named `faulty`."""

import sys

import pytest

from vrampack.cards import shape
from vrampack.cards.node import Node
from vrampack.cards.shape import Shape
from vrampack.cli.serve import main

failed: list[str] = []


def fail_once(node: Node) -> Shape:
    if node.name == "faulty" and not failed:
        failed.append(node.name)
        raise ArithmeticError("a fault of ours")
    return Shape(node)


if __name__ == "__main__":
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(shape, "Shape", fail_once)
        sys.exit(main(sys.argv[1:]))
