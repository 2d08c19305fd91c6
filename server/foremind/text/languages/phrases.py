"""Patterns of the phrases in language files. Pure."""

import re
from collections.abc import Iterable


def phrase_pattern(phrase: str, *, separated: bool = True) -> str:
    """Return a pattern of words of which "/" separates alternatives, and begins optional ones.

    Args:
        separated: whether other words are separated from them.
    """
    words, end = [], r"(?:(?!\w)|(?<!\w))" if separated else ""
    for word in phrase.split():
        alternatives = any_of(filter(None, word.split("/")))
        words.append(rf"(?:(?:{alternatives}){end}\s*){'?' * word.startswith('/')}")
    return "".join(words)


def any_of(phrases: Iterable[str]) -> str:
    """Return a pattern of any of some phrases as they are written, the longest first."""
    longest_first = sorted(phrases, key=len, reverse=True)
    return "|".join(re.escape(phrase).replace("'", "['’`´]") for phrase in longest_first)
