"""Companions: a persona, and its own settings."""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

import msgspec

from foremind.domain.settings.settings import CompanionSettings


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


_MAX_SLUG_CHARS = 128


class Notice(msgspec.Struct, frozen=True):
    """A remark on a card that was taken: what of it was mended, or is not supported.

    `field` is its path in the card's `data`, or `card` where it is about the file; `text` has
    nothing of what the card says.
    """

    field: str
    text: str


class CompanionFile(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A companion as defined in a TOML file; `card` is the `data` of a character card."""

    slug: str
    name: str
    persona: str
    greeting: str = ""
    settings: CompanionSettings = CompanionSettings()
    card: dict[str, Any] | None = None


@dataclass(frozen=True, slots=True)
class Companion:
    """A companion as stored; `version` increases with every change.

    A `retired` companion accepts no sessions; its relationships are kept. `card` is the `data` of
    the character card that it was made of; None if there is none. In
    lists of companions it has only the nickname.
    """

    id: int
    slug: str
    name: str
    greeting: str
    persona: str
    settings: CompanionSettings
    version: int
    retired: bool = False
    card: Mapping[str, Any] | None = None

    @property
    def has_one_mind(self) -> bool:
        """Whether in worlds it has one mind for everybody, instead of one for each player."""
        return bool(self.settings.mind == "world")


def first_invalid_field(companion: CompanionFile) -> tuple[str, str] | None:
    """Return the first invalid field and what was expected, or None."""
    slug = companion.slug
    if (
        not slug
        or not slug.replace("-", "").replace("_", "").isalnum()
        or len(slug) > _MAX_SLUG_CHARS
    ):
        return "slug", f"expected at most {_MAX_SLUG_CHARS} letters, digits, '-' and '_'"
    for field in ("name", "persona"):
        if not getattr(companion, field).strip():
            return field, "expected some text"
    return None
