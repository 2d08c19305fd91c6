"""Lorebooks and conversations for tests, from as little as matters to each."""

from collections.abc import Sequence
from typing import Any

from foremind.lore.activation import ActiveLore, ScannedMessage, activate
from foremind.lore.lorebook import Lorebook


def entry(content: str = "Lore.", *keys: str, **fields: Any) -> dict[str, Any]:
    """An entry of a card, with the fields that the specification requires."""
    required = {"enabled": True, "insertion_order": 0, "extensions": {}, "use_regex": False}
    return required | {"keys": list(keys), "content": content} | fields


def book(*entries: dict[str, Any], **fields: Any) -> Lorebook:
    """A lorebook of some entries."""
    return Lorebook.parse({"entries": list(entries), "extensions": {}} | fields)


def active(lorebook: Lorebook, *texts: str, max_tokens: int = 10_000) -> ActiveLore:
    """What a conversation activates: the draft, the reply before it, and so on; a word a token."""
    messages = [
        ScannedMessage(place % 2 == 0, lorebook.matcher.found_in(text))
        for place, text in enumerate(texts)
    ]
    return activate(lorebook, messages, lambda text: len(text.split()), max_tokens)


def ids(lore: ActiveLore) -> Sequence[str]:
    """The ids of the active entries, in the order of the prompt."""
    return [active_entry.id for active_entry in lore.entries]


def texts(lore: ActiveLore) -> Sequence[str]:
    """Their texts."""
    return [active_entry.text for active_entry in lore.entries]
