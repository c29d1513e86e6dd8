"""Label and field selectors: which objects of a list or a watch a client asks for.

    app=web,tier in (a,b),!canary          a label selector
    spec.nodeName=gpu-0,status.phase!=Failed   a field selector

An unreadable selector, or a field that the kind does not offer, is refused as by the real server.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Self

from vrampack.simulator import errors
from vrampack.simulator.resource_kinds import Object, ResourceKind

NAME_PATTERN = r"[A-Za-z0-9](?:[-A-Za-z0-9_.]*[A-Za-z0-9])?"
KEY_PATTERN = rf"(?:[a-z0-9](?:[-a-z0-9.]*[a-z0-9])?/)?{NAME_PATTERN}"
VALUE_PATTERN = rf"(?:{NAME_PATTERN})?"
EXISTENCE = re.compile(rf"\s*(!?)\s*({KEY_PATTERN})\s*")
EQUALITY = re.compile(rf"\s*({KEY_PATTERN})\s*(==|=|!=)\s*({VALUE_PATTERN})\s*")
MEMBERSHIP = re.compile(rf"\s*({KEY_PATTERN})\s+(in|notin)\s*\(([^()]*)\)\s*")
TERMS = re.compile(r"(?:[^,()]|\([^()]*\))+")
"""Commas separate terms, but not inside the parentheses of a set."""
FIELD_TERM = re.compile(r"([^=!]*)(==|=|!=)(.*)")

LabelRequirement = Callable[[Mapping[str, str]], bool]


@dataclass(frozen=True, slots=True)
class ObjectSelector:
    """Both selectors of one request. An empty one selects everything."""

    labels: tuple[LabelRequirement, ...] = ()
    fields: tuple[tuple[str, bool, str], ...] = ()
    """Path, whether it must be equal, value."""

    @classmethod
    def parse(cls, kind: ResourceKind, *, labels: str, fields: str) -> Self:
        return cls(tuple(_parse_label_requirements(labels)), tuple(_parse_field_terms(kind, fields)))

    @property
    def selects_everything(self) -> bool:
        return not self.labels and not self.fields

    def matches(self, item: Object) -> bool:
        known = item["metadata"].get("labels") or {}
        return all(claim(known) for claim in self.labels) and all(
            (_read_field(item, path) == value) is is_equal for path, is_equal, value in self.fields
        )


SELECT_EVERYTHING = ObjectSelector()


def matches_selector(selector: Object, labels: Mapping[str, str]) -> bool:
    """Whether a workload's `spec.selector` matches a pod with these labels."""
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


def _parse_label_requirements(text: str) -> list[LabelRequirement]:
    if not text.strip():
        return []
    terms = TERMS.findall(text)
    if ",".join(terms) != text:
        raise _unreadable_selector(text)
    return [_parse_label_requirement(term, text) for term in terms]


def _parse_label_requirement(term: str, text: str) -> LabelRequirement:
    if found := MEMBERSHIP.fullmatch(term):
        key, word, inside = found.groups()
        values = {value.strip() for value in inside.split(",")}
        if all(re.fullmatch(VALUE_PATTERN, value) for value in values):
            return lambda labels: (labels.get(key) in values) is (word == "in")
    if found := EQUALITY.fullmatch(term):
        key, operator, value = found.groups()
        return lambda labels: (labels.get(key) == value) is (operator != "!=")
    if found := EXISTENCE.fullmatch(term):
        no, key = found.groups()
        return lambda labels: (key in labels) is not bool(no)
    raise _unreadable_selector(text)


def _unreadable_selector(text: str) -> errors.StatusError:
    return errors.bad_request(f"unable to parse requirement: {text!r} is not a label selector")


def _parse_field_terms(kind: ResourceKind, text: str) -> list[tuple[str, bool, str]]:
    terms = []
    for term in filter(None, text.split(",")):
        found = FIELD_TERM.fullmatch(term)
        if found is None:
            raise errors.bad_request(f"invalid selector: '{text}'; can't understand '{term}'")
        path, operator, value = found.groups()
        _check_field(kind, path)
        terms.append((path, operator != "!=", value))
    return terms


def _check_field(kind: ResourceKind, path: str) -> None:
    places = ("metadata.name", "metadata.namespace") if kind.is_namespaced else ("metadata.name",)
    if path in places or path in kind.selectable_fields:
        return
    if kind.group:
        only = ", ".join(f'"{place}"' for place in places)
        raise errors.bad_request(f'"{path}" is not a known field selector: only {only}')
    raise errors.bad_request(f"field label not supported: {path}")


def _read_field(item: Object, path: str) -> str:
    """The field as the real server compares it: a text, empty if missing, booleans in lower case."""
    value: object = item
    for word in path.split("."):
        value = value.get(word) if isinstance(value, dict) else None
    if path == "spec.unschedulable":
        return "true" if value else "false"
    return "" if value is None else str(value)


def format_selector(selector: Object) -> str:
    """A workload's selector in the text form of kubectl and `scale`."""
    equal = [f"{key}={value}" for key, value in (selector.get("matchLabels") or {}).items()]
    others = [_format_expression(each) for each in selector.get("matchExpressions") or []]
    return ",".join(sorted(equal + others))


def _format_expression(wanted: Object) -> str:
    key, values = wanted.get("key", ""), ",".join(sorted(wanted.get("values") or []))
    forms = {"In": f"{key} in ({values})", "NotIn": f"{key} notin ({values})", "DoesNotExist": f"!{key}"}
    return str(forms.get(wanted.get("operator", ""), key))
