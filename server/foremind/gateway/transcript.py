"""What a resent transcript means for the turns that are stored of it. Pure.

A chat front end keeps the conversation and sends it whole with every request. Compared with the
stored turns of a session, its end shows what the player did: say something, have the last reply
made anew, or change the last message. What is compared is the text in NFC, with white space folded.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, get_args

from foremind.domain.turn import Speaker
from foremind.domain.turn_request import EarlierTurn
from foremind.typeahead.draft_text import normalise

#: How much of the stored turns a transcript has: all, with exactly what was said before them; all;
#: or their end, as front ends leave out the beginning of what is too long.
_Extent = Literal["exact", "whole", "part"]
_EXTENTS: tuple[_Extent, ...] = get_args(_Extent)
_MIN_MATCHING = 2  # messages, of a transcript whose beginning was left out


@dataclass(frozen=True, slots=True)
class StoredMessage:
    """A stored turn of a session.

    Attributes:
        message_id: of the user's message; None for a reply.
        whole: False for a reply that was stopped, of which a client may have shown less.
        earlier: of a user's message, how many messages the transcript had before its session.
    """

    turn_id: int
    speaker: Speaker
    text: str
    message_id: str | None = None
    whole: bool = True
    earlier: int | None = None


@dataclass(frozen=True, slots=True)
class Append:
    """The last message is new.

    Attributes:
        earlier: how many messages of the transcript are older than the stored turns.
        former_reply: the last stored reply, if another stands in the transcript in its place.
        message_id: of the message that it answers.
    """

    earlier: int
    former_reply: StoredMessage | None = None
    message_id: str | None = None


@dataclass(frozen=True, slots=True)
class Regenerate:
    """The last message is stored, and its reply is to be made anew; None if it has none yet."""

    earlier: int
    message: StoredMessage
    reply: StoredMessage | None


@dataclass(frozen=True, slots=True)
class Replace:
    """The last message takes the place of the last stored one and of the reply to it, if any."""

    earlier: int
    message: StoredMessage
    reply: StoredMessage | None


@dataclass(frozen=True, slots=True)
class NewConversation:
    """The transcript does not continue the stored turns."""


Decision = Append | Regenerate | Replace | NewConversation


def decide(stored: Sequence[StoredMessage], transcript: Sequence[EarlierTurn]) -> Decision:
    """Return what a transcript means for the stored turns of a session.

    Where it can be read in several ways, the first of these counts: as long as the stored turns and
    what was before them; of another length; or without its beginning.

    Args:
        stored: the turns of a session, or its newest, oldest first.
        transcript: oldest first; it ends with a message of the user.
    """
    if not stored:
        return NewConversation()
    *prior, last = transcript
    for extent in _EXTENTS:
        decision = _continued(stored, prior, extent) or _repeated(stored, prior, last, extent)
        if decision is not None:
            return decision
    return NewConversation()


def _continued(
    stored: Sequence[StoredMessage], prior: Sequence[EarlierTurn], extent: _Extent
) -> Append | None:
    if _matches(stored, prior, extent):
        return Append(max(0, len(prior) - len(stored)))
    *before, reply = stored
    if (
        prior
        and (reply.speaker, prior[-1].speaker) == ("companion", "companion")
        and (extent == "exact" or len(before) >= _MIN_MATCHING)
        and _matches(before, prior[:-1], extent)
    ):
        message_id = before[-1].message_id if before else None
        return Append(max(0, len(prior) - len(stored)), reply, message_id)
    return None


def _repeated(
    stored: Sequence[StoredMessage],
    prior: Sequence[EarlierTurn],
    last: EarlierTurn,
    extent: _Extent,
) -> Regenerate | Replace | None:
    reply = stored[-1] if stored[-1].speaker == "companion" else None
    exchanges = stored if reply is None else stored[:-1]
    if not exchanges or exchanges[-1].speaker != "user":
        return None
    *before, message = exchanges
    repeated = _same(message, last)
    if not before:  # nothing but its length shows that it is the same conversation
        if repeated and len(prior) == message.earlier:
            return Regenerate(len(prior), message, reply)
        return None
    if not _matches(before, prior, extent):
        return None
    earlier = max(0, len(prior) - len(before))
    return (Regenerate if repeated else Replace)(earlier, message, reply)


def _matches(
    stored: Sequence[StoredMessage], prior: Sequence[EarlierTurn], extent: _Extent
) -> bool:
    """Return whether a transcript ends with the stored turns; if a `part`, with their end."""
    common = len(prior) if extent == "part" else len(stored)
    if extent == "part" and common < _MIN_MATCHING:
        return False
    if not 0 < common <= min(len(stored), len(prior)):
        return False
    if extent == "exact" and len(prior) - common != _earlier_than(stored):
        return False
    pairs = zip(reversed(stored), reversed(prior[-common:]), strict=False)
    return all(_same(turn, said) for turn, said in pairs)


def _earlier_than(stored: Sequence[StoredMessage]) -> int | None:
    """Return how many messages were before the session, as its first message of the user says."""
    return next((turn.earlier for turn in stored if turn.speaker == "user"), None)


def _same(turn: StoredMessage, said: EarlierTurn) -> bool:
    if turn.speaker != said.speaker:
        return False
    text, shown = normalise(turn.text), normalise(said.text)
    return text == shown or (not turn.whole and text.startswith(shown))
