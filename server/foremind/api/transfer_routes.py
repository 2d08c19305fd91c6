"""Export and import of relationships as JSON files, and import of other programs' chats."""

from collections.abc import Sequence
from typing import Any
from urllib.parse import quote

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from foremind.api.dependencies import RelationshipServices, read_bytes, resolve_relationship
from foremind.api.json_bodies import decode_json
from foremind.api.operations import TEXT, Operation
from foremind.api.responses import json_response
from foremind.auth.principal import Principal
from foremind.domain.companion import Companion, Notice
from foremind.domain.errors import InvalidMessage, NotAllowed
from foremind.domain.export_file import Export, with_user_as_author
from foremind.domain.settings.setting_levels import (
    check_player,
    check_relationship,
    read_settings,
    set_names,
)
from foremind.domain.settings.settings import CompanionSettings, RelationshipSettings, Settings
from foremind.memory.foreign_chats import ForeignPast, is_foreign
from foremind.memory.import_relationship import ImportLimits

_MAX_IMPORT_BYTES = 64_000_000


class Imported(msgspec.Struct, frozen=True):
    """A relationship that was imported, which program wrote the file, and what is missing.

    `notices` are what could not be read of another program's file, each by its first place in it.
    """

    id: str
    program: str
    sessions: int
    turns: int
    notices: Sequence[Notice]


class TransferEndpoints:
    """Operations that export and import relationships."""

    def __init__(self, services: RelationshipServices) -> None:
        self._services = services

    @Operation("GET", "/v1/relationships/{id}/export", Export)
    async def export_relationship(self, request: Request, principal: Principal) -> Response:
        """Export a relationship.

        Returns the whole relationship as one JSON file, which can be imported again: sessions,
        turns, memories, records with their sources and earlier revisions, the audit trail, and the
        progress of the background work. Vectors are not included. A user may have two exports in
        flight.
        """
        services = self._services
        resolved = await resolve_relationship(services, request, principal)
        relationship = resolved.relationship
        user_id = resolved.principal.user_id
        now = services.runtime.clock.now()

        async def build() -> Export:
            export = await services.transfer.store.read(relationship, now)
            async with services.stores.records.begin_changes(relationship.id, now) as changes:
                await changes.audit(user_id, "export", "everything")
            return export

        name = f"foremind-{relationship.companion}-{now:%Y-%m-%d}.json"
        # Headers are ASCII, but a slug may be in any script (RFC 8187).
        headers = {"content-disposition": f"attachment; filename*=UTF-8''{quote(name)}"}
        return await services.transfer.exports.respond(user_id, build, headers)

    @Operation(
        "POST",
        "/v1/relationships/import",
        Imported,
        status=201,
        body=Export,
        query={
            "companion": TEXT
            | {"description": "The slug of the companion. Default: the one named in the file."}
        },
        file_types=("application/octet-stream", "application/zip", "application/x-ndjson"),
        scope="memory:write",
    )
    async def import_relationship(self, request: Request, principal: Principal) -> Response:
        """Import a relationship.

        Restores a relationship from its export, also from another server with another embedding
        model. Nothing may have been said with the companion yet (409). Everything in the file is
        validated, and nothing is stored if anything is invalid. Vectors are computed again, and the
        audit trail is not imported. Records made by the `developer` become the user's, unless the
        token has the scope `admin`. Another program's file is taken, too: a chat of SillyTavern, an
        export of ChatGPT or Character.AI, a dump of mem0, or a zip archive of these. What was said
        is then remembered in the background, with its dates, and the ids of its messages begin
        with `import-`; `notices` lists what could not be read.
        """
        services = self._services
        server, importer = services.runtime.settings, services.transfer.importer
        user_id, actor = principal.effective_user_id, principal.user_id
        now = services.runtime.clock.now()
        raw = await read_bytes(request, _MAX_IMPORT_BYTES)
        slug = request.query_params.get("companion")
        if is_foreign(raw):
            companion = await self._companion(principal, slug)
            name = principal.name if principal.states_name else None
            id_, past = await importer.import_chats([raw], user_id, name, companion, actor, now)
        else:
            export = await decode_json(raw, Export, ImportLimits.of(server).check)
            companion = await self._companion(principal, slug or export.companion)
            settings = _relationship_settings(
                export.settings, companion.settings, server, principal
            )
            if not principal.admin:
                export = with_user_as_author(export)
            id_ = await importer.restore(user_id, companion, export, settings, actor, now)
            past = ForeignPast("Foremind", export, ())
        services.background_worker.wake(id_)
        sessions, turns = len(past.export.sessions), len(past.export.turns)
        return json_response(Imported(str(id_), past.program, sessions, turns, past.notices), 201)

    async def _companion(self, principal: Principal, slug: str | None) -> Companion:
        """Return the companion of an import.

        Raises:
            InvalidMessage: none is named.
            NotAllowed: the token does not allow it.
            NotFound: there is none with this slug.
        """
        if not slug:
            raise InvalidMessage("companion: expected the slug of one", param="companion")
        if not principal.may_open(slug):
            raise NotAllowed(
                "companion: the token does not allow this companion", param="companion"
            )
        return await self._services.stores.companions.find(slug)

    @Operation("GET", "/v1/schemas/export", dict[str, Any], scope="", caller="anyone")
    async def export_schema(self, _: Request, __: Principal | None) -> Response:
        """Get the export schema.

        Returns the JSON Schema of a relationship's export.
        """
        return json_response(msgspec.json.schema(Export))


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
