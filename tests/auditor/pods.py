"""A pod as the audit needs it: who it is, where it is, what it asks and what its record says."""

from dataclasses import dataclass

from tests.auditor.asks import AuditedRequest, read_request
from tests.auditor.raw import Raw, annotations, mapping, metadata, text
from tests.auditor.records import AuditedRecord, UnreadableRecordError, read_record
from tests.auditor.terms import Terms


@dataclass(frozen=True, slots=True)
class AuditedPod:
    """One pod of the API, read once."""

    name: str
    uid: str
    node: str
    phase: str
    terminating: bool
    ask: AuditedRequest
    notes: dict[str, str]
    record: AuditedRecord | None
    unreadable: str
    """Why the record cannot be read; empty when it can, or when there is none."""

    has_our_record: bool

    @property
    def object(self) -> str:
        return f"pod {self.name}"

    @property
    def is_live(self) -> bool:
        """Bound and not over. A terminating pod still holds its memory."""
        return bool(self.node) and self.phase not in {"Succeeded", "Failed"}


def read_pod(pod: Raw, terms: Terms) -> AuditedPod:
    about, notes, ask = metadata(pod), annotations(pod), read_request(pod, terms)
    record, unreadable = None, ""
    try:
        record = read_record(notes, terms=terms, v1_units=ask.plain_units)
    except UnreadableRecordError as error:
        unreadable = str(error) or "unreadable"
    return AuditedPod(
        name=f"{text(about.get('namespace'))}/{text(about.get('name'))}",
        uid=text(about.get("uid")),
        node=text(mapping(pod.get("spec")).get("nodeName")),
        phase=text(mapping(pod.get("status")).get("phase")),
        terminating="deletionTimestamp" in about,
        ask=ask,
        notes=notes,
        record=record,
        unreadable=unreadable,
        has_our_record=terms.allocation in notes,
    )
