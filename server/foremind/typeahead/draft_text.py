"""When two drafts are the same, and whether one says anything. Pure."""

import unicodedata


def normalise(text: str) -> str:
    """Return `text` in Unicode form NFC with white space folded: equal results mean the same."""
    return " ".join(unicodedata.normalize("NFC", text).split())


def says_something(text: str) -> bool:
    """Tell whether there is a letter, a digit or a pictograph to search for."""
    return any(_carries_meaning(character) for character in text)


def _carries_meaning(character: str) -> bool:
    category = unicodedata.category(character)
    # "So" holds emoji, but also signs such as the degree and copyright ones below U+2190.
    return category[0] in "LN" or (category == "So" and character >= "\u2190")
