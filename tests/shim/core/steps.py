"""The steps most scripts begin and end with."""

from __future__ import annotations

from pathlib import Path

from tests.shim.core.script import ONLY_CARD, CoreScript
from tests.shim.core.wire import CLIENT, MIB, CoreWire

ROOT, CARD, OTHER_ROOT, OTHER_CARD = 0xC1D00001, 0x5C000001, 0xC1D00002, 0x5C000002
LIMIT = 4301 * MIB
EFAULT, EINVAL = 14, 22
BAD_STATE = 0x40
"""A status that says no."""


def start_script(wire: CoreWire) -> CoreScript:
    script = CoreScript(wire)
    script.limit(0, ONLY_CARD, LIMIT)
    begin_script(script, file=0, owner=0, client=ROOT, device=CARD)
    return script


def begin_script(script: CoreScript, *, file: int, owner: int, client: int, device: int) -> None:
    script.open(file, owner)
    script.forwarded(file, script.wire.alloc(0, 0, 0, CLIENT), handle=client)
    script.forwarded(file, script.wire.device(client, device, 0), handle=device)


def run_script(script: CoreScript, runner: Path, *files: int) -> None:
    """Close the files; nothing may be left."""
    for file in files or (0,):
        script.close(file)
    script.used(0, ONLY_CARD, 0, "used when all is closed")
    script.nothing_kept()
    script.check(runner)


def hold_memory(
    script: CoreScript, size: int, handle: int, *, file: int = 0, client: int = ROOT, device: int = CARD
) -> None:
    script.forwarded(file, script.wire.memory(client, device, handle, size), handle=handle, size=size)
