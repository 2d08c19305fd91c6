"""Which entries of a lorebook a draft activates, in the order of the prompt. Pure.

Sources: the lorebook specification of Character Card V3, and for books of SillyTavern
`public/scripts/world-info.js` of its version 1.19. A message is matched by itself: no key
spans two messages. The greeting is not counted as one.
"""

from collections.abc import Callable, Mapping, Sequence, Set
from typing import NamedTuple

import msgspec

from foremind.lore.lorebook import Lorebook, LoreEntry, Placement, Position

MAX_ROUNDS = 10  # of recursive scanning; each entry is activated once in any case


class ScannedMessage(NamedTuple):
    """Who said a message, which keys of the book it contains, and its text."""

    by_user: bool
    keys: Set[int]
    text: str = ""


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
    draw: Callable[[str], float] = lambda _moment: 0.0,
) -> ActiveLore:
    """Return the entries that are active, within the book's budget and `max_tokens`.

    Args:
        messages: newest first; the first is the draft.
        count: counts the tokens of a text.
        expand: replaces the macros of a content.
        draw: returns a number from 0 to below 1, for what entries leave to chance; of the same
            moment, which its argument tells, the same.
    """
    if book.token_budget is not None:
        max_tokens = min(max_tokens, book.token_budget)
    matching = [book.entries[number] for number in _matching(book, messages, draw)]
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


def _matching(
    book: Lorebook, messages: Sequence[ScannedMessage], draw: Callable[[str], float]
) -> set[int]:
    """Return the numbers of the entries that match, with those that recursion adds."""
    turns = sum(not message.by_user for message in messages)
    conversation = _Conversation(messages[: book.max_scan_depth], turns, len(messages))
    memory = _remembered(book, messages, draw)
    levels = list(book.recursion_levels)
    level = levels.pop(0) if levels else 0
    chance = _at_moment(draw, messages, 0)
    active: set[int] = set()
    out: set[int] = set()  # by chance, or because another entry of their group is active
    recursing = False
    for _ in range(MAX_ROUNDS):
        candidates = {*book.unconditional, *_with_keys(book, conversation.keys()), *memory.sticky}
        found = [
            entry
            for entry in (book.entries[number] for number in sorted(candidates - active - out))
            if _may_be_active(entry, memory, level if recursing else 0, recursing=recursing)
            and _is_active(entry, conversation, memory)
        ]
        kept = [
            entry
            for entry in _one_of_each_group(book, found, active, memory, chance)
            if entry.number in memory.sticky or _passes(entry, chance)
        ]
        active.update(entry.number for entry in kept)
        out.update(entry.number for entry in found if entry.number not in active)
        scanned = [entry for entry in kept if not entry.extensions.prevent_recursion]
        if book.recursive and scanned:
            for entry in scanned:
                conversation.scan_content(book.keys_in_content[entry.number])
        elif levels:
            level = levels.pop(0)
        else:
            break
        recursing = True
    return active


def _at_moment(
    draw: Callable[[str], float], messages: Sequence[ScannedMessage], place: int
) -> Callable[[str], float]:
    """Return what draws at the moment of a message, which what was said before it tells."""
    moment = "\0".join(message.text for message in messages[place + 1 : place + 3])
    return lambda what: draw(f"{what}\0{moment}")


def _passes(entry: LoreEntry, chance: Callable[[str], float]) -> bool:
    """Return whether chance lets an entry be active."""
    probability = entry.extensions.probability
    return probability >= 100 or chance(str(entry.number)) * 100 < probability


class _Memory(NamedTuple):
    """Which entries earlier messages of the user matched, and those that stay on, or stay off."""

    matched: Set[int] = frozenset()
    sticky: Set[int] = frozenset()
    cooling: Set[int] = frozenset()


def _may_be_active(entry: LoreEntry, memory: _Memory, level: int, *, recursing: bool) -> bool:
    """Return whether an entry may be active in a round, whatever its keys.

    Args:
        level: up to which delayed entries may be active; 0 in the first round.
    """
    if entry.number in memory.sticky:
        return True
    if entry.number in memory.cooling or entry.extensions.delay_until_recursion > level:
        return False
    return not (recursing and entry.extensions.exclude_recursion)


def _one_of_each_group(
    book: Lorebook,
    found: Sequence[LoreEntry],
    active: Set[int],
    memory: _Memory,
    chance: Callable[[str], float],
) -> list[LoreEntry]:
    """Return entries without those of a group of which another one is active or is preferred."""
    kept = {entry.number: entry for entry in found}
    taken = {group for number in active for group in book.entries[number].extensions.groups}
    for group in sorted({group for entry in found for group in entry.extensions.groups}):
        members = [entry for entry in kept.values() if group in entry.extensions.groups]
        winner = None if group in taken else _winner(group, members, memory, chance)
        for entry in members:
            if entry is not winner:
                del kept[entry.number]
    return list(kept.values())


def _winner(
    group: str, members: Sequence[LoreEntry], memory: _Memory, chance: Callable[[str], float]
) -> LoreEntry | None:
    """Return the entry of a group that is used: one that stays on, then one that is preferred."""
    for entry in members:
        if entry.number in memory.sticky:
            return entry
    preferred = [entry for entry in members if entry.extensions.group_override]
    if preferred:
        return max(preferred, key=lambda entry: entry.order)
    left = chance(group) * sum(entry.extensions.group_weight for entry in members)
    for entry in members:
        left -= entry.extensions.group_weight
        if left < 0:
            return entry
    return members[-1] if members else None


class _Conversation:
    """The keys that the newest messages contain, each with the newest of them that does.

    Args:
        messages: newest first, as many as any entry scans.
        companion_turns: how many messages the companion has said, older ones included.
        said: how many messages there are, likewise.
    """

    def __init__(self, messages: Sequence[ScannedMessage], companion_turns: int, said: int) -> None:
        self.companion_turns = companion_turns
        self.said = said
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

    def has_all(self, keys: Sequence[int], depth: int) -> bool:
        """Return whether the newest `depth` messages contain all of some keys."""
        return all(self.has_any([key], depth) for key in keys)

    def has_any(self, keys: Sequence[int], depth: int) -> bool:
        """Return whether one of the newest `depth` messages contains one of the keys."""
        return any(self._newest.get(key, depth) < depth for key in keys)


def _with_keys(book: Lorebook, keys: Set[int]) -> set[int]:
    return {number for key in keys for number in book.by_key.get(key, ())}


def _is_active(entry: LoreEntry, conversation: _Conversation, memory: _Memory) -> bool:
    decorators = entry.decorators
    if decorators.activate:
        return True
    if decorators.dont_activate:
        return False
    if entry.number in memory.sticky:
        return True
    if entry.number in memory.matched:
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
    if conversation.said < entry.extensions.delay:
        return False
    if conversation.has_any(entry.excluded, depth):
        return False
    if entry.not_all and conversation.has_all(entry.not_all, depth):
        return False
    if not all(conversation.has_any(keys, depth) for keys in entry.required):
        return False
    return entry.constant or conversation.has_any(entry.keys, depth)


def _remembered(
    book: Lorebook, messages: Sequence[ScannedMessage], draw: Callable[[str], float]
) -> _Memory:
    """Return what earlier messages of the user did to the entries that remember it.

    What recursion added then is not counted.
    """
    matched: set[int] = set()
    on_until: dict[int, int] = {}  # by entry: how many messages there are when it ends
    off_until: dict[int, int] = {}
    turns = 0
    for place in range(len(messages) - 1 if book.remembering else 0, 0, -1):
        if not messages[place].by_user:
            turns += 1
            continue
        said = len(messages) - place
        window = messages[place : place + book.max_scan_depth]
        conversation = _Conversation(window, turns, said)
        chance = _at_moment(draw, messages, place)
        for entry in (book.entries[number] for number in book.remembering):
            if _matches(entry, conversation):
                matched.add(entry.number)
                if off_until.get(entry.number, 0) <= said and _passes(entry, chance):
                    on_until[entry.number] = said + entry.extensions.sticky
                    off_until[entry.number] = on_until[entry.number] + entry.extensions.cooldown
    return _Memory(matched, _later(on_until, len(messages)), _later(off_until, len(messages)))


def _later(until: Mapping[int, int], said: int) -> Set[int]:
    return {number for number, end in until.items() if end > said}
