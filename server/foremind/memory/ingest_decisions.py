"""Decides what becomes of turns that are ingested, and of the memories near them. Pure."""

import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from zoneinfo import ZoneInfo

import msgspec
import numpy as np
import numpy.typing as npt

from foremind.domain.companion_rules import SignificanceRules
from foremind.domain.memory import (
    Fact,
    MemoryChanges,
    MemoryText,
    NewMemory,
    RepeatedMemory,
    RescoredMemory,
    SimilarMemory,
    StatedFact,
)
from foremind.domain.policy import StoragePolicy
from foremind.domain.turn import (
    ExchangeTurn,
    IngestRequest,
    Speaker,
    TurnsToRemember,
    TurnToRemember,
)
from foremind.memory.contextual_embedding import (
    contextual_text,
    position_of,
    reembed_neighbours,
    standalone_text,
)
from foremind.memory.profile import facts_in
from foremind.memory.scoring import (
    MINIMUM_SCORES,
    SignificanceScore,
    score_as_requested,
    score_from_rating,
    score_significance,
)
from foremind.memory.short_answers import (
    MIN_ANSWER_SCORE,
    answer_score,
    is_informative,
    question_to_keep,
)
from foremind.retrieval.classifiers import TextClassifiers
from foremind.text.languages.detection import language_of
from foremind.text.languages.language_files import ENGLISH
from foremind.text.languages.prompt_words import date_in
from foremind.text.languages.utterances import is_pure_question
from foremind.text.sentences import QUESTION_MARKS
from foremind.text.time_expressions import spans_in
from foremind.text.tokenization import MAX_CHARS, count_terms, names_in, terms_of

_MAX_ADDED_TERMS = 1  # a text with more terms than this beyond the memory's adds information
_MIN_QUOTE_CHARS = 8  # shorter memories occur in many sentences by chance
# When repeated, a memory's significance moves this share of the way to 1.
_REINFORCEMENT = 0.15

_NEGATION = re.compile(
    r"\b(?:not|no|never|nobody|nothing|without|hate|dislike|forget|(?:do|did|does|is|are|was|ca|wo)nt)\b|n[’']t\b",
    re.I,
)
_NUMBER = re.compile(
    r"\d+|\b(?:one|two|three|four|five|six|seven|eight|nine|ten|eleven|twelve)\b", re.I
)
_TIME = re.compile(
    r"\b(?:yesterday|today|tonight|tomorrow|last|next|ago|this|again|january|february|march|april|"
    r"may|june|july|august|september|october|november|december|"
    r"(?:mon|tues|wednes|thurs|fri|satur|sun)day)\b",
    re.I,
)


def find_same(
    text: str,
    speaker: Speaker,
    similar: Sequence[SimilarMemory],
    repetition: float | None,
    fallback: str = ENGLISH,
) -> SimilarMemory | None:
    """Return the speaker's memory that says what `text` says, if any of `similar` does."""
    own = (memory for memory in similar if memory.speaker == speaker)
    return next(
        (memory for memory in own if says_the_same(text, memory, repetition, fallback)), None
    )


def only_quotes(text: str, similar: Sequence[SimilarMemory]) -> bool:
    """Return whether `text` contains a memory verbatim: a reply that reminds adds nothing new.

    Otherwise every memory that a reply mentions would be stored once more.
    """
    folded = text.casefold()
    return any(
        len(memory.content) >= _MIN_QUOTE_CHARS and memory.content.strip().casefold() in folded
        for memory in similar
    )


def says_the_same(
    text: str, memory: SimilarMemory, repetition: float | None, fallback: str = ENGLISH
) -> bool:
    """Return whether `text` only repeats a memory.

    The meaning must be similar, and nothing that an embedding is blind to may differ: negation,
    numbers, names, one word in the same sentence ("my sister is a vet", "my brother is a vet",
    cosine 0.84). Events never count as repeated: what happened "yesterday" happened twice. In other
    languages than English, and with a model whose cosines have not been measured, every term must
    be the same.

    Args:
        repetition: the cosine from which texts may say the same; None if it is not known. With
            all-MiniLM-L6-v2 "I love rain" and "rain is my favourite" have cosine 0.85, "I love
            rain" and "I love snow" 0.63.
        fallback: the language where it is unsure.
    """
    if max(len(text), len(memory.content)) > MAX_CHARS:
        return False
    if memory.cosine < (repetition or 0.0) or _TIME.search(text) or _TIME.search(memory.content):
        return False
    if any(said.rstrip().endswith(QUESTION_MARKS) for said in (text, memory.content)):
        return False
    languages = {language_of(text, fallback), language_of(memory.content, fallback)}
    if repetition is None or languages != {ENGLISH}:
        return sorted(terms_of(text, fallback)) == sorted(terms_of(memory.content, fallback))
    for extract in (_NUMBER.findall, names_in):
        if _folded(extract(text)) != _folded(extract(memory.content)):
            return False
    if bool(_NEGATION.search(text)) != bool(_NEGATION.search(memory.content)):
        return False
    if _one_word_differs(text, memory.content):
        return False
    return len(terms_of(text)) <= len(terms_of(memory.content)) + _MAX_ADDED_TERMS


def reinforced_significance(former: float, repeated: float) -> float:
    """Return the significance of a memory that was said again."""
    highest = max(former, repeated)
    return round(highest + (1 - highest) * _REINFORCEMENT, 4)


def _one_word_differs(text: str, other: str) -> bool:
    pairs = list(zip(text.casefold().split(), other.casefold().split(), strict=False))
    same_length = len(text.split()) == len(other.split())
    differing = sum(first.strip(".!") != second.strip(".!") for first, second in pairs)
    return same_length and differing == 1


def _folded(words: Sequence[str]) -> set[str]:
    return {word.casefold() for word in words}


Vector = npt.NDArray[np.float32]

# What was said is of this type; the other types are for what games report.
_TYPE_OF_SAID = "conversation"
_SUPERSEDED_BY_MODEL = "the language model found that it no longer holds"
_TURNS_BEFORE = 4  # that a reply is compared with
_MAX_SIMILAR = 10  # memories, as many as are read
# A model that plays a companion makes up what it says of itself, which its card tells.
_OF_ITSELF = {minimum.name: 0.0 for minimum in MINIMUM_SCORES}


def _is_own_name(slot: str) -> bool:
    """Return whether a fact is the speaker's own name: not that of a pet, "name of dog"."""
    return slot == "name" or (slot.startswith("name ") and not slot.startswith("name of "))


@dataclass(frozen=True, slots=True)
class JudgedTurn:
    """A turn with its score.

    `session` are the turns around it in order, itself at `position`. `is_significant`: it becomes a
    memory unless it is one, or adds nothing. `question` is the companion's question that is kept if
    this answer is; `unread_question` its id, if it has no vector yet.
    """

    turn: TurnToRemember
    request: IngestRequest
    session: Sequence[TurnToRemember]
    position: int
    verdict: SignificanceScore
    is_significant: bool
    consolidates: bool
    facts: Sequence[Fact] = ()
    question: "JudgedTurn | None" = None
    unread_question: int | None = None

    @property
    def memory_type(self) -> str:
        """The type of its memory, if it becomes one."""
        return self.turn.event_type or _TYPE_OF_SAID

    @property
    def asks_model(self) -> bool:
        """Whether a language model may rate it, where the companion wants that."""
        said = self.turn.event_type is None and bool(self.turn.content.strip())
        return said and self.request.rating is None


@dataclass(frozen=True, slots=True)
class JudgedOutcome:
    """What became of a turn; the negative id of its turn stands for a memory to be stored."""

    judged: JudgedTurn
    memory_id: int | None

    def with_stored(self, stored: Mapping[int, int]) -> "JudgedOutcome":
        """Return it with the id of the stored memory, given these ids by turn."""
        if self.memory_id is None or self.memory_id > 0:
            return self
        return replace(self, memory_id=stored[-self.memory_id])


class TurnJudge:
    """Scores turns of one relationship."""

    def __init__(
        self, seen: TurnsToRemember, policy: StoragePolicy, classifiers: TextClassifiers | None
    ) -> None:
        self._seen = seen
        self._policy = policy
        self._classifiers = classifiers

    def judge(self, requests: Sequence[IngestRequest]) -> list[JudgedTurn]:
        """Score turns that exist, each with the question that it answers."""
        judged = {request.turn_id: self._judge(request) for request in requests}
        return [self._with_question(answer, judged.keys()) for answer in judged.values()]

    def _with_question(self, answer: JudgedTurn, others: Collection[int]) -> JudgedTurn:
        """Add the question, unless it is among the `others` that are judged anyhow."""
        question_id = question_to_keep(answer.session, answer.position, self._seen.language)
        if question_id is None or question_id in others:
            return answer
        if self._seen.turns[question_id].vector is None:
            return replace(answer, unread_question=question_id)
        return replace(answer, question=self._judge(IngestRequest(question_id)))

    def _judge(self, request: IngestRequest) -> JudgedTurn:
        turn, policy = self._seen.turns[request.turn_id], self._policy
        session = session_of(self._seen, turn)
        position = position_of(session, turn.id)
        verdict = self._verdict(session, position, request.rating)
        happened = turn.event_type is not None
        if request.requested or happened:
            verdict = score_as_requested(verdict, policy.threshold)
        is_significant = verdict.score >= policy.threshold and bool(turn.content.strip())
        is_significant = is_significant and turn.remembered_as is None
        consolidates = policy.consolidate and not happened
        states = is_significant and consolidates
        facts = facts_in(turn.content, self._seen.language) if states else []
        if self._is_played(turn):
            facts = [fact for fact in facts if not _is_own_name(fact.slot)]
        return JudgedTurn(
            turn, request, session, position, verdict, is_significant, consolidates, facts
        )

    def _verdict(
        self, session: Sequence[TurnToRemember], position: int, rating: int | None
    ) -> SignificanceScore:
        """Score a turn for what it says and for what it answers."""
        said, text, language = session[position], session[position].content, self._seen.language
        rules, asks = self._rules_for(said), _only_asks(said, language)

        def own_score(turn: ExchangeTurn) -> float:
            asks = _only_asks(turn, language)
            learned = self._log_odds(turn.content, turn.vector, asks=asks)
            return score_significance(
                turn.content, learned, self._rules_for(turn), asks=asks, fallback=language
            ).score

        minimum = (rules.floors or {}).get("answer", MIN_ANSWER_SCORE)
        threshold = self._policy.threshold
        answer = answer_score(session, position, threshold, minimum, own_score, language)
        if rating is not None:
            return score_from_rating(text, rating, rules, answer, asks=asks, fallback=language)
        learned = self._log_odds(text, session[position].vector, asks=asks)
        return score_significance(text, learned, rules, answer, asks=asks, fallback=language)

    def _is_played(self, turn: ExchangeTurn) -> bool:
        """Return whether a turn is a companion's, whose words do not count like the user's."""
        return turn.speaker == "companion" and self._policy.remember_replies != "all"

    def _rules_for(self, turn: ExchangeTurn) -> SignificanceRules:
        """Return the rules for a speaker: what companions say of themselves has no minimum."""
        rules = self._policy.rules
        if not self._is_played(turn):
            return rules
        return msgspec.structs.replace(rules, floors={**(rules.floors or {}), **_OF_ITSELF})

    def _log_odds(self, text: str, vector: Vector | None, *, asks: bool) -> float | None:
        """Return the significance classifier's log odds; None without classifier or vector.

        What only asks is classified as if it had its question mark.
        """
        if self._classifiers is None or vector is None:
            return None
        marked = text if not asks or text.rstrip().endswith(QUESTION_MARKS) else f"{text.rstrip()}?"
        return self._classifiers.classify(marked, vector).keep


class IngestDecider:
    """Decides about judged turns one after another, each knowing what became of those before."""

    def __init__(
        self,
        seen: TurnsToRemember,
        policy: StoragePolicy,
        names: Mapping[Speaker, Vector],
        repetition: float | None,
        similar: Mapping[int, Sequence[SimilarMemory]],
        facts: Sequence[StatedFact],
    ) -> None:
        """Args:
        names: unit vectors of the speakers' names.
        repetition: the cosine from which texts may say the same; None if it is not known.
        similar: the stored memories that turns may repeat, by turn.
        facts: what stored memories state about the slots that turns state something of.
        """
        self._seen = seen
        self._policy = policy
        self._names = names
        self._repetition = repetition
        self._similar = similar
        self._facts = list(facts)
        #: What is to be changed of memories.
        self.changes = MemoryChanges()
        self._new: dict[int, tuple[SimilarMemory, TurnToRemember, MemoryText]] = {}

    def decide(self, judged: Sequence[JudgedTurn], fresh: Collection[int]) -> list[JudgedOutcome]:
        """Decide about turns in order; return what becomes of them and of questions they answer.

        Args:
            fresh: the turns that have a vector only now, whose neighbours are re-embedded.
        """
        outcomes: list[JudgedOutcome] = []
        for turn in judged:
            memory_id = self._remember(turn)
            outcomes.append(JudgedOutcome(turn, memory_id))
            if memory_id is None:
                continue
            for older in turn.request.replaced:
                self._supersede(older, memory_id, _SUPERSEDED_BY_MODEL)
            if turn.question is not None:
                outcomes.append(JudgedOutcome(turn.question, self._remember(turn.question)))
        if self._policy.read_in_exchange:
            self._reembed(fresh)
        return outcomes

    def _remember(self, judged: JudgedTurn) -> int | None:
        """Decide about a turn; return its memory, if it has one."""
        memory_id, verdict = judged.turn.remembered_as, judged.verdict
        if judged.is_significant:
            return self._store(judged)
        if memory_id is not None and judged.request.rating is not None:
            self.changes.rescored[memory_id] = RescoredMemory(verdict.score, _json(verdict))
        return memory_id

    def _store(self, judged: JudgedTurn) -> int | None:
        """Make a turn a memory, or merge it into one that says the same; return its id.

        None if it is a reply that adds nothing, or that is not to be remembered. What happened
        again is another memory, and states nothing about a speaker.
        """
        turn, verdict, language = judged.turn, judged.verdict, self._seen.language
        similar = self._similar_to(turn) if judged.consolidates else []
        said_by_companion = turn.speaker == "companion" and turn.event_type is None
        if said_by_companion and not self._reply_counts(judged, similar):
            return None
        same = find_same(turn.content, turn.speaker, similar, self._repetition, language)
        if same is not None:
            self._merge(judged, same)
            return same.id
        text, memory_id = self._text_of(judged), -turn.id
        said_at = turn.created_at.astimezone(ZoneInfo(self._seen.time_zone))
        span = next(iter(spans_in(turn.content, said_at, language)), None)
        self.changes.new.append(
            NewMemory(
                turn_id=turn.id,
                created_at=turn.created_at,
                speaker=turn.speaker,
                content=turn.content,
                memory_type=judged.memory_type,
                significance=verdict.score,
                reasons=_json(verdict),
                text=text,
                happened=None if span is None else (span.start, span.end),
                facts=judged.facts,
            )
        )
        self.changes.growth += text.length
        known = SimilarMemory(
            memory_id, turn.speaker, turn.content, verdict.score, turn.created_at, 0.0
        )
        self._new[memory_id] = known, turn, text
        for fact in judged.facts:
            self._state(StatedFact(memory_id, turn.speaker, fact, turn.created_at))
        return memory_id

    def _text_of(self, judged: JudgedTurn) -> MemoryText:
        turn, language = judged.turn, self._seen.language
        if self._policy.read_in_exchange and turn.event_type is None:
            counter = partial(count_terms, fallback=language)
            return contextual_text(judged.session, judged.position, self._names, counter)
        assert turn.vector is not None  # it is judged by it
        where = replace(turn, content=f"{turn.content}\n{turn.place}") if turn.place else turn
        return standalone_text(where, turn.vector, language)

    def _similar_to(self, turn: TurnToRemember) -> list[SimilarMemory]:
        """Return the memories that a turn may repeat, as they are by now, nearest first."""
        known = [*self._similar.get(turn.id, ())]
        for memory, source, text in self._new.values():
            assert turn.vector is not None and source.vector is not None
            cosine, nearness = source.vector @ turn.vector, text.vector @ turn.vector
            known.append(replace(memory, cosine=float(cosine), nearness=float(nearness)))
        rescored = self.changes.rescored
        known = [
            replace(memory, significance=rescored[memory.id].significance)
            if memory.id in rescored
            else memory
            for memory in known
            if memory.id not in self.changes.superseded
        ]
        known.sort(key=lambda memory: -memory.nearness)
        return sorted(known[:_MAX_SIMILAR], key=lambda memory: -memory.cosine)

    def _reply_counts(self, judged: JudgedTurn, similar: Sequence[SimilarMemory]) -> bool:
        """Return whether a reply may be remembered."""
        turn, seen = judged.turn, self._seen
        if self._policy.remember_replies == "none" or only_quotes(turn.content, similar):
            return False
        # Without the question, an answer that is kept could not be understood.
        if any(reason.name == "answer" for reason in judged.verdict.reasons):
            return True
        if self._policy.remember_replies == "all":
            return True
        before = judged.session[max(0, judged.position - _TURNS_BEFORE) : judged.position]
        known = [earlier.content for earlier in before] + [memory.content for memory in similar]
        said_at = turn.created_at.astimezone(ZoneInfo(seen.time_zone))
        known += [seen.user_name, seen.companion_name, date_in(seen.language, said_at)]
        return is_informative(turn.content, known, seen.language)

    def _merge(self, judged: JudgedTurn, same: SimilarMemory) -> None:
        turn, verdict = judged.turn, judged.verdict
        significance = reinforced_significance(same.significance, verdict.score)
        reason = f"says the same, cosine {same.cosine:.2f}"
        self.changes.repeated.append(RepeatedMemory(same.id, turn.id, turn.created_at, reason))
        known = self.changes.rescored.get(same.id)
        earlier = known.said_at if known is not None else None
        said_at = turn.created_at if earlier is None else max(earlier, turn.created_at)
        self.changes.rescored[same.id] = RescoredMemory(significance, _json(verdict), said_at)

    def _state(self, stated: StatedFact) -> None:
        """Note a fact; the older of two contradicting memories is superseded."""
        for other in self._facts:
            if (
                (other.speaker, other.fact.slot) == (stated.speaker, stated.fact.slot)
                and other.fact.value != stated.fact.value
                and other.memory_id != stated.memory_id
            ):
                older, newer = other, stated
                if other.said_at > stated.said_at:
                    older, newer = stated, other
                reason = f"another {stated.fact.slot}"
                self._supersede(older.memory_id, newer.memory_id, reason)
        self._facts.append(stated)

    def _supersede(self, older: int, newer: int, reason: str) -> None:
        self.changes.superseded.setdefault(older, (newer, reason))

    def _reembed(self, fresh: Collection[int]) -> None:
        """Re-embed the stored memories near turns that have a vector only now."""
        by_session = {
            turn.session_id: turn for turn_id, turn in self._seen.turns.items() if turn_id in fresh
        }
        for session_id, turn in by_session.items():
            if session_id is None:
                continue  # events stand alone
            session = session_of(self._seen, turn)
            reembedded = reembed_neighbours(session, fresh, self._names, self._seen.language)
            self.changes.reembedded |= reembedded
            self.changes.growth += sum(
                reembedded[near.memory_id].text.length - near.terms
                for near in session
                if near.memory_id in reembedded
            )


def session_of(seen: TurnsToRemember, turn: TurnToRemember) -> list[TurnToRemember]:
    """Return the turns that were read of a turn's session, in order; an event stands alone."""
    if turn.session_id is None:
        return [turn]
    return [other for other in seen.turns.values() if other.session_id == turn.session_id]


def _json(verdict: SignificanceScore) -> str:
    return msgspec.json.encode(verdict.reasons).decode()


def _only_asks(turn: ExchangeTurn, language: str) -> bool:
    return turn.speaker == "user" and is_pure_question(turn.content, language)
