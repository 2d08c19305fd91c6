"""Documents to text, and text to chunks. Pure."""

import io
import re

from bs4 import BeautifulSoup
from bs4.exceptions import ParserRejectedMarkup
from pypdf import PdfReader

from foremind.errors import InvalidMessage, UnsupportedMediaType
from foremind.layers.tokens import estimate_tokens

MEDIA_TYPES = ("text/plain", "text/markdown", "text/html", "application/pdf")
CHUNK_TOKENS = 800
OVERLAP_TOKENS = 400
_PIECE_TOKENS = 180  # an embedding model reads 256; a passage should still be short to quote
_MOST_TEXT = 8_000_000  # characters of one document
_UNIT = re.compile(r"[^.!?\n]*(?:[.!?]+|\n|$)\s*")
_MOST_UNIT_CHARS = 600  # a line without a full stop is cut


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


def chunks_of(text: str) -> list[str]:
    """Return chunks of about 800 tokens, each sharing about 400 with the one before."""
    return _windows(text, CHUNK_TOKENS, OVERLAP_TOKENS)


def pieces_of(chunk: str) -> list[str]:
    """Return the pieces of a chunk that an embedding model can read whole."""
    return _windows(chunk, _PIECE_TOKENS, 0)


def _windows(text: str, size: int, overlap: int) -> list[str]:
    units = [
        found[start : start + _MOST_UNIT_CHARS]
        for found in _UNIT.findall(text)
        for start in range(0, len(found), _MOST_UNIT_CHARS)
    ]
    costs = [estimate_tokens(each) for each in units]
    windows: list[str] = []
    start = 0
    while start < len(units):
        end, used = start, 0
        while end < len(units) and (end == start or used + costs[end] <= size):
            used += costs[end]
            end += 1
        windows.append("".join(units[start:end]).strip())
        if end == len(units):
            break
        shared = 0
        begin = end
        while begin - 1 > start and shared + costs[begin - 1] <= overlap:
            begin -= 1
            shared += costs[begin]
        start = begin
    return [each for each in windows if each]


def _text_of_pdf(body: bytes) -> str:
    try:
        return "\n".join(page.extract_text() for page in PdfReader(io.BytesIO(body)).pages)
    except Exception as error:  # pypdf stumbles over a broken file in any way there is
        raise ValueError(f"it is broken ({type(error).__name__})") from None


def _text_of_html(body: bytes) -> str:
    page = BeautifulSoup(body, "html.parser")
    for hidden in page(["script", "style", "template", "noscript"]):
        hidden.decompose()
    return page.get_text("\n", strip=True)
