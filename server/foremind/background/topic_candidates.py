"""Finds recurring topics of a relationship, with everything that is known of each. Pure.

A topic may have several names. "Violin lessons" is filed under "violin" where that is a topic too,
so that everything known of it is in one paragraph.
"""

from collections import defaultdict
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, tzinfo
from itertools import combinations

from foremind.background.extractive_summary import Utterance, top_sentences, topics_of
from foremind.domain.record import Record, is_manual, of_layer
from foremind.text.languages.language_files import LANGUAGES
from foremind.text.languages.prompt_words import day_in, heading_in, record_words
from foremind.text.tokenization import terms_key, terms_of

_MIN_OCCURRENCES = 3  # sessions or days with the topic, unless there is a conclusion on it
_MAX_NOTES = 8  # notes and pinned texts that a paragraph is made of, the newest
_MAX_EPISODES = 12  # covered by one request
_MAX_TOPICS_FROM_NOTES = 10  # topics found in notes and pinned texts alone
_MAX_KEY_WORDS = 6  # of a topic that may be filed under another
_SENTENCES = 4
_MAX_READ_BY_RULES = 40  # episodes that rules read for a paragraph, and sentences they rank
_MAX_CHARS = 2000  # of a paragraph by rules
_MAX_LINE_CHARS = 700  # of one source line of a paragraph
_NO_TOPICS = frozenset({"", *(terms_key(record_words(code).a_chat) for code in LANGUAGES)})


@dataclass(frozen=True, slots=True)
class TopicCandidate:
    """A topic and everything that is known of it, oldest first.

    `names`: what it is called, the usual name first. `topic`: its present paragraph. `merged`:
    paragraphs of the same topic that this one replaces. `notes`: notes and pinned texts.
    """

    key: str
    names: tuple[str, ...]
    topic: Record | None
    merged: tuple[Record, ...]
    episodes: tuple[Record, ...]
    notes: tuple[Record, ...]

    @property
    def occurrences(self) -> int:
        """The number of sessions in which it came up, plus other days on which it was noted."""
        episode_days = {episode.created_at.date() for episode in self.episodes}
        note_days = {note.said_at.date() for note in self.notes}
        sessions = {episode.session_id for episode in self.episodes}
        return len(sessions) + len(note_days - episode_days)

    @property
    def qualifies(self) -> bool:
        """Whether it came up often enough for a paragraph, or there is a conclusion on it."""
        return self.occurrences >= _MIN_OCCURRENCES or any(
            self.is_about(conclusion, episode)
            for episode in self.episodes
            for conclusion in episode.details.conclusions
        )

    def is_about(self, text: str, episode: Record) -> bool:
        """Return whether a conclusion or question of an episode is on this topic.

        It names the topic, or none of the episode's ("We'll sell it"), and this is the first one.
        """
        words = set(terms_of(text))
        keys = {self.key, *map(terms_key, self.names)}
        if any(words.issuperset(key.split()) for key in keys):
            return True
        topics = [terms_key(name) for name in episode.details.topics]
        return (
            topics[:1] != []
            and topics[0] in keys
            and not any(words.issuperset(topic.split()) for topic in topics)
        )

    @property
    def is_stale(self) -> bool:
        """Whether its paragraph must be written or rewritten."""
        topic = self.topic
        if topic is None or is_manual(topic.made_by):
            return topic is None
        return bool(self.merged) or any(
            (source.layer == "episodes" and source.id > topic.details.upto)
            or source.updated_at > topic.updated_at
            for source in (*self.episodes, *self.notes)
        )

    def next_batch(self) -> tuple[list[Record], int]:
        """Return the next episodes to cover, and the id of the last one covered after that."""
        last_covered = 0 if self.topic is None or self.merged else self.topic.details.upto
        written_at = None if self.topic is None else self.topic.updated_at
        corrected = [
            episode
            for episode in self.episodes
            if episode.id <= last_covered
            and written_at is not None
            and episode.updated_at > written_at
        ]
        new = [episode for episode in self.episodes if episode.id > last_covered][:_MAX_EPISODES]
        return [*corrected[-_MAX_EPISODES:], *new], new[-1].id if new else last_covered


def topic_candidates_in(
    records: Sequence[Record], *, mentions: bool = False
) -> list[TopicCandidate]:
    """Return the topics of a relationship's records, the most frequent first.

    Args:
        mentions: also count topics that an episode only mentions, and take names in it as topics.
            Rules find few topics, where a model says of each episode what it is about.
    """
    topics = of_layer(records, "topics")
    episodes = of_layer(records, "episodes")
    notes = [record for record in records if record.layer in ("scratchpad", "vault")]
    names: defaultdict[str, list[str]] = defaultdict(list)
    episodes_by_key: defaultdict[str, list[Record]] = defaultdict(list)
    for episode in episodes:
        for key, name in {terms_key(name): name for name in episode.details.topics}.items():
            names[key].append(name)
            episodes_by_key[key].append(episode)
    known: dict[str, Record] = {}
    for topic in topics:
        known.setdefault(terms_key(topic.title), topic)
    for name in _topics_in_notes(notes):
        names[terms_key(name)].append(name)
    if mentions:
        for name in dict.fromkeys(ref for episode in episodes for ref in episode.refs):
            names[terms_key(name)].append(name)
        _add_mentions(episodes_by_key, names.keys() | known.keys(), episodes)
    keys = (names.keys() | known.keys()) - _NO_TOPICS
    sessions = {key: len({episode.session_id for episode in episodes_by_key[key]}) for key in keys}
    groups: defaultdict[str, list[str]] = defaultdict(list)
    for key in keys:
        groups[canonical_topic(key, keys, known, sessions)].append(key)
    note_terms = {note.id: frozenset(terms_of(f"{note.title} {note.content}")) for note in notes}
    candidates = [
        _candidate(
            [key, *sorted(set(group) - {key})], known, names, episodes_by_key, notes, note_terms
        )
        for key, group in groups.items()
    ]
    return sorted(candidates, key=lambda candidate: (-candidate.occurrences, candidate.key))


def _add_mentions(
    episodes_by_key: defaultdict[str, list[Record]],
    keys: Collection[str],
    episodes: Sequence[Record],
) -> None:
    """Add to each topic the episodes that contain all of its words."""
    with_term: defaultdict[str, set[int]] = defaultdict(set)
    for index, episode in enumerate(episodes):
        for term in set(terms_of(f"{episode.content} {' '.join(episode.refs)}")):
            with_term[term].add(index)
    for key in keys:
        indexes = set.intersection(*(with_term.get(word, set()) for word in key.split() or [""]))
        episodes_by_key[key] += [episodes[index] for index in sorted(indexes)]


def canonical_topic(
    key: str, keys: Collection[str], known: Collection[str], sessions: Mapping[str, int]
) -> str:
    """Return the topic that another is filed under: one with a proper subset of its words.

    Of several, the one with the fewest words is preferred, then one that has a paragraph, then the
    most frequent one. Without any, the topic itself is returned.
    """
    words = sorted(key.split())
    if len(words) > _MAX_KEY_WORDS:
        return key
    for count in range(1, len(words)):
        broader = [subset for subset in map(" ".join, combinations(words, count)) if subset in keys]
        if broader:
            return min(
                broader,
                key=lambda subset: (subset not in known, -sessions.get(subset, 0), subset),
            )
    return key


def _topics_in_notes(notes: Sequence[Record]) -> list[str]:
    """Return the titles of notes, and the words that several of them are about."""
    texts = [Utterance(note.id, "", True, note.content, 0.0) for note in notes]
    titles = [note.title for note in notes if note.title]
    return [*titles, *topics_of(texts, _MAX_TOPICS_FROM_NOTES)]


def _candidate(
    group: Sequence[str],
    known: Mapping[str, Record],
    names: Mapping[str, Sequence[str]],
    episodes_by_key: Mapping[str, Sequence[Record]],
    notes: Sequence[Record],
    note_terms: Mapping[int, frozenset[str]],
) -> TopicCandidate:
    """Return the candidate of a group of keys, of which the first is canonical."""
    canonical = group[0]
    words = set(canonical.split())
    topic = known.get(canonical)
    titles = [] if topic is None else [topic.title]
    titles += [name for key in group for name in reversed(names.get(key, ()))]
    episodes = {episode.id: episode for key in group for episode in episodes_by_key.get(key, ())}
    return TopicCandidate(
        key=canonical,
        names=tuple(dict.fromkeys(titles)),
        topic=topic,
        merged=tuple(
            known[key] for key in group if key != canonical and key in known
            if not is_manual(known[key].made_by)
        ),
        episodes=tuple(episodes[id_] for id_ in sorted(episodes)),
        notes=tuple(note for note in notes if words <= note_terms[note.id])[-_MAX_NOTES:],
    )  # fmt: skip


def source_lines(
    episodes: Sequence[Record],
    notes: Sequence[Record],
    question_statuses: Mapping[str, str],
    zone: tzinfo | None,
) -> list[tuple[datetime, str]]:
    """Return the dated lines that a paragraph is made of, without questions that are not open.

    Args:
        question_statuses: by the text of the question.
    """
    lines = [
        (episode.created_at, _episode_line(episode, question_statuses)) for episode in episodes
    ]
    lines += [(note.said_at, f"Noted: {note.content}") for note in notes]
    lines.sort(key=lambda line: line[0])
    return [(at.astimezone(zone), text[:_MAX_LINE_CHARS]) for at, text in lines]


def _episode_line(episode: Record, question_statuses: Mapping[str, str]) -> str:
    details = episode.details
    still_open = [
        question
        for question in details.open_questions
        if question_statuses.get(question, "open") == "open"
    ]
    parts = [
        episode.content,
        *(f"Concluded: {conclusion}" for conclusion in details.conclusions),
        *(f"Left open: {question}" for question in still_open),
    ]
    if episode.refs:
        parts.append(f"Named: {', '.join(episode.refs)}")
    return " ".join(parts)


def paragraph_by_rules(
    candidate: TopicCandidate,
    question_statuses: Mapping[str, str],
    zone: tzinfo | None,
    language: str,
) -> str:
    """Return the highest-scoring sentences on a topic by day, then where it stands.

    Args:
        question_statuses: by the text of the question.
        language: of the days and labels.
    """
    on_day = record_words(language).on_day
    words = set(candidate.key.split())
    sources = [*candidate.episodes[-_MAX_READ_BY_RULES:], *candidate.notes]
    texts = [
        Utterance(source.id, "", True, source.content, 0.3, source.said_at.astimezone(zone))
        for source in sorted(sources, key=lambda source: source.said_at)
    ]
    ranked = top_sentences(texts, _MAX_READ_BY_RULES)
    about = [sentence for sentence in ranked if words & set(terms_of(sentence.text))] or ranked
    best = sorted(about, key=lambda sentence: -sentence.weight)[:_SENTENCES]
    paragraph: list[str] = []
    for sentence in about:
        if sentence in best:
            at = sentence.utterance.said_at
            day = on_day.format(date=day_in(language, at)) if at is not None else ""
            paragraph += [*([day] if day not in paragraph else []), sentence.text]
    written = "\n".join(paragraph)
    for label, text in _latest_results(candidate, question_statuses):
        if text not in written:
            paragraph.append(f"{heading_in(language, label)}: {text}")
    return "\n".join(paragraph)[:_MAX_CHARS] or sources[-1].content


def _latest_results(
    candidate: TopicCandidate, question_statuses: Mapping[str, str]
) -> Iterator[tuple[str, str]]:
    """Yield the last conclusion and the last open question on a topic, each with its label."""
    conclusions = [
        conclusion
        for episode in candidate.episodes
        for conclusion in episode.details.conclusions
        if candidate.is_about(conclusion, episode)
    ]
    still_open = [
        question
        for episode in candidate.episodes
        for question in episode.details.open_questions
        if question_statuses.get(question, "open") == "open"
        and candidate.is_about(question, episode)
    ]
    for label, texts in (("settled", conclusions), ("left open", still_open)):
        if texts:
            yield label, texts[-1]
