"""Chunking: splits a document's text at its natural boundaries. Pure.

Headings, blank lines and question-answer pairs are boundaries; only a paragraph longer than a chunk
is split between sentences. Each chunk covers one topic, so that its vector represents that topic.
"""

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from foremind.llm.prompt.token_counter import estimate_tokens
from foremind.text.sentences import QUESTION_MARKS

#: Embedding models read 256 tokens, and a chunk should be short enough to quote.
MAX_CHUNK_TOKENS = 180
_TARGET_TOKENS = 110  # for the parts of a longer paragraph
_LIST_TOKENS = 60  # less, since the items of a list are hardly related
_MAX_OVERLAP_TOKENS = 40  # longest sentence that is repeated at the start of the next chunk
_HEADING = re.compile(r"(#{1,6})\s+(\S.*?)[\s#]*$")
_UNDERLINE = re.compile(r"(=+|-{3,})\s*$")
_MAX_HEADING_CHARS = 100  # a longer line is text
_HEADING_LEVELS = 2  # of headings that a chunk begins with
_LIST_ITEM = re.compile(r"\s*(?:[-*+•–]|\d{1,3}[.)])\s+\S")
_QUESTION_LABEL = re.compile(r"\W*(?:q|question)\s*\d*\s*[:.)]", re.IGNORECASE)
_QUESTION_ENDS = re.compile(rf"[{''.join(QUESTION_MARKS)}][\s*_\"'”»)」』）]*$")
_SENTENCE_ENDS = re.compile(r"[.!?…。！？؟۔][\s*_\"'”»)」』）]*$")
_MAX_LEAD_CHARS = 80  # a line up to this long without a full stop introduces the next paragraph
_MAX_QUESTION_CHARS = 300
_SENTENCE = re.compile(r".+?(?:[.!?…؟۔]+[\"'”»)]*(?=\s|$)|[。！？]+|$)\s*", re.DOTALL)
_MAX_SENTENCE_CHARS = 300  # a longer sentence is split between words


def split_into_chunks(text: str) -> list[str]:
    """Split a document into chunks, each prefixed with the headings that apply to it."""
    chunks: list[str] = []
    headings = _Headings()
    for block in _with_leads(_blocks(text.splitlines())):
        if isinstance(block, _Heading):
            chunks += headings.open(block)
        else:
            prefix = headings.prefix()
            max_tokens = MAX_CHUNK_TOKENS - estimate_tokens(prefix)
            chunks += [f"{prefix}{part}" for part in _split_paragraph(block, max_tokens)]
    return chunks + headings.open(_Heading(0, ""))


@dataclass(frozen=True, slots=True)
class _Heading:
    """A heading; level 1 is the highest."""

    level: int
    text: str


class _Headings:
    """The headings that apply at the current position."""

    def __init__(self) -> None:
        self._open: list[_Heading] = []
        self._used: set[int] = set()  # levels of open headings that are in a chunk's prefix

    def open(self, heading: _Heading) -> list[str]:
        """Open a heading; return the headings that it closes and that are in no chunk."""
        closed = [other for other in self._open if other.level >= heading.level]
        unused = [other.text for other in closed if other.level not in self._used]
        self._open = [*(other for other in self._open if other.level < heading.level), heading]
        self._used -= {other.level for other in closed} | {heading.level}
        return unused

    def prefix(self) -> str:
        """Return the prefix of the next chunk: the innermost open headings."""
        innermost = self._open[-_HEADING_LEVELS:]
        self._used |= {heading.level for heading in innermost}
        return ": ".join(heading.text for heading in innermost) + "\n" if innermost else ""


def _blocks(lines: Iterable[str]) -> Iterator[list[str] | _Heading]:
    """Yield headings, and paragraphs as lists of lines."""
    paragraph: list[str] = []
    for raw in lines:
        line = raw.strip()
        heading = _heading(line, paragraph)
        if heading is not None or not line or _starts_question(line, paragraph):
            if paragraph and not (heading is not None and _UNDERLINE.match(line)):
                yield paragraph
            paragraph = []
        if heading is not None:
            yield heading
        elif line:
            paragraph.append(line)
    if paragraph:
        yield paragraph


def _heading(line: str, paragraph: Sequence[str]) -> _Heading | None:
    """Return the heading that a line is, or that it underlines; None if it is text."""
    marked = _HEADING.match(line)
    if marked and len(marked[2]) <= _MAX_HEADING_CHARS:
        return _Heading(len(marked[1]), marked[2])
    can_be_underlined = len(paragraph) == 1 and len(paragraph[0]) <= _MAX_HEADING_CHARS
    if can_be_underlined and _UNDERLINE.match(line):
        return _Heading(1 if line.startswith("=") else 2, paragraph[0])
    return None


def _starts_question(line: str, paragraph: Sequence[str]) -> bool:
    """Return whether a line is the next of several questions without blank lines in between."""
    if not paragraph or _is_question(paragraph[-1]):
        return False
    return bool(_QUESTION_LABEL.match(line)) or (
        _is_question(line) and _SENTENCE_ENDS.search(paragraph[-1]) is not None
    )


def _is_question(line: str) -> bool:
    return bool(_QUESTION_LABEL.match(line) or _QUESTION_ENDS.search(line))


def _with_leads(blocks: Iterable[list[str] | _Heading]) -> Iterator[list[str] | _Heading]:
    """Merge a paragraph that introduces the next one, a question or a short line, into it."""
    lead: list[str] = []
    for block in blocks:
        full = sum(map(estimate_tokens, lead)) > _TARGET_TOKENS
        if lead and (isinstance(block, _Heading) or full):
            yield lead
            lead = []
        if isinstance(block, _Heading):
            yield block
        elif _is_lead(block):
            lead += block
        else:
            yield lead + block
            lead = []
    if lead:
        yield lead


def _is_lead(paragraph: Sequence[str]) -> bool:
    line = paragraph[0]
    if len(paragraph) > 1 or _LIST_ITEM.match(line):
        return False
    if _is_question(line):
        return len(line) <= _MAX_QUESTION_CHARS
    return len(line) <= _MAX_LEAD_CHARS and not _SENTENCE_ENDS.search(line)


def _split_paragraph(paragraph: Sequence[str], max_tokens: int) -> list[str]:
    """Return a paragraph whole if it fits, else in parts."""
    items = sum(_LIST_ITEM.match(line) is not None for line in paragraph)
    is_list = 2 * items > len(paragraph)
    lines = list(paragraph) if is_list else _unwrapped(paragraph)
    whole = "\n".join(lines)
    if estimate_tokens(whole) <= (_LIST_TOKENS if is_list else max_tokens):
        return [whole]
    units = [
        unit
        for line in lines
        for sentence in ([f"{line}\n"] if is_list else _SENTENCE.findall(f"{line}\n"))
        for unit in _split_sentence(sentence)
    ]
    target = _LIST_TOKENS if is_list else min(max_tokens, _TARGET_TOKENS)
    return list(_packed(units, target, 0 if is_list else _MAX_OVERLAP_TOKENS))


def _unwrapped(lines: Sequence[str]) -> list[str]:
    """Join lines that were wrapped within a sentence."""
    groups: list[list[str]] = []
    for line in lines:
        if groups and line[:1].islower() and not _SENTENCE_ENDS.search(groups[-1][-1]):
            groups[-1].append(line)
        else:
            groups.append([line])
    return [" ".join(group) for group in groups]


def _split_sentence(sentence: str) -> Iterator[str]:
    """Yield a sentence in pieces of limited length, split at spaces where there are any."""
    start = 0
    while len(sentence) - start > _MAX_SENTENCE_CHARS:
        end = sentence.rfind(" ", start, start + _MAX_SENTENCE_CHARS) + 1
        if end <= start:
            end = start + _MAX_SENTENCE_CHARS
        yield sentence[start:end]
        start = end
    yield sentence[start:]


def _packed(units: Sequence[str], target: int, max_overlap: int) -> Iterator[str]:
    """Yield parts of about `target` tokens; a short last sentence is repeated in the next part."""
    part: list[str] = []
    tokens = 0
    for unit in units:
        unit_tokens = estimate_tokens(unit)
        if part and tokens + unit_tokens > target:
            yield "".join(part).strip()
            last = part[-1]
            part = [last] if len(part) > 1 and estimate_tokens(last) <= max_overlap else []
            tokens = sum(map(estimate_tokens, part))
        part.append(unit)
        tokens += unit_tokens
    if text := "".join(part).strip():
        yield text
