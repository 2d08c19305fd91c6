"""Finds what a message asks to have pinned: "save this: the gate code is 4711". Pure."""

import re

_SAVE = re.compile(
    r"\s*(?:please |can you |could you )?(?:save|store|keep|write down|note) (?:this|that|it)"
    r"(?: for (?:me|us|later))?(?: please)?\s*[:,-]\s*(?P<what>\S.*)",
    re.IGNORECASE | re.DOTALL,
)


def text_to_pin(text: str) -> str | None:
    """Return what a message asks to have pinned, None where it asks for nothing of the kind."""
    match = _SAVE.match(text)
    return None if match is None else match["what"].strip()
