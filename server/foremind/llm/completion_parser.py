"""Parses the body of a model server's response: a stream of events, or one JSON document. Pure.

Servers that cannot stream send the whole completion, some with the content type of a stream, some
as a single event at its end.
"""

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import msgspec

from foremind.domain.errors import NOT_JSON
from foremind.domain.storable_text import storable
from foremind.llm.acting import mark_of

_LINE_END = re.compile(rb"\r\n|\n|\r(?!\Z)")
_DONE = b"[DONE]"
_FAILURES = ("error", "abort")  # finish reasons of OpenRouter, and of vLLM and SGLang
_SPACE = b" \t\r\n\xef\xbb\xbf"
_MAX_TOOL_CALLS = 16  # of one reply
_FIRST_HALF = re.compile("[\ud800-\udbff]\\Z")


class ReportedError(Exception):
    """The response contains an error, `reported`, although its status was a success."""

    def __init__(self, reported: object = None) -> None:
        super().__init__()
        self.reported = reported


@dataclass(slots=True)
class StreamEnding:
    """How a response ended, as far as the server says.

    Attributes:
        done: the end was marked; without that or a reason, the response is incomplete.
        reason: the finish reason; `length` where the token limit was reached.
        reasoned: the model's reasoning was sent separately from the answer.
        written: the answer, and such reasoning, piece by piece.
        usage: the tokens of the prompt and of what was written, as far as the server counts them.
    """

    done: bool = False
    reason: str | None = None
    reasoned: bool = False
    written: list[str] = field(default_factory=list)
    usage: tuple[int | None, int | None] = (None, None)

    @property
    def cut_off(self) -> bool:
        """Whether the token limit ended the answer."""
        return self.reason == "length"


class StreamParser:
    """Extracts the text from the bytes of a response, incrementally.

    This is the door of everything that a model writes: no text leaves it that cannot be stored.
    """

    def __init__(self, ending: StreamEnding, *, has_tools: bool = False) -> None:
        """Args: has_tools: whether the model may call tools; calls are text then, as `mark_of`."""
        self._ending = ending
        self._has_tools = has_tools
        self._tools: dict[int, list[str]] = {}  # name and arguments of calls, by their number
        self._pending = b""
        self._data: list[bytes] = []
        self._is_document: bool | None = None  # unknown before the first byte
        self._has_text = False
        self._half = ""  # of a character whose other half the next event begins with

    def feed(self, received: bytes) -> Iterator[str]:
        """Yield the pieces of text that are complete now.

        Raises:
            msgspec.DecodeError, ReportedError: what follows is no completion.
        """
        self._pending += received
        if self._is_document is None:
            self._pending = self._pending.lstrip(_SPACE)
            if not self._pending:
                return
            self._is_document = self._pending[:1] == b"{"
        if self._is_document:
            return
        *lines, self._pending = _LINE_END.split(self._pending)
        for line in lines:
            yield from self._feed_line(line)

    def end(self) -> list[str]:
        """Return the remaining pieces, once all bytes were fed."""
        remainder, self._pending = self._pending, b""
        if self._is_document:
            self._ending.done = True
            return [*(self._event_texts(remainder) if remainder else []), *self._called()]
        return [
            *self._feed_line(remainder.rstrip(b"\r")),
            *self._feed_line(b""),
            *self._called(),
        ]

    def _feed_line(self, line: bytes) -> list[str]:
        if self._ending.done:
            return []
        if line.startswith(b"data:"):
            self._data.append(line[5:].strip())
            return []
        if line or not self._data:
            return []
        data, self._data = b"\n".join(self._data), []
        if data.startswith(_DONE):
            self._ending.done = True
            return self._called()
        return self._event_texts(data)

    def _event_texts(self, data: bytes) -> list[str]:
        event = _decoded(data)
        if not isinstance(event, dict):
            return []
        if error := event.get("error"):
            raise ReportedError(error)
        if isinstance(usage := event.get("usage"), dict):
            self._ending.usage = (
                _int_or_none(usage.get("prompt_tokens")),
                _int_or_none(usage.get("completion_tokens")),
            )
        choices = event.get("choices")
        valid = [choice for choice in choices if isinstance(choice, dict)] if choices else []
        texts = [text for choice in valid for text in self._choice_texts(choice)]
        if self._ending.reason is not None:
            texts += self._called()
        pieces = [text for text in map(self._storable, texts) if text]
        self._ending.written += pieces
        return pieces

    def _storable(self, text: str) -> str:
        text = self._half + text
        half = _FIRST_HALF.search(text)
        self._half = "" if half is None else half[0]
        return storable(text.removesuffix(self._half))

    def _choice_texts(self, choice: dict[str, Any]) -> list[str]:
        reason = choice.get("finish_reason")
        if reason in _FAILURES:
            raise ReportedError
        if isinstance(reason, str) and reason:  # some send an empty one until the end
            self._ending.reason = reason
        texts = [self._message_text(choice.get("delta"))]
        if not self._has_text and not texts[0]:  # later, a last event may repeat the text
            texts = [self._message_text(choice.get("message")) or _str_or_empty(choice.get("text"))]
        self._has_text |= bool(texts[0])
        return [text for text in texts if text]

    def _message_text(self, message: Any) -> str:
        if not isinstance(message, dict):
            return ""
        if reasoning := message.get("reasoning_content") or message.get("reasoning"):
            self._ending.reasoned = True
            self._ending.written.append(storable(_str_or_empty(reasoning)))
        if self._has_tools:
            self._note_calls(message.get("tool_calls"))
        content = message.get("content")
        if isinstance(content, list):  # parts: only those of type text belong to the reply
            parts = [part for part in content if isinstance(part, dict)]
            return "".join(
                _str_or_empty(part.get("text"))
                for part in parts
                if part.get("type", "text") == "text"
            )
        return _str_or_empty(content)

    def _note_calls(self, calls: Any) -> None:
        """Note calls of tools, of which parts may have arrived before."""
        for number, call in enumerate(calls if isinstance(calls, list) else []):
            if not isinstance(call, dict) or not isinstance(call.get("function"), dict):
                continue
            index, function = _int_or_none(call.get("index")), call["function"]
            index = number if index is None else index
            if index not in self._tools and len(self._tools) >= _MAX_TOOL_CALLS:
                continue
            known = self._tools.setdefault(index, ["", ""])
            known[0] += _str_or_empty(function.get("name"))
            arguments = function.get("arguments")
            if isinstance(arguments, dict):
                arguments = msgspec.json.encode(arguments).decode()
            known[1] += _str_or_empty(arguments)

    def _called(self) -> list[str]:
        """Return the calls of tools as marks, once."""
        calls, self._tools = self._tools, {}
        return [mark_of(storable(name), storable(arguments)) for name, arguments in calls.values()]


def _decoded(data: bytes) -> Any:
    """Return the value of JSON, also with halves of characters or bytes that are no UTF-8.

    Raises:
        msgspec.DecodeError: it is no JSON.
    """
    try:
        return msgspec.json.decode(data)
    except NOT_JSON as error:
        try:
            return json.loads(data.decode("utf-8", "replace"), strict=False)
        except (ValueError, RecursionError):
            raise error from None


def _int_or_none(number: Any) -> int | None:
    return number if type(number) is int else None


def _str_or_empty(text: Any) -> str:
    return text if isinstance(text, str) else ""
