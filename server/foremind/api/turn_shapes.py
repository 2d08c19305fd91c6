"""Shapes of a turn without a socket: the request, the whole answer, and the events of a stream."""

from typing import Annotated

import msgspec
from msgspec import UNSET, Meta, UnsetType

from foremind.api.responses import ErrorDetail
from foremind.domain.actions import RequestedAction
from foremind.domain.memory import LoreView, MemoryView
from foremind.domain.turn import Outcome, SpeculativeWork, Status
from foremind.domain.user import MAX_NAME_CHARS, TextHint
from foremind.domain.world import Volume

_MAX_ID_CHARS = 128

MessageId = Annotated[str, Meta(min_length=1, max_length=_MAX_ID_CHARS)]
Slug = Annotated[str, Meta(min_length=1, max_length=_MAX_ID_CHARS)]
PlayerName = Annotated[str, Meta(min_length=1, max_length=MAX_NAME_CHARS)]


class TurnBody(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A message to be answered. `id` is the client's, unique per user: the same one again is
    neither stored nor answered twice.

    `user` is the id of the player, where the token does not say who that is, and `name` the
    player's name there. `time_zone` and `language` are the player's, an IANA name and a BCP 47 tag
    such as `de` or `pt-BR`; without them, or where they are not understood, those that were stated
    last apply. With `remember` false no memory is derived from the
    message, and it is erased when its session ends. `settings` override those of the relationship
    for this turn. With `sentences`, the reply is also told sentence by sentence.

    With `world` and `scene` the player says it in a scene, where a game server has put the player:
    `to` says to whom, by id or slug, by default to the `companion`, if one is named, else to all;
    `volume` how loud. Several may answer.
    """

    id: MessageId
    text: str
    companion: Slug = ""
    user: str | None = None
    name: PlayerName | None = None
    time_zone: TextHint = None
    language: TextHint = None
    remember: bool = True
    settings: dict[str, msgspec.Raw] | None = None
    sentences: bool = False
    world: Slug | None = None
    scene: Slug | None = None
    to: Slug | Annotated[list[Slug], Meta(max_length=100)] | None = None
    volume: Volume = "say"


class EditBody(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A message in place of the last one, whose id is `message_id`.

    The other fields are those of a new message; `id` is its own.
    """

    id: MessageId
    message_id: MessageId
    companion: Slug
    text: str
    user: str | None = None
    name: PlayerName | None = None
    time_zone: TextHint = None
    language: TextHint = None
    remember: bool = True
    settings: dict[str, msgspec.Raw] | None = None
    sentences: bool = False


class RegenerateBody(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A request for another reply to the last message, whose id is `message_id`.

    `id` is the client's for this request: the same one again makes no further reply. `user`,
    `name`, `time_zone`, `language`, `settings` and `sentences` are as in a new message.
    """

    id: MessageId
    message_id: MessageId
    companion: Slug
    user: str | None = None
    name: PlayerName | None = None
    time_zone: TextHint = None
    language: TextHint = None
    settings: dict[str, msgspec.Raw] | None = None
    sentences: bool = False


class ChooseBody(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Which of the replies to the last message stands, by its `index` from 0."""

    message_id: MessageId
    companion: Slug
    index: Annotated[int, Meta(ge=0, le=2**31 - 1)]
    user: str | None = None
    name: PlayerName | None = None


class SentenceOfReply(msgspec.Struct, frozen=True):
    """A sentence of a reply, without the white space around it.

    `emotion` is the one of the companion's that it was marked with, or that was marked last before.
    """

    text: str
    emotion: str | UnsetType = UNSET


class Reply(msgspec.Struct, frozen=True):
    """What a companion said; a reply that `failed` or was `cancelled` is not complete.

    It is number `index`, from 0, of the `count` replies to its message that can be chosen among. If
    it is `cut_off`, it was ended by its token limit. `emotion` is the first that the text was
    marked with, if any; `sentences` are left out unless they are asked for. `actions` are those of
    a world that it asks for.
    """

    companion: str
    text: str
    status: Status
    index: int = 0
    count: int = 1
    cut_off: bool = False
    emotion: str | UnsetType = UNSET
    sentences: list[SentenceOfReply] | UnsetType = UNSET
    actions: list[RequestedAction] | UnsetType = UNSET


class ChosenAnswer(msgspec.Struct, frozen=True):
    """The reply that stands now, and its turn."""

    turn_id: str
    reply: Reply


class TurnAnswer(msgspec.Struct, frozen=True):
    """A stored message, and what was replied.

    `duplicate`: it had been stored before, so that `memories` is empty. `remembered`: memories may
    be derived from it. `context`: whether the context was prepared before the message arrived.
    `memories` are those in the prompt, best first; none for a token without `memory:read`.
    `warnings` name what was stated of the player and not understood, and what was expected.
    """

    turn_id: str
    duplicate: bool
    remembered: bool
    replies: list[Reply]
    context: Outcome
    memories: list[MemoryView]
    warnings: tuple[str, ...] = ()


class TurnAccepted(msgspec.Struct, frozen=True, tag="message.accepted"):
    """The message is on disk; `warnings` name what was stated of the player and not understood."""

    id: str
    turn_id: str
    duplicate: bool
    context: Outcome
    remembered: bool
    ahead: SpeculativeWork = "nothing"
    warnings: tuple[str, ...] = ()


class TurnContext(msgspec.Struct, frozen=True, tag="context.ready"):
    """The memories in the prompt, best first, and the entries of the companion's lorebook; left out
    for a message that was stored before.
    """

    draft: str
    memories: list[MemoryView]
    trigger: str = "send"
    lore: list[LoreView] = []


class ReplyCreated(msgspec.Struct, frozen=True, tag="response.created"):
    """The reply begins: number `index`, from 0, of `count` that were made to the message."""

    response_id: str
    message_id: str
    companion: str
    index: int = 0
    count: int = 1


class ReplyPiece(msgspec.Struct, frozen=True, tag="response.output_text.delta"):
    """A piece of the reply."""

    response_id: str
    delta: str


class ReplySentence(msgspec.Struct, frozen=True, tag="response.sentence"):
    """Number `index`, from 0, of the sentences of the reply is whole; only if that is asked for."""

    response_id: str
    index: int
    text: str
    emotion: str | UnsetType = UNSET


class ReplyDone(msgspec.Struct, frozen=True, tag="response.done"):
    """The reply has ended, and is stored as far as it came; `error` is why it failed.

    It is number `index`, from 0, of the `count` replies to its message that can be chosen among. It
    uses the memories with the ids `used`. If it is `cut_off`, it was ended by its token limit.
    `emotion` is the first that it was marked with, if any, `companion` who replies.
    """

    response_id: str
    status: Status
    text: str
    error: ErrorDetail | None = None
    message_id: str = ""
    index: int = 0
    count: int = 1
    used: list[str] = []
    cut_off: bool = False
    emotion: str | UnsetType = UNSET
    companion: str | None = None


class TurnFailed(msgspec.Struct, frozen=True, tag="error"):
    """The turn ended without a reply, after the stream had begun."""

    error: ErrorDetail


StreamEvent = (
    TurnAccepted | TurnContext | ReplyCreated | ReplyPiece | ReplySentence | ReplyDone | TurnFailed
)
