"""What a draft and the conversation before it activate of a companion's lorebook."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial

import structlog

from foremind.cards.card_fields import character_name
from foremind.cards.card_macros import DRAWN, MacroValues, drawn, expand_card_macros
from foremind.domain.announcements import Announcement, MemoriesForgotten
from foremind.domain.companion import Companion
from foremind.domain.errors import InvalidMessage
from foremind.domain.policy import LayerPolicy
from foremind.llm.prompt.character import ANYBODY, last_turn_of
from foremind.llm.prompt.layout import PastTurn
from foremind.llm.prompt.quoted_lines import without_tags
from foremind.llm.prompt.token_counter import counter_for
from foremind.lore.activation import NO_LORE, ActiveLore, ScannedMessage, activate
from foremind.lore.lorebook import (
    MAX_CONTENT_CHARS,
    NO_LOREBOOK,
    Lorebook,
    character_note_in,
    lorebook_in,
)
from foremind.runtime.caches import ByteBoundedCache
from foremind.runtime.supervision import run_or_offload

MAX_BYTES = 128 << 20  # of all lorebooks; the largest take some 20 MiB
_MAX_REPORTED = 20  # entries of a book that the log names

_log = structlog.get_logger("foremind.lore")


def has_lorebook(companion: Companion) -> bool:
    """Return whether a companion's card has entries of lore."""
    return bool(lorebook_in(companion.card) or character_note_in(companion.card))


class Lorebooks:
    """The lorebooks in use, within 128 MiB; the least recently used are parsed again."""

    def __init__(self) -> None:
        self._books: ByteBoundedCache[tuple[int, int, str], Lorebook] = ByteBoundedCache(
            MAX_BYTES, lambda book: book.size_bytes
        )
        self._one_at_a_time = asyncio.Lock()  # parsing takes a thread, for up to half a second

    async def load(self, companion: Companion, user: str = ANYBODY) -> Lorebook:
        """Return a companion's lorebook; what of it is unusable is logged once, by entry.

        Args:
            user: the player's name, which keys may have.
        """
        if not has_lorebook(companion):
            return NO_LOREBOOK
        book = await self._load(companion, "")
        if book.names_user and user != ANYBODY:
            return await self._load(companion, user)
        return book

    def on_announcement(self, announcement: Announcement) -> None:
        """Drop what has a player's name after an erasure."""
        if isinstance(announcement, MemoriesForgotten):
            for key in [key for key in self._books if key[-1]]:
                del self._books[key]

    async def _load(self, companion: Companion, user: str) -> Lorebook:
        key = companion.id, companion.version, user
        book = self._books.get(key)
        if book is not None:
            return book
        async with self._one_at_a_time:
            book = self._books.get(key)
            if book is None:
                book = await asyncio.to_thread(partial(_parse, companion, user))
                self._books.put(key, book)
        return book


def _parse(companion: Companion, user: str) -> Lorebook:
    try:
        card, name = companion.card, character_name(companion)
        book = Lorebook.parse(lorebook_in(card), name, user, character_note_in(card))
    except InvalidMessage as error:  # a card is checked when it is stored, perhaps by older bounds
        _log.warning("lorebook.unusable", companion=companion.slug, param=error.param)
        return NO_LOREBOOK
    for problem in [] if user else book.problems[:_MAX_REPORTED]:
        _log.warning(
            "lorebook.entry_unusable",
            companion=companion.slug,
            entry=problem.id,
            reason=problem.code,
            entries=len(book.problems),
        )
    return book


#: Of the model's context that lore may take, whatever the book's own budget.
LORE_SHARE = 0.25
_CHARS_PER_ENTRY = 4  # the work of activating an entry, in characters to scan
_IN_A_THREAD = 1 << 20  # characters: more than any text that is processed inline

#: How many turns of a conversation are known, and the id of the newest stored one.
HistoryMark = tuple[int, int]
NO_HISTORY: HistoryMark = (0, 0)


@dataclass(frozen=True, slots=True)
class DraftLore:
    """The lore that a draft activates, and the conversation that it was activated in."""

    active: ActiveLore = NO_LORE
    history: HistoryMark = NO_HISTORY


#: Returns the lore of a draft.
LoreSource = Callable[[str], Awaitable[DraftLore]]


async def no_lore(_draft: str) -> DraftLore:
    """Return the lore of a draft to a companion without a lorebook."""
    return DraftLore()


def mark_of(turns: Sequence[PastTurn]) -> HistoryMark:
    """Return the mark of a conversation: it differs if a turn was added, erased or stored."""
    return len(turns), max((turn.id or 0 for turn in turns), default=0)


async def lore_for(
    lorebooks: Lorebooks,
    companion: Companion,
    policy: LayerPolicy,
    macros: MacroValues,
    turns: Sequence[PastTurn],
    draft: str,
) -> DraftLore:
    """Return what a draft activates after some turns, oldest first; long work is in a thread.

    Args:
        macros: their `moment` is told by the turns.
    """
    if not has_lorebook(companion):
        return DraftLore()
    book = await lorebooks.load(companion, macros.user)
    values = replace(macros, moment=last_turn_of(turns))
    work = partial(active_lore, book, policy, tuple(turns), draft, values)
    return DraftLore(await run_or_offload(_effort(book, turns, draft), work), mark_of(turns))


def active_lore(
    book: Lorebook,
    policy: LayerPolicy,
    turns: Sequence[PastTurn],
    draft: str,
    values: MacroValues,
) -> ActiveLore:
    """Return what a draft activates after some turns, oldest first. Pure."""

    def expand(content: str) -> str:
        return without_tags(expand_card_macros(content, values, MAX_CONTENT_CHARS))

    def draw(moment: str) -> float:
        return drawn(values.conversation, moment) / DRAWN

    depth = _scanned_turns(book, turns)
    messages = [ScannedMessage(True, book.matcher.found_in(draft), draft)]
    for place, turn in enumerate(reversed(turns)):
        keys = turn.keys_in(book.matcher) if place < depth else frozenset[int]()
        messages.append(ScannedMessage(turn.speaker == "user", keys, turn.content))
    max_tokens = int(policy.context_tokens * LORE_SHARE)
    count = counter_for(policy.tokenizer)
    return activate(book, messages, count, max_tokens, expand, draw)


def _scanned_turns(book: Lorebook, turns: Sequence[PastTurn]) -> int:
    """Return how many of the newest turns are scanned: all, where earlier matches count."""
    return len(turns) if book.remembering else max(0, book.max_scan_depth - 1)


def _effort(book: Lorebook, turns: Sequence[PastTurn], draft: str) -> int:
    """Return how long the work takes, as characters to process."""
    if book.matcher.has_patterns or book.remembering:
        return _IN_A_THREAD
    scanned = turns[max(0, len(turns) - _scanned_turns(book, turns)) :]
    unscanned = sum(len(turn.content) for turn in scanned if not turn.is_scanned_for(book.matcher))
    entries = len(book.entries) * _CHARS_PER_ENTRY if book.recursive else 0
    return len(draft) + unscanned + entries
