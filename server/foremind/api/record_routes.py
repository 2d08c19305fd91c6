"""The records of a relationship's layers: to be seen, written, restored, removed."""

from datetime import datetime
from typing import Annotated

import msgspec
from msgspec import Meta
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Route

from foremind.api.dependencies import (
    RelationshipServices,
    ResolvedRelationship,
    body_of,
    find,
    number,
    page_of,
    paged,
)
from foremind.api.responses import json_response
from foremind.background.manual_edits import ManualEdit
from foremind.domain.errors import InvalidMessage, NotAllowed
from foremind.domain.record import (
    MOST_CONTENT,
    MOST_LISTED,
    MOST_TITLE,
    RECORD_LAYERS,
    Details,
    MadeBy,
    NewRecord,
    Record,
    RecordLayer,
    Status,
)

_PAGE = 100
_MOST = 1000

Content = Annotated[str, Meta(min_length=1, max_length=MOST_CONTENT)]
Title = Annotated[str, Meta(max_length=MOST_TITLE)]
Refs = Annotated[list[Title], Meta(max_length=MOST_LISTED)]
Revision = Annotated[int, Meta(ge=0, le=2**31 - 1)]


class RecordBody(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A record that a user, or with `by` the game, writes."""

    layer: RecordLayer
    content: Content
    title: Title = ""
    kind: Title = ""
    refs: Refs = []
    by: MadeBy = "user"


class RecordPatch(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What changes of a record; with `revision`, only if it still has that one."""

    content: Content | None = None
    title: Title | None = None
    kind: Title | None = None
    status: Status | None = None
    revision: Revision = 0
    by: MadeBy = "user"


class RevisionBody(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Which earlier state of a record shall hold again."""

    revision: Revision


class RecordView(msgspec.Struct, frozen=True):
    """A record as it is shown: everything but its vector.

    `used` counts the prompts of replies that it stood in, `used_at` is that of the last one.
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


def record_routes(services: RelationshipServices) -> list[BaseRoute]:
    """Return the routes below `/v1/relationships/{id}/records`, and the audit trail."""
    editor = services.editor

    async def listed(request: Request) -> Response:
        found = await find(services, request)
        layer = request.query_params.get("layer")
        if layer is not None and layer not in RECORD_LAYERS:
            raise InvalidMessage(
                f"layer: expected one of {', '.join(RECORD_LAYERS)}", param="layer"
            )
        records = await services.records.all(found.relationship.id)
        return json_response(
            {"records": [_view(record) for record in records if layer in (None, record.layer)]}
        )

    async def write(request: Request) -> Response:
        found = await find(services, request)
        body = await body_of(request, RecordBody)
        record = NewRecord(
            layer=body.layer,
            kind=body.kind,
            title=body.title,
            content=body.content,
            refs=tuple(body.refs),
            made_by=_maker(found, body.by),
        )
        id_ = await editor.write(
            found.relationship.id, found.caller.user_id, record, found.policy.layers.slots
        )
        return await done(found, {"id": str(id_)}, 201)

    async def change(request: Request) -> Response:
        found = await find(services, request)
        body = await body_of(request, RecordPatch)
        wanted = ManualEdit(body.content, body.title, body.kind, body.status, body.revision)
        by = _maker(found, body.by)
        caller = found.caller.user_id
        await editor.change(found.relationship.id, caller, _record(request), wanted, by)
        return await done(found, {"status": "ok"})

    async def revisions(request: Request) -> Response:
        found = await find(services, request)
        record = await services.records.find(found.relationship.id, _record(request))
        earlier = await services.records.revisions(found.relationship.id, record.id)
        return json_response({"revisions": earlier, "present": record.revision})

    async def restore(request: Request) -> Response:
        found = await find(services, request)
        body = await body_of(request, RevisionBody)
        caller = found.caller.user_id
        await editor.restore(found.relationship.id, caller, _record(request), body.revision)
        return await done(found, {"status": "ok"})

    async def remove(request: Request) -> Response:
        found = await find(services, request)
        caller = found.caller.user_id
        receipt = await services.remover.remove(found.relationship.id, caller, _record(request))
        return await done(found, receipt)

    async def audit(request: Request) -> Response:
        found = await find(services, request)
        after, limit = page_of(request, _PAGE, _MOST)
        page = await services.records.audit(found.relationship.id, after, limit)
        return json_response(paged("audit", page, limit))

    async def done(found: ResolvedRelationship, answer: object, status: int = 200) -> Response:
        """Let what is made of records be made anew, soon."""
        await services.curation.make_due(found.relationship.id)
        return json_response(answer, status)

    path = "/v1/relationships/{id}/records"
    return [
        Route(path, listed),
        Route(path, write, methods=["POST"]),
        Route(path + "/{record}", change, methods=["PATCH"]),
        Route(path + "/{record}", remove, methods=["DELETE"]),
        Route(path + "/{record}/revisions", revisions),
        Route(path + "/{record}/restore", restore, methods=["POST"]),
        Route("/v1/relationships/{id}/audit", audit),
    ]


def _record(request: Request) -> int:
    return number(request.path_params["record"], "record", 1, 2**62)


def _view(record: Record) -> RecordView:
    return RecordView(
        str(record.id),
        record.layer,
        record.kind,
        record.title,
        record.content,
        record.refs,
        msgspec.structs.replace(record.details, upto=0),  # which is for the background alone
        record.made_by,
        record.created_at,
        record.updated_at,
        record.revision,
        record.used,
        record.used_at,
    )


def _maker(found: ResolvedRelationship, by: MadeBy) -> MadeBy:
    """Return who writes: the user, or the developer where the caller may act for it.

    Raises:
        InvalidMessage, NotAllowed: the caller cannot be that.
    """
    if by not in ("user", "developer"):
        raise InvalidMessage("by: expected user or developer", param="by")
    if by == "developer" and not found.caller.admin:
        raise NotAllowed("by: the token lacks the scope admin", param="by")
    return by
