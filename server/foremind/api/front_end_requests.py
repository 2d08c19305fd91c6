"""What chat front ends send besides the words of a conversation. Pure.

They ask the model for titles, tags, searches or summaries; put the passages of files and web pages
around a question; and ask for more of the last reply. What they ask is recognised by its form, as
its words can be configured.
"""

import re
from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass

from foremind.domain.errors import InvalidMessage
from foremind.domain.turn import Speaker
from foremind.domain.turn_request import EarlierTurn

_MAX_SEARCHED_CHARS = 20_000  # at either end of a text that may be a task

_MARKS = r"[^\w\n]{0,6}"  # bounded, as texts may be megabytes of them
#: A request, and within how many characters what is asked for.
_ASKING = re.compile(
    rf"(?:^|[.!:]\s{{1,3}}){_MARKS}(?:(?:please|now|you (?:should|must)|your task is to)\s)?"
    r"(?:generate|provide|create|write|suggest|give|analy[sz]e|detect|name|classify|determine|"
    r"extract|choose|return|produce|translate|identify|condense|complete|propose|"
    r"(summari[sz]e))\b",
    re.IGNORECASE | re.MULTILINE,
)
_REQUEST_CHARS = 300
_ASKED_FOR = re.compile(
    r"\b(title|tags?|summar(y|ies)|emojis?|follow[- ]?ups?|search(es)?|quer(y|ies)|keywords?|"
    r"captions?|topics?|name|sentiments?|emotions?|expressions?|facts?|memor(y|ies)|"
    r"continuation|completion|suggestions?|prompt|language)\b",
    re.IGNORECASE,
)
#: A conversation that is quoted: with who said what, or below a heading.
_QUOTED_CHAT = re.compile(
    rf"^{_MARKS}(user|human|assistant|ai|system|bot){_MARKS}:"
    rf"|^{_MARKS}((chat|conversation|message|recent|current|new) ){{0,3}}"
    rf"(history|conversation|lines|messages|transcript|dialogue|chat){_MARKS}:[ \t]{{0,6}}$"
    r"|\n[ \t]{0,6}(new summary|summary|title|tags|emoji|queries) ?:\s{0,6}\Z",
    re.IGNORECASE | re.MULTILINE,
)
#: What only a program writes to a model.
_TASK = re.compile(
    r"\A\s*#+\s*task\b"
    r"|</?(chat_history|conversation_history)>"
    r"|\A\W*(instructions?\W+)?"
    r"(ignore (all |the )?previous instructions|pause (the|your|this) role-?play)"
    r"|\A\W*write (your|the) next (reply|message) from the point of view of\b"
    r"|\A\W*query: history:\s*$"
    r"|\A\W*(current|recent) (chat|conversation|messages)\W*:\s*$"
    r"|\bresponses? from (various|several|multiple|different) models\b|^responses from models:"
    r"|\byou are an autocompletion system\b"
    r"|\A\s*your task is to\b[\s\S]*(```|\"\"\")",
    re.IGNORECASE | re.MULTILINE,
)
#: Instructions with which a single message of the user is what they are about.
_INSTRUCTIONS = re.compile(
    r"\s*available tools\s*:"
    r"|\W{0,6}(ignore (all |the )?previous instructions|pause (the|your|this) role-?play)\W"
    r".{0,100}?\b(summari[sz]e|classify|describe|provide|generate|determine|list)\b",
    re.IGNORECASE | re.DOTALL,
)
#: A request of a front end for more of the last reply.
_CONTINUE = re.compile(
    r"\[\s*(please )?(continue|go on with|keep (on )?writing|extend)\b[^\[\]]*\]", re.IGNORECASE
)
#: The tags of passages of files and pages; a template may name the later ones before the first.
_PASSAGES = ("context", "documents", "document", "source")
_TEMPLATE = re.compile(r"^#+ ?task\b", re.IGNORECASE | re.MULTILINE)
#: What is put behind a message where the model may run code.
_TOOL_PROMPT = re.compile(r"\n#{2,6} tools available\n", re.IGNORECASE)
_USER_QUERY = re.compile(r"<(user_query|query|question)>(.*?)</\1>", re.IGNORECASE | re.DOTALL)
_QUESTION_LINE = re.compile(r"^(?:user )?(?:query|question)\s*:\s*", re.IGNORECASE | re.MULTILINE)
_ATTACHED = re.compile(r"\AAttached document\(s\):\n```.*\n```(\n|\Z)", re.DOTALL)


@dataclass(frozen=True, slots=True)
class Said:
    """A message of a request; `speaker` is None where it is an instruction to the model."""

    speaker: Speaker | None
    text: str


@dataclass(frozen=True, slots=True)
class FrontEndRequest:
    """What a front end asks.

    Attributes:
        transcript: the conversation, without what the front end has put around its messages.
        attached: passages of files or pages that belong to the last message; empty without any.
    """

    transcript: Sequence[EarlierTurn]
    attached: str = ""


def read_messages(messages: Sequence[Said]) -> FrontEndRequest:
    """Return the conversation that is to go on.

    Raises:
        InvalidMessage: the messages are a task of the front end, or not those of a conversation.
    """
    messages = [said for said in messages if said.speaker == "user" or said.text.strip()]
    last = max((number for number, said in enumerate(messages) if said.speaker), default=-1)
    if last < 0 or not messages[last].text.strip():
        raise InvalidMessage(
            "messages: expected a message of the user at the end", param="messages"
        )
    before, closing = messages[: last + 1], [said.text for said in messages[last + 1 :]]
    if _is_task(before) or any(map(_asks_about_chat, closing)):
        raise a_task()
    continues = any(_CONTINUE.match(text.strip()) for text in closing)
    if _asks_to_continue(before):
        before, continues = before[:-1], True
    turns: list[EarlierTurn] = []
    attached = ""
    for said in before:
        if said.speaker == "user":
            attached, text = _taken_apart(said.text)
            turns.append(EarlierTurn("user", text))
        elif said.speaker == "companion":
            turns.append(EarlierTurn("companion", said.text))
    if turns[-1].speaker == "companion":
        attached = ""
        if closing and not continues:  # what is asked of the model is in a message of the system
            raise a_task()
    return FrontEndRequest(turns, attached)


def a_task() -> InvalidMessage:
    """Return the error for what a front end asks of a model besides."""
    return InvalidMessage(
        "messages: expected what the user says, not a task of the front end", param="messages"
    )


def _is_task(messages: Sequence[Said]) -> bool:
    """Return whether the last message is a task of the front end."""
    spoken = [said for said in messages if said.speaker is not None]
    if spoken[-1].speaker == "companion":
        return False
    passages, text = _taken_apart(spoken[-1].text)
    if passages:
        return False
    instructions = next((said.text for said in messages if said.speaker is None), "")
    if len(spoken) == 1 and (
        _INSTRUCTIONS.match(instructions) or _asks_about_chat(text, instructions)
    ):
        return True
    return _asks_about_chat(text) or _asks_about_chat(text.rpartition("\n\n")[2])


def _asks_about_chat(text: str, instructions: str = "") -> bool:
    """Return whether a model is asked for something about a conversation, such as its title."""
    if len(text) > 2 * _MAX_SEARCHED_CHARS:
        text = text[:_MAX_SEARCHED_CHARS] + "\n" + text[-_MAX_SEARCHED_CHARS:]
    if _TASK.search(text):
        return True
    asked = text if not instructions else instructions[:_MAX_SEARCHED_CHARS]
    return _QUOTED_CHAT.search(text) is not None and _requests(asked)


def _requests(text: str) -> bool:
    """Return whether a text asks for what is made of a conversation."""
    found = [match.start() for match in _ASKED_FOR.finditer(text)]
    for request in _ASKING.finditer(text):
        following = bisect_left(found, request.end())
        if request[1] or (
            following < len(found) and found[following] < request.end() + _REQUEST_CHARS
        ):
            return True
    return False


def _asks_to_continue(messages: Sequence[Said]) -> bool:
    """Return whether the last message asks for more of the reply before it, in brackets."""
    spoken = [said for said in messages if said.speaker is not None]
    return (
        len(spoken) > 1
        and spoken[-1].speaker == "user"
        and spoken[-2].speaker == "companion"
        and _CONTINUE.fullmatch(spoken[-1].text.strip()) is not None
    )


def _taken_apart(text: str) -> tuple[str, str]:
    """Return the passages around a question, and the question; no passages if there are none."""
    tools = _TOOL_PROMPT.search(text)
    if tools is not None:
        text = text[: tools.start()].rstrip()
    attached = _ATTACHED.match(text)
    if attached is not None and text[attached.end() :].strip():
        return attached[0].strip(), text[attached.end() :].strip()
    passages = _passages(text)
    if passages is None:
        return "", text
    shown, after = text[passages], text[passages.stop :].strip()
    query = _USER_QUERY.match(after)
    if query is not None:
        return shown, after[query.end() :].strip() or query[2].strip()
    if not after:  # the question is before the template
        after = _TEMPLATE.split(text[: passages.start], maxsplit=1)[0].strip()
    lines = list(_QUESTION_LINE.finditer(after, len(after) - _MAX_SEARCHED_CHARS))
    question = after[lines[-1].end() :].strip() if lines else after
    return (shown, question) if question else ("", text)


def _passages(text: str) -> slice | None:
    """Return where passages stand in a text, from their first tag to their last one."""
    for tag in _PASSAGES:
        opened, closed = text.find(f"<{tag}"), text.rfind(f"</{tag}>")
        if 0 <= opened < closed:
            return slice(opened, closed + len(tag) + 3)
    return None
