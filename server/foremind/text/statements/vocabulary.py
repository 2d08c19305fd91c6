"""English as the rules know it: the sections of `english.txt`.

Lists of words are attributes, as `vocabulary.KIN`; `pattern("date")` compiles a part.
"""

import re
from functools import cache
from pathlib import Path

_TOKEN = re.compile(r"(?<!\?P)<(\w+)>")


def _sections() -> dict[str, list[str]]:
    """Return the lines of each section; an indented line continues the one before it."""
    sections: dict[str, list[str]] = {}
    lines: list[str] = []
    for line in Path(__file__).with_name("english.txt").read_text("utf-8").splitlines():
        if line.startswith("["):
            lines = sections.setdefault(line.strip("[]"), [])
        elif line.startswith("    "):
            lines[-1] += line[4:]
        elif line and not line.startswith("#"):
            lines.append(line)
    return sections


_SECTIONS = _sections()
#: Chat spellings, and what they stand for: "im", "i am"; past forms, and those of the present.
SPELLINGS, PRESENT = (
    dict(pair.strip().split("=") for line in _SECTIONS[section] for pair in line.split(","))
    for section in ("spelling", "present")
)
WORDS = {
    name: frozenset(word.strip() for word in words.split(","))
    for name, words in (line.split(" = ", 1) for line in _SECTIONS["words"])
}
for _one, _many in (("KIN", "KIN_MANY"), ("ANIMALS", "ANIMALS_MANY")):
    WORDS[_many] |= {re.sub(r"(?<=[^aeiou])y$", "ie", word) + "s" for word in WORDS[_one]}
WORDS["PRESENT"] = frozenset(PRESENT)
_PARTS = dict(line.split(" = ", 1) for line in _SECTIONS["parts"])
REQUESTS = tuple(_SECTIONS["requests"])
CLAUSES = tuple(_SECTIONS["clauses"])


def filled_in(text: str) -> str:
    """Return a pattern with lists and parts in place of their names."""
    return _TOKEN.sub(lambda token: _part(token[1]), text)


@cache
def _part(name: str) -> str:
    if name in WORDS:
        return "|".join(map(re.escape, sorted(WORDS[name], key=len, reverse=True)))
    return filled_in(_PARTS[name])


def compiled(text: str) -> re.Pattern[str]:
    """Compile a pattern that ignores case."""
    return re.compile(filled_in(text), re.IGNORECASE)


@cache
def pattern(name: str) -> re.Pattern[str]:
    """Return a part, compiled."""
    return compiled(f"<{name}>")


def __getattr__(name: str) -> frozenset[str]:
    """Return a list of words."""
    try:
        return WORDS[name]
    except KeyError:
        raise AttributeError(name) from None
