"""Previews the prompt of a draft: what the language model would be given if it were sent now."""

from collections.abc import Sequence
from uuid import UUID
from zoneinfo import ZoneInfo

from msgspec.structs import asdict

from foremind.api.dependencies import RelationshipServices, ResolvedRelationship
from foremind.domain.policy import LayerPolicy
from foremind.domain.session_state import NO_STATE
from foremind.domain.setting_groups import LAYERS
from foremind.llm.prompt.assembly import MOST_TURNS, AssembledPrompt, assemble
from foremind.llm.prompt.layout import PastTurn
from foremind.llm.prompt.sections import state_section
from foremind.llm.prompt.token_budget import BudgetShare
from foremind.llm.prompt.token_counter import counter_for
from foremind.retrieval.embedding.priority_queue import Priority
from foremind.typeahead.context_builder import RetrievalScope
from foremind.typeahead.context_cache import CacheKey, PreparedContext
from foremind.typeahead.draft_text import normalise


async def preview_context(
    services: RelationshipServices, resolved: ResolvedRelationship, draft: str
) -> dict[str, object]:
    """Return the prompt for a draft, the layers it was assembled from, and what that cost."""
    relationship, policy = resolved.relationship, resolved.policy
    zone = ZoneInfo(relationship.time_zone)
    now = services.clock.now().astimezone(zone)
    count = counter_for(policy.layers.tokenizer)
    scope = _retrieval_scope(services, resolved, zone)
    prepared = await services.preparer.prepare(normalise(draft), lambda: scope, Priority.PAUSE)
    session = await active_session(services, resolved)
    turns, state = [], NO_STATE
    if session is not None:
        turns = await services.turns.working(relationship.id, session, MOST_TURNS)
        state = await services.states.read(relationship.id, session)
    standing = prepared.standing
    started = services.clock.monotonic()
    assembled = assemble(
        resolved.companion,
        policy.layers,
        user_name=relationship.user_name,
        standing={**standing.sections, "state": state_section(state, count)},
        recalled=prepared.recalled,
        memories=prepared.memories,
        history=[
            PastTurn(turn.speaker, turn.content, turn.id)
            for turn in turns
            if turn.id > standing.summarised_turn_id
        ],
        message=draft,
        opening=not turns,
        now=now,
    )
    assembly_ms = round((services.clock.monotonic() - started) * 1000, 3)
    prompt = assembled.prompt
    messages = prompt.messages()
    return {
        "messages": messages,
        "tokens": sum(count(message["content"]) for message in messages),
        "budget": int(policy.layers.context_tokens * policy.layers.share),
        "layers": _layers(policy.layers, prepared, assembled, len(turns)),
        "left_out": list(prepared.left_out),
        "missing": dict(prepared.missing),
        "memories": [asdict(memory) | {"id": str(memory.id)} for memory in prompt.memories],
        "timings": asdict(prepared.timings) | {"assembly_ms": assembly_ms},
    }


async def active_session(
    services: RelationshipServices, resolved: ResolvedRelationship
) -> UUID | None:
    """Return the id of the relationship's active session, if there is one."""
    since = services.clock.now() - resolved.policy.layers.session
    return await services.relationships.running_session(resolved.relationship.id, since)


def _retrieval_scope(
    services: RelationshipServices, resolved: ResolvedRelationship, zone: ZoneInfo
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
            embedding=services.embedder.manifest.fingerprint,
            limits=policy.recall,
            layers=policy.layers,
        ),
        zone,
    )


def _layers(
    policy: LayerPolicy, prepared: PreparedContext, assembled: AssembledPrompt, turn_count: int
) -> dict[str, dict[str, object]]:
    """Return what each layer contributes to the prompt, by name of the layer."""
    prompt = assembled.prompt
    layers: dict[str, dict[str, object]] = {}
    for layer in LAYERS:
        shares = [share for share in assembled.portions if share.section.layer == layer]
        layers[layer] = {
            "on": policy.on(layer),
            "tokens": assembled.tokens.get(layer, 0),
            "ms": prepared.timings.layers_ms.get(layer, 0.0),
            "lines": [line for share in shares for line in share.lines()],
            "elsewhere": sum(len(share.repeated) for share in shares),
            "made_by": _origins(shares),
        }
    layers["memories"] |= {"count": len(prompt.memories), "of": len(prepared.memories)}
    layers["working"] |= {"turns": len(prompt.history), "of": turn_count}
    layers["behaviours"] |= {"lines": list(prompt.instructions)}
    return layers


def _origins(shares: Sequence[BudgetShare]) -> list[str]:
    """Return who made the records behind the lines that are shown."""
    return sorted({maker for share in shares if share.lines() for maker in share.section.made_by})
