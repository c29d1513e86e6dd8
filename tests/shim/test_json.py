"""The hook's JSON reader takes exactly what Python's takes, and reads the same from it.

A seeded generator makes documents and corrupts them; both readers get each. What Python takes beyond RFC 8259
(NaN, a lonely surrogate) and what the hook does not (more than 64 levels) is taken out of Python's answer.
"""

from __future__ import annotations

import json
import random
from pathlib import Path

import pytest

from tests.shim.probing import run_probe

DEEPEST = 64
PIECES = [
    "",
    "a",
    "NVIDIA_GPU_MEMORY_LIMIT=1",
    '"',
    "\\",
    "/",
    "\x00",
    "\n\t\b",
    "é",
    "€",
    "😀",
    "\x7f",
    "\ud7ff",
    "\ue000",
]
SCALARS = ["0", "-0", "12", "-1.5", "1e9", "2.5E-3", "1E+2", "true", "false", "null"]
SPACES = ["", "", "", " ", "\n", "\t \r"]


class Number(str):
    """A number as it was written."""

    __slots__ = ()


class Object(list[tuple[str, object]]):
    """An object with its names in order, including those that occur twice."""


def a_string(dice: random.Random) -> str:
    text = "".join(dice.choices(PIECES, k=dice.randrange(4)))
    return json.dumps(text, ensure_ascii=dice.random() < 0.5)


def a_document(dice: random.Random, depth: int = 0) -> str:
    def spaced(text: str) -> str:
        return dice.choice(SPACES) + text + dice.choice(SPACES)

    kind = dice.random()
    if depth > 5 or kind < 0.3:
        return spaced(dice.choice(SCALARS))
    if kind < 0.5:
        return spaced(a_string(dice))
    count = dice.randrange(4)
    if kind < 0.75:
        return spaced("[" + ",".join(a_document(dice, depth + 1) for _ in range(count)) + "]")
    members = (spaced(a_string(dice)) + ":" + a_document(dice, depth + 1) for _ in range(count))
    return spaced("{" + ",".join(members) + "}")


def damaged(dice: random.Random, text: bytes) -> bytes:
    at = dice.randrange(len(text) + 1)
    match dice.randrange(4):
        case 0:
            return text[:at]
        case 1:
            return text[:at] + bytes([dice.randrange(256)]) + text[at:]
        case 2:
            return text[:at] + text[at + 1 :]
        case _:
            return (
                text[:at]
                + dice.choice([b'"', b"\\u", b"\\ud83d", b"{", b"]", b",", b":", b"\xc0\x80", b"01"])
                + text[at:]
            )


def python_reads(text: bytes) -> str:
    """What the probe should say of it."""

    def refuse(constant: str) -> object:
        raise ValueError(constant)

    try:
        value = json.loads(
            text.decode(), parse_int=Number, parse_float=Number, parse_constant=refuse, object_pairs_hook=Object
        )
        return shown(value, 1)
    except ValueError:
        return "bad"


def shown(value: object, level: int) -> str:
    match value:
        case Number():
            return str(value)
        case str():
            written = value.encode().hex()  # a lonely surrogate is a ValueError here
            return "s!" if "\x00" in value else "s" + written
        case True | False | None:
            return json.dumps(value)
    if level > DEEPEST:
        raise ValueError("too deep")
    match value:
        case Object():
            members = (shown(name, level) + ":" + shown(member, level + 1) + "," for name, member in value)
            return "{" + "".join(members) + "}"
        case list():
            return "[" + "".join(shown(item, level + 1) + "," for item in value) + "]"
    raise TypeError(value)


@pytest.mark.parametrize("seed", range(4))
def test_random_documents_are_read_as_python_reads_them(built: Path, seed: int) -> None:
    dice = random.Random(seed)
    whole = [a_document(dice).encode("utf-8", "surrogatepass") for _ in range(2000)]
    texts = whole + [damaged(dice, text) for text in whole for _ in range(3)]
    expected = [python_reads(text) for text in texts]
    wrong = [
        (text, got, want)
        for text, got, want in zip(texts, run_probe(built, "json", texts), expected, strict=True)
        if got != want
    ]
    assert wrong == []
    assert expected.count("bad") > 1000


def test_every_truncated_document_is_refused(built: Path) -> None:
    text = b'{"a":[1.5e+3,"\\ud83d\\ude00\\n",true,null,{"\xc3\xa9":-0}],"b":""}'
    cuts = [text[:at] for at in range(len(text))]
    assert run_probe(built, "json", cuts) == ["bad"] * len(cuts)


REFUSED = {
    "nothing": b"",
    "two values": b"1 2",
    "a byte order mark": b"\xef\xbb\xbf{}",
    "a zero after the end": b"{}\x00",
    "a comma at the end": b"[1,]",
    "a comment": b"{}//",
    "single quotes": b"{'a':1}",
    "a number as a name": b"{1:1}",
    "a control character in a string": b'"\n"',
    "a lonely high surrogate": b'"\\ud800"',
    "a lonely low surrogate": b'"\\udc00"',
    "a surrogate in UTF-8": b'"\xed\xa0\x80"',
    "an overlong slash": b'"\xc0\xaf"',
    "above U+10FFFF": b'"\xf4\x90\x80\x80"',
    "NaN": b"NaN",
    "65 levels": b"[" * 65 + b"]" * 65,
    "a million levels": b"[" * 1_000_000,
    "a million open objects": b'{"a":' * 1_000_000,
}


@pytest.mark.parametrize("text", REFUSED.values(), ids=REFUSED)
def test_input_that_is_no_json_is_refused(built: Path, text: bytes) -> None:
    assert run_probe(built, "json", [text]) == ["bad"]


def test_64_levels_are_read(built: Path) -> None:
    assert run_probe(built, "json", [b"[" * 64 + b"]" * 64]) == ["[" * 63 + "[]" + ",]" * 63]
