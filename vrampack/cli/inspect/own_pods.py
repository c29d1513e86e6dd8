"""The pods of one namespace, for users who may not list the whole cluster: what each holds by its record, or why it waits."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from vrampack.cards.node import Share
from vrampack.cards.records import Record
from vrampack.cli.inspect.api_objects import NamespacePod, decode_items, decode_own_pod
from vrampack.cli.inspect.errors import DamagedObjectError, ReadError
from vrampack.cli.inspect.schema import format_json_document, format_yaml_document
from vrampack.cli.inspect.text_columns import align_columns

HEADING = ("POD", "NODE", "CARD", "UNITS", "LIMIT(MiB)", "WAITS FOR")


def list_own_pods(pages: Iterable[bytes]) -> tuple[list[NamespacePod], list[str]]:
    """By name, and what is wrong with those that are left out because they cannot be read. Raises `ReadError`."""
    try:
        items = [item for body in pages for item in decode_items(body)]
    except DamagedObjectError as error:
        raise ReadError(f"the list of pods cannot be read: {error}") from error
    found: list[NamespacePod] = []
    notes: list[str] = []
    for item in items:
        try:
            own = decode_own_pod(item)
        except DamagedObjectError as error:
            notes.append(f"a pod cannot be read and is left out: {error}")
        else:
            found += () if own is None else (own,)
    return sorted(found, key=lambda each: str(each.pod)), notes


def format_own_pods(pods: Sequence[NamespacePod], form: str | None, *, max_width: int | None = None) -> str:
    """As a table, whose lines are at most so wide, or as `json` or `yaml`."""
    if form not in ("json", "yaml"):
        return align_columns([HEADING, *map(_build_row, pods)], right_columns=(3,), max_width=max_width)
    document = {"apiVersion": "vrampack.dev/v1", "kind": "OwnPods", "pods": [_build_document(each) for each in pods]}
    return format_json_document(document) if form == "json" else format_yaml_document(document)


def _build_row(own: NamespacePod) -> tuple[str, ...]:
    pod, shares = own.pod, _list_shares(own)
    asked = 0 if pod.request is None else pod.request.asked_units
    cards = ",".join(str(share.index) for share in shares) or "-"
    units = sum(share.units for share in shares) if shares else asked
    limits = ",".join(f"{name} {mib}" for name, mib in sorted(own.limits_mib.items())) or "-"
    return str(pod), pod.node_name or "-", cards, str(units), limits, own.waits_for or "-"


def _build_document(own: NamespacePod) -> dict[str, object]:
    pod = own.pod
    return {
        "namespace": pod.namespace,
        "name": pod.name,
        "node": pod.node_name or None,
        "askedUnits": 0 if pod.request is None else pod.request.asked_units,
        "cards": [{"index": share.index, "units": share.units} for share in _list_shares(own)],
        "limitsMib": dict(sorted(own.limits_mib.items())),
        "waitsFor": own.waits_for,
    }


def _list_shares(own: NamespacePod) -> Sequence[Share]:
    record = own.pod.record
    return record.shares if own.pod.node_name and isinstance(record, Record) else ()
