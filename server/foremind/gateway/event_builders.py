"""Builds the events that report on a session. Pure."""

from collections.abc import Sequence
from datetime import UTC, datetime

from foremind import __version__
from foremind.auth.principal import Principal
from foremind.cards.card_fields import greetings_of
from foremind.domain.announcements import MemoryAnnouncement
from foremind.domain.companion import Companion
from foremind.domain.memory import LoreView, MemoryView, Recalled
from foremind.domain.policy import Policy
from foremind.domain.session_state import SessionState
from foremind.domain.turn import Outcome, SpeculativeWork, StoredTurn, Trigger, Turn
from foremind.gateway.protocol.client_messages import UserClaim
from foremind.gateway.protocol.server_events import (
    PROTOCOL,
    CompanionCard,
    ConsentStatus,
    ContextReady,
    ContextTimings,
    Limits,
    MemoryStored,
    MessageAccepted,
    ReasonView,
    SessionOpened,
    SessionUpdated,
    TurnView,
)
from foremind.lore.activation import ActiveLore
from foremind.text.languages.prompt_words import age_in_words
from foremind.typeahead.context_cache import PreparedContext


def memory_view(memory: Recalled, now: datetime, language: str) -> MemoryView:
    """Return a recalled memory with its age as of `now`, in the player's time zone and language."""
    return MemoryView(
        id=str(memory.id),
        content=memory.content,
        score=memory.score,
        significance=memory.significance,
        created_at=memory.created_at,
        speaker=memory.speaker,
        memory_type=memory.memory_type,
        age=age_in_words(memory.created_at, now, language),
        relevance=memory.relevance,
        superseded=memory.superseded,
    )


MAX_LORE_VIEWS = 100  # that one event names, of the entries that a draft activates


def session_opened(
    session_id: str,
    relationship_id: int,
    principal: Principal,
    companion: Companion,
    greeting: str,
    policy: Policy,
    consent: ConsentStatus,
    model: str,
    limits: Limits,
    state: SessionState,
    warnings: Sequence[str],
    *,
    resumed: bool,
) -> SessionOpened:
    """Return the event that a session is open, with the greeting as the player is to see it.

    Its turns are still missing.
    """
    return SessionOpened(
        protocol=PROTOCOL,
        server=__version__,
        session_id=session_id,
        relationship_id=str(relationship_id),
        user=UserClaim(principal.effective_user_id, principal.name),
        companion=CompanionCard(
            companion.slug, companion.name, greeting, len(greetings_of(companion))
        ),
        pause_ms=round(policy.pause_s * 1000),
        limits=limits,
        resumed=resumed,
        consent=consent,
        model=None if model == "offline" else model,
        turns=[],
        state=state,
        warnings=list(warnings),
    )


def lore_views(active: ActiveLore) -> list[LoreView]:
    """Return the names of active entries."""
    return [LoreView(entry.id, entry.name) for entry in active.entries[:MAX_LORE_VIEWS]]


def session_updated(
    principal: Principal, state: SessionState, event_id: str | None
) -> SessionUpdated:
    """Return the event that a `session.update` was applied."""
    expires_at = principal.expires_at
    return SessionUpdated(
        expires_at=None if expires_at is None else datetime.fromtimestamp(expires_at, UTC),
        scopes=sorted(principal.scopes),
        state=state,
        event_id=event_id,
    )


def context_ready(
    draft: str,
    context: PreparedContext,
    trigger: Trigger,
    now: datetime,
    *,
    with_memories: bool,
) -> ContextReady:
    """Return the event that a context was prepared for a draft.

    Args:
        now: the time in the player's time zone.
        with_memories: whether the client may read memories, and the names of lore.
    """
    timings = context.timings
    language = context.cache_key.language
    memories = [memory_view(memory, now, language) for memory in context.memories]
    return ContextReady(
        draft=draft,
        trigger=trigger,
        memories=memories if with_memories else [],
        timings=ContextTimings(timings.embed_ms, timings.search_ms, timings.total_ms),
        lore=lore_views(context.lore) if with_memories else [],
    )


def memory_stored(announcement: MemoryAnnouncement) -> MemoryStored:
    """Return the event that a user's message was scored, and stored as a memory or not."""
    memory_id = announcement.memory_id
    return MemoryStored(
        message_id=str(announcement.message_id),
        stored=memory_id is not None,
        memory_id=None if memory_id is None else str(memory_id),
        memory_type=announcement.memory_type,
        significance=announcement.significance,
        reasons=[ReasonView(reason.name, reason.score) for reason in announcement.reasons],
    )


def message_accepted(
    message_id: str, stored: StoredTurn, context: Outcome, ready_s: float, ahead: SpeculativeWork
) -> MessageAccepted:
    """Return the event that a message is stored and its context ready.

    Args:
        ready_s: from the arrival of the message until the model was asked.
        ahead: what was done for the reply before Enter.
    """
    return MessageAccepted(
        id=message_id,
        turn_id=str(stored.id),
        duplicate=stored.duplicate,
        context=context,
        ready_ms=round(ready_s * 1000, 3),
        ahead=ahead,
        remembered=stored.kept,
    )


def duplicate_accepted(
    message_id: str, turn_id: int, elapsed_s: float, *, kept: bool
) -> MessageAccepted:
    """Return the event that a message was or is being answered elsewhere."""
    return MessageAccepted(
        id=message_id,
        turn_id=str(turn_id),
        duplicate=True,
        context="miss",
        ready_ms=round(elapsed_s * 1000, 3),
        remembered=kept,
    )


def turn_view(turn: Turn) -> TurnView:
    """Return a stored turn."""
    return TurnView(
        turn_id=str(turn.id),
        speaker=turn.speaker,
        message_id=turn.message_id,
        status=turn.status,
        text=turn.content,
        created_at=turn.created_at,
        reply_to=turn.answers,
        index=turn.index,
        count=turn.count,
    )
