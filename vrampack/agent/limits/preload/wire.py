"""The messages of `shim/preload/protocol.h`, packed and read: little endian, one packet each, every figure absolute.

Programs in pods write the questions, so they are read strictly: a length, kind, count or padding that does not match the
header is a `LibraryProtocolError`, never a guess.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from enum import IntEnum

from vrampack.agent.limits.preload.errors import LibraryProtocolError

VERSION = 1
SOCKET_PATH = "/var/lib/vrampack/preload/agent.sock"
ONLY_CARD = 0xFFFFFFFF
"""Instead of a minor: the only card that the container has."""
MAX_HOLDINGS = 32
"""The most holdings in one message."""
MAX_BYTES = 1 << 50
"""No card has a pebibyte; sums of figures up to here fit an answer's 64 bits."""

QUESTION = struct.Struct("<HHIII")
HOLDING = struct.Struct("<IIQ")
ANSWER = struct.Struct("<HHIIIQQ32s")
MAX_QUESTION_BYTES = QUESTION.size + MAX_HOLDINGS * HOLDING.size


class MessageKind(IntEnum):
    """What a process says."""

    HELLO = 1
    HOLD = 2
    GIVE = 3
    LOOK = 4


class LibraryVerdict(IntEnum):
    """What it is answered."""

    YES = 0
    NO = 1
    UNLIMITED = 2
    NO_SUCH_CARD = 3
    NOT_UNDERSTOOD = 4


@dataclass(frozen=True, slots=True)
class CardHolding:
    """The bytes that are held of one card, named by its minor."""

    minor: int
    held_bytes: int


@dataclass(frozen=True, slots=True)
class LibraryQuestion:
    kind: MessageKind
    sequence: int
    holdings: tuple[CardHolding, ...]
    """Exactly one; a HELLO may have any number."""


@dataclass(frozen=True, slots=True)
class LibraryAnswer:
    verdict: LibraryVerdict
    sequence: int
    cards: int = 0
    limit_bytes: int = 0
    used_bytes: int = 0
    driver_version: str = ""


def read_question(packet: bytes) -> LibraryQuestion:
    """Parse a question. Raises `LibraryProtocolError`."""
    if len(packet) < QUESTION.size:
        raise LibraryProtocolError(f"{len(packet)} bytes are no question")
    version, kind, sequence, count, zero = QUESTION.unpack_from(packet)
    if version != VERSION:
        raise LibraryProtocolError(f"the library speaks {version}, the agent {VERSION}", sequence=sequence)
    if kind not in MessageKind.__members__.values() or zero:
        raise LibraryProtocolError(f"kind {kind}, padding {zero}", sequence=sequence)
    most = MAX_HOLDINGS if kind == MessageKind.HELLO else 1
    if count > most or (kind != MessageKind.HELLO and count != 1):
        raise LibraryProtocolError(f"{count} holdings in a message of kind {kind}", sequence=sequence)
    if len(packet) != QUESTION.size + count * HOLDING.size:
        raise LibraryProtocolError(f"{len(packet)} bytes with {count} holdings", sequence=sequence)
    holdings = tuple(_parse_holding(each, sequence) for each in HOLDING.iter_unpack(packet[QUESTION.size :]))
    if len({each.minor for each in holdings}) != count:
        raise LibraryProtocolError("a card appears twice", sequence=sequence)
    return LibraryQuestion(MessageKind(kind), sequence, holdings)


def write_question(question: LibraryQuestion) -> bytes:
    """As the library does it, for tests and benchmarks."""
    head = QUESTION.pack(VERSION, question.kind, question.sequence, len(question.holdings), 0)
    return head + b"".join(HOLDING.pack(each.minor, 0, each.held_bytes) for each in question.holdings)


def write_answer(answer: LibraryAnswer) -> bytes:
    return ANSWER.pack(
        VERSION,
        answer.verdict,
        answer.sequence,
        answer.cards,
        0,
        answer.limit_bytes,
        answer.used_bytes,
        answer.driver_version.encode()[:31],
    )


def read_answer(packet: bytes) -> LibraryAnswer:
    """As the library does it, for tests and benchmarks."""
    _, verdict, sequence, cards, _, limit_bytes, used_bytes, driver = ANSWER.unpack(packet)
    return LibraryAnswer(
        LibraryVerdict(verdict), sequence, cards, limit_bytes, used_bytes, driver.rstrip(b"\0").decode()
    )


def _parse_holding(fields: tuple[int, int, int], sequence: int) -> CardHolding:
    minor, zero, held_bytes = fields
    if zero or held_bytes > MAX_BYTES:
        raise LibraryProtocolError(f"{held_bytes} bytes of card {minor}, padding {zero}", sequence=sequence)
    return CardHolding(minor, held_bytes)
