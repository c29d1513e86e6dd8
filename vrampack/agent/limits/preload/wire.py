"""The messages of `shim/preload/protocol.h`, packed and read: little endian, one packet each, every figure absolute.

What comes in is written by programs of pods, so it is read strictly: a length, a kind, a count or a padding that is not
as the header says is a `WireError`, never a guess.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from enum import IntEnum

from vrampack.agent.limits.preload.errors import WireError

VERSION = 1
SOCKET = "/var/lib/vrampack/preload/agent.sock"
ONLY_CARD = 0xFFFFFFFF
"""In place of a minor: the one card that the container has."""
CARDS = 32
"""Holdings in one message at most."""
MOST_BYTES = 1 << 50
"""No card has a pebibyte; sums of figures up to here fit an answer's 64 bits."""

QUESTION = struct.Struct("<HHIII")
HOLDING = struct.Struct("<IIQ")
ANSWER = struct.Struct("<HHIIIQQ32s")
MOST_QUESTION_BYTES = QUESTION.size + CARDS * HOLDING.size


class Kind(IntEnum):
    """What a process says."""

    HELLO = 1
    HOLD = 2
    GIVE = 3
    LOOK = 4


class Verdict(IntEnum):
    """What it is answered."""

    YES = 0
    NO = 1
    UNLIMITED = 2
    NO_SUCH_CARD = 3
    NOT_UNDERSTOOD = 4


@dataclass(frozen=True, slots=True)
class Holding:
    """So much of one card, which is named by its minor."""

    minor: int
    held_bytes: int


@dataclass(frozen=True, slots=True)
class Question:
    kind: Kind
    sequence: int
    holdings: tuple[Holding, ...]
    """One; of a HELLO any number."""


@dataclass(frozen=True, slots=True)
class Answer:
    verdict: Verdict
    sequence: int
    cards: int = 0
    limit_bytes: int = 0
    used_bytes: int = 0
    driver_version: str = ""


def read_question(packet: bytes) -> Question:
    """Raises `WireError`."""
    if len(packet) < QUESTION.size:
        raise WireError(f"{len(packet)} bytes are no question")
    version, kind, sequence, count, zero = QUESTION.unpack_from(packet)
    if version != VERSION:
        raise WireError(f"the library speaks {version}, the agent {VERSION}", sequence=sequence)
    if kind not in Kind.__members__.values() or zero:
        raise WireError(f"kind {kind}, padding {zero}", sequence=sequence)
    most = CARDS if kind == Kind.HELLO else 1
    if count > most or (kind != Kind.HELLO and count != 1):
        raise WireError(f"{count} holdings in a message of kind {kind}", sequence=sequence)
    if len(packet) != QUESTION.size + count * HOLDING.size:
        raise WireError(f"{len(packet)} bytes with {count} holdings", sequence=sequence)
    holdings = tuple(_holding(each, sequence) for each in HOLDING.iter_unpack(packet[QUESTION.size :]))
    if len({each.minor for each in holdings}) != count:
        raise WireError("a card stands twice", sequence=sequence)
    return Question(Kind(kind), sequence, holdings)


def write_question(question: Question) -> bytes:
    """As the library does it, for tests and benchmarks."""
    head = QUESTION.pack(VERSION, question.kind, question.sequence, len(question.holdings), 0)
    return head + b"".join(HOLDING.pack(each.minor, 0, each.held_bytes) for each in question.holdings)


def write_answer(answer: Answer) -> bytes:
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


def read_answer(packet: bytes) -> Answer:
    """As the library does it, for tests and benchmarks."""
    _, verdict, sequence, cards, _, limit_bytes, used_bytes, driver = ANSWER.unpack(packet)
    return Answer(Verdict(verdict), sequence, cards, limit_bytes, used_bytes, driver.rstrip(b"\0").decode())


def _holding(fields: tuple[int, int, int], sequence: int) -> Holding:
    minor, zero, held_bytes = fields
    if zero or held_bytes > MOST_BYTES:
        raise WireError(f"{held_bytes} bytes of card {minor}, padding {zero}", sequence=sequence)
    return Holding(minor, held_bytes)
