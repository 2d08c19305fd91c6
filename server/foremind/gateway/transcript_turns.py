"""Makes the turn that a resent transcript asks for, so that memory follows what stands in it."""

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field, replace
from functools import partial
from hashlib import blake2b
from itertools import groupby, takewhile
from uuid import uuid4

import msgspec

from foremind.auth.principal import Principal
from foremind.domain.companion import Companion
from foremind.domain.errors import InvalidMessage, NotFound
from foremind.domain.policy import Policy, policy_for
from foremind.domain.relationship import Relationship, relationship_id_of
from foremind.domain.settings.setting_levels import effective_settings
from foremind.domain.settings.settings import RelationshipSettings
from foremind.domain.turn import SessionTurn
from foremind.domain.turn_request import EarlierTurn, TranscriptRequest, TurnEvent, TurnRequest
from foremind.gateway.session_services import SessionServices
from foremind.gateway.single_turn import SingleTurns
from foremind.gateway.transcript import (
    Append,
    Decision,
    NewConversation,
    Regenerate,
    Replace,
    StoredMessage,
    Transcript,
    decide,
    erases,
    read_transcript,
    without_labels,
)
from foremind.llm.prompt.assembly import MAX_TURNS
from foremind.memory.erasure.eraser import Eraser, ErasureScope
from foremind.memory.exchange_changes import ExchangeOwner
from foremind.runtime.supervision import run_or_offload

_COMPARED_TURNS = 200  # the newest of a relationship, of all its sessions
_ID_PREFIX = "chat"
_NAME_BYTES = 8
_UNNAMED = "0"
_MAX_TEMPERATURE = 2.0  # of the setting


@dataclass(frozen=True, slots=True)
class _Session:
    """A stored session: its newest turns, those that were erased left out, and its newest id.

    `name` is what the client called its conversation.
    """

    last: SessionTurn
    messages: Sequence[StoredMessage]
    name: str


@dataclass(frozen=True, slots=True)
class _Match:
    """What a transcript means, and for which session; by default it begins one."""

    decision: Decision = field(default_factory=NewConversation)
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

        Whatever is stored and no longer stands in the transcript is withdrawn first, if it is
        certain to be the same conversation.

        Raises:
            InvalidMessage: the player says nothing in it.
            ForemindError: as `SingleTurns.turn`.
        """
        self._turns.admit(principal, request.companion, len(request.transcript[-1].text))
        found = await self._find(principal, request.companion)
        if request.after is not None:
            earlier = await self._until(found, request.after)
            request = replace(request, transcript=[*earlier, *request.transcript])
        transcript = await self._read(principal, request, found)
        self._turns.check_text(transcript.text(0))
        name = _name_of(request.chat)
        match = _Match()
        if found.relationship is not None:
            match = await self._match(found.relationship.id, transcript, name)
            if self._goes_on(found, match):
                await self._show_reply(principal, found, match, transcript)
            else:
                await self._withdraw(principal, found, match)
                match = _Match()
        turn = _turn_request(request, transcript, name, found.policy, match)
        async with self._turns.make(principal, turn) as events:
            yield events

    async def _until(self, found: _Circumstances, message: int) -> list[EarlierTurn]:
        """Return what was said in a session up to a message and its reply.

        Raises:
            NotFound: it is not among the newest turns of the user and the companion.
        """
        turns: Sequence[SessionTurn] = ()
        if found.relationship is not None:
            stored = await self._services.stores.turns.newest_turns(
                found.relationship.id, _COMPARED_TURNS
            )
            turns = sorted(stored, key=lambda turn: turn.id)
        asked = next((turn for turn in turns if turn.id == message), None)
        if asked is None or asked.speaker != "user":
            raise NotFound("after: expected one of the newest messages", param="after")
        session = [turn for turn in turns if turn.session_id == asked.session_id]
        following = [turn for turn in session if turn.id > message]
        replies = takewhile(lambda turn: turn.speaker != "user", following)
        said = [*(turn for turn in session if turn.id <= message), *replies]
        return [EarlierTurn(turn.speaker, turn.content) for turn in said if not turn.removed]

    async def _read(
        self, principal: Principal, request: TranscriptRequest, found: _Circumstances
    ) -> Transcript:
        """Return the conversation, without what a front end adds to the words of its speakers.

        Raises:
            InvalidMessage: the player says nothing in it, or cannot be told from the front end.
        """
        messages = request.transcript[-MAX_TURNS:]
        users = {principal.name, principal.effective_user_id}
        if found.relationship is not None:
            users.add(found.relationship.user_name)
        companions = {found.companion.name, found.companion.slug}
        chars = sum(len(said.text) for said in messages)

        def read() -> Transcript | None:
            return read_transcript(without_labels(messages, companions, users))

        transcript = await run_or_offload(chars, read)
        if transcript is None:
            raise InvalidMessage("text: expected text that is not blank", param="text")
        return transcript

    async def _find(self, principal: Principal, slug: str) -> _Circumstances:
        stores, server = self._services.stores, self._services.runtime.settings
        user_id = principal.effective_user_id
        companion = await stores.companions.find_open(slug)
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

    async def _match(self, relationship_id: int, transcript: Transcript, name: str) -> _Match:
        """Find the session that a transcript continues, the newest first."""
        turns = await self._services.stores.turns.newest_turns(relationship_id, _COMPARED_TURNS)
        chars = sum(len(turn.content) for turn in turns)
        return await run_or_offload(chars, partial(_best_match, turns, transcript, name))

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
        transcript: Transcript,
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
        shown, max_chars = transcript.prior[-1].text, self._services.runtime.settings.max_text_chars
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


def _best_match(turns: Sequence[SessionTurn], transcript: Transcript, name: str) -> _Match:
    """Return the session, the latest first, that a transcript continues. Pure.

    Without a name, something is erased only where a single session fits.
    """
    by_session = sorted(turns, key=lambda turn: (turn.active_at, turn.session_id, turn.id))
    groups = [list(group) for _, group in groupby(by_session, key=lambda turn: turn.session_id)]
    sessions = [_session(group) for group in reversed(groups)]
    matches = [
        _Match(decide(session.messages, transcript, named=name != _UNNAMED), session)
        for session in sessions
        if session.name == name
    ]
    fitting = [match for match in matches if not isinstance(match.decision, NewConversation)]
    harmless = [match for match in fitting if not erases(match.decision)]
    if name == _UNNAMED and len(fitting) > 1:
        fitting = harmless
    return fitting[0] if fitting else _Match()


def _session(turns: Sequence[SessionTurn]) -> _Session:
    names = [_id_parts(turn.message_id)[1] for turn in turns]
    stored = [_stored(turn) for turn in turns if not turn.removed]
    return _Session(turns[-1], stored, next((name for name in names if name != _UNNAMED), _UNNAMED))


def _stored(turn: SessionTurn) -> StoredMessage:
    return StoredMessage(
        turn.id,
        turn.speaker,
        turn.content,
        turn.message_id,
        turn.status == "completed",
        _id_parts(turn.message_id)[0],
    )


def _name_of(chat: str | None) -> str:
    """Return what a conversation is called in the ids of its messages."""
    return _UNNAMED if chat is None else blake2b(chat.encode(), digest_size=_NAME_BYTES).hexdigest()


def _id_parts(message_id: str | None) -> tuple[str | None, str]:
    """Return the mark of what was before a message's session, and the name of its conversation."""
    prefix, *parts = (message_id or "").split("-", 3)
    return (parts[0], parts[1]) if prefix == _ID_PREFIX and len(parts) > 1 else (None, _UNNAMED)


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
    request: TranscriptRequest, transcript: Transcript, name: str, policy: Policy, match: _Match
) -> TurnRequest:
    """Return what to send: in the session that was found, or at the beginning of a new one. Pure.

    The id says of which conversation the message is, what was before its session, and where in that
    it stands, so that of two equal requests at once one is answered.
    """
    settings, begun = _settings(request, policy), transcript.begun
    session, decision = match.session, match.decision
    if session is None or isinstance(decision, NewConversation):
        prefix = f"{_ID_PREFIX}-{transcript.mark(len(transcript.prior))}-{name}"
        return TurnRequest(
            request.companion,
            f"{prefix}-{uuid4()}",
            transcript.text(0),
            settings,
            request.remember,
            session="new",
            earlier=transcript.prior,
            begun=begun,
            attached=request.attached,
        )
    prefix = f"{_ID_PREFIX}-{transcript.mark(decision.earlier)}-{name}"
    message_id = f"{prefix}-{session.last.session_id}-{session.last.id}"
    replaces = regenerates = None
    if isinstance(decision, Regenerate):
        text = decision.message.text
        if decision.reply is None and not session.last.removed:  # its reply never came
            message_id = decision.message.message_id or message_id
        else:
            regenerates = decision.message.message_id
    else:
        text = transcript.text(decision.known)
        if isinstance(decision, Replace):
            replaces = decision.message.message_id
    return TurnRequest(
        request.companion,
        message_id,
        text,
        settings,
        request.remember,
        session=session.last.session_id,
        earlier=transcript.prior[: decision.earlier],
        replaces=replaces,
        regenerates=regenerates,
        begun=begun,
        attached=request.attached,
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
