"""The HTTP contract, OpenAPI 3.1: every operation, what it takes and what it answers. Pure."""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import msgspec

from foremind import __version__
from foremind.companions import Companion
from foremind.http.admin import CompanionBody, Revocation
from foremind.http.records import Changed, RecordView, Restored, Written
from foremind.http.relationships import Config
from foremind.memory.forget import Receipt
from foremind.storage.documents import Document
from foremind.storage.records import AuditEntry, Revision
from foremind.storage.relationships import SessionView, StoredMemory
from foremind.storage.transfer import Export

_BONDS, _BOND, _ADMIN = "/v1/relationships", "/v1/relationships/{id}", "/v1/admin"
_INTEGER = {"type": "integer", "minimum": 0}
_PAGE = {"after": _INTEGER, "limit": {"type": "integer", "minimum": 1, "maximum": 1000}}
_TEXT = {"type": "string"}


class CompanionView(msgspec.Struct):
    """A companion as players see it."""

    slug: str
    name: str
    greeting: str


class BondView(msgspec.Struct):
    """A relationship of the caller: its id, its companion's slug, how many memories it has."""

    id: int
    companion: str
    memories: int


class MemoryPage(msgspec.Struct):
    """Memories in order, and what to ask for after them."""

    memories: list[StoredMemory]
    next_after: int | None


class AuditPage(msgspec.Struct):
    """The audit trail in order, and what to ask for after it."""

    audit: list[AuditEntry]
    next_after: int | None


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


class Documents(msgspec.Struct):
    """The reference library of a companion."""

    documents: list[Document]


class Made(msgspec.Struct):
    """The id of what was made."""

    id: int


class Done(msgspec.Struct):
    """It is done, or has begun."""

    status: str


class Companions(msgspec.Struct):
    """Companions as operators see them."""

    companions: list[Companion]


class OpenSessions(msgspec.Struct):
    """Sessions of this process."""

    sessions: list[dict[str, Any]]


class Problem(msgspec.Struct):
    """What went wrong; `param` names the field."""

    code: str
    message: str
    param: str | None
    retryable: bool


class Failure(msgspec.Struct):
    """The body of every answer that is an error."""

    error: Problem


class Correction(msgspec.Struct):
    """What a memory shall say."""

    content: str


@dataclass(frozen=True, slots=True)
class Operation:
    """One request that the server answers; `scope` is what a token must allow, None: nothing."""

    method: str
    path: str
    summary: str
    answer: Any = None
    status: int = 200
    body: Any = None
    query: Mapping[str, Any] = field(default_factory=dict)
    scope: str | None = "memory:read"
    media_type: str = "application/json"


OPERATIONS = (
    Operation("GET", "/healthz", "Alive.", Done, scope=None),
    Operation("GET", "/readyz", "Model, database and migrations; 503 where one is not ready.",
              dict[str, str], scope=None),
    Operation("GET", "/metrics", "Prometheus metrics.", str, media_type="text/plain", scope="chat"),
    Operation("GET", "/v1/companions", "Companions that the caller may open.",
              list[CompanionView], scope="chat"),
    Operation("GET", "/v1/asyncapi.json", "The socket's contract.", dict[str, Any], scope=None),
    Operation("GET", "/v1/openapi.json", "This document.", dict[str, Any], scope=None),
    Operation("GET", "/v1/schemas/export", "The JSON Schema of exports.", dict[str, Any],
              scope=None),
    Operation("GET", _BONDS, "The user's relationships.", list[BondView]),
    Operation("POST", f"{_BONDS}/import", "Restore an export.", Made, 201, Export,
              {"companion": _TEXT}, "memory:write"),
    Operation("GET", f"{_BOND}/export", "Everything, as one file.", Export),
    Operation("GET", f"{_BOND}/config", "Settings in force, and where each comes from.",
              dict[str, Any]),
    Operation("PATCH", f"{_BOND}/config", "Give the relationship settings of its own.",
              dict[str, Any], body=Config, scope="memory:write"),
    Operation("GET", f"{_BOND}/sessions", "Sessions, newest first.", Sessions),
    Operation("GET", f"{_BOND}/context", "What the language model would be given for a draft.",
              dict[str, Any], query={"draft": _TEXT}),
    Operation("GET", f"{_BOND}/memories", "Memories with their reasons.", MemoryPage, query=_PAGE),
    Operation("DELETE", f"{_BOND}/memories", "Forget everything, or what a query names.", Receipt,
              query={"session": _TEXT, "about": _TEXT}, scope="memory:write"),
    Operation("PATCH", f"{_BOND}/memories/{{memory}}", "Correct a memory.", Done, body=Correction,
              scope="memory:write"),
    Operation("DELETE", f"{_BOND}/memories/{{memory}}", "Forget a memory.", Receipt,
              scope="memory:write"),
    Operation("GET", f"{_BOND}/records", "What the other layers hold.", Records,
              query={"layer": _TEXT}),
    Operation("POST", f"{_BOND}/records", "Write a record.", Made, 201, Written,
              scope="memory:write"),
    Operation("PATCH", f"{_BOND}/records/{{record}}", "Change a record.", Done, body=Changed,
              scope="memory:write"),
    Operation("DELETE", f"{_BOND}/records/{{record}}", "Forget a record.", Receipt,
              scope="memory:write"),
    Operation("GET", f"{_BOND}/records/{{record}}/revisions", "Earlier states of a record.",
              Revisions),
    Operation("POST", f"{_BOND}/records/{{record}}/restore", "Let an earlier state hold again.",
              Done, body=Restored, scope="memory:write"),
    Operation("GET", f"{_BOND}/audit", "Who read or changed what.", AuditPage, query=_PAGE),
    Operation("GET", "/v1/companions/{slug}/documents", "A companion's reference library.",
              Documents, scope="admin"),
    Operation("POST", "/v1/companions/{slug}/documents", "Add a document.", Document, 202, bytes,
              {"title": _TEXT}, "admin"),
    Operation("DELETE", "/v1/companions/{slug}/documents/{document}", "Remove a document.", Done,
              scope="admin"),
    Operation("GET", f"{_ADMIN}/companions", "Every companion.", Companions, scope="admin"),
    Operation("PUT", f"{_ADMIN}/companions/{{slug}}", "Create or change a companion.", Companion,
              body=CompanionBody, scope="admin"),
    Operation("DELETE", f"{_ADMIN}/companions/{{slug}}", "Retire a companion.", Done,
              scope="admin"),
    Operation("GET", f"{_ADMIN}/sessions", "The sessions of this process.", OpenSessions,
              scope="admin"),
    Operation("DELETE", f"{_ADMIN}/sessions/{{session}}", "End a session.", Done, scope="admin"),
    Operation("POST", f"{_ADMIN}/revocations", "Revoke a user's tokens.", Done, 201, Revocation,
              scope="admin"),
    Operation("POST", f"{_ADMIN}/drain", "Take no more sessions.", Done, 202, scope="admin"),
)  # fmt: skip


def openapi() -> dict[str, Any]:
    """Return the document; everything in it can be encoded as JSON."""
    shapes = [
        each for op in OPERATIONS for each in (op.answer, op.body) if each not in (None, bytes)
    ]
    described, schemas = msgspec.json.schema_components(
        [*shapes, Failure],
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
            "description": (
                "With a token as a bearer. Where the server runs open, without one, from loopback "
                "and with `user` as a query; with a token of scope admin, `user` is on whose "
                "behalf it asks."
            ),
        },
        "servers": [{"url": "http://127.0.0.1:8770"}],
        "security": [{"bearer": []}, {}],
        "paths": paths,
        "components": {
            "schemas": schemas,
            "securitySchemes": {
                "bearer": {"type": "http", "scheme": "bearer", "bearerFormat": "JWT"}
            },
        },
    }


def _described(operation: Operation, schema_of: Mapping[str, Any]) -> dict[str, Any]:
    answer = schema_of.get(repr(operation.answer), {})
    query = dict(operation.query)
    if operation.scope not in (None, "chat"):
        query["user"] = _TEXT
    failure = {
        "description": "What went wrong.",
        "content": {"application/json": {"schema": {"$ref": "#/components/schemas/Failure"}}},
    }
    described: dict[str, Any] = {
        "operationId": _name(operation),
        "summary": operation.summary,
        "parameters": [
            {"name": name, "in": "path", "required": True,
             "schema": _INTEGER if name in ("id", "memory", "record", "document") else _TEXT}
            for name in re.findall(r"{(\w+)}", operation.path)
        ] + [{"name": name, "in": "query", "schema": schema} for name, schema in query.items()],
        "responses": {
            str(operation.status): {
                "description": operation.summary,
                "content": {operation.media_type: {"schema": answer}},
            },
            "default": failure,
        },
    }  # fmt: skip
    if operation.scope is not None:
        described["description"] = f"Needs the scope `{operation.scope}`."
    else:
        described["security"] = [{}]
    if operation.body is bytes:
        described["requestBody"] = {
            "required": True, "content": {"text/plain": {"schema": {"type": "string"}}}
        }  # fmt: skip
    elif operation.body is not None:
        described["requestBody"] = {
            "required": True,
            "content": {"application/json": {"schema": schema_of[repr(operation.body)]}},
        }
    return described


def _name(operation: Operation) -> str:
    words = [each for each in re.split(r"\W+", operation.path) if each not in ("", "v1", "json")]
    return "_".join([operation.method.lower(), *words])
