"""What can be made of talk without a language model: its weightiest sentences, by rule. Pure.

Sentences are chosen by significance and centrality: a sentence that matters, and whose words the
others use too, stands for them (the idea of LexRank, Erkan and Radev 2004, arXiv 1109.2128, with
shared words in place of a random walk).
"""

import re
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime

from foremind.domain.companion import SignificanceRules
from foremind.memory.scoring import judge
from foremind.text.tokenization import terms_of, words_of

_SENTENCE = re.compile(r"[^.!?\n]+[.!?]*")
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
_NO_REFERENCE = frozenset(
    """i i'm i've i'll i'd monday tuesday wednesday thursday friday saturday sunday january february
    march april may june july august september october november december ok wow oh yes
    no""".split()  # noqa: SIM905
)
# Words that fill conversation and name no topic.
_CHATTER = frozenset(
    terms_of(
        "really great good nice thanks thank time feel feeling love like thing things lot know "
        "think make made making get got getting going want need look looking help keep hope glad "
        "happy sound sounds sure take way day today yesterday tomorrow week month year back see "
        "hear say said tell talk much many always never still even well also something anything "
        "everything someone people one two first last new awesome amazing cool wow hey pretty "
        "definitely recently lately share super try trying start started come came give bit part "
        "kind sort guess mean right yeah long life best better fun bring actually maybe let right "
        "important special enjoy support inspire forget remember excite wonderful favorite"
    )
)
_BEFORE_A_NOUN = frozenset(
    """a an the my our your his her their this that these those of about some any for with
    from""".split()  # noqa: SIM905
)
_MOST_SENTENCE_CHARS = 300
_LEAST_WORDS = 4


@dataclass(frozen=True, slots=True)
class Utterance:
    """Something that was said: by whom, in which turn, how significant the turn was.

    `said_at` is in the user's time zone, where it is known.
    """

    turn_id: int
    name: str
    by_user: bool
    text: str
    significance: float
    said_at: datetime | None = None


def chars_of(said: Iterable[Utterance]) -> int:
    """Return how much was said."""
    return sum(len(each.text) for each in said)


@dataclass(frozen=True, slots=True)
class Sentence:
    """A sentence of an utterance, and how well it stands for the rest."""

    utterance: Utterance
    text: str
    weight: float


def sentences_of(text: str) -> list[str]:
    """Split a text into sentences of at most 300 characters."""
    return [each.strip()[:_MOST_SENTENCE_CHARS] for each in _SENTENCE.findall(text) if each.strip()]


def ended(text: str) -> str:
    """Return a sentence with a full stop where it has no end: another is to follow it."""
    return text if text.endswith((".", "!", "?", "…")) else f"{text}."


def top_sentences(said: Sequence[Utterance], limit: int) -> list[Sentence]:
    """Return the weightiest sentences, in the order in which they were said; no questions."""
    split = [(each, text) for each in said for text in sentences_of(each.text)]
    spread: Counter[str] = Counter()
    for _, text in split:
        spread.update(set(terms_of(text)) - _CHATTER)
    weighed = []
    for position, (utterance, text) in enumerate(split):
        terms = set(terms_of(text)) - _CHATTER
        if text.endswith("?") or len(words_of(text)) < _LEAST_WORDS or not terms:
            continue
        shared = sum(spread[term] - 1 for term in terms) / (len(terms) + 2)
        matters = max(utterance.significance, judge(text, None, SignificanceRules()).score)
        weight = matters + 0.15 * min(4.0, shared) + 0.1 * utterance.by_user
        weighed.append((weight, position, Sentence(utterance, text, weight)))
    chosen: list[tuple[int, Sentence]] = []
    for _, position, sentence in sorted(weighed, key=lambda each: (-each[0], each[1])):
        if len(chosen) == limit:
            break
        if not any(_alike(sentence.text, other.text) for _, other in chosen):
            chosen.append((position, sentence))
    return [sentence for _, sentence in sorted(chosen, key=lambda each: each[0])]


def references_of(texts: Iterable[str], names: Sequence[str]) -> tuple[str, ...]:
    """Return the names, places and works in texts, folded, the most frequent first, but `names`."""
    found: Counter[str] = Counter()
    own = {" ".join(words_of(name)) for name in names}
    for text in texts:
        for match in _REFERENCE.finditer(text):
            folded = " ".join(words_of(match[1] or match[2] or match[0]))
            if folded and folded not in _NO_REFERENCE and folded not in own and len(folded) > 2:
                found[folded] += 1
    return tuple(each for each, _ in found.most_common(20))


def topics_of(
    said: Sequence[Utterance], limit: int, *, nouns_only: bool = False
) -> tuple[str, ...]:
    """Return the words that the talk turns about: said in several turns, where nouns stand."""
    turns: Counter[str] = Counter()
    nouns: Counter[str] = Counter()
    surface: dict[str, Counter[str]] = {}
    for utterance in said:
        words = words_of(utterance.text)
        seen = set()
        for before, word in zip(["", *words], words, strict=False):
            terms = terms_of(word)
            if len(terms) != 1 or len(word) < 4 or terms[0] in _CHATTER:
                continue
            term = terms[0]
            surface.setdefault(term, Counter())[word] += 1
            nouns[term] += before in _BEFORE_A_NOUN
            seen.add(term)
        turns.update(seen)
    weight = {
        term: count * (0.2 + nouns[term] / sum(surface[term].values()))
        for term, count in turns.items()
        if nouns[term] or not nouns_only
    }
    best = sorted(weight, key=lambda term: (-weight[term], term))[:limit]
    return tuple(surface[term].most_common(1)[0][0] for term in best)


def questions_of(said: Sequence[Utterance], limit: int) -> tuple[str, ...]:
    """Return the user's questions that say what they are about."""
    asked = [
        (len(set(terms_of(text)) - _CHATTER), text)
        for each in said
        if each.by_user
        for text in sentences_of(each.text)
        if text.endswith("?") and len(words_of(text)) >= _LEAST_WORDS
    ]
    return tuple(
        text for weight, text in sorted(asked, key=lambda each: -each[0])[:limit] if weight
    )


def conclusions_of(said: Sequence[Utterance], limit: int) -> tuple[str, ...]:
    """Return what was decided or found out."""
    found = [
        (each.significance, text)
        for each in said
        for text in sentences_of(each.text)
        if _DECIDED.search(text) and not text.endswith("?") and len(terms_of(text)) > 2
    ]
    return tuple(text for _, text in sorted(found, key=lambda each: -each[0])[:limit])


def left_open(said: Sequence[Utterance], limit: int) -> list[Sentence]:
    """Return what was asked and not answered, or put off."""
    found = []
    for index, each in enumerate(said):
        reply = said[index + 1] if index + 1 < len(said) else None
        unanswered = (
            reply is not None and not reply.by_user and _NO_ANSWER.search(reply.text) is not None
        )
        for text in sentences_of(each.text):
            if not each.by_user or len(words_of(text)) < _LEAST_WORDS:
                continue
            if _LEFT_OPEN.search(text) or (text.endswith("?") and unanswered):
                found.append(Sentence(each, text, each.significance))
    return found[:limit]


def settles(text: str, question: str) -> bool:
    """Return whether `text` says that a question found its answer."""
    about = set(terms_of(question)) - _CHATTER
    shared = about & set(terms_of(text))
    return bool(_SETTLED.search(text)) and len(shared) >= max(1, len(about) // 2)


def key_of(topic: str) -> str:
    """Return what tells topics apart: "The Gardens" and "garden" are one."""
    return " ".join(sorted(set(terms_of(topic)))) or topic.casefold().strip()


def _alike(one: str, other: str) -> bool:
    first, second = set(terms_of(one)), set(terms_of(other))
    return len(first & second) > 0.7 * min(len(first), len(second))
