"""Makes the turn that a resent transcript asks for, so that memory follows what stands in it."""

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from functools import partial
from itertools import groupby
from uuid import uuid4

import msgspec

from foremind.auth.principal import Principal
from foremind.domain.companion import Companion, RelationshipSettings
from foremind.domain.errors import InvalidMessage, NotFound
from foremind.domain.policy import Policy, policy_for
from foremind.domain.relationship import Relationship, relationship_id_of
from foremind.domain.settings.setting_levels import effective_settings
from foremind.domain.turn import SessionTurn
from foremind.domain.turn_request import EarlierTurn, TranscriptRequest, TurnEvent, TurnRequest
from foremind.gateway.handshake import find_open_companion
from foremind.gateway.session_services import SessionServices
from foremind.gateway.single_turn import SingleTurns
from foremind.gateway.transcript import (
    Append,
    Decision,
    NewConversation,
    Regenerate,
    Replace,
    StoredMessage,
    decide,
)
from foremind.llm.prompt.assembly import MAX_TURNS
from foremind.memory.erase import Eraser
from foremind.memory.erasure_request import ErasureScope
from foremind.memory.exchange_changes import ExchangeOwner
from foremind.runtime.offload import run_or_offload

_COMPARED_TURNS = 200  # the newest of a relationship, of all its sessions
_ID_PREFIX = "chat"
_MAX_TEMPERATURE = 2.0  # of the setting


@dataclass(frozen=True, slots=True)
class _Session:
    """A stored session: its newest turns, those that were erased left out, and its newest id."""

    last: SessionTurn
    messages: Sequence[StoredMessage]


@dataclass(frozen=True, slots=True)
class _Match:
    """What a transcript means, and for which session."""

    decision: Decision
    session: _Session | None = None


@dataclass(frozen=True, slots=True)
class _Circumstances:
    """What is in force for a user and a companion, and their relationship if there is one."""

    companion: Companion
    policy: Policy
    relationship: Relationship | None


class TranscriptTurns:
    """Makes turns for clients that resend the whole conversation with each message.

    Args:
        eraser: withdraws what no longer stands in a transcript.
    """

    def __init__(self, services: SessionServices, turns: SingleTurns, eraser: Eraser) -> None:
        self._services = services
        self._turns = turns
        self._eraser = eraser

    @asynccontextmanager
    async def turn(
        self, principal: Principal, request: TranscriptRequest
    ) -> AsyncIterator[AsyncIterator[TurnEvent]]:
        """Answer the last message of a transcript, and yield what comes of it.

        Whatever is stored and no longer stands in the transcript is withdrawn first.

        Raises:
            ForemindError: as `SingleTurns.turn`.
        """
        transcript = request.transcript[-MAX_TURNS:]
        self._turns.admit(principal, request.companion, transcript[-1].text)
        found = await self._find(principal, request.companion)
        match = _Match(NewConversation())
        if found.relationship is not None:
            match = await self._match(found.relationship.id, transcript)
            if self._goes_on(found, match):
                await self._show_reply(principal, found, match, transcript)
            else:
                await self._withdraw(principal, found, match)
                match = _Match(NewConversation())
        turn = _turn_request(request, transcript, found.policy, match)
        async with self._turns.make(principal, turn) as events:
            yield events

    async def _find(self, principal: Principal, slug: str) -> _Circumstances:
        stores, server = self._services.stores, self._services.runtime.settings
        user_id = principal.effective_user_id
        companion = await find_open_companion(stores.companions, slug)
        user = await stores.users.get(user_id)
        relationship: Relationship | None = None
        if user is not None:
            with suppress(NotFound):
                relationship = await stores.relationships.find(
                    relationship_id_of(user.id, companion.id), user_id
                )
        own = RelationshipSettings() if relationship is None else relationship.settings
        settings = effective_settings(companion.settings, own, server)
        return _Circumstances(companion, policy_for(settings, server), relationship)

    async def _match(self, relationship_id: int, transcript: Sequence[EarlierTurn]) -> _Match:
        """Find the session that a transcript continues, the newest first."""
        turns = await self._services.stores.turns.newest_turns(relationship_id, _COMPARED_TURNS)
        chars = sum(len(turn.content) for turn in turns) + sum(
            len(said.text) for said in transcript
        )
        return await run_or_offload(chars, partial(_best_match, turns, transcript))

    def _goes_on(self, found: _Circumstances, match: _Match) -> bool:
        """Return whether the session that was found is not over yet."""
        if match.session is None:
            return False
        idle = self._services.runtime.clock.now() - match.session.last.active_at
        return idle < found.policy.layers.session

    async def _withdraw(self, principal: Principal, found: _Circumstances, match: _Match) -> None:
        """Erase what no longer stands of a session that is over.

        Such a session is not continued: what is said anew is said in the next one.
        """
        turns, relationship = _withdrawn(match), found.relationship
        if not turns or relationship is None:
            return
        await self._eraser.erase(
            relationship.id,
            (relationship.user_name, found.companion.name),
            ErasureScope(turns=turns, not_kept=True),
            actor=principal.user_id,
            read_in_exchange=found.policy.storage.read_in_exchange,
        )
        self._services.after_reply.background_worker.wake(relationship.id)

    async def _show_reply(
        self,
        principal: Principal,
        found: _Circumstances,
        match: _Match,
        transcript: Sequence[EarlierTurn],
    ) -> None:
        """Let the reply stand that the player chose or wrote, if another one is stored.

        Raises:
            InvalidMessage: it is too long.
        """
        relationship, session, decision = found.relationship, match.session, match.decision
        if relationship is None or session is None or not isinstance(decision, Append):
            return
        if decision.former_reply is None or decision.message_id is None:
            return
        shown, max_chars = transcript[-2].text, self._services.runtime.settings.max_text_chars
        if len(shown) > max_chars:
            raise InvalidMessage(
                f"text: expected a reply of at most {max_chars} characters", param="text"
            )
        opened = await self._services.stores.turns.open_session(
            relationship.user_id,
            relationship.user_name,
            found.companion.id,
            self._services.runtime.clock.now(),
            relationship.time_zone,
            session_id=session.last.session_id,
        )
        names = (relationship.user_name, found.companion.name)
        owner = ExchangeOwner(
            opened,
            names,
            principal.user_id,
            found.policy.storage.read_in_exchange,
            found.policy.consent != "assumed",
        )
        await self._services.exchanges.show(owner, decision.message_id, shown, ingested=True)
        self._services.after_reply.background_worker.wake(opened.relationship_id)


def _best_match(turns: Sequence[SessionTurn], transcript: Sequence[EarlierTurn]) -> _Match:
    """Return the first session, the latest first, that a transcript continues. Pure."""
    by_session = sorted(turns, key=lambda turn: (turn.active_at, turn.session_id, turn.id))
    sessions = [list(group) for _, group in groupby(by_session, key=lambda turn: turn.session_id)]
    for group in reversed(sessions):
        session = _Session(group[-1], [_stored(turn) for turn in group if not turn.removed])
        decision = decide(session.messages, transcript)
        if not isinstance(decision, NewConversation):
            return _Match(decision, session)
    return _Match(NewConversation())


def _stored(turn: SessionTurn) -> StoredMessage:
    prefix, _, rest = (turn.message_id or "").partition("-")
    earlier = rest.partition("-")[0] if prefix == _ID_PREFIX else "0"
    return StoredMessage(
        turn.id,
        turn.speaker,
        turn.content,
        turn.message_id,
        turn.status == "completed",
        int(earlier) if earlier.isdecimal() else 0,
    )


def _withdrawn(match: _Match) -> tuple[int, ...]:
    """Return the turns of a session that is over which no longer stand. Pure."""
    decision = match.decision
    if isinstance(decision, Append):
        return () if decision.former_reply is None else (decision.former_reply.turn_id,)
    if isinstance(decision, Regenerate | Replace):
        turns = (decision.message, decision.reply)
        return tuple(turn.turn_id for turn in turns if turn is not None)
    return ()


def _turn_request(
    request: TranscriptRequest, transcript: Sequence[EarlierTurn], policy: Policy, match: _Match
) -> TurnRequest:
    """Return what to send: in the session that was found, or at the beginning of a new one. Pure.

    The id says where in which session the message stands, so that of two equal requests at once
    one is answered, and how much of the transcript was before what its session has.
    """
    *prior, last = transcript
    settings = _settings(request, policy)
    session, decision = match.session, match.decision
    if session is None or isinstance(decision, NewConversation):
        message_id = f"{_ID_PREFIX}-{len(prior)}-{uuid4()}"
        return TurnRequest(
            request.companion, message_id, last.text, settings, session="new", earlier=prior
        )
    message_id = f"{_ID_PREFIX}-{decision.earlier}-{session.last.session_id}-{session.last.id}"
    text, replaces, regenerates = last.text, None, None
    if isinstance(decision, Regenerate) and decision.reply is None:  # its reply never came
        message_id, text = decision.message.message_id or message_id, decision.message.text
    elif isinstance(decision, Regenerate):
        regenerates = decision.message.message_id
    elif isinstance(decision, Replace):
        replaces = decision.message.message_id
    return TurnRequest(
        request.companion,
        message_id,
        text,
        settings,
        session=session.last.session_id,
        earlier=prior[: decision.earlier],
        replaces=replaces,
        regenerates=regenerates,
    )


def _settings(request: TranscriptRequest, policy: Policy) -> dict[str, msgspec.Raw] | None:
    """Return the settings of the turn, no further than those in force allow. Pure."""
    settings: dict[str, float] = {}
    if request.temperature is not None:
        settings["llm_temperature"] = min(max(request.temperature, 0.0), _MAX_TEMPERATURE)
    if request.max_tokens is not None:
        most = policy.chat_model.max_tokens
        settings["llm_max_tokens"] = max(1, min(request.max_tokens, most))
    encoded = {name: msgspec.Raw(msgspec.json.encode(value)) for name, value in settings.items()}
    return encoded or None
