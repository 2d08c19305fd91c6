"""Documents of a companion, and the chunks they are indexed by."""

from dataclasses import dataclass
from datetime import datetime


@dataclass(frozen=True, slots=True)
class Document:
    """A document; `embedded` of its `chunks` are available to vector search already."""

    id: str
    title: str
    media_type: str
    chunks: int
    created_at: datetime
    embedded: int


@dataclass(frozen=True, slots=True)
class Chunk:
    """A passage of a document; `packed` is its vector in `halfvec_send` format, once embedded."""

    id: int
    title: str
    content: str
    packed: bytes | None
