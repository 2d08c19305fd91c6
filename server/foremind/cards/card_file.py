"""Files of character cards: JSON, PNG, APNG and CHARX, read and written within bounds. Pure.

Sources: the specifications of Character Card V1 and V2
(https://github.com/malfoyslastname/character-card-spec-v2) and V3
(https://github.com/kwaroran/character-card-spec-v3).

The text chunks of PNG and APNG files, read and written.

Source: the PNG specification, third edition (https://www.w3.org/TR/png-3/), sections 5 and 11.3.3.

CHARX files: a card and its assets in a zip archive, of which only the card is read.

Source: "CHARX" of the specification of Character Card V3. Nothing is unpacked to files.
"""

import base64
import binascii
import io
import json
import math
import re
import struct
import zipfile
import zlib
from collections.abc import Iterator, Mapping
from datetime import datetime
from typing import Any, Literal, NoReturn, get_args

from foremind.cards.card_fields import ADDED_BY_V2, check_card, is_version_3
from foremind.domain.errors import InvalidMessage, TooLarge
from foremind.domain.storable_text import check_storable, half_character

SIGNATURE = b"\x89PNG\r\n\x1a\n"
MAX_CHUNKS = 20_000  # two for each frame of an animation of more than five minutes
_MAX_KEYWORD_BYTES = 79
_WIDTH, _HEIGHT = 400, 600  # pixels of the picture that a written card has
_GREY = b"\x40"


def text_chunks(png: bytes, keywords: tuple[str, ...]) -> dict[str, bytes]:
    """Return the text of the first chunk `tEXt` of each of these keywords, as it is in the file.

    Keywords are lower-case, and match whatever the case in the file.

    Raises:
        InvalidMessage: it is not a PNG file, ends too early or is damaged.
    """
    found: dict[str, bytes] = {}
    for kind, content in _chunks(png):
        if kind == b"tEXt":
            raw_keyword, separator, text = content.partition(b"\0")
            keyword = raw_keyword[:_MAX_KEYWORD_BYTES].decode("latin-1").lower()
            if separator and keyword in keywords:
                found.setdefault(keyword, text)
    return found


def plain_png(texts: Mapping[str, bytes]) -> bytes:
    """Return a PNG file of one colour with these text chunks, by keyword."""
    header = struct.pack(">IIBBBBB", _WIDTH, _HEIGHT, 8, 0, 0, 0, 0)  # 8 bits of grey
    rows = (b"\0" + _GREY * _WIDTH) * _HEIGHT
    chunks = [
        _chunk(b"IHDR", header),
        *(_chunk(b"tEXt", name.encode("latin-1") + b"\0" + text) for name, text in texts.items()),
        _chunk(b"IDAT", zlib.compress(rows, 9)),
        _chunk(b"IEND", b""),
    ]
    return SIGNATURE + b"".join(chunks)


def _chunk(kind: bytes, content: bytes) -> bytes:
    return struct.pack(">I", len(content)) + kind + content + struct.pack(">I", _crc(kind, content))


def _crc(kind: bytes, content: bytes) -> int:
    return zlib.crc32(content, zlib.crc32(kind))


def _chunks(png: bytes) -> Iterator[tuple[bytes, bytes]]:
    """Yield the kind and content of each chunk up to the last, IEND; nothing is decompressed."""
    if not png.startswith(SIGNATURE):
        raise _damaged("a PNG file")
    position = len(SIGNATURE)
    for _ in range(MAX_CHUNKS):
        head = png[position : position + 8]
        if len(head) < 8:
            raise _damaged("a whole PNG file, which ends with a chunk IEND")
        length, kind = struct.unpack(">I4s", head)
        end = position + 8 + length
        if end + 4 > len(png):
            raise _damaged("chunks that end within the file")
        content = png[position + 8 : end]
        if struct.unpack(">I", png[end : end + 4])[0] != _crc(kind, content):
            raise _damaged("chunks whose CRC is that of their content")
        if kind == b"IEND":
            return
        yield kind, content
        position = end + 4
    raise _damaged(f"at most {MAX_CHUNKS} chunks")


def _damaged(expected: str) -> InvalidMessage:
    return InvalidMessage(f"card: expected {expected}", param="card")


CARD_NAME = "card.json"
MAX_ENTRIES = 5_000
MAX_UNPACKED_BYTES = 200_000_000  # of all entries, as they claim
_MAX_DIRECTORY_BYTES = 1_000_000  # of the list of entries, which zipfile reads as a whole
_END = b"PK\x05\x06"  # of the archive; the record of 22 bytes, and a comment, end the file
_END_BYTES = 22
_MAX_COMMENT_BYTES = 65_535
_ZIP64_LOCATOR = b"PK\x06\x07"  # 20 bytes before the end record
_METHODS = (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED)  # others need much memory, or may
_ENCRYPTED = 1
_EPOCH = datetime(1980, 1, 1)  # noqa: DTZ001 - the earliest date of a zip archive


def is_charx(file: bytes) -> bool:
    """Return whether a file is a zip archive, by its first bytes."""
    return file.startswith(b"PK\x03\x04")


def card_json(file: bytes, max_bytes: int) -> bytes:
    """Return the content of `card.json`.

    Raises:
        InvalidMessage: the archive is damaged, exceeds a bound, has unsafe names, or no card.
    """
    _check_directory(file)
    try:
        with zipfile.ZipFile(io.BytesIO(file)) as archive:
            entry = _card_entry(archive.infolist())
            if entry.file_size > max_bytes:
                raise _refused(f"{CARD_NAME} of at most {max_bytes} bytes")
            with archive.open(entry) as card:
                content = card.read(max_bytes + 1)  # it may be longer than it claims
    except (zipfile.BadZipFile, zlib.error, EOFError, ValueError, NotImplementedError) as error:
        raise _refused(f"a zip archive ({type(error).__name__})") from None
    if len(content) > max_bytes:
        raise _refused(f"{CARD_NAME} of at most {max_bytes} bytes")
    return content


def archive_of(card: bytes) -> bytes:
    """Return a CHARX file of a card without assets; of the same card, the same bytes."""
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as archive:
        entry = zipfile.ZipInfo(CARD_NAME, _EPOCH.timetuple()[:6])
        archive.writestr(entry, card, zipfile.ZIP_DEFLATED)
    return file.getvalue()


def _check_directory(file: bytes) -> None:
    """Check the size of the list of entries, before it is read."""
    end = file.rfind(_END, max(0, len(file) - _END_BYTES - _MAX_COMMENT_BYTES))
    record = file[end : end + _END_BYTES]
    if end < 0 or len(record) < _END_BYTES:
        raise _refused("a whole zip archive")
    if file[max(0, end - 20) : end].startswith(_ZIP64_LOCATOR):
        raise _refused("a zip archive without the extension ZIP64")
    if int.from_bytes(record[12:16], "little") > _MAX_DIRECTORY_BYTES:
        raise _refused(f"at most {MAX_ENTRIES} entries in the archive")


def _card_entry(entries: list[zipfile.ZipInfo]) -> zipfile.ZipInfo:
    if len(entries) > MAX_ENTRIES:
        raise _refused(f"at most {MAX_ENTRIES} entries in the archive")
    if sum(entry.file_size for entry in entries) > MAX_UNPACKED_BYTES:
        raise _refused(f"an archive of at most {MAX_UNPACKED_BYTES} bytes when unpacked")
    if any(_leaves_folder(entry.filename) for entry in entries):
        raise _refused("names of entries that stay within the archive")
    cards = [entry for entry in entries if entry.filename == CARD_NAME]
    if len(cards) != 1:
        raise _refused(f"one {CARD_NAME} in the archive")
    if cards[0].compress_type not in _METHODS or cards[0].flag_bits & _ENCRYPTED:
        raise _refused(f"{CARD_NAME} stored or deflated, and not encrypted")
    return cards[0]


def _leaves_folder(name: str) -> bool:
    """Return whether a name could be that of a file elsewhere, on any system."""
    parts = name.replace("\\", "/").split("/")
    return not parts[0] or ".." in parts or ":" in parts[0]


def _refused(expected: str) -> InvalidMessage:
    return InvalidMessage(f"card: expected {expected}", param="card")


CardFormat = Literal["json", "png", "charx"]
FORMATS: tuple[CardFormat, ...] = get_args(CardFormat)
MEDIA_TYPES: Mapping[CardFormat, str] = {
    "json": "application/json",
    "png": "image/png",
    "charx": "application/zip",
}
MAX_FILE_BYTES = 20_000_000
MAX_JSON_BYTES = 2_000_000  # of the card itself
MAX_NESTING = 64
MAX_INTEGER = 2**63 - 1
MAX_NUMBER = 1e22  # up to it, databases and languages agree on what a number is
_MAX_BASE64_CHARS = MAX_JSON_BYTES * 4 // 3 + 100_000  # with line breaks
_KEYWORDS = ("ccv3", "chara")  # the first that is there counts
_SPACE = re.compile(rb"\s+")


def read_card(file: bytes) -> dict[str, Any]:
    """Return the field `data` of a card as it is in the file, checked; a V1 card as one of V2.

    The format is known by the first bytes.

    Raises:
        TooLarge: the file or the card exceeds a bound.
        InvalidMessage: it is damaged, no card, or a field is invalid; names the field.
    """
    if len(file) > MAX_FILE_BYTES:
        raise TooLarge(f"card: expected at most {MAX_FILE_BYTES} bytes", param="card")
    if file.startswith(SIGNATURE):
        raw = _json_in_png(file)
    elif is_charx(file):
        raw = card_json(file, MAX_JSON_BYTES)
    else:
        raw = file
    data = _data_of(_decoded(raw))
    try:
        check_storable(data, "data")
    except InvalidMessage as error:
        raise half_character(raw) or error from None
    check_card(data, "data")
    if not isinstance(data.get("name"), str):
        raise InvalidMessage("data.name: expected the character's name", param="data.name")
    return data


def write_card(data: Mapping[str, Any], card_format: CardFormat) -> bytes:
    """Return a file of a card, of version 3 if it has fields of it, else of version 2.

    A PNG file has a picture of one colour, and a V3 card in it is there as one of V2 too, for
    readers that only know that.
    """
    spec = "chara_card_v3" if is_version_3(data) else "chara_card_v2"
    document = _document(data, spec)
    if card_format == "json":
        return document
    if card_format == "charx":
        return archive_of(document)
    texts = {"chara": base64.b64encode(_document(data, "chara_card_v2"))}
    if spec == "chara_card_v3":
        texts["ccv3"] = base64.b64encode(document)
    return plain_png(texts)


def _document(data: Mapping[str, Any], spec: str) -> bytes:
    version = "3.0" if spec == "chara_card_v3" else "2.0"
    document = {"spec": spec, "spec_version": version, "data": data}
    return json.dumps(document, ensure_ascii=False, indent=2).encode()


def _json_in_png(file: bytes) -> bytes:
    texts = text_chunks(file, _KEYWORDS)
    keyword = next((name for name in _KEYWORDS if name in texts), None)
    if keyword is None:
        raise InvalidMessage(
            "card: expected a picture with a text chunk ccv3 or chara", param="card"
        )
    if len(texts[keyword]) > _MAX_BASE64_CHARS:
        raise TooLarge(
            f"{keyword}: expected a card of at most {MAX_JSON_BYTES} bytes", param="card"
        )
    try:
        return base64.b64decode(_SPACE.sub(b"", texts[keyword]), validate=True)
    except binascii.Error:
        raise InvalidMessage(f"{keyword}: expected base64 of JSON", param="card") from None


def _decoded(raw: bytes) -> Any:
    """Decode JSON, and check that a database can give it back as it is."""
    if len(raw) > MAX_JSON_BYTES:
        raise TooLarge(f"card: expected JSON of at most {MAX_JSON_BYTES} bytes", param="card")
    try:
        document = json.loads(raw.decode("utf-8-sig"), parse_constant=_refuse_constant)
    except (ValueError, RecursionError):
        raise InvalidMessage(
            "card: expected JSON in UTF-8, or PNG or CHARX", param="card"
        ) from None
    _check_values(document)
    return document


def _refuse_constant(name: str) -> NoReturn:
    raise ValueError(name)  # NaN and Infinity are not JSON


def _check_values(document: object) -> None:
    """Check nesting and numbers, level by level."""
    level: list[object] = [document]
    for _ in range(MAX_NESTING):
        inner: list[object] = []
        for value in level:
            if isinstance(value, dict):
                inner += value.values()
            elif isinstance(value, list):
                inner += value
            elif isinstance(value, float | int) and not _is_exact(value):
                raise InvalidMessage("card: expected smaller numbers", param="card")
        if not inner:
            return
        level = inner
    raise InvalidMessage(f"card: expected at most {MAX_NESTING} levels of nesting", param="card")


def _is_exact(number: float) -> bool:
    if isinstance(number, int):
        return abs(number) <= MAX_INTEGER
    return math.isfinite(number) and abs(number) < MAX_NUMBER


def _data_of(document: Any) -> dict[str, Any]:
    """Return `data` of a card of any version.

    Raises:
        InvalidMessage: it is not a card.
    """
    if not isinstance(document, dict):
        raise InvalidMessage("card: expected a JSON object", param="card")
    spec = document.get("spec")
    if spec is None and "data" not in document:
        if "name" not in document:
            raise InvalidMessage("card: expected the fields of a character card", param="card")
        return {**ADDED_BY_V2, **document}
    if spec not in (None, "chara_card_v2", "chara_card_v3"):
        raise InvalidMessage("spec: expected chara_card_v2 or chara_card_v3", param="spec")
    data = document.get("data")
    if not isinstance(data, dict):
        raise InvalidMessage("data: expected an object", param="data")
    return data
