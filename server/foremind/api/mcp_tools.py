"""The tools of the MCP server: what each takes, does and returns. Knows nothing of the protocol."""

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, replace
from typing import Annotated, Any
from uuid import uuid4

import msgspec
from msgspec import Meta

from foremind.api.context_preview import (
    always_searching,
    local_now,
    prepare_context,
    preview_context,
)
from foremind.api.dependencies import (
    MAX_ID,
    RelationshipServices,
    ResolvedRelationship,
    audit_foreign_access,
    parse_number,
    with_settings,
)
from foremind.api.json_bodies import decode_json
from foremind.api.memory_routes import correct_memory, erase_memories, mention_of, text_of
from foremind.auth.authority import Authority, require_scope
from foremind.auth.principal import Principal, Scope
from foremind.domain.errors import InvalidMessage, NotAllowed, NotFound, StorageUnavailable
from foremind.domain.policy import policy_for
from foremind.domain.settings.setting_levels import effective_settings
from foremind.domain.storable_text import check_storable
from foremind.gateway.event_builders import memory_view
from foremind.memory.erasure.eraser import ErasureScope
from foremind.memory.remember import Rememberer
from foremind.storage.database import queue_connections_as

_UTC = "UTC"
_MAX_UNASKED_TURNS = 10  # that are forgotten without a look at what would go

Companion = Annotated[
    str, Meta(min_length=1, max_length=128, description="The slug of the companion.")
]
User = Annotated[
    str,
    Meta(
        min_length=1,
        max_length=128,
        description="The id of the player; may be left out where the token names one.",
    ),
]
MessageId = Annotated[
    str,
    Meta(
        min_length=1,
        max_length=128,
        description="An id of the caller's: the same one again stores nothing twice.",
    ),
]


class Arguments(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Whose memory a tool is about."""

    companion: Companion
    user: User | None = None


class RecallArguments(Arguments, frozen=True, kw_only=True):
    """What to recall."""

    query: Annotated[str, Meta(description="A question, a statement or a few words.")]


class RememberArguments(Arguments, frozen=True, kw_only=True):
    """What to remember."""

    text: Annotated[str, Meta(description="In the words of the player: 'My sister is Mira.'")]
    id: MessageId | None = None


class CorrectArguments(Arguments, frozen=True, kw_only=True):
    """A memory and its new text."""

    memory: Annotated[str, Meta(description="The id of the memory, as `recall` returned it.")]
    content: Annotated[str, Meta(description="What is true instead.")]


class ForgetArguments(Arguments, frozen=True, kw_only=True):
    """What to forget: a memory, or all that contains some words."""

    memory: Annotated[str, Meta(description="The id of a memory.")] | None = None
    about: Annotated[str, Meta(description="Forget all that contains these words.")] | None = None
    dry_run: (
        Annotated[
            bool,
            Meta(
                description="Whether to erase nothing, and only count what would go. Left out, it "
                f"is true where more than {_MAX_UNASKED_TURNS} turns would go."
            ),
        ]
        | None
    ) = None


class ContextArguments(Arguments, frozen=True, kw_only=True):
    """A message that has not been sent."""

    draft: Annotated[str, Meta(description="The text of the draft.")]


#: Charges a message of so many characters to the rate of a user; raises RateLimited.
ChargeMessage = Callable[[str, int], None]


class ToolServices(msgspec.Struct, frozen=True):
    """The services of the tools."""

    relationships: RelationshipServices
    authority: Authority
    rememberer: Rememberer
    charge: ChargeMessage


@dataclass(frozen=True, slots=True)
class MemoryTool:
    """A tool.

    Attributes:
        arguments: the shape of its arguments.
        run: does what it is for, and returns what can be encoded as a JSON object.
    """

    name: str
    description: str
    arguments: type[Arguments]
    scope: Scope
    run: Callable[[ToolServices, Principal, Any], Awaitable[object]]
    destructive: bool = False

    @property
    def read_only(self) -> bool:
        """Whether it changes nothing."""
        return self.scope == "memory:read"

    @property
    def input_schema(self) -> dict[str, Any]:
        """The JSON Schema of its arguments, an object."""
        _, components = msgspec.json.schema_components([self.arguments])
        schema: dict[str, Any] = components[self.arguments.__name__]
        return schema

    async def call(
        self,
        services: ToolServices,
        act_for: Callable[[str | None], Principal],
        arguments: Mapping[str, Any] | None,
    ) -> object:
        """Run the tool for whoever may act for the user in `arguments`; return its result.

        Args:
            act_for: returns the principal that acts for a user, or refuses.

        Raises:
            ForemindError: naming the argument that is wrong, or what is missing.
        """
        raw = msgspec.json.encode(arguments or {})
        parsed: Arguments = await decode_json(raw, self.arguments, check_storable)
        principal = act_for(parsed.user)
        require_scope(principal, self.scope)
        if not principal.may_open(parsed.companion):
            raise NotAllowed(
                "companion: the token does not allow this companion", param="companion"
            )
        queue_connections_as(principal.user_id)
        return await self.run(services, principal, parsed)


async def _recall(
    services: ToolServices, principal: Principal, asked: RecallArguments
) -> dict[str, object]:
    query = text_of(services.relationships, asked.query, "query")
    resolved = always_searching(await _resolve(services, principal, asked, "read"))
    prepared = await prepare_context(services.relationships, resolved, query)
    if "memories" in prepared.missing:
        raise StorageUnavailable("The memories could not be searched in time; try again.")
    now = local_now(services.relationships, resolved)
    language = prepared.cache_key.language
    return {"memories": [memory_view(memory, now, language) for memory in prepared.memories]}


async def _remember(
    services: ToolServices, principal: Principal, asked: RememberArguments
) -> dict[str, object]:
    views = services.relationships
    text = text_of(views, asked.text, "text")
    companion = await views.stores.companions.find_open(asked.companion)
    user_id = principal.effective_user_id
    services.charge(user_id, len(text))
    known = await views.stores.users.get(user_id)
    if known is not None and not principal.states_name:
        principal = replace(principal, name=known.name)
    overrides = await views.stores.relationships.settings_with_companion(user_id, companion.id)
    server = views.runtime.settings
    policy = policy_for(effective_settings(companion.settings, overrides, server), server)
    session = await views.stores.turns.open_session(
        user_id,
        principal.name,
        companion.id,
        views.runtime.clock.now(),
        _UTC if known is None else known.time_zone,
        policy.layers.session,
    )
    stored = await services.rememberer.remember(
        session,
        asked.id or uuid4().hex,
        text,
        needs_consent=policy.consent != "assumed",
        token=await services.authority.token_identity(principal),
    )
    await audit_foreign_access(views, principal, session.relationship_id, "change", "memories")
    views.background_worker.wake(session.relationship_id)
    return {
        "memory": str(stored.memory_id),
        "significance": stored.significance,
        "reasons": stored.reasons,
    }


async def _correct(
    services: ToolServices, principal: Principal, asked: CorrectArguments
) -> dict[str, object]:
    memory_id = parse_number(asked.memory, "memory", 1, MAX_ID)
    resolved = await _resolve(services, principal, asked, "change")
    await correct_memory(services.relationships, resolved, memory_id, asked.content)
    return {"memory": asked.memory, "content": asked.content.strip()}


async def _forget(services: ToolServices, principal: Principal, asked: ForgetArguments) -> object:
    if (asked.memory is None) == (asked.about is None):  # never everything
        raise InvalidMessage("memory: expected either memory or about", param="memory")
    memories = () if asked.memory is None else (parse_number(asked.memory, "memory", 1, MAX_ID),)
    resolved = await _resolve(services, principal, asked, "change")
    about = (
        None if asked.about is None else mention_of(services.relationships, resolved, asked.about)
    )
    scope = ErasureScope(memories=memories, about=about)
    if asked.dry_run is not False:
        counted = await erase_memories(services.relationships, resolved, scope, dry_run=True)
        if asked.dry_run or counted.turns > _MAX_UNASKED_TURNS:
            return counted
    return await erase_memories(services.relationships, resolved, scope, dry_run=False)


async def _context(
    services: ToolServices, principal: Principal, asked: ContextArguments
) -> dict[str, object]:
    text_of(services.relationships, asked.draft, "draft")
    resolved = await _resolve(services, principal, asked, "read")
    return await preview_context(services.relationships, resolved, asked.draft)


async def _resolve(
    services: ToolServices, principal: Principal, asked: Arguments, action: str
) -> ResolvedRelationship:
    """Return the relationship of the user with a companion; note in its trail who is not the user.

    Raises:
        NotFound: nothing has been said with this companion.
    """
    views = services.relationships
    for relationship in await views.stores.relationships.relationships_of_user(
        principal.effective_user_id
    ):
        if relationship.companion == asked.companion:
            await audit_foreign_access(views, principal, relationship.id, action, "memories")
            return await with_settings(views, principal, relationship)
    raise NotFound("companion: expected one with whom this user has talked", param="companion")


TOOLS = (
    MemoryTool(
        "recall",
        "Recall what a player has told a companion. Returns memories, best first, each with its "
        "id, score, date and age in words; `superseded` ones no longer hold.",
        RecallArguments,
        "memory:read",
        _recall,
    ),
    MemoryTool(
        "remember",
        "Remember a statement about a player, in the player's words. Returns the id of the memory; "
        "what repeats a memory becomes part of it.",
        RememberArguments,
        "memory:write",
        _remember,
    ),
    MemoryTool(
        "correct",
        "Replace the text of a memory, wherever it was used.",
        CorrectArguments,
        "memory:write",
        _correct,
        destructive=True,
    ),
    MemoryTool(
        "forget",
        "Forget a memory, or all that contains some words, for good, with everything that was "
        "derived from it. Returns a receipt that counts what was removed, layer by layer. Where "
        f"more than {_MAX_UNASKED_TURNS} turns would go, it removes nothing and returns the "
        "receipt of a dry run: ask the player, then call it again with `dry_run` false.",
        ForgetArguments,
        "memory:write",
        _forget,
        destructive=True,
    ),
    MemoryTool(
        "context",
        "Show word for word the prompt that the companion's language model would be given if the "
        "player sent a draft now, and what each layer contributes to it. Sends nothing.",
        ContextArguments,
        "memory:read",
        _context,
    ),
)
