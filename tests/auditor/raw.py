"""Reads untrusted JSON: a value of the wrong type counts as missing and never crashes the auditor.

The auditor must survive every object a test forges, so nothing here raises except where the caller requested strictness.
"""

import json
import re
from collections.abc import Iterator, Mapping
from fractions import Fraction
from typing import Any

Raw = Mapping[str, Any]  # Any: the objects are audited as the API server sent them, whatever they hold

_QUANTITY = re.compile(
    r"([+-]?[0-9]{1,30}(?:\.[0-9]{0,30})?)(?:[eE]([+-]?[0-9]{1,2})|([num]|k|[MGTPE]|[KMGTPE]i)?)", re.ASCII
)
_DECIMAL_POWERS = {"n": -3, "u": -2, "m": -1, "": 0, "k": 1, "M": 2, "G": 3, "T": 4, "P": 5, "E": 6}


def mapping(value: object) -> Raw:
    """The value if it is an object, else an empty one."""
    return value if isinstance(value, Mapping) else {}


def required_mapping(value: object) -> Raw:
    """The value, which must be an object."""
    found = value if isinstance(value, Mapping) else None
    if found is None:
        raise ValueError("not an object")
    return found


def listing(value: object) -> list[Any]:  # Any: elements are as raw as the objects they come from
    """The value if it is a list, else an empty one."""
    return value if isinstance(value, list) else []


def text(value: object) -> str:
    """The value if it is a string, else the empty one."""
    return value if isinstance(value, str) else ""


def whole_number(value: object) -> int | None:
    """The value if it is a JSON integer; true and false are not."""
    return value if isinstance(value, int) and not isinstance(value, bool) else None


def decimal(value: object) -> int | None:
    """The number in a string of digits such as an annotation holds. No number here needs more than 30 of them."""
    return int(value) if isinstance(value, str) and re.fullmatch(r"[0-9]{1,30}", value, re.ASCII) else None


def metadata(obj: Raw) -> Raw:
    return mapping(obj.get("metadata"))


def annotations(obj: Raw) -> dict[str, str]:
    """All string annotations of an object."""
    found = mapping(metadata(obj).get("annotations"))
    return {key: value for key, value in found.items() if isinstance(value, str)}


def labels(obj: Raw) -> dict[str, str]:
    """All string labels of an object."""
    found = mapping(metadata(obj).get("labels"))
    return {key: value for key, value in found.items() if isinstance(value, str)}


def quantity(value: object) -> int:
    """A resource quantity in whole units, 0 when absent. The API server writes 1000 as `1k`, so suffixes are read."""
    if value is None:
        return 0
    parts = _QUANTITY.fullmatch(str(value).strip())
    if parts is None:
        raise ValueError(f"quantity {value!r} is not a number")
    digits, exponent, suffix = parts[1], parts[2] or "0", parts[3] or ""
    binary = suffix.endswith("i")
    power = _DECIMAL_POWERS[suffix.rstrip("i").replace("K", "k")]
    units = Fraction(digits) * Fraction(10) ** int(exponent) * Fraction(1024 if binary else 1000) ** power
    if units < 0 or units.denominator != 1:
        raise ValueError(f"quantity {value!r} is not a whole number")
    return units.numerator


def strict_json(source: str) -> object:
    """JSON in which no key comes twice and no number is NaN: two readers could disagree about those."""
    try:
        return json.loads(source, object_pairs_hook=_distinct, parse_constant=_refuse)
    except RecursionError as error:
        raise ValueError("nested too deeply") from error


def json_lines(source: str) -> Iterator[Raw]:
    """One object per line, blank lines passed over."""
    for line in source.splitlines():
        if line.strip():
            yield mapping(json.loads(line))


def _distinct(pairs: list[tuple[str, Any]]) -> Raw:  # Any: whatever the JSON holds
    found = dict(pairs)
    if len(found) != len(pairs):
        raise ValueError("a key comes twice")
    return found


def _refuse(constant: str) -> None:
    raise ValueError(f"{constant} is not a number")
