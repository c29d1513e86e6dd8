"""The names of our CDI devices: 128 random bits each, given out by `Allocate` once.

The next pod reuses a device id, but never a name. Because names cannot be guessed, a pod gains nothing by writing one
into its own environment. kubelet's checkpoint has each container's name, with the rest of `Allocate`'s answer.
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
    """The qualified name for the runtime: `vrampack.dev/card=0f..`."""
    return f"{CARD_KIND}={name}"


def parse_qualified_name(text: str) -> str | None:
    """The name in a CDI device of ours; None for every other text."""
    kind, separator, name = text.partition("=")
    return name if separator and kind == CARD_KIND and _NAME.fullmatch(name) else None
