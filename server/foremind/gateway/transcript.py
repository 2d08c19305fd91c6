"""What a resent transcript means for the turns that are stored of it. Pure.

A chat front end keeps the conversation and sends it whole with every request. Compared with the
stored turns of a session, its end shows what the player did: say something, have the last reply
made anew or continued, or change the last message. What is compared is the text in NFC, without
white space; messages of one speaker in a row are one utterance, as front ends join them.

What the speakers of a transcript said, where a front end has joined it with prompts.

SillyTavern can send prompts as messages of the user ("Strict"), put names before what is said, or
join everything to one message ("Single user message"). Paragraphs are what it joins. Notes of its
author, out of character or of the system, may be messages of the user of their own.
"""

import re
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from hashlib import blake2b
from itertools import accumulate, groupby
from typing import Literal, get_args

from foremind.domain.errors import InvalidMessage
from foremind.domain.turn import Speaker
from foremind.domain.turn_request import EarlierTurn
from foremind.typeahead.prefetch_policy import normalise

_BREAK = "\n\n"  # between what is joined
_LABEL = re.compile(r"(?![\[({<])([^\n:]{1,64}): ")
_ANY_USER = frozenset({"user", "you"})  # what the user is called who has set no name
_MIN_PREAMBLE = 2  # paragraphs of prompts before what is said, where nothing marks its beginning
#: The paragraph after which a chat begins.
_CHAT_BEGINS = re.compile(r"\[start a new (group )?chat\b.*\]", re.IGNORECASE)
#: What a prompt in brackets is about.
_ABOUT_REPLIES = re.compile(
    r"\b(repl(y|ies)|respon(d|se)s?|roleplay\w*|chat|messages?|narrat\w+|write|system|summary|"
    r"notes?|characters?|paragraphs?|instructions?|style|scenario|scene)\b",
    re.IGNORECASE,
)
_OUT_OF_CHARACTER = re.compile(r"\[\s*ooc\b", re.IGNORECASE)
#: What a message is that a front end sends beside the user's.
_NOTE = re.compile(
    r"[\[({<*]+\s*(ooc|out of character|system|author'?s note|a/n|note|instructions?|reminder|"
    r"narrator|director|jailbreak)\b.*[\])}>*]"
    r"|(system (note|prompt|message)|author'?s note)\s*:.*",
    re.IGNORECASE | re.DOTALL,
)
#: A paragraph that is only a prompt.
_PROMPT = re.compile(
    r"((always|please) )?(stay|remain) in character\b"
    r"|write (your|the|\S{1,64}'s) next (reply|response|message)\b"
    r"|(do not|don't|never) (write|speak|act|reply|respond) (for|as) "
    r"|((always|please|only) )?(reply|respond|write) (only )?(in|with|as) .*"
    r"\b(character|paragraphs?|(first|third) person|role-?play)\b",
    re.IGNORECASE | re.DOTALL,
)


def without_labels(
    messages: Sequence[EarlierTurn], companions: Collection[str], users: Collection[str]
) -> Sequence[EarlierTurn]:
    """Return what was said, without names before it and prompts beside it.

    Args:
        companions: what the companion may be called.
        users: what the user may be called.

    Raises:
        InvalidMessage: a chat is joined to one message, and the user's words are not to be found.
    """
    messages = _without_notes(messages)
    labels: dict[str, Speaker] = {name.casefold(): "user" for name in _ANY_USER.union(users)}
    labels.update({name.casefold(): "companion" for name in companions})
    if len(messages) == 1 and messages[0].speaker == "user":
        script = _script(messages[0].text.split(_BREAK), labels)
        if script is not None:
            return script
    if _labelled(messages, labels):
        return [EarlierTurn(turn.speaker, _after_label(turn.text)) for turn in messages]
    return [
        EarlierTurn("user", _without_prompts(turn.text)) if turn.speaker == "user" else turn
        for turn in messages
    ]


def _without_notes(messages: Sequence[EarlierTurn]) -> Sequence[EarlierTurn]:
    """Return messages without those of the user that are only prompts, beside one that is not."""
    kept: list[EarlierTurn] = []
    for speaker, group in groupby(messages, key=lambda turn: turn.speaker):
        turns = list(group)
        said = [turn for turn in turns if speaker == "companion" or not _is_note(turn.text)]
        kept += said or turns
    return kept


def _is_note(text: str) -> bool:
    return _NOTE.fullmatch(text.strip()) is not None or all(
        _is_prompt(part.strip()) for part in text.split(_BREAK)
    )


def _script(paragraphs: Sequence[str], labels: dict[str, Speaker]) -> Sequence[EarlierTurn] | None:
    """Return a chat that is joined to one message, None if it is an ordinary message.

    Raises:
        InvalidMessage: it is a chat, and nothing in it is the user's.
    """
    begins = [number for number, text in enumerate(paragraphs) if _CHAT_BEGINS.fullmatch(text)]
    named = [number for number, text in enumerate(paragraphs) if _label(text) in labels]
    if begins:
        first = begins[-1] + 1
    elif named and named[0] >= _MIN_PREAMBLE:
        first = named[0]
    else:
        return None
    spoken = paragraphs[first:]
    found = [label for text in spoken if (label := _label(text))]
    strangers = [label for label in found if label not in labels]
    if not any(labels.get(label) == "user" for label in found):
        if not strangers:
            raise InvalidMessage(
                "text: expected messages of the user of their own, not joined to one", param="text"
            )
        user = max(strangers, key=strangers.count)
        if not any(labels.get(label) == "companion" for label in found):
            user = strangers[-1]  # whose message is to be answered
            labels = labels | dict.fromkeys(strangers, "companion")
        labels = labels | {user: "user"}
    turns: list[tuple[Speaker, list[str]]] = []
    for text in spoken:
        speaker = labels.get(_label(text) or "")
        if speaker is not None:
            turns.append((speaker, [_after_label(text)]))
        elif turns:
            turns[-1][1].append(text)
    return [EarlierTurn(speaker, _without_prompts(_BREAK.join(texts))) for speaker, texts in turns]


def _labelled(messages: Sequence[EarlierTurn], labels: dict[str, Speaker]) -> bool:
    """Return whether every message begins with a name, of which one at least is known.

    The first may be a placeholder, as some models must have a message of the user first.
    """
    named = [(turn.speaker, _first_label(turn.text)) for turn in messages]
    if len(named) > 1 and named[0][1] is None:
        named = named[1:]
    users = {label for speaker, label in named if speaker == "user"}
    companions = {label for speaker, label in named if speaker == "companion"}
    if len(users) != 1 or None in users | companions:
        return False
    user = next(iter(users)) or ""
    known_user = labels.get(user) == "user" and user not in _ANY_USER
    known_companions = bool(companions) and all(
        labels.get(label or "") == "companion" for label in companions
    )
    return (known_user and (known_companions or not companions)) or known_companions


def _first_label(text: str) -> str | None:
    return next((label for part in text.split(_BREAK) if (label := _label(part))), None)


def _label(text: str) -> str | None:
    """Return the name that a paragraph begins with, in lower case."""
    match = _LABEL.match(text)
    return None if match is None else match[1].strip().casefold()


def _after_label(text: str) -> str:
    """Return what is said after a name, and in the paragraphs that follow; all without one."""
    paragraphs = text.split(_BREAK)
    first = next((number for number, part in enumerate(paragraphs) if _label(part)), None)
    if first is None:
        return _without_prompts(text)
    said = paragraphs[first:]
    name = _LABEL.match(said[0])
    assert name is not None
    later = [part.removeprefix(name[0]) for part in said[1:]]
    return _without_prompts(_BREAK.join([said[0][name.end() :], *later]))


def _without_prompts(text: str) -> str:
    """Return a message without the prompts around it, unless it has nothing else."""
    paragraphs = text.split(_BREAK)
    said = list(_stripped(_stripped(paragraphs)))
    return _BREAK.join(said) or text


def _stripped(paragraphs: Iterable[str]) -> Iterable[str]:
    """Return paragraphs in reverse order, without the prompts at their end."""
    said = list(paragraphs)
    while said and _is_prompt(said[-1].strip()):
        said.pop()
    return reversed(said)


def _is_prompt(text: str) -> bool:
    if text.startswith("[") and text.endswith("]"):
        return bool(_ABOUT_REPLIES.search(text)) and not _OUT_OF_CHARACTER.match(text)
    return _PROMPT.match(text) is not None


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
