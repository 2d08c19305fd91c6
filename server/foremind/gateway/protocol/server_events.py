"""Wire protocol version 1: every event of the server."""

from datetime import datetime
from typing import Any, Literal

import msgspec
from msgspec import UNSET, Struct, UnsetType

from foremind.domain.memory import LoreView, MemoryView
from foremind.domain.session_state import NO_STATE, SessionState
from foremind.domain.turn import Outcome, SpeculativeWork, Trigger
from foremind.gateway.protocol.client_messages import UserClaim

ConsentStatus = Literal["assumed", "given", "missing"]

PROTOCOL = 1


class CompanionCard(Struct, frozen=True):
    """The public description of a companion; `greetings` is how many a session can choose from."""

    slug: str
    name: str
    greeting: str
    greetings: int = 1


class Limits(Struct, frozen=True):
    """Limits for clients; rates are per connection, a user over all connections has twice as much.

    A client that exceeds a rate is slowed down, and closed with 4429 if it persists. A session that
    lost its connection can be resumed for `resume_s` seconds if it missed at most `replay_events`.
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
    """One past turn of the conversation.

    Of a reply, `reply_to` is the id of the message that it answers, if that is stored; it is number
    `index`, from 0, of the `count` replies that can be chosen among.
    """

    turn_id: str
    speaker: Literal["user", "companion"]
    message_id: str | None
    status: str
    text: str
    created_at: datetime
    reply_to: str | None = None
    index: int = 0
    count: int = 1


class ReasonView(Struct, frozen=True):
    """One reason for a significance score, and its own score from 0 to 1."""

    name: str
    score: float


class ContextTimings(Struct, frozen=True):
    """Time taken to build a context, in milliseconds."""

    embed_ms: float
    search_ms: float
    total_ms: float


class ResponseTimings(Struct, frozen=True):
    """Milliseconds since the message arrived; null if there was no first token."""

    first_token_ms: float | None
    total_ms: float


class ErrorBody(Struct, frozen=True):
    """An error; `param` names the field, `event_id` echoes the client's.

    `message_id` is the id of the message that the error refers to, if any. If `retryable`, the same
    may succeed later: in `retry_after_s` seconds, if that is known.
    """

    type: str
    code: str
    message: str
    param: str | None
    event_id: str | None
    message_id: str | None
    retryable: bool
    retry_after_s: float | None = None


class Event(Struct, tag_field="type"):
    """Base of all server events; `seq` increases by one with each event of a session."""

    seq: int = 0


class SessionOpened(Event, tag="session.opened", kw_only=True):
    """The session is open. `model` is null when the offline model answers.

    If `resumed`, `seq` echoes the client's and the missed events follow; otherwise `turns` are the
    newest of the conversation.

    `consent` is the consent to be remembered: `missing` if the companion requires it and the user
    has not given it; messages are then answered, and erased when the session ends.

    `state` is the current session state.

    `relationship_id` identifies this user and companion in `/v1/relationships`. `protocol` is the
    protocol version, `server` the server version. `warnings` name the hints of `session.open` that
    were not understood, and what was expected. `session_id` is of this window alone.
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
    consent: ConsentStatus
    model: str | None
    turns: list[TurnView]
    state: SessionState = NO_STATE
    warnings: list[str] = []


class SessionUpdated(Event, tag="session.updated", kw_only=True):
    """`session.update` was applied: the token's expiry and scopes, and the current state.

    `expires_at` is null if the server runs open; `event_id` echoes the client's.
    """

    expires_at: datetime | None
    scopes: list[str]
    state: SessionState = NO_STATE
    event_id: str | None = None


class SessionRedirect(Event, tag="session.redirect", kw_only=True):
    """Another gateway serves this session: connect to `url` at once. The close code is 4421.

    Sent only to clients that `follow`: before `session.opened`, with `seq` 0, or later, when an
    idle session is moved or its gateway is about to stop. If the URL does not answer, connect to
    the first one again, as `redirected`.
    """

    url: str


class ContextReady(Event, tag="context.ready", kw_only=True):
    """A context was prepared for `draft`; `lore` is what it activates of the lorebook."""

    draft: str
    trigger: Trigger
    memories: list[MemoryView]
    timings: ContextTimings
    lore: list[LoreView] = []


class MessageAccepted(Event, tag="message.accepted", kw_only=True):
    """The message is durably stored; `ready_ms` is the time from its arrival to the model request.

    After `response.regenerate` it is the message that is answered again, a `duplicate`.

    `ahead` is what the language model did for it speculatively, before Enter. If `remembered` is
    false, no memory is derived from it and it is erased when its session ends.
    """

    id: str
    turn_id: str
    duplicate: bool
    context: Outcome
    ready_ms: float
    ahead: SpeculativeWork = "nothing"
    remembered: bool = True


class ResponseCreated(Event, tag="response.created", kw_only=True):
    """A reply to a message has started: number `index`, from 0, of `count` that were made to it.

    `companion` says who replies, by slug, where several may.
    """

    response_id: str
    message_id: str
    index: int = 0
    count: int = 1
    companion: str | None = None


class ResponseDelta(Event, tag="response.output_text.delta", kw_only=True):
    """A piece of the reply text."""

    response_id: str
    delta: str


class ResponseSentence(Event, tag="response.sentence", kw_only=True):
    """Number `index`, from 0, of the reply's sentences is whole; sent to clients that ask for it.

    `text` is without the white space around it. `emotion` is the one of the companion's that it was
    marked with, or that was marked last before; there is none without such a mark.
    """

    response_id: str
    index: int
    text: str
    emotion: str | UnsetType = UNSET


class ActionRequested(Event, tag="action.requested", kw_only=True):
    """A character of a world asks the game to do something; answered by `action.result`.

    `arguments` are as the schema of the action has them. It is sent once the text of the reply is
    whole, before `response.done`.
    """

    response_id: str
    id: str
    name: str
    arguments: dict[str, Any]
    companion: str


class ActionAccepted(Event, tag="action.accepted", kw_only=True):
    """What came of the action `id` is durably stored; `duplicate`: another result was before it.

    `event_id` is that of the client's `action.result`.
    """

    id: str
    duplicate: bool
    event_id: str | None = None


class ResponseDone(Event, tag="response.done", kw_only=True):
    """The reply has ended; `error` is set if it `failed`.

    `used` are the ids of the recalled memories that the text takes something of. If it is
    `cut_off`, it was ended by its token limit. `emotion` is the first that the text was marked
    with, if any. The other fields are as when it began.
    """

    response_id: str
    status: Literal["completed", "cancelled", "failed"]
    text: str
    timings: ResponseTimings
    error: ErrorBody | None = None
    message_id: str = ""
    index: int = 0
    count: int = 1
    used: list[str] = []
    companion: str | None = None
    cut_off: bool = False
    emotion: str | UnsetType = UNSET


class ResponseChosen(Event, tag="response.chosen", kw_only=True):
    """Which of the replies to the last message stands: chosen, or back as no other was made."""

    message_id: str
    turn: TurnView


class MemoryStored(Event, tag="memory.stored", kw_only=True):
    """The user's message was scored, for `reasons`; `memory_id` and `memory_type` if stored."""

    message_id: str
    stored: bool
    memory_id: str | None
    memory_type: str | None
    significance: float
    reasons: list[ReasonView]


class SummaryAppliedEvent(Event, tag="summary.applied", kw_only=True):
    """The oldest turns were summarised: how many, in how many lines, by a model or by rules."""

    messages: int
    lines: int
    made_by: str


class BehaviourDone(Event, tag="behaviour.done", kw_only=True):
    """A post-reply behaviour ran; `text` is empty if no language model is configured."""

    message_id: str
    name: str
    text: str


class TurnStored(Event, tag="turn.stored", kw_only=True):
    """A turn that this connection does not show yet: of another window, or a reply after all.

    Each message and each reply of the player's other windows with this companion is told once, as
    soon as it is stored; of windows of other processes once the reply is.
    """

    turn: TurnView


class TurnErased(Event, tag="turn.erased", kw_only=True):
    """Turns of the conversation are no longer: they were forgotten, edited, or replaced by another.

    Whoever did that, here or in another window, and wherever these turns were said.
    """

    turn_ids: list[str]


class SceneMember(Struct, frozen=True):
    """Somebody in a scene: a player by id, or a mind by the slug of its companion."""

    kind: Literal["player", "mind"]
    id: str
    name: str


class SceneEvent(Event, tag="scene.event", kw_only=True):
    """Something that the player witnessed in a world, and `how`; `at` is in the world's time.

    Speech has whom it is said `to`, if to anybody, and its `volume`. `kind` says whether it was
    said (`conversation`), or what it was; `fields` are the host's.
    """

    id: str
    event_type: str
    kind: str
    text: str
    how: str
    actor: str
    to: list[str]
    volume: str
    scene: str
    place: str
    at: datetime
    fields: dict[str, Any] = {}


class SceneState(Event, tag="scene.state", kw_only=True):
    """Who is in the player's scene, and when it is in the world; on joining and on each change.

    `here` is false while the player is not in the scene. `timeline` changes when a world is saved
    or rolled back. `events` are the last that the player witnessed, where the client may not know
    them: on joining, and after a world was rolled back.
    """

    world: str
    scene: str
    place: str
    time: datetime
    here: bool
    members: list[SceneMember]
    timeline: str
    events: list[SceneEvent] | None = None


class SceneTyping(Event, tag="scene.typing", kw_only=True):
    """Another player in the scene types, or has stopped."""

    player: str
    typing: bool


class ErrorEvent(Event, tag="error", kw_only=True):
    """A client message could not be handled; the connection stays open."""

    error: ErrorBody


_encoder = msgspec.json.Encoder()
_context_decoder = msgspec.json.Decoder(ContextReady)
_CONTEXT_PREFIX = b'{"type":"context.ready"'


def encode(event: Event) -> bytes:
    """Encode an event as JSON."""
    return _encoder.encode(event)


def without_memories(frame: bytes) -> bytes:
    """Return an encoded event without memories and lore, for clients without `memory:read`."""
    if not frame.startswith(_CONTEXT_PREFIX):
        return frame
    event = _context_decoder.decode(frame)
    event.memories, event.lore = [], []
    return encode(event)
