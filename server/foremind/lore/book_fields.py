"""The fields of a lorebook's entries, in the dialects that programs write. Pure.

Sources: the lorebook specification of Character Card V3; and of SillyTavern 1.19
`src/endpoints/characters.js`, which writes a world as a card's book, and
`public/scripts/world-info.js`, which says what its fields mean, and how it takes lorebooks of
Agnai, NovelAI and RisuAI. Chub writes the same fields with other capitals.
"""

import re
from collections.abc import Mapping, Sequence
from typing import Any, Literal

import msgspec

Role = Literal["assistant", "system", "user"]
_KEY_SEPARATORS = re.compile(r"\s*(/(?:[^/\\\n]|\\.)+/[a-z]*(?=\s*(?:[,，、\n]|$))|[^,，、\n]*)")
#: A key that SillyTavern takes for a pattern: every slash within it is escaped.
SILLY_TAVERN_PATTERN = re.compile(r"/(?:[^/\\]|\\.)+/[gimsuy]*", re.DOTALL)
_TRUE, _FALSE = {"true", "yes", "on", "1"}, {"false", "no", "off", "0", ""}
_AUTHORS_NOTE, _AT_DEPTH, _EXAMPLES, _OUTLET = (2, 3), 4, (5, 6), 7
_ROLES: dict[float | None, Role] = {0: "system", 1: "user", 2: "assistant"}
_DEFAULT_DEPTH = 4
_DEFAULT_WEIGHT = 100.0
_MAX_COUNT = 1_000_000
_MATCH_SOURCES = (
    "match_persona_description", "match_character_description", "match_character_personality",
    "match_character_depth_prompt", "match_scenario", "match_creator_notes",
)  # fmt: skip
#: The extensions that no other program writes, in lower case.
_ONLY_SILLY_TAVERN = frozenset(
    (
        "add_memo", "automation_id", "character_filter", "delay_until_recursion", "display_index",
        "exclude_recursion", "group_override", "group_weight", "ignore_budget", "outlet_name",
        "prevent_recursion", "selective_logic", "use_group_scoring", "use_probability",
        "vectorized", *_MATCH_SOURCES,
    )
)  # fmt: skip
_OTHERS_TOO = (
    "case_sensitive", "cooldown", "delay", "depth", "group", "match_whole_words", "position",
    "probability", "role", "scan_depth", "sticky", "triggers",
)  # fmt: skip
# The names of extensions, by how a world and Chub write them: useProbability.
_WITH_CAPITALS: dict[str, str] = {
    re.sub("_.", lambda match: match[0][1].upper(), name): name
    for name in (*_ONLY_SILLY_TAVERN, *_OTHERS_TOO)
}
#: The fields of an entry of a world that are fields of an entry in a card; others are extensions.
_WORLD_FIELDS = {
    "uid": "id", "key": "keys", "keysecondary": "secondary_keys", "comment": "comment",
    "content": "content", "constant": "constant", "selective": "selective",
    "order": "insertion_order",
}  # fmt: skip
#: What Agnai, NovelAI and RisuAI call the fields of an entry in lorebooks of their own.
_OTHERS_FIELDS = {
    "entry": "content", "keywords": "keys", "secondaryKeys": "secondary_keys",
    "weight": "insertion_order",
    "text": "content", "displayName": "name", "forceActivation": "constant",
    "key": "keys", "secondkey": "secondary_keys", "insertorder": "insertion_order",
    "alwaysActive": "constant", "useRegex": "use_regex",
}  # fmt: skip
_CAPITALS_IN_CARDS = ("selectiveLogic", "useProbability")
#: What SillyTavern's extensions ask for that is not done here, by field.
NOT_SUPPORTED = {
    "automation_id": "no script is run",
    "character_filter": "an entry is for every companion that has the lorebook",
    "outlet_name": "there are no outlets, so the entry is in no prompt",
    "position": "beside an author's note is at depth 4, and beside example messages is after the "
    "persona",
    "triggers": "every reply is a normal one, so the entry is in no prompt",
    "use_group_scoring": "which entry of a group is used does not depend on how many keys match",
    "vectorized": "entries are found by their keys only",
} | dict.fromkeys(_MATCH_SOURCES, "keys are looked for only in what was said")


class Extensions(msgspec.Struct, frozen=True):
    """What SillyTavern's extensions of an entry ask for.

    `probability` is in percent. `delay_until_recursion` is the level from which recursion may
    activate the entry, 0 if it needs none. `sticky`, `cooldown` and `delay` count messages.
    """

    probability: float = 100.0
    exclude_recursion: bool = False
    prevent_recursion: bool = False
    delay_until_recursion: int = 0
    groups: tuple[str, ...] = ()
    group_override: bool = False
    group_weight: float = _DEFAULT_WEIGHT
    sticky: int = 0
    cooldown: int = 0
    delay: int = 0
    ignore_budget: bool = False
    is_never_used: bool = False


PLAIN = Extensions()


def entries_in(book: Mapping[str, Any]) -> list[object]:
    """Return the entries of a book as a card has them; those of a world are translated."""
    listed = book.get("entries")
    if isinstance(listed, Mapping):
        listed = list(listed.values())
    return [_card_entry(entry) for entry in listed] if isinstance(listed, list) else []


def book_in(document: Mapping[str, Any]) -> Mapping[str, Any] | None:
    """Return the lorebook that a file is, as a card has it; None if it is none.

    It is one if it has entries of its own, as a world of SillyTavern, or is a `lorebook_v3` or
    RisuAI's.
    """
    if document.get("type") == "risu":
        document = {"entries": document.get("data")}
    if document.get("spec") == "lorebook_v3" and isinstance(document.get("data"), Mapping):
        document = document["data"]
    if not isinstance(document.get("entries"), Mapping | list):
        return None
    fields = {name: value for name, value in document.items() if name != "originalData"}
    return fields | {"entries": entries_in(document)}


def is_silly_tavern(entries: Sequence[object]) -> bool:
    """Return whether SillyTavern wrote a book: some entry has an extension that only it writes."""
    return any(
        isinstance(entry, Mapping) and not _ONLY_SILLY_TAVERN.isdisjoint(extensions_of(entry))
        for entry in entries
    )


def extensions_of(entry: Mapping[str, Any]) -> dict[str, Any]:
    """Return the extensions of an entry, their names in lower case: `use_probability`."""
    extensions = entry.get("extensions")
    if not isinstance(extensions, Mapping):
        return {}
    return {_WITH_CAPITALS.get(str(name), str(name)): value for name, value in extensions.items()}


def read_extensions(fields: Mapping[str, Any]) -> Extensions:
    """Return what the extensions of an entry of SillyTavern ask for."""
    probability = number(fields.get("probability"))
    uses_probability = flag(fields.get("use_probability"), default=True)
    level = fields.get("delay_until_recursion")
    weight = number(fields.get("group_weight"))
    triggers = texts(fields.get("triggers"))
    return Extensions(
        probability=100.0 if probability is None or not uses_probability else probability,
        exclude_recursion=flag(fields.get("exclude_recursion")),
        prevent_recursion=flag(fields.get("prevent_recursion")),
        delay_until_recursion=count(level) or int(flag(level)),
        groups=tuple(texts(fields.get("group"))),
        group_override=flag(fields.get("group_override")),
        group_weight=_DEFAULT_WEIGHT if weight is None else max(0.0, weight),
        sticky=count(fields.get("sticky")),
        cooldown=count(fields.get("cooldown")),
        delay=count(fields.get("delay")),
        ignore_budget=flag(fields.get("ignore_budget")),
        is_never_used=(bool(triggers) and "normal" not in triggers)
        or number(fields.get("position")) == _OUTLET,
    )


def depth_in(fields: Mapping[str, Any]) -> int:
    """Return the depth that extensions or a character's note state; SillyTavern's own if none."""
    depth = number(fields.get("depth"))
    return _DEFAULT_DEPTH if depth is None else max(0, int(depth))


def position_in(fields: Mapping[str, Any]) -> tuple[str | None, int, Role]:
    """Return the position that extensions state, if any, with depth and role."""
    place = number(fields.get("position"))
    if place == _AT_DEPTH:
        return "depth", depth_in(fields), _ROLES.get(number(fields.get("role")), "system")
    if place in _AUTHORS_NOTE:
        return "depth", _DEFAULT_DEPTH, "system"
    stated = {0: "before_char", 1: "after_char"} | dict.fromkeys(_EXAMPLES, "after_char")
    return (None if place is None else stated.get(int(place))), 0, "system"


def unsupported_in(fields: Mapping[str, Any]) -> list[str]:
    """Return the names of the extensions that ask for what is not done here."""
    place = number(fields.get("position"))
    triggers = texts(fields.get("triggers"))
    asked = {
        name: flag(fields.get(name))
        for name in ("use_group_scoring", "vectorized", *_MATCH_SOURCES)
    }
    filtered = fields.get("character_filter")
    asked |= {
        "automation_id": bool(texts(fields.get("automation_id"))),
        "character_filter": isinstance(filtered, Mapping)
        and bool(filtered.get("names") or filtered.get("tags")),
        "outlet_name": place == _OUTLET,
        "position": place in (*_AUTHORS_NOTE, *_EXAMPLES),
        "triggers": bool(triggers) and "normal" not in triggers,
    }
    return sorted(name for name, is_asked in asked.items() if is_asked)


def texts(value: object) -> list[str]:
    """Return the texts of a list that are not blank; of one text, those between its commas.

    A number in a list, such as a year, is the text that it is written as.
    """
    if isinstance(value, str):
        value = _KEY_SEPARATORS.findall(value)
    parts = value if isinstance(value, list) else []
    written = [
        str(part).strip()
        for part in parts
        if isinstance(part, str | int | float) and not isinstance(part, bool)
    ]
    return [text for text in written if text]


def flag(value: object, *, default: bool = False) -> bool:
    """Return a truth, also one written as a number or in words; the default for anything else."""
    if isinstance(value, bool):
        return value
    if isinstance(value, int | float):
        return value != 0
    word = value.strip().lower() if isinstance(value, str) else None
    return word in _TRUE if word in _TRUE | _FALSE else default


def number(value: object) -> float | None:
    """Return a finite number, also one written as text; None for anything else."""
    if isinstance(value, bool) or not isinstance(value, int | float | str):
        return None
    try:
        read = float(value)
    except (ValueError, OverflowError):
        return None
    return read if abs(read) < float("inf") else None


def count(value: object) -> int:
    """Return a whole number from 0; 0 for anything else."""
    return max(0, min(int(number(value) or 0), _MAX_COUNT))


def _card_entry(entry: object) -> object:
    """Return an entry as a card has it: one of another file as SillyTavern would write it."""
    if isinstance(entry, Mapping) and _is_others(entry):
        return _others_entry(entry)
    if not isinstance(entry, Mapping) or "keys" in entry or "key" not in entry:
        return entry
    extensions = entry.get("extensions")
    others = {
        name if name in _CAPITALS_IN_CARDS else _WITH_CAPITALS.get(name, name): value
        for name, value in entry.items()
        if name not in _WORLD_FIELDS and name not in ("disable", "extensions")
    }
    own = {"selectiveLogic": 0} | others  # a world of an early version has none of these
    return {
        **{_WORLD_FIELDS[name]: value for name, value in entry.items() if name in _WORLD_FIELDS},
        "selective": flag(entry.get("selective"), default=True),
        "enabled": not flag(entry.get("disable")),
        "position": "before_char" if number(entry.get("position")) == 0 else "after_char",
        "use_regex": True,  # as SillyTavern writes of every entry
        "extensions": (dict(extensions) if isinstance(extensions, Mapping) else {}) | own,
    }


def _is_others(entry: Mapping[str, Any]) -> bool:
    """Return whether Agnai, NovelAI or RisuAI wrote an entry of a lorebook of its own."""
    has_other_content = "content" not in entry and ("entry" in entry or "text" in entry)
    return has_other_content or "insertorder" in entry


def _others_entry(entry: Mapping[str, Any]) -> dict[str, Any]:
    """Return an entry of Agnai, NovelAI or RisuAI as a card has it; keys may be patterns."""
    renamed = {_OTHERS_FIELDS.get(name, name): value for name, value in entry.items()}
    config, risu = entry.get("contextConfig"), entry.get("extentions")
    if isinstance(config, Mapping):
        renamed["insertion_order"] = config.get("budgetPriority")
    if isinstance(risu, Mapping):
        renamed["case_sensitive"] = risu.get("risu_case_sensitive")
    percent = number(entry.get("activationPercent"))
    own = {"selectiveLogic": 0, "probability": 100.0 if percent is None else percent}
    extensions = entry.get("extensions")
    return renamed | {
        "extensions": (dict(extensions) if isinstance(extensions, Mapping) else {}) | own
    }
