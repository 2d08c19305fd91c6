"""What a user may see of a relationship: its memories, its settings, the context of a draft."""

from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import Protocol
from zoneinfo import ZoneInfo

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Route

from foremind.clock import Clock
from foremind.companions import Companion, origins_of, policy_for
from foremind.embedding.queue import Priority
from foremind.errors import InvalidMessage, NotAllowed
from foremind.generation.prompt import PastTurn, estimate_tokens, prompt_for
from foremind.http.answers import answered, json_response
from foremind.memory.forget import Forgetter
from foremind.settings import Settings
from foremind.storage.companions import CompanionStore
from foremind.storage.relationships import Relationship, RelationshipStore
from foremind.storage.turns import TurnStore
from foremind.typeahead.draft import normalise
from foremind.typeahead.prepare import Preparer, Subject
from foremind.typeahead.prepared import Validity

_PAGE = 100
_MOST = 1000


class Caller(Protocol):
    """Who asks."""

    @property
    def user_id(self) -> str:
        """Whose relationships are shown."""

    def may_open(self, slug: str) -> bool:
        """Tell whether this caller may talk with a companion."""


@dataclass(frozen=True, slots=True)
class RelationshipServices:
    """What these routes need; `caller` names who asks, or raises NotAuthenticated."""

    caller: Callable[[Request], Caller]
    settings: Settings
    clock: Clock
    companions: CompanionStore
    relationships: RelationshipStore
    turns: TurnStore
    preparer: Preparer
    forgetter: Forgetter
    embedding: str


def relationship_routes(services: RelationshipServices) -> list[BaseRoute]:
    """Return the routes below `/v1/relationships`."""

    async def found(request: Request) -> tuple[Relationship, Companion]:
        caller = services.caller(request)
        number = _number(request.path_params["id"], "id", 0, 2**62)
        relationship = await services.relationships.find(number, caller.user_id)
        if not caller.may_open(relationship.companion):
            raise NotAllowed("id: the token does not allow this companion", param="id")
        return relationship, await services.companions.find(relationship.companion)

    async def listed(request: Request) -> Response:
        caller = services.caller(request)
        return json_response(
            [
                {"id": each.id, "companion": each.companion, "memories": each.memory_count}
                for each in await services.relationships.of_user(caller.user_id)
                if caller.may_open(each.companion)
            ]
        )

    async def memories(request: Request) -> Response:
        relationship, _ = await found(request)
        after = _number(request.query_params.get("after", "0"), "after", 0, 2**62)
        limit = _number(request.query_params.get("limit", str(_PAGE)), "limit", 1, _MOST)
        page = await services.relationships.memories(relationship.id, after, limit)
        following = page[-1].id if len(page) == limit else None
        return json_response({"memories": page, "next_after": following})

    async def forgotten(request: Request) -> Response:
        relationship, companion = await found(request)
        one = request.path_params.get("memory")
        receipt = await services.forgetter.forget(
            relationship.id,
            (relationship.user_name, companion.name),
            None if one is None else _number(one, "memory", 1, 2**62),
            read_in_exchange=policy_for(
                companion.settings, services.settings
            ).storage.read_in_exchange,
        )
        return json_response(receipt)

    async def config(request: Request) -> Response:
        _, companion = await found(request)
        return json_response(origins_of(companion.settings, services.settings))

    async def context(request: Request) -> Response:
        relationship, companion = await found(request)
        draft = request.query_params.get("draft", "")
        if not draft.strip() or len(draft) > services.settings.max_text_chars:
            most = services.settings.max_text_chars
            raise InvalidMessage(
                f"draft: expected text of at most {most} characters", param="draft"
            )
        return json_response(await _context(services, relationship, companion, draft))

    return [
        Route("/v1/relationships", answered(listed)),
        Route("/v1/relationships/{id}/memories", answered(memories)),
        Route("/v1/relationships/{id}/memories", answered(forgotten), methods=["DELETE"]),
        Route("/v1/relationships/{id}/memories/{memory}", answered(forgotten), methods=["DELETE"]),
        Route("/v1/relationships/{id}/config", answered(config)),
        Route("/v1/relationships/{id}/context", answered(context)),
    ]


async def _context(
    services: RelationshipServices, relationship: Relationship, companion: Companion, draft: str
) -> dict[str, object]:
    """Return exactly what the language model would be given for a draft, and what it costs."""
    policy = policy_for(companion.settings, services.settings)
    zone = ZoneInfo(relationship.time_zone)
    subject = Subject(
        relationship.id,
        Validity(
            memory_version=relationship.memory_version,
            companion_version=companion.version,
            model="",
            embedding=services.embedding,
            limits=policy.recall,
        ),
        zone,
    )
    prepared = await services.preparer.prepare(normalise(draft), lambda: subject, Priority.PAUSE)
    history = await services.turns.recent(relationship.id, policy.history_turns)
    prompt = prompt_for(
        companion,
        policy,
        user_name=relationship.user_name,
        memories=prepared.memories,
        history=[PastTurn(turn.speaker, turn.content) for turn in history],
        message=draft,
        now=services.clock.now().astimezone(zone),
    )
    messages = prompt.messages()
    return {
        "messages": messages,
        "tokens": sum(estimate_tokens(each["content"]) for each in messages),
        "layers": {
            "history": {"turns": len(prompt.history), "of": len(history)},
            "memories": {"count": len(prompt.memories), "of": len(prepared.memories)},
        },
        "memories": [asdict(each) for each in prompt.memories],
        "timings": asdict(prepared.timings),
    }


def _number(text: str, name: str, least: int, most: int) -> int:
    if not text.isascii() or not text.isdigit() or not least <= int(text) <= most:
        raise InvalidMessage(f"{name}: expected a number from {least} to {most}", param=name)
    return int(text)
