"""What the layers hold of a life, against labels that say what they should hold.

Sessions of months are told by a virtual clock, with the background work done by a language model
where one is configured, else by rules. Then it is asked what each draft brings back, and looked at
what the profile and the open questions say.
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

from foremind.app import Core
from foremind.background.extractive_summary import key_of
from foremind.domain.companion import Companion
from foremind.domain.errors import InvalidFile
from foremind.domain.record import Record
from foremind.domain.settings import LayerName
from foremind.domain.turn import Speaker
from foremind.evaluation.daily_sessions import DailySessions, SimulatedRelationship
from foremind.evaluation.dialogues import Dialogue, DialogueTurn
from foremind.llm.prompt.quoted_lines import quoted
from foremind.retrieval.documents.library import Library
from foremind.testing.manual_clock import ManualClock
from foremind.text.tokenization import terms_of

A_YEAR = Path(__file__).with_name("a_year.toml")
_A_DAY = 24 * 3600.0
_A_MONTH = 30
_MOST = 3
_TELLING_CHARS = 30  # of a record's text, by which a line in a prompt is known to be of it
_NO_TIME = datetime(2026, 1, 1, tzinfo=UTC)  # what is said here is said when the clock says


class LabelledSession(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What was said on a day after the first."""

    day: int
    said: list[tuple[Speaker, str]]


class LabelledDocument(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A document of the companion."""

    title: str
    text: str


class LabelledQuestion(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A draft, and what it should bring back; nothing of a layer that it does not name."""

    text: str
    sessions: list[int] = []
    topics: list[str] = []
    passages: list[str] = []


class ProfileLabel(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What the profile holds in the end; without `required` it is right, but not missed."""

    slot: str
    value: str
    required: bool = True


class OpenQuestion(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What was left open, by words of the question, and whether it found its answer."""

    about: str
    settled: bool


class LabelledRelationship(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A life, and what should be known of it."""

    id: str
    user_name: str
    companion_name: str
    sessions: list[LabelledSession]
    asked: list[LabelledQuestion]
    documents: list[LabelledDocument] = []
    profile: list[ProfileLabel] = []
    questions: list[OpenQuestion] = []


class LabelScore(msgspec.Struct, frozen=True):
    """What drafts brought back of a layer, three at most.

    `precision` is the mean share of what was brought that a label names, 0 where nothing was;
    `found` the share of drafts that brought anything right; `unasked` how many came on average for
    drafts that ask for nothing.
    """

    precision: float
    found: float
    unasked: float
    drafts: int


class LabelReport(msgspec.Struct, frozen=True):
    """What the layers hold against labels.

    `profile_precision` is the share of entries that are right, `profile_recall` that of labels that
    are there; `questions` the share of labelled questions that are there and open or settled as
    they should be, `other_questions` how many are there beside.
    """

    made_by: str
    episodes: LabelScore
    topics: LabelScore
    documents: LabelScore
    profile_precision: float
    profile_recall: float
    questions: float
    other_questions: int


def read_life(path: Path) -> LabelledRelationship:
    """Read a labelled life.

    Raises:
        InvalidFile: it is not one; the message names the field and what was expected.
    """
    try:
        life = msgspec.convert(tomllib.loads(path.read_text("utf-8")), LabelledRelationship)
    except (OSError, ValueError) as error:
        raise InvalidFile(f"{path}: {error}") from None
    days = [session.day for session in life.sessions]
    if not days or sorted(set(days)) != days:
        raise InvalidFile(f"{path}: sessions: expected days that rise")
    for index, asked in enumerate(life.asked):
        if not set(asked.sessions) <= set(days):
            raise InvalidFile(f"{path}: asked[{index}].sessions: expected days of sessions")
    return life


async def measure_labels(
    core: Core, clock: ManualClock, labelled: LabelledRelationship, advance: Callable[[int], None]
) -> LabelReport:
    """Live a labelled life, and compare what is known a month later with its labels."""
    async with aclosing(DailySessions(core, clock)) as life:
        return await _compared(core, clock, life, labelled, advance)


async def _compared(
    core: Core,
    clock: ManualClock,
    life: DailySessions,
    labelled: LabelledRelationship,
    advance: Callable[[int], None],
) -> LabelReport:
    dialogue = Dialogue(labelled.id, labelled.user_name, labelled.companion_name, (), ())
    companion = await life.companion_of(dialogue)
    await _embed_documents(core, clock, companion.id, labelled.documents)
    bond, days = await _lived(life, companion, dialogue, labelled, advance)
    records = await core.records.all(bond.opened.relationship_id)
    drafts = []
    for each in labelled.asked:
        context = await life.prepare(bond, each.text)
        lines = {layer: section.lines for layer, section in context.recalled.items()}
        drafts.append(_DraftProbe(each, lines, records, days))
        advance(1)
    profile = [
        record for record in records if record.layer == "profile" and record.kind != "inferred"
    ]
    opened = [record for record in records if record.layer == "questions"]
    return LabelReport(
        made_by="rules" if core.settings.llm_url is None else "model",
        episodes=_found([draft.episodes() for draft in drafts]),
        topics=_found([draft.topics() for draft in drafts]),
        documents=_found([draft.passages() for draft in drafts]),
        profile_precision=_share(
            any(_says(entry, each.value) for each in labelled.profile) for entry in profile
        ),
        profile_recall=_share(
            any(_says(entry, each.value) for entry in profile)
            for each in labelled.profile
            if each.required
        ),
        questions=_share(_is_as_labelled(question, opened) for question in labelled.questions),
        other_questions=sum(
            not any(_says(entry, question.about) for question in labelled.questions)
            for entry in opened
        ),
    )


async def _embed_documents(
    core: Core, clock: ManualClock, companion_id: int, documents: Sequence[LabelledDocument]
) -> None:
    library = Library(core.documents, core.embedder, clock, core.supervisor)
    for document in documents:
        await library.add(companion_id, document.title, "text/markdown", document.text.encode())
    await library.embed_all()


async def _lived(
    life: DailySessions,
    companion: Companion,
    dialogue: Dialogue,
    labelled: LabelledRelationship,
    advance: Callable[[int], None],
) -> tuple[SimulatedRelationship, dict[UUID, int]]:
    """Tell all sessions; return who talked, in the last, and the day of each session by its id."""
    days: dict[UUID, int] = {}
    bond: SimulatedRelationship | None = None
    ends = [each.day for each in labelled.sessions[1:]] + [labelled.sessions[-1].day + _A_MONTH]
    for session, end in zip(labelled.sessions, ends, strict=True):
        bond = await life.meet(companion, dialogue)
        days[bond.opened.session_id] = session.day
        said = [
            DialogueTurn(str(number), str(session.day), speaker, text, _NO_TIME)
            for number, (speaker, text) in enumerate(session.said)
        ]
        await life.day(bond, session.day, said, advance)
        await life.rest(bond, _A_DAY * 0.9)
        await life.rest(bond, _A_DAY * (end - session.day - 0.9))
    assert bond is not None  # there is a session, or it would not have been read
    return bond, days


@dataclass(frozen=True, slots=True)
class _DraftProbe:
    """What was brought back for a draft: for each line whether a label names it."""

    asked: LabelledQuestion
    lines: Mapping[LayerName, Sequence[str]]
    records: Sequence[Record]
    days: Mapping[UUID, int]

    def episodes(self) -> "_ProbeResult":
        """Of an episode its session is named."""
        return self._of(
            "episodes",
            lambda each: (
                each.session_id is not None
                and self.days.get(each.session_id) in self.asked.sessions
            ),
            bool(self.asked.sessions),
        )

    def topics(self) -> "_ProbeResult":
        """Of a topic a word of its title is named."""
        keys = {key_of(topic) for topic in self.asked.topics}
        return self._of(
            "topics",
            lambda each: bool(keys & {*key_of(each.title).split(), key_of(each.title)}),
            bool(self.asked.topics),
        )

    def passages(self) -> "_ProbeResult":
        """Of a passage some words are named."""
        lines = self.lines.get("library", ())[:_MOST]
        right = [any(words in line for words in self.asked.passages) for line in lines]
        return _ProbeResult(bool(self.asked.passages), right)

    def _of(
        self, layer: LayerName, is_right: Callable[[Record], bool], wanted: bool
    ) -> "_ProbeResult":
        """Return of which of a layer's lines the record is right; a line begins like its record."""
        known = [record for record in self.records if record.layer == layer]
        right = []
        for line in self.lines.get(layer, ())[:_MOST]:
            shown = [e for e in known if quoted(e.content)[1:-1][:_TELLING_CHARS] in line]
            right.append(any(is_right(each) for each in shown))
        return _ProbeResult(wanted, right)


@dataclass(frozen=True, slots=True)
class _ProbeResult:
    """Whether a draft asks for something of a layer, and what of that which came is right."""

    wanted: bool
    right: Sequence[bool]


def _found(drafts: Sequence[_ProbeResult]) -> LabelScore:
    wanted = [draft.right for draft in drafts if draft.wanted]
    others = [len(draft.right) for draft in drafts if not draft.wanted]
    return LabelScore(
        precision=_mean([_mean(each) for each in wanted]),
        found=_share(any(each) for each in wanted),
        unasked=_mean(others),
        drafts=len(wanted),
    )


def _mean(values: Sequence[float]) -> float:
    return round(fmean(values), 3) if values else 0.0


def _share(right: Iterable[bool]) -> float:
    every = list(right)
    return round(fmean(every), 3) if every else 1.0


def _says(record: Record, words: str) -> bool:
    return set(terms_of(words)) <= set(terms_of(f"{record.title} {record.content}"))


def _is_as_labelled(label: OpenQuestion, opened: Sequence[Record]) -> bool:
    found = [each.details.status for each in opened if _says(each, label.about)]
    if label.settled:
        return bool(found) and "open" not in found
    return "open" in found
