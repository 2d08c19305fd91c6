"""The lorebooks of companions, parsed once for each version of a card."""

import asyncio
from functools import partial

import structlog

from foremind.domain.companion import Companion
from foremind.domain.errors import InvalidMessage
from foremind.lore.lorebook import NO_LOREBOOK, Lorebook, lorebook_in
from foremind.runtime.byte_bounded_cache import ByteBoundedCache

MAX_BYTES = 128 << 20  # of all lorebooks; the largest take some 20 MiB
_MAX_REPORTED = 20  # entries of a book that the log names

_log = structlog.get_logger("foremind.lore")


def has_lorebook(companion: Companion) -> bool:
    """Return whether a companion's card has a lorebook with entries."""
    return bool(lorebook_in(companion.card))


class Lorebooks:
    """The lorebooks in use, within 128 MiB; the least recently used are parsed again."""

    def __init__(self) -> None:
        self._books: ByteBoundedCache[tuple[int, int], Lorebook] = ByteBoundedCache(
            MAX_BYTES, lambda book: book.size_bytes
        )
        self._one_at_a_time = asyncio.Lock()  # parsing takes a thread, for up to half a second

    async def load(self, companion: Companion) -> Lorebook:
        """Return a companion's lorebook; what of it is unusable is logged once, by entry."""
        if not has_lorebook(companion):
            return NO_LOREBOOK
        key = companion.id, companion.version
        book = self._books.get(key)
        if book is not None:
            return book
        async with self._one_at_a_time:
            book = self._books.get(key)
            if book is None:
                book = await asyncio.to_thread(partial(_parse, companion))
                self._books.put(key, book)
        return book


def _parse(companion: Companion) -> Lorebook:
    try:
        book = Lorebook.parse(lorebook_in(companion.card))
    except InvalidMessage as error:  # a card is checked when it is stored, perhaps by older bounds
        _log.warning("lorebook.unusable", companion=companion.slug, param=error.param)
        return NO_LOREBOOK
    for problem in book.problems[:_MAX_REPORTED]:
        _log.warning(
            "lorebook.entry_unusable",
            companion=companion.slug,
            entry=problem.id,
            reason=problem.code,
            entries=len(book.problems),
        )
    return book
