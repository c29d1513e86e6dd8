"""The packets of shim/preload/protocol.h, as a program in another language reads them."""

from __future__ import annotations

import struct
from dataclasses import dataclass
from enum import IntEnum

VERSION = 1
ONLY_CARD = 0xFFFFFFFF
QUESTION = struct.Struct("<HHIII")
HOLDING = struct.Struct("<IIQ")
ANSWER = struct.Struct("<HHIIIQQ32s")


class PacketKind(IntEnum):
    HELLO = 1
    HOLD = 2
    GIVE = 3
    LOOK = 4


class PacketVerdict(IntEnum):
    YES = 0
    NO = 1
    UNLIMITED = 2
    NO_SUCH_CARD = 3
    NOT_UNDERSTOOD = 4


@dataclass(frozen=True, slots=True)
class PacketQuestion:
    kind: PacketKind
    sequence: int
    held: dict[int, int]
    """Bytes by minor."""


@dataclass(frozen=True, slots=True)
class PacketAnswer:
    verdict: PacketVerdict
    limit_bytes: int = 0
    used_bytes: int = 0
    driver_version: str = ""
    version: int = VERSION

    def packed(self, sequence: int) -> bytes:
        text = self.driver_version.encode()
        return ANSWER.pack(self.version, self.verdict, sequence, 1, 0, self.limit_bytes, self.used_bytes, text)


def parse_packet(packet: bytes) -> PacketQuestion:
    version, kind, sequence, count, zero = QUESTION.unpack_from(packet)
    assert (version, zero) == (VERSION, 0), packet.hex()
    assert len(packet) == QUESTION.size + count * HOLDING.size, packet.hex()
    holdings = HOLDING.iter_unpack(packet[QUESTION.size :])
    return PacketQuestion(PacketKind(kind), sequence, {minor: held for minor, _, held in holdings})
