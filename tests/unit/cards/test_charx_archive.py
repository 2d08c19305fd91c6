"""Zip bombs and unsafe archives are refused before they cost anything."""

import struct
import zipfile

import pytest

from foremind.cards import card_file
from foremind.cards.card_file import archive_of, card_json
from foremind.domain.errors import InvalidMessage
from tests.unit.cards.sample_cards import charx

GOOD = charx({"card.json": b"{}", "assets/a.png": b"x"})
_LIMIT = 1000


def with_directory_field(file: bytes, offset: int, value: bytes) -> bytes:
    """An archive whose list of entries says something else of the first one."""
    start = file.index(b"PK\x01\x02") + offset
    return file[:start] + value + file[start + len(value) :]


def with_end_field(file: bytes, offset: int, value: bytes) -> bytes:
    """An archive whose last record says something else."""
    start = file.rindex(b"PK\x05\x06") + offset
    return file[:start] + value + file[start + len(value) :]


def test_the_card_is_read() -> None:
    """Stored or deflated, also in an archive with a comment."""
    assert card_json(GOOD, _LIMIT) == b"{}"
    assert card_json(charx({"card.json": b"{}"}, zipfile.ZIP_STORED), _LIMIT) == b"{}"
    assert card_json(with_end_field(GOOD, 20, b"\x03\x00") + b"abc", _LIMIT) == b"{}"
    assert card_json(archive_of(b"{}"), _LIMIT) == b"{}"


def test_a_card_behind_a_picture_is_read() -> None:
    """As RisuAI writes it: the archive follows a JPEG."""
    picture = b"\xff\xd8\xff\xe0\x00\x10JFIF\x00\xff\xd9"
    file = picture + archive_of(b'{"spec": "chara_card_v3", "data": {"name": "Mara"}}')
    assert card_file.read_card(file).data == {"name": "Mara"}
    with pytest.raises(InvalidMessage):
        card_file.read_card(picture)


def test_the_same_card_makes_the_same_archive() -> None:
    """Without the time of day."""
    assert archive_of(b"{}") == archive_of(b"{}")


@pytest.mark.parametrize(
    "file",
    [
        b"PK\x03\x04",
        GOOD[:-1],
        GOOD[30:],
        charx({"other.json": b"{}"}),
        charx({"Card.json": b"{}"}),
        charx({"card.json": b"x" * (_LIMIT + 1)}),
        charx({"card.json": b"{}"}, zipfile.ZIP_LZMA),
        charx({"card.json": b"{}"}, zipfile.ZIP_BZIP2),
        charx({f"{number}.png": b"" for number in range(card_file.MAX_ENTRIES + 1)}),
        charx({"card.json": b"{}", "../x": b""}),
        charx({"card.json": b"{}", "/etc/x": b""}),
        charx({"card.json": b"{}", "a\\..\\..\\x": b""}),
        charx({"card.json": b"{}", "C:/x": b""}),
        with_directory_field(GOOD, 8, b"\x01\x00"),
        with_directory_field(GOOD, 24, struct.pack("<I", card_file.MAX_UNPACKED_BYTES + 1)),
        with_directory_field(GOOD, 16, b"\0\0\0\0"),
        with_end_field(GOOD, 12, struct.pack("<I", 2**31)),
        with_end_field(GOOD, 16, struct.pack("<I", 2**31)),
        GOOD[:-22] + b"PK\x06\x07" + bytes(16) + GOOD[-22:],
    ],
    ids=[
        "only the start", "cut", "without the start", "no card", "another case", "large card",
        "LZMA", "bzip2", "entries", "parent folder", "root", "backslashes", "drive", "encrypted",
        "unpacked size", "checksum", "size of the directory", "place of the directory", "ZIP64",
    ],
)  # fmt: skip
def test_unsafe_archives_are_refused(file: bytes) -> None:
    """With what was expected."""
    with pytest.raises(InvalidMessage, match="card: expected"):
        card_json(file, _LIMIT)


def test_a_card_that_claims_to_be_small_is_not_unpacked_further() -> None:
    """Of a megabyte of zeros that claims to be ten bytes, no more than that is unpacked."""
    bomb = charx({"card.json": bytes(1_000_000)})
    with pytest.raises(InvalidMessage):
        card_json(with_directory_field(bomb, 24, struct.pack("<I", 10)), _LIMIT)


def test_two_cards_are_one_too_many() -> None:
    """Readers would differ on which one counts."""
    twice = charx({"card.json": b"{}", "carD.json": b"[]"}).replace(b"carD.json", b"card.json")
    with pytest.raises(InvalidMessage, match=r"one card\.json"):
        card_json(twice, _LIMIT)
