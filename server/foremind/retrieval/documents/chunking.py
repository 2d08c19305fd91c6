"""A document's text to passages, cut where a reader would cut it. Pure.

Headings, blank lines, and questions with their answers are borders; only what is longer than a
passage is cut between sentences. Each passage says one thing, so that its vector is of that thing.
"""

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise

from foremind.llm.prompt.token_counter import estimate_tokens

#: An embedding model reads 256, and a passage should be short to quote.
PASSAGE_TOKENS = 180
_AIM_TOKENS = 110  # where a longer text is cut anyway
_LIST_TOKENS = 60  # entries of a list have little to do with each other
_SHARED_TOKENS = 40  # a sentence as short as this stands in both parts of a text that is cut
_HEADING = re.compile(r"(#{1,6})\s+(\S.*?)[\s#]*$")
_UNDERLINE = re.compile(r"(=+|-{3,})\s*$")
_MOST_HEADING_CHARS = 100  # what is longer is text
_LEVELS = 2  # of headings that a passage begins with
_ENTRY = re.compile(r"\s*(?:[-*+•–]|\d{1,3}[.)])\s+\S")
_ASKED = re.compile(r"\W*(?:q|question)\s*\d*\s*[:.)]", re.IGNORECASE)
_QUESTION_ENDS = re.compile(r"\?[\s*_\"'”»)]*$")
_SENTENCE_ENDS = re.compile(r"[.!?…][\s*_\"'”»)]*$")
_MOST_LEAD_CHARS = 80  # a line as short as this that ends without a full stop leads to the next
_MOST_QUESTION_CHARS = 300
_SENTENCE = re.compile(r".+?(?:[.!?…]+[\"'”»)]*(?=\s|$)|[。！？]+|$)\s*", re.DOTALL)
_TELLING_CHARS = 40  # at its beginning tell where a chunk goes on from the one before
_MOST_SENTENCE_CHARS = 300  # a sentence without an end is cut between words


def passages_of(text: str) -> list[str]:
    """Return the passages of a document, each below the headings under which it stands."""
    found: list[str] = []
    headings = _Headings()
    for block in _led(_blocks(text.splitlines())):
        if isinstance(block, _Heading):
            found += headings.open(block)
        else:
            above = headings.above()
            room = PASSAGE_TOKENS - estimate_tokens(above)
            found += [f"{above}{part}" for part in _parts(block, room)]
    return found + headings.open(_Heading(0, ""))


def joined(chunks: Sequence[str]) -> str:
    """Return the text of which chunks were cut that each begin with the end of the one before."""
    parts = list(chunks[:1])
    for before, chunk in pairwise(chunks):
        shared = _shared(before, chunk)
        parts.append(chunk[shared:] if shared else f"\n\n{chunk}")
    return "".join(parts)


def _shared(before: str, after: str) -> int:
    """Return how many characters at the end of one text the other begins with."""
    start = before.find(after[:_TELLING_CHARS]) if after else -1
    while start >= 0:
        if after.startswith(before[start:]):
            return len(before) - start
        start = before.find(after[:_TELLING_CHARS], start + 1)
    return 0


@dataclass(frozen=True, slots=True)
class _Heading:
    """A heading; level 1 is the highest."""

    level: int
    text: str


class _Headings:
    """The headings under which a text stands."""

    def __init__(self) -> None:
        self._open: list[_Heading] = []
        self._shown: set[int] = set()  # of those, the levels that a passage began with

    def open(self, heading: _Heading) -> list[str]:
        """Go on below a heading; return those that this ends and that no passage showed."""
        ended = [each for each in self._open if each.level >= heading.level]
        unshown = [each.text for each in ended if each.level not in self._shown]
        self._open = [*(each for each in self._open if each.level < heading.level), heading]
        self._shown -= {each.level for each in ended} | {heading.level}
        return unshown

    def above(self) -> str:
        """Return what a passage begins with."""
        shown = self._open[-_LEVELS:]
        self._shown |= {each.level for each in shown}
        return ": ".join(each.text for each in shown) + "\n" if shown else ""


def _blocks(lines: Iterable[str]) -> Iterator[list[str] | _Heading]:
    """Return paragraphs as their lines, and headings."""
    block: list[str] = []
    for raw in lines:
        line = raw.strip()
        heading = _heading(line, block)
        if heading is not None or not line or _asks_anew(line, block):
            if block and not (heading is not None and _UNDERLINE.match(line)):
                yield block
            block = []
        if heading is not None:
            yield heading
        elif line:
            block.append(line)
    if block:
        yield block


def _heading(line: str, before: Sequence[str]) -> _Heading | None:
    marked = _HEADING.match(line)
    if marked and len(marked[2]) <= _MOST_HEADING_CHARS:
        return _Heading(len(marked[1]), marked[2])
    underlined = len(before) == 1 and len(before[0]) <= _MOST_HEADING_CHARS
    if underlined and _UNDERLINE.match(line):
        return _Heading(1 if line.startswith("=") else 2, before[0])
    return None


def _asks_anew(line: str, block: Sequence[str]) -> bool:
    """Tell whether a line is the next of several questions that stand without blank lines."""
    if not block or _asks(block[-1]):
        return False
    return bool(_ASKED.match(line)) or (
        _asks(line) and _SENTENCE_ENDS.search(block[-1]) is not None
    )


def _asks(line: str) -> bool:
    return bool(_ASKED.match(line) or _QUESTION_ENDS.search(line))


def _led(blocks: Iterable[list[str] | _Heading]) -> Iterator[list[str] | _Heading]:
    """Put what leads to the next paragraph, a question or a short line, before it."""
    lead: list[str] = []
    for block in blocks:
        full = sum(map(estimate_tokens, lead)) > _AIM_TOKENS
        if lead and (isinstance(block, _Heading) or full):
            yield lead
            lead = []
        if isinstance(block, _Heading):
            yield block
        elif _leads(block):
            lead += block
        else:
            yield lead + block
            lead = []
    if lead:
        yield lead


def _leads(block: Sequence[str]) -> bool:
    line = block[0]
    if len(block) > 1 or _ENTRY.match(line):
        return False
    if _asks(line):
        return len(line) <= _MOST_QUESTION_CHARS
    return len(line) <= _MOST_LEAD_CHARS and not _SENTENCE_ENDS.search(line)


def _parts(block: Sequence[str], room: int) -> list[str]:
    """Return a paragraph whole where there is room, else in parts."""
    entries = sum(_ENTRY.match(line) is not None for line in block)
    is_list = 2 * entries > len(block)
    lines = list(block) if is_list else _unwrapped(block)
    whole = "\n".join(lines)
    cost = estimate_tokens(whole)
    if cost <= (_LIST_TOKENS if is_list else room):
        return [whole]
    units = [
        unit
        for line in lines
        for found in ([f"{line}\n"] if is_list else _SENTENCE.findall(f"{line}\n"))
        for unit in _short(found)
    ]
    aim = _LIST_TOKENS if is_list else min(room, _AIM_TOKENS)
    return list(_filled(units, aim, 0 if is_list else _SHARED_TOKENS))


def _unwrapped(lines: Sequence[str]) -> list[str]:
    """Join lines that were broken in the middle of a sentence."""
    joined: list[list[str]] = []
    for line in lines:
        if joined and line[:1].islower() and not _SENTENCE_ENDS.search(joined[-1][-1]):
            joined[-1].append(line)
        else:
            joined.append([line])
    return [" ".join(each) for each in joined]


def _short(sentence: str) -> Iterator[str]:
    start = 0
    while len(sentence) - start > _MOST_SENTENCE_CHARS:
        end = sentence.rfind(" ", start, start + _MOST_SENTENCE_CHARS) + 1
        if end <= start:
            end = start + _MOST_SENTENCE_CHARS
        yield sentence[start:end]
        start = end
    yield sentence[start:]


def _filled(units: Sequence[str], aim: int, shared: int) -> Iterator[str]:
    """Return parts of about `aim` tokens; a short sentence at a border stands in both."""
    part: list[str] = []
    used = 0
    for unit in units:
        cost = estimate_tokens(unit)
        if part and used + cost > aim:
            yield "".join(part).strip()
            last = part[-1]
            part = [last] if len(part) > 1 and estimate_tokens(last) <= shared else []
            used = sum(map(estimate_tokens, part))
        part.append(unit)
        used += cost
    if text := "".join(part).strip():
        yield text
