"""Extracts the visible text of HTML pages. Pure."""

import re
from collections.abc import Iterator
from itertools import pairwise

from bs4 import BeautifulSoup
from bs4.element import NavigableString, PreformattedString, Tag
from bs4.exceptions import ParserRejectedMarkup

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


def html_text(body: bytes) -> str:
    """Return the visible text, one paragraph per block, with headings marked as in Markdown.

    Raises:
        ValueError: the page cannot be parsed.
    """
    try:
        page = BeautifulSoup(body, "html.parser")
    except ParserRejectedMarkup as error:
        raise ValueError(str(error)) from None
    visible = "".join(_visible_text(page))
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
