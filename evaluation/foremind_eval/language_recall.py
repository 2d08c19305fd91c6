"""Which facts told in a language are kept, and which are found when they are asked about."""

import tomllib
from collections.abc import Callable, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from statistics import fmean
from typing import Literal

import msgspec
import numpy as np

from foremind.app.core import Core
from foremind.domain.errors import InvalidFile
from foremind.domain.policy import policy_for
from foremind.domain.settings.settings import CompanionSettings
from foremind.retrieval.search import Query
from foremind_eval.dialogue_replay import ReplayedDialogue, VectorCache, replay_dialogue
from foremind_eval.dialogues import Dialogue, DialogueTurn

LANGUAGE_SETS = Path(__file__).with_name("languages")
_FIRST_DAY = datetime(2026, 3, 1, 18, tzinfo=UTC)
_TURNS_A_DAY = 10
_SEED = 0
_CUTOFF, _LOW_CUTOFF = 5, 3

Because = Literal["not kept", "nothing recalled", "others first"]


class LanguageSet(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Facts as players tell them, a question for each by the fact's id, and turns without a fact.

    `language` is a code of ISO 639-1: the name of the set's file. `other_words` are the ids of the
    facts that are asked about without any of their words, whatever their form.
    """

    language: str
    facts: dict[str, str]
    questions: dict[str, str]
    fillers: list[str]
    other_words: list[str] = []


class MissedQuestion(msgspec.Struct, frozen=True):
    """A question whose fact is not among the first five memories, by the fact's id, and why.

    The fact was not kept, no memory was recalled, or only others were among the first five.
    """

    id: str
    because: Because


class LanguageReport(msgspec.Struct, frozen=True, rename={
    "found_at_3": "found@3", "found_at_5": "found@5",
}):  # fmt: skip
    """Shares are 0 to 1: of facts and fillers that became memories, and of questions answered.

    A question whose fact was not kept counts as not found. `found_in_other_words` is the share of
    the questions in other words whose fact is among the first five. Shares of nothing are None.
    `lost` are the ids of facts that were not kept.
    """

    language: str
    facts: int
    fillers: int
    questions: int
    kept: float
    fillers_kept: float | None
    found_at_3: float
    found_at_5: float
    found_in_other_words: float | None
    lost: list[str]
    missed: list[MissedQuestion]

    def missed_by_reason(self) -> dict[Because, list[str]]:
        """Return the ids of the facts that were not found, by the reason."""
        found: dict[Because, list[str]] = {}
        for question in self.missed:
            found.setdefault(question.because, []).append(question.id)
        return found


def language_files() -> dict[str, Path]:
    """Return the files of the built-in sets by language."""
    return {path.stem: path for path in sorted(LANGUAGE_SETS.glob("*.toml"))}


def read_language_set(path: Path) -> LanguageSet:
    """Read a set (TOML: the tables `facts` and `questions` by id, and `fillers`).

    Raises:
        InvalidFile: the file is malformed; the message names the field and what was expected.
    """
    try:
        content = tomllib.loads(path.read_text("utf-8"))
        read = msgspec.convert({"language": path.stem, **content}, LanguageSet)
    except (OSError, ValueError) as error:
        raise InvalidFile(f"{path}: {error}") from None
    if not read.facts:
        raise InvalidFile(f"{path}: facts: expected at least one")
    if not read.questions or not set(read.questions) <= set(read.facts):
        raise InvalidFile(f"{path}: questions: expected at least one, with ids of facts")
    if not set(read.other_words) <= set(read.questions):
        raise InvalidFile(f"{path}: other_words: expected ids of questions")
    return read


def read_language_sets(path: Path | None, languages: list[str] | None) -> list[LanguageSet]:
    """Read the set in a file, or the built-in sets of these languages, of all for none.

    Raises:
        InvalidFile: names the field and what was expected.
    """
    if path is not None:
        return [read_language_set(path)]
    files = language_files()
    unknown = sorted(set(languages or ()) - set(files))
    if unknown:
        raise InvalidFile(
            f"language: expected {', '.join(files)}, not {', '.join(unknown)}", param="language"
        )
    return [read_language_set(files[language]) for language in languages or files]


def count_language_steps(sets: Sequence[LanguageSet]) -> int:
    """Return how many steps `measure_languages` will report."""
    return sum(len(told.facts) + len(told.fillers) + len(told.questions) for told in sets)


async def measure_languages(
    core: Core, sets: Sequence[LanguageSet], advance: Callable[[int], None]
) -> list[LanguageReport]:
    """Tell each set to a companion of its own, with the server's settings, and ask its questions.

    Facts and fillers are told in a random order, the same in each run, ten a day; the questions
    are asked a day after the last. `advance` is called with the number of completed steps.
    """
    return [await _measure(core, told, advance) for told in sets]


async def _measure(core: Core, told: LanguageSet, advance: Callable[[int], None]) -> LanguageReport:
    vectors = VectorCache(core)
    replayed = await replay_dialogue(
        core, _dialogue(told), told.language, CompanionSettings(), vectors, advance
    )
    kept = replayed.memory_of
    lost = [fact for fact in told.facts if fact not in kept]
    ranks: list[int | None] = []
    missed: dict[str, MissedQuestion] = {}
    for fact, question in told.questions.items():
        memories = await _search(core, replayed, question, vectors)
        rank = memories.index(kept[fact]) if kept.get(fact) in memories else None
        ranks.append(rank)
        if rank is None:
            missed[fact] = MissedQuestion(fact, _because(memories, kept=fact in kept))
        advance(1)
    return LanguageReport(
        language=told.language,
        facts=len(told.facts),
        fillers=len(told.fillers),
        questions=len(told.questions),
        kept=round(1 - len(lost) / len(told.facts), 4),
        fillers_kept=_share([_filler_id(number) in kept for number in range(len(told.fillers))]),
        found_at_3=_found(ranks, _LOW_CUTOFF),
        found_at_5=_found(ranks, _CUTOFF),
        found_in_other_words=_share([fact not in missed for fact in told.other_words]),
        lost=lost,
        missed=[*missed.values()],
    )


def _dialogue(told: LanguageSet) -> Dialogue:
    texts = [*told.facts.items()]
    texts += [(_filler_id(number), text) for number, text in enumerate(told.fillers)]
    turns = []
    for place, index in enumerate(np.random.default_rng(_SEED).permutation(len(texts))):
        turn_id, text = texts[index]
        day, minute = divmod(place, _TURNS_A_DAY)
        said_at = _FIRST_DAY + timedelta(days=day, minutes=minute)
        turns.append(DialogueTurn(turn_id, f"{day}", "user", text, said_at))
    return Dialogue("language", "Robin", "Mara", tuple(turns), ())


def _filler_id(number: int) -> str:
    return f"filler {number}"


async def _search(
    core: Core, replayed: ReplayedDialogue, question: str, vectors: VectorCache
) -> list[int]:
    """Return the ids of the first memories that a question recalls."""
    policy = policy_for(CompanionSettings(), core.runtime.settings).recall
    now = replayed.dialogue.turns[-1].said_at + timedelta(days=1)
    vector = await vectors.embed(question)
    memories = await core.search.search(
        Query(replayed.relationship_id, question, vector, policy, now)
    )
    return [memory.id for memory in memories[:_CUTOFF]]


def _because(memories: Sequence[int], *, kept: bool) -> Because:
    if not kept:
        return "not kept"
    return "others first" if memories else "nothing recalled"


def _found(ranks: Sequence[int | None], cutoff: int) -> float:
    return round(fmean(rank is not None and rank < cutoff for rank in ranks), 4)


def _share(outcomes: Sequence[bool]) -> float | None:
    return round(fmean(outcomes), 4) if outcomes else None
