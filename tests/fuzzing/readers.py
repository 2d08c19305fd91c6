"""Every parser of text from players, models or documents, by its module."""

import contextlib
import itertools
import json
import re
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from types import ModuleType
from uuid import UUID
from zoneinfo import ZoneInfo

import numpy as np

from foremind.api import front_end_requests
from foremind.app.configuration import load_settings
from foremind.background import (
    extractive_summary,
    note_rules,
    profile_extraction,
)
from foremind.background.prompts import EpisodesAnswer
from foremind.cards import card_fields, card_file, card_macros
from foremind.domain.actions import Action
from foremind.domain.companion_rules import SignificanceRules
from foremind.domain.erasure_texts import RecordText, TranscriptText
from foremind.domain.errors import NOT_JSON, InvalidFile, InvalidMessage, TooLarge
from foremind.domain.memory import Candidate, KnownMemory, Recalled, SimilarMemory, WordStatistics
from foremind.domain.policy import policy_for
from foremind.domain.record import RECORD_LAYERS, Details, Record
from foremind.domain.settings.settings import CompanionSettings
from foremind.domain.turn_request import EarlierTurn
from foremind.gateway import transcript
from foremind.gateway.protocol import decoding
from foremind.llm import (
    acting,
    answer_parsing,
    background_answer_gate,
    completion_parser,
    model_failures,
    model_selection,
    speech,
    thinking_filter,
)
from foremind.llm.prompt import quoted_lines, sections
from foremind.llm.prompt.layout import Prompt
from foremind.lore import key_matcher, lorebook
from foremind.lore.activation import ScannedMessage, activate
from foremind.memory import (
    foreign_chats,
    ingest_decisions,
    markdown_files,
    profile,
    scoring,
    short_answers,
)
from foremind.memory.erasure import scope as erasure_scope
from foremind.retrieval import access_counts, classifiers, ranking, relationship_layers
from foremind.retrieval.documents import chunking, html_text
from foremind.retrieval.ranking import to_candidate_set
from foremind.text import (
    folding,
    mentions,
    pin_requests,
    sentences,
    tense,
    time_expressions,
    time_words,
    tokenization,
)
from foremind.text.languages import detection, language_files, prompt_words, utterances
from foremind.text.languages.language_files import LANGUAGES
from foremind.text.statements import (
    chat_text,
    clauses,
    constructions,
    extraction,
    shapes,
    vocabulary,
)
from foremind.typeahead import prefetch_policy

_POLICY = policy_for(CompanionSettings(), load_settings()).recall
_EAGER = prefetch_policy.PrefetchPolicy(lambda letters: len(letters) % 2 == 0)
# An import may contain the earliest and the latest time that can be stored.
_EARLIEST, _LATEST = datetime(2, 1, 1, tzinfo=UTC), datetime(9998, 12, 31, 23, 59, tzinfo=UTC)
_EVENT_SPANS = (
    None,
    (_EARLIEST, _EARLIEST + timedelta(days=1)),
    (_LATEST - timedelta(days=1), _LATEST),
)


def read_dates(text: str, now: datetime) -> None:
    """Every span ends after its start and can be represented in UTC."""
    spans = time_expressions.spans_in(text, now)
    assert len(spans) <= time_expressions.MAX_EXPRESSIONS
    for span in spans:
        assert span.start < span.end
        assert span.start.astimezone(UTC) < span.end.astimezone(UTC)
        for side in ("before", "since", "until", "after"):
            time_expressions.open_ended_span(span, side)


def read_times(text: str, _: datetime) -> None:
    """Read a text's times in every language, and itself as a phrase of a language file."""
    for language in LANGUAGES:
        list(time_words.english_times(text, language))
    for separated in (True, False):
        re.compile(language_files.phrase_pattern(text, separated=separated))


def search(text: str, now: datetime) -> list[Recalled]:
    """Parse a draft, and rank memories of any date for it."""
    query = ranking.parse_query(text, now)
    terms = sorted(set(query.terms))
    candidates = [
        Candidate(
            KnownMemory(
                number,
                text,
                "user",
                "conversation",
                0.5,
                said_at,
                event_span,
                None,
                False,
                number,
                9.0,
            ),
            0.5,
            dict.fromkeys(terms, 1.0),
        )
        for number, (said_at, event_span) in enumerate(
            itertools.product((_EARLIEST, now, _LATEST), _EVENT_SPANS)
        )
    ]
    statistics = WordStatistics(len(candidates), 9.0, dict.fromkeys(terms, 1))
    ranked = ranking.rank(to_candidate_set(candidates, terms), query, statistics, _POLICY, now)
    access_counts.used_memories(text, ranked, [text])
    sections.memory_lines(ranked, text, now)
    return ranked


def reply_offline(text: str, now: datetime) -> None:
    """Compose the offline model's reply from recalled memories."""
    memories = tuple(search(text, now))
    model_selection.compose(Prompt("Wren", "A persona.", text, memories, (), text, now))


def consolidate(text: str, now: datetime) -> None:
    """Compare a text with a memory of the same text, and of one with an additional word."""
    for content in (text, f"{text} again"):
        memory = SimilarMemory(1, "user", content, 0.5, now, 0.99)
        ingest_decisions.find_same(text, "user", [memory], 0.82)
        ingest_decisions.only_quotes(text, [memory])


def summarise(text: str, _: datetime) -> None:
    """Summarise a conversation by rules."""
    utterances = [
        extractive_summary.Utterance(1, "Ana", True, text, 0.5),
        extractive_summary.Utterance(2, "Wren", False, f"I don't know. {text}", 0.5),
    ]
    extractive_summary.top_sentences(utterances, 3)
    extractive_summary.references_of([text], ["Ana"])
    extractive_summary.topics_of(utterances, 3)
    extractive_summary.questions_of(utterances, 3)
    extractive_summary.conclusions_of(utterances, 3)
    extractive_summary.left_open(utterances, 3)
    extractive_summary.settles(text, text)


def read_folder(text: str, _: datetime) -> None:
    """Find the edits in a folder, or what is refused of it."""
    files = {"profile.md": f"## {text}\n\n{text}".encode(errors="surrogatepass")}
    with contextlib.suppress(InvalidFile):
        markdown_files.find_edits(files, markdown_files.ExportedBase("1", {}, {}))


def take_notes(text: str, _: datetime) -> None:
    """Extract notes and profile entries by rules."""
    note_rules.updates_by_rules([extractive_summary.Utterance(1, "Ana", True, text, 0.5)], [])
    pin_requests.text_to_pin(text)
    profile_extraction.stated_in([extractive_summary.Utterance(1, "Ana", True, text, 0.5)])
    profile.entry_key(text, text)


def extract_statements(text: str, _: datetime) -> None:
    """Run all statement rules together, and their parts alone."""
    extraction.statements_in(text)
    chat_text.chat_sentences(text)
    clauses.canonical(text[:300])
    constructions.read_request(text[:300])
    shapes.place(text[:300])


def read_reply(text: str, _: datetime) -> None:
    """Take the marks of emotions out of a reply, and split it into what is spoken."""
    marks = speech.EmotionMarks(("calm", "happy"))
    passed = "".join([*map(marks.feed, (text[:7], text[7:])), marks.end()])
    spoken = speech.SpokenSentences(marks)
    spoken.feed(passed)
    spoken.end(passed)


def read_actions(text: str, _: datetime) -> None:
    """Take the marks of actions out of a reply, and read what they ask for."""
    schema = {"properties": {"item": {"type": "string"}, "count": {"type": "integer"}}}
    for reply in (text, f"[[give {text}]]", f"<tool_call>{text}</tool_call>"):
        marks = acting.ActionMarks()
        passed = marks.feed(reply[:7]) + marks.feed(reply[7:]) + marks.end()
        assert len(passed) <= len(reply)
        for call in marks.calls:
            acting.checked(call, [Action("give", schema=schema)])


def read_answer(text: str, _: datetime) -> None:
    """Parse a model's structured output: the text alone, and within the expected structure."""
    quoted = json.dumps(text)
    for output in (text, f'{{"episodes": {text}}}', f'{{"episodes": [{{"topic": {quoted}}}]}}'):
        with contextlib.suppress(answer_parsing.UnparsableAnswer):
            answer_parsing.parse_answer(output, EpisodesAnswer)


def read_stream(text: str, _: datetime) -> None:
    """Read a model server's stream, with the text as a delta and as a whole event."""
    filter_ = thinking_filter.ThinkingFilter()
    filter_.feed(text)
    filter_.end()
    thinking_filter.without_thinking(text)
    event = json.dumps({"choices": [{"delta": {"content": text}}]})
    for data in (event, text):
        events = completion_parser.StreamParser(completion_parser.StreamEnding())
        with contextlib.suppress(*NOT_JSON, completion_parser.ReportedError):
            list(events.feed(f"data: {data}\n\n".encode(errors="replace")))
            events.end()


def format_records(text: str, now: datetime) -> None:
    """Write a record of each layer into a prompt."""
    sections.standing_sections(
        [
            Record(
                *(number, layer, "", text, text, (), Details(), None, "model", None),
                *(now, now, 1),
            )
            for number, layer in enumerate(RECORD_LAYERS)
        ],
        len,
    )


def find_erased(text: str, _: datetime) -> None:
    """Find what an erasure covers in a transcript and records."""
    texts = erasure_scope.RelationshipTexts()
    texts.add_turns(
        [
            TranscriptText(1, UUID(int=1), "user", None, True, text, None, None),
            TranscriptText(2, UUID(int=1), "companion", 1, True, f"So {text}?", None, None),
        ]
    )
    texts.add_records([RecordText(1, 0, "user", f"{text}\n{text}.", "", f"{text}\n{text}.")])
    about = mentions.parse_mention(text, None)
    erasure_scope.find_erased_content(texts, [1], about=about, include_repetitions=True)
    if about is not None:
        about.near_spellings([text, f"So {text}?"])
    erasure_scope.find_erased_content(texts, [1], keep_other_mentions=True)
    erasure_scope.find_erased_content(texts, [1], replacement=f"{text} again")


def type_draft(text: str, _: datetime) -> None:
    """Decide when a draft is settled."""
    _EAGER.typed(text, 0.0, 0.5)


def read_page(text: str, _: datetime) -> None:
    """Extract an HTML page with the text in every kind of node."""
    html = f"<h1>{text}</h1><p>{text}</p><pre>{text}</pre><!-- {text} --><{text}>"
    with contextlib.suppress(ValueError):
        html_text.html_text(html.encode(errors="replace"))


def read_lore(text: str, _: datetime) -> None:
    """Find a text in itself, as a key, a pattern and the content of an entry."""
    key, content = text[: lorebook.MAX_KEY_CHARS], text[: lorebook.MAX_CONTENT_CHARS]
    entries = [
        {"keys": [key], "content": head + content, "use_regex": use_regex}
        for use_regex in (False, True)
        for head in ("", "@@", f"@@{key}\n", f"@@exclude_keys {key}\n", "{{// ")
    ]
    book = lorebook.Lorebook.parse({"entries": entries, "recursive_scanning": True})
    activate(book, [ScannedMessage(True, book.matcher.found_in(text))], len, 1000)


def read_chats(text: str, now: datetime) -> None:
    """Read files of other programs with the text wherever they have one, and as a file."""
    said = {"name": text, "is_user": True, "send_date": text, "mes": text}
    memory = {"memory": text, "created_at": text}
    message = {"author": {"role": "user"}, "content": {"content_type": "text", "parts": [text]}}
    chat = {"mapping": {text: {"message": message, "parent": text}}, "current_node": text}
    turns = {"turns": [{"author": {"name": text}, "candidates": [{"raw_content": text}]}]}
    files = [
        text.encode("utf-8", "surrogatepass"),
        json.dumps([said, memory, chat, turns]).encode(),
    ]
    for file in files:
        foreign_chats.is_foreign(file)
        with contextlib.suppress(InvalidMessage, TooLarge):
            foreign_chats.read_foreign(
                [file],
                "wren",
                (None, "player"),
                max_chars={"user": 2000, "companion": 4000},
                session=timedelta(hours=24),
                zone=ZoneInfo("Europe/Lisbon"),
                now=now.astimezone(UTC),
                max_turns=100,
            )


def read_failure(text: str, _now: datetime) -> None:
    """Say what went wrong with a model server that answers with the text, with any status."""
    asked = model_failures.AskedModel("default")
    error = {"message": text, "code": text, "type": text}
    for status in (400, 401, 402, 404, 413, 429, 500):
        model_failures.refusal(asked, status, {"error": error}, {"retry-after": text})


def fold(text: str, _now: datetime) -> None:
    """Folding again changes nothing."""
    once = folding.folded(text)
    assert folding.folded(once) == once or len(text) > 1000


def read_texts_of_card(text: str, _: datetime) -> None:
    """Make a companion of a card with the text in every field, and its card again."""
    values = card_macros.MacroValues(text, text, text)
    for field in (text, f"{{{{random:{text}}}}}", f"{{{{roll:{text}}}}}", f"{{{{reverse:{text}"):
        card_macros.expand_card_macros(field, values)
    card = {"name": "Wren", "description": text, "first_mes": text, "mes_example": text}
    with contextlib.suppress(InvalidMessage):  # NUL
        read = card_file.read_card(json.dumps(card).encode()).data
        card_fields.companion_of(read, card_fields.slug_of(text))


#: By module, so that a test can check that none is missing.
def read_labels(text: str, _now: datetime) -> None:
    """Take labels off a whole chat in one message, and off a message among others."""
    turns = [EarlierTurn("user", text), EarlierTurn("companion", text), EarlierTurn("user", text)]
    for messages in (turns[:1], turns):
        with contextlib.suppress(InvalidMessage):
            transcript.without_labels(messages, ["Wren"], ["Ana"])


def read_front_end(text: str, _now: datetime) -> None:
    """Read a request of a chat front end, alone, by instructions and in a chat."""
    said = [front_end_requests.Said("user", text), front_end_requests.Said(None, text)]
    for messages in (said[:1], said, [said[1], said[0], said[0]]):
        with contextlib.suppress(InvalidMessage):
            front_end_requests.read_messages(messages)


def pass_gate(text: str, _now: datetime) -> None:
    """Judge a model's answer by what it was given."""
    gate = background_answer_gate.AnswerGate("A form.", [text[::2]], ["Ana"])
    gate.admits(text)
    gate.admits_value(text)
    gate.touches(text)
    gate.paragraph(text, text[:20])
    gate.lines(text.splitlines(), text)


#: Modules that read what somebody wrote, each with a call of what it reads with.
READERS: list[tuple[tuple[ModuleType, ...], Callable[[str, datetime], object]]] = [
    (
        (
            card_fields,
            card_file,
            card_macros,
        ),
        read_texts_of_card,
    ),
    ((foreign_chats,), read_chats),
    ((model_failures,), read_failure),
    ((folding,), fold),
    ((time_expressions,), read_dates),
    (
        (
            time_words,
            language_files,
        ),
        read_times,
    ),
    ((tense,), lambda text, _: tense.directions_of(text, 0, len(text) // 2, undecided=True)),
    ((ranking,), ranking.parse_query),
    ((ranking,), search),
    (
        (tokenization,),
        lambda text, _: (
            tokenization.terms_of(text),
            tokenization.terms_key(text),
            tokenization.names_in(text),
            tokenization.count_terms(text),
            tokenization.query_terms_of(text),
        ),
    ),
    ((profile,), lambda text, _: profile.facts_in(text)),
    (
        (
            chat_text,
            clauses,
            constructions,
            extraction,
            shapes,
            vocabulary,
        ),
        extract_statements,
    ),
    ((scoring,), lambda text, _: scoring.minimum_scores_in(text)),
    ((scoring,), lambda text, _: scoring.signals_in(text)),
    (
        (scoring,),
        lambda text, _: (
            scoring.score_significance(text, 0.0, SignificanceRules(phrases={"a": 0.5})),
            scoring.score_from_rating(text, 5, SignificanceRules()),
        ),
    ),
    (
        (short_answers,),
        lambda text, _: (
            short_answers.is_short_answer(text),
            short_answers.asks_about_listener(text, "user"),
            short_answers.asks_about_listener(f"{text}?", "companion"),
        ),
    ),
    ((classifiers,), lambda text, _: classifiers.worth_searching(text, -1.0)),
    ((classifiers,), lambda text, _: np.isfinite(classifiers.text_features(text)).all() or 1 / 0),
    ((ingest_decisions,), consolidate),
    (
        (prompt_words,),
        lambda _, now: [prompt_words.age_in_words(then, now) for then in (_EARLIEST, now, _LATEST)],
    ),
    ((extractive_summary,), summarise),
    ((note_rules,), take_notes),
    ((profile,), take_notes),
    ((pin_requests,), take_notes),
    (
        (
            erasure_scope,
            mentions,
        ),
        find_erased,
    ),
    ((answer_parsing,), read_answer),
    ((completion_parser,), read_stream),
    ((thinking_filter,), read_stream),
    ((speech,), read_reply),
    ((acting,), read_actions),
    (
        (utterances,),
        lambda text, _: (
            utterances.is_question(text),
            utterances.is_pure_question(text),
            utterances.is_turn_of_phrase(text),
        ),
    ),
    ((detection,), lambda text, _: detection.language_of(text)),
    (
        (prompt_words,),
        lambda text, _: (
            prompt_words.english_day(text),
            prompt_words.is_day_heading(text),
        ),
    ),
    (
        (utterances,),
        lambda text, _: (
            utterances.asks(text),
            utterances.only_asks(text),
            utterances.states(text),
            utterances.is_about_speaker(text),
            utterances.has_content(text),
        ),
    ),
    ((tokenization,), lambda text, _: tokenization.everyday_names_in(text)),
    ((sentences,), lambda text, _: sentences.sentence_keys_in(text)),
    ((markdown_files,), read_folder),
    ((html_text,), read_page),
    ((chunking,), lambda text, _: chunking.split_into_chunks(text)),
    ((relationship_layers,), lambda text, _: relationship_layers.references_in(text)),
    ((sections,), format_records),
    ((sections,), lambda text, _: sections.labelled(text)),
    (
        (quoted_lines,),
        lambda text, _: quoted_lines.shortened(quoted_lines.line(("", text)), 20, len),
    ),
    (
        (prefetch_policy,),
        lambda text, _: prefetch_policy.has_searchable_text(prefetch_policy.normalise(text)),
    ),
    ((prefetch_policy,), type_draft),
    ((model_selection,), reply_offline),
    ((key_matcher,), read_lore),
    ((lorebook,), read_lore),
    ((decoding,), lambda text, _: decoding.cause_in(text)),
    ((transcript,), read_labels),
    ((front_end_requests,), read_front_end),
    ((front_end_requests,), read_front_end),
    (
        (short_answers,),
        lambda text, _: short_answers.is_informative(text, [text[::2], "Ana"]),
    ),
    ((background_answer_gate,), pass_gate),
]


def read_by_all(text: str, now: datetime) -> None:
    """Run every reader on a text."""
    for _, reader in READERS:
        reader(text, now)
