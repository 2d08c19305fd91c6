"""A user's relationships: their settings, sessions, and the context of a draft."""

from typing import Any
from zoneinfo import ZoneInfo

import msgspec
from msgspec.structs import asdict
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Route

from foremind.embedding.queue import Priority
from foremind.errors import InvalidMessage
from foremind.generation.assembly import MOST_TURNS, assemble
from foremind.generation.prompt import PastTurn
from foremind.http.answers import answered, json_response
from foremind.http.callers import Found, RelationshipServices, body_of, find
from foremind.layers.tokens import counter_for
from foremind.policies import origins_of, settings_of_users
from foremind.settings import LAYERS
from foremind.typeahead.draft import normalise
from foremind.typeahead.prepare import Subject
from foremind.typeahead.prepared import Validity

_MOST_SESSIONS = 200


class Config(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What a relationship has of its own; what is not given stays as it is."""

    settings: dict[str, Any] | None = None
    shares_counts: bool | None = None


def relationship_routes(services: RelationshipServices) -> list[BaseRoute]:
    """Return the routes of relationships as wholes."""

    async def listed(request: Request) -> Response:
        caller = await services.entrance.caller(request)
        return json_response(
            [
                {"id": each.id, "companion": each.companion, "memories": each.memory_count}
                for each in await services.relationships.of_user(caller.whose)
                if caller.may_open(each.companion)
            ]
        )

    async def config(request: Request) -> Response:
        found = await find(services, request)
        levels = {
            "relationship": found.relationship.settings,
            "companion": found.owner.settings,
        }
        shown = origins_of(levels, services.settings)
        agreed = found.relationship.shares_counts
        shown["shares_counts"] = {"value": agreed, "from": "relationship"}
        return json_response(shown)

    async def change_config(request: Request) -> Response:
        found = await find(services, request)
        body = await body_of(request, Config)
        own = found.relationship.settings
        if body.settings is not None:
            own = settings_of_users(body.settings, services.settings)
        agreed = found.relationship.shares_counts
        if body.shares_counts is not None:
            agreed = body.shares_counts
        await services.relationships.change(found.relationship.id, own, shares_counts=agreed)
        async with services.records.changing(
            found.relationship.id, services.clock.now()
        ) as changes:
            await changes.audit(found.caller.user_id, "configure", "settings")
        return await config(request)

    async def sessions(request: Request) -> Response:
        found = await find(services, request)
        page = await services.relationships.sessions(found.relationship.id, _MOST_SESSIONS)
        return json_response({"sessions": page})

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
        Route("/v1/relationships", answered(listed)),
        Route("/v1/relationships/{id}/config", answered(config)),
        Route("/v1/relationships/{id}/config", answered(change_config), methods=["PATCH"]),
        Route("/v1/relationships/{id}/sessions", answered(sessions)),
        Route("/v1/relationships/{id}/context", answered(context)),
    ]


async def _context(services: RelationshipServices, found: Found, draft: str) -> dict[str, object]:
    """Return exactly what the language model would be given for a draft, and what it costs."""
    relationship, companion, policy = found.relationship, found.companion, found.policy
    zone = ZoneInfo(relationship.time_zone)
    now = services.clock.now().astimezone(zone)
    count = counter_for(policy.layers.tokenizer)
    held = await services.held.load(relationship.id, count)
    await services.library.load(companion.id)
    subject = Subject(
        relationship.id,
        companion.id,
        relationship.user_name,
        Validity(
            memory_version=relationship.memory_version,
            layers_version=-1 if held is None else held.version,
            companion_version=companion.version,
            model="",
            embedding=services.embedder.manifest.fingerprint,
            limits=policy.recall,
            layers=policy.layers,
        ),
        zone,
    )
    prepared = await services.preparer.prepare(normalise(draft), lambda: subject, Priority.PAUSE)
    session = await services.relationships.running_session(
        relationship.id, now - policy.layers.session
    )
    said = (
        []
        if session is None
        else await services.turns.working(relationship.id, session, MOST_TURNS)
    )
    upto = 0 if held is None else held.summarised_turn_id
    started = services.clock.monotonic()
    assembled = assemble(
        companion,
        policy.layers,
        user_name=relationship.user_name,
        standing={} if held is None else held.standing,
        recalled=prepared.recalled,
        memories=prepared.memories,
        history=[PastTurn(turn.speaker, turn.content, turn.id) for turn in said if turn.id > upto],
        message=draft,
        opening=not said,
        now=now,
    )
    assembly_ms = round((services.clock.monotonic() - started) * 1000, 3)
    prompt = assembled.prompt
    messages = prompt.messages()
    shown = {each.layer: each for each in (*prompt.standing, *prompt.recalled)}
    layers: dict[str, dict[str, object]] = {}
    for layer in LAYERS:
        section = shown.get(layer)
        layers[layer] = {
            "on": policy.layers.on(layer),
            "tokens": assembled.tokens.get(layer, 0),
            "ms": prepared.timings.layers_ms.get(layer, 0.0),
            "lines": [] if section is None else list(section.lines),
            "made_by": [] if section is None else list(section.made_by),
        }
    layers["memories"] |= {"count": len(prompt.memories), "of": len(prepared.memories)}
    layers["working"] |= {"turns": len(prompt.history), "of": len(said)}
    layers["behaviours"] |= {"lines": list(prompt.instructions)}
    return {
        "messages": messages,
        "tokens": sum(count(each["content"]) for each in messages),
        "budget": int(policy.layers.context_tokens * policy.layers.share),
        "layers": layers,
        "left_out": list(prepared.left_out),
        "memories": [asdict(each) for each in prompt.memories],
        "timings": asdict(prepared.timings) | {"assembly_ms": assembly_ms},
    }
