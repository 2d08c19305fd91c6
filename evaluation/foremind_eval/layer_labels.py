"""Compare what the layers contain after months of sessions with labels of what they should.

The sessions run on a simulated clock, with the background work done by a language model where one
is configured, and by rules otherwise. Then drafts probe what is recalled, and the profile and the
open questions are compared with their labels.
"""

import tomllib
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import aclosing
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from statistics import fmean
from uuid import UUID

import msgspec

from foremind.app.core import Core
from foremind.domain.companion import Companion
from foremind.domain.errors import InvalidFile
from foremind.domain.record import Record
from foremind.domain.settings.setting_definitions import LayerName
from foremind.domain.turn import Speaker
from foremind.llm.prompt.quoted_lines import quoted
from foremind.retrieval.documents.library import Library
from foremind.text.tokenization import terms_key, terms_of
from foremind_eval.daily_sessions import DailySessions, SimulatedRelationship
from foremind_eval.dialogues import Dialogue, DialogueTurn
from foremind_eval.doubles.manual_clock import ManualClock

LABELLED_YEAR = Path(__file__).with_name("a_year.toml")
_DAY_S = 24 * 3600.0
_DAYS_AFTER_LAST_SESSION = 30
_MAX_LINES = 3  # of a layer that count for a draft
_LINE_PREFIX_CHARS = 30  # of a record's text, by which its line in a prompt is recognised
_UNUSED_DATE = datetime(2026, 1, 1, tzinfo=UTC)  # turns are stored with the simulated clock's time


class LabelledSession(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What was said on one day, counted from the first."""

    day: int
    said: list[tuple[Speaker, str]]


class LabelledDocument(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A document of the companion."""

    title: str
    text: str


class LabelledQuestion(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A draft and what it should recall; nothing of a layer for which it lists nothing."""

    text: str
    sessions: list[int] = []
    topics: list[str] = []
    passages: list[str] = []


class ProfileLabel(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A correct profile entry; one that is not `required` may be absent."""

    slot: str
    value: str
    required: bool = True


class OpenQuestion(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Words of a question that was left open, and whether it was answered later."""

    about: str
    settled: bool


class LabelledRelationship(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The sessions of a relationship, and what should be known afterwards."""

    id: str
    user_name: str
    companion_name: str
    sessions: list[LabelledSession]
    asked: list[LabelledQuestion]
    documents: list[LabelledDocument] = []
    profile: list[ProfileLabel] = []
    questions: list[OpenQuestion] = []


class LabelScore(msgspec.Struct, frozen=True):
    """What drafts recalled from a layer, counting at most three lines.

    `precision` is the mean share of recalled lines that a label names, 0 if nothing was recalled;
    `found` the share of drafts that recalled anything right; `unasked` the mean number of lines for
    drafts that should recall nothing from the layer.
    """

    precision: float
    found: float
    unasked: float
    drafts: int


class LabelReport(msgspec.Struct, frozen=True):
    """The layers' contents compared with the labels.

    `profile_precision` is the share of profile entries that are right, `profile_recall` the share
    of required labels that have an entry; `questions` the share of labelled questions that are open
    or settled as they should be, `other_questions` the number of questions without a label.
    """

    made_by: str
    episodes: LabelScore
    topics: LabelScore
    documents: LabelScore
    profile_precision: float
    profile_recall: float
    questions: float
    other_questions: int


def read_labelled_relationship(path: Path) -> LabelledRelationship:
    """Read a labelled relationship (TOML).

    Raises:
        InvalidFile: the file is malformed; the message names the field and what was expected.
    """
    try:
        labelled = msgspec.convert(tomllib.loads(path.read_text("utf-8")), LabelledRelationship)
    except (OSError, ValueError) as error:
        raise InvalidFile(f"{path}: {error}") from None
    days = [session.day for session in labelled.sessions]
    if not days or sorted(set(days)) != days:
        raise InvalidFile(f"{path}: sessions: expected at least one, and days in ascending order")
    for index, question in enumerate(labelled.asked):
        if not set(question.sessions) <= set(days):
            raise InvalidFile(f"{path}: asked[{index}].sessions: expected days of sessions")
    return labelled


async def measure_labels(
    core: Core, clock: ManualClock, labelled: LabelledRelationship, advance: Callable[[int], None]
) -> LabelReport:
    """Run a labelled relationship, and compare what is known a month later with its labels."""
    async with aclosing(DailySessions(core, clock)) as sessions:
        return await _measure(core, clock, sessions, labelled, advance)


async def _measure(
    core: Core,
    clock: ManualClock,
    sessions: DailySessions,
    labelled: LabelledRelationship,
    advance: Callable[[int], None],
) -> LabelReport:
    dialogue = Dialogue(labelled.id, labelled.user_name, labelled.companion_name, (), ())
    companion = await sessions.create_companion(dialogue)
    await _embed_documents(core, clock, companion.id, labelled.documents)
    relationship, days = await _run_sessions(sessions, companion, dialogue, labelled, advance)
    records = await core.stores.records.all(relationship.opened.relationship_id)
    probes = []
    for question in labelled.asked:
        context = await sessions.build_context(relationship, question.text)
        lines = {layer: section.lines for layer, section in context.recalled.items()}
        probes.append(_DraftProbe(question, lines, records, days))
        advance(1)
    return _report(
        "rules" if core.runtime.settings.llm_url is None else "model", labelled, probes, records
    )


def _report(
    made_by: str,
    labelled: LabelledRelationship,
    probes: Sequence["_DraftProbe"],
    records: Sequence[Record],
) -> LabelReport:
    profile = [
        record for record in records if record.layer == "profile" and record.kind != "inferred"
    ]
    questions = [record for record in records if record.layer == "questions"]
    return LabelReport(
        made_by=made_by,
        episodes=_score([probe.episodes() for probe in probes]),
        topics=_score([probe.topics() for probe in probes]),
        documents=_score([probe.passages() for probe in probes]),
        profile_precision=_share(
            any(_mentions(entry, label.value) for label in labelled.profile) for entry in profile
        ),
        profile_recall=_share(
            any(_mentions(entry, label.value) for entry in profile)
            for label in labelled.profile
            if label.required
        ),
        questions=_share(_status_matches(label, questions) for label in labelled.questions),
        other_questions=sum(
            not any(_mentions(question, label.about) for label in labelled.questions)
            for question in questions
        ),
    )


async def _embed_documents(
    core: Core, clock: ManualClock, companion_id: int, documents: Sequence[LabelledDocument]
) -> None:
    library = Library(core.stores.documents, core.embedder, clock, core.runtime.supervisor)
    for document in documents:
        await library.add(companion_id, document.title, "text/markdown", document.text.encode())
    await library.embed_pending()


async def _run_sessions(
    sessions: DailySessions,
    companion: Companion,
    dialogue: Dialogue,
    labelled: LabelledRelationship,
    advance: Callable[[int], None],
) -> tuple[SimulatedRelationship, dict[UUID, int]]:
    """Run all sessions; return the relationship in the last one, and the day of each session id."""
    days: dict[UUID, int] = {}
    relationship: SimulatedRelationship | None = None
    next_days = [session.day for session in labelled.sessions[1:]]
    next_days.append(labelled.sessions[-1].day + _DAYS_AFTER_LAST_SESSION)
    for session, next_day in zip(labelled.sessions, next_days, strict=True):
        relationship = await sessions.open_session(companion, dialogue)
        days[relationship.opened.session_id] = session.day
        turns = [
            DialogueTurn(str(number), str(session.day), speaker, text, _UNUSED_DATE)
            for number, (speaker, text) in enumerate(session.said)
        ]
        await sessions.run_session(relationship, session.day, turns, advance)
        await sessions.pass_time(relationship, _DAY_S * 0.9)
        await sessions.pass_time(relationship, _DAY_S * (next_day - session.day - 0.9))
    assert relationship is not None  # `read_labelled_relationship` rejects a file without sessions
    return relationship, days


@dataclass(frozen=True, slots=True)
class _DraftProbe:
    """The lines recalled for a draft, layer by layer, to be compared with its labels."""

    question: LabelledQuestion
    lines: Mapping[LayerName, Sequence[str]]
    records: Sequence[Record]
    days: Mapping[UUID, int]

    def episodes(self) -> "_ProbeResult":
        """Return which recalled episodes are of a labelled session."""
        return self._compare_records(
            "episodes",
            lambda episode: (
                episode.session_id is not None
                and self.days.get(episode.session_id) in self.question.sessions
            ),
            bool(self.question.sessions),
        )

    def topics(self) -> "_ProbeResult":
        """Return which recalled topics share a title word with a labelled one."""
        keys = {terms_key(topic) for topic in self.question.topics}
        return self._compare_records(
            "topics",
            lambda topic: bool(keys & {*terms_key(topic.title).split(), terms_key(topic.title)}),
            bool(self.question.topics),
        )

    def passages(self) -> "_ProbeResult":
        """Return which recalled passages contain labelled words."""
        lines = self.lines.get("library", ())[:_MAX_LINES]
        right = [any(words in line for words in self.question.passages) for line in lines]
        return _ProbeResult(bool(self.question.passages), right)

    def _compare_records(
        self, layer: LayerName, is_right: Callable[[Record], bool], wanted: bool
    ) -> "_ProbeResult":
        """Return for each line of a layer whether the record that it quotes is right."""
        records = [record for record in self.records if record.layer == layer]
        right = []
        for line in self.lines.get(layer, ())[:_MAX_LINES]:
            quoted_records = [
                record
                for record in records
                if quoted(record.content)[1:-1][:_LINE_PREFIX_CHARS] in line
            ]
            right.append(any(is_right(record) for record in quoted_records))
        return _ProbeResult(wanted, right)


@dataclass(frozen=True, slots=True)
class _ProbeResult:
    """Whether a draft should recall anything from a layer, and which recalled lines are right."""

    wanted: bool
    right: Sequence[bool]


def _score(results: Sequence[_ProbeResult]) -> LabelScore:
    wanted = [result.right for result in results if result.wanted]
    unasked = [len(result.right) for result in results if not result.wanted]
    return LabelScore(
        precision=_mean([_mean(right) for right in wanted]),
        found=_share(any(right) for right in wanted),
        unasked=_mean(unasked),
        drafts=len(wanted),
    )


def _mean(values: Sequence[float]) -> float:
    return round(fmean(values), 3) if values else 0.0


def _share(outcomes: Iterable[bool]) -> float:
    """Return the share of true outcomes, 1 if there are none."""
    values = list(outcomes)
    return round(fmean(values), 3) if values else 1.0


def _mentions(record: Record, words: str) -> bool:
    return set(terms_of(words)) <= set(terms_of(f"{record.title} {record.content}"))


def _status_matches(label: OpenQuestion, questions: Sequence[Record]) -> bool:
    statuses = [
        question.details.status for question in questions if _mentions(question, label.about)
    ]
    if label.settled:
        return bool(statuses) and "open" not in statuses
    return "open" in statuses
