"""One turn of a relationship that is made without a socket: what is asked, and what comes of it."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal
from uuid import UUID

import msgspec

from foremind.domain.errors import ForemindError
from foremind.domain.memory import LoreView, MemoryView
from foremind.domain.turn import Outcome, Speaker, SpeculativeWork, SpokenSentence, Status
from foremind.domain.user import NO_HINTS, PlayerHints

#: The session that a turn belongs to: the one that goes on, if any; one that begins; or this one.
SessionChoice = Literal["current", "new"] | UUID


@dataclass(frozen=True, slots=True)
class EarlierTurn:
    """Something that was said according to a client, and is not stored."""

    speaker: Speaker
    text: str


@dataclass(frozen=True, slots=True)
class TurnRequest:
    """A message to be answered.

    Attributes:
        id: chosen by the client, unique per user; the same id is never stored or answered twice.
        settings: override those of the relationship, for this turn only.
        remember: otherwise no memory is derived from it, and it is erased after its session.
        hints: of the player; the stored time zone and language where there are none.
        earlier: what was said before the stored turns of the session; the prompt has it, too.
        replaces: the id of the last message, in whose place it stands from then on.
        regenerates: the id of the last message, to which another reply is made; then there is no
            text, and the id is that of the request.
        begun: how the reply begins; only what follows is made, and sent.
        attached: passages that belong to the message; the prompt has them, and they are not stored.
        sentences: whether each sentence of the reply is told once it is whole.
    """

    companion: str
    id: str
    text: str
    settings: Mapping[str, msgspec.Raw] | None = None
    remember: bool = True
    hints: PlayerHints = NO_HINTS
    session: SessionChoice = "current"
    earlier: Sequence[EarlierTurn] = ()
    replaces: str | None = None
    regenerates: str | None = None
    begun: str = ""
    attached: str = ""
    sentences: bool = False


@dataclass(frozen=True, slots=True)
class ChoiceRequest:
    """Which of the replies to the last message is to stand, by its index from 0."""

    companion: str
    message_id: str
    index: int


@dataclass(frozen=True, slots=True)
class ChosenReply:
    """The reply that stands now: number `index`, from 0, of `count`."""

    turn_id: int
    text: str
    status: Status
    index: int
    count: int


@dataclass(frozen=True, slots=True)
class TranscriptRequest:
    """A whole conversation as a client has it; its last message is to be answered.

    Attributes:
        transcript: oldest first; it ends with a message of the user, or with the beginning of the
            reply to that.
        chat: what the client calls this conversation; None if it does not say.
        attached: passages that belong to the last message, and are not stored.
        temperature, max_tokens: for this reply, within what the user may set.
        after: the id of a stored message; what was said up to its reply precedes the transcript.
        remember: as `TurnRequest` has it.
    """

    companion: str
    transcript: Sequence[EarlierTurn]
    chat: str | None = None
    attached: str = ""
    temperature: float | None = None
    max_tokens: int | None = None
    after: int | None = None
    remember: bool = True


@dataclass(frozen=True, slots=True)
class TurnBegun:
    """The message is stored, and its reply begins.

    Attributes:
        duplicate: the message had been stored before, and its reply is not made by this request.
            Where it is not made now, `memories` and `prompt_tokens` are unknown, and empty.
        context: whether it was prepared before the message arrived.
        memories: those in the prompt, best first.
        lore: the entries of the companion's lorebook in the prompt.
        prompt_tokens: by the configured tokenizer, or estimated.
        response_id: of the reply.
        text: of the message, if its reply is made now.
        ahead: what the language model did for it before it arrived.
    """

    turn_id: int
    duplicate: bool
    context: Outcome
    remembered: bool
    memories: Sequence[MemoryView] = ()
    lore: Sequence[LoreView] = ()
    response_id: str = ""
    prompt_tokens: int = 0
    text: str = ""
    ahead: SpeculativeWork = "nothing"


@dataclass(frozen=True, slots=True)
class TurnReply:
    """The reply begins, or is found: number `index`, from 0, of `count` to its message."""

    index: int
    count: int


@dataclass(frozen=True, slots=True)
class TurnPiece:
    """A piece of the reply."""

    text: str


@dataclass(frozen=True, slots=True)
class TurnDone:
    """The reply has ended, and is stored as far as it came.

    Attributes:
        text: the whole reply; it is number `index`, from 0, of `count` that can be chosen among.
        reply_tokens: counted as `prompt_tokens` are.
        error: why it `failed`.
        used: the ids of the recalled memories that it uses.
        cut_off: whether its token limit ended it.
        emotion: the first that it was marked with.
    """

    status: Status
    text: str
    reply_tokens: int
    error: ForemindError | None = None
    index: int = 0
    count: int = 1
    used: tuple[str, ...] = ()
    cut_off: bool = False
    emotion: str | None = None


TurnEvent = TurnBegun | TurnReply | TurnPiece | SpokenSentence | TurnDone
