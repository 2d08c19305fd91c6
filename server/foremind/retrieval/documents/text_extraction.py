"""Extracts the text of plain, Markdown, HTML and PDF documents. Pure."""

import io
import re
from collections.abc import Iterator
from itertools import pairwise

from bs4 import BeautifulSoup
from bs4.element import NavigableString, PreformattedString, Tag
from bs4.exceptions import ParserRejectedMarkup
from pypdf import PdfReader

from foremind.domain.errors import InvalidMessage, UnsupportedMediaType

MEDIA_TYPES = ("text/plain", "text/markdown", "text/html", "application/pdf")
_MAX_TEXT_CHARS = 8_000_000
_HIDDEN_TAGS = frozenset(("script", "style", "template", "noscript"))
_LINE_PREFIXES = {"br": "\n", "caption": "\n", "li": "\n- ", "option": "\n", "tr": "\n"}
_BLOCK_TAGS = frozenset(
    {
        "address", "article", "aside", "blockquote", "body", "dd", "div", "dl", "dt", "fieldset",
        "figcaption", "figure", "footer", "form", "header", "hr", "legend", "main", "nav", "ol",
        "p", "section", "summary", "table", "tbody", "tfoot", "thead", "ul",
    }
)  # fmt: skip
_HEADINGS = {f"h{level}": "#" * level for level in range(1, 7)}
_WHITESPACE = re.compile(r"\s+")


def document_text(body: bytes, media_type: str) -> str:
    """Return the text of a document.

    Raises:
        UnsupportedMediaType: the media type is not supported.
        InvalidMessage: the document cannot be parsed, or contains no text.
    """
    base_type = media_type.partition(";")[0].strip().lower()
    try:
        if base_type in ("text/plain", "text/markdown"):
            text = body.decode("utf-8")
        elif base_type == "text/html":
            text = _html_text(body)
        elif base_type == "application/pdf":
            text = _pdf_text(body)
        else:
            raise UnsupportedMediaType(
                f"content-type: expected one of {', '.join(MEDIA_TYPES)}", param="content-type"
            )
    except (ValueError, ParserRejectedMarkup) as error:
        raise InvalidMessage(f"body: expected {base_type}: {error}", param="body") from None
    text = text.replace("\x00", "").strip()
    if not text or len(text) > _MAX_TEXT_CHARS:
        raise InvalidMessage(
            f"body: expected a document with text, of at most {_MAX_TEXT_CHARS} characters",
            param="body",
        )
    return text


def _pdf_text(body: bytes) -> str:
    try:
        return "\n".join(page.extract_text() for page in PdfReader(io.BytesIO(body)).pages)
    except Exception as error:  # pypdf raises unrelated types for a broken file
        raise ValueError(f"the file is damaged ({type(error).__name__})") from None


def _html_text(body: bytes) -> str:
    """Return the visible text, one paragraph per block, with headings marked as in Markdown."""
    visible = "".join(_visible_text(BeautifulSoup(body, "html.parser")))
    lines = [" ".join(line.split()) for line in visible.splitlines()]
    return "\n".join(line for previous, line in pairwise(["", *lines]) if line or previous)


def _visible_text(page: Tag) -> Iterator[str]:
    stack: list[Tag | str] = [page]
    while stack:
        node = stack.pop()
        if not isinstance(node, Tag):
            yield _WHITESPACE.sub(" ", node) if isinstance(node, NavigableString) else node
        elif node.name == "pre":
            yield f"\n\n{node.get_text()}\n\n"
        elif node.name not in _HIDDEN_TAGS:
            before, after = _separators(node.name)
            stack.append(after)
            stack += _reversed_children(node)
            stack.append(before)


def _separators(name: str) -> tuple[str, str]:
    """Return the text before and after an element."""
    if name in _HEADINGS:
        return f"\n\n{_HEADINGS[name]} ", "\n\n"
    if name in _BLOCK_TAGS:
        return "\n\n", "\n\n"
    return _LINE_PREFIXES.get(name, ""), " " if name in ("td", "th") else ""


def _reversed_children(tag: Tag) -> list[Tag | str]:
    """Return the children of an element, last first, without comments and declarations."""
    return [
        content
        for content in reversed(tag.contents)
        if isinstance(content, Tag)
        or (isinstance(content, NavigableString) and not isinstance(content, PreformattedString))
    ]
