"""Everything that reads what a player, a model or a document says, by the name of its module."""

import contextlib
import json
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from types import ModuleType
from uuid import UUID

import numpy as np

from foremind.background import extractive_summary, markdown_files, notes, profile, stated_facts
from foremind.background.prompts import EpisodesAnswer
from foremind.domain.companion import CompanionSettings, SignificanceRules
from foremind.domain.erasure import RecordText, TranscriptText
from foremind.domain.errors import NOT_JSON, InvalidMessage
from foremind.domain.memory import Candidate, KnownMemory, Recalled, SimilarMemory, WordStatistics
from foremind.domain.policy import policy_for
from foremind.domain.settings import load_settings
from foremind.gateway.protocol import decoding
from foremind.llm import answer_parsing as answers_read
from foremind.llm import offline, stream_events, thinking_filter
from foremind.llm.prompt import quoted_lines, record_format
from foremind.llm.prompt.layout import Prompt
from foremind.memory import (
    consolidation,
    erasure_scope,
    exclusive_facts,
    minimum_scores,
    scoring,
    scoring_signals,
    short_answers,
)
from foremind.retrieval import attribution, layer_recall, query_parser, ranking, recall_gate
from foremind.retrieval.candidates import gathered
from foremind.retrieval.documents import chunking, text_extraction
from foremind.text import (
    features,
    proper_names,
    relative_time,
    sentences,
    time_expressions,
    tokenization,
)
from foremind.text.statements import (
    belongings,
    clauses,
    conversation_style,
    extraction,
    health,
    identity,
    places,
    preferences,
    self_reference,
)
from foremind.typeahead import draft_text, prefetch_policy

_POLICY = policy_for(CompanionSettings(), load_settings()).recall
_EAGER = prefetch_policy.PrefetchPolicy(lambda letters: len(letters) % 2 == 0)
# What an import may bring: the first and the last moment that can be stored.
_FIRST, _LAST = datetime(2, 1, 1, tzinfo=UTC), datetime(9998, 12, 31, 23, 59, tzinfo=UTC)
_HAPPENED = (None, (_FIRST, _FIRST + timedelta(days=1)), (_LAST - timedelta(days=1), _LAST))


def read_dates(text: str, now: datetime) -> None:
    """Whatever is read has an end after its start, and every time zone and database can tell it."""
    found = time_expressions.spans_in(text, now)
    assert len(found) <= time_expressions.MOST_EXPRESSIONS
    for each in found:
        assert each.start < each.end
        assert each.start.astimezone(UTC) < each.end.astimezone(UTC)
        for side in ("before", "since", "until", "after"):
            time_expressions.beside(each, side)


def search(text: str, now: datetime) -> list[Recalled]:
    """A draft is read, and memories of any time are ranked for it."""
    query = query_parser.read_draft(text, now)
    words = sorted(set(query.terms))
    found = [
        Candidate(
            KnownMemory(
                number,
                text,
                "user",
                "conversation",
                0.5,
                said_at,
                happened,
                None,
                False,
                number,
                9.0,
            ),
            0.5,
            dict.fromkeys(words, 1.0),
        )
        for number, (said_at, happened) in enumerate(
            (said_at, happened) for said_at in (_FIRST, now, _LAST) for happened in _HAPPENED
        )
    ]
    statistics = WordStatistics(len(found), 9.0, dict.fromkeys(words, 1))
    ranked = ranking.rank(gathered(found, words), query, statistics, _POLICY, now)
    attribution.used_in(text, ranked)
    record_format.memory_lines(ranked, text, now)
    return ranked


def answer(text: str, now: datetime) -> None:
    """The offline voice answers out of what was found."""
    memories = tuple(search(text, now))
    offline.compose(Prompt("Wren", "A persona.", text, memories, (), text, now))


def consolidate(text: str, now: datetime) -> None:
    """Said once more, and with a word more."""
    for said in (text, f"{text} again"):
        known = SimilarMemory(1, "user", said, 0.5, now, 0.99)
        consolidation.find_same(text, "user", [known])
        consolidation.only_quotes(text, [known])


def extracted(text: str, _: datetime) -> None:
    """What rules make of talk."""
    said = [
        extractive_summary.Utterance(1, "Ana", True, text, 0.5),
        extractive_summary.Utterance(2, "Wren", False, f"I don't know. {text}", 0.5),
    ]
    extractive_summary.top_sentences(said, 3)
    extractive_summary.references_of([text], ["Ana"])
    extractive_summary.topics_of(said, 3)
    extractive_summary.questions_of(said, 3)
    extractive_summary.conclusions_of(said, 3)
    extractive_summary.left_open(said, 3)
    extractive_summary.settles(text, text)
    extractive_summary.key_of(text)


def note(text: str, _: datetime) -> None:
    """What is noted by rules of what a user says."""
    notes.by_rules([extractive_summary.Utterance(1, "Ana", True, text, 0.5)], [])
    stated_facts.asked_to_save(text)
    profile.stated_in([extractive_summary.Utterance(1, "Ana", True, text, 0.5)])
    profile.key_of(text, text)


def told_of_oneself(text: str, _: datetime) -> None:
    """Every reader of statements, each by itself as well."""
    extraction.statements_in(text)
    self_reference.own_sentences(text)
    for reader in extraction.EVERY_READER:
        list(reader(text[:300]))


def read_answer(text: str, _: datetime) -> None:
    """What a model answers, bare and within what should be its shape."""
    quoted = json.dumps(text)
    for said in (text, f'{{"episodes": {text}}}', f'{{"episodes": [{{"topic": {quoted}}}]}}'):
        with contextlib.suppress(answers_read.UnparsableAnswer):
            answers_read.read(said, EpisodesAnswer)


def read_reply(text: str, _: datetime) -> None:
    """What a model server sends, with a text where words stand, and in place of all."""
    filter_ = thinking_filter.ThinkingFilter()
    filter_.feed(text)
    filter_.end()
    thinking_filter.without_thinking(text)
    event = json.dumps({"choices": [{"delta": {"content": text}}]})
    for sent in (event, text):
        events = stream_events.StreamParser(stream_events.StreamEnding())
        with contextlib.suppress(*NOT_JSON, stream_events.ReportedError):
            events.feed(f"data: {sent}\n\n".encode(errors="replace"))
            events.end()


def held_by(text: str, _: datetime) -> None:
    """What is forgotten is looked for in all that was said."""
    said = erasure_scope.ErasedTexts()
    said.add_turns(
        [
            TranscriptText(1, UUID(int=1), "user", None, True, text, None, None),
            TranscriptText(2, UUID(int=1), "companion", 1, True, f"So {text}?", None, None),
        ]
    )
    said.add_records([RecordText(1, 0, "user", f"{text}\n{text}.", "", f"{text}\n{text}.")])
    erasure_scope.all_that_holds(said, [1], about=text, repeated=True)
    erasure_scope.all_that_holds(said, [1], alone=True)
    erasure_scope.all_that_holds(said, [1], instead=f"{text} again")


def type_on(text: str, _: datetime) -> None:
    """A draft as it is typed."""
    _EAGER.typed(text, 0.0)
    _EAGER.settle_s(text, 0.0)


def read_page(text: str, _: datetime) -> None:
    """A document in the language of pages, with a text in each kind of place."""
    page = f"<h1>{text}</h1><p>{text}</p><pre>{text}</pre><!-- {text} --><{text}>"
    with contextlib.suppress(InvalidMessage):
        text_extraction.text_of(page.encode(errors="replace"), "text/html")


#: By module, so that a test can tell that none is missing.
READERS: dict[ModuleType, Callable[[str, datetime], object]] = {
    time_expressions: read_dates,
    query_parser: query_parser.read_draft,
    ranking: search,
    tokenization: lambda text, _: (
        tokenization.terms_of(text),
        tokenization.names_in(text),
        tokenization.count_terms(text),
    ),
    exclusive_facts: lambda text, _: exclusive_facts.facts_in(text),
    **dict.fromkeys(
        (
            belongings,
            clauses,
            identity,
            conversation_style,
            health,
            self_reference,
            places,
            extraction,
            preferences,
        ),
        told_of_oneself,
    ),
    minimum_scores: lambda text, _: minimum_scores.floors_in(text),
    scoring_signals: lambda text, _: scoring_signals.signals_in(text),
    scoring: lambda text, _: (
        scoring.judge(text, 0.0, SignificanceRules(phrases={"a": 0.5})),
        scoring.judge_rated(text, 5, SignificanceRules()),
    ),
    short_answers: lambda text, _: (
        short_answers.is_short_answer(text),
        short_answers.asks_about_other(text, "user"),
        short_answers.asks_about_other(f"{text}?", "companion"),
    ),
    recall_gate: lambda text, _: recall_gate.worth_searching(text, -1.0),
    features: lambda text, _: np.isfinite(features.shape_of(text)).all() or 1 / 0,
    consolidation: consolidate,
    relative_time: lambda _, now: [
        relative_time.age_in_words(then, now) for then in (_FIRST, now, _LAST)
    ],
    extractive_summary: extracted,
    notes: note,
    profile: note,
    stated_facts: note,
    erasure_scope: held_by,
    answers_read: read_answer,
    stream_events: read_reply,
    thinking_filter: read_reply,
    proper_names: lambda text, _: proper_names.meant_as_names(text),
    sentences: lambda text, _: sentences.said_in(text),
    markdown_files: lambda text, _: markdown_files.edits_of(
        {"profile.md": f"## {text}\n\n{text}"}, markdown_files.ExportedBase("1", {})
    ),
    text_extraction: read_page,
    chunking: lambda text, _: chunking.joined(chunking.passages_of(text)),
    layer_recall: lambda text, _: layer_recall.references_in(text),
    record_format: lambda text, _: record_format.labelled(text),
    quoted_lines: lambda text, _: quoted_lines.shortened(quoted_lines.line(("", text)), 20, len),
    draft_text: lambda text, _: draft_text.says_something(draft_text.normalise(text)),
    prefetch_policy: type_on,
    offline: answer,
    decoding: lambda text, _: decoding.cause_in(text),
}


def read_by_all(text: str, now: datetime) -> None:
    """Give a text to every reader."""
    for reader in READERS.values():
        reader(text, now)
