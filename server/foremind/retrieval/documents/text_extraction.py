"""Documents to text. Pure."""

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
_MOST_TEXT = 8_000_000  # characters of one document
_UNSEEN = frozenset(("script", "style", "template", "noscript"))
_LINES = {"br": "\n", "caption": "\n", "li": "\n- ", "option": "\n", "tr": "\n"}
_PARAGRAPHS = frozenset(
    {
        "address", "article", "aside", "blockquote", "body", "dd", "div", "dl", "dt", "fieldset",
        "figcaption", "figure", "footer", "form", "header", "hr", "legend", "main", "nav", "ol",
        "p", "section", "summary", "table", "tbody", "tfoot", "thead", "ul",
    }
)  # fmt: skip
_HEADINGS = {f"h{level}": "#" * level for level in range(1, 7)}
_SPACE = re.compile(r"\s+")


def text_of(body: bytes, media_type: str) -> str:
    """Return the text of a document.

    Raises:
        UnsupportedMediaType: it is of no known type.
        InvalidMessage: it cannot be read, or holds no text.
    """
    kind = media_type.partition(";")[0].strip().lower()
    try:
        if kind in ("text/plain", "text/markdown"):
            text = body.decode("utf-8")
        elif kind == "text/html":
            text = _text_of_html(body)
        elif kind == "application/pdf":
            text = _text_of_pdf(body)
        else:
            raise UnsupportedMediaType(
                f"content-type: expected one of {', '.join(MEDIA_TYPES)}", param="content-type"
            )
    except (ValueError, ParserRejectedMarkup) as error:
        raise InvalidMessage(f"body: expected {kind}: {error}", param="body") from None
    text = text.replace("\x00", "").strip()
    if not text or len(text) > _MOST_TEXT:
        raise InvalidMessage(
            f"body: expected a document with text, of at most {_MOST_TEXT} characters",
            param="body",
        )
    return text


def _text_of_pdf(body: bytes) -> str:
    try:
        return "\n".join(page.extract_text() for page in PdfReader(io.BytesIO(body)).pages)
    except Exception as error:  # pypdf stumbles over a broken file in any way there is
        raise ValueError(f"it is broken ({type(error).__name__})") from None


def _text_of_html(body: bytes) -> str:
    """Return what a reader would see, paragraph by paragraph, headings marked as in Markdown."""
    seen = "".join(_seen(BeautifulSoup(body, "html.parser")))
    lines = [" ".join(line.split()) for line in seen.splitlines()]
    return "\n".join(line for above, line in pairwise(["", *lines]) if line or above)


def _seen(page: Tag) -> Iterator[str]:
    todo: list[Tag | str] = [page]
    while todo:
        node = todo.pop()
        if not isinstance(node, Tag):
            yield _SPACE.sub(" ", node) if isinstance(node, NavigableString) else node
        elif node.name == "pre":
            yield f"\n\n{node.get_text()}\n\n"
        elif node.name not in _UNSEEN:
            before, after = _borders(node.name)
            todo.append(after)
            todo += _shown(node)
            todo.append(before)


def _borders(name: str) -> tuple[str, str]:
    if name in _HEADINGS:
        return f"\n\n{_HEADINGS[name]} ", "\n\n"
    if name in _PARAGRAPHS:
        return "\n\n", "\n\n"
    return _LINES.get(name, ""), " " if name in ("td", "th") else ""


def _shown(tag: Tag) -> list[Tag | str]:
    """Return what is in an element, the last first, but comments and declarations."""
    return [
        content
        for content in reversed(tag.contents)
        if isinstance(content, Tag)
        or (isinstance(content, NavigableString) and not isinstance(content, PreformattedString))
    ]
