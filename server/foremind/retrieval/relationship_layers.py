"""What stands in every prompt of a relationship, and what a draft refers to. Pure.

Recall of records for a draft: episodes, topics, open questions, pinned records, notes.

A relationship has few records compared with memories, so that all are compared exactly, in the
process. Names, places and works are looked up in a table of references, which serves as the
inverted index does in the database, without a round trip.
"""

import math
from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from functools import partial
from sys import getsizeof

import msgspec
import numpy as np
import numpy.typing as npt

from foremind.domain.policy import LayerPolicy
from foremind.domain.record import LayersState, Record, of_layer, unsettled_questions
from foremind.domain.settings.setting_definitions import LayerName
from foremind.domain.world import NOWHERE, Surroundings
from foremind.llm.prompt.sections import (
    Section,
    StandingLayers,
    episode_line,
    note_line,
    question_line,
    section,
    standing_sections,
    topic_line,
    vault_line,
)
from foremind.llm.prompt.token_counter import CountTokens
from foremind.retrieval.classifiers import asks_for_memory
from foremind.text.languages.language_files import ENGLISH
from foremind.text.tokenization import EVERYDAY_NAMES, everyday_names_in, words_of
from foremind_models import Manifest, calibrated_cosine

Vector = npt.NDArray[np.float32]

# Minimum cosines as published for other models; a manifest's calibration converts them.
MIN_EPISODE_COSINE = 0.72
MIN_PINNED_COSINE = 0.65
MIN_TOPIC_COSINE = 0.65
MIN_QUESTION_COSINE = 0.65
MIN_NOTE_COSINE = 0.65

MAX_EPISODES = 3
MAX_TOPICS = 2
MAX_QUESTIONS = 2
MAX_PINNED = 5
MAX_NOTES = 6
_MAX_REFERENCE_WORDS = 4


class RecordIndex:
    """Records of one layer, searchable by vector or by exact reference."""

    def __init__(self, records: Sequence[Record]) -> None:
        # The vectors are kept in one array instead.
        self._records = [replace(record, vector=None) for record in records]
        vectors = [record.vector for record in records if record.vector is not None]
        self._with_vector = [
            index for index, record in enumerate(records) if record.vector is not None
        ]
        self._vectors = np.stack(vectors) if vectors else np.zeros((0, 0), np.float32)
        self._by_reference: defaultdict[str, set[int]] = defaultdict(set)
        for index, record in enumerate(records):
            for reference in record.refs:
                self._by_reference[reference].add(index)

    def find(
        self,
        vector: Vector,
        references: Sequence[str],
        min_cosine: float,
        limit: int,
        weight: Callable[[Record], float] = lambda _: 1.0,
    ) -> list[Record]:
        """Return the records with at least `min_cosine` or a shared reference, best first.

        A record is ordered by its cosine, plus 1 if it shares a reference, times its `weight`; the
        weight does not decide whether it is returned.
        """
        scores: dict[int, float] = {}
        if self._with_vector:
            cosines = self._vectors @ vector
            scores = dict(zip(self._with_vector, cosines.tolist(), strict=True))
        named = {
            index for reference in references for index in self._by_reference.get(reference, ())
        }
        matches = {index for index, cosine in scores.items() if cosine >= min_cosine} | named
        order = sorted(
            matches,
            key=lambda i: (-(scores.get(i, 0.0) + (i in named)) * weight(self._records[i]), -i),
        )
        return [self._records[index] for index in order[:limit]]


def references_in(text: str) -> list[str]:
    """Return all possible references in `text`: runs of up to four words, casefolded.

    A name that is also an everyday word counts only where it is used as a name.
    """
    words = words_of(text)
    everyday = EVERYDAY_NAMES.intersection(words)
    not_names = everyday - everyday_names_in(text) if everyday else everyday
    return [
        " ".join(words[start : start + length])
        for length in range(1, _MAX_REFERENCE_WORDS + 1)
        for start in range(len(words) - length + 1)
        if length > 1 or words[start] not in not_names
    ]


def topic_weight(record: Record, now: datetime, half_life: timedelta) -> float:
    """Return a topic's weight, which halves with every half-life since its last update or use."""
    return math.pow(0.5, max(timedelta(0), now - record.accessed_at) / half_life)


_RECORD_BYTES = 1500  # what a record's objects occupy in addition to its texts and vector
_REFERENCE_BYTES = 500  # what an entry in the reference table occupies in addition to its text
_UNREACHABLE_COSINE = 1.1


@dataclass(frozen=True, slots=True)
class LayerQuery:
    """A draft with what record search needs; `vector` is float32 [dimension].

    `references` are all possible ones in it; `recalled_texts` are the best memories recalled for
    it, which may relate to an open question; `language` is that of the text where it is unsure,
    `prompt_language` that of the prompt; `around` is where it is said, in a world.
    """

    text: str
    references: Sequence[str]
    vector: npt.NDArray[np.float32]
    user_name: str
    policy: LayerPolicy
    now: datetime
    recalled_texts: tuple[str, ...] = ()
    language: str = ENGLISH
    prompt_language: str = ENGLISH
    around: Surroundings = NOWHERE


class RelationshipLayers:
    """The records of a relationship as of one version, indexed by layer. Pure.

    Args:
        language: of the sections of every prompt.
    """

    def __init__(
        self,
        state: LayersState,
        records: Sequence[Record],
        manifest: Manifest,
        count: CountTokens,
        language: str = ENGLISH,
    ) -> None:
        self.version = state.layers_version
        self.count = count
        self.language = language
        self.standing = StandingLayers(
            standing_sections(records, count, state.user_name, language), state.summarised_turn_id
        )
        #: Approximate memory use; at most MOST_RECORDS records.
        self.size_bytes = sum(_size_bytes(record) for record in records)
        self._manifest = manifest

        in_layer = partial(of_layer, records)
        found: dict[LayerName, Sequence[Record]] = {
            "topics": in_layer("topics"),
            "episodes": in_layer("episodes"),
            "scratchpad": in_layer("scratchpad"),
            "questions": unsettled_questions(records),
            "vault": in_layer("vault"),
        }
        #: The layers that a draft is to be searched in, indexed: those with records.
        self.searchable = {layer: RecordIndex(own) for layer, own in found.items() if own}

    def recall(self, layer: LayerName, draft: LayerQuery) -> Section:
        """Return the records of a layer that match a draft, one of those that are searchable."""
        index = self.searchable[layer]
        vector, now, language = draft.vector, draft.now, draft.prompt_language
        references = draft.references
        if layer == "episodes":
            minimum = calibrated_cosine(self._manifest, MIN_EPISODE_COSINE)
            records = index.find(vector, references, minimum, MAX_EPISODES)
            lines = [episode_line(record, now, language) for record in records]
        elif layer == "topics":
            minimum = calibrated_cosine(self._manifest, MIN_TOPIC_COSINE)
            half_life = draft.policy.topic_half_life
            records = index.find(
                vector, references, minimum, MAX_TOPICS,
                lambda record: topic_weight(record, now, half_life),
            )  # fmt: skip
            lines = [topic_line(record, now, language) for record in records]
        elif layer == "questions":
            minimum = calibrated_cosine(self._manifest, MIN_QUESTION_COSINE)
            references = [
                *references,
                *(reference for text in draft.recalled_texts for reference in references_in(text)),
            ]
            records = index.find(vector, references, minimum, MAX_QUESTIONS)
            lines = [question_line(record, draft.user_name, now, language) for record in records]
        elif layer == "scratchpad":
            minimum = calibrated_cosine(self._manifest, MIN_NOTE_COSINE)
            records = index.find(vector, (), minimum, MAX_NOTES)
            lines = [note_line(record, draft.user_name, language) for record in records]
        else:
            asking = asks_for_memory(draft.text, draft.language)
            minimum = (
                calibrated_cosine(self._manifest, MIN_PINNED_COSINE)
                if asking
                else _UNREACHABLE_COSINE
            )
            records = index.find(vector, references if asking else (), minimum, MAX_PINNED)
            lines = [vault_line(record, now, language) for record in records]
        return section(layer, lines, self.count, records)


def _size_bytes(record: Record) -> int:
    vector = 0 if record.vector is None else record.vector.nbytes
    details = [
        item
        for value in msgspec.structs.astuple(record.details)
        if isinstance(value, tuple)
        for item in value
    ]
    # The content twice, since prompt lines are made of it.
    texts = [record.kind, record.title, record.content, record.content, *record.refs, *details]
    references = _REFERENCE_BYTES * len(record.refs)
    return _RECORD_BYTES + sum(map(getsizeof, texts)) + references + vector
