"""The fields of a character card that Foremind uses, and the companion that is made of them. Pure.

A card is the mapping `data` of its file. It is kept as it came: what is derived from it here is
derived anew each time.
"""

import re
import unicodedata
from collections.abc import Mapping, Sequence
from typing import Any

from foremind.domain.companion import Companion, CompanionFile
from foremind.domain.errors import InvalidMessage

MAX_NAME_CHARS = 200
MAX_TEXT_CHARS = 100_000
#: What takes the place of {{original}} in a card's system prompt, and of a missing one.
SYSTEM_PROMPT = (
    "Write {{char}}'s next message in a conversation between {{char}} and {{user}}. Write only "
    "what {{char}} says and does."
)
#: The fields that are used: names, and texts that may be in a prompt.
NAMES = ("name", "nickname")
TEXTS = (
    "description", "personality", "scenario", "first_mes", "mes_example", "system_prompt",
    "post_history_instructions",
)  # fmt: skip
#: The fields of `data` that V2 requires and V1 has not, empty.
ADDED_BY_V2: Mapping[str, Any] = {
    "creator_notes": "",
    "system_prompt": "",
    "post_history_instructions": "",
    "alternate_greetings": [],
    "tags": [],
    "creator": "",
    "character_version": "",
    "extensions": {},
}
#: Fields that V3 added to `data`.
_V3_FIELDS = (
    "assets", "nickname", "creator_notes_multilingual", "source", "group_only_greetings",
    "creation_date", "modification_date",
)  # fmt: skip
_ORIGINAL = re.compile(r"\{\{original\}\}", re.IGNORECASE)
_START = re.compile(r"<START>", re.IGNORECASE)


def check_card(card: Mapping[str, Any], path: str) -> None:
    """Check the fields that are used, where they are present; null is as good as absent.

    Args:
        path: of the card, for errors.

    Raises:
        InvalidMessage: a field is of another type, or too long; names it.
    """
    for names, limit in ((NAMES, MAX_NAME_CHARS), (TEXTS, MAX_TEXT_CHARS)):
        for name in names:
            _check_text(card.get(name), f"{path}.{name}", limit)
    if isinstance(card.get("name"), str) and not card["name"].strip():
        raise InvalidMessage(f"{path}.name: expected some text", param=f"{path}.name")
    greetings = card.get("alternate_greetings")
    if not isinstance(greetings, list | None):
        field = f"{path}.alternate_greetings"
        raise InvalidMessage(f"{field}: expected a list of texts", param=field)
    for position, greeting in enumerate(greetings or ()):
        _check_text(greeting, f"{path}.alternate_greetings[{position}]", MAX_TEXT_CHARS)
    if not isinstance(card.get("character_book"), dict | None):
        field = f"{path}.character_book"
        raise InvalidMessage(f"{field}: expected an object", param=field)


def is_version_3(card: Mapping[str, Any]) -> bool:
    """Return whether a card has a field that only V3 has."""
    return any(field in card for field in _V3_FIELDS)


def companion_of(card: Mapping[str, Any], slug: str | None = None) -> CompanionFile:
    """Return the companion that a card is of; without a slug, it gets one made of its name."""
    return CompanionFile(
        slug_of(card["name"]) if slug is None else slug,
        " ".join(card["name"].split()),
        _persona(card),
        _text(card, "first_mes"),
        card=dict(card),
    )


def card_of(companion: Companion) -> dict[str, Any]:
    """Return the card that a companion was made of, or one made of a companion that was none's.

    A card without a name is a part of one that was given with the companion: it is completed.
    """
    card = dict(companion.card or {})
    if isinstance(card.get("name"), str):
        return card
    return {
        "name": companion.name,
        "description": companion.persona,
        "personality": "",
        "scenario": "",
        "first_mes": companion.greeting,
        "mes_example": "",
        **ADDED_BY_V2,
        **card,
    }


def character_name(companion: Companion) -> str:
    """Return what {{char}} stands for: the card's nickname, else the companion's name."""
    nickname = " ".join(_text(companion.card or {}, "nickname").split())
    return nickname or companion.name


def greetings_of(companion: Companion) -> list[str]:
    """Return the greetings that a session may open with; the first is the companion's own."""
    alternates = (companion.card or {}).get("alternate_greetings")
    listed = alternates if isinstance(alternates, list) else []
    return [companion.greeting, *(text for text in listed if isinstance(text, str))]


def opens_with_greeting(companion: Companion) -> bool:
    """Return whether prompts begin with the greeting: a card's sets the scene."""
    return bool(_text(companion.card or {}, "first_mes").strip())


def examples_of(companion: Companion) -> Sequence[str]:
    """Return the card's example conversations, without their marks <START>."""
    blocks = _START.split(_text(companion.card or {}, "mes_example"))
    return [block.strip() for block in blocks if block.strip()]


def closing_instructions(companion: Companion) -> str:
    """Return the card's instructions that follow the history; Foremind has none of its own."""
    return _ORIGINAL.sub("", _text(companion.card or {}, "post_history_instructions")).strip()


def slug_of(name: str) -> str:
    """Return a slug made of a name; empty if it has neither letters nor digits."""
    plain = unicodedata.normalize("NFKC", name).lower()
    return "-".join(re.findall(r"[^\W_]+", plain))[:60].strip("-")


def _persona(card: Mapping[str, Any]) -> str:
    system_prompt = _text(card, "system_prompt").strip() or SYSTEM_PROMPT
    parts = [
        _ORIGINAL.sub(lambda _: SYSTEM_PROMPT, system_prompt, count=1),
        _text(card, "description"),
        _labelled("Personality of {{char}}: ", _text(card, "personality")),
        _labelled("Scenario: ", _text(card, "scenario")),
    ]
    return "\n\n".join(part.strip() for part in parts if part.strip())


def _labelled(label: str, text: str) -> str:
    return label + text.strip() if text.strip() else ""


def _text(card: Mapping[str, Any], field: str) -> str:
    """Return a text of a card; empty if there is none."""
    value = card.get(field)
    return value if isinstance(value, str) else ""


def _check_text(value: object, field: str, max_chars: int) -> None:
    if not isinstance(value, str | None) or (value is not None and len(value) > max_chars):
        raise InvalidMessage(
            f"{field}: expected a text of at most {max_chars} characters", param=field
        )
