"""Lorebooks: what a draft activates, against a loop over all keys and against Python's `re`."""

import re
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any

import numpy as np

from foremind.domain.companion import Companion
from foremind.domain.policy import policy_for
from foremind.domain.settings.settings import CompanionSettings, Settings
from foremind.llm.prompt.character import macro_values
from foremind.llm.prompt.layout import PastTurn
from foremind.lore.key_matcher import MAX_PATTERNS
from foremind.lore.lorebook import DEFAULT_SCAN_DEPTH, MAX_ENTRIES, Lorebook
from foremind.typeahead.draft_lore import Lorebooks, lore_for
from foremind_eval.benchmarks.figures import (
    ROUNDS,
    Figure,
    Say,
    measure_interleaved,
    timing_figure,
)
from foremind_eval.seeding import sample_words

_KEYS_PER_ENTRY, _WORDS_PER_ENTRY = 5, 60
_WORDS_PER_DRAFT, _WORDS_PER_TURN, _TURNS = 12, 40, 40
_SYLLABLES = ("ka", "ro", "min", "tel", "sha", "vor", "lin", "dra", "gul", "bes", "nor", "ith")


async def bench_lore(settings: Settings, say: Say) -> list[Figure]:
    """Measure a draft to a companion with the largest lorebook that is accepted."""
    rng = np.random.default_rng(MAX_ENTRIES)
    figures = []
    say(f"Reading {MAX_ENTRIES:,} entries ...")
    plain = _LoreDrafts(rng, settings, _entries(rng, MAX_ENTRIES, pattern=False))
    keys = [key.lower() for entry in plain.entries for key in entry["keys"]]
    expression = re.compile(rf"\b(?:{'|'.join(map(re.escape, keys))})\b", re.IGNORECASE)
    await plain.activate()  # the lorebook is read, and the conversation scanned
    ours, loop, alternation = await measure_interleaved(
        [
            plain.activate,
            plain.search(partial(_contained, keys)),
            plain.search(expression.findall),
        ]
    )
    name = f"lore of {MAX_ENTRIES:,} entries, a draft"
    figures.append(timing_figure(name, "a loop over all keys", ours, loop))
    figures.append(timing_figure(f"{name}, again", "all keys in one re", ours, alternation))
    patterned = _LoreDrafts(rng, settings, _entries(rng, MAX_PATTERNS, pattern=True))
    patterns = [
        re.compile(key, re.IGNORECASE) for entry in patterned.entries for key in entry["keys"]
    ]
    await patterned.activate()
    ours, one_by_one = await measure_interleaved(
        [
            patterned.activate,
            patterned.search(
                lambda text: [pattern for pattern in patterns if pattern.search(text)]
            ),
        ]
    )
    name = f"lore of {MAX_PATTERNS:,} patterns, a draft"
    figures.append(timing_figure(name, "each in Python's re", ours, one_by_one))
    book = {"entries": plain.entries}
    reading, compiling = await measure_interleaved(
        [_repeated(partial(Lorebook.parse, book)), _repeated(partial(_compile, keys))]
    )
    name = f"lore of {MAX_ENTRIES:,} entries, read"
    figures.append(timing_figure(name, "compiling one re", reading, compiling))
    return figures


class _LoreDrafts:
    """Forty turns with a companion that has a lorebook, and drafts for each call of a round."""

    def __init__(
        self, rng: np.random.Generator, settings: Settings, entries: Sequence[dict[str, Any]]
    ) -> None:
        self.entries = list(entries)
        card = {"character_book": {"entries": self.entries}}
        own = CompanionSettings()
        self._companion = Companion(1, "wren", "Wren", "", "You are Wren.", own, 1, card=card)
        self._policy = policy_for(own, settings).layers
        self._lorebooks, self._macros = Lorebooks(), macro_values(self._companion, "Ana", "")
        self._turns = [
            PastTurn("companion" if turn % 2 else "user", self._text(rng, _WORDS_PER_TURN))
            for turn in range(_TURNS)
        ]
        texts = [self._text(rng, _WORDS_PER_DRAFT) for _ in range(3 * ROUNDS + 1)]
        self._drafts: Iterator[str] = iter(texts)

    def _text(self, rng: np.random.Generator, words: int) -> str:
        """Return a text in which one word is a key, or like one."""
        entry = self.entries[int(rng.integers(len(self.entries)))]
        return " ".join([*sample_words(rng, words - 1), entry["keys"][0]])

    async def activate(self) -> object:
        """Activate what the next draft does."""
        draft = next(self._drafts)
        return await lore_for(
            self._lorebooks, self._companion, self._policy, self._macros, self._turns, draft
        )

    def search(self, find: Callable[[str], object]) -> Callable[[], Any]:
        """Return a search of the next draft and of the messages that are scanned with it."""

        async def search() -> object:
            scanned = [turn.content for turn in self._turns[-(DEFAULT_SCAN_DEPTH - 1) :]]
            return [find(text) for text in (next(self._drafts), *scanned)]

        return search


def _entries(rng: np.random.Generator, number: int, *, pattern: bool) -> list[dict[str, Any]]:
    return [
        {
            "id": entry,
            "keys": [_pattern(rng)] if pattern else [_name(rng) for _ in range(_KEYS_PER_ENTRY)],
            "use_regex": pattern,
            "content": " ".join(sample_words(rng, _WORDS_PER_ENTRY)),
            "enabled": True,
            "insertion_order": entry,
        }
        for entry in range(number)
    ]


def _name(rng: np.random.Generator) -> str:
    """Return a made-up name of one or two words."""
    words = ["".join(rng.choice(_SYLLABLES, int(rng.integers(2, 4)))) for _ in range(2)]
    return " ".join(word.capitalize() for word in words[: int(rng.integers(1, 3))])


def _pattern(rng: np.random.Generator) -> str:
    first, second = ("".join(rng.choice(_SYLLABLES, 2)) for _ in range(2))
    return rf"\b{first}(?:s|es)?\b|\b{second}[a-z]*\b"


def _contained(keys: Sequence[str], text: str) -> list[str]:
    lowered = text.lower()
    return [key for key in keys if key in lowered]


def _compile(keys: Sequence[str]) -> object:
    re.purge()
    return re.compile(rf"\b(?:{'|'.join(map(re.escape, keys))})\b", re.IGNORECASE)


def _repeated(work: Callable[[], object]) -> Callable[[], Any]:
    async def repeat() -> object:
        return work()

    return repeat
