"""Content negotiation: an answer is the object itself, or a row of the table that kubectl prints.

A client lists what it accepts in `Accept`, best first; the first supported form is used. Only JSON is supported: clients that
prefer protobuf accept JSON too.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import datetime
from typing import Literal, Protocol

from vrampack.simulator import errors
from vrampack.simulator.pagination import ObjectPage
from vrampack.simulator.resource_kinds import Object, ResourceKind
from vrampack.simulator.table_columns import COLUMNS_BY_PLURAL

TABLE_PARAMETERS = {"as": "Table", "v": "v1", "g": "meta.k8s.io"}
JSON_MEDIA_TYPES = ("*/*", "application/*", "application/json")
Include = Literal["None", "Metadata", "Object"]


class Representation(Protocol):
    """How objects of one kind are represented to one client."""

    def render_object(self, item: Object) -> Object: ...

    def render_list(self, page: ObjectPage) -> Object: ...


class ObjectRepresentation:
    """Objects as they are."""

    def __init__(self, kind: ResourceKind) -> None:
        self._kind = kind

    def render_object(self, item: Object) -> Object:
        return self._kind.add_type_meta(item)

    def render_list(self, page: ObjectPage) -> Object:
        about = {"kind": f"{self._kind.name}List", "apiVersion": self._kind.group_version}
        return {**about, "metadata": build_list_metadata(page), "items": page.items}


class TableRepresentation:
    """Objects as table rows. A watch sends the columns with its first row only."""

    def __init__(self, kind: ResourceKind, *, include: Include, now: Callable[[], datetime]) -> None:
        self._kind = kind
        self._include = include
        self._now = now
        self._has_sent_columns = False

    def render_object(self, item: Object) -> Object:
        return self._build_table({"resourceVersion": item["metadata"].get("resourceVersion", "")}, [item])

    def render_list(self, page: ObjectPage) -> Object:
        return self._build_table(build_list_metadata(page), page.items)

    def _build_table(self, metadata: Object, items: Sequence[Object]) -> Object:
        columns = COLUMNS_BY_PLURAL[self._kind.plural]
        told, self._has_sent_columns = self._has_sent_columns, True
        return {
            "kind": "Table",
            "apiVersion": "meta.k8s.io/v1",
            "metadata": metadata,
            "columnDefinitions": None if told else [column.build_definition() for column in columns],
            "rows": [self._build_row(item) for item in items],
        }

    def _build_row(self, item: Object) -> Object:
        now = self._now()
        row: Object = {"cells": [column.format_cell(item, now) for column in COLUMNS_BY_PLURAL[self._kind.plural]]}
        if self._include == "Object":
            row["object"] = self._kind.add_type_meta(item)
        elif self._include == "Metadata":
            about = {"kind": "PartialObjectMetadata", "apiVersion": "meta.k8s.io/v1"}
            row["object"] = {**about, "metadata": item["metadata"]}
        else:
            row["object"] = None
        return row


def negotiate_representation(
    kind: ResourceKind, accept_header: str, *, include: str, now: Callable[[], datetime]
) -> Representation:
    """The representation for `Accept` and `includeObject`, either of which may be empty."""
    if not wants_table(accept_header):
        return ObjectRepresentation(kind)
    for known in ("None", "Metadata", "Object"):
        if include == known:
            return TableRepresentation(kind, include=known, now=now)
    if include:
        raise errors.bad_request(f'includeObject: unsupported value "{include}": one of None, Metadata, Object')
    return TableRepresentation(kind, include="Metadata", now=now)


def wants_table(accept_header: str) -> bool:
    """Whether `Accept` asks for a table rather than objects; raises 406 if it asks for neither."""
    for choice in (accept_header or "*/*").split(","):
        media_type, *pairs = (part.strip() for part in choice.split(";"))
        parameters = dict(pair.split("=", 1) for pair in pairs if "=" in pair)
        wanted = {key: parameters[key] for key in ("as", "v", "g") if key in parameters}
        if media_type in JSON_MEDIA_TYPES and not wanted:
            return False
        if media_type == "application/json" and wanted == TABLE_PARAMETERS:
            return True
    raise errors.not_acceptable("application/json, application/json;as=Table;v=v1;g=meta.k8s.io")


def build_list_metadata(page: ObjectPage) -> Object:
    metadata: Object = {"resourceVersion": str(page.version)}
    if page.continue_token is not None:
        metadata["continue"] = page.continue_token.encode_text()
    if page.remaining_count:
        metadata["remainingItemCount"] = page.remaining_count
    return metadata
