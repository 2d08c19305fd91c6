"""What a relationship comes back to, and what is known of each. Pure.

A topic may be called in several ways. "Violin lessons" belongs to "violin" where there is that, so
that what is known of one thing stands in one place.
"""

from collections import defaultdict
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, tzinfo
from itertools import combinations

from foremind.background.extractive_summary import Utterance, key_of, top_sentences, topics_of
from foremind.domain.record import Record, by_hand, of_layer
from foremind.llm.prompt.record_format import day_in_words
from foremind.text.tokenization import terms_of

_MEETINGS = 3  # conversations or days in which a topic must be met, unless it was concluded on
_MOST_BESIDE = 8  # notes and saved texts that a paragraph is made of, the newest
_MOST_EPISODES = 12  # that one request tells of
_FROM_NOTES = 10  # topics that notes and saved texts alone may lead to
_MOST_WORDS = 6  # of a topic that may belong to another
_SENTENCES = 4
_MOST_READ = 40  # episodes that rules read for a paragraph, and sentences that they weigh
_MOST_CHARS = 2000  # of a paragraph by rules
_MOST_TOLD = 700  # characters of one line of what a paragraph is made of
_NO_TOPICS = frozenset({"", key_of("a chat")})


@dataclass(frozen=True, slots=True)
class TopicCandidate:
    """A topic and all that is known of it, oldest first.

    `names` are what it is called, the usual one first. `topic` is its present paragraph; `joined`
    are paragraphs of what is the same, which this one takes the place of. `beside` are notes and
    what was saved on purpose.
    """

    key: str
    names: tuple[str, ...]
    topic: Record | None
    joined: tuple[Record, ...]
    episodes: tuple[Record, ...]
    beside: tuple[Record, ...]

    @property
    def meetings(self) -> int:
        """In how many conversations it came up, or on how many other days it was noted."""
        days = {episode.created_at.date() for episode in self.episodes}
        noted = {each.created_at.date() for each in self.beside}
        return len({episode.session_id for episode in self.episodes}) + len(noted - days)

    @property
    def deserves_a_paragraph(self) -> bool:
        """Tell whether it came up often enough, or something was concluded on it."""
        wanted = set(self.key.split())
        return self.meetings >= _MEETINGS or any(
            wanted <= set(terms_of(conclusion))
            for episode in self.episodes
            for conclusion in episode.details.conclusions
        )

    @property
    def has_news(self) -> bool:
        """Tell whether its paragraph is to be written, or written again."""
        topic = self.topic
        if topic is None or by_hand(topic.made_by):
            return topic is None
        return bool(self.joined) or any(
            (each.layer == "episodes" and each.id > topic.details.upto)
            or each.updated_at > topic.updated_at
            for each in (*self.episodes, *self.beside)
        )

    def portion(self) -> tuple[list[Record], int]:
        """Return the episodes to be told of next, and the last that the paragraph then tells of."""
        upto = 0 if self.topic is None or self.joined else self.topic.details.upto
        told_at = None if self.topic is None else self.topic.updated_at
        corrected = [
            episode
            for episode in self.episodes
            if episode.id <= upto and told_at is not None and episode.updated_at > told_at
        ]
        new = [episode for episode in self.episodes if episode.id > upto][:_MOST_EPISODES]
        return [*corrected[-_MOST_EPISODES:], *new], new[-1].id if new else upto


def subjects_of(records: Sequence[Record], *, mentions: bool = False) -> list[TopicCandidate]:
    """Return what the records of a relationship speak of, the most frequent first.

    With `mentions` an episode is also of what it only speaks of, and names in it may be topics:
    rules find few topics, where a model says of each episode what it is about.
    """
    topics = of_layer(records, "topics")
    episodes = of_layer(records, "episodes")
    noted = [record for record in records if record.layer in ("scratchpad", "vault")]
    called: defaultdict[str, list[str]] = defaultdict(list)
    told: defaultdict[str, list[Record]] = defaultdict(list)
    for episode in episodes:
        for key, name in {key_of(name): name for name in episode.details.topics}.items():
            called[key].append(name)
            told[key].append(episode)
    known: dict[str, Record] = {}
    for topic in topics:
        known.setdefault(key_of(topic.title), topic)
    for name in _named_in_notes(noted):
        called[key_of(name)].append(name)
    if mentions:
        for name in dict.fromkeys(ref for episode in episodes for ref in episode.refs):
            called[key_of(name)].append(name)
        _add_mentions(told, called.keys() | known.keys(), episodes)
    keys = (called.keys() | known.keys()) - _NO_TOPICS
    met = {key: len({each.session_id for each in told[key]}) for key in keys}
    of_key: defaultdict[str, list[str]] = defaultdict(list)
    for key in keys:
        of_key[folded(key, keys, known, met)].append(key)
    terms = {each.id: frozenset(terms_of(f"{each.title} {each.content}")) for each in noted}
    subjects = [
        _subject(key, [key, *sorted(set(same) - {key})], known, called, told, noted, terms)
        for key, same in of_key.items()
    ]
    return sorted(subjects, key=lambda each: (-each.meetings, each.key))


def _add_mentions(
    told: defaultdict[str, list[Record]], keys: Collection[str], episodes: Sequence[Record]
) -> None:
    """Add to each topic the episodes in which all of its words stand."""
    with_term: defaultdict[str, set[int]] = defaultdict(set)
    for place, episode in enumerate(episodes):
        for term in set(terms_of(f"{episode.content} {' '.join(episode.refs)}")):
            with_term[term].add(place)
    for key in keys:
        places = set.intersection(*(with_term.get(each, set()) for each in key.split() or [""]))
        told[key] += [episodes[place] for place in sorted(places)]


def folded(key: str, keys: Collection[str], known: Collection[str], met: Mapping[str, int]) -> str:
    """Return the topic that another belongs to: one whose words it has all and more, else itself.

    Of several, one with the fewest words, that has a paragraph, that was met most often.
    """
    own = sorted(key.split())
    if len(own) > _MOST_WORDS:
        return key
    for count in range(1, len(own)):
        wider = [each for each in map(" ".join, combinations(own, count)) if each in keys]
        if wider:
            return min(wider, key=lambda each: (each not in known, -met.get(each, 0), each))
    return key


def _named_in_notes(noted: Sequence[Record]) -> list[str]:
    """Return titles, and the words that several notes turn about."""
    said = [Utterance(each.id, "", True, each.content, 0.0) for each in noted]
    titles = [each.title for each in noted if each.title]
    return [*titles, *topics_of(said, _FROM_NOTES, nouns_only=True)]


def _subject(
    key: str,
    same: Sequence[str],
    known: Mapping[str, Record],
    called: Mapping[str, Sequence[str]],
    told: Mapping[str, Sequence[Record]],
    noted: Sequence[Record],
    terms: Mapping[int, frozenset[str]],
) -> TopicCandidate:
    wanted = set(key.split())
    topic = known.get(key)
    names = [] if topic is None else [topic.title]
    names += [name for each in same for name in reversed(called.get(each, ()))]
    episodes = {each.id: each for one in same for each in told.get(one, ())}
    return TopicCandidate(
        key=key,
        names=tuple(dict.fromkeys(names)),
        topic=topic,
        joined=tuple(
            known[each] for each in same if each != key and each in known
            if not by_hand(known[each].made_by)
        ),
        episodes=tuple(episodes[id_] for id_ in sorted(episodes)),
        beside=tuple(each for each in noted if wanted <= terms[each.id])[-_MOST_BESIDE:],
    )  # fmt: skip


def lines_of(
    episodes: Sequence[Record],
    beside: Sequence[Record],
    questions: Mapping[str, str],
    zone: tzinfo | None,
) -> list[tuple[datetime, str]]:
    """Return what a paragraph is made of as dated lines; `questions` says which are settled."""
    lines = [(episode.created_at, _told(episode, questions)) for episode in episodes]
    lines += [(each.updated_at, f"Noted: {each.content}") for each in beside]
    lines.sort(key=lambda each: each[0])
    return [(at.astimezone(zone), text[:_MOST_TOLD]) for at, text in lines]


def _told(episode: Record, questions: Mapping[str, str]) -> str:
    details = episode.details
    still = [
        open_question
        for open_question in details.open_questions
        if questions.get(open_question) != "settled"
    ]
    parts = [
        episode.content,
        *(f"Concluded: {conclusion}" for conclusion in details.conclusions),
        *(f"Left open: {each}" for each in still),
    ]
    if episode.refs:
        parts.append(f"Named: {', '.join(episode.refs)}")
    return " ".join(parts)


def by_rules(subject: TopicCandidate, questions: Mapping[str, str], zone: tzinfo | None) -> str:
    """Return the weightiest sentences on a topic under their days, and how it stands."""
    wanted = set(subject.key.split())
    lines = [*subject.episodes[-_MOST_READ:], *subject.beside]
    said = [
        Utterance(line.id, "", True, line.content, 0.3, line.created_at.astimezone(zone))
        for line in sorted(lines, key=lambda each: each.created_at)
    ]
    chosen = top_sentences(said, _MOST_READ)
    about = [each for each in chosen if wanted & set(terms_of(each.text))] or chosen
    best = sorted(about, key=lambda each: -each.weight)[:_SENTENCES]
    paragraph: list[str] = []
    for each in about:
        if each in best:
            at = each.utterance.said_at
            day = f"On {day_in_words(at)}:" if at is not None else ""
            paragraph += [*([day] if day not in paragraph else []), each.text]
    written = "\n".join(paragraph)
    for label, text in _ends(subject, wanted, questions):
        if text not in written:
            paragraph.append(f"{label}: {text}")
    return "\n".join(paragraph)[:_MOST_CHARS] or lines[-1].content


def _ends(
    subject: TopicCandidate, wanted: set[str], questions: Mapping[str, str]
) -> Iterator[tuple[str, str]]:
    """Return the last conclusion and the last open question on a topic."""
    for label, texts in (
        ("Settled", [text for episode in subject.episodes for text in episode.details.conclusions]),
        (
            "Left open",
            [
                text
                for episode in subject.episodes
                for text in episode.details.open_questions
                if questions.get(text) != "settled"
            ],
        ),
    ):
        about = [text for text in texts if wanted & set(terms_of(text))]
        if about:
            yield label, about[-1]
