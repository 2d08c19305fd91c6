"""Cards of the tests' own writing, and files of them made without the code under test."""

import base64
import io
import json
import struct
import zipfile
import zlib
from typing import Any

V1: dict[str, Any] = {
    "name": "Mara",
    "description": "{{char}} keeps a lighthouse.",
    "personality": "dry, patient",
    "scenario": "{{user}} has come in from a storm.",
    "first_mes": "*She looks up.* You are wet, {{user}}.",
    "mes_example": "<START>\n{{user}}: Is it far?\n{{char}}: Everything is far.",
}
V2: dict[str, Any] = V1 | {
    "creator_notes": "Best with a storm outside. NOTES-FOR-READERS",
    "system_prompt": "{{original}} Keep it short.",
    "post_history_instructions": "{{original}}Never mention the sea monster.",
    "alternate_greetings": ["Again you, {{user}}?", "The light is out."],
    "tags": ["lighthouse", "Straße", "灯台"],
    "creator": "tests",
    "character_version": "1.1",
    "extensions": {"depth_prompt": {"depth": 4, "prompt": ""}, "a/b": [None, True, 0.1, -3]},
    "character_book": {
        "entries": [
            {
                "keys": ["storm"], "content": "In 1907 a storm put out the light.",
                "extensions": {"probability": 100}, "enabled": True, "insertion_order": 10,
                "an entry's own": {"field": [1]},
            }
        ],
        "extensions": {},
    },
    "an unknown field": {"of": ["a", "newer", "version"], "emoji": "🗼"},
}  # fmt: skip
V3: dict[str, Any] = V2 | {
    "character_book": {
        "entries": [entry | {"use_regex": False} for entry in V2["character_book"]["entries"]],
        "extensions": {"book": 1},
    },
    "nickname": "Mar",
    "group_only_greetings": ["All of you?"],
    "assets": [{"type": "icon", "uri": "ccdefault:", "name": "main", "ext": "png"}],
    "source": ["https://cards.example/1"],
    "creator_notes_multilingual": {"de": "Am besten bei Sturm. NOTES-FOR-READERS"},
    "creation_date": 1_700_000_000,
    "modification_date": 1_700_000_001,
}


def document(data: dict[str, Any], version: int = 2) -> bytes:
    """A card as JSON, with fields that a reader may ignore."""
    spec = f"chara_card_v{version}"
    outer = {"spec": spec, "spec_version": f"{version}.0", "data": data, "create_date": "today"}
    return json.dumps(outer).encode()


def chunk(kind: bytes, content: bytes, crc: int | None = None) -> bytes:
    """A chunk of a PNG file."""
    checksum = zlib.crc32(kind + content) if crc is None else crc
    return struct.pack(">I", len(content)) + kind + content + struct.pack(">I", checksum)


def text_chunk(keyword: str, card: bytes) -> bytes:
    """A chunk with a card."""
    return chunk(b"tEXt", keyword.encode() + b"\0" + base64.b64encode(card))


def png(*chunks: bytes) -> bytes:
    """A picture of one pixel with further chunks."""
    header = struct.pack(">IIBBBBB", 1, 1, 8, 0, 0, 0, 0)
    pixels = zlib.compress(b"\0\0")
    parts = [chunk(b"IHDR", header), chunk(b"IDAT", pixels), *chunks, chunk(b"IEND", b"")]
    return b"\x89PNG\r\n\x1a\n" + b"".join(parts)


def charx(entries: dict[str, bytes], method: int = zipfile.ZIP_DEFLATED) -> bytes:
    """A zip archive."""
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w", method) as archive:
        for name, content in entries.items():
            archive.writestr(name, content)
    return file.getvalue()
