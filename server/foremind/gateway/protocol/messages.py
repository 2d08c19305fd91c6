"""The vocabulary of the socket, version 1: every message a client may send and every event."""

from datetime import datetime
from typing import Annotated, Literal

import msgspec
from msgspec import Meta, Struct

from foremind.domain.session_state import NO_STATE, SessionState, StatePatch
from foremind.typeahead.prefetcher import Outcome, Trigger

Consented = Literal["assumed", "given", "missing"]
DoneAhead = Literal["nothing", "prefill", "reply"]

PROTOCOL = 1
#: Of a frame in which every `\\uXXXX` counts as two bytes: what a character takes, or half of one.
MAX_FRAME_BYTES = 65_536
#: Of the same frame, if it holds nothing else.
MAX_ESCAPED_BYTES = 3 * MAX_FRAME_BYTES
MAX_ID_CHARS = 128

Identifier = Annotated[str, Meta(min_length=1, max_length=MAX_ID_CHARS)]
Name = Annotated[str, Meta(min_length=1, max_length=64)]


class UserClaim(Struct, frozen=True):
    """Who a client says it is, where the server runs open."""

    id: Identifier
    name: Name


class Resume(Struct, frozen=True):
    """Where a client left off: its session, and the `seq` of the last event that it has."""

    session_id: Identifier
    seq: Annotated[int, Meta(ge=0, le=2**53 - 1)]


class SessionOpen(Struct, frozen=True, tag="session.open"):
    """The first message: who talks with whom, and the IANA time zone of the player's clock.

    `consent` says whether the user agrees to be remembered, where the companion asks for it; left
    out, what was said before holds.
    """

    companion: Identifier
    token: str | None = None
    user: UserClaim | None = None
    time_zone: Identifier | None = None
    consent: bool | None = None
    resume: Resume | None = None
    event_id: Identifier | None = None


class SessionUpdate(Struct, frozen=True, tag="session.update"):
    """A fresh token for the running session, what goes on in it, or both.

    The token is of the same user; what it allows holds at once. The state is a merge patch: what it
    does not name stays, null takes away. It holds for every message that is sent after it, and is
    cleared when the session is over.
    """

    token: str | None = None
    state: StatePatch | None = None
    event_id: Identifier | None = None


class DraftUpdate(Struct, frozen=True, tag="draft.update"):
    """The whole draft as it now stands."""

    text: str
    event_id: Identifier | None = None


class DraftClear(Struct, frozen=True, tag="draft.clear"):
    """The draft was given up."""

    event_id: Identifier | None = None


class MessageSend(Struct, frozen=True, tag="message.send"):
    """Enter. The same `id` again is never stored or answered twice.

    `settings` hold for this turn only, over those of the relationship. With `remember` false it is
    answered and then let go: nothing is made of it, and it is erased when its session is over.
    """

    id: Identifier
    text: str
    settings: dict[str, msgspec.Raw] | None = None
    remember: bool = True
    event_id: Identifier | None = None


class ResponseCancel(Struct, frozen=True, tag="response.cancel"):
    """Stop the reply."""

    response_id: Identifier
    event_id: Identifier | None = None


ClientMessage = (
    SessionOpen | SessionUpdate | DraftUpdate | DraftClear | MessageSend | ResponseCancel
)


class CompanionCard(Struct, frozen=True):
    """A companion as players see it."""

    slug: str
    name: str
    greeting: str


class Limits(Struct, frozen=True):
    """What a client may send; rates are of one connection, and twice as much of one user.

    A faster client is slowed down, and closed with 4429 where it goes on. A session that lost its
    connection can be resumed for `resume_s` seconds, if no more than `replay_events` were missed.
    """

    max_frame_bytes: int
    max_text_chars: int
    max_id_chars: int
    max_waiting_messages: int
    drafts_per_s: float
    sends_per_s: float
    http_per_s: float
    max_sessions_per_user: int
    resume_s: float
    replay_events: int
    outbound_bytes: int


class TurnView(Struct, frozen=True):
    """One turn of the conversation so far."""

    turn_id: str
    speaker: Literal["user", "companion"]
    message_id: str | None
    status: str
    text: str
    created_at: datetime


class MemoryView(Struct, frozen=True):
    """A recalled memory: `score` orders them, `relevance` is the 70/30 rule alone."""

    id: str
    content: str
    score: float
    significance: float
    created_at: datetime
    speaker: Literal["user", "companion"]
    memory_type: str
    age: str
    relevance: float
    superseded: bool


class ReasonView(Struct, frozen=True):
    """One reason why something matters, and what it alone is worth, 0 to 1."""

    name: str
    score: float


class ContextTimings(Struct, frozen=True):
    """Milliseconds that preparing a context took."""

    embed_ms: float
    search_ms: float
    total_ms: float


class ResponseTimings(Struct, frozen=True):
    """Milliseconds from the arrival of `message.send`; None where there was no first token."""

    first_token_ms: float | None
    total_ms: float


class ErrorBody(Struct, frozen=True):
    """What went wrong; `param` names the field, `event_id` repeats the client's.

    `message_id` is that of the `message.send` which it is about, if it is about one.
    """

    type: str
    code: str
    message: str
    param: str | None
    event_id: str | None
    message_id: str | None
    retryable: bool


class Event(Struct, tag_field="type"):
    """Base of what the server sends; `seq` rises by one in a session."""

    seq: int = 0


class SessionOpened(Event, tag="session.opened", kw_only=True):
    """The session is open. `model` is None where the offline voice answers.

    `resumed`: what was missed follows, from the number after `seq` on, which repeats the client's.
    Else `turns` are the last of the conversation.

    `consent` is that to be remembered: `missing` where the companion wants it and the user has not
    given it; what is said is then answered, and erased when the session is over.

    `state` is what goes on in the session, as it was told before.

    `relationship_id` is what `/v1/relationships` knows this user and companion by. `protocol` is
    the version of this vocabulary, `server` that of the server.
    """

    protocol: int
    server: str

    session_id: str
    relationship_id: str
    user: UserClaim
    companion: CompanionCard
    pause_ms: int
    limits: Limits
    resumed: bool
    consent: Consented
    model: str | None
    turns: list[TurnView]
    state: SessionState = NO_STATE


class SessionUpdated(Event, tag="session.updated", kw_only=True):
    """What `session.update` asked for holds: the token until it expires, and the state.

    `expires_at` is None where the server runs open; `event_id` repeats the client's.
    """

    expires_at: datetime | None
    scopes: list[str]
    state: SessionState = NO_STATE
    event_id: str | None = None


class ContextReady(Event, tag="context.ready", kw_only=True):
    """A context is prepared for `draft`."""

    draft: str
    trigger: Trigger
    memories: list[MemoryView]
    timings: ContextTimings


class MessageAccepted(Event, tag="message.accepted", kw_only=True):
    """The message is durably stored; `ready_ms` from its arrival to the model request.

    `ahead` is what the language model had done for it before Enter; `remembered` is False where
    nothing is made of it and it is erased when its session is over.
    """

    id: str
    turn_id: str
    duplicate: bool
    context: Outcome
    ready_ms: float
    ahead: DoneAhead = "nothing"
    remembered: bool = True


class ResponseCreated(Event, tag="response.created", kw_only=True):
    """A reply begins."""

    response_id: str
    message_id: str


class ResponseDelta(Event, tag="response.output_text.delta", kw_only=True):
    """A piece of the reply."""

    response_id: str
    delta: str


class ResponseDone(Event, tag="response.done", kw_only=True):
    """The reply is over; `error` says why where it `failed`."""

    response_id: str
    status: Literal["completed", "cancelled", "failed"]
    text: str
    timings: ResponseTimings
    error: ErrorBody | None = None


class MemoryStored(Event, tag="memory.stored", kw_only=True):
    """The user's message was judged, for `reasons`; `memory_id` and `memory_type` if kept."""

    message_id: str
    stored: bool
    memory_id: str | None
    memory_type: str | None
    significance: float
    reasons: list[ReasonView]


class SummaryAppliedEvent(Event, tag="summary.applied", kw_only=True):
    """The oldest turns are summarised: how many, in how many lines, by a model or by rules."""

    messages: int
    lines: int
    made_by: str


class BehaviourDone(Event, tag="behaviour.done", kw_only=True):
    """A behaviour ran after a reply; `text` is empty where no language model is configured."""

    message_id: str
    name: str
    text: str


class TurnStored(Event, tag="turn.stored", kw_only=True):
    """A reply of this session that was heard over another connection, or by nobody."""

    turn: TurnView


class ErrorEvent(Event, tag="error", kw_only=True):
    """Something a client sent could not be done; the connection stays open."""

    error: ErrorBody


_encoder = msgspec.json.Encoder()
_contexts = msgspec.json.Decoder(ContextReady)
_CONTEXT = b'{"type":"context.ready"'


def encode(event: Event) -> bytes:
    """Return the JSON of an event."""
    return _encoder.encode(event)


def without_memories(frame: bytes) -> bytes:
    """Return the JSON of an event as one reads it who may see no memories."""
    if not frame.startswith(_CONTEXT):
        return frame
    event = _contexts.decode(frame)
    event.memories = []
    return encode(event)
