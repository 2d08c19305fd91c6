"""The fields of a character card that Foremind uses, and the companion that is made of them. Pure.

A card is the mapping `data` of its file. It is kept as it came: what is derived from it here is
derived anew each time.
"""

import re
import unicodedata
from collections.abc import Mapping, Sequence
from typing import Any

from foremind.domain.companion import Companion, CompanionFile, Notice
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
#: Texts for readers, and lists of texts.
_READERS_TEXTS = ("creator_notes", "creator", "character_version")
_LISTS = ("alternate_greetings", "group_only_greetings", "tags")
#: What the fields are called in files older than V1's: those of TavernAI and of Pygmalion, and of
#: text-generation-webui.
OLD_NAMES: Mapping[str, str] = {
    "char_name": "name",
    "char_persona": "description",
    "world_scenario": "scenario",
    "char_greeting": "first_mes",
    "example_dialogue": "mes_example",
    "creatorcomment": "creator_notes",
    "context": "description",
    "greeting": "first_mes",
}
#: What Agnai calls the fields in files of its own; its `description` is for readers.
_AGNAI_NAMES: Mapping[str, str] = {
    "description": "creator_notes",
    "sampleChat": "mes_example",
    "alternateGreetings": "alternate_greetings",
    "systemPrompt": "system_prompt",
    "postHistoryInstructions": "post_history_instructions",
    "characterBook": "character_book",
    "characterVersion": "character_version",
}
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


def mended_card(card: Mapping[str, Any], path: str, notices: list[Notice]) -> dict[str, Any]:
    """Return a card whose used fields have the types that its specification gives them.

    A field of another type is read as far as it can be; null is as good as absent.

    Args:
        path: of the card, for errors.
        notices: to which is added what was mended.

    Raises:
        InvalidMessage: a field is too long; names it.
    """
    mended = dict(card)
    for field in (*NAMES, *TEXTS, *_READERS_TEXTS):
        if not isinstance(card.get(field), str | None):
            mended[field] = _mended_text(card[field], field)
            notices.append(_as_text(field, mended[field]))
    for field in _LISTS:
        if field in card and not _is_list_of_texts(card[field]):
            mended[field] = _mended_list(card[field], field)
            notices.append(Notice(field, "expected a list of texts: what is text was taken"))
    if not isinstance(card.get("extensions"), dict | None):
        mended["extensions"] = {}
        notices.append(Notice("extensions", "expected an object: left out"))
    book = card.get("character_book")
    if not isinstance(book, dict | None):
        entries = book if isinstance(book, list) and any(book) else None
        mended["character_book"] = None if entries is None else {"entries": entries}
        notices.append(
            Notice(
                "character_book",
                "expected an object: " + ("left out" if entries is None else "read as its entries"),
            )
        )
    for names, limit in ((NAMES, MAX_NAME_CHARS), (TEXTS, MAX_TEXT_CHARS)):
        for name in names:
            _check_length(mended.get(name), f"{path}.{name}", limit)
    for position, greeting in enumerate(mended.get("alternate_greetings") or ()):
        _check_length(greeting, f"{path}.alternate_greetings[{position}]", MAX_TEXT_CHARS)
    return mended


def _is_list_of_texts(value: object) -> bool:
    return value is None or (isinstance(value, list) and all(isinstance(x, str) for x in value))


def _mended_text(value: object, field: str) -> str:
    """Return what a value says as text: of a list, its texts, one after the other."""
    texts = _mended_list(value, field)
    if field == "mes_example" and len(texts) > 1:
        texts = [text if _START.match(text.lstrip()) else f"<START>\n{text}" for text in texts]
    return "\n".join(texts)


def _as_text(field: str, text: str) -> Notice:
    return Notice(field, "expected text: " + ("what is text was taken" if text else "left empty"))


def _mended_list(value: object, field: str) -> list[str]:
    """Return the texts in a value; tags that are one text are separated by commas."""
    if isinstance(value, str):
        parts = value.split(",") if field == "tags" else [value]
        return [part.strip() if field == "tags" else part for part in parts if part.strip()]
    if isinstance(value, list | dict):
        parts = value if isinstance(value, list) else list(value.values())
        return [text for part in parts for text in _mended_list(part, "")]
    if isinstance(value, int | float) and not isinstance(value, bool):
        return [str(value)]
    return []


def is_version_3(card: Mapping[str, Any]) -> bool:
    """Return whether a card has a field that only V3 has."""
    return any(field in card for field in _V3_FIELDS)


def renamed_fields(card: Mapping[str, Any], notices: list[Notice]) -> dict[str, Any]:
    """Return a card of version 1 with its fields as that calls them; add what had older names."""
    renamed = dict(card)
    for old, name in OLD_NAMES.items():
        if old in renamed and not renamed.get(name):
            renamed[name] = renamed.pop(old)
            notices.append(Notice(name, f"read from {old}, an older name"))
    return renamed


def card_of_agnai(character: Mapping[str, Any]) -> dict[str, Any]:
    """Return a character of Agnai's as a card calls its fields; its persona is the description."""
    renamed = {_AGNAI_NAMES.get(name, name): value for name, value in character.items()}
    persona = renamed.pop("persona")
    attributes = persona.get("attributes")
    listed = attributes if isinstance(attributes, Mapping) else {}
    return renamed | {
        "description": "\n".join(
            text if name == "text" else f"{name}: {text}"
            for name, value in listed.items()
            if (text := ", ".join(_mended_list(value, "")))
        )
    }


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


def _check_length(text: str | None, field: str, max_chars: int) -> None:
    if text is not None and len(text) > max_chars:
        raise InvalidMessage(
            f"{field}: expected a text of at most {max_chars} characters", param=field
        )
