"""Extracts the text of plain, Markdown, HTML and PDF documents. Pure.

The parsers are imported when the first document of their kind is read: they take half a second of
every start, and many servers never need them.
"""

import io

from foremind.domain.errors import InvalidMessage, UnsupportedMediaType

MEDIA_TYPES = ("text/plain", "text/markdown", "text/html", "application/pdf")
_MAX_TEXT_CHARS = 8_000_000


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
            from foremind.retrieval.documents.html_text import html_text  # noqa: PLC0415 - is slow

            text = html_text(body)
        elif base_type == "application/pdf":
            text = _pdf_text(body)
        else:
            raise UnsupportedMediaType(
                f"content-type: expected one of {', '.join(MEDIA_TYPES)}", param="content-type"
            )
    except ValueError as error:
        raise InvalidMessage(f"body: expected {base_type}: {error}", param="body") from None
    text = text.replace("\x00", "").strip()
    if not text or len(text) > _MAX_TEXT_CHARS:
        raise InvalidMessage(
            f"body: expected a document with text, of at most {_MAX_TEXT_CHARS} characters",
            param="body",
        )
    return text


def _pdf_text(body: bytes) -> str:
    from pypdf import PdfReader  # noqa: PLC0415 - takes a quarter second

    try:
        return "\n".join(page.extract_text() for page in PdfReader(io.BytesIO(body)).pages)
    except Exception as error:  # pypdf raises unrelated types for a broken file
        raise ValueError(f"the file is damaged ({type(error).__name__})") from None
