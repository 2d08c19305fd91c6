"""A user's relationships: their settings, sessions, and the context of a draft."""

from functools import partial
from typing import Any
from uuid import UUID
from zoneinfo import ZoneInfo

import msgspec
from msgspec.structs import asdict, replace
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Route

from foremind.api.dependencies import (
    RelationshipServices,
    ResolvedRelationship,
    body_of,
    find,
    note_if_others,
)
from foremind.api.responses import json_response
from foremind.auth.authority import require
from foremind.domain.announcements import SettingsChanged
from foremind.domain.companion import RelationshipSettings
from foremind.domain.errors import InvalidMessage, NotFound
from foremind.domain.policy import laid_over
from foremind.domain.session_state import NO_STATE, Flags, StatePatch
from foremind.domain.setting_levels import (
    changed,
    check_player,
    check_relationship,
    given_in,
    origins_of,
    values_of,
)
from foremind.domain.settings import LAYERS, Settings
from foremind.llm.prompt.assembly import MOST_TURNS, assemble
from foremind.llm.prompt.layout import PastTurn
from foremind.llm.prompt.sections import state_section
from foremind.llm.prompt.token_counter import counter_for
from foremind.retrieval.embedding.priority_queue import Priority
from foremind.typeahead.context_builder import RetrievalScope
from foremind.typeahead.context_cache import CacheKey
from foremind.typeahead.draft_text import normalise

_MOST_SESSIONS = 200


class Config(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A JSON merge patch (RFC 7396) of what a relationship has of its own.

    What is not given stays as it is; null takes a setting away, so that the wider level's holds.
    """

    settings: dict[str, msgspec.Raw] | msgspec.UnsetType | None = msgspec.UNSET
    shares_counts: bool | msgspec.UnsetType | None = msgspec.UNSET
    consent: bool | None = None


class StateBody(StatePatch, frozen=True, forbid_unknown_fields=True):
    """A JSON merge patch of what goes on in the session: null takes a task or a flag away."""


class StateView(msgspec.Struct, frozen=True):
    """What goes on in a relationship's session; `session` is None where none goes on."""

    session: str | None
    task: str
    flags: Flags


def relationship_routes(services: RelationshipServices) -> list[BaseRoute]:
    """Return the routes of relationships as wholes."""

    async def listed(request: Request) -> Response:
        caller = await services.entrance.caller(request)
        require(caller, "memory:read")
        known = [
            each
            for each in await services.relationships.of_user(caller.whose)
            if caller.may_open(each.companion)
        ]
        for each in known:
            await note_if_others(services, caller, each.id, "read", "relationships")
        return json_response(
            [
                {"id": str(each.id), "companion": each.companion, "memories": each.memory_count}
                for each in known
            ]
        )

    async def config(request: Request) -> Response:
        found = await find(services, request)
        shown = origins_of(found.owner.settings, found.relationship.settings, services.settings)
        agreed = found.relationship.shares_counts
        shown["consented"] = {"value": found.relationship.consented, "from": "relationship"}
        shown["shares_counts"] = {"value": agreed, "from": "relationship"}
        return json_response(shown)

    async def change_config(request: Request) -> Response:
        found = await find(services, request)
        body = await body_of(request, Config)
        await services.relationships.change(
            found.relationship.id,
            partial(_changed, found, body.settings, services.settings),
            None if body.shares_counts is msgspec.UNSET else bool(body.shares_counts),
        )
        await services.current.changed(SettingsChanged(found.relationship.id))
        await services.curation.make_due(found.relationship.id)  # they may let something go
        if body.consent is not None:
            await services.relationships.consent(
                found.relationship.id,
                found.caller.user_id,
                services.clock.now(),
                given=body.consent,
            )
        async with services.records.changing(
            found.relationship.id, services.clock.now()
        ) as changes:
            await changes.audit(found.caller.user_id, "configure", "settings")
        if not found.caller.allows("memory:read"):
            return json_response({})
        return await config(request)

    async def sessions(request: Request) -> Response:
        found = await find(services, request)
        page = await services.relationships.sessions(found.relationship.id, _MOST_SESSIONS)
        return json_response({"sessions": page})

    async def status(request: Request) -> Response:
        found = await find(services, request)
        return json_response({"steps": await services.curation.status(found.relationship.id)})

    async def take_up(request: Request) -> Response:
        found = await find(services, request)
        await services.curation.take_up(found.relationship.id)
        return json_response({"status": "begun"}, 202)

    async def state(request: Request) -> Response:
        found = await find(services, request)
        session = await _running(services, found)
        if session is None:
            return json_response(StateView(None, "", {}))
        known = await services.states.read(found.relationship.id, session)
        return json_response(StateView(str(session), known.task, known.flags))

    async def change_state(request: Request) -> Response:
        found = await find(services, request)
        body = await body_of(request, StateBody)
        session = await _running(services, found)
        if session is None:
            raise NotFound("session: expected one that goes on; none does", param="session")
        new = await services.states.change(
            found.relationship.id, session, body, services.clock.now()
        )
        if not found.caller.allows("memory:read"):
            return json_response({})
        return json_response(StateView(str(session), new.task, new.flags))

    async def context(request: Request) -> Response:
        found = await find(services, request)
        draft = request.query_params.get("draft", "")
        if not draft.strip() or len(draft) > services.settings.max_text_chars:
            most = services.settings.max_text_chars
            raise InvalidMessage(
                f"draft: expected text of at most {most} characters", param="draft"
            )
        return json_response(await _context(services, found, draft))

    return [
        Route("/v1/relationships", listed),
        Route("/v1/relationships/{id}/config", config),
        Route("/v1/relationships/{id}/config", change_config, methods=["PATCH"]),
        Route("/v1/relationships/{id}/sessions", sessions),
        Route("/v1/relationships/{id}/status", status),
        Route("/v1/relationships/{id}/status", take_up, methods=["POST"]),
        Route("/v1/relationships/{id}/state", state),
        Route("/v1/relationships/{id}/state", change_state, methods=["PATCH"]),
        Route("/v1/relationships/{id}/context", context),
    ]


def _changed(
    found: ResolvedRelationship,
    raw: dict[str, msgspec.Raw] | msgspec.UnsetType | None,
    server: Settings,
    own: RelationshipSettings,
) -> RelationshipSettings:
    """Return a relationship's settings after a patch by its user, or by the operator.

    What the operator sets takes the place of what the user did, and bounds it from then on.

    Raises:
        InvalidMessage: naming the field and what was expected.
    """
    if raw is msgspec.UNSET:
        return own
    if raw is None:
        levels = (own.user, own.operator) if found.caller.admin else (own.user,)
        patch: dict[str, Any] = {name: None for level in levels for name in given_in(level)}
    else:
        patch = values_of(raw)
    companion = found.owner.settings
    if not found.caller.admin:
        user = changed(own.user, patch)
        check_player(user, list(patch), laid_over(companion, own.operator), server)
        return replace(own, user=user)
    operator = changed(own.operator, patch)
    check_relationship(operator, list(patch), companion, server)
    return RelationshipSettings(operator, changed(own.user, dict.fromkeys(patch)))


async def _running(services: RelationshipServices, found: ResolvedRelationship) -> UUID | None:
    """Return the session of a relationship that goes on, if one does."""
    since = services.clock.now() - found.policy.layers.session
    return await services.relationships.running_session(found.relationship.id, since)


async def _context(
    services: RelationshipServices, found: ResolvedRelationship, draft: str
) -> dict[str, object]:
    """Return exactly what the language model would be given for a draft, and what it costs."""
    relationship, companion, policy = found.relationship, found.companion, found.policy
    zone = ZoneInfo(relationship.time_zone)
    now = services.clock.now().astimezone(zone)
    count = counter_for(policy.layers.tokenizer)
    subject = RetrievalScope(
        relationship.id,
        companion.id,
        relationship.user_name,
        CacheKey(
            memory_version=relationship.memory_version,
            layers_version=-1,
            companion_version=companion.version,
            model="",
            embedding=services.embedder.manifest.fingerprint,
            limits=policy.recall,
            layers=policy.layers,
        ),
        zone,
    )
    prepared = await services.preparer.prepare(normalise(draft), lambda: subject, Priority.PAUSE)
    session = await _running(services, found)
    said, going_on = [], NO_STATE
    if session is not None:
        said = await services.turns.working(relationship.id, session, MOST_TURNS)
        going_on = await services.states.read(relationship.id, session)
    standing = prepared.standing
    started = services.clock.monotonic()
    assembled = assemble(
        companion,
        policy.layers,
        user_name=relationship.user_name,
        standing={**standing.sections, "state": state_section(going_on, count)},
        recalled=prepared.recalled,
        memories=prepared.memories,
        history=[
            PastTurn(turn.speaker, turn.content, turn.id)
            for turn in said
            if turn.id > standing.summarised_turn_id
        ],
        message=draft,
        opening=not said,
        now=now,
    )
    assembly_ms = round((services.clock.monotonic() - started) * 1000, 3)
    prompt = assembled.prompt
    messages = prompt.messages()
    layers: dict[str, dict[str, object]] = {}
    for layer in LAYERS:
        told = [portion for portion in assembled.portions if portion.section.layer == layer]
        layers[layer] = {
            "on": policy.layers.on(layer),
            "tokens": assembled.tokens.get(layer, 0),
            "ms": prepared.timings.layers_ms.get(layer, 0.0),
            "lines": [line for each in told for line in each.lines()],
            "elsewhere": sum(len(each.repeated) for each in told),
            "made_by": sorted(
                {maker for each in told if each.lines() for maker in each.section.made_by}
            ),
        }
    layers["memories"] |= {"count": len(prompt.memories), "of": len(prepared.memories)}
    layers["working"] |= {"turns": len(prompt.history), "of": len(said)}
    layers["behaviours"] |= {"lines": list(prompt.instructions)}
    return {
        "messages": messages,
        "tokens": sum(count(message["content"]) for message in messages),
        "budget": int(policy.layers.context_tokens * policy.layers.share),
        "layers": layers,
        "left_out": list(prepared.left_out),
        "missing": dict(prepared.missing),
        "memories": [asdict(memory) | {"id": str(memory.id)} for memory in prompt.memories],
        "timings": asdict(prepared.timings) | {"assembly_ms": assembly_ms},
    }
