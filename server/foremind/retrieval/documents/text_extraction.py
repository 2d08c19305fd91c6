"""Extracts the text of plain, Markdown, HTML and PDF documents. Pure.

As a program, it reads a document and writes its text; the argument is its media type. A server has
documents read like that.
"""

import io
import sys
from typing import IO

from foremind.domain.errors import InvalidMessage, UnsupportedMediaType
from foremind.runtime.reader_process import serve_reading

MEDIA_TYPES = ("text/plain", "text/markdown", "text/html", "application/pdf")
_MAX_TEXT_CHARS = 8_000_000


def document_text(body: bytes, media_type: str) -> str:
    """Return the text of a document.

    Raises:
        UnsupportedMediaType: the media type is not supported.
        InvalidMessage: the document cannot be parsed, or contains no text.
    """
    base_type = check_media_type(media_type)
    try:
        if base_type in ("text/plain", "text/markdown"):
            text = body.decode("utf-8")
        elif base_type == "text/html":
            from foremind.retrieval.documents.html_text import html_text  # noqa: PLC0415 - is slow

            text = html_text(body)
        else:
            text = _pdf_text(body)
    except ValueError as error:
        raise InvalidMessage(f"body: expected {base_type}: {error}", param="body") from None
    text = text.replace("\x00", "").strip()
    if not text or len(text) > _MAX_TEXT_CHARS:
        raise InvalidMessage(
            f"body: expected a document with text, of at most {_MAX_TEXT_CHARS} characters",
            param="body",
        )
    return text


def check_media_type(media_type: str) -> str:
    """Return a media type without its parameters.

    Raises:
        UnsupportedMediaType: it is not supported.
    """
    base_type = media_type.partition(";")[0].strip().lower()
    if base_type not in MEDIA_TYPES:
        raise UnsupportedMediaType(
            f"content-type: expected one of {', '.join(MEDIA_TYPES)}", param="content-type"
        )
    return base_type


def _pdf_text(body: bytes) -> str:
    from pypdf import PdfReader  # noqa: PLC0415 - takes a quarter second

    try:
        return "\n".join(page.extract_text() for page in PdfReader(io.BytesIO(body)).pages)
    except Exception as error:  # pypdf raises unrelated types for a broken file
        raise ValueError(f"the file is damaged ({type(error).__name__})") from None


def main(media_type: str) -> None:
    """Read a document, and write its text."""

    def read(source: IO[bytes], written: IO[bytes]) -> None:
        written.write(document_text(source.read(), media_type).encode())

    serve_reading(read)


if __name__ == "__main__":
    main(sys.argv[1])
