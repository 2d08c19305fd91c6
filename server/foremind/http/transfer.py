"""A relationship as one file: written out, read back, and the schema of it."""

import msgspec
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Route

from foremind.errors import NotAllowed
from foremind.http.answers import answered, json_response
from foremind.http.callers import RelationshipServices, body_of, find
from foremind.identity.authority import require
from foremind.policies import policy_for, settings_of_users
from foremind.storage.transfer import Export

_MOST_EXPORT = 200_000_000  # bytes


def transfer_routes(services: RelationshipServices) -> list[BaseRoute]:
    """Return the routes that move relationships between servers."""

    async def export(request: Request) -> Response:
        found = await find(services, request)
        relationship = found.relationship
        now = services.clock.now()
        written = await services.transfer.read(
            relationship.id,
            relationship.companion,
            (relationship.user_name, relationship.time_zone),
            relationship.settings,
            now,
        )
        async with services.records.changing(relationship.id, now) as changes:
            await changes.audit(found.caller.user_id, "export", "everything")
        name = f"foremind-{relationship.companion}-{now:%Y-%m-%d}.json"
        headers = {"content-disposition": f'attachment; filename="{name}"'}
        return json_response(written, headers=headers)

    async def restore(request: Request) -> Response:
        caller = await services.entrance.caller(request)
        require(caller, "memory:write")
        body = await body_of(request, Export, _MOST_EXPORT)
        slug = request.query_params.get("companion") or body.companion
        if not caller.may_open(slug):
            raise NotAllowed("companion: the token does not allow this one", param="companion")
        companion = await services.companions.find(slug)
        settings_of_users(msgspec.to_builtins(body.settings), services.settings)
        id_ = await services.restorer.restore(
            caller.whose,
            (companion.id, companion.name),
            body,
            in_exchange=policy_for(companion.settings, services.settings).storage.read_in_exchange,
            now=services.clock.now(),
        )
        services.curation.look()
        return json_response({"id": id_}, 201)

    async def schema(_: Request) -> Response:
        return json_response(msgspec.json.schema(Export))

    return [
        Route("/v1/relationships/import", answered(restore), methods=["POST"]),
        Route("/v1/relationships/{id}/export", answered(export)),
        Route("/v1/schemas/export", schema),
    ]
