"""What a resent transcript means for the turns that are stored of it. Pure.

A chat front end keeps the conversation and sends it whole with every request. Compared with the
stored turns of a session, its end shows what the player did: say something, have the last reply
made anew or continued, or change the last message. What is compared is the text in NFC, without
white space; messages of one speaker in a row are one utterance, as front ends join them.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from hashlib import blake2b
from itertools import accumulate, groupby
from typing import Literal, get_args

from foremind.domain.turn import Speaker
from foremind.domain.turn_request import EarlierTurn
from foremind.typeahead.prefetch_policy import normalise

#: How much of the stored turns a transcript has: all, after exactly what was said before them; all;
#: or their end, as front ends leave out the beginning of what is too long.
_Extent = Literal["exact", "whole", "part"]
_EXTENTS: tuple[_Extent, ...] = get_args(_Extent)
_MIN_MATCHING = 2  # utterances, of a transcript whose beginning was left out
_MARKED = 8  # utterances before a session by which it is known; a window over them may move
_MARK_BYTES = 6
_SEPARATOR = "\n\n"  # between messages of one speaker in a row


@dataclass(frozen=True, slots=True)
class StoredMessage:
    """A stored turn of a session.

    Attributes:
        message_id: of the user's message; None for a reply.
        whole: False for a reply that was stopped, of which a client may have shown less.
        before: of a user's message, the mark of what the transcript had before its session.
    """

    turn_id: int
    speaker: Speaker
    text: str
    message_id: str | None = None
    whole: bool = True
    before: str | None = None


@dataclass(frozen=True)
class Transcript:
    """A conversation as a client has it.

    Attributes:
        prior: what was said before the player's last utterance.
        said: the messages of that utterance, at least one.
        begun: how the reply to it begins, if it is to be continued.
    """

    prior: Sequence[EarlierTurn]
    said: Sequence[str]
    begun: str = ""
    #: What is compared of `prior`, and of the first messages of `said`.
    prior_keys: Sequence[tuple[Speaker, str]] = field(init=False)
    said_keys: Sequence[str] = field(init=False)

    def __post_init__(self) -> None:
        keys = [(turn.speaker, key_of(turn.text)) for turn in self.prior]
        object.__setattr__(self, "prior_keys", keys)
        object.__setattr__(self, "said_keys", list(accumulate(map(key_of, self.said), initial="")))

    def mark(self, count: int) -> str:
        """Return what the first `count` utterances are known by: the last few of them."""
        digest = blake2b(digest_size=_MARK_BYTES)
        for speaker, key in self.prior_keys[max(0, count - _MARKED) : count]:
            digest.update(f"{speaker}:{key}\n".encode())
        return digest.hexdigest()

    def text(self, known: int) -> str:
        """Return what the player said last, without the first `known` messages."""
        return _SEPARATOR.join(self.said[known:])


def read_transcript(messages: Sequence[EarlierTurn]) -> Transcript | None:
    """Return the conversation of some messages, oldest first; None if the player says nothing.

    Blank messages are left out, as a front end keeps them of what failed; so is one that only
    repeats the one before it.
    """
    spoken = [turn for turn in messages if turn.text.strip()]
    groups = [
        (speaker, [next(same) for _, same in groupby((turn.text for turn in group), key=key_of)])
        for speaker, group in groupby(spoken, key=lambda turn: turn.speaker)
    ]
    begun = ""
    if groups and groups[-1][0] == "companion":
        begun = _SEPARATOR.join(groups.pop()[1])
    if not groups:
        return None
    *prior, (_, said) = groups
    joined = [EarlierTurn(speaker, _SEPARATOR.join(texts)) for speaker, texts in prior]
    return Transcript(joined, said, begun)


@dataclass(frozen=True, slots=True)
class Append:
    """The last utterance is new.

    Attributes:
        earlier: how many utterances of the transcript are older than the stored turns.
        known: how many messages of the last utterance are stored, and got no reply.
        former_reply: the last stored reply, if another stands in the transcript in its place.
        message_id: of the message that it answers.
    """

    earlier: int
    known: int = 0
    former_reply: StoredMessage | None = None
    message_id: str | None = None


@dataclass(frozen=True, slots=True)
class Regenerate:
    """The last message is stored, and its reply is to be made anew; None if it has none yet.

    If it `extends` the stored reply, the transcript has that reply, and the new one begins with it.
    """

    earlier: int
    message: StoredMessage
    reply: StoredMessage | None
    extends: bool = False


@dataclass(frozen=True, slots=True)
class Replace:
    """The last message takes the place of the last stored one and of the reply to it, if any.

    The first `known` messages of the last utterance are stored, and stay.
    """

    earlier: int
    message: StoredMessage
    reply: StoredMessage | None
    known: int = 0


@dataclass(frozen=True, slots=True)
class NewConversation:
    """The transcript does not continue the stored turns."""


Decision = Append | Regenerate | Replace | NewConversation


def erases(decision: Decision) -> bool:
    """Return whether something stored would stand no more."""
    match decision:
        case Append(former_reply=former):
            return former is not None
        case Regenerate(reply=reply, extends=extends):
            return reply is not None and not extends
    return isinstance(decision, Replace)


def decide(stored: Sequence[StoredMessage], transcript: Transcript, *, named: bool) -> Decision:
    """Return what a transcript means for the stored turns of a session.

    Where it can be read in several ways, the first of these counts: as long as the stored turns and
    what was before them; of another length; or without its beginning. A reply that was stopped may
    be missing in it.

    Args:
        stored: the turns of a session, or its newest, oldest first.
        named: whether the client has said that the session is of this conversation. Otherwise it
            may be another one that reads the same: nothing is replaced, and a reply is made anew
            only if all that is said before it is known.
    """
    shown = [turn for turn in stored if turn.speaker == "user" or turn.whole]
    views = [_utterances(turns) for turns in (stored, shown) if turns]
    for extent in _EXTENTS:
        comparisons = [_Comparison(view, transcript, extent, named) for view in views]
        read = [
            *(comparison.continued() for comparison in comparisons),
            *(comparison.repeated() for comparison in comparisons),
        ]
        decision = next((decision for decision in read if decision is not None), None)
        if decision is not None:
            return decision
    return NewConversation()


@dataclass(frozen=True, slots=True)
class _Utterance:
    """Stored turns of one speaker in a row."""

    speaker: Speaker
    turns: Sequence[StoredMessage]
    key: str

    def reads(self, speaker: Speaker, key: str) -> bool:
        """Return whether it is what a transcript has."""
        if speaker != self.speaker:
            return False
        return key == self.key or (not self.turns[-1].whole and self.key.startswith(key))


def _utterances(stored: Sequence[StoredMessage]) -> list[_Utterance]:
    groups = (list(group) for _, group in groupby(stored, key=lambda turn: turn.speaker))
    return [
        _Utterance(turns[0].speaker, turns, "".join(key_of(turn.text) for turn in turns))
        for turns in groups
    ]


@dataclass(frozen=True, slots=True)
class _Comparison:
    """A transcript beside the stored utterances of a session, of which it has some extent."""

    utterances: Sequence[_Utterance]
    transcript: Transcript
    extent: _Extent
    named: bool

    def continued(self) -> Append | None:
        """Return the decision if the transcript adds to what is stored."""
        *before, last = self.utterances
        prior = self.transcript.prior
        if last.speaker == "user":  # a message that got no reply
            for known in range(1, len(self.transcript.said)):
                if self._says(last.key, known) and self._follows(before, last):
                    return Append(self._earlier(before), known)
            return None
        if self._matches(self.utterances, len(prior)):
            return Append(self._earlier(self.utterances))
        if (
            self.named
            and prior
            and prior[-1].speaker == "companion"
            and (self.extent == "exact" or len(before) >= _MIN_MATCHING)
            and self._matches(before, len(prior) - 1)
        ):
            message_id = before[-1].turns[-1].message_id if before else None
            earlier = self._earlier(self.utterances)
            return Append(earlier, 0, last.turns[-1], message_id)
        return None

    def repeated(self) -> Regenerate | Replace | None:
        """Return the decision if the last stored message is answered anew, or another in its place.

        A session of one exchange is known only by its message and what was before it.
        """
        reply = self.utterances[-1] if self.utterances[-1].speaker == "companion" else None
        exchanges = self.utterances if reply is None else self.utterances[:-1]
        if not exchanges or (reply is not None and len(reply.turns) > 1):
            return None
        *before, asked = exchanges
        message, answer = asked.turns[-1], None if reply is None else reply.turns[-1]
        if message.message_id is None or not self._follows(before, asked):
            return None
        earlier, begun = self._earlier(before), key_of(self.transcript.begun)
        if self._says(asked.key, len(self.transcript.said)):
            extends = bool(begun) and reply is not None and reply.reads("companion", begun)
            decision = Regenerate(earlier, message, answer, extends)
            guessed = erases(decision) and (bool(begun) or self.extent == "whole")
            return decision if self.named or not guessed else None
        if not self.named or not before:
            return None
        standing = "".join(key_of(turn.text) for turn in asked.turns[:-1])
        for known in range(len(self.transcript.said)):
            if self._says(standing, known):
                return Replace(earlier, message, answer, known)
        return None

    def _says(self, key: str, count: int) -> bool:
        """Return whether the first messages of the last utterance are what is stored."""
        return self.transcript.said_keys[count] == key

    def _follows(self, before: Sequence[_Utterance], asked: _Utterance) -> bool:
        """Return whether the last utterance stands where a stored one does."""
        end = len(self.transcript.prior)
        if before:
            return self._matches(before, end)
        return self.transcript.mark(end) == asked.turns[0].before

    def _matches(self, utterances: Sequence[_Utterance], end: int) -> bool:
        """Return whether stored utterances are what a transcript has before a place; or a part."""
        common = end if self.extent == "part" else len(utterances)
        if self.extent == "part" and common < _MIN_MATCHING:
            return False
        if not 0 < common <= min(len(utterances), end):
            return False
        if self.extent == "exact" and self.transcript.mark(end - common) != self._before():
            return False
        shown = self.transcript.prior_keys[end - common : end]
        stored = utterances[len(utterances) - common :]
        return all(
            utterance.reads(speaker, key)
            for utterance, (speaker, key) in zip(stored, shown, strict=True)
        )

    def _before(self) -> str | None:
        """Return the mark of what was before the session, as its first message of the user says."""
        return next((turn.before for turn in self._turns() if turn.speaker == "user"), None)

    def _turns(self) -> Iterator[StoredMessage]:
        return (turn for utterance in self.utterances for turn in utterance.turns)

    def _earlier(self, utterances: Sequence[_Utterance]) -> int:
        return max(0, len(self.transcript.prior) - len(utterances))


def key_of(text: str) -> str:
    """Return what is compared of a text."""
    return normalise(text).replace(" ", "")
