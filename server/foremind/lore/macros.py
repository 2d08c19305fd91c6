"""Replaces the macros of a lorebook entry, such as {{char}}. Pure.

Source: "Curly Braced Syntaxes" of the specification of Character Card V3. Macros whose value is
random, and those that are not known, are left as they are.
"""

import re

_TAGS = re.compile("[<>]")
_MACRO = re.compile(r"\{\{(char|user|//[^{}]*|comment:[^{}]*|hidden_key:[^{}]*)\}\}", re.IGNORECASE)


def expand_macros(text: str, companion_name: str, user_name: str) -> str:
    """Return a text with {{char}} and {{user}} replaced, and comments and hidden keys removed."""
    # Players choose their names: one line, which closes no tag.
    names = {"char": companion_name, "user": " ".join(_TAGS.sub("", user_name).split())}
    return _MACRO.sub(lambda macro: names.get(macro[1].lower(), ""), text)
