"""Text extraction from documents."""

import io

import pytest
from pypdf import PdfWriter

from foremind.domain.errors import InvalidMessage, RequestError
from foremind.retrieval.documents.text_extraction import document_text


def test_html_is_read_without_its_scripts() -> None:
    """Only visible text is extracted."""
    page = b"<html><head><style>p{}</style></head><p>Pier nine.</p><script>x()</script></html>"
    assert document_text(page, "text/html; charset=utf-8") == "Pier nine."


@pytest.mark.parametrize(
    ("body", "media_type", "param"),
    [
        (b"x", "image/png", "content-type"),
        (b"\xff\xfe", "text/plain", "body"),
        (b"not a pdf", "application/pdf", "body"),
        (b"  ", "text/plain", "body"),
    ],
)
def test_errors_name_the_invalid_parameter(body: bytes, media_type: str, param: str) -> None:
    """The media type or the body."""
    with pytest.raises(RequestError) as caught:
        document_text(body, media_type)
    assert caught.value.param == param


def test_a_pdf_without_text_is_rejected() -> None:
    """Such as a scan."""
    out = io.BytesIO()
    writer = PdfWriter()
    writer.add_blank_page(100, 100)
    writer.write(out)
    with pytest.raises(InvalidMessage, match="with text"):
        document_text(out.getvalue(), "application/pdf")


def test_html_structure_is_preserved() -> None:
    """Headings, paragraphs, list items and table rows are separated; inline elements are not."""
    page = (
        b"<h2>Night\n <b>ferry</b></h2><p>It leaves\n<i>pier nine</i>.</p><!-- no -->"
        b"<ul><li>Dogs</li><li>Cats</li></ul><table><tr><td>ten</td><td>one</td></tr></table>"
        b"<pre>as\nis</pre>"
    )
    assert document_text(page, "text/html").split("\n\n") == [
        "## Night ferry", "It leaves pier nine.", "- Dogs\n- Cats", "ten one", "as\nis",
    ]  # fmt: skip
