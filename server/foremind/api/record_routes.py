"""The records of a relationship's layers, and its audit trail."""

from datetime import datetime
from typing import Annotated

import msgspec
from msgspec import Meta
from starlette.requests import Request
from starlette.responses import Response

from foremind.api.dependencies import (
    MAX_ID,
    RelationshipServices,
    ResolvedRelationship,
    page_body,
    page_parameters,
    parse_number,
    read_json,
    resolve_relationship,
)
from foremind.api.operations import PAGE, Operation
from foremind.api.responses import CreatedResponse, DoneResponse, json_response
from foremind.auth.principal import Principal
from foremind.domain.errors import InvalidMessage, NotAllowed
from foremind.domain.record import (
    MAX_CONTENT_CHARS,
    MAX_LIST_ITEMS,
    MAX_TITLE_CHARS,
    RECORD_LAYERS,
    AuditEntry,
    Details,
    MadeBy,
    NewRecord,
    Record,
    RecordLayer,
    Revision,
    Status,
)
from foremind.memory.erasure.eraser import ErasureReceipt
from foremind.memory.manual_edits import ManualEdit

Content = Annotated[str, Meta(min_length=1, max_length=MAX_CONTENT_CHARS)]
Title = Annotated[str, Meta(max_length=MAX_TITLE_CHARS)]
Refs = Annotated[list[Title], Meta(max_length=MAX_LIST_ITEMS)]
RevisionNumber = Annotated[int, Meta(ge=0, le=2**31 - 1)]


class RecordBody(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A new record; `by` is `user`, or `developer` for what the game writes."""

    layer: RecordLayer
    content: Content
    title: Title = ""
    kind: Title = ""
    refs: Refs = []
    by: MadeBy = "user"


class RecordPatch(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The fields of a record to change; others stay as they are.

    With a `revision` other than 0, the change applies only if it is still the current one.
    """

    content: Content | None = None
    title: Title | None = None
    kind: Title | None = None
    status: Status | None = None
    revision: RevisionNumber = 0
    by: MadeBy = "user"


class RevisionBody(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The number of the revision to restore."""

    revision: RevisionNumber


class RecordView(msgspec.Struct, frozen=True):
    """A record without its vector.

    `used` counts the reply prompts that contained it; `used_at` is the time of the last one.
    """

    id: str
    layer: str
    kind: str
    title: str
    content: str
    refs: tuple[str, ...]
    details: Details
    made_by: str
    created_at: datetime
    updated_at: datetime
    revision: int
    used: int
    used_at: datetime | None


class Records(msgspec.Struct):
    """The records of one layer or of all layers."""

    records: list[RecordView]


class Revisions(msgspec.Struct):
    """The earlier revisions of a record; `present` is the number of the current one."""

    revisions: list[Revision]
    present: int


class AuditPage(msgspec.Struct):
    """A page of the audit trail in ascending order of id.

    `next_after` is the value of `after` for the next page, null on the last page.
    """

    audit: list[AuditEntry]
    next_after: str | None


class RecordEndpoints:
    """Operations on records, and on the audit trail."""

    def __init__(self, services: RelationshipServices) -> None:
        self._services = services

    @Operation(
        "GET",
        "/v1/relationships/{id}/records",
        Records,
        query={
            "layer": {
                "type": "string",
                "enum": list(RECORD_LAYERS),
                "description": "Return the records of this layer only. Default: all layers.",
            }
        },
    )
    async def list_records(self, request: Request, principal: Principal) -> Response:
        """List records.

        Returns the records of the memory layers, such as profile, notes and episodes. `used` counts
        the reply prompts that contained a record, `used_at` is the time of the last one; both lag
        by some seconds.
        """
        resolved = await resolve_relationship(self._services, request, principal)
        layer = request.query_params.get("layer")
        if layer is not None and layer not in RECORD_LAYERS:
            raise InvalidMessage(
                f"layer: expected one of {', '.join(RECORD_LAYERS)}", param="layer"
            )
        records = await self._services.stores.records.all(resolved.relationship.id)
        return json_response(
            {"records": [_view(record) for record in records if layer in (None, record.layer)]}
        )

    @Operation(
        "POST",
        "/v1/relationships/{id}/records",
        CreatedResponse,
        status=201,
        body=RecordBody,
        scope="memory:write",
    )
    async def create(self, request: Request, principal: Principal) -> Response:
        """Create a record.

        Writes a record in the user's name, or in the developer's with `by: developer` and the scope
        `admin`. In a layer or profile slot that holds a single record, it replaces that one. 413 if
        all records of the relationship would exceed 16 MiB.
        """
        resolved = await resolve_relationship(self._services, request, principal)
        body = await read_json(request, RecordBody)
        record = NewRecord(
            layer=body.layer,
            kind=body.kind,
            title=body.title,
            content=_not_blank(body.content),
            refs=tuple(body.refs),
            made_by=_author(resolved, body.by),
        )
        id_ = await self._services.editing.editor.write(
            resolved.relationship.id,
            resolved.principal.user_id,
            record,
            resolved.policy.layers.slots,
        )
        return await self._respond_changed(resolved, {"id": str(id_)}, 201)

    @Operation(
        "PATCH",
        "/v1/relationships/{id}/records/{record}",
        DoneResponse,
        body=RecordPatch,
        scope="memory:write",
    )
    async def change(self, request: Request, principal: Principal) -> Response:
        """Change a record.

        Changes the fields that are given. With `revision`, the record is changed only if that is
        still its current revision (409 otherwise). `status` applies to questions only.
        """
        resolved = await resolve_relationship(self._services, request, principal)
        body = await read_json(request, RecordPatch)
        if body.content is not None:
            _not_blank(body.content)
        await self._services.editing.editor.change(
            resolved.relationship.id,
            resolved.principal.user_id,
            _record_id(request),
            ManualEdit(body.content, body.title, body.kind, body.status, body.revision),
            _author(resolved, body.by),
        )
        return await self._respond_changed(resolved, {"status": "ok"})

    @Operation("GET", "/v1/relationships/{id}/records/{record}/revisions", Revisions)
    async def list_revisions(self, request: Request, principal: Principal) -> Response:
        """List revisions of a record.

        Returns up to 20 earlier revisions, and the number of the current one.
        """
        resolved = await resolve_relationship(self._services, request, principal)
        relationship_id = resolved.relationship.id
        record = await self._services.stores.records.find(relationship_id, _record_id(request))
        revisions = await self._services.stores.records.revisions(relationship_id, record.id)
        return json_response({"revisions": revisions, "present": record.revision})

    @Operation(
        "POST",
        "/v1/relationships/{id}/records/{record}/restore",
        DoneResponse,
        body=RevisionBody,
        scope="memory:write",
    )
    async def restore(self, request: Request, principal: Principal) -> Response:
        """Restore a revision of a record.

        Makes an earlier revision the record's current content, as a new revision.
        """
        resolved = await resolve_relationship(self._services, request, principal)
        body = await read_json(request, RevisionBody)
        await self._services.editing.editor.restore(
            resolved.relationship.id,
            resolved.principal.user_id,
            _record_id(request),
            body.revision,
        )
        return await self._respond_changed(resolved, {"status": "ok"})

    @Operation(
        "DELETE", "/v1/relationships/{id}/records/{record}", ErasureReceipt, scope="memory:write"
    )
    async def remove(self, request: Request, principal: Principal) -> Response:
        """Erase a record.

        Permanently erases the record and everything derived from it. Background work does not
        create it again from what was said before.
        """
        resolved = await resolve_relationship(self._services, request, principal)
        receipt = await self._services.editing.remover.remove(
            resolved.relationship.id,
            resolved.principal.user_id,
            _record_id(request),
            self._services.runtime.clock.now(),
        )
        return await self._respond_changed(resolved, receipt)

    @Operation("GET", "/v1/relationships/{id}/audit", AuditPage, query=PAGE)
    async def list_audit(self, request: Request, principal: Principal) -> Response:
        """List the audit trail.

        Returns a page of the audit trail: who read or changed what, and when, but never the
        content.
        """
        resolved = await resolve_relationship(self._services, request, principal)
        after, limit = page_parameters(request)
        page = await self._services.stores.records.audit(resolved.relationship.id, after, limit)
        return json_response(page_body("audit", page, limit))

    async def _respond_changed(
        self, resolved: ResolvedRelationship, content: object, status: int = 200
    ) -> Response:
        """Schedule the background work that derives from records, and respond."""
        await self._services.background_worker.schedule_now(resolved.relationship.id)
        return json_response(content, status)


def _not_blank(content: str) -> str:
    if not content.strip():
        raise InvalidMessage("content: expected text that is not blank", param="content")
    return content


def _record_id(request: Request) -> int:
    return parse_number(request.path_params["record"], "record", 1, MAX_ID)


def _view(record: Record) -> RecordView:
    return RecordView(
        str(record.id),
        record.layer,
        record.kind,
        record.title,
        record.content,
        record.refs,
        msgspec.structs.replace(record.details, upto=0),  # internal to the background work
        record.made_by,
        record.created_at,
        record.updated_at,
        record.revision,
        record.used,
        record.used_at,
    )


def _author(resolved: ResolvedRelationship, by: MadeBy) -> MadeBy:
    """Check that the principal may write as `by`, and return it.

    Raises:
        InvalidMessage: it is neither the user nor the developer.
        NotAllowed: it is the developer, and the token lacks the scope `admin`.
    """
    if by not in ("user", "developer"):
        raise InvalidMessage("by: expected user or developer", param="by")
    if by == "developer" and not resolved.principal.admin:
        raise NotAllowed("by: the token lacks the scope admin", param="by")
    return by
