"""The text chunks of PNG files, also of damaged ones."""

import io
import struct

import pytest
from PIL import Image

from foremind.cards import card_file
from foremind.cards.card_file import plain_png, text_chunks
from foremind.domain.companion import Notice
from foremind.domain.errors import InvalidMessage
from tests.unit.cards.sample_cards import chunk, png

CARD = chunk(b"tEXt", b"chara\0first")


def test_the_chunks_of_a_keyword_are_found() -> None:
    """Whatever its case; others, and text without a keyword, are ignored."""
    file = png(
        chunk(b"tEXt", b"no keyword"), chunk(b"tEXt", b"comment\0x"), CARD,
        chunk(b"tEXt", b"chara\0second"),
    )  # fmt: skip
    assert text_chunks(file, ("chara", "ccv3"), []) == {"chara": [b"first", b"second"]}


def test_what_follows_the_end_is_not_read() -> None:
    """Nor does it make a file invalid."""
    assert text_chunks(png(CARD) + b"anything", ("chara",), []) == {"chara": [b"first"]}


@pytest.mark.parametrize(
    ("file", "found"),
    [
        (png(CARD)[:-1], [b"first"]),
        (png(CARD)[:-12], [b"first"]),
        (png(CARD).replace(b"first", b"worst"), [b"worst"]),
        (png(chunk(b"tEXt", b"chara\0x", crc=0)), [b"x"]),
        (card_file.SIGNATURE + struct.pack(">I", 2**32 - 1) + b"tEXtchara\0", None),
    ],
    ids=["cut in a chunk", "without its end", "changed", "CRC", "length"],
)
def test_damaged_files_are_read_as_far_as_they_go(file: bytes, found: list[bytes] | None) -> None:
    """And said to be damaged."""
    notices: list[Notice] = []
    assert text_chunks(file, ("chara",), notices).get("chara") == found
    assert [notice.field for notice in notices] == ["card"]


@pytest.mark.parametrize(
    "file", [b"GIF89a", png(*[chunk(b"abCd", b"")] * card_file.MAX_CHUNKS)], ids=["other", "chunks"]
)
def test_other_files_are_refused(file: bytes) -> None:
    """With what was expected."""
    with pytest.raises(InvalidMessage, match="card: expected"):
        text_chunks(file, ("chara",), [])


def test_a_written_picture_is_one() -> None:
    """By another reader of pictures, which finds the text too."""
    with Image.open(io.BytesIO(plain_png({"chara": b"dGV4dA=="}))) as picture:
        picture.load()
        assert picture.size == (400, 600)
        assert picture.info["chara"] == "dGV4dA=="
