"""Previews the prompt of a draft: what the language model would be given if it were sent now."""

from collections.abc import Sequence
from dataclasses import replace
from datetime import datetime
from functools import partial
from uuid import UUID
from zoneinfo import ZoneInfo

from msgspec.structs import asdict

from foremind.api.dependencies import RelationshipServices, ResolvedRelationship
from foremind.domain.policy import LayerPolicy
from foremind.domain.session_state import NO_STATE
from foremind.domain.settings.setting_definitions import LAYERS
from foremind.domain.user import with_region
from foremind.llm.prompt.assembly import MAX_TURNS, AssembledPrompt
from foremind.llm.prompt.character import macro_values
from foremind.llm.prompt.layout import PastTurn
from foremind.llm.prompt.token_budget import BudgetShare
from foremind.llm.prompt.token_counter import counter_for
from foremind.lore.activation import ActiveLore
from foremind.lore.lorebook import Lorebook
from foremind.retrieval.embedding.service import Priority
from foremind.retrieval.prompt_language import prompt_language
from foremind.text.languages.language_files import ENGLISH
from foremind.typeahead.context_builder import RetrievalScope
from foremind.typeahead.context_cache import CacheKey, PreparedContext
from foremind.typeahead.draft_lore import lore_for
from foremind.typeahead.prefetch_policy import normalise
from foremind.typeahead.prompt_builder import ConversationSnapshot, build_prompt


async def preview_context(
    services: RelationshipServices, resolved: ResolvedRelationship, draft: str
) -> dict[str, object]:
    """Return the prompt for a draft, the layers it was assembled from, and what that cost."""
    relationship, policy = resolved.relationship, resolved.policy
    now = local_now(services, resolved)
    count = counter_for(policy.layers.tokenizer)
    session = await active_session(services, resolved)
    turns, state = [], NO_STATE
    if session is not None:
        turns = await services.stores.turns.session_turns(relationship.id, session, MAX_TURNS)
        state, _ = await services.stores.states.read(relationship.id, session)
    history = [PastTurn(turn.speaker, turn.content, turn.id) for turn in turns]
    prepared = await prepare_context(services, resolved, draft, history, session)
    lorebook = await services.context.lorebooks.load(resolved.companion)
    started = services.runtime.clock.monotonic()
    snapshot = ConversationSnapshot(
        relationship.user_name,
        history,
        now,
        state,
        _identifier(session),
        language=prepared.cache_key.language,
    )
    assembled = build_prompt(
        resolved.companion,
        policy.layers,
        snapshot,
        prepared.standing,
        prepared,
        draft,
        prepared.lore,
    )
    assembly_ms = round((services.runtime.clock.monotonic() - started) * 1000, 3)
    prompt = assembled.prompt
    messages = prompt.messages()
    return {
        "messages": messages,
        "tokens": sum(count(message["content"]) for message in messages),
        "budget": int(policy.layers.context_tokens * policy.layers.share),
        "layers": _layers(policy.layers, prepared, assembled, len(turns)),
        "lore": _lore(prompt.lore, lorebook),
        "left_out": list(prepared.missing_layers),
        "missing": dict(prepared.missing),
        "memories": [asdict(memory) | {"id": str(memory.id)} for memory in prompt.memories],
        "weights": {"vector": policy.recall.vector_weight, "keyword": policy.recall.keyword_weight},
        "timings": asdict(prepared.timings) | {"assembly_ms": assembly_ms},
    }


async def prepare_context(
    services: RelationshipServices,
    resolved: ResolvedRelationship,
    draft: str,
    history: Sequence[PastTurn] = (),
    session: UUID | None = None,
) -> PreparedContext:
    """Return what is recalled for a draft after some turns, under the settings in force.

    Whoever types goes first.

    Raises:
        RateLimited: the caller has too many searches in progress.
    """
    relationship = resolved.relationship
    language = await prompt_language(
        services.stores.turns, relationship.language, relationship.id, session
    )
    scope = _retrieval_scope(services, resolved, history, session, language)
    async with services.searches.turn(resolved.principal.user_id):
        return await services.context.builder.prepare(
            normalise(draft), lambda: scope, Priority.REQUEST
        )


def always_searching(resolved: ResolvedRelationship) -> ResolvedRelationship:
    """Return a relationship without its recall gate, for whoever asks for memories outright."""
    recall = replace(resolved.policy.recall, gate=False)
    return replace(resolved, policy=replace(resolved.policy, recall=recall))


def local_now(services: RelationshipServices, resolved: ResolvedRelationship) -> datetime:
    """Return the time where the player is."""
    zone = ZoneInfo(resolved.relationship.time_zone)
    return services.runtime.clock.now().astimezone(zone)


async def active_session(
    services: RelationshipServices, resolved: ResolvedRelationship
) -> UUID | None:
    """Return the id of the relationship's active session, if there is one."""
    since = services.runtime.clock.now() - resolved.policy.layers.session
    return await services.stores.relationships.latest_open_session(resolved.relationship.id, since)


def _retrieval_scope(
    services: RelationshipServices,
    resolved: ResolvedRelationship,
    history: Sequence[PastTurn],
    session: UUID | None,
    language: str,
) -> RetrievalScope:
    relationship, companion, policy = resolved.relationship, resolved.companion, resolved.policy
    return RetrievalScope(
        relationship.id,
        companion.id,
        relationship.user_name,
        CacheKey(
            memory_version=relationship.memory_version,
            layers_version=-1,
            companion_version=companion.version,
            model="",
            embedding=services.context.embedder.manifest.fingerprint,
            recall_policy=policy.recall,
            layer_policy=policy.layers,
            language=language,
        ),
        ZoneInfo(relationship.time_zone),
        lore=partial(
            lore_for,
            services.context.lorebooks,
            companion,
            policy.layers,
            macro_values(companion, relationship.user_name, _identifier(session)),
            history,
        ),
        language=with_region(relationship.language, relationship.region) or ENGLISH,
    )


def _identifier(session: UUID | None) -> str:
    return "" if session is None else str(session)


def _lore(active: ActiveLore, lorebook: Lorebook) -> dict[str, object]:
    """Return the entries in the prompt, and the ids of those that did not fit or do not work."""
    return {
        "entries": [
            {"id": entry.id, "name": entry.name, "text": entry.text, "tokens": entry.tokens}
            | asdict(entry.placement)
            for entry in active.entries
        ],
        "tokens": active.tokens,
        "left_out": list(active.left_out),
        "unusable": [asdict(problem) for problem in lorebook.problems],
        "not_supported": {field: list(ids) for field, ids in lorebook.not_supported.items()},
    }


def _layers(
    policy: LayerPolicy, prepared: PreparedContext, assembled: AssembledPrompt, turn_count: int
) -> dict[str, dict[str, object]]:
    """Return what each layer contributes to the prompt, by name of the layer."""
    prompt = assembled.prompt
    layers: dict[str, dict[str, object]] = {}
    for layer in LAYERS:
        shares = [share for share in assembled.shares if share.section.layer == layer]
        layers[layer] = {
            "on": policy.on(layer),
            "tokens": assembled.tokens.get(layer, 0),
            "ms": prepared.timings.layers_ms.get(layer, 0.0),
            "lines": [line for share in shares for line in share.lines()],
            "elsewhere": sum(len(share.repeated) for share in shares),
            "made_by": _origins(shares),
        }
    layers["memories"] |= {"count": len(prompt.memories), "of": len(prepared.memories)}
    said = [turn for turn in prompt.history if turn.id is not None]  # without a card's greeting
    layers["working"] |= {"turns": len(said), "of": turn_count}
    layers["behaviours"] |= {"lines": list(prompt.instructions)}
    return layers


def _origins(shares: Sequence[BudgetShare]) -> list[str]:
    """Return who made the records behind the lines that are shown."""
    return sorted({maker for share in shares if share.lines() for maker in share.section.made_by})
