"""A relationship as one file: written out, read back, and the schema of it."""

from urllib.parse import quote

import msgspec
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Route

from foremind.api.dependencies import RelationshipServices, body_of, find
from foremind.api.responses import json_response
from foremind.auth.authority import require
from foremind.auth.principal import Principal
from foremind.domain.companion import CompanionSettings, RelationshipSettings
from foremind.domain.errors import NotAllowed
from foremind.domain.export_file import Export, as_told_by_user
from foremind.domain.policy import laid_over, policy_for
from foremind.domain.setting_levels import (
    check_player,
    check_relationship,
    given_in,
    in_force,
    read_settings,
)
from foremind.domain.settings import Settings
from foremind.llm.openai_model import MAX_CHARS_PER_TOKEN
from foremind.memory.import_limits import ImportLimits

_MOST_EXPORT = 64_000_000  # bytes of a file that is read


def _own_settings(
    own: CompanionSettings, companion: CompanionSettings, server: Settings, caller: Principal
) -> RelationshipSettings:
    """Return the settings of a file as whoever reads it back may set them.

    Raises:
        InvalidMessage: naming the field and what was expected.
    """
    own = read_settings(msgspec.to_builtins(own))
    if caller.admin:
        check_relationship(own, given_in(own), companion, server)
        return RelationshipSettings(operator=own)
    check_player(own, given_in(own), companion, server)
    return RelationshipSettings(user=own)


def _limits(settings: Settings) -> ImportLimits:
    """Return the limits of what is said and answered here; a reply may quote what was said."""
    said = settings.max_text_chars
    return ImportLimits(said, said + settings.llm_max_tokens * MAX_CHARS_PER_TOKEN)


def transfer_routes(services: RelationshipServices) -> list[BaseRoute]:
    """Return the routes that move relationships between servers."""

    async def export(request: Request) -> Response:
        found = await find(services, request)
        relationship = found.relationship
        now = services.clock.now()

        async def written() -> Export:
            everything = await services.transfer.read(
                relationship.id,
                relationship.companion,
                (relationship.user_name, relationship.time_zone),
                laid_over(relationship.settings.operator, relationship.settings.user),
                now,
            )
            async with services.records.changing(relationship.id, now) as changes:
                await changes.audit(found.caller.user_id, "export", "everything")
            return everything

        name = f"foremind-{relationship.companion}-{now:%Y-%m-%d}.json"
        # A header is ASCII, a slug may be in any script (RFC 8187).
        headers = {"content-disposition": f"attachment; filename*=UTF-8''{quote(name)}"}
        return await services.exports.answer(found.caller.user_id, written, headers)

    async def restore(request: Request) -> Response:
        caller = await services.entrance.caller(request)
        require(caller, "memory:write")
        body = await body_of(request, Export, _MOST_EXPORT, _limits(services.settings).check)
        slug = request.query_params.get("companion") or body.companion
        if not caller.may_open(slug):
            raise NotAllowed("companion: the token does not allow this one", param="companion")
        companion = await services.companions.find(slug)
        own = _own_settings(body.settings, companion.settings, services.settings, caller)
        id_ = await services.restorer.restore(
            caller.whose,
            (companion.id, companion.name),
            body if caller.admin else as_told_by_user(body),
            own,
            actor=caller.user_id,
            in_exchange=policy_for(
                in_force(companion.settings, own, services.settings), services.settings
            ).storage.read_in_exchange,
            now=services.clock.now(),
        )
        services.curation.look()
        return json_response({"id": str(id_)}, 201)

    async def schema(request: Request) -> Response:
        await services.entrance.player(request)
        return json_response(msgspec.json.schema(Export))

    return [
        Route("/v1/relationships/import", restore, methods=["POST"]),
        Route("/v1/relationships/{id}/export", export),
        Route("/v1/schemas/export", schema),
    ]
