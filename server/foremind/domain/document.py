"""TODO."""

from dataclasses import dataclass
from datetime import datetime


@dataclass(frozen=True, slots=True)
class Document:
    """A document; `embedded` of its `chunks` can be found by meaning already."""

    id: str
    title: str
    media_type: str
    chunks: int
    created_at: datetime
    embedded: int


@dataclass(frozen=True, slots=True)
class Chunk:
    """A passage of a document; `packed` is its vector as `halfvec_send` gives it, once made."""

    id: int
    title: str
    content: str
    packed: bytes | None
