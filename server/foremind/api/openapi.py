"""The HTTP contract, OpenAPI 3.1: every operation, what it takes and what it answers. Pure."""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import msgspec

from foremind import __version__
from foremind.api.admin_routes import CompanionBody, CompanionDetail, Revocation, Revoked
from foremind.api.memory_routes import Correction
from foremind.api.record_routes import RecordBody, RecordPatch, RecordView, RevisionBody
from foremind.api.relationship_routes import Config, StateBody, StateView
from foremind.api.responses import ErrorResponse
from foremind.api.user_routes import UserExport
from foremind.background.status import StepStatus
from foremind.domain.document import Document
from foremind.domain.export_file import Export
from foremind.domain.memory import StoredMemory
from foremind.domain.record import RECORD_LAYERS, AuditEntry, Revision
from foremind.domain.relationship import SessionView, TranscriptEntry
from foremind.memory.erase import ErasureReceipt
from foremind.memory.user_erasure import UserErasureReceipt
from foremind.retrieval.documents.text_extraction import MEDIA_TYPES

_RELATIONSHIPS, _ONE, _ADMIN = "/v1/relationships", "/v1/relationships/{id}", "/v1/admin"
_ID = {"type": "string", "pattern": "^[0-9]{1,18}$"}  # of one type everywhere, as in JSON
_PAGE = {"after": _ID, "limit": {"type": "integer", "minimum": 1, "maximum": 1000}}
_TEXT = {"type": "string"}
_ABOUT = """\
With a token as a bearer. Where the server runs open, without one, from loopback and with `user` as
a query; with a token of scope admin, `user` is on whose behalf it asks.

A query parameter or a field of a body that an operation does not describe is refused with 400, and
so is a parameter that is given twice, or a body where none is described. A body is JSON and says so
in `content-type`, but for documents. Pages of other origins than the server's own and those of
`FOREMIND_ALLOWED_ORIGINS` are refused with 403.

Every error has the shape of `ErrorResponse`; so has that of an unknown path (404) and of a method
that a path does not have (405, with `Allow`).
"""
_ERRORS = {
    400: "A parameter or field is unknown, missing or wrong; `param` names it.",
    401: "The token is missing, wrong, expired or revoked; or `Host` is not a loopback name where "
    "the server runs open.",
    403: "The token does not allow this, or the page is of a foreign origin.",
    404: "What the path names does not exist, or is another user's.",
    409: "What was to be changed has changed meanwhile.",
    413: "The body has more bytes than are taken.",
    415: "The body is of another type than is taken.",
    429: "Too many requests; `Retry-After` says in how many seconds there may be another.",
    500: "A defect of the server.",
    503: "Something that the server needs does not answer; later it may.",
}


class CompanionView(msgspec.Struct):
    """A companion as players see it."""

    slug: str
    name: str
    greeting: str


class RelationshipView(msgspec.Struct):
    """A relationship of the caller: its id, its companion's slug, how many memories it has."""

    id: str
    companion: str
    memories: int


class MemoryPage(msgspec.Struct):
    """Memories in order, and what to ask for after them."""

    memories: list[StoredMemory]
    next_after: str | None


class AuditPage(msgspec.Struct):
    """The audit trail in order, and what to ask for after it."""

    audit: list[AuditEntry]
    next_after: str | None


class Records(msgspec.Struct):
    """Records of layers."""

    records: list[RecordView]


class Revisions(msgspec.Struct):
    """Earlier states of a record, and the number of the present one."""

    revisions: list[Revision]
    present: int


class Sessions(msgspec.Struct):
    """Sessions in which something was said."""

    sessions: list[SessionView]


class TurnPage(msgspec.Struct):
    """Turns in order, and what to ask for after them."""

    turns: list[TranscriptEntry]
    next_after: str | None


class Status(msgspec.Struct):
    """Every step of the background work on a relationship, in order."""

    steps: list[StepStatus]


class Documents(msgspec.Struct):
    """The reference library of a companion."""

    documents: list[Document]


class CreatedResponse(msgspec.Struct):
    """The id of what was made."""

    id: str


class DoneResponse(msgspec.Struct):
    """It is done, or has begun."""

    status: str


class Companions(msgspec.Struct):
    """Companions as operators see them."""

    companions: list[CompanionDetail]


class OpenSessions(msgspec.Struct):
    """Sessions of this process."""

    sessions: list[dict[str, Any]]


@dataclass(frozen=True, slots=True)
class Operation:
    """One request that the server answers.

    `scope` is what a token must allow: "" any token, None none; `body` the shape of what is sent,
    `bytes` for a document; `also` the shapes of answers with other statuses.
    """

    method: str
    path: str
    summary: str
    answer: Any = None
    status: int = 200
    body: Any = None
    query: Mapping[str, Any] = field(default_factory=dict)
    scope: str | None = "memory:read"
    media_type: str = "application/json"
    also: Mapping[int, Any] = field(default_factory=dict)

    @property
    def parameters(self) -> Mapping[str, Any]:
        """The schemas of all query parameters that it knows, by name."""
        return self.query if self.scope is None else {**self.query, "user": _TEXT}

    @property
    def media_types(self) -> tuple[str, ...]:
        """What a body may be."""
        return MEDIA_TYPES if self.body is bytes else ("application/json",)


OPERATIONS = (
    Operation("GET", "/healthz", "Alive.", DoneResponse, scope=None),
    Operation("GET", "/readyz", "Everything that a message needs; 503 where it is not well.",
              dict[str, str], scope=None, also={503: dict[str, str]}),
    Operation("GET", "/metrics", "Prometheus metrics.", str, media_type="text/plain",
              scope="metrics"),
    Operation("GET", "/v1/companions", "Companions that the caller may open.",
              list[CompanionView], scope=""),
    Operation("GET", "/v1/asyncapi.json", "The socket's contract.", dict[str, Any], scope=None),
    Operation("GET", "/v1/openapi.json", "This document.", dict[str, Any], scope=None),
    Operation("GET", "/v1/schemas/export", "The JSON Schema of exports.", dict[str, Any],
              scope=""),
    Operation("GET", "/v1/users/{id}/export", "Everything of a user, with every companion.",
              UserExport),
    Operation("DELETE", "/v1/users/{id}", "Erase a user everywhere.", UserErasureReceipt,
              scope="memory:write"),
    Operation("GET", _RELATIONSHIPS, "The user's relationships.", list[RelationshipView]),
    Operation("POST", f"{_RELATIONSHIPS}/import", "Restore an export.", CreatedResponse, 201,
              Export,
              {"companion": _TEXT}, "memory:write"),
    Operation("GET", f"{_ONE}/export", "Everything, as one file.", Export),
    Operation("GET", f"{_ONE}/config", "Settings in force, and where each comes from.",
              dict[str, Any]),
    Operation("PATCH", f"{_ONE}/config", "Give the relationship settings of its own.",
              dict[str, Any], body=Config, scope="memory:write"),
    Operation("GET", f"{_ONE}/sessions", "Sessions, newest first.", Sessions),
    Operation("GET", f"{_ONE}/turns", "What was said, of one session or all.", TurnPage,
              query=_PAGE | {"session": _TEXT}),
    Operation("GET", f"{_ONE}/status", "How the background work stands, step by step.", Status),
    Operation("POST", f"{_ONE}/status", "Do now what waits, also what failed or is held.",
              DoneResponse,
              202, scope="memory:write"),
    Operation("GET", f"{_ONE}/state", "What goes on in the session: its task, its flags.",
              StateView),
    Operation("PATCH", f"{_ONE}/state", "Tell what goes on in the session.",
              dict[str, Any], body=StateBody, scope="memory:write"),
    Operation("GET", f"{_ONE}/context", "What the language model would be given for a draft.",
              dict[str, Any], query={"draft": _TEXT}),
    Operation("GET", f"{_ONE}/memories", "Memories with their reasons.", MemoryPage, query=_PAGE),
    Operation("DELETE", f"{_ONE}/memories", "Forget everything, or what a query names.",
              ErasureReceipt,
              query={"session": _TEXT, "about": _TEXT, "turn": _ID}, scope="memory:write"),
    Operation("PATCH", f"{_ONE}/memories/{{memory}}", "Correct a memory.", DoneResponse,
              body=Correction,
              scope="memory:write"),
    Operation("DELETE", f"{_ONE}/memories/{{memory}}", "Forget a memory.", ErasureReceipt,
              scope="memory:write"),
    Operation("GET", f"{_ONE}/records", "What the other layers hold.", Records,
              query={"layer": {"type": "string", "enum": list(RECORD_LAYERS)}}),
    Operation("POST", f"{_ONE}/records", "Write a record.", CreatedResponse, 201, RecordBody,
              scope="memory:write"),
    Operation("PATCH", f"{_ONE}/records/{{record}}", "Change a record.", DoneResponse,
              body=RecordPatch,
              scope="memory:write"),
    Operation("DELETE", f"{_ONE}/records/{{record}}", "Forget a record.", ErasureReceipt,
              scope="memory:write"),
    Operation("GET", f"{_ONE}/records/{{record}}/revisions", "Earlier states of a record.",
              Revisions),
    Operation("POST", f"{_ONE}/records/{{record}}/restore", "Let an earlier state hold again.",
              DoneResponse, body=RevisionBody, scope="memory:write"),
    Operation("GET", f"{_ONE}/audit", "Who read or changed what.", AuditPage, query=_PAGE),
    Operation("GET", "/v1/companions/{slug}/documents", "A companion's reference library.",
              Documents, scope="admin"),
    Operation("POST", "/v1/companions/{slug}/documents", "Add a document.", Document, 202, bytes,
              {"title": _TEXT}, "admin"),
    Operation("DELETE", "/v1/companions/{slug}/documents/{document}", "Remove a document.",
              DoneResponse,
              scope="admin"),
    Operation("GET", f"{_ADMIN}/companions", "Every companion.", Companions, scope="admin"),
    Operation("PUT", f"{_ADMIN}/companions/{{slug}}", "Create or change a companion.",
              CompanionDetail, body=CompanionBody, scope="admin"),
    Operation("DELETE", f"{_ADMIN}/companions/{{slug}}", "Retire a companion.", DoneResponse,
              scope="admin"),
    Operation("GET", f"{_ADMIN}/sessions", "The sessions of this process.", OpenSessions,
              scope="admin"),
    Operation("DELETE", f"{_ADMIN}/sessions/{{session}}", "End a session.", DoneResponse,
              scope="admin"),
    Operation("POST", f"{_ADMIN}/revocations", "Revoke a user's tokens.", Revoked, 201, Revocation,
              scope="admin"),
    Operation("POST", f"{_ADMIN}/drain", "Take no more sessions.", DoneResponse, 202,
              scope="admin"),
)  # fmt: skip


def openapi() -> dict[str, Any]:
    """Return the document; everything in it can be encoded as JSON."""
    shapes = [
        each for op in OPERATIONS for each in (op.answer, op.body) if each not in (None, bytes)
    ]
    described, schemas = msgspec.json.schema_components(
        [*shapes, ErrorResponse],
        schema_hook=lambda _: {},  # anything: values of settings
        ref_template="#/components/schemas/{name}",
    )
    schema_of = {repr(shape): schema for shape, schema in zip(shapes, described, strict=False)}
    paths: dict[str, dict[str, Any]] = {}
    for operation in OPERATIONS:
        paths.setdefault(operation.path, {})[operation.method.lower()] = _described(
            operation, schema_of
        )
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "Foremind",
            "version": __version__,
            "license": {"name": "MIT", "identifier": "MIT"},
            "description": _ABOUT,
        },
        "servers": [{"url": "http://127.0.0.1:8770"}],
        "security": [{"bearer": []}, {}],
        "paths": paths,
        "components": {
            "schemas": schemas,
            "responses": {f"Error{status}": _failure(text) for status, text in _ERRORS.items()},
            "securitySchemes": {
                "bearer": {"type": "http", "scheme": "bearer", "bearerFormat": "JWT"}
            },
        },
    }


def _described(operation: Operation, schema_of: Mapping[str, Any]) -> dict[str, Any]:
    answer = schema_of.get(repr(operation.answer), {})
    described: dict[str, Any] = {
        "operationId": _name(operation),
        "summary": operation.summary,
        "parameters": [
            {"name": name, "in": "path", "required": True,
             "schema": _ID if name in ("id", "memory", "record", "document") else _TEXT}
            for name in re.findall(r"{(\w+)}", operation.path)
        ] + [
            {"name": name, "in": "query", "schema": schema}
            for name, schema in operation.parameters.items()
        ],
        "responses": {
            **{str(status): _answer(operation.summary, "application/json", schema_of[repr(shape)])
               for status, shape in operation.also.items()},
            **{str(status): {"$ref": f"#/components/responses/Error{status}"}
               for status in _errors_of(operation)},

            str(operation.status): _answer(operation.summary, operation.media_type, answer),
            "default": _failure("What went wrong."),
        },
    }  # fmt: skip
    if operation.scope is None:
        described["security"] = [{}]
    elif operation.scope:
        described["description"] = f"Needs the scope `{operation.scope}`."
    if operation.body is bytes:
        document = {"schema": {"type": "string"}}
        described["requestBody"] = {
            "required": True, "content": dict.fromkeys(operation.media_types, document)
        }  # fmt: skip
    elif operation.body is not None:
        described["requestBody"] = {
            "required": True,
            "content": {"application/json": {"schema": schema_of[repr(operation.body)]}},
        }
    return described


def _errors_of(operation: Operation) -> list[int]:
    """Return the statuses of the errors that an operation may be answered with."""
    left_out = set()
    if operation.method == "GET":
        left_out.add(409)
    if operation.scope is None:
        left_out.add(429)
    if operation.body is None:
        left_out |= {413, 415}
    if "{" not in operation.path:
        left_out.add(404)
    return [status for status in _ERRORS if status not in {*left_out, *operation.also}]


def _answer(description: str, media_type: str, schema: Any) -> dict[str, Any]:
    return {"description": description, "content": {media_type: {"schema": schema}}}


def _failure(description: str) -> dict[str, Any]:
    return _answer(description, "application/json", {"$ref": "#/components/schemas/Failure"})


def _name(operation: Operation) -> str:
    words = [each for each in re.split(r"\W+", operation.path) if each not in ("", "v1", "json")]
    return "_".join([operation.method.lower(), *words])
