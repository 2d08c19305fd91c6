"""Normalisation of drafts, and whether a draft is worth searching for. Pure."""

import unicodedata


def normalise(text: str) -> str:
    """Return `text` in NFC with whitespace collapsed; drafts with equal results are the same."""
    return " ".join(unicodedata.normalize("NFC", text).split())


def has_searchable_text(text: str) -> bool:
    """Return whether `text` contains a letter, a digit or a pictograph to search for."""
    return any(_carries_meaning(character) for character in text)


def _carries_meaning(character: str) -> bool:
    category = unicodedata.category(character)
    # "So" contains emoji, but also signs such as degree and copyright, below U+2190.
    return category[0] in "LN" or (category == "So" and character >= "\u2190")
