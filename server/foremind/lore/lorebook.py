"""Lorebooks of character cards, read tolerantly and within stated bounds. Pure.

Source: the lorebook specification of Character Card V3, which is a superset of V2's
`character_book`; what SillyTavern means by it is in `book_fields`. Unknown fields are ignored, and
one that cannot be read counts as absent: the card itself is stored as it came.

Decorators of a lorebook entry: lines at the head of its content that begin with @@.

Source: "Decorators" of the lorebook specification, Character Card V3. A line of `@@@` is used if
the one before it is unknown, invalid or unsupported.
"""

import re
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from sys import getsizeof
from typing import Any, Literal, get_args

import msgspec

from foremind.domain.companion import Companion, CompanionFile, Notice
from foremind.domain.errors import InvalidMessage
from foremind.lore.book_fields import (
    NOT_SUPPORTED,
    PLAIN,
    SILLY_TAVERN_PATTERN,
    Extensions,
    Role,
    book_in,
    depth_in,
    extensions_of,
    flag,
    is_silly_tavern,
    number,
    position_in,
    read_extensions,
    texts,
    unsupported_in,
)
from foremind.lore.key_matcher import Key, KeyMatcher, PatternKey, PlainKey

_ROLES: tuple[str, ...] = get_args(Role)
_POSITIONS = {"after_desc": "after_char", "before_desc": "before_char"}
MAX_DECORATORS = 100  # lines of an entry that are read as decorators
_MAX_NUMBER = 1_000_000_000


class Decorators(msgspec.Struct):
    """The decorators of an entry that are supported; None where there is none.

    `additional_keys` has a tuple for each such line: a match needs one key of each.
    """

    activate: bool = False
    dont_activate: bool = False
    activate_only_after: int | None = None
    activate_only_every: int | None = None
    keep_activate_after_match: bool = False
    dont_activate_after_match: bool = False
    depth: int | None = None
    role: Role | None = None
    scan_depth: int | None = None
    position: str | None = None
    ignore_on_max_context: bool = False
    additional_keys: tuple[tuple[str, ...], ...] = ()
    exclude_keys: tuple[str, ...] | None = None


def split_decorators(content: str) -> tuple[Decorators, str]:
    """Return the decorators of a content, and the content without them.

    Every decorator is removed, supported or not. Of several with one name, the first counts, except
    for `additional_keys`.
    """
    decorators = Decorators()
    lines = content.splitlines()
    names: set[str] = set()
    open_chain = False  # whether a fallback may still be used
    first = 0
    for line in lines[:MAX_DECORATORS]:
        text = line.strip()
        if text and not text.startswith("@@"):
            break
        first += 1
        if not text:
            continue
        is_fallback = text.startswith("@@@")
        name, _, value = text.lstrip("@").partition(" ")
        if is_fallback and not open_chain:
            continue
        open_chain = not _apply(decorators, names, name, value.strip())
    return decorators, "\n".join(lines[first:]).strip()


def _apply(decorators: Decorators, names: set[str], name: str, value: str) -> bool:
    """Record a decorator; return False if it is not supported or its value is invalid."""
    read = _READERS.get(name)
    parsed = None if read is None else read(value)
    if parsed is None:
        return False
    if name == "additional_keys":
        decorators.additional_keys = (*decorators.additional_keys, parsed)
    elif name not in names:
        setattr(decorators, name, parsed)
    names.add(name)
    return True


def _flag(value: str) -> bool | None:
    return True if value.lower() in ("", "true") else None


def _whole(value: str) -> int | None:
    """Return a whole number, None if it is no number; fractions are cut off."""
    try:
        number = float(value)
    except ValueError:
        return None
    return int(number) if abs(number) <= _MAX_NUMBER else None  # neither infinite nor NaN


def _positive(value: str) -> int | None:
    number = _whole(value)
    return None if number is None or number < 1 else number


def _keys(value: str) -> tuple[str, ...] | None:
    return tuple(key for part in value.split(",") if (key := part.strip())) or None


_READERS: dict[str, Callable[[str], Any]] = {
    "activate": _flag,
    "dont_activate": _flag,
    "activate_only_after": _whole,
    "activate_only_every": _positive,
    "keep_activate_after_match": _flag,
    "dont_activate_after_match": _flag,
    "depth": _whole,
    "role": lambda value: value if value in _ROLES else None,
    "scan_depth": _positive,
    "position": _POSITIONS.get,
    "ignore_on_max_context": _flag,
    "additional_keys": _keys,
    "exclude_keys": _keys,
}
#: The decorators that are supported.
SUPPORTED = frozenset(_READERS)


MAX_ENTRIES = 2_000
MAX_CONTENT_CHARS = 20_000  # of an entry
MAX_BOOK_CHARS = 2_000_000  # of all contents and keys
MAX_KEYS = 100  # of an entry, secondary and additional ones included
MAX_KEY_CHARS = 200
MAX_SCAN_DEPTH = 100  # messages; more are scanned as if this many were asked for
MAX_REMEMBERING = 50  # entries whose earlier matches are looked up; further ones are not kept
DEFAULT_SCAN_DEPTH = 4  # messages, the draft included, if the book states none
_FIRST = 1e9  # the priority of what is left out last
_MAX_NAME_CHARS = 100
_COMMENT = re.compile(r"\{\{(?://|comment:)[^{}]*\}\}", re.IGNORECASE)
_HIDDEN_KEY = re.compile(r"\{\{hidden_key:([^{}]*)\}\}", re.IGNORECASE)
_ENTRY_BYTES = 1_000  # of an entry and its numbers
_KEY_BYTES = 200  # of a key and its place in the index
_MAX_NAMED = 10  # entries that a notice names
# The macros that a key may have: whom they stand for.
_NAME_MACRO = re.compile(r"\{\{\s*(char|user)\s*\}\}|<(bot|user)>", re.IGNORECASE)
_NEVER = PlainKey("\0")  # is in no text
_PATTERN_BYTES = 8 << 20  # of the set of all patterns

#: Where an entry is in the prompt: before or after the persona, at a depth of the history, or with
#: what was recalled for the draft.
Position = Literal["before_char", "after_char", "depth", "recalled"]
#: Why an entry does not work as its author meant it.
ProblemCode = Literal["pattern", "not_an_entry"]


class Placement(msgspec.Struct, frozen=True):
    """Where an entry is in the prompt, and in which role.

    `depth` counts from the newest message: 0 is after the message that is answered, 1 before it.
    """

    position: Position
    depth: int = 0
    role: Role = "system"


class LoreEntry(msgspec.Struct, frozen=True):
    """An entry; keys are numbers of the book's matcher. Of `required`, one of each must match.

    Of `excluded` none may match, and of `not_all` not every one. `number` is its place in the book,
    from 0; `content` is without decorators. Where the card gives no priority, it is the insertion
    order. `scan_depth` is None where it is the book's.
    """

    number: int
    id: str
    name: str
    content: str
    keys: tuple[int, ...]
    required: tuple[tuple[int, ...], ...]
    excluded: tuple[int, ...]
    constant: bool
    order: float
    priority: float
    scan_depth: int
    placement: Placement
    decorators: Decorators
    not_all: tuple[int, ...] = ()
    extensions: Extensions = PLAIN


class EntryProblem(msgspec.Struct, frozen=True):
    """An entry that does not work as its author meant it, by its id."""

    id: str
    code: ProblemCode


class Lorebook:
    """A lorebook as it is matched; built once for each version of a card."""

    def __init__(
        self,
        entries: Sequence[LoreEntry],
        matcher: KeyMatcher,
        problems: Sequence[EntryProblem],
        *,
        token_budget: int | None,
        recursive: bool,
        not_supported: Mapping[str, Sequence[str]] | None = None,
        names_user: bool = False,
    ) -> None:
        self.entries = entries
        self.matcher = matcher
        self.problems = problems
        self.token_budget = token_budget
        self.recursive = recursive
        #: Fields that ask for what is not done, with the ids of their entries.
        self.not_supported = not_supported or {}
        #: Whether a key names the player, so that the book is read anew for each.
        self.names_user = names_user
        self.max_scan_depth = max((entry.scan_depth for entry in entries), default=0)
        #: Entries that need no key, and those that depend on their earlier matches.
        self.unconditional = [entry.number for entry in entries if _needs_no_key(entry)]
        self.remembering = [entry.number for entry in entries if _remembers(entry)]
        #: The levels of recursion that entries wait for, lowest first.
        self.recursion_levels = sorted(
            {entry.extensions.delay_until_recursion for entry in entries} - {0}
        )
        self.by_key: dict[int, list[int]] = {}
        for entry in entries:
            for key in entry.keys:
                self.by_key.setdefault(key, []).append(entry.number)
        #: The keys in each entry's content, by entry; empty unless contents are scanned.
        self.keys_in_content = (
            [matcher.found_in(scannable(entry.content)) for entry in entries] if recursive else []
        )

    @classmethod
    def parse(
        cls,
        document: Mapping[str, Any],
        character: str = "",
        user: str = "",
        note: Mapping[str, Any] | None = None,
    ) -> "Lorebook":
        """Read the `character_book` of a card, or a lorebook that is exported alone.

        Args:
            character: whom {{char}} stands for in keys.
            user: whom {{user}} stands for in keys; if empty, nobody, and they match nothing.
            note: another entry, as `character_note_in` returns it.

        Raises:
            InvalidMessage: it exceeds a bound; names the field.
        """
        book = book_in(document) or {"entries": []}
        listed = book["entries"]
        if len(listed) > MAX_ENTRIES:
            raise InvalidMessage(
                f"character_book.entries: expected at most {MAX_ENTRIES}",
                param="character_book.entries",
            )
        return _Reader(book, character, user).read(listed if note is None else [*listed, note])

    def notices(self) -> list[Notice]:
        """Return what does not work, or not as SillyTavern does it, by field."""
        unusable: defaultdict[ProblemCode, list[str]] = defaultdict(list)
        for problem in self.problems:
            unusable[problem.code].append(problem.id)
        return [
            *(
                Notice("character_book.entries", f"{_NOTICES[code]}; {_named(ids)}")
                for code, ids in unusable.items()
            ),
            *(
                Notice(
                    f"character_book.entries.extensions.{field}",
                    f"not supported: {NOT_SUPPORTED[field]}; {_named(ids)}",
                )
                for field, ids in self.not_supported.items()
            ),
        ]

    @property
    def size_bytes(self) -> int:
        """An upper estimate of its memory use."""
        contents = sum(getsizeof(entry.content) for entry in self.entries)
        keys = sum(len(entry.keys) for entry in self.entries)
        patterns = _PATTERN_BYTES if self.matcher.has_patterns else 0
        return contents + len(self.entries) * _ENTRY_BYTES + keys * _KEY_BYTES + patterns


def lorebook_in(card: Mapping[str, Any] | None) -> Mapping[str, Any]:
    """Return the lorebook in the `data` of a card; empty if it has none, or one without entries."""
    book = None if card is None else card.get("character_book")
    if isinstance(book, Mapping) and book.get("spec") == "lorebook_v3":
        book = book.get("data")
    return book if isinstance(book, Mapping) and book.get("entries") else {}


def character_note_in(card: Mapping[str, Any] | None) -> Mapping[str, Any] | None:
    """Return SillyTavern's character's note in the `data` of a card, as an entry of a lorebook.

    It stands in every prompt, at its depth.
    """
    extensions = None if card is None else card.get("extensions")
    note = extensions.get("depth_prompt") if isinstance(extensions, Mapping) else None
    text = note.get("prompt") if isinstance(note, Mapping) else None
    if note is None or not isinstance(text, str) or not text.strip():
        return None
    role = note.get("role")
    return {
        "id": "depth_prompt",
        "keys": [],
        "constant": True,
        "priority": _FIRST,
        "content": f"@@depth {depth_in(note)}\n"
        f"@@role {role if role in _ROLES else 'system'}\n{text}",
    }


def check_lorebook(card: Mapping[str, Any] | None) -> list[Notice]:
    """Return what of the lorebook in a card does not work, or is not supported.

    Raises:
        InvalidMessage: it exceeds a bound; names the field.
    """
    return Lorebook.parse(lorebook_in(card), note=character_note_in(card)).notices()


def with_lorebook(companion: Companion, document: Mapping[str, Any]) -> CompanionFile:
    """Return a companion with the lorebook of a file in the place of its own."""
    card = {**(companion.card or {}), "character_book": book_in(document)}
    return CompanionFile(
        companion.slug,
        companion.name,
        companion.persona,
        companion.greeting,
        companion.settings,
        card,
    )


_NOTICES: Mapping[ProblemCode, str] = {
    "pattern": "expected patterns that run in time linear in the text, without look-around and "
    "back-references",
    "not_an_entry": "expected objects with content",
}


def _named(ids: Sequence[str]) -> str:
    """Return entries by their ids, the first of them."""
    more = f" and {len(ids) - _MAX_NAMED} more" if len(ids) > _MAX_NAMED else ""
    return f"entries {', '.join(ids[:_MAX_NAMED])}{more}"


#: The lorebook of a companion that has none.
NO_LOREBOOK = Lorebook((), KeyMatcher(()), (), token_budget=None, recursive=False)


class _Reader:
    """Reads the entries of one book, and numbers their distinct keys."""

    def __init__(self, book: Mapping[str, Any], character: str, user: str) -> None:
        self._book = book
        self._names = {"char": character, "bot": character, "user": user}
        self._is_silly_tavern = is_silly_tavern(book["entries"])
        self._scan_depth = _limited_depth(number(book.get("scan_depth")), DEFAULT_SCAN_DEPTH)
        settings = book.get("extensions")  # RisuAI says here whether a key is found within words
        self._whole_words = not isinstance(settings, Mapping) or flag(
            settings.get("risu_fullWordMatching"), default=True
        )
        self._numbers: dict[Key, int] = {}
        self._chars = 0
        self._problems: list[EntryProblem] = []
        self._not_supported: defaultdict[str, list[str]] = defaultdict(list)
        self._names_user = False

    def read(self, listed: Sequence[object]) -> Lorebook:
        entries: list[LoreEntry] = []
        for place, raw in enumerate(listed):
            if not isinstance(raw, Mapping) or "content" not in raw:
                self._problems.append(EntryProblem(str(place), "not_an_entry"))
            elif (entry := self._entry(raw, place, len(entries))) is not None:
                entries.append(entry)
        matcher = KeyMatcher(list(self._numbers))
        entries = [self._without_unusable(entry, matcher.unusable) for entry in entries]
        budget = number(self._book.get("token_budget"))
        return Lorebook(
            _with_limited_memory(entries),
            matcher,
            self._problems,
            token_budget=None if budget is None else max(0, int(budget)),
            # SillyTavern keeps it in its settings, where it is on unless turned off.
            recursive=flag(self._book.get("recursive_scanning"), default=self._is_silly_tavern),
            not_supported=self._not_supported,
            names_user=self._names_user,
        )

    def _entry(self, raw: Mapping[str, Any], place: int, entry_number: int) -> LoreEntry | None:
        """Return an entry; None if it is disabled, or has nothing to add to a prompt."""
        path = f"character_book.entries[{place}]"
        content = raw.get("content")
        content = content if isinstance(content, str) else ""
        self._check(content, MAX_CONTENT_CHARS, f"{path}.content")
        decorators, content = split_decorators(content)
        if not flag(raw.get("enabled"), default=True) or not content:
            return None
        entry_id = _label(raw.get("id"), str(place))
        fields = extensions_of(raw)
        percent = number(fields.get("risu_activationPercent"))
        extensions = PLAIN if percent is None else Extensions(probability=percent)
        if self._is_silly_tavern:
            extensions = read_extensions(fields)
            for name in unsupported_in(fields):
                self._not_supported[name].append(entry_id)
        if extensions.is_never_used:
            return None
        # In a book of SillyTavern a key is a pattern if it is written as one, whatever this says.
        use_regex = flag(raw.get("use_regex")) and not self._is_silly_tavern
        constant = flag(raw.get("constant")) and not use_regex
        keys, required, excluded, not_all = self._stated_keys(
            raw, fields, decorators, use_regex=use_regex, constant=constant
        )
        every = [*keys, *(key for one_of in required for key in one_of), *excluded, *not_all]
        if len(every) > MAX_KEYS:
            raise InvalidMessage(f"{path}.keys: expected at most {MAX_KEYS}", param=f"{path}.keys")
        for key in every:
            self._check(key, MAX_KEY_CHARS, f"{path}.keys")
        order = number(raw.get("insertion_order")) or 0.0
        priority = number(raw.get("priority"))
        if extensions.ignore_budget:
            priority = float("inf")
        depth: float | None = decorators.scan_depth
        if depth is None and self._is_silly_tavern:
            depth = number(fields.get("scan_depth"))
        return LoreEntry(
            number=entry_number,
            id=entry_id,
            name=_label(raw.get("name"), _label(raw.get("comment"), entry_id)),
            content=content,
            keys=self._number_keys(keys, raw, fields, pattern=use_regex),
            required=tuple(self._number_keys(one_of, raw, fields) for one_of in required),
            excluded=self._number_keys(excluded, raw, fields),
            constant=constant,
            order=order,
            priority=order if priority is None else priority,
            scan_depth=_limited_depth(depth, self._scan_depth),
            placement=self._placement(raw, fields, decorators, constant=constant),
            decorators=decorators,
            not_all=self._number_keys(not_all, raw, fields),
            extensions=extensions,
        )

    def _stated_keys(
        self,
        raw: Mapping[str, Any],
        fields: Mapping[str, Any],
        decorators: Decorators,
        *,
        use_regex: bool,
        constant: bool,
    ) -> tuple[list[str], list[tuple[str, ...]], tuple[str, ...], tuple[str, ...]]:
        """Return the keys of an entry, those of which one of each, none, or not all may match."""
        keys, additional = texts(raw.get("keys")), decorators.additional_keys
        if use_regex:  # secondary and excluding keys are ignored
            if isinstance(raw.get("keys"), str):
                keys = [raw["keys"]]
            return [*keys, *(key for one_of in additional for key in one_of)], [], (), ()
        required, excluded = list(additional), decorators.exclude_keys or ()
        secondary = tuple(texts(raw.get("secondary_keys")))
        if not secondary or not flag(raw.get("selective")):
            return keys, required, excluded, ()
        if not self._is_silly_tavern:
            return keys, [*required, secondary], excluded, ()
        if constant:  # stands whatever its keys
            return keys, required, excluded, ()
        match number(fields.get("selective_logic")):
            case 1:
                return keys, required, excluded, secondary
            case 2:
                return keys, required, (*excluded, *secondary), ()
            case 3:
                return keys, [*required, *((key,) for key in secondary)], excluded, ()
        return keys, [*required, secondary], excluded, ()

    def _check(self, text: str, max_chars: int, path: str) -> None:
        self._chars += len(text)
        if len(text) > max_chars:
            raise InvalidMessage(f"{path}: expected at most {max_chars} characters", param=path)
        if self._chars > MAX_BOOK_CHARS:
            raise InvalidMessage(
                f"character_book: expected at most {MAX_BOOK_CHARS} characters of keys and content",
                param="character_book",
            )

    def _number_keys(
        self,
        keys: Sequence[str],
        raw: Mapping[str, Any],
        fields: Mapping[str, Any],
        *,
        pattern: bool = False,
    ) -> tuple[int, ...]:
        case_sensitive = flag(raw.get("case_sensitive"))
        if self._is_silly_tavern:
            case_sensitive = flag(fields.get("case_sensitive"), default=case_sensitive)
        whole_words = flag(fields.get("match_whole_words"), default=self._whole_words)
        read: list[Key] = []
        for key in keys:
            is_pattern = pattern or (
                self._is_silly_tavern and SILLY_TAVERN_PATTERN.fullmatch(key) is not None
            )
            named = self._with_names(key, escape=is_pattern)
            if named is None:
                read.append(_NEVER)
            elif is_pattern:
                read.append(PatternKey(named, case_sensitive))
            else:
                read.append(PlainKey(named, case_sensitive, whole_words))
        return tuple(self._numbers.setdefault(key, len(self._numbers)) for key in read)

    def _with_names(self, key: str, *, escape: bool) -> str | None:
        """Return a key with the names that its macros stand for; None if one is not known."""
        macros = {(match[1] or match[2]).lower() for match in _NAME_MACRO.finditer(key)}
        self._names_user |= "user" in macros
        if not all(self._names[macro] for macro in macros):
            return None

        def name(match: re.Match[str]) -> str:
            known = self._names[(match[1] or match[2]).lower()]
            return re.escape(known) if escape else known

        return _NAME_MACRO.sub(name, key)

    def _without_unusable(self, entry: LoreEntry, unusable: set[int]) -> LoreEntry:
        """Return an entry without its patterns that cannot run, if any; report it.

        The specification has an entry with such a pattern match nothing, not even by its other
        keys; SillyTavern has the other keys match.
        """
        others = {
            *entry.excluded,
            *entry.not_all,
            *(key for keys in entry.required for key in keys),
        }
        if unusable.isdisjoint(others | {*entry.keys}):
            return entry
        self._problems.append(EntryProblem(entry.id, "pattern"))
        kept = tuple(key for key in entry.keys if key not in unusable)
        return msgspec.structs.replace(entry, keys=kept if self._is_silly_tavern else ())

    def _placement(
        self,
        raw: Mapping[str, Any],
        fields: Mapping[str, Any],
        decorators: Decorators,
        *,
        constant: bool,
    ) -> Placement:
        """Return where an entry goes; the decorator `position` counts more than `depth`."""
        place = position_in(fields) if self._is_silly_tavern else (None, 0, None)
        stated, depth = place[0], place[1]
        role = decorators.role or place[2] or "system"
        if decorators.position is not None:
            stated = decorators.position
        elif decorators.depth is not None:
            stated, depth = "depth", max(0, decorators.depth)
        if stated == "depth":
            return Placement("depth", depth, role)
        stated = stated or raw.get("position")
        if stated == "before_char":
            return Placement("before_char")
        # What is in every prompt comes early, so that a model server can reuse its prefix.
        if stated == "after_char" or constant or decorators.activate:
            return Placement("after_char")
        return Placement("recalled")


def _with_limited_memory(entries: Sequence[LoreEntry]) -> list[LoreEntry]:
    """Return entries, of which at most so many depend on their earlier matches."""
    limited: list[LoreEntry] = []
    remembering = 0
    for entry in entries:
        remembering += _remembers(entry)
        if _remembers(entry) and remembering > MAX_REMEMBERING:
            decorators = msgspec.structs.replace(
                entry.decorators, keep_activate_after_match=False, dont_activate_after_match=False
            )
            extensions = msgspec.structs.replace(entry.extensions, sticky=0, cooldown=0)
            limited.append(
                msgspec.structs.replace(entry, decorators=decorators, extensions=extensions)
            )
        else:
            limited.append(entry)
    return limited


def _remembers(entry: LoreEntry) -> bool:
    decorators, extensions = entry.decorators, entry.extensions
    return (
        decorators.keep_activate_after_match
        or decorators.dont_activate_after_match
        or bool(extensions.sticky or extensions.cooldown)
    )


def _needs_no_key(entry: LoreEntry) -> bool:
    decorators = entry.decorators
    return entry.constant or decorators.activate or decorators.keep_activate_after_match


def scannable(content: str) -> str:
    """Return what of a content other entries' keys may match: no comments, but hidden keys."""
    return _HIDDEN_KEY.sub(r"\1", _COMMENT.sub("", content))


def _limited_depth(value: float | None, default: int) -> int:
    return default if value is None else max(0, min(int(value), MAX_SCAN_DEPTH))


def _label(value: object, default: str) -> str:
    """Return an id or a name on one line, shortened; the default if there is none."""
    if isinstance(value, bool) or not isinstance(value, str | int | float):
        return default
    return " ".join(str(value).split())[:_MAX_NAME_CHARS] or default
