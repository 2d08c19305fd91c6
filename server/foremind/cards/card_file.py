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
from typing import Any, Literal, NamedTuple, get_args

from foremind.cards.card_fields import (
    ADDED_BY_V2,
    NAMES,
    OLD_NAMES,
    TEXTS,
    card_of_agnai,
    is_version_3,
    mended_card,
    renamed_fields,
)
from foremind.domain.companion import Notice
from foremind.domain.errors import InvalidMessage, RequestError, TooLarge
from foremind.domain.storable_text import MAX_PATH_CHARS, storable

SIGNATURE = b"\x89PNG\r\n\x1a\n"
MAX_CHUNKS = 20_000  # two for each frame of an animation of more than five minutes
_MAX_KEYWORD_BYTES = 79
_TEXT_KINDS = frozenset({b"tEXt", b"zTXt", b"iTXt"})
_WIDTH, _HEIGHT = 400, 600  # pixels of the picture that a written card has
_GREY = b"\x40"


def text_chunks(
    png: bytes, keywords: tuple[str, ...], notices: list[Notice]
) -> dict[str, list[bytes]]:
    """Return the texts of all chunks of each of these keywords, as they are in the file.

    Keywords are lower-case, and match whatever the case in the file. A file that is damaged is read
    as far as it goes; `notices` are added to.

    Raises:
        InvalidMessage: it is not a PNG file, or has too many chunks.
    """
    found: dict[str, list[bytes]] = {}
    for kind, content in _chunks(png, notices):
        raw_keyword, separator, text = content.partition(b"\0")
        keyword = raw_keyword[:_MAX_KEYWORD_BYTES].decode("latin-1").lower()
        if kind in _TEXT_KINDS and separator and keyword in keywords:
            found.setdefault(keyword, []).append(_unpacked(kind, text))
    return found


def _unpacked(kind: bytes, text: bytes) -> bytes:
    """Return the text of a chunk without what stands before it; empty if that is damaged."""
    compressed = kind == b"zTXt"
    if kind == b"zTXt":
        text = text[1:]  # the method, of which there is one
    elif kind == b"iTXt":
        compressed = text[:1] == b"\x01"
        text = text[2:].split(b"\0", 2)[-1]  # after the language and the translated keyword
    if not compressed:
        return text
    try:
        return zlib.decompressobj().decompress(text, _MAX_BASE64_CHARS + 1)
    except zlib.error:
        return b""


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


def _chunks(png: bytes, notices: list[Notice]) -> Iterator[tuple[bytes, bytes]]:
    """Yield the kind and content of each chunk up to the last, IEND, or to where the file ends."""
    if not png.startswith(SIGNATURE):
        raise _refused("a PNG file")
    position = len(SIGNATURE)
    sound = True
    for _ in range(MAX_CHUNKS):
        head = png[position : position + 8]
        length, kind = struct.unpack(">I4s", head) if len(head) == 8 else (0, b"")
        end = position + 8 + length
        if len(head) < 8 or end > len(png):
            notices.append(Notice("card", "the picture ends too early: read as far as it goes"))
            return
        content = png[position + 8 : end]
        if sound and png[end : end + 4] != struct.pack(">I", _crc(kind, content)):
            sound = False
            notices.append(Notice("card", "the picture has a wrong checksum: read nevertheless"))
        if kind == b"IEND":
            return
        yield kind, content
        position = end + 4
    raise _refused(f"at most {MAX_CHUNKS} chunks")


CARD_NAME = "card.json"
MAX_ENTRIES = 5_000
MAX_UNPACKED_BYTES = 200_000_000  # of all entries, as they claim
_MAX_DIRECTORY_BYTES = 1_000_000  # of the list of entries, which zipfile reads as a whole
_END = b"PK\x05\x06"  # of the archive; the record of 22 bytes, and a comment, end the file
_END_BYTES = 22
_MAX_COMMENT_BYTES = 65_535
_JPEG = b"\xff\xd8\xff"
_ZIP64_LOCATOR = b"PK\x06\x07"  # 20 bytes before the end record
_METHODS = (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED)  # others need much memory, or may
_ENCRYPTED = 1
_EPOCH = datetime(1980, 1, 1)  # noqa: DTZ001 - the earliest date of a zip archive


def is_charx(file: bytes) -> bool:
    """Return whether a file is a zip archive, by its first bytes: RisuAI's may follow a JPEG."""
    return file.startswith(b"PK\x03\x04") or (file.startswith(_JPEG) and _END in file[-_END_BYTES:])


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
_URL_SAFE = bytes.maketrans(b"-_", b"+/")
_MAX_DIGITS = 20  # of a whole number; what is longer exceeds MAX_INTEGER
MAX_NOTICES = 100  # on one card
#: What makes an object a card, and what stands around `data`.
_FIELDS = frozenset({*NAMES, *TEXTS, *OLD_NAMES})
_ENVELOPE = frozenset({"spec", "spec_version", "data"})


class ReadCard(NamedTuple):
    """The field `data` of a card, and what was mended in it.

    Of a lorebook that is in a file by itself, it has only `character_book`.
    """

    data: dict[str, Any]
    notices: list[Notice]

    @property
    def is_lorebook(self) -> bool:
        """Whether the file has a lorebook by itself, of whichever program."""
        return self.data.keys() == {"character_book"}


def read_card(file: bytes, slug: str | None = None) -> ReadCard:
    """Return the field `data` of a card as it is in the file; a V1 card as one of V2.

    The format is known by the first bytes. What is not as the specifications say is read as far as
    it can be. A card without a name gets the slug for one.

    Raises:
        TooLarge: the file or the card exceeds a bound.
        InvalidMessage: there is no card in it, or a field is too long; names the field.
    """
    if len(file) > MAX_FILE_BYTES:
        raise TooLarge(f"card: expected at most {MAX_FILE_BYTES} bytes", param="card")
    if file.startswith(SIGNATURE):
        return _card_in_png(file, slug)
    return _card_in_json(card_json(file, MAX_JSON_BYTES) if is_charx(file) else file, slug)


def _card_in_json(raw: bytes, slug: str | None) -> ReadCard:
    notices: list[Notice] = []
    document = _storable(_decoded(raw, notices), "", notices)
    if _is_lorebook(document):
        return ReadCard({"character_book": document}, notices[:MAX_NOTICES])
    data = mended_card(_data_of(document, notices), "data", notices)
    if not (data.get("name") or "").strip():
        names = (document.get("name"), data.get("nickname"), slug)
        name = next((name for name in names if isinstance(name, str) and name.strip()), None)
        if name is None:
            raise InvalidMessage(
                "data.name: expected the character's name, or a slug in its place",
                param="data.name",
            )
        data["name"] = name
        notices.append(Notice("name", "there is none: another was taken"))
    return ReadCard(data, notices[:MAX_NOTICES])


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


def _card_in_png(file: bytes, slug: str | None) -> ReadCard:
    """Return the first card of a picture that is sound; the others are for other readers."""
    notices: list[Notice] = []
    texts = text_chunks(file, _KEYWORDS, notices)
    refused: RequestError | None = None
    for keyword in _KEYWORDS:
        for text in texts.get(keyword, ()):
            try:
                card = _card_in_json(_json_in_text(text, keyword), slug)
            except RequestError as error:
                refused = refused or error
                notices.append(Notice("card", f"what is in {keyword} is damaged: passed over"))
            else:
                return ReadCard(card.data, [*notices, *card.notices][:MAX_NOTICES])
    raise refused or InvalidMessage(
        "card: expected a picture with a text chunk ccv3 or chara", param="card"
    )


def _json_in_text(text: bytes, keyword: str) -> bytes:
    """Return the JSON of a text chunk, which is in base64, or as it is."""
    if len(text) > _MAX_BASE64_CHARS:
        raise TooLarge(
            f"{keyword}: expected a card of at most {MAX_JSON_BYTES} bytes", param="card"
        )
    if text.lstrip(b"\xef\xbb\xbf \t\r\n").startswith(b"{"):
        return text
    packed = _SPACE.sub(b"", text).rpartition(b"base64,")[2].rstrip(b"=\0")
    packed = packed.translate(_URL_SAFE) + b"=" * (-len(packed) % 4)
    try:
        return base64.b64decode(packed, validate=True)
    except binascii.Error:
        raise InvalidMessage(f"{keyword}: expected base64 of JSON", param="card") from None


def _decoded(raw: bytes, notices: list[Notice]) -> Any:
    """Decode JSON in any of Unicode's encodings."""
    if len(raw) > MAX_JSON_BYTES:
        raise TooLarge(f"card: expected JSON of at most {MAX_JSON_BYTES} bytes", param="card")
    encoding = json.detect_encoding(raw)
    try:
        text = raw.decode(encoding)
    except UnicodeDecodeError:
        text = raw.decode(encoding, "replace")
        notices.append(Notice("card", f"not everything is {encoding}: what is not was replaced"))
    try:
        # Numbers of thousands of digits, and NaN, are no numbers to anybody else.
        return json.loads(text, parse_constant=_no_number, parse_int=_whole, strict=False)
    except (ValueError, RecursionError):
        raise InvalidMessage("card: expected JSON, or PNG or CHARX", param="card") from None


def _no_number(_: str) -> float:
    return math.nan


def _whole(digits: str) -> float:
    return int(digits) if len(digits) <= _MAX_DIGITS else math.nan


def _storable(document: Any, path: str, notices: list[Notice], depth: int = 0) -> Any:
    """Return a document that a database can give back as it is; add what had to be changed.

    Raises:
        InvalidMessage: it is nested too deeply.
    """
    if depth > MAX_NESTING:
        raise InvalidMessage(
            f"card: expected at most {MAX_NESTING} levels of nesting", param="card"
        )
    path = path[:MAX_PATH_CHARS].removeprefix("data.")
    if isinstance(document, dict):
        return {
            storable(name): _storable(value, f"{path}.{name}" if path else name, notices, depth + 1)
            for name, value in document.items()
        }
    if isinstance(document, list):
        return [
            _storable(value, f"{path}[{place}]", notices, depth + 1)
            for place, value in enumerate(document)
        ]
    mended, text = document, ""
    if isinstance(document, str):
        mended, text = storable(document), "half a character, or NUL, was left out"
    elif isinstance(document, float | int) and not _is_exact(document):
        mended, text = None, "not a number that others can read: left out"
    if mended != document and len(notices) < MAX_NOTICES:
        notices.append(Notice(storable(path), text))
    return mended


def _is_exact(number: float) -> bool:
    if isinstance(number, int):
        return abs(number) <= MAX_INTEGER
    return math.isfinite(number) and abs(number) < MAX_NUMBER


def _is_lorebook(document: Any) -> bool:
    """Return whether a document has entries, and of a card at most what lorebooks have, too."""
    if isinstance(document, dict) and document.get("spec") == "lorebook_v3":
        document = document.get("data")
    if isinstance(document, dict) and document.get("type") == "risu":
        document = {"entries": document.get("data")}
    return (
        isinstance(document, dict)
        and isinstance(document.get("entries"), dict | list)
        and _FIELDS.isdisjoint(document.keys() - {"name", "description"})
    )


def _data_of(document: Any, notices: list[Notice]) -> dict[str, Any]:
    """Return `data` of a card of any version.

    Raises:
        InvalidMessage: it is not a card.
    """
    if not isinstance(document, dict):
        raise InvalidMessage("card: expected a JSON object", param="card")
    data = document.get("data")
    if isinstance(data, dict) and not _FIELDS.isdisjoint(data):
        if document.get("spec") not in (None, "chara_card_v2", "chara_card_v3"):
            notices.append(Notice("card", "its spec is not known: read as chara_card_v3"))
        return data
    if _FIELDS.isdisjoint(document):
        raise InvalidMessage("card: expected the fields of a character card", param="card")
    if "spec" in document or "data" in document:
        notices.append(Notice("card", "expected its fields in data: read as version 1"))
    outer = {name: value for name, value in document.items() if name not in _ENVELOPE}
    if isinstance(outer.get("persona"), dict):
        outer = card_of_agnai(outer)
    return {**ADDED_BY_V2, **renamed_fields(outer, notices)}
