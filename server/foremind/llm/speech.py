"""What a voice and a face need of a reply: its sentences as they are spoken, with emotions. Pure.

A model that is told a companion's emotions marks sentences with them: "[happy] You are back!"
Models also write (happy), *happy*, <happy> or "Happy:". A mark is no part of the reply.
"""

import re
from collections.abc import Sequence
from functools import lru_cache

from foremind.domain.turn import SpokenSentence
from foremind.text.sentences import SentenceStream

# What a mark stands between, alone or with another: "**(happy)**".
_PAIRS = {
    "(": ")", "[": "]", "<": ">", "{": "}", "*": "*", "_": "_", "（": "）", "［": "］", "【": "】",
    "《": "》",
}  # fmt: skip
_EMPHASIS = frozenset("*_")  # also of words, so that such a mark follows white space
_MAX_OPENING = 4
_COLONS = (":", "：")
# What a mark follows: the end of a sentence or line, or of *what the companion does* before it.
_END = re.compile(r"[.!?…。！？｡؟۔।]|(?=\n)")
_END_OR_ACTION = re.compile(rf"{_END.pattern}|\*")
_UNSPACED_ENDS = frozenset("。！？｡")
# What may stand between that and the mark: quotation marks, closing brackets, bullets.
_BETWEEN = frozenset("\"'“”„‟«»‘’`)]}）］】」』「『-–—•>~")
_LISTED = re.compile(r"(?:\d\.|[-–—•])\Z")  # "1. Happy: when the sun shines" labels an entry
_OPENING_QUOTE = re.compile(r"(?:\A|\s)[\"'“”„«‘]\Z|[「『]\Z")
_MAX_SPACE = 64  # characters of white space that are held back
_UNDECIDED = -1


@lru_cache(256)
def _spellings(emotions: tuple[str, ...]) -> tuple[tuple[str, str], ...]:
    """Return emotions as they are compared, the longest first, each with its name."""
    names = sorted(emotions, key=len, reverse=True)
    return tuple((name.lower(), name) for name in names)


class EmotionMarks:
    """Passes a streamed reply on without the marks of emotions, and knows where they stood.

    Apart from marks, at most the length of one is held back, and the white space before it. A
    reply of nothing but marks is passed on as it is.

    Args:
        emotions: the names that are marks, in any case; all else is text.
    """

    def __init__(self, emotions: Sequence[str]) -> None:
        self._emotions = _spellings(tuple(emotions))
        self._buffer = ""
        self._starts = True  # a mark may follow
        self._in_action = False
        # Since the last text: white space, marks with that after the last, and their emotion.
        self._space = self._marks = self._space_after = ""
        self._emotion: str | None = None
        self._passed = 0  # characters
        self._tail = ""  # of what was passed on
        self._found: list[tuple[int, str]] = []  # by the place in what was passed on

    def feed(self, piece: str) -> str:
        """Return the text that can be passed on once `piece` has arrived."""
        self._buffer += piece
        return self._advance(last=False)

    def end(self) -> str:
        """Return the text that was held back, at the end of the reply."""
        text = self._advance(last=True)
        if self._emotion is not None:
            self._found.append((self._passed, self._emotion))
        if self._marks:
            return text if self._passed else self._marks
        return text + self._space

    @property
    def first(self) -> str | None:
        """The emotion of the reply: the first that was marked."""
        return self._found[0][1] if self._found else None

    def within(self, start: int, end: int) -> str | None:
        """Return the emotion of a passage of the text: marked in it, or last before it."""
        before = next((found for found in reversed(self._found) if found[0] <= start), None)
        inside = next((found for found in self._found if start < found[0] < end), None)
        if before is None or (inside is not None and before[0] < start):
            before = inside or before
        return None if before is None else before[1]

    def _advance(self, *, last: bool) -> str:
        text = ""
        while self._buffer:
            if not self._starts:
                end = (_END_OR_ACTION if self._in_action else _END).search(self._buffer)
                text += self._pass(len(self._buffer) if end is None else end.end())
                if end is not None:
                    self._starts, self._in_action = True, self._in_action and end[0] != "*"
            elif self._buffer[0].isspace():
                text += self._hold_space()
            else:
                emotion, chars = self._mark(last=last)
                if chars == _UNDECIDED:
                    break
                if chars:
                    self._remove(chars, emotion)
                else:
                    star = self._buffer[0] == "*"
                    self._starts = self._buffer[0] in _BETWEEN or (star and self._in_action)
                    self._in_action ^= star
                    text += self._pass(1)
        return text

    def _pass(self, chars: int) -> str:
        """Take text from the buffer; return it with the white space before it."""
        text, self._buffer = self._buffer[:chars], self._buffer[chars:]
        if not text:
            return ""
        space = self._space
        if self._marks and not self._passed:
            space = ""
        elif self._marks and (space or not _OPENING_QUOTE.search(self._tail)):
            space = _wider(space, self._space_after)  # of that around a mark, one remains
        if self._emotion is not None:
            self._found.append((self._passed + len(space), self._emotion))
        self._space = self._marks = self._space_after = ""
        self._emotion = None
        self._passed += len(space) + len(text)
        self._tail = (self._tail + space + text)[-2:]
        return space + text

    def _hold_space(self) -> str:
        """Take white space from the buffer; return it if it is too much to be held back."""
        rest = self._buffer.lstrip()
        space, self._buffer = self._buffer[: len(self._buffer) - len(rest)], rest
        if self._marks:
            self._space_after = (self._space_after + space)[:_MAX_SPACE]
            return ""
        self._space += space
        if len(self._space) <= _MAX_SPACE:
            return ""
        passed, self._space = self._space, ""
        self._passed += len(passed)
        return passed

    def _remove(self, chars: int, emotion: str | None) -> None:
        """Take a mark from the buffer."""
        if self._marks:
            self._space = _wider(self._space, self._space_after)
        self._marks += self._buffer[:chars]
        self._buffer = self._buffer[chars:]
        self._space_after = ""
        self._emotion = emotion or self._emotion

    def _mark(self, *, last: bool) -> tuple[str | None, int]:
        """Return the emotion of the mark that the buffer begins with, and the mark's length.

        That is 0 if it begins with none, `_UNDECIDED` if more must arrive to tell. The closing of
        two tags has no emotion, and neither has the colon after a mark.
        """
        buffer = self._buffer
        if self._marks and not self._space_after and buffer[0] in _COLONS:
            return None, 1
        opening = _opening_of(buffer)
        spaced = not self._passed or bool(self._space + self._space_after + self._marks)
        if opening is None or not (
            spaced or self._tail[-1:] in _UNSPACED_ENDS or set(opening) - _EMPHASIS
        ):
            return None, 0
        closes = bool(opening) and buffer.startswith("/", len(opening))
        rest = buffer[len(opening) + closes :]
        name = rest[: len(self._emotions[0][0])].lower() if self._emotions else rest
        if not last and any(
            len(spelling) > len(name) and spelling.startswith(name)
            for spelling, _ in self._emotions
        ):
            return None, _UNDECIDED
        spelling, emotion = next(
            (known for known in self._emotions if name.startswith(known[0])), ("", "")
        )
        if not emotion or (not opening and _LISTED.search(self._tail)):
            return None, 0
        chars = _closing_chars(rest[len(spelling) :], opening, last=last)
        if chars > 0:
            chars += len(opening) + closes + len(spelling)
        return None if closes else emotion, chars


def _opening_of(text: str) -> str | None:
    """Return what a text begins with that may open a mark; None if that is too much."""
    chars = 0
    while chars < len(text) and text[chars] in _PAIRS:
        chars += 1
    return text[:chars] if chars <= _MAX_OPENING else None


def _closing_chars(after: str, opening: str, *, last: bool) -> int:
    """Return the length of what closes a mark after its name; 0 or `_UNDECIDED` as of a mark."""
    if not opening:  # "Happy: Hello"
        if after[:1] == "：" or (after[:1] == ":" and after[1:2].isspace()):
            return 1
        return _UNDECIDED if after in ("", ":") and not last else 0
    closing = "".join(_PAIRS[sign] for sign in reversed(opening))
    closings = [closing, *(f"{colon}{closing}" for colon in _COLONS)]
    found = next((ending for ending in closings if after.startswith(ending)), "")
    if not found and not last and any(ending.startswith(after) for ending in closings):
        return _UNDECIDED
    return len(found)


def _wider(before: str, after: str) -> str:
    """Return the white space that separates more."""
    return after if not before or after.count("\n") > before.count("\n") else before


def without_marks(text: str, emotions: Sequence[str]) -> str:
    """Return a complete text without the marks of emotions in it."""
    marks = EmotionMarks(emotions)
    return marks.feed(text) + marks.end()


class SpokenSentences:
    """The sentences of a reply, each once what follows shows that it is whole.

    Args:
        marks: know the emotions; None for none.
    """

    def __init__(self, marks: EmotionMarks | None) -> None:
        self._marks = marks
        self._stream = SentenceStream()
        self._index = 0
        self._spoken = 0  # characters

    def feed(self, piece: str) -> list[SpokenSentence]:
        """Return the sentences that are whole now."""
        return self._numbered(self._stream.feed(piece))

    def restart(self, marks: EmotionMarks | None) -> None:
        """Begin another text: what was said did not belong to the reply."""
        self._marks, self._stream, self._spoken = marks, SentenceStream(), 0

    def end(self, text: str) -> list[SpokenSentence]:
        """Return the rest of a reply that turned out to be `text`."""
        stream = SentenceStream()
        return self._numbered([*stream.feed(text[self._spoken :]), *stream.end()])

    def _numbered(self, sentences: Sequence[str]) -> list[SpokenSentence]:
        numbered = []
        for sentence in sentences:
            start, self._spoken = self._spoken, self._spoken + len(sentence)
            if sentence.strip():
                emotion = None if self._marks is None else self._marks.within(start, self._spoken)
                numbered.append(SpokenSentence(self._index, sentence.strip(), emotion))
                self._index += 1
        return numbered
