"""Lorebooks of character cards, read tolerantly and within stated bounds. Pure.

Source: the lorebook specification of Character Card V3, which is a superset of V2's
`character_book`. Unknown fields are ignored, and one of another type than expected counts as
absent: the card itself is stored as it came.

Decorators of a lorebook entry: lines at the head of its content that begin with @@.

Source: "Decorators" of the lorebook specification, Character Card V3. A line of `@@@` is used if
the one before it is unknown, invalid or unsupported.
"""

import re
from collections.abc import Callable, Mapping, Sequence
from sys import getsizeof
from typing import Any, Literal, get_args

import msgspec

from foremind.domain.errors import InvalidMessage
from foremind.lore.key_matcher import Key, KeyMatcher, PatternKey, PlainKey

Role = Literal["assistant", "system", "user"]
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
_MAX_NAME_CHARS = 100
_COMMENT = re.compile(r"\{\{(?://|comment:)[^{}]*\}\}", re.IGNORECASE)
_HIDDEN_KEY = re.compile(r"\{\{hidden_key:([^{}]*)\}\}", re.IGNORECASE)
_ENTRY_BYTES = 1_000  # of an entry and its numbers
_KEY_BYTES = 200  # of a key and its place in the index
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

    `number` is its place in the book, from 0; `content` is without decorators. Where the card gives
    no priority, it is the insertion order. `scan_depth` is None where it is the book's.
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
    ) -> None:
        self.entries = entries
        self.matcher = matcher
        self.problems = problems
        self.token_budget = token_budget
        self.recursive = recursive
        self.max_scan_depth = max((entry.scan_depth for entry in entries), default=0)
        #: Entries that need no key, and those that depend on their earlier matches.
        self.unconditional = [entry.number for entry in entries if _needs_no_key(entry)]
        self.remembering = [entry.number for entry in entries if _remembers(entry)]
        self.by_key: dict[int, list[int]] = {}
        for entry in entries:
            for key in entry.keys:
                self.by_key.setdefault(key, []).append(entry.number)
        #: The keys in each entry's content, by entry; empty unless contents are scanned.
        self.keys_in_content = (
            [matcher.found_in(scannable(entry.content)) for entry in entries] if recursive else []
        )

    @classmethod
    def parse(cls, book: Mapping[str, Any]) -> "Lorebook":
        """Read the `character_book` of a card, or a lorebook that is exported alone.

        Raises:
            InvalidMessage: it exceeds a bound; names the field.
        """
        if book.get("spec") == "lorebook_v3" and isinstance(book.get("data"), Mapping):
            book = book["data"]
        raw = book.get("entries")
        listed = list(raw.values()) if isinstance(raw, Mapping) else raw
        if not isinstance(listed, list):
            listed = []
        if len(listed) > MAX_ENTRIES:
            raise InvalidMessage(
                f"character_book.entries: expected at most {MAX_ENTRIES}",
                param="character_book.entries",
            )
        return _Reader(book).read(listed)

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
    return book if isinstance(book, Mapping) and book.get("entries") else {}


#: The lorebook of a companion that has none.
NO_LOREBOOK = Lorebook((), KeyMatcher(()), (), token_budget=None, recursive=False)


class _Reader:
    """Reads the entries of one book, and numbers their distinct keys."""

    def __init__(self, book: Mapping[str, Any]) -> None:
        self._book = book
        self._scan_depth = _limited_depth(_number(book.get("scan_depth")), DEFAULT_SCAN_DEPTH)
        self._numbers: dict[Key, int] = {}
        self._chars = 0
        self._problems: list[EntryProblem] = []

    def read(self, listed: Sequence[object]) -> Lorebook:
        entries: list[LoreEntry] = []
        for place, raw in enumerate(listed):
            if not isinstance(raw, Mapping):
                self._problems.append(EntryProblem(str(place), "not_an_entry"))
            elif (entry := self._entry(raw, place, len(entries))) is not None:
                entries.append(entry)
        matcher = KeyMatcher(list(self._numbers))
        entries = [self._without_unusable(entry, matcher.unusable) for entry in entries]
        budget = _number(self._book.get("token_budget"))
        return Lorebook(
            _with_limited_memory(entries),
            matcher,
            self._problems,
            token_budget=None if budget is None else max(0, int(budget)),
            recursive=self._book.get("recursive_scanning") is True,
        )

    def _entry(self, raw: Mapping[str, Any], place: int, number: int) -> LoreEntry | None:
        """Return an entry; None if it is disabled, or has nothing to add to a prompt."""
        path = f"character_book.entries[{place}]"
        content = raw.get("content")
        content = content if isinstance(content, str) else ""
        self._check(content, MAX_CONTENT_CHARS, f"{path}.content")
        decorators, content = split_decorators(content)
        if raw.get("enabled") is False or not content:
            return None
        use_regex = raw.get("use_regex") is True
        plain_lists = [] if use_regex else list(decorators.additional_keys)
        texts = _texts(raw.get("keys"))
        if use_regex:
            texts += [key for keys in decorators.additional_keys for key in keys]
        elif raw.get("selective") is True and (secondary := _texts(raw.get("secondary_keys"))):
            plain_lists.append(tuple(secondary))
        excluded = () if use_regex else decorators.exclude_keys or ()
        every = [*texts, *(key for keys in plain_lists for key in keys), *excluded]
        if len(every) > MAX_KEYS:
            raise InvalidMessage(f"{path}.keys: expected at most {MAX_KEYS}", param=f"{path}.keys")
        for key in every:
            self._check(key, MAX_KEY_CHARS, f"{path}.keys")
        order = _number(raw.get("insertion_order")) or 0.0
        priority = _number(raw.get("priority"))
        constant = raw.get("constant") is True and not use_regex
        entry_id = _label(raw.get("id"), str(place))
        return LoreEntry(
            number=number,
            id=entry_id,
            name=_label(raw.get("name"), _label(raw.get("comment"), entry_id)),
            content=content,
            keys=self._number_keys(texts, raw, pattern=use_regex),
            required=tuple(self._number_keys(keys, raw) for keys in plain_lists),
            excluded=self._number_keys(excluded, raw),
            constant=constant,
            order=order,
            priority=order if priority is None else priority,
            scan_depth=_limited_depth(decorators.scan_depth, self._scan_depth),
            placement=_placement(raw.get("position"), decorators, constant=constant),
            decorators=decorators,
        )

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
        self, texts: Sequence[str], raw: Mapping[str, Any], *, pattern: bool = False
    ) -> tuple[int, ...]:
        case_sensitive = raw.get("case_sensitive") is True
        extensions = raw.get("extensions")
        whole_words = not (
            isinstance(extensions, Mapping) and extensions.get("match_whole_words") is False
        )
        keys: list[Key] = [
            PatternKey(text, case_sensitive)
            if pattern
            else PlainKey(text, case_sensitive, whole_words)
            for text in texts
        ]
        return tuple(self._numbers.setdefault(key, len(self._numbers)) for key in keys)

    def _without_unusable(self, entry: LoreEntry, unusable: set[int]) -> LoreEntry:
        """Return an entry, without its keys if any is a pattern that cannot run; report it."""
        if unusable.isdisjoint(entry.keys):
            return entry
        self._problems.append(EntryProblem(entry.id, "pattern"))
        return msgspec.structs.replace(entry, keys=())


def _placement(position: object, decorators: Decorators, *, constant: bool) -> Placement:
    """Return where an entry goes; the decorator `position` counts more than `depth`."""
    role = decorators.role or "system"
    if decorators.position is None and decorators.depth is not None:
        return Placement("depth", max(0, decorators.depth), role)
    stated = decorators.position or position
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
            limited.append(msgspec.structs.replace(entry, decorators=decorators))
        else:
            limited.append(entry)
    return limited


def _remembers(entry: LoreEntry) -> bool:
    decorators = entry.decorators
    return decorators.keep_activate_after_match or decorators.dont_activate_after_match


def _needs_no_key(entry: LoreEntry) -> bool:
    decorators = entry.decorators
    return entry.constant or decorators.activate or decorators.keep_activate_after_match


def scannable(content: str) -> str:
    """Return what of a content other entries' keys may match: no comments, but hidden keys."""
    return _HIDDEN_KEY.sub(r"\1", _COMMENT.sub("", content))


def _texts(value: object) -> list[str]:
    """Return the texts of a list of keys that are not blank."""
    parts = value if isinstance(value, list) else []
    return [part.strip() for part in parts if isinstance(part, str) and part.strip()]


def _number(value: object) -> float | None:
    """Return a finite number; None for anything else."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    try:
        number = float(value)
    except OverflowError:
        return None
    return number if abs(number) < float("inf") else None


def _limited_depth(value: float | None, default: int) -> int:
    return default if value is None else max(0, min(int(value), MAX_SCAN_DEPTH))


def _label(value: object, default: str) -> str:
    """Return an id or a name on one line, shortened; the default if there is none."""
    if isinstance(value, bool) or not isinstance(value, str | int | float):
        return default
    return " ".join(str(value).split())[:_MAX_NAME_CHARS] or default
