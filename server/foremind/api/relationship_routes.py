"""Relationships: their settings, sessions, background work, session state and context."""

from functools import partial
from typing import Any

import msgspec
from msgspec.structs import replace
from starlette.requests import Request
from starlette.responses import Response

from foremind.api.context_preview import active_session, preview_context
from foremind.api.dependencies import (
    RelationshipServices,
    ResolvedRelationship,
    audit_foreign_access,
    read_json,
    resolve_relationship,
)
from foremind.api.memory_routes import text_of
from foremind.api.operations import TEXT, Operation
from foremind.api.responses import DoneResponse, json_response
from foremind.auth.principal import Principal
from foremind.background.step_definitions import StepStatus
from foremind.domain.companion import Companion
from foremind.domain.errors import InvalidMessage, NotFound
from foremind.domain.policy import overlay_settings
from foremind.domain.relationship import Relationship, SessionView
from foremind.domain.session_state import Flags, StatePatch
from foremind.domain.settings.setting_levels import (
    apply_settings_patch,
    check_player,
    check_relationship,
    decode_values,
    set_names,
    setting_origins,
)
from foremind.domain.settings.settings import RelationshipSettings, Settings

_MAX_SESSIONS = 200


class Config(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A JSON merge patch (RFC 7396) of a relationship's own settings.

    What is absent stays as it is. A null setting is removed, so that the companion's or server's
    applies. `consent` gives or withdraws the user's consent to be remembered; it can be withdrawn
    only where the companion requires it.
    """

    settings: dict[str, msgspec.Raw] | msgspec.UnsetType | None = msgspec.UNSET
    consent: bool | None = None


class StateBody(StatePatch, frozen=True, forbid_unknown_fields=True):
    """A JSON merge patch (RFC 7396) of the session state; null removes the task or a flag."""


class StateView(msgspec.Struct, frozen=True):
    """The state of a relationship's active session; `session` is null if there is none."""

    session: str | None
    task: str
    flags: Flags


class RelationshipView(msgspec.Struct):
    """A relationship: its id, its companion's slug, and the number of memories."""

    id: str
    companion: str
    memories: int


class Sessions(msgspec.Struct):
    """Sessions with at least one turn."""

    sessions: list[SessionView]


class Status(msgspec.Struct):
    """The steps of a relationship's background work, in the order in which they run."""

    steps: list[StepStatus]


class RelationshipEndpoints:
    """Operations on relationships."""

    def __init__(self, services: RelationshipServices) -> None:
        self._services = services

    @Operation("GET", "/v1/relationships", list[RelationshipView])
    async def list_relationships(self, request: Request, principal: Principal) -> Response:
        """List relationships.

        Returns the user's relationships with the companions that the token allows.
        """
        services = self._services
        relationships = [
            relationship
            for relationship in await services.stores.relationships.relationships_of_user(
                principal.effective_user_id
            )
            if principal.may_open(relationship.companion)
        ]
        for relationship in relationships:
            await audit_foreign_access(
                services, principal, relationship.id, "read", "relationships"
            )
        return json_response(
            [
                {
                    "id": str(relationship.id),
                    "companion": relationship.companion,
                    "memories": relationship.memory_count,
                }
                for relationship in relationships
            ]
        )

    @Operation("GET", "/v1/relationships/{id}/config", dict[str, Any])
    async def config(self, request: Request, principal: Principal) -> Response:
        """Get settings.

        Returns every setting in force as `value`, with the level that sets it as `from`:
        `relationship`, `companion` or `server`. Also returns `consented`, whether the user has
        agreed to be remembered.
        """
        resolved = await resolve_relationship(self._services, request, principal)
        return self._config_of(resolved.base_companion, resolved.relationship)

    def _config_of(self, companion: Companion, relationship: Relationship) -> Response:
        settings = setting_origins(
            companion.settings, relationship.settings, self._services.runtime.settings
        )
        settings["consented"] = {"value": relationship.consented, "from": "relationship"}
        return json_response(settings)

    @Operation(
        "PATCH", "/v1/relationships/{id}/config", dict[str, Any], body=Config, scope="memory:write"
    )
    async def change_config(self, request: Request, principal: Principal) -> Response:
        """Change settings.

        Applies a JSON merge patch (RFC 7396) to the relationship's own settings. A null setting is
        removed, so that the companion's or server's applies; null for `settings` removes all. With
        the scope `admin`, the operator's settings for the relationship are changed instead; they
        replace the user's, and limit what the user can set later. Open sessions use the new
        settings at once. Returns the settings in force, or an empty object without the scope
        `memory:read`.
        """
        services = self._services
        resolved = await resolve_relationship(services, request, principal)
        relationship_id, user_id = resolved.relationship.id, resolved.principal.user_id
        body = await read_json(request, Config)
        if body.consent is False and resolved.policy.consent == "assumed":
            raise InvalidMessage(
                "consent: expected true, because this companion asks for none and would go on "
                'remembering; send messages with "remember": false, or erase what is remembered',
                param="consent",
            )
        announced = await services.stores.relationships.change(
            relationship_id,
            partial(_patched_settings, resolved, body.settings, services.runtime.settings),
        )
        await services.live_settings.reload(announced)
        await services.background_worker.schedule_now(
            relationship_id
        )  # retention may have become shorter
        if body.consent is not None:
            await services.stores.relationships.consent(
                relationship_id, user_id, services.runtime.clock.now(), given=body.consent
            )
        async with services.stores.records.begin_changes(
            relationship_id, services.runtime.clock.now()
        ) as changes:
            await changes.audit(user_id, "configure", "settings")
        if not resolved.principal.allows("memory:read"):
            return json_response({})
        changed = await services.stores.relationships.find(
            relationship_id, resolved.principal.effective_user_id
        )
        return self._config_of(resolved.base_companion, changed)

    @Operation("GET", "/v1/relationships/{id}/sessions", Sessions)
    async def list_sessions(self, request: Request, principal: Principal) -> Response:
        """List sessions.

        Returns the last 200 sessions that have turns, newest first.
        """
        resolved = await resolve_relationship(self._services, request, principal)
        sessions = await self._services.stores.relationships.sessions(
            resolved.relationship.id, _MAX_SESSIONS
        )
        return json_response({"sessions": sessions})

    @Operation("GET", "/v1/relationships/{id}/status", Status)
    async def status(self, request: Request, principal: Principal) -> Response:
        """Get background status.

        Returns the state of every step of the background work, such as notes, episodes and topics,
        with its last error and the turns that it has yet to process.
        """
        resolved = await resolve_relationship(self._services, request, principal)
        steps = await self._services.background_worker.status(resolved.relationship.id)
        return json_response({"steps": steps})

    @Operation(
        "POST", "/v1/relationships/{id}/status", DoneResponse, status=202, scope="memory:write"
    )
    async def run_background_work(self, request: Request, principal: Principal) -> Response:
        """Run background work now.

        Schedules all pending steps at once, including those that are backing off or held after
        failures. Returns before they have run.
        """
        resolved = await resolve_relationship(self._services, request, principal)
        await self._services.background_worker.retry_now(resolved.relationship.id)
        return json_response({"status": "begun"}, 202)

    @Operation("GET", "/v1/relationships/{id}/state", StateView)
    async def state(self, request: Request, principal: Principal) -> Response:
        """Get the session state.

        Returns the task and flags of the active session. `session` is null if there is none.
        """
        resolved = await resolve_relationship(self._services, request, principal)
        session = await active_session(self._services, resolved)
        if session is None:
            return json_response(StateView(None, "", {}))
        state, _ = await self._services.stores.states.read(resolved.relationship.id, session)
        return json_response(StateView(str(session), state.task, state.flags))

    @Operation(
        "PATCH",
        "/v1/relationships/{id}/state",
        dict[str, Any],
        body=StateBody,
        scope="memory:write",
    )
    async def change_state(self, request: Request, principal: Principal) -> Response:
        """Change the session state.

        Applies a JSON merge patch to the task and flags of the active session; null removes the
        task or a flag. 404 if no session is active. Returns the new state, or an empty object
        without the scope `memory:read`.
        """
        services = self._services
        resolved = await resolve_relationship(services, request, principal)
        body = await read_json(request, StateBody)
        session = await active_session(services, resolved)
        if session is None:
            raise NotFound("session: expected an active session; there is none", param="session")
        state, _ = await services.stores.states.change(
            resolved.relationship.id, session, body, services.runtime.clock.now()
        )
        if not resolved.principal.allows("memory:read"):
            return json_response({})
        return json_response(StateView(str(session), state.task, state.flags))

    @Operation(
        "GET",
        "/v1/relationships/{id}/context",
        dict[str, Any],
        query={"draft": TEXT | {"description": "The text of the draft."}},
        required=frozenset({"draft"}),
    )
    async def context(self, request: Request, principal: Principal) -> Response:
        """Preview the context of a draft.

        Returns exactly the prompt that the language model would be given if the user sent the draft
        now: its messages, their token counts and the token budget, the memories retrieved, how much
        meaning and words weighed in finding them, what every layer contributed or left out, the
        active entries of the companion's lorebook, and timings in milliseconds. The language model
        is not called and nothing is stored.
        """
        resolved = await resolve_relationship(self._services, request, principal)
        draft = request.query_params.get("draft", "")
        text_of(self._services, draft, "draft")
        return json_response(await preview_context(self._services, resolved, draft))


def _patched_settings(
    resolved: ResolvedRelationship,
    raw: dict[str, msgspec.Raw] | msgspec.UnsetType | None,
    server: Settings,
    current: RelationshipSettings,
) -> RelationshipSettings:
    """Return a relationship's settings after a patch by its user or by the operator.

    What the operator sets replaces the user's settings, and limits what the user can set later.

    Raises:
        InvalidMessage: a setting is invalid or not allowed; `param` names it.
    """
    if raw is msgspec.UNSET:
        return current
    is_admin = resolved.principal.admin
    if raw is None:
        levels = (current.user, current.operator) if is_admin else (current.user,)
        patch: dict[str, Any] = {name: None for level in levels for name in set_names(level)}
    else:
        patch = decode_values(raw)
    companion = resolved.base_companion.settings
    if not is_admin:
        user = apply_settings_patch(current.user, patch)
        check_player(user, list(patch), overlay_settings(companion, current.operator), server)
        return replace(current, user=user)
    operator = apply_settings_patch(current.operator, patch)
    check_relationship(operator, list(patch), companion, server)
    return RelationshipSettings(operator, apply_settings_patch(current.user, dict.fromkeys(patch)))
