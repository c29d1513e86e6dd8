"""Scripts for run_script.c: what a caller does, what the driver answers, and the expected result."""

from __future__ import annotations

import struct
import subprocess
from pathlib import Path

from tests.shim.core.wire import XFER, CoreWire, WireStruct, encode_request

AT, NESTED, WRAPPER, LIST = 0x100100, 0x101000, 0x100040, 0x103000
"""Where the structs of a call stand in the memory of run_script.c."""
SLOT_STRIDE = 0x4000
ONLY_CARD = 4


class NotSoError(AssertionError):
    """The core did not do what the script says."""


class CoreScript:
    """Lines to run, with the line that each must print."""

    def __init__(self, wire: CoreWire, falsified: tuple[int, int] | None = None) -> None:
        self.wire = wire
        self._lines: list[str] = []
        self._expected: list[tuple[str, str]] = []
        self.asks(f"V {wire.version}", "1", "the version is known")
        if falsified:
            self._lines.append(f"K {falsified[0]} {falsified[1]}")

    def open(self, file: int, owner: int, cards: int = 0) -> None:
        """Files with the same `cards` learn of cards together."""
        self._lines.append(f"O {file} {owner} {cards}")

    def knows_all_clients(self) -> None:
        """From here on the core has seen the clients of all processes."""
        self._lines.append("C")

    def close(self, file: int) -> None:
        self._lines.append(f"X {file}")

    def limit(self, container: int, card: int, size: int) -> None:
        self._lines.append(f"L {container} {card} {size}")

    def grows(self, count: int) -> None:
        self._lines.append(f"G {count}")

    def forwarded(
        self, file: int, call: WireStruct, *, handle: int | None = None, size: int | None = None, status: int = 0,
        result: int = 0, wrapped: bool = False, say: str = "the driver is asked",
    ) -> None:  # fmt: skip
        """A call that reaches the driver, which answers with this handle, size and status."""
        self.before(file, call, wrapped=wrapped, say=say)
        self.after(call, handle=handle, size=size, status=status, result=result)

    def before(
        self, file: int, call: WireStruct, *, slot: int = 0, wrapped: bool = False, say: str = "the driver is asked"
    ) -> None:
        self.asks(self._prepare(file, call, slot, wrapped=wrapped), "F", say)

    def after(
        self, call: WireStruct, *, slot: int = 0, handle: int | None = None, size: int | None = None, status: int = 0,
        result: int = 0, meddled: str = "",
    ) -> None:  # fmt: skip
        at, nested = AT + slot * SLOT_STRIDE, NESTED + slot * SLOT_STRIDE
        answer = [f"{result}"]
        if call.status:
            answer.append(f"{at + call.status:#x} {struct.pack('<I', status).hex()}")
        if handle is not None:
            answer.append(f"{at + call.handle:#x} {struct.pack('<I', handle).hex()}")
        if size is not None and call.bytes_at is not None:
            where = (nested if call.nested else at) + call.bytes_at
            answer.append(f"{where:#x} {struct.pack('<Q', size).hex()}")
        self._lines.append("D " + " ".join(answer))
        if meddled:
            self._lines.append(f"T {meddled}")
        self._lines.append(f"A {slot}")

    def transferred(
        self, file: int, call: WireStruct, met: int, *, status: int = 0, result: int = 0, may: bool = True,
        descriptor: int = 0, wrapped: bool = False,
    ) -> None:  # fmt: skip
        """An export or import whose descriptor leads to the file `met`; the call has `descriptor`, or else the number `met`."""
        self.before(file, call, wrapped=wrapped, say="the driver is asked for a transfer")
        self.asks(f"Q 0 {met}", f"{int(may)} {descriptor or met}", "may the transfer go on, and its descriptor")
        self.after(call, status=status, result=result)

    def refused(
        self, file: int, call: WireStruct, status: int, *, wrapped: bool = False, say: str = "the driver is not asked"
    ) -> None:
        self.asks(self._prepare(file, call, 0, wrapped=wrapped), "A 0", say)
        self.reads(AT + call.status, struct.pack("<I", status), f"{say}: the status is {status:#x}")

    def failed(self, file: int, raw_request: int, at: int, error: int, say: str) -> None:
        self.asks(f"B 0 {file} {raw_request:#x} {at:#x}", f"A {-error}", say)

    def raw(self, file: int, raw_request: int, at: int, result: int = 0, *, say: str = "the driver is asked") -> None:
        self.asks(f"B 0 {file} {raw_request:#x} {at:#x}", "F", say)
        self._lines += [f"D {result}", "A 0"]

    def writes(self, at: int, text: bytes) -> None:
        self._lines.append(f"M {at:#x} {text.hex()}")

    def reads(self, at: int, text: bytes, say: str) -> None:
        self.asks(f"R {at:#x} {len(text)}", text.hex(), say)

    def used(self, container: int, card: int, size: int, say: str = "used") -> None:
        self.asks(f"U {container} {card}", f"{size} * *", say)

    def counted(self, container: int, card: int, used: int, peak: int, refused: int) -> None:
        self.asks(f"U {container} {card}", f"{used} {peak} {refused}", "used, peak and refused")

    def share(self, owner: int, card: int, size: int) -> None:
        self.asks(f"P {owner} {card}", f"{size}", f"what process {owner} uses")

    def nothing_kept(self) -> None:
        self.asks("N", "0 0 0 0", "no object, no charge, no reservation and no channel group is kept")

    def kept(self, objects: int, charges: int, groups: int = 0) -> None:
        """A channel group has a charge of nothing."""
        self.asks("N", f"{objects} {charges} 0 {groups}", "objects, charges and groups kept")

    def groups_at_most(self, count: int) -> None:
        self._lines.append(f"S {count}")

    def check(self, runner: Path) -> None:
        """Runs it all; NotSoError names the first line with another result."""
        text = "\n".join([*self._lines, "E", ""])
        done = subprocess.run([runner], input=text, text=True, capture_output=True, timeout=100, check=False)
        if done.returncode:
            raise NotSoError(done.stderr[-4000:])
        printed = done.stdout.splitlines()
        for (want, say), got in zip(self._expected, printed, strict=True):
            if not _matches(want, got):
                raise NotSoError(f"{say}: {got}, not {want} (branch {self.wire.branch})")

    def asks(self, line: str, answer: str, say: str) -> None:
        self._lines.append(line)
        self._expected.append((answer, say))

    def _prepare(self, file: int, call: WireStruct, slot: int, *, wrapped: bool) -> str:
        at, nested = AT + slot * SLOT_STRIDE, NESTED + slot * SLOT_STRIDE
        self.writes(at, call.packed(nested))
        if call.nested:
            self.writes(nested, call.nested.packed())
        if not wrapped:
            return f"B {slot} {file} {encode_request(call.number, call.size):#x} {at:#x}"
        self.writes(WRAPPER + slot * SLOT_STRIDE, struct.pack("<IIQ", call.number, call.size, at))
        return f"B {slot} {file} {encode_request(XFER, 16):#x} {WRAPPER + slot * SLOT_STRIDE:#x}"


def _matches(want: str, got: str) -> bool:
    if want == got:
        return True
    pairs = zip(want.split(), got.split(), strict=False)
    return len(want.split()) == len(got.split()) and all(one in ("*", other) for one, other in pairs)
