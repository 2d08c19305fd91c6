"""Export and import of relationships as JSON files."""

from urllib.parse import quote

import msgspec
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Route

from foremind.api.dependencies import RelationshipServices, read_json, resolve_relationship
from foremind.api.responses import json_response
from foremind.auth.authority import require_scope
from foremind.auth.principal import Principal
from foremind.domain.errors import NotAllowed
from foremind.domain.export_file import Export, with_user_as_author
from foremind.domain.policy import overlay_settings, policy_for
from foremind.domain.settings.setting_levels import (
    check_player,
    check_relationship,
    effective_settings,
    read_settings,
    set_names,
)
from foremind.domain.settings.settings import CompanionSettings, RelationshipSettings, Settings
from foremind.llm.chat_model import MAX_CHARS_PER_TOKEN
from foremind.memory.import_relationship import ImportLimits

_MAX_IMPORT_BYTES = 64_000_000


class _TransferEndpoints:
    def __init__(self, services: RelationshipServices) -> None:
        self._services = services

    async def export_relationship(self, request: Request) -> Response:
        services = self._services
        resolved = await resolve_relationship(services, request)
        relationship = resolved.relationship
        user_id = resolved.principal.user_id
        now = services.runtime.clock.now()

        async def build() -> Export:
            export = await services.transfer.store.read(
                relationship.id,
                relationship.companion,
                (relationship.user_name, relationship.time_zone, relationship.language),
                overlay_settings(relationship.settings.operator, relationship.settings.user),
                now,
            )
            async with services.stores.records.begin_changes(relationship.id, now) as changes:
                await changes.audit(user_id, "export", "everything")
            return export

        name = f"foremind-{relationship.companion}-{now:%Y-%m-%d}.json"
        # Headers are ASCII, but a slug may be in any script (RFC 8187).
        headers = {"content-disposition": f"attachment; filename*=UTF-8''{quote(name)}"}
        return await services.transfer.exports.respond(user_id, build, headers)

    async def import_relationship(self, request: Request) -> Response:
        services = self._services
        principal = await services.authenticator.authenticate(request)
        require_scope(principal, "memory:write")
        check = _import_limits(services.runtime.settings).check
        body = await read_json(request, Export, _MAX_IMPORT_BYTES, check)
        slug = request.query_params.get("companion") or body.companion
        if not principal.may_open(slug):
            raise NotAllowed(
                "companion: the token does not allow this companion", param="companion"
            )
        companion = await services.stores.companions.find(slug)
        settings = _relationship_settings(
            body.settings, companion.settings, services.runtime.settings, principal
        )
        policy = policy_for(
            effective_settings(companion.settings, settings, services.runtime.settings),
            services.runtime.settings,
        )
        known = await services.stores.users.get(principal.effective_user_id)
        texts = sum(len(turn.text.encode()) for turn in body.turns)
        await services.stores.quota.admit(
            None if known is None else known.id, texts, len(body.turns)
        )
        id_ = await services.transfer.importer.restore(
            principal.effective_user_id,
            (companion.id, companion.name),
            body if principal.admin else with_user_as_author(body),
            settings,
            actor=principal.user_id,
            read_in_exchange=policy.storage.read_in_exchange,
            now=services.runtime.clock.now(),
        )
        services.background_worker.wake(id_)
        return json_response({"id": str(id_)}, 201)

    async def export_schema(self, request: Request) -> Response:
        await self._services.authenticator.authenticate_unless_open(request)
        return json_response(msgspec.json.schema(Export))


def transfer_routes(services: RelationshipServices) -> list[BaseRoute]:
    """Return the routes that export and import relationships."""
    endpoints = _TransferEndpoints(services)
    return [
        Route("/v1/relationships/import", endpoints.import_relationship, methods=["POST"]),
        Route("/v1/relationships/{id}/export", endpoints.export_relationship),
        Route("/v1/schemas/export", endpoints.export_schema),
    ]


def _relationship_settings(
    exported: CompanionSettings,
    companion: CompanionSettings,
    server: Settings,
    principal: Principal,
) -> RelationshipSettings:
    """Return the settings of an export at the level at which the principal may set them.

    Raises:
        InvalidMessage: a setting is invalid or not allowed; `param` names it.
    """
    settings = read_settings(msgspec.to_builtins(exported))
    if principal.admin:
        check_relationship(settings, set_names(settings), companion, server)
        return RelationshipSettings(operator=settings)
    check_player(settings, set_names(settings), companion, server)
    return RelationshipSettings(user=settings)


def _import_limits(settings: Settings) -> ImportLimits:
    """Return the limits on imported messages and replies; a reply may quote its message."""
    message_chars = settings.max_text_chars
    reply_chars = message_chars + settings.llm_max_tokens * MAX_CHARS_PER_TOKEN
    return ImportLimits(message_chars, reply_chars)
