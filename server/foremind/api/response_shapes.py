"""Shapes of responses that only the OpenAPI document needs."""

from typing import Any

import msgspec

from foremind.api.admin_routes import CompanionDetail
from foremind.api.record_routes import RecordView
from foremind.background.step_definitions import StepStatus
from foremind.domain.document import Document
from foremind.domain.memory import StoredMemory
from foremind.domain.record import AuditEntry, Revision
from foremind.domain.relationship import SessionView, TranscriptEntry


class CompanionView(msgspec.Struct):
    """A companion as players see it."""

    slug: str
    name: str
    greeting: str


class RelationshipView(msgspec.Struct):
    """A relationship: its id, its companion's slug, and the number of memories."""

    id: str
    companion: str
    memories: int


class MemoryPage(msgspec.Struct):
    """A page of memories in ascending order of id.

    `next_after` is the value of `after` for the next page, null on the last page.
    """

    memories: list[StoredMemory]
    next_after: str | None


class TurnPage(msgspec.Struct):
    """A page of turns in ascending order of id.

    `next_after` is the value of `after` for the next page, null on the last page.
    """

    turns: list[TranscriptEntry]
    next_after: str | None


class AuditPage(msgspec.Struct):
    """A page of the audit trail in ascending order of id.

    `next_after` is the value of `after` for the next page, null on the last page.
    """

    audit: list[AuditEntry]
    next_after: str | None


class Records(msgspec.Struct):
    """The records of one layer or of all layers."""

    records: list[RecordView]


class Revisions(msgspec.Struct):
    """The earlier revisions of a record; `present` is the number of the current one."""

    revisions: list[Revision]
    present: int


class Sessions(msgspec.Struct):
    """Sessions with at least one turn."""

    sessions: list[SessionView]


class Status(msgspec.Struct):
    """The steps of a relationship's background work, in the order in which they run."""

    steps: list[StepStatus]


class Documents(msgspec.Struct):
    """A companion's reference library."""

    documents: list[Document]


class CreatedResponse(msgspec.Struct):
    """The id of the new resource."""

    id: str


class DoneResponse(msgspec.Struct):
    """The outcome of an operation without other results."""

    status: str


class Companions(msgspec.Struct):
    """Companions as operators see them."""

    companions: list[CompanionDetail]


class OpenSessions(msgspec.Struct):
    """The sessions of the process that answers."""

    sessions: list[dict[str, Any]]
