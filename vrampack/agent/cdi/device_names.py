"""The names of our CDI devices: 128 random bits each, answered by `Allocate` once and never derived from anything.

A device id is used again by the next pod; a name is not. One that cannot be guessed names nothing to a pod that writes it
into its own environment. Which container has which name is in kubelet's checkpoint, with the rest of `Allocate`'s answer.
"""

from __future__ import annotations

import re
import secrets
from typing import Final

CARD_KIND: Final = "vrampack.dev/card"
_NAME: Final = re.compile(r"[0-9a-f]{32}")


def make_device_name() -> str:
    """A fresh one."""
    return secrets.token_hex(16)


def qualify_name(name: str) -> str:
    """As the runtime is told it: `vrampack.dev/card=0f..`."""
    return f"{CARD_KIND}={name}"


def parse_qualified_name(text: str) -> str | None:
    """The name in a CDI device of ours; None for every other text."""
    kind, separator, name = text.partition("=")
    return name if separator and kind == CARD_KIND and _NAME.fullmatch(name) else None
