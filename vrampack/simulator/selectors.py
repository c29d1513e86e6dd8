"""Label and field selectors: what a client asks to see of a list or a watch.

    app=web,tier in (a,b),!canary          a label selector
    spec.nodeName=gpu-0,status.phase!=Failed   a field selector

A selector that cannot be read, and a field that its kind does not offer, are refused as by the real server.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Self

from vrampack.simulator import errors
from vrampack.simulator.kinds import Kind, Object

NAME = r"[A-Za-z0-9](?:[-A-Za-z0-9_.]*[A-Za-z0-9])?"
KEY = rf"(?:[a-z0-9](?:[-a-z0-9.]*[a-z0-9])?/)?{NAME}"
VALUE = rf"(?:{NAME})?"
EXISTENCE = re.compile(rf"\s*(!?)\s*({KEY})\s*")
EQUALITY = re.compile(rf"\s*({KEY})\s*(==|=|!=)\s*({VALUE})\s*")
MEMBERSHIP = re.compile(rf"\s*({KEY})\s+(in|notin)\s*\(([^()]*)\)\s*")
TERMS = re.compile(r"(?:[^,()]|\([^()]*\))+")
"""Commas part terms, but not inside the parentheses of a set."""
FIELD_TERM = re.compile(r"([^=!]*)(==|=|!=)(.*)")

Claim = Callable[[Mapping[str, str]], bool]


@dataclass(frozen=True, slots=True)
class Selector:
    """Both selectors of one request. An empty one selects everything."""

    labels: tuple[Claim, ...] = ()
    fields: tuple[tuple[str, bool, str], ...] = ()
    """Path, whether it must be equal, value."""

    @classmethod
    def parse(cls, kind: Kind, *, labels: str, fields: str) -> Self:
        return cls(tuple(_label_claims(labels)), tuple(_field_terms(kind, fields)))

    @property
    def is_everything(self) -> bool:
        return not self.labels and not self.fields

    def matches(self, item: Object) -> bool:
        known = item["metadata"].get("labels") or {}
        return all(claim(known) for claim in self.labels) and all(
            (_field(item, path) == value) is is_equal for path, is_equal, value in self.fields
        )


EVERYTHING = Selector()


def matches_selector(selector: Object, labels: Mapping[str, str]) -> bool:
    """Whether a workload's `spec.selector` takes a pod of these labels."""
    wanted = selector.get("matchLabels") or {}
    return all(labels.get(key) == value for key, value in wanted.items()) and all(
        _expression_holds(expression, labels) for expression in selector.get("matchExpressions") or []
    )


def _expression_holds(expression: Object, labels: Mapping[str, str]) -> bool:
    key, values = expression.get("key", ""), expression.get("values") or []
    return {
        "In": labels.get(key) in values,
        "NotIn": labels.get(key) not in values,
        "Exists": key in labels,
        "DoesNotExist": key not in labels,
    }.get(expression.get("operator", ""), False)


def _label_claims(text: str) -> list[Claim]:
    if not text.strip():
        return []
    terms = TERMS.findall(text)
    if ",".join(terms) != text:
        raise _unreadable(text)
    return [_label_claim(term, text) for term in terms]


def _label_claim(term: str, text: str) -> Claim:
    if found := MEMBERSHIP.fullmatch(term):
        key, word, inside = found.groups()
        values = {value.strip() for value in inside.split(",")}
        if all(re.fullmatch(VALUE, value) for value in values):
            return lambda labels: (labels.get(key) in values) is (word == "in")
    if found := EQUALITY.fullmatch(term):
        key, operator, value = found.groups()
        return lambda labels: (labels.get(key) == value) is (operator != "!=")
    if found := EXISTENCE.fullmatch(term):
        no, key = found.groups()
        return lambda labels: (key in labels) is not bool(no)
    raise _unreadable(text)


def _unreadable(text: str) -> errors.StatusError:
    return errors.bad_request(f"unable to parse requirement: {text!r} is not a label selector")


def _field_terms(kind: Kind, text: str) -> list[tuple[str, bool, str]]:
    terms = []
    for term in filter(None, text.split(",")):
        found = FIELD_TERM.fullmatch(term)
        if found is None:
            raise errors.bad_request(f"invalid selector: '{text}'; can't understand '{term}'")
        path, operator, value = found.groups()
        _check_field(kind, path)
        terms.append((path, operator != "!=", value))
    return terms


def _check_field(kind: Kind, path: str) -> None:
    places = ("metadata.name", "metadata.namespace") if kind.is_namespaced else ("metadata.name",)
    if path in places or path in kind.fields:
        return
    if kind.group:
        only = ", ".join(f'"{place}"' for place in places)
        raise errors.bad_request(f'"{path}" is not a known field selector: only {only}')
    raise errors.bad_request(f"field label not supported: {path}")


def _field(item: Object, path: str) -> str:
    """As the real server compares it: a text, empty where there is none, booleans in small letters."""
    value: object = item
    for word in path.split("."):
        value = value.get(word) if isinstance(value, dict) else None
    if path == "spec.unschedulable":
        return "true" if value else "false"
    return "" if value is None else str(value)


def selector_text(selector: Object) -> str:
    """A workload's selector as people and `scale` read it."""
    equal = [f"{key}={value}" for key, value in (selector.get("matchLabels") or {}).items()]
    others = [_expression(each) for each in selector.get("matchExpressions") or []]
    return ",".join(sorted(equal + others))


def _expression(wanted: Object) -> str:
    key, values = wanted.get("key", ""), ",".join(sorted(wanted.get("values") or []))
    forms = {"In": f"{key} in ({values})", "NotIn": f"{key} notin ({values})", "DoesNotExist": f"!{key}"}
    return str(forms.get(wanted.get("operator", ""), key))
