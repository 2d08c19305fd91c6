"""The layers of one relationship: its records, indexed, and the sections that prompts get."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import partial
from sys import getsizeof

import msgspec
import numpy as np
import numpy.typing as npt

from foremind.domain.policy import LayerPolicy
from foremind.domain.record import LayersState, Record, of_layer, unsettled_questions
from foremind.domain.settings.setting_definitions import LayerName
from foremind.llm.prompt.record_format import (
    episode_line,
    note_line,
    question_line,
    topic_line,
    vault_line,
)
from foremind.llm.prompt.sections import Section, StandingLayers, section, standing_sections
from foremind.llm.prompt.token_counter import CountTokens
from foremind.retrieval.embedding.manifest import Manifest
from foremind.retrieval.layer_recall import (
    MAX_EPISODES,
    MAX_NOTES,
    MAX_PINNED,
    MAX_QUESTIONS,
    MAX_TOPICS,
    MIN_EPISODE_COSINE,
    MIN_NOTE_COSINE,
    MIN_PINNED_COSINE,
    MIN_QUESTION_COSINE,
    MIN_TOPIC_COSINE,
    RecordIndex,
    references_in,
    topic_weight,
)
from foremind.retrieval.recall_gate import asks_for_memory
from foremind.retrieval.similarity_calibration import calibrated_cosine
from foremind.text.languages.language_files import ENGLISH

_RECORD_BYTES = 1500  # what a record's objects occupy in addition to its texts and vector
_REFERENCE_BYTES = 500  # what an entry in the reference table occupies in addition to its text
_UNREACHABLE_COSINE = 1.1


@dataclass(frozen=True, slots=True)
class LayerQuery:
    """A draft with what record search needs; `vector` is float32 [dimension].

    `references` are all possible ones in it; `recalled_texts` are the best memories recalled for
    it, which may relate to an open question; `language` is that of the text where it is unsure,
    `prompt_language` that of the prompt.
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
