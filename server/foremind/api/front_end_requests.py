"""What chat front ends send besides the words of a conversation. Pure.

They ask the model for titles, tags, searches or summaries; put the passages of files and web pages
around a question; and ask for more of the last reply. What they ask is recognised by its form, as
its words can be configured.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import dropwhile

from foremind.api.front_end_tasks import asks_about_chat, asks_by_instructions, names_task
from foremind.domain.errors import InvalidMessage
from foremind.domain.turn import Speaker
from foremind.domain.turn_request import EarlierTurn

_MAX_SEARCHED_CHARS = 20_000  # at the end of a text, for a question
_MAX_LINE_CHARS = 1_000  # of an instruction
_MARKS = r"[^\w\n]{0,6}"  # bounded, as texts may be megabytes of them
#: A request of a front end for more of the last reply.
_CONTINUE = re.compile(
    r"\[\s*(please )?(continue|go on with|keep (on )?writing|extend)\b[^\[\]]*\]", re.IGNORECASE
)
#: What stands around passages: tags, and names in brackets or between rules.
_MARK = re.compile(
    r"<(/?[a-z][\w-]{0,40})(?:\s[^<>]{0,300})?>|\[([^\[\]\n]{1,200})\]|"
    r"^[-=*#~<]{2,10} ?([^\n]{1,200}?) ?[-=*#~>]{2,10}$",
    re.IGNORECASE | re.MULTILINE,
)
_FILE = (
    r"(?:files?|documents?|attachments?|web[ _-]?pages?|uploads?|"
    r"[\w-]{1,80}\.(?:txt|md|pdf|docx?|csv|json|html?))"
)
_NAMES_FILE = re.compile(rf"(?:^|[\W_]){_FILE}(?![a-z])", re.IGNORECASE)
_NAMES_PASSAGE = re.compile(
    rf"(?:^|[\W_])(?:{_FILE}|context|(?:search[_-]?)?results?|references?|sources?|knowledge|"
    r"passages?|excerpts?|snippets?|citations?|pasted|(?:file|page|url|web)[_-]?content)(?![a-z])",
    re.IGNORECASE,
)
_CLOSES = re.compile(r"^/|(?:^|[\W_])end(?![a-z])", re.IGNORECASE)
#: What begins a template or a note behind the question.
_TEMPLATE = re.compile(r"^#+ ?task\b|<!--", re.IGNORECASE | re.MULTILINE)
_COMMENT = re.compile(r"<!--[^<>]*-->")
#: What is put behind a message where the model may run code.
_TOOL_PROMPT = re.compile(r"\n#{2,6} tools available\n", re.IGNORECASE)
_USER_QUERY = re.compile(r"<(user_query|query|question)>(.*?)</\1>", re.IGNORECASE | re.DOTALL)
#: What stands before a question in a template.
_QUESTION = re.compile(
    rf"^{_MARKS}(?:(?:my|the|user(?:'s)?|current|new|latest|original) ){{0,2}}"
    rf"(?:query|question|message|request|user|q)(?: is)?{_MARKS}:\s*"
    r"|^[#\[*]{1,6} ?(?:\w+ ){0,2}(?:query|question)\W{0,6}$\s*"
    r"|\banswer (?:the|this|my) (?:\S{1,20} ){0,3}(?:question|query)\s?:\s*"
    rf"|^{_MARKS}(?:我的|用户|用戶)?(?:问题|問題|提问|消息|質問|질문|frage|pregunta|pergunta|domanda|вопрос|soru|"
    r"vraag|pytanie)(?:是|为)?\s?[:：]\s*|问题是\s?[:：]\s*",
    re.IGNORECASE | re.MULTILINE,
)
_MATERIAL = (
    r"(?:information|context|documents?|passages?|excerpts?|materials?|results?|snippets?|sources?|"
    r"knowledge|content|files?|pages?|memories|citations?)"
)
#: A line above passages that have no tags.
_PASSAGE_HEADING = re.compile(
    rf"^{_MARKS}(?!i |we |my )(?:\w+ ){{0,8}}(?:relevant|related|retrieved|reference|context|"
    r"background|search|web|knowledge|uploaded|attached|learned|following)[ -]"
    rf"(?:base |search |pieces of )?{_MATERIAL}\b[^\n:]{{0,100}}?(?::|\bbelow|"
    rf"\b(?:found|retrieved|extracted|provided|uploaded)\b[^\n:]{{0,60}}\.){_MARKS}$"
    rf"|^(?:[^.\n]{{1,80}}\. )?{_MARKS}(?:use|using|based on|given|answer|the user has)\b"
    r"[^\n]{0,60}\b(?:following|below|provided)\b"
    rf"[^\n]{{0,30}}\b{_MATERIAL}\b.*$"
    rf"|^{_MARKS}(?:context(?: \d+)?|attachments?(?: \(\d+\))?){_MARKS}:$"
    rf"|^(?:[-=*#~]{{2,10}} ?|\[)(?:(?:(?:attached |uploaded )?{_FILE}(?: name)?(?: \d+)?:|"
    rf"(?:attached|uploaded) {_FILE}\b) ?[^\n]{{0,200}}|{_FILE} ?[-=*#~\]]{{1,10}})$"
    rf"|^#+ (?:attached|uploaded) {_FILE}$"
    r"|^\W{0,6}(?:参考|參考|已知|相关|相關|背景|引用)(?:资料|資料|信息|材料|内容)\s?[:：]"
    r"|^\W{0,6}(?:検索結果|参考情報|참고 자료|검색 결과)\s?[:：]",
    re.IGNORECASE | re.MULTILINE,
)
#: Such a line if a question is marked as one below it.
_MATERIAL_LINE = re.compile(
    rf"^{_MARKS}(?:{_MATERIAL}|informa[ctç]\w*|kontext|quellen|contexte|contesto|контекст|источники)"
    r"\b[^\n:.?!]{0,20}(?:\W{0,6}:\W{0,6}|(?<=\])|)$|^#+ context$",
    re.IGNORECASE | re.MULTILINE,
)
#: A line of a template, which tells the model what to do with passages.
_INSTRUCTION = re.compile(
    rf"{_MARKS}(?:when|if|use|using|given|based|answer|respond|reply|avoid|and answer|do not|don't|"
    rf"never|always|please|cite|you are|you must|keep|only|follow|remember|in your)\b[^?？]*"
    rf"\b(?:{_MATERIAL}|question|query|answer\w*|cit(?:e|ations?)|rules|language)\b[^?？]*"
    r"|\s*(?:[-*•]|\d+[.)])\s.*|\W*#.*|\W*|(?:\w+ )?(?:answer|context|a)\s?:\s*"
    r"|.*(?:根据|基于|使用).*(?:资料|信息|语言|上下文).*|this is an? [^?]*\bcontext\b[^?]*",
    re.IGNORECASE,
)
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
    if _is_task(before) or any(map(asks_about_chat, closing)):
        raise a_task()
    continues = any(_CONTINUE.match(text.strip()) for text in closing)
    if _asks_to_continue(before):
        before, continues = before[:-1], True
    turns: list[EarlierTurn] = []
    attached = ""
    for said in before:
        if said.speaker == "user":
            passages, text = _taken_apart(said.text)
            if not passages:
                passages, text = _below_heading(text)
            attached = passages or attached
            turns.append(EarlierTurn("user", text))
        elif said.speaker == "companion":
            attached = ""
            turns.append(EarlierTurn("companion", said.text))
    if turns[-1].speaker == "companion" and closing and not continues:
        raise a_task()  # what is asked of the model is in a message of the system
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
    if passages or (_below_heading(text)[0] and not names_task(text[:_MAX_SEARCHED_CHARS])):
        return False
    if all(said.speaker == "user" for said in spoken):
        instructions = next((said.text for said in messages if said.speaker is None), "")
        if asks_by_instructions(instructions, text):
            return True
    return asks_about_chat(text) or asks_about_chat(text.rpartition("\n\n")[2])


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
    shown, after = text[passages], _COMMENT.sub("", text[passages.stop :]).strip()
    query = _USER_QUERY.match(after)
    if query is not None:
        return shown, after[query.end() :].strip() or query[2].strip()
    if not after:  # the question is before the template
        after = _TEMPLATE.split(text[: passages.start], maxsplit=1)[0].strip()
    question = _question_in(after)
    return (shown, question) if question else ("", text)


def _passages(text: str) -> slice | None:
    """Return where passages stand in a text, from their first mark to the last that closes them."""
    start = end = -1
    for mark in _MARK.finditer(text):
        name = mark[1] or mark[2] or mark[3]
        if not (_NAMES_PASSAGE if mark[1] else _NAMES_FILE).search(name):
            continue
        if _CLOSES.search(name):
            end = mark.end()
        elif start < 0:
            start = mark.start()
    return slice(start, end) if 0 <= start < end else None


def _below_heading(text: str) -> tuple[str, str]:
    """Return passages that have no tags, and the question; no passages if there are none."""
    heading = _PASSAGE_HEADING.search(text)
    if heading is None:
        heading = _MATERIAL_LINE.search(text)
        if heading is None or _QUESTION.search(text, heading.end()) is None:
            return "", text
    before, after = text[: heading.start()].strip(), text[heading.end() :].strip()
    question = _question_in(before)
    if question:
        return text[heading.start() :], question
    labels = list(_QUESTION.finditer(after, len(after) - _MAX_SEARCHED_CHARS))
    begins = labels[-1].start() if labels else _last_paragraph(after)
    question = _question_in(after[begins:])
    if not question or begins == 0:
        return "", text
    behind = after[after.find(question, begins) + len(question) :]
    return (after[:begins] + behind).strip(), question


def _last_paragraph(text: str) -> int:
    """Return where the last paragraph begins that is no instruction; 0 if it is the first."""
    end = len(text)
    while (begins := text.rfind("\n\n", 0, end)) >= 0:
        if not all(map(_is_instruction, text[begins:end].splitlines())):
            return begins
        end = begins
    return 0


def _question_in(text: str) -> str:
    """Return the question of a template, without the instructions around it; empty without one."""
    labels = list(_QUESTION.finditer(text, max(0, len(text) - _MAX_SEARCHED_CHARS)))
    if labels:
        text = text[labels[-1].end() :]
        heading = _PASSAGE_HEADING.search(text)
        text = text[: heading.start()] if heading is not None else text
    lines = text.splitlines()
    lines = list(dropwhile(_is_instruction, lines))
    return "\n".join([*dropwhile(_is_instruction, reversed(lines))][::-1]).strip()


def _is_instruction(line: str) -> bool:
    return len(line) <= _MAX_LINE_CHARS and _INSTRUCTION.fullmatch(line) is not None
