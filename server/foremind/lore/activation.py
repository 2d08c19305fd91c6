"""Which entries of a lorebook a draft activates, in the order of the prompt. Pure.

Source: the lorebook specification of Character Card V3. A message is matched by itself: no key
spans two messages. The greeting is not counted as one.
"""

from collections.abc import Callable, Sequence, Set
from itertools import islice
from typing import NamedTuple

import msgspec

from foremind.lore.lorebook import Lorebook, LoreEntry, Placement, Position

MAX_ROUNDS = 10  # of recursive scanning; each entry is activated once in any case


class ScannedMessage(NamedTuple):
    """Who said a message, and which keys of the book it contains."""

    by_user: bool
    keys: Set[int]


class ActiveEntry(msgspec.Struct, frozen=True):
    """An entry as it is in the prompt; `tokens` are those of `text`."""

    id: str
    name: str
    text: str
    tokens: int
    placement: Placement
    priority: float
    order: float
    number: int
    first_left_out: bool = False


class ActiveLore(msgspec.Struct, frozen=True):
    """The active entries in the order of the prompt, and the ids of those that did not fit."""

    entries: tuple[ActiveEntry, ...] = ()
    left_out: tuple[str, ...] = ()

    @property
    def tokens(self) -> int:
        """The tokens of all entries."""
        return sum(entry.tokens for entry in self.entries)

    def at(self, position: Position) -> list[ActiveEntry]:
        """Return the entries of one position, in order."""
        return [entry for entry in self.entries if entry.placement.position == position]

    def within(self, max_tokens: int, *, context_is_full: bool = False) -> "ActiveLore":
        """Return what fits: entries of the lowest priority are left out first, then of the lowest
        insertion order, then the last of the book.

        An entry that exceeds the limit by itself is left out first of all.

        Args:
            context_is_full: whether the limit is that of the model's context, which leaves out
                entries with `@@ignore_on_max_context` before any other.
        """
        used = self.tokens
        if used <= max_tokens:
            return self

        def rank(entry: ActiveEntry) -> tuple[bool, bool, float, float, int]:
            spared = not (context_is_full and entry.first_left_out)
            fits = entry.tokens <= max_tokens
            return fits, spared, entry.priority, entry.order, -entry.number

        dropped: set[int] = set()
        for entry in sorted(self.entries, key=rank):
            if used <= max_tokens:
                break
            dropped.add(entry.number)
            used -= entry.tokens
        return ActiveLore(
            tuple(entry for entry in self.entries if entry.number not in dropped),
            (*self.left_out, *(entry.id for entry in self.entries if entry.number in dropped)),
        )


NO_LORE = ActiveLore()


def activate(
    book: Lorebook,
    messages: Sequence[ScannedMessage],
    count: Callable[[str], int],
    max_tokens: int,
    expand: Callable[[str], str] = str,
) -> ActiveLore:
    """Return the entries that are active, within the book's budget and `max_tokens`.

    Args:
        messages: newest first; the first is the draft.
        count: counts the tokens of a text.
        expand: replaces the macros of a content.
    """
    if book.token_budget is not None:
        max_tokens = min(max_tokens, book.token_budget)
    matching = [book.entries[number] for number in _matching(book, messages)]
    matching.sort(key=lambda entry: (entry.priority, entry.order, -entry.number), reverse=True)
    kept: list[ActiveEntry] = []
    left_out: list[LoreEntry] = []
    used = 0
    for place, entry in enumerate(matching):
        active = _active(entry, count, expand)
        if active.tokens > max_tokens:  # by itself
            left_out.append(entry)
            continue
        if used + active.tokens > max_tokens:
            left_out += matching[place:]  # which are not even counted: there may be thousands
            break
        used += active.tokens
        kept.append(active)
    return ActiveLore(
        tuple(sorted((entry for entry in kept if entry.text), key=_prompt_order)),
        tuple(entry.id for entry in sorted(left_out, key=_prompt_order)),
    )


def _prompt_order(entry: ActiveEntry | LoreEntry) -> tuple[float, int]:
    return entry.order, entry.number


def _active(
    entry: LoreEntry, count: Callable[[str], int], expand: Callable[[str], str]
) -> ActiveEntry:
    text = expand(entry.content).strip()
    return ActiveEntry(
        id=entry.id,
        name=entry.name,
        text=text,
        tokens=count(text) if text else 0,
        placement=entry.placement,
        priority=entry.priority,
        order=entry.order,
        number=entry.number,
        first_left_out=entry.decorators.ignore_on_max_context,
    )


def _matching(book: Lorebook, messages: Sequence[ScannedMessage]) -> set[int]:
    """Return the numbers of the entries that match, with those that recursion adds."""
    turns = sum(not message.by_user for message in messages)
    conversation = _Conversation(messages[: book.max_scan_depth], turns)
    matched_before = _matched_before(book, messages, turns)
    active: set[int] = set()
    for _ in range(MAX_ROUNDS):
        candidates = {*book.unconditional, *_with_keys(book, conversation.keys())}
        found = [
            book.entries[number]
            for number in candidates - active
            if _is_active(book.entries[number], conversation, matched_before)
        ]
        active.update(entry.number for entry in found)
        if not book.recursive or not found:
            break
        for entry in found:
            conversation.scan_content(book.keys_in_content[entry.number])
    return active


class _Conversation:
    """The keys that the newest messages contain, each with the newest of them that does.

    Args:
        messages: newest first, as many as any entry scans.
        companion_turns: how many messages the companion has said, older ones included.
    """

    def __init__(self, messages: Sequence[ScannedMessage], companion_turns: int) -> None:
        self.companion_turns = companion_turns
        self._newest: dict[int, int] = {}  # by key: the newest message, 0 for the draft
        for place, message in enumerate(messages):
            for key in message.keys:
                self._newest.setdefault(key, place)

    def keys(self) -> Set[int]:
        """Return all keys found."""
        return self._newest.keys()

    def scan_content(self, keys: Set[int]) -> None:
        """Record keys in the content of active entries, which any scan depth covers."""
        self._newest.update(dict.fromkeys(keys, -1))

    def has_any(self, keys: Sequence[int], depth: int) -> bool:
        """Return whether one of the newest `depth` messages contains one of the keys."""
        return any(self._newest.get(key, depth) < depth for key in keys)


def _with_keys(book: Lorebook, keys: Set[int]) -> set[int]:
    return {number for key in keys for number in book.by_key.get(key, ())}


def _is_active(entry: LoreEntry, conversation: _Conversation, matched_before: Set[int]) -> bool:
    decorators = entry.decorators
    if decorators.activate:
        return True
    if decorators.dont_activate:
        return False
    if entry.number in matched_before:
        if decorators.keep_activate_after_match:
            return True
        if decorators.dont_activate_after_match:
            return False
    return _matches(entry, conversation)


def _matches(entry: LoreEntry, conversation: _Conversation) -> bool:
    """Return whether an entry's keys and conditions are met, whatever it did before."""
    decorators, depth, turns = entry.decorators, entry.scan_depth, conversation.companion_turns
    if decorators.activate_only_after is not None and turns < decorators.activate_only_after:
        return False
    if decorators.activate_only_every is not None and turns % decorators.activate_only_every:
        return False
    if conversation.has_any(entry.excluded, depth):
        return False
    if not all(conversation.has_any(keys, depth) for keys in entry.required):
        return False
    return entry.constant or conversation.has_any(entry.keys, depth)


def _matched_before(
    book: Lorebook, messages: Sequence[ScannedMessage], companion_turns: int
) -> set[int]:
    """Return the entries that matched an earlier message of the user, of those that remember it.

    What recursion added then is not counted.
    """
    waiting = [book.entries[number] for number in book.remembering]
    matched: set[int] = set()
    for place, message in islice(enumerate(messages), 1, None):
        if not waiting:
            break
        if not message.by_user:
            companion_turns -= 1
            continue
        window = messages[place : place + book.max_scan_depth]
        conversation = _Conversation(window, companion_turns)
        matched |= {entry.number for entry in waiting if _matches(entry, conversation)}
        waiting = [entry for entry in waiting if entry.number not in matched]
    return matched
