"""Finds what a message asks to have pinned: "save this: the gate code is 4711". Pure."""

import re

from foremind.text.languages.language_files import LANGUAGES


def _asks_to_save() -> str:
    """Return a pattern of what asks to have something saved, in any language."""
    asked = []
    for language in LANGUAGES.values():
        phrases = "|".join(map(re.escape, sorted(language.pins, key=len, reverse=True)))
        around = "|".join(map(re.escape, language.fillers))
        if phrases:
            asked.append(
                rf"(?:(?:{around})[\s,，、]*){{0,3}}(?:{phrases})"
                rf"(?: for (?:me|us|later))?(?:[\s,，、]*(?:{around})){{0,3}}"
            )
    return "|".join(asked)


_SAVE = re.compile(
    rf"\s*(?:{_asks_to_save()})\s*[:：,，、-]\s*(?P<what>\S.*)", re.IGNORECASE | re.DOTALL
)


def text_to_pin(text: str) -> str | None:
    """Return what a message asks to have pinned, None where it asks for nothing of the kind."""
    match = _SAVE.match(text)
    return None if match is None else match["what"].strip()
