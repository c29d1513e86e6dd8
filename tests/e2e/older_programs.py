"""The extender and the agent as they were before `serves`, `hook` and `instances`: one skips these keys, the other writes none.

    python older_programs.py serve ..

`tests/cards/test_node_annotations.py` has that keys which a reader does not know are skipped.
"""

from __future__ import annotations

import json
import sys
from typing import Any

from vrampack.cards import node_annotations
from vrampack.cli.main import main


def drop_new_keys(text: str) -> str:
    """The value of `vrampack.dev/cards` without them."""
    value: Any = json.loads(text)  # Any: what an agent wrote
    for held, keys in ((value, ("serves", "hook")), *((card, ("instances",)) for card in value["cards"])):
        for key in keys:
            held.pop(key, None)
    return json.dumps(value)


def write_cards_as_before(*args: Any, **options: Any) -> str:  # noqa: ANN401 - those of `write_cards`
    return drop_new_keys(node_annotations.write_cards(*args, **options))


def serve_as_before() -> int:
    """`vrampack` with these arguments."""
    read = node_annotations._read_cards
    node_annotations._read_cards = lambda name, text: read(name, drop_new_keys(text))
    return main()


if __name__ == "__main__":
    sys.exit(serve_as_before())
