"""Extractive summaries of conversations, by rules instead of a language model. Pure.

Sentences are ranked by significance and centrality: a significant sentence that shares its words
with many others represents them (the idea of LexRank, Erkan and Radev 2004, arXiv 1109.2128, with
shared words in place of a random walk).
"""

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime

from foremind.memory.scoring import significance_by_words
from foremind.memory.short_answers import is_informative
from foremind.text.languages.language_files import ENGLISH
from foremind.text.languages.prompt_words import date_in
from foremind.text.languages.utterances import is_pure_question
from foremind.text.sentences import QUESTION_MARKS, is_day, sentences_in
from foremind.text.tokenization import terms_of, words_of

_REFERENCE = re.compile(
    r"(?<=[a-z,;:] )(?:[A-Z][\w’'-]+)(?: (?:of |the )?[A-Z][\w’'-]+)*"
    r"|“([^”]{2,60})”|\"([^\"]{2,60})\""
)
_DECIDED = re.compile(
    r"\b(?:i[’']ll|i will|we[’']ll|we will|let[’']s|decided|agreed|promise|it turns out|turned out|"
    r"i[’']m going to|we[’']re going to|settled|found out|figured out|solved)\b",
    re.IGNORECASE,
)
_LEFT_OPEN = re.compile(
    r"\b(?:(?:talk|speak|think|tell you)\b.{0,40}\b(?:later|another time|next time|tomorrow)|"
    r"come back to (?:this|that|it)|get back to|to be continued|remind me|remains? open|"
    r"still (?:don[’']t know|not sure|unsure|wondering)|haven[’']t decided|can[’']t decide)\b",
    re.IGNORECASE,
)
_NO_ANSWER = re.compile(
    r"\b(?:don[’']t know|do not know|not sure|no idea|can[’']t (?:remember|say|tell)|hard to say|"
    r"don[’']t think you[’']ve told me|have to tell me|let me think|good question)\b",
    re.IGNORECASE,
)
_SETTLED = re.compile(
    r"\b(?:found out|figured (?:it )?out|turns? out|turned out|solved|settled|decided|sorted)\b",
    re.IGNORECASE,
)
_NOT_REFERENCES = frozenset(
    """i i'm i've i'll i'd monday tuesday wednesday thursday friday saturday sunday january february
    march april may june july august september october november december ok wow oh yes
    no""".split()  # noqa: SIM905
)
# Frequent words of conversations that name no topic.
_FILLER_WORDS = frozenset(
    terms_of(
        "really great good nice thanks thank time feel feeling love like thing things lot know "
        "think make made making get got getting going want need look looking help keep hope glad "
        "happy sound sounds sure take way day today yesterday tomorrow week month year back see "
        "hear say said tell talk much many always never still even well also something anything "
        "everything someone people one two first last new awesome amazing cool wow hey pretty "
        "definitely recently lately share super try trying start started come came give bit part "
        "kind sort guess mean right yeah long life best better fun bring actually maybe let right "
        "important special enjoy support inspire forget remember excite wonderful favorite "
        "thought another other else whole own same different such several few little big small "
        "next again away already almost anyway because become begin believe question answer idea "
        "reason point time minute hour moment night morning evening afternoon fact case couple "
        "half side end start stuff word none nobody real actual certain entire main quite enough "
        "second third rather while till until yet ago later soon ever once twice around together "
        "alone old bad sad mad odd hot low far raw shy wet dry fat guy man men kid use lol omg btw"
    )
)
_DETERMINERS_AND_PREPOSITIONS = frozenset(
    """a an the my our your his her their this that these those of about some any another
    each every for with from""".split()  # noqa: SIM905
)
MAX_SENTENCE_CHARS = 300
_MIN_WORDS = 4
_MIN_TOPIC_CHARS = 3  # "dog", "mum", "sea"


@dataclass(frozen=True, slots=True)
class Utterance:
    """What a speaker said in one turn, with the turn's significance.

    `said_at` is in the user's time zone; None where it is unknown.
    """

    turn_id: int
    name: str
    by_user: bool
    text: str
    significance: float
    said_at: datetime | None = None


def chars_of(utterances: Iterable[Utterance]) -> int:
    """Return the number of characters of all utterances."""
    return sum(len(utterance.text) for utterance in utterances)


@dataclass(frozen=True, slots=True)
class Sentence:
    """A sentence of an utterance, and how well it represents the others."""

    utterance: Utterance
    text: str
    weight: float


def sentences_of(text: str) -> list[str]:
    """Split a text into sentences of at most 300 characters, without the days between them."""
    sentences = (sentence.strip() for sentence in sentences_in(text) if not is_day(sentence))
    return [sentence[:MAX_SENTENCE_CHARS] for sentence in sentences]


def with_full_stop(text: str) -> str:
    """Return a sentence that ends with punctuation, so that another can follow it."""
    return text if text.endswith((*QUESTION_MARKS, *".!…。！۔")) else f"{text}."


def top_sentences(utterances: Sequence[Utterance], limit: int) -> list[Sentence]:
    """Return the highest-scoring sentences, in the order of speaking.

    Except questions, and what the companion says without telling anything.
    """
    names = {utterance.name for utterance in utterances}
    sentences = [
        (utterance, text, frozenset(terms_of(text)))
        for utterance in utterances
        for text in sentences_of(utterance.text)
        if utterance.by_user or is_informative(text, _known_of(utterance, names))
    ]
    frequency: Counter[str] = Counter()
    # What is said over and over counts once, or who goes round in circles would tell it all.
    for said in {terms - _FILLER_WORDS for _, _, terms in sentences}:
        frequency.update(said)
    scored = []
    for position, (utterance, text, all_terms) in enumerate(sentences):
        terms = all_terms - _FILLER_WORDS
        if _asks(text) or len(words_of(text)) < _MIN_WORDS or not terms:
            continue
        shared = sum(frequency[term] - 1 for term in terms) / (len(terms) + 2)
        significance = max(utterance.significance, significance_by_words(text))
        weight = significance + 0.15 * min(4.0, shared) + 0.1 * utterance.by_user
        scored.append((weight, position, Sentence(utterance, text, weight)))
    chosen: list[tuple[int, Sentence, frozenset[str]]] = []
    for _, position, sentence in sorted(scored, key=lambda entry: (-entry[0], entry[1])):
        if len(chosen) == limit:
            break
        terms = sentences[position][2]
        if not any(_alike(terms, others) for _, _, others in chosen):
            chosen.append((position, sentence, terms))
    return [sentence for _, sentence, _ in sorted(chosen, key=lambda entry: entry[0])]


def _known_of(utterance: Utterance, names: Iterable[str]) -> Iterator[str]:
    """Yield what a reply does not tell: the names of the speakers, and what day it is."""
    yield from names
    if utterance.said_at is not None:
        yield date_in(ENGLISH, utterance.said_at)


def references_of(texts: Iterable[str], names: Sequence[str]) -> tuple[str, ...]:
    """Return the names, places and works in texts, normalised, most frequent first.

    Args:
        names: of the speakers, which are left out.
    """
    counts: Counter[str] = Counter()
    own = {" ".join(words_of(name)) for name in names}
    for text in texts:
        for match in _REFERENCE.finditer(text):
            name = " ".join(words_of(match[1] or match[2] or match[0]))
            if name and name not in _NOT_REFERENCES and name not in own and len(name) > 2:
                counts[name] += 1
    return tuple(name for name, _ in counts.most_common(20))


def topics_of(utterances: Sequence[Utterance], limit: int) -> tuple[str, ...]:
    """Return the main topics: words in the position of nouns, those of several turns first."""
    turns: Counter[str] = Counter()
    nouns: Counter[str] = Counter()
    surface: dict[str, Counter[str]] = {}
    for utterance in utterances:
        words = words_of(utterance.text)
        seen = set()
        for previous, word in zip(["", *words], words, strict=False):
            terms = terms_of(word)
            if len(terms) != 1 or len(word) < _MIN_TOPIC_CHARS or terms[0] in _FILLER_WORDS:
                continue
            term = terms[0]
            surface.setdefault(term, Counter())[word] += 1
            nouns[term] += previous in _DETERMINERS_AND_PREPOSITIONS
            seen.add(term)
        turns.update(seen)
    weight = {
        term: count * (0.2 + nouns[term] / sum(surface[term].values()))
        for term, count in turns.items()
        if nouns[term]
    }
    best = sorted(weight, key=lambda term: (-weight[term], term))[:limit]
    return tuple(surface[term].most_common(1)[0][0] for term in best)


def questions_of(utterances: Sequence[Utterance], limit: int) -> tuple[str, ...]:
    """Return the user's questions that have a subject, the most specific first."""
    questions = [
        (len(set(terms_of(text)) - _FILLER_WORDS), text)
        for utterance in utterances
        if utterance.by_user
        for text in sentences_of(utterance.text)
        if _asks(text) and len(words_of(text)) >= _MIN_WORDS
    ]
    return tuple(
        text for weight, text in sorted(questions, key=lambda entry: -entry[0])[:limit] if weight
    )


def conclusions_of(utterances: Sequence[Utterance], limit: int) -> tuple[str, ...]:
    """Return what was decided or found out, the most significant first."""
    conclusions = [
        (utterance.significance, text)
        for utterance in utterances
        for text in sentences_of(utterance.text)
        if _DECIDED.search(text) and not _asks(text) and len(terms_of(text)) > 2
    ]
    return tuple(text for _, text in sorted(conclusions, key=lambda entry: -entry[0])[:limit])


def left_open(utterances: Sequence[Utterance], limit: int) -> list[Sentence]:
    """Return what the user asked without an answer, or postponed."""
    unsettled = []
    for index, utterance in enumerate(utterances):
        reply = utterances[index + 1] if index + 1 < len(utterances) else None
        unanswered = (
            reply is not None and not reply.by_user and _NO_ANSWER.search(reply.text) is not None
        )
        for text in sentences_of(utterance.text):
            if not utterance.by_user or len(words_of(text)) < _MIN_WORDS:
                continue
            if _LEFT_OPEN.search(text) or (unanswered and _asks(text)):
                unsettled.append(Sentence(utterance, text, utterance.significance))
    return unsettled[:limit]


def _asks(sentence: str) -> bool:
    """Return whether a sentence asks something, with or without a question mark."""
    return sentence.endswith(QUESTION_MARKS) or is_pure_question(sentence)


def settles(text: str, question: str) -> bool:
    """Return whether `text` says that a question was answered."""
    return bool(_SETTLED.search(text)) and is_about(text, question)


def is_about(text: str, question: str) -> bool:
    """Return whether `text` has half of the words that tell what a question is about."""
    subject = set(terms_of(question)) - _FILLER_WORDS
    shared = subject & set(terms_of(text))
    return len(shared) >= max(1, len(subject) // 2)


def _alike(first: frozenset[str], second: frozenset[str]) -> bool:
    """Return whether two sentences, as their terms, tell nearly the same."""
    return len(first & second) > 0.7 * min(len(first), len(second))
