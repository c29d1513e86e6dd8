"""The messages, as the header of the library has them, byte by byte."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from vrampack.agent.limits.preload import files, wire
from vrampack.agent.limits.preload.errors import LibraryProtocolError
from vrampack.agent.limits.preload.wire import CardHolding, LibraryAnswer, LibraryQuestion, LibraryVerdict, MessageKind

ROOT = Path(__file__).parents[4]
HEADER = ROOT / "shim" / "preload" / "protocol.h"

minors = st.integers(0, 0xFFFFFFFF)
sizes = st.integers(0, wire.MAX_BYTES)
sequences = st.integers(0, 0xFFFFFFFF)
hellos = st.builds(
    lambda sequence, held: LibraryQuestion(
        MessageKind.HELLO, sequence, tuple(CardHolding(*each) for each in held.items())
    ),
    sequences,
    st.dictionaries(minors, sizes, max_size=wire.MAX_HOLDINGS),
)
others = st.builds(
    lambda kind, sequence, minor, size: LibraryQuestion(kind, sequence, (CardHolding(minor, size),)),
    st.sampled_from([MessageKind.HOLD, MessageKind.GIVE, MessageKind.LOOK]),
    sequences,
    minors,
    sizes,
)


@settings(deadline=None)
@given(hellos | others)
def test_a_question_survives_writing_and_reading(question: LibraryQuestion) -> None:
    assert wire.read_question(wire.write_question(question)) == question


@settings(deadline=None)
@given(st.binary(max_size=600))
def test_any_bytes_parse_as_a_question_or_raise_a_wire_error(packet: bytes) -> None:
    try:
        question = wire.read_question(packet)
    except LibraryProtocolError:
        return
    assert wire.write_question(question) == packet


def test_size_beyond_any_card_is_rejected() -> None:
    packet = wire.write_question(LibraryQuestion(MessageKind.HOLD, 1, (CardHolding(0, wire.MAX_BYTES + 1),)))
    with pytest.raises(LibraryProtocolError):
        wire.read_question(packet)


def test_a_question_that_names_a_card_twice_is_refused() -> None:
    with pytest.raises(LibraryProtocolError, match="twice"):
        wire.read_question(
            wire.write_question(LibraryQuestion(MessageKind.HELLO, 1, (CardHolding(0, 1), CardHolding(0, 2))))
        )


def test_answer_is_written_as_the_expected_bytes() -> None:
    answer = LibraryAnswer(LibraryVerdict.NO, 7, 2, 4301 << 20, 3193 << 20, "580.95.05")
    packet = wire.write_answer(answer)
    assert packet == (
        b"\1\0\1\0\7\0\0\0\2\0\0\0\0\0\0\0" + (4301 << 20).to_bytes(8, "little") + (3193 << 20).to_bytes(8, "little")
    ) + b"580.95.05".ljust(32, b"\0")
    assert wire.read_answer(packet) == answer


def test_overlong_driver_version_still_ends_with_a_zero_byte() -> None:
    assert wire.write_answer(LibraryAnswer(LibraryVerdict.YES, 1, driver_version="9" * 99))[-1:] == b"\0"


def test_the_c_header_defines_the_same_protocol() -> None:
    text = HEADER.read_text()
    defined = dict(re.findall(r"^#define (PROTOCOL_\w+)\s+(\S+)", text, re.MULTILINE))
    assert defined["PROTOCOL_SOCKET"] == f'"{wire.SOCKET_PATH}"' == f'"{files.HOST_FOLDER / files.SOCKET_NAME}"'
    assert int(defined["PROTOCOL_VERSION"]) == wire.VERSION
    assert int(defined["PROTOCOL_CARDS"]) == wire.MAX_HOLDINGS
    assert int(defined["PROTOCOL_ONLY_CARD"].rstrip("u"), 16) == wire.ONLY_CARD
    values = {name: int(value) for name, value in re.findall(r"\bPROTOCOL_([A-Z_]+) = (\d+)", text)}
    assert values == {
        **{kind.name: kind.value for kind in MessageKind},
        **{each.name: each.value for each in LibraryVerdict},
    }
    assert {name: size_of(text, name) for name in ("question", "holding", "answer")} == {
        "question": wire.QUESTION.size,
        "holding": wire.HOLDING.size,
        "answer": wire.ANSWER.size,
    }


def size_of(text: str, name: str) -> int:
    """Of fields that are naturally aligned, as all of these are."""
    body = re.search(rf"struct protocol_{name} \{{(.*?)\n\}};", text, re.DOTALL)
    assert body is not None
    fields = re.findall(r"^\t(uint(\d+)_t|char) (\w+)(?:\[(\d+)\])?;", body[1], re.MULTILINE)
    return sum((int(bits) // 8 if bits else 1) * int(count or 1) for _, bits, _, count in fields)
