"""The records of a relationship's layers, and its audit trail."""

from datetime import datetime
from typing import Annotated

import msgspec
from msgspec import Meta
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Route

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
from foremind.api.responses import json_response
from foremind.domain.errors import InvalidMessage, NotAllowed
from foremind.domain.record import (
    MAX_CONTENT_CHARS,
    MAX_LIST_ITEMS,
    MAX_TITLE_CHARS,
    RECORD_LAYERS,
    Details,
    MadeBy,
    NewRecord,
    Record,
    RecordLayer,
    Status,
)
from foremind.memory.manual_edits import ManualEdit

_DEFAULT_PAGE = 100
_MAX_PAGE = 1000

Content = Annotated[str, Meta(min_length=1, max_length=MAX_CONTENT_CHARS)]
Title = Annotated[str, Meta(max_length=MAX_TITLE_CHARS)]
Refs = Annotated[list[Title], Meta(max_length=MAX_LIST_ITEMS)]
Revision = Annotated[int, Meta(ge=0, le=2**31 - 1)]


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
    revision: Revision = 0
    by: MadeBy = "user"


class RevisionBody(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The number of the revision to restore."""

    revision: Revision


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


class _RecordEndpoints:
    def __init__(self, services: RelationshipServices) -> None:
        self._services = services

    async def list_records(self, request: Request) -> Response:
        resolved = await resolve_relationship(self._services, request)
        layer = request.query_params.get("layer")
        if layer is not None and layer not in RECORD_LAYERS:
            raise InvalidMessage(
                f"layer: expected one of {', '.join(RECORD_LAYERS)}", param="layer"
            )
        records = await self._services.stores.records.all(resolved.relationship.id)
        return json_response(
            {"records": [_view(record) for record in records if layer in (None, record.layer)]}
        )

    async def create(self, request: Request) -> Response:
        resolved = await resolve_relationship(self._services, request)
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

    async def change(self, request: Request) -> Response:
        resolved = await resolve_relationship(self._services, request)
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

    async def list_revisions(self, request: Request) -> Response:
        resolved = await resolve_relationship(self._services, request)
        relationship_id = resolved.relationship.id
        record = await self._services.stores.records.find(relationship_id, _record_id(request))
        revisions = await self._services.stores.records.revisions(relationship_id, record.id)
        return json_response({"revisions": revisions, "present": record.revision})

    async def restore(self, request: Request) -> Response:
        resolved = await resolve_relationship(self._services, request)
        body = await read_json(request, RevisionBody)
        await self._services.editing.editor.restore(
            resolved.relationship.id,
            resolved.principal.user_id,
            _record_id(request),
            body.revision,
        )
        return await self._respond_changed(resolved, {"status": "ok"})

    async def remove(self, request: Request) -> Response:
        resolved = await resolve_relationship(self._services, request)
        receipt = await self._services.editing.remover.remove(
            resolved.relationship.id,
            resolved.principal.user_id,
            _record_id(request),
            self._services.runtime.clock.now(),
        )
        return await self._respond_changed(resolved, receipt)

    async def list_audit(self, request: Request) -> Response:
        resolved = await resolve_relationship(self._services, request)
        after, limit = page_parameters(request, _DEFAULT_PAGE, _MAX_PAGE)
        page = await self._services.stores.records.audit(resolved.relationship.id, after, limit)
        return json_response(page_body("audit", page, limit))

    async def _respond_changed(
        self, resolved: ResolvedRelationship, content: object, status: int = 200
    ) -> Response:
        """Schedule the background work that derives from records, and respond."""
        await self._services.background_worker.schedule_now(resolved.relationship.id)
        return json_response(content, status)


def record_routes(services: RelationshipServices) -> list[BaseRoute]:
    """Return the routes below `/v1/relationships/{id}/records`, and of the audit trail."""
    endpoints = _RecordEndpoints(services)
    path = "/v1/relationships/{id}/records"
    return [
        Route(path, endpoints.list_records),
        Route(path, endpoints.create, methods=["POST"]),
        Route(path + "/{record}", endpoints.change, methods=["PATCH"]),
        Route(path + "/{record}", endpoints.remove, methods=["DELETE"]),
        Route(path + "/{record}/revisions", endpoints.list_revisions),
        Route(path + "/{record}/restore", endpoints.restore, methods=["POST"]),
        Route("/v1/relationships/{id}/audit", endpoints.list_audit),
    ]


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
