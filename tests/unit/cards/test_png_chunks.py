"""PNG files that lie about themselves are refused; nothing in them is decompressed."""

import io
import struct

import pytest
from PIL import Image

from foremind.cards import card_file
from foremind.cards.card_file import plain_png, text_chunks
from foremind.domain.errors import InvalidMessage
from tests.unit.cards.sample_cards import chunk, png

CARD = chunk(b"tEXt", b"chara\0first")


def test_the_first_chunk_of_a_keyword_counts() -> None:
    """Whatever its case; others, and text without a keyword, are ignored."""
    file = png(
        chunk(b"tEXt", b"no keyword"), chunk(b"tEXt", b"comment\0x"), CARD,
        chunk(b"tEXt", b"chara\0second"),
    )  # fmt: skip
    assert text_chunks(file, ("chara", "ccv3")) == {"chara": b"first"}


def test_what_follows_the_end_is_not_read() -> None:
    """Nor does it make a file invalid."""
    assert text_chunks(png(CARD) + b"anything", ("chara",)) == {"chara": b"first"}


@pytest.mark.parametrize(
    "file",
    [
        b"GIF89a",
        png(CARD)[:-1],
        png(CARD)[:-12],
        png(CARD).replace(b"first", b"worst"),
        png(chunk(b"tEXt", b"chara\0x", crc=0)),
        card_file.SIGNATURE + struct.pack(">I", 2**32 - 1) + b"tEXtchara\0",
        png(*[chunk(b"abCd", b"")] * card_file.MAX_CHUNKS),
    ],
    ids=["other", "cut in a chunk", "without its end", "changed", "CRC", "length", "chunks"],
)
def test_damaged_files_are_refused(file: bytes) -> None:
    """With what was expected."""
    with pytest.raises(InvalidMessage, match="card: expected"):
        text_chunks(file, ("chara",))


def test_a_written_picture_is_one() -> None:
    """By another reader of pictures, which finds the text too."""
    with Image.open(io.BytesIO(plain_png({"chara": b"dGV4dA=="}))) as picture:
        picture.load()
        assert picture.size == (400, 600)
        assert picture.info["chara"] == "dGV4dA=="
