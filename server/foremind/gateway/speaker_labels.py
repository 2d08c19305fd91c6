"""What the speakers of a transcript said, where a front end has joined it with prompts. Pure.

SillyTavern can send prompts as messages of the user ("Strict"), put names before what is said, or
join everything to one message ("Single user message"). Paragraphs are what it joins. Notes of its
author, out of character or of the system, may be messages of the user of their own.
"""

import re
from collections.abc import Collection, Iterable, Sequence
from itertools import groupby

from foremind.domain.errors import InvalidMessage
from foremind.domain.turn import Speaker
from foremind.domain.turn_request import EarlierTurn

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
