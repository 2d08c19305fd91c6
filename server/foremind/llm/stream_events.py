"""Reads what a model server answers: a stream of events, or all of it as one. Pure.

Servers that cannot stream send the whole completion, some with the type of a stream, some as one
event at its end.
"""

import re
from dataclasses import dataclass
from typing import Any

import msgspec

_LINE_END = re.compile(rb"\r\n|\n|\r(?!\Z)")
_DONE = b"[DONE]"
_SPACE = b" \t\r\n\xef\xbb\xbf"


class ReportedError(Exception):
    """The server answers with an error although it said that all was well."""


@dataclass(slots=True)
class StreamEnding:
    """How an answer ended, as far as the server tells.

    Attributes:
        done: it said that this was all.
        reason: why; `length` where there were to be no more tokens.
        reasoned: it told apart from the answer what the model thought.
    """

    done: bool = False
    reason: str | None = None
    reasoned: bool = False

    @property
    def cut_off(self) -> bool:
        """True where the answer would have been longer."""
        return self.reason == "length"


class StreamParser:
    """Takes the bytes of an answer as they come and gives the text in them."""

    def __init__(self, ending: StreamEnding) -> None:
        self._ending = ending
        self._pending = b""
        self._data: list[bytes] = []
        self._whole: bool | None = None  # not known before the first byte
        self._said = False

    def feed(self, received: bytes) -> list[str]:
        """Return the pieces of text that are complete now.

        Raises:
            msgspec.DecodeError, ToldError: this is no answer.
        """
        self._pending += received
        if self._whole is None:
            self._pending = self._pending.lstrip(_SPACE)
            if not self._pending:
                return []
            self._whole = self._pending[:1] == b"{"
        if self._whole:
            return []
        *lines, self._pending = _LINE_END.split(self._pending)
        return [piece for line in lines for piece in self._line(line)]

    def end(self) -> list[str]:
        """Return what is left, once no more bytes come."""
        left, self._pending = self._pending, b""
        if self._whole:
            self._ending.done = True
            return self._read(left) if left else []
        return [*self._line(left.rstrip(b"\r")), *self._line(b"")]

    def _line(self, line: bytes) -> list[str]:
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
            return []
        return self._read(data)

    def _read(self, data: bytes) -> list[str]:
        event = msgspec.json.decode(data)
        if not isinstance(event, dict):
            return []
        if event.get("error"):
            raise ReportedError
        choices = event.get("choices")
        found = [choice for choice in choices if isinstance(choice, dict)] if choices else []
        return [text for each in found for text in self._choice(each)]

    def _choice(self, choice: dict[str, Any]) -> list[str]:
        reason = choice.get("finish_reason")
        if isinstance(reason, str):
            self._ending.reason = reason
        texts = [self._text(choice.get("delta"))]
        if not self._said and not texts[0]:  # or a last event repeats what was said
            texts = [self._text(choice.get("message")) or _plain(choice.get("text"))]
        self._said |= bool(texts[0])
        return [text for text in texts if text]

    def _text(self, message: Any) -> str:
        if not isinstance(message, dict):
            return ""
        if message.get("reasoning_content") or message.get("reasoning"):
            self._ending.reasoned = True
        content = message.get("content")
        if isinstance(content, list):  # parts: only those of type text are said
            parts = [each for each in content if isinstance(each, dict)]
            return "".join(
                _plain(part.get("text")) for part in parts if part.get("type", "text") == "text"
            )
        return _plain(content)


def _plain(text: Any) -> str:
    return text if isinstance(text, str) else ""
