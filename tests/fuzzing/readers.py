"""Everything that reads what a player, a model or a document says, by the name of its module."""

import contextlib
import json
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from types import ModuleType
from uuid import UUID

import numpy as np

from foremind.companions import CompanionSettings, SignificanceRules
from foremind.curation import extract, files, notes, profile, stated
from foremind.curation.asking import Episodes
from foremind.errors import NOT_JSON, InvalidMessage
from foremind.gateway import decode
from foremind.generation import offline, reply_events, thinking
from foremind.generation import reading as answers_read
from foremind.generation.prompt import Prompt
from foremind.layers import lines, naming, passages, reading, recall, sentences, wording
from foremind.memory import (
    age,
    answers,
    asked,
    consolidation,
    dates,
    facts,
    floors,
    gate,
    holding,
    ranking,
    shape,
    signals,
    significance,
    terms,
    usage,
)
from foremind.memory.candidates import gathered
from foremind.memory.said import (
    belongings,
    clauses,
    identity,
    manners,
    needs,
    own_words,
    places,
    statements,
    tastes,
)
from foremind.policies import policy_for
from foremind.settings import load_settings
from foremind.storage.forgetting import RecordText, SaidText
from foremind.storage.memories import Candidate, KnownMemory, WordStatistics
from foremind.storage.remembering import SimilarMemory
from foremind.typeahead import draft, eagerness

_POLICY = policy_for(CompanionSettings(), load_settings()).recall
_EAGER = eagerness.Eagerness(lambda letters: len(letters) % 2 == 0)
# What an import may bring: the first and the last moment that can be stored.
_FIRST, _LAST = datetime(2, 1, 1, tzinfo=UTC), datetime(9998, 12, 31, 23, 59, tzinfo=UTC)
_HAPPENED = (None, (_FIRST, _FIRST + timedelta(days=1)), (_LAST - timedelta(days=1), _LAST))


def read_dates(text: str, now: datetime) -> None:
    """Whatever is read has an end after its start, and every time zone and database can tell it."""
    found = dates.spans_in(text, now)
    assert len(found) <= dates.MOST_EXPRESSIONS
    for each in found:
        assert each.start < each.end
        assert each.start.astimezone(UTC) < each.end.astimezone(UTC)
        for side in ("before", "since", "until", "after"):
            dates.beside(each, side)


def search(text: str, now: datetime) -> list[ranking.Recalled]:
    """A draft is read, and memories of any time are ranked for it."""
    query = asked.read_draft(text, now)
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
    usage.used_in(text, ranked)
    wording.memory_lines(ranked, text, now)
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
        extract.Utterance(1, "Ana", True, text, 0.5),
        extract.Utterance(2, "Wren", False, f"I don't know. {text}", 0.5),
    ]
    extract.top_sentences(said, 3)
    extract.references_of([text], ["Ana"])
    extract.topics_of(said, 3)
    extract.questions_of(said, 3)
    extract.conclusions_of(said, 3)
    extract.left_open(said, 3)
    extract.settles(text, text)
    extract.key_of(text)


def note(text: str, _: datetime) -> None:
    """What is noted by rules of what a user says."""
    notes.by_rules([extract.Utterance(1, "Ana", True, text, 0.5)], [])
    stated.asked_to_save(text)
    profile.stated_in([extract.Utterance(1, "Ana", True, text, 0.5)])
    profile.key_of(text, text)


def told_of_oneself(text: str, _: datetime) -> None:
    """Every reader of statements, each by itself as well."""
    statements.statements_in(text)
    own_words.own_sentences(text)
    for reader in statements.EVERY_READER:
        list(reader(text[:300]))


def read_answer(text: str, _: datetime) -> None:
    """What a model answers, bare and within what should be its shape."""
    quoted = json.dumps(text)
    for said in (text, f'{{"episodes": {text}}}', f'{{"episodes": [{{"topic": {quoted}}}]}}'):
        with contextlib.suppress(answers_read.Unusable):
            answers_read.read(said, Episodes)


def read_reply(text: str, _: datetime) -> None:
    """What a model server sends, with a text where words stand, and in place of all."""
    filter_ = thinking.ThinkingFilter()
    filter_.feed(text)
    filter_.end()
    thinking.without_thinking(text)
    event = json.dumps({"choices": [{"delta": {"content": text}}]})
    for sent in (event, text):
        events = reply_events.ReplyEvents(reply_events.Ending())
        with contextlib.suppress(*NOT_JSON, reply_events.ToldError):
            events.feed(f"data: {sent}\n\n".encode(errors="replace"))
            events.end()


def held_by(text: str, _: datetime) -> None:
    """What is forgotten is looked for in all that was said."""
    said = holding.Said()
    said.add_turns(
        [
            SaidText(1, UUID(int=1), "user", None, True, text, None, None),
            SaidText(2, UUID(int=1), "companion", 1, True, f"So {text}?", None, None),
        ]
    )
    said.add_records([RecordText(1, 0, "user", f"{text}\n{text}.", "", f"{text}\n{text}.")])
    holding.all_that_holds(said, [1], about=text, repeated=True)
    holding.all_that_holds(said, [1], alone=True)
    holding.all_that_holds(said, [1], instead=f"{text} again")


def type_on(text: str, _: datetime) -> None:
    """A draft as it is typed."""
    _EAGER.typed(text, 0.0)
    _EAGER.settle_s(text, 0.0)


def read_page(text: str, _: datetime) -> None:
    """A document in the language of pages, with a text in each kind of place."""
    page = f"<h1>{text}</h1><p>{text}</p><pre>{text}</pre><!-- {text} --><{text}>"
    with contextlib.suppress(InvalidMessage):
        reading.text_of(page.encode(errors="replace"), "text/html")


#: By module, so that a test can tell that none is missing.
READERS: dict[ModuleType, Callable[[str, datetime], object]] = {
    dates: read_dates,
    asked: asked.read_draft,
    ranking: search,
    terms: lambda text, _: (terms.terms_of(text), terms.names_in(text), terms.count_terms(text)),
    facts: lambda text, _: facts.facts_in(text),
    **dict.fromkeys(
        (belongings, clauses, identity, manners, needs, own_words, places, statements, tastes),
        told_of_oneself,
    ),
    floors: lambda text, _: floors.floors_in(text),
    signals: lambda text, _: signals.signals_in(text),
    significance: lambda text, _: (
        significance.judge(text, 0.0, SignificanceRules(phrases={"a": 0.5})),
        significance.judge_rated(text, 5, SignificanceRules()),
    ),
    answers: lambda text, _: (
        answers.is_short_answer(text),
        answers.asks_about_other(text, "user"),
        answers.asks_about_other(f"{text}?", "companion"),
    ),
    gate: lambda text, _: gate.worth_searching(text, -1.0),
    shape: lambda text, _: np.isfinite(shape.shape_of(text)).all() or 1 / 0,
    consolidation: consolidate,
    age: lambda _, now: [age.age_in_words(then, now) for then in (_FIRST, now, _LAST)],
    extract: extracted,
    notes: note,
    profile: note,
    stated: note,
    holding: held_by,
    answers_read: read_answer,
    reply_events: read_reply,
    thinking: read_reply,
    naming: lambda text, _: naming.meant_as_names(text),
    sentences: lambda text, _: sentences.said_in(text),
    files: lambda text, _: files.edits_of(
        {"profile.md": f"## {text}\n\n{text}"}, files.Base("1", {})
    ),
    reading: read_page,
    passages: lambda text, _: passages.joined(passages.passages_of(text)),
    recall: lambda text, _: recall.references_in(text),
    wording: lambda text, _: wording.labelled(text),
    lines: lambda text, _: lines.shortened(lines.line(("", text)), 20, len),
    draft: lambda text, _: draft.says_something(draft.normalise(text)),
    eagerness: type_on,
    offline: answer,
    decode: lambda text, _: decode.cause_in(text),
}


def read_by_all(text: str, now: datetime) -> None:
    """Give a text to every reader."""
    for reader in READERS.values():
        reader(text, now)
