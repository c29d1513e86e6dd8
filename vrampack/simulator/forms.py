"""In which form an answer leaves: the object as it is, or a row of the table that kubectl prints.

A client says what it takes in `Accept`, best first; the first form that is served is used. That is JSON alone: a
client that prefers protobuf takes JSON too.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import datetime
from typing import Literal, Protocol

from vrampack.simulator import errors
from vrampack.simulator.columns import COLUMNS
from vrampack.simulator.kinds import Kind, Object
from vrampack.simulator.paging import Page

TABLE = {"as": "Table", "v": "v1", "g": "meta.k8s.io"}
ANYTHING = ("*/*", "application/*", "application/json")
Include = Literal["None", "Metadata", "Object"]


class Form(Protocol):
    """How objects of one kind are told to one client."""

    def one(self, item: Object) -> Object: ...

    def many(self, page: Page) -> Object: ...


class Plain:
    """Objects as they are."""

    def __init__(self, kind: Kind) -> None:
        self._kind = kind

    def one(self, item: Object) -> Object:
        return self._kind.tagged(item)

    def many(self, page: Page) -> Object:
        about = {"kind": f"{self._kind.name}List", "apiVersion": self._kind.group_version}
        return {**about, "metadata": list_metadata(page), "items": page.items}


class Table:
    """Objects as rows. A watch tells the columns with its first row only."""

    def __init__(self, kind: Kind, *, include: Include, now: Callable[[], datetime]) -> None:
        self._kind = kind
        self._include = include
        self._now = now
        self._has_told_columns = False

    def one(self, item: Object) -> Object:
        return self._table({"resourceVersion": item["metadata"].get("resourceVersion", "")}, [item])

    def many(self, page: Page) -> Object:
        return self._table(list_metadata(page), page.items)

    def _table(self, metadata: Object, items: Sequence[Object]) -> Object:
        columns = COLUMNS[self._kind.plural]
        told, self._has_told_columns = self._has_told_columns, True
        return {
            "kind": "Table",
            "apiVersion": "meta.k8s.io/v1",
            "metadata": metadata,
            "columnDefinitions": None if told else [column.definition() for column in columns],
            "rows": [self._row(item) for item in items],
        }

    def _row(self, item: Object) -> Object:
        now = self._now()
        row: Object = {"cells": [column.cell(item, now) for column in COLUMNS[self._kind.plural]]}
        if self._include == "Object":
            row["object"] = self._kind.tagged(item)
        elif self._include == "Metadata":
            about = {"kind": "PartialObjectMetadata", "apiVersion": "meta.k8s.io/v1"}
            row["object"] = {**about, "metadata": item["metadata"]}
        else:
            row["object"] = None
        return row


def form(kind: Kind, accepted: str, *, include: str, now: Callable[[], datetime]) -> Form:
    """The form for `Accept` and `includeObject`, either may be empty."""
    if not is_table(accepted):
        return Plain(kind)
    for known in ("None", "Metadata", "Object"):
        if include == known:
            return Table(kind, include=known, now=now)
    if include:
        raise errors.bad_request(f'includeObject: unsupported value "{include}": one of None, Metadata, Object')
    return Table(kind, include="Metadata", now=now)


def is_table(accepted: str) -> bool:
    """Whether `Accept` asks for a table rather than for objects; 406 where it asks for neither."""
    for choice in (accepted or "*/*").split(","):
        media_type, *pairs = (part.strip() for part in choice.split(";"))
        parameters = dict(pair.split("=", 1) for pair in pairs if "=" in pair)
        wanted = {key: parameters[key] for key in ("as", "v", "g") if key in parameters}
        if media_type in ANYTHING and not wanted:
            return False
        if media_type == "application/json" and wanted == TABLE:
            return True
    raise errors.not_acceptable("application/json, application/json;as=Table;v=v1;g=meta.k8s.io")


def list_metadata(page: Page) -> Object:
    metadata: Object = {"resourceVersion": str(page.version)}
    if page.token is not None:
        metadata["continue"] = page.token.text()
    if page.remaining:
        metadata["remainingItemCount"] = page.remaining
    return metadata
