"""Wire protocol version 1: every message of a client."""

from typing import Annotated, Any

import msgspec
from msgspec import Meta, Struct

from foremind.domain.actions import ActionId
from foremind.domain.session_state import StatePatch
from foremind.domain.user import TextHint
from foremind.domain.world import Volume

#: Size limit of a frame, with every `\\uXXXX` escape counted as two bytes.
MAX_FRAME_BYTES = 65_536
#: Raw size limit of the same frame if it consists only of such escapes.
MAX_ESCAPED_BYTES = 3 * MAX_FRAME_BYTES
MAX_ID_CHARS = 128

Identifier = Annotated[str, Meta(min_length=1, max_length=MAX_ID_CHARS)]
Name = Annotated[str, Meta(min_length=1, max_length=64)]
#: As `TextHint`.
ResumeHint = Annotated[
    Any,
    Meta(
        extra_json_schema={"anyOf": [{"$ref": "#/components/schemas/Resume"}, {"type": "null"}]},
    ),
]


class UserClaim(Struct, frozen=True):
    """The identity that a client claims; accepted only when the server runs open."""

    id: Identifier
    name: Name


class Resume(Struct, frozen=True):
    """The session to resume, and the `seq` of the last event that the client has received."""

    session_id: Identifier
    seq: Annotated[int, Meta(ge=0, le=2**53 - 1)]


class SessionOpen(Struct, frozen=True, tag="session.open"):
    """The first message: the user, the companion, and the player's IANA time zone.

    `language` is the player's, a BCP 47 tag such as `de` or `pt-BR`: texts that do not tell their
    language, such as short ones, are read as it. Without it the one that was stated last applies.

    `time_zone`, `language` and `resume` are hints: one that is not understood counts as not given,
    and is among the `warnings` of `session.opened`.

    `consent` states whether the user agrees to be remembered, where the companion requires it;
    without it the stored choice applies.

    `follow` states that the client connects to the URL of a `session.redirect`; `redirected`, that
    it has already been told one since its last session, and wants to be served here.

    `greeting` is the number of the greeting that the conversation begins with: 0 is the companion's
    own, others are the alternate greetings of its character card.

    `contexts` states whether `context.ready` is to be sent; it is, unless that is false.
    `sentences` states whether `response.sentence` is; it is not, unless that is true.

    With `world` and `scene` the player joins a scene of a world, in which a game server has put it,
    instead of talking to a companion alone.
    """

    companion: Identifier = ""
    token: str | None = None
    user: UserClaim | None = None
    time_zone: TextHint = None
    language: TextHint = None
    consent: bool | None = None
    resume: ResumeHint = None
    follow: bool | None = None
    redirected: bool | None = None
    greeting: Annotated[int, Meta(ge=0, le=2**31)] | None = None
    contexts: bool | None = None
    sentences: bool | None = None
    world: Identifier | None = None
    scene: Identifier | None = None
    event_id: Identifier | None = None


class SessionUpdate(Struct, frozen=True, tag="session.update"):
    """A fresh token for the running session, a change to the session state, or to what is sent.

    The token must belong to the same user; its scopes apply at once. The state is a merge patch:
    fields that are not named stay, null removes one. It applies to every later message and is
    cleared when the session ends. `contexts` states whether `context.ready` is sent from now on,
    `sentences` whether `response.sentence` is, from the next reply on.
    """

    token: str | None = None
    state: StatePatch | None = None
    contexts: bool | None = None
    sentences: bool | None = None
    event_id: Identifier | None = None


class DraftUpdate(Struct, frozen=True, tag="draft.update"):
    """The complete current draft.

    In a scene, `to` and `volume` are those with which it will be sent, as far as they are known.
    """

    text: str
    to: Identifier | Annotated[list[Identifier], Meta(max_length=100)] | None = None
    volume: Volume = "say"
    event_id: Identifier | None = None


class DraftClear(Struct, frozen=True, tag="draft.clear"):
    """The draft was discarded."""

    event_id: Identifier | None = None


class MessageSend(Struct, frozen=True, tag="message.send"):
    """Enter. Idempotent: a repeated `id` is never stored or answered twice.

    `settings` override those of the relationship for this turn only. With `remember` false the
    message is answered, but no memory is derived from it and it is erased when its session ends.

    In a scene, `to` says to whom it is said: players and minds, nobody for all; and `volume` how
    loud.
    """

    id: Identifier
    text: str
    settings: dict[str, msgspec.Raw] | None = None
    remember: bool = True
    to: Identifier | Annotated[list[Identifier], Meta(max_length=100)] | None = None
    volume: Volume = "say"
    event_id: Identifier | None = None


class MessageEdit(Struct, frozen=True, tag="message.edit"):
    """Another text in place of the last message, which is answered anew.

    It is a message of its own, with an `id` of its own, and as idempotent as `message.send`, whose
    other fields it has. `message_id` is the last message of the session, which no longer stands.
    """

    id: Identifier
    message_id: Identifier
    text: str
    settings: dict[str, msgspec.Raw] | None = None
    remember: bool = True
    event_id: Identifier | None = None


class ResponseRegenerate(Struct, frozen=True, tag="response.regenerate"):
    """Another reply to the last message of the session; the ones before can be chosen again.

    `id` is the client's for this request: the same one again makes no further reply. `settings`
    override those of the relationship for this reply only.
    """

    id: Identifier
    message_id: Identifier
    settings: dict[str, msgspec.Raw] | None = None
    event_id: Identifier | None = None


class ResponseChoose(Struct, frozen=True, tag="response.choose"):
    """Which of the replies to the last message of the session stands, by its index from 0."""

    message_id: Identifier
    index: Annotated[int, Meta(ge=0, le=2**31 - 1)]
    event_id: Identifier | None = None


class ActionResult(Struct, frozen=True, tag="action.result"):
    """What came of the action `id`: for the character who asked for it, in words or as JSON.

    From the game server of the world alone; the first result counts.
    """

    id: ActionId
    result: Any
    event_id: Identifier | None = None


class ResponseCancel(Struct, frozen=True, tag="response.cancel"):
    """Stop the reply in progress."""

    response_id: Identifier
    event_id: Identifier | None = None


ClientMessage = (
    SessionOpen
    | SessionUpdate
    | DraftUpdate
    | DraftClear
    | MessageSend
    | MessageEdit
    | ResponseRegenerate
    | ResponseChoose
    | ResponseCancel
    | ActionResult
)
#: What changes the last exchange, and is answered as a message is.
Revision = MessageEdit | ResponseRegenerate
