"""Turns, the sessions that they belong to, and the forms that ingest reads them in."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Literal
from uuid import UUID

import msgspec
import numpy as np
import numpy.typing as npt

from foremind.domain.errors import InvalidMessage
from foremind.domain.settings.settings import CompanionSettings, RelationshipSettings


class CompanionVersions(msgspec.Struct, frozen=True):
    """The versions of a companion as of one moment; `documents` counts changes to its documents."""

    companion_id: int
    version: int
    documents: int


class RelationshipVersions(msgspec.Struct, frozen=True):
    """The versions of a relationship as of one moment.

    They only rise, unless a database without the last commits takes over: one restored from a
    backup, or a standby that lagged behind. `incarnation` is of the start of the database that they
    were read from, so that numbers which have caught up since are not taken for the known ones.

    `removals` counts the transactions that removed something, `erasures` those of them that refuse
    work in flight. `settings_version` also counts changes of consent.
    """

    relationship_id: int
    memory_version: int
    layers_version: int
    removals: int
    erasures: int
    settings_version: int
    consented: bool
    incarnation: str


class VersionsInForce(msgspec.Struct, frozen=True):
    """Everything that prompts of a relationship depend on."""

    relationship: RelationshipVersions
    companion: CompanionVersions


Trigger = Literal["pause", "eager", "send"]
SpeculativeWork = Literal["nothing", "prefill", "reply"]
Outcome = Literal["hit", "refreshed", "miss"]


Speaker = Literal["user", "companion"]
Status = Literal["completed", "cancelled", "failed"]
#: The types of memories.
MemoryType = Literal["conversation", "observation", "event", "relationship"]
#: What a game reports of what happened: the type of the memory that is made of it.
EventType = Literal["observation", "event"]


@dataclass(frozen=True, slots=True)
class OpenedSession:
    """The ids of an opened session, and its relationship's versions and settings.

    `begun`: the session is new, not resumed. `erasures` is the relationship's erasure count,
    `consented` whether the user agreed to be remembered, `active_at` the time of the last turn,
    `language` the one that the user has stated, with its region ("pt-BR") if that is known.
    """

    session_id: UUID
    relationship_id: int
    user_id: int
    memory_version: int
    layers_version: int
    settings: RelationshipSettings
    erasures: int
    consented: bool
    begun: bool
    active_at: datetime | None = None
    language: str | None = None


@dataclass(frozen=True, slots=True)
class Turn:
    """A stored message of the user or the companion.

    Of a reply, `answers` is the id of the message that it answers, if it is stored; the reply is
    number `index`, from 0, of the `count` that can be chosen among.
    """

    id: int
    speaker: Speaker
    message_id: str | None
    status: Status
    content: str
    created_at: datetime
    answers: str | None = None
    index: int = 0
    count: int = 1


@dataclass(frozen=True, slots=True)
class SessionTurn:
    """A stored turn with its session; `active_at` is the time of the session's last turn.

    `removed`: its text was erased; `kept`: it may be remembered.
    """

    id: int
    session_id: UUID
    active_at: datetime
    speaker: Speaker
    message_id: str | None
    status: Status
    content: str
    removed: bool
    kept: bool


@dataclass(frozen=True, slots=True)
class InForce:
    """What was in force when a message was stored.

    `state_version` is that of the session's state, 0 without a state; `previous_turn_id` the turn
    before it in its session, None for the first.
    """

    versions: VersionsInForce
    state_version: int
    previous_turn_id: int | None


@dataclass(frozen=True, slots=True)
class StoredTurn:
    """The stored turn of a user's message.

    `duplicate`: it had been stored before; `answered`: it has a reply; `elsewhere`: another process
    is answering it; `kept`: it may be remembered, as was decided when it was first sent;
    `in_force`: what the reply must reflect; `alternatives`: how many replies to it do not stand.
    """

    id: int
    duplicate: bool
    answered: bool
    elsewhere: bool = False
    kept: bool = True
    in_force: InForce | None = None
    alternatives: int = 0


@dataclass(frozen=True, slots=True)
class ReportedEvent:
    """What a game reports: something that happened, which nobody said. `id` is the game's."""

    id: str
    type: EventType
    text: str
    at: datetime


@dataclass(frozen=True, slots=True)
class StoredEvent:
    """The stored turn of an event; `duplicate`: its id had been stored before."""

    id: str
    turn_id: int
    duplicate: bool


@dataclass(frozen=True, slots=True)
class AnswerElsewhere:
    """What has become of a turn that another process was to answer.

    Attributes:
        reply: the turn id of the reply, None while there is none.
        under_way: the process is answering it.
        abandoned: the process has died, or took too long.
    """

    reply: int | None
    under_way: bool
    abandoned: bool


@dataclass(frozen=True, slots=True)
class ExchangeTurn:
    """A turn of a context window; `vector` and `memory_id` if it has them.

    `vector` is the unit vector of the turn's text alone, float32 [dimension].
    """

    id: int
    speaker: Speaker
    content: str
    vector: npt.NDArray[np.float32] | None
    memory_id: int | None


@dataclass(frozen=True, slots=True)
class TurnToRemember(ExchangeTurn):
    """A turn that is ingested, or is near one; `message_id` is that of the message that it is or
    answers.

    `event_type` is set for what happened, or was witnessed in a world at a `place`, which has no
    session.
    `removed`: only the text of its memory is left. `terms` is the sum of its memory's term weights;
    `merged_into` the memory that it repeats.
    """

    session_id: UUID | None
    event_type: MemoryType | None
    created_at: datetime
    message_id: str | None
    removed: bool
    terms: float
    merged_into: int | None
    place: str = ""

    @property
    def remembered_as(self) -> int | None:
        """The memory that it became or was merged into; None if neither."""
        return self.memory_id if self.merged_into is None else self.merged_into


@dataclass(frozen=True, slots=True)
class TurnsToRemember:
    """Turns by id, in order, with those around them, of one relationship.

    `language` is the player's, English if it is unknown.
    """

    turns: Mapping[int, TurnToRemember]
    user_name: str
    companion_name: str
    time_zone: str
    language: str
    companion_settings: CompanionSettings
    settings: RelationshipSettings

    def turn(self, turn_id: int) -> TurnToRemember | None:
        """Return a turn; None if it no longer exists."""
        turn = self.turns.get(turn_id)
        return None if turn is None or turn.removed else turn


@dataclass(frozen=True, slots=True)
class IngestRequest:
    """A turn that is to be ingested.

    With a language model's `rating`, 1 to 10, it is scored by it, and its memory supersedes those
    in `replaced`. What was `requested` is kept in any case.
    """

    turn_id: int
    rating: int | None = None
    replaced: Sequence[int] = ()
    requested: bool = False


#: How many replies to one message can be chosen among, with the one that stands. Of more, the
#: earliest go first. A player who wants none of twenty wants another message.
MAX_REPLIES = 20


#: Replies of a relationship whose prompts are kept, the latest: what somebody may still ask about,
#: at about 10 kB each.
MAX_PROMPTS = 50


@dataclass(frozen=True, slots=True)
class MadePrompt:
    """What a reply was made of, as JSON, and how many removals of its relationship it reflects."""

    text: str
    removals: int


@dataclass(frozen=True, slots=True)
class SpokenSentence:
    """Number `index`, from 0, of the sentences of a reply; `emotion` as the model marked it."""

    index: int
    text: str
    emotion: str | None = None


@dataclass(frozen=True, slots=True)
class MadeReply:
    """A reply that was made to a message; `position` rises with each one made to it."""

    position: int
    status: Status
    text: str
    created_at: datetime


@dataclass(frozen=True, slots=True)
class LastExchange:
    """The last message of a session, and the replies to it.

    Attributes:
        turn_id, message_id, text, kept: of the message, as in `StoredTurn`.
        regenerated_by: the client's id of the last request for another reply, if there was any.
        reply_id, reply: the turn of the reply that stands, and that reply; None if none does.
        others: the replies that do not stand, the earliest first.
    """

    turn_id: int
    message_id: str
    text: str
    kept: bool
    regenerated_by: str | None
    reply_id: int | None
    reply: MadeReply | None
    others: Sequence[MadeReply]

    @property
    def replies(self) -> list[MadeReply]:
        """All replies that the player can choose among, the earliest first."""
        standing = [] if self.reply is None else [self.reply]
        return sorted([*self.others, *standing], key=lambda reply: reply.position)

    def chosen(self, index: int) -> MadeReply:
        """Return the reply of an index, from 0.

        Raises:
            InvalidMessage: there is none.
        """
        replies = self.replies
        if not replies:
            raise InvalidMessage("index: there is no reply to choose", param="index")
        if not 0 <= index < len(replies):
            raise InvalidMessage(
                f"index: expected 0 to {len(replies) - 1}, got {index}", param="index"
            )
        return replies[index]


def require_last(exchange: LastExchange | None, message_id: str) -> LastExchange:
    """Return an exchange if its message is the one that is named.

    Raises:
        InvalidMessage: it is not, or nothing was said in the session.
    """
    if exchange is None:
        raise InvalidMessage(
            "message_id: nothing was said in this session yet",
            param="message_id",
            code="nothing_said",
        )
    if exchange.message_id != message_id:
        raise InvalidMessage(
            "message_id: expected the id of the last message of this session",
            param="message_id",
            code="not_last_message",
        )
    return exchange
