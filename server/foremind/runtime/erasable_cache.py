"""Caches of what was made of texts: each is bounded, and an erasure empties all of them."""

from collections.abc import Callable
from functools import lru_cache
from typing import TYPE_CHECKING, Any, TypeVar

from foremind.domain.announcements import Announcement, MemoriesForgotten

if TYPE_CHECKING:
    from functools import _lru_cache_wrapper

Result = TypeVar("Result")

_caches: "list[_lru_cache_wrapper[Any]]" = []


def erasable_cache(
    maxsize: int,
) -> "Callable[[Callable[..., Result]], _lru_cache_wrapper[Result]]":
    """Keep the results of a pure function for its last `maxsize` arguments, until an erasure."""

    def decorate(function: Callable[..., Result]) -> "_lru_cache_wrapper[Result]":
        cached = lru_cache(maxsize)(function)
        _caches.append(cached)
        return cached

    return decorate


def on_announcement(announcement: Announcement) -> None:
    """Empty the caches after an erasure; entries still needed are computed again."""
    if isinstance(announcement, MemoriesForgotten):
        for cache in _caches:
            cache.cache_clear()
