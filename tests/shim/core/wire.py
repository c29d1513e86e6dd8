"""The driver's structs as bytes, written from its documentation independently: nothing here reads layouts.csv."""

from __future__ import annotations

import struct
from collections.abc import Iterable
from dataclasses import dataclass

ALLOC_MEMORY, FREE, CONTROL, ALLOC, DUP, HEAP, CONTEXT_DMA = 0x27, 0x29, 0x2A, 0x2B, 0x34, 0x4A, 0x54
CARD_INFO, XFER = 200, 211
CLIENT, DEVICE, SUBDEVICE, MEMORY = 0x41, 0x80, 0x2080, 0x40
CHANNEL_GROUP, CHANNELS = 0xA06C, (0xC36F, 0xC46F, 0xC56F, 0xC86F, 0xCA6F)
NOT_PERMITTED, NO_CHANNELS, NO_MEMORY, NOT_SUPPORTED = 0x1B, 0x4F, 0x51, 0x56
EXPORT, IMPORT, EXPORTS, IMPORTS = 0x3D05, 0x3D06, 0x3D0B, 0x3D0C
REPORT_LIST, REPORT_INLINE, ID, ID_LONG = 0x20801301, 0x20801303, 0x205, 0x202
NAMES_CLIENT = {
    0x20801205: (16, 4),  # GR_CTXSW_ZCULL_MODE
    0x20801208: (24, 0),  # GR_CTXSW_ZCULL_BIND
    0x20801209: (40, 0),  # GR_CTXSW_PM_BIND
    0x20801211: (120, 4),  # GR_CTXSW_PREEMPTION_BIND
    0x2080123A: (16, 0),  # GR_CTXSW_SETUP_BIND
    0x20800122: (48, 0),  # GPU_EXEC_REG_OPS
}
"""The size of their parameters, and where in them the client is."""
DISABLE_CHANNELS, DISABLE_FOR_KEYS, ROTATE_KEYS = CLIENT_LISTS = 0x2080110B, 0x2080111A, 0x2080111C
FIRST_BRANCH = {DISABLE_FOR_KEYS: 550, ROTATE_KEYS: 595, 0x2080123A: 550}
"""Of controls that older branches do not have."""
BRANCHES = (515, 520, 525, 530, 535, 545, 550, 555, 560, 565, 570, 575, 580, 590, 595)
MIB = 1 << 20


def encode_request(number: int, size: int) -> int:
    """_IOWR('F', number, size)"""
    return 3 << 30 | size << 16 | ord("F") << 8 | number


@dataclass(frozen=True, slots=True)
class WireStruct:
    """The bytes of one call, and where the reply is in them."""

    number: int
    size: int
    fields: dict[int, tuple[str, int]]
    status: int = 0
    handle: int = 0
    nested: WireStruct | None = None
    """What the pointer at `pointer` leads to."""
    pointer: int = 0
    bytes_at: int | None = None
    """Where the size of memory stands; in the nested struct where there is one."""

    def packed(self, nested_at: int = 0) -> bytes:
        text = bytearray(self.size)
        for offset, (code, value) in self.fields.items():
            struct.pack_into("<" + code, text, offset, value)
        if self.pointer:
            struct.pack_into("<Q", text, self.pointer, nested_at)
        return bytes(text)


class CoreWire:
    """What calls look like in one branch."""

    def __init__(self, branch: int) -> None:
        self.branch = branch
        self.long_size = 40 if branch < 535 else 48
        self.short_status = 24 if branch < 535 else 28
        self.long_status = 32 if branch < 525 else 36 if branch < 535 else 40
        self.long_flags = 0 if branch < 525 else 32 if branch < 535 else 36
        self.entries = 54 if branch < 545 else 55 if branch < 560 else 57 if branch < 580 else 128

    @property
    def version(self) -> str:
        return f"{self.branch}.54.14"

    def alloc(
        self, client: int, parent: int, handle: int, kind: int, nested: WireStruct | None = None, *, short: bool = False
    ) -> WireStruct:
        fields = {0: ("I", client), 4: ("I", parent), 8: ("I", handle), 12: ("I", kind)}
        size, status = (32, self.short_status) if short else (self.long_size, self.long_status)
        pointer = 16 if nested else 0
        return WireStruct(ALLOC, size, fields, status, 8, nested, pointer, 64 if kind == MEMORY else None)

    def memory(
        self, client: int, parent: int, handle: int, size: int, *, short: bool = False, flags: int = 0,
        attributes: int = 0, attributes2: int = 0,
    ) -> WireStruct:  # fmt: skip
        fields = {8: ("I", flags), 24: ("I", attributes), 28: ("I", attributes2), 64: ("Q", size)}
        nested = WireStruct(0, 120 if self.branch < 545 else 128, fields)
        return self.alloc(client, parent, handle, MEMORY, nested, short=short)

    def device(self, client: int, handle: int, instance: int, *, short: bool = False) -> WireStruct:
        return self.alloc(client, client, handle, DEVICE, WireStruct(0, 56, {0: ("I", instance)}), short=short)

    def channel(
        self, client: int, parent: int, handle: int, memories: list[int], *, kind: int = 0xC56F, short: bool = False
    ) -> WireStruct:
        nested = WireStruct(0, 200, {32 + 4 * place: ("I", memory) for place, memory in enumerate(memories)})
        return self.alloc(client, parent, handle, kind, nested, short=short)

    def heap(
        self, client: int, parent: int, handle: int, size: int, *, ranged: bool = False, flags: int = 0,
        attributes: int = 0, attributes2: int = 0,
    ) -> WireStruct:  # fmt: skip
        at = 80 if ranged else 88
        fields = {
            0: ("I", client),
            4: ("I", parent),
            8: ("I", 14 if ranged else 2),
            44: ("I", handle),
            52: ("I", flags),
        }
        fields |= {56: ("I", attributes), at: ("Q", size), 136 if ranged else 144: ("I", attributes2)}
        return WireStruct(HEAP, 184, fields, 20, 44, bytes_at=at)

    def heap_function(self, client: int, parent: int, function: int, handle: int = 0) -> WireStruct:
        return WireStruct(
            HEAP, 184, {0: ("I", client), 4: ("I", parent), 8: ("I", function), 44: ("I", handle)}, 20, 44
        )

    def free(self, client: int, handle: int) -> WireStruct:
        return WireStruct(FREE, 16, {0: ("I", client), 8: ("I", handle)}, 12)

    def dup(self, client: int, parent: int, handle: int, source_client: int, source: int) -> WireStruct:
        fields = {0: ("I", client), 4: ("I", parent), 8: ("I", handle), 12: ("I", source_client), 16: ("I", source)}
        return WireStruct(DUP, 28, fields, 24, 8)

    def window(self, kind: int) -> WireStruct:
        return WireStruct(ALLOC_MEMORY, 56, {12: ("I", kind)}, 40, 8)

    def context(self, kind: int) -> WireStruct:
        return WireStruct(CONTEXT_DMA, 56, {12: ("I", kind)}, 48, 8)

    def control(self, client: int, handle: int, command: int, nested: WireStruct) -> WireStruct:
        fields = {0: ("I", client), 4: ("I", handle), 8: ("I", command), 24: ("I", nested.size)}
        return WireStruct(CONTROL, 32, fields, 28, nested=nested, pointer=16)

    def report(
        self, client: int, handle: int, entries: list[tuple[int, int]], *, count: int | None = None
    ) -> WireStruct:
        """FB_GET_INFO_V2, with the values that the driver will have written."""
        fields = {0: ("I", len(entries) if count is None else count)}
        for place, (index, value) in enumerate(entries):
            fields |= {4 + 8 * place: ("I", index), 8 + 8 * place: ("I", value)}
        return self.control(client, handle, REPORT_INLINE, WireStruct(0, 4 + 8 * self.entries, fields))

    def listed_report(self, client: int, handle: int, count: int, at: int) -> WireStruct:
        """FB_GET_INFO, whose entries are elsewhere."""
        return self.control(client, handle, REPORT_LIST, WireStruct(0, 16, {0: ("I", count), 8: ("Q", at)}))

    def card_id(self, client: int, gpu_id: int, instance: int, *, long: bool = False) -> WireStruct:
        nested = WireStruct(0, 48 if long else 32, {0: ("I", gpu_id), 8: ("I", instance)})
        return self.control(client, client, ID_LONG if long else ID, nested)

    def export(self, client: int, handle: int, descriptor: int) -> WireStruct:
        fields = {0: ("I", 1), 4: ("I", 0x99), 8: ("I", 0x98), 12: ("I", handle), 16: ("i", descriptor)}
        return self.control(client, client, EXPORT, WireStruct(0, 24, fields))

    def import_(self, client: int, parent: int, handle: int, descriptor: int) -> WireStruct:
        fields = {0: ("i", descriptor), 4: ("I", 1), 8: ("I", 0x99), 12: ("I", parent), 16: ("I", handle)}
        return self.control(client, client, IMPORT, WireStruct(0, 20, fields))

    def exports(
        self, client: int, handles: list[int], descriptor: int, *, index: int = 0, count: int = 0
    ) -> WireStruct:
        fields = {
            0: ("i", descriptor),
            4: ("I", 0x99),
            8: ("H", 700),
            2124: ("H", count or len(handles)),
            2126: ("H", index),
        }
        fields |= {76 + 4 * place: ("I", handle) for place, handle in enumerate(handles)}
        return self.control(client, client, EXPORTS, WireStruct(0, 2128, fields))

    def imports(
        self, client: int, parent: int, handles: list[int], descriptor: int, *, index: int = 0, count: int = 0
    ) -> WireStruct:
        fields = {0: ("i", descriptor), 4: ("I", parent), 648: ("H", count or len(handles)), 650: ("H", index)}
        fields |= {8 + 4 * place: ("I", handle) for place, handle in enumerate(handles)}
        return self.control(client, client, IMPORTS, WireStruct(0, 652, fields))

    def commands(self, wanted: Iterable[int]) -> list[int]:
        """Those of them that the branch has."""
        return [command for command in wanted if FIRST_BRANCH.get(command, 0) <= self.branch]

    def channel_list(
        self, client: int, handle: int, command: int, clients: list[int], *, count: int | None = None
    ) -> WireStruct:
        """FIFO_DISABLE_CHANNELS and those for the rotation of keys: lists of 64 clients, and after them of their channels."""
        at_count, at, size = (4, 24, 536) if command == DISABLE_CHANNELS else (0, 4, 520)
        fields = {at_count: ("I", len(clients) if count is None else count)}
        fields |= {at + 4 * place: ("I", each) for place, each in enumerate(clients)}
        return self.control(client, handle, command, WireStruct(0, size, fields))

    def named_client(self, client: int, handle: int, command: int, named: int) -> WireStruct:
        """The controls that name one client."""
        size, at = NAMES_CLIENT[command]
        return self.control(client, handle, command, WireStruct(0, size, {at: ("I", named)}))

    def cards(self, gpu_id_of_minor: dict[int, int]) -> WireStruct:
        fields: dict[int, tuple[str, int]] = {}
        for place, (minor, gpu_id) in enumerate(gpu_id_of_minor.items()):
            fields |= {72 * place: ("B", 1), 72 * place + 16: ("I", gpu_id), 72 * place + 56: ("I", minor)}
        return WireStruct(CARD_INFO, 72 * 32, fields)
