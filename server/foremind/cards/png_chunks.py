"""The text chunks of PNG and APNG files, read and written. Pure.

Source: the PNG specification, third edition (https://www.w3.org/TR/png-3/), sections 5 and 11.3.3.
"""

import struct
import zlib
from collections.abc import Iterator, Mapping

from foremind.domain.errors import InvalidMessage

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
