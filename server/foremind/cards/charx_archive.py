"""CHARX files: a card and its assets in a zip archive, of which only the card is read. Pure.

Source: "CHARX" of the specification of Character Card V3. Nothing is unpacked to files.
"""

import io
import zipfile
import zlib
from datetime import datetime

from foremind.domain.errors import InvalidMessage

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
