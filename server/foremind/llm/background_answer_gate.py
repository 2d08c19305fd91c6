"""The gate of every background answer: what it says must come from what the model was given. Pure.

Small models fill a form with "N/A", with its own examples, with names that nobody said, or with one
line again and again. None of that is known of anybody, and none of it may replace what is.
"""

import re
from collections.abc import Iterable, Sequence
from functools import cached_property

from foremind.text.languages.detection import language_of
from foremind.text.languages.language_files import LANGUAGES, UNSPACED
from foremind.text.sentences import sentences_in
from foremind.text.tokenization import UNSPACED_RUN, terms_of, words_of

#: The least share of a text's terms that what was given has, too. A paragraph says it in words of
#: its own more than a note does, a value hardly.
_NOTE_SHARE, _PARAGRAPH_SHARE, _VALUE_SHARE = 1 / 3, 1 / 4, 1 / 2
_KEPT_SHARE = 1 / 8  # of a former text's terms that its next version has at least
_MIN_ECHO_WORDS = 3  # in a row that are the form's, not the speakers'
_MIN_LOOP_WORDS = 12  # of a text that may be said to go round in circles
_MIN_TITLE_CAPITALS = 3  # and more than half of its words are capitalised
_BEGINNING_CHARS = 4  # by which forms of a word are recognised that its stem tells apart
_QUOTED = re.compile(r'"(?:[^"\\]|\\.)*"')
_TOKEN = re.compile(r"[^\W_]+(?:['’-][^\W_]+)*|[.!?…:;\n\"“„»(\[*。！？؟]")

_EMPTY_WORDS = frozenset().union(*(language.empty_words for language in LANGUAGES.values()))
# The same where words are not separated; single characters are parts of words there.
_EMPTY_RUNS = sorted(
    {
        word
        for language in LANGUAGES.values()
        if language.script in UNSPACED
        for word in language.empty_words
    },
    key=len,
    reverse=True,
)
_EMPTY_RUN = re.compile("|".join(map(re.escape, _EMPTY_RUNS)))
_LONG_EMPTY_RUN = re.compile("|".join(re.escape(word) for word in _EMPTY_RUNS if len(word) > 1))
_DAYS = frozenset(
    name.lower()
    for language in LANGUAGES.values()
    if language.prompt is not None
    for name in (*language.prompt.weekdays, *language.prompt.months)
)


def is_empty_answer(text: str) -> bool:
    """Return whether a text says in any language that there is nothing: "N/A", "not mentioned"."""
    words = words_of(_EMPTY_RUN.sub(" ", text.lower()) if UNSPACED_RUN.search(text) else text)
    return all(word in _EMPTY_WORDS for word in words)


def goes_round(text: str) -> bool:
    """Return whether a text mostly repeats itself."""
    words = words_of(text)
    units = words if len(words) >= _MIN_LOOP_WORDS else [*"".join(words)]
    if len(units) < _MIN_LOOP_WORDS:
        return False
    runs = list(zip(units, units[1:], units[2:], strict=False))
    return 2 * len(set(runs)) < len(runs)


def without_repetitions(texts: Iterable[str]) -> list[str]:
    """Return texts without those that say the same as one before, and what goes round."""
    by_words: dict[str, str] = {}
    for text in texts:
        if not goes_round(text):
            by_words.setdefault(" ".join(words_of(text)), text)
    return list(by_words.values())


class AnswerGate:
    """Admits of an answer what its prompt gives reason for.

    Args:
        form: the instructions of the prompt, with its examples.
        given: the texts that the prompt quotes.
        speakers: names that say nothing by themselves.
    """

    def __init__(self, form: str, given: Iterable[str], speakers: Iterable[str] = ()) -> None:
        self._form, self._given = form, list(given)
        self._speakers = {word for name in speakers for word in words_of(name)}

    def with_given(self, texts: Iterable[str]) -> "AnswerGate":
        """Return the same gate with more given texts."""
        return AnswerGate(self._form, [*self._given, *texts], self._speakers)

    def shares(self, text: str, other: str) -> bool:
        """Return whether two texts have a term in common."""
        return not self._terms(text).isdisjoint(self._terms(other))

    def admits(self, text: str) -> bool:
        """Return whether a note or an item of a list speaks of what was given."""
        return (
            not goes_round(text)
            and self._is_sound(text)
            and self._share(self._terms(text)) >= _NOTE_SHARE
        )

    def admits_value(self, text: str) -> bool:
        """Return whether a value of few words, such as a name, was given: most of its words."""
        words = self._content_words(text)
        terms = self._terms_of_words(words, text) or set(words)
        if not terms or self._share(terms) < _VALUE_SHARE or not self._is_sound(text):
            return False
        return not any(word in self._form_words for word in words if not self._is_given(word, text))

    def touches(self, text: str) -> bool:
        """Return whether what was given has a term of a text, which may be a title."""
        return self._share(self._terms(text)) > 0 and not self._echoes_form(text)

    def paragraph(self, text: str, former: str = "") -> str:
        """Return a text without its unsound sentences; empty if the whole is to be refused.

        Args:
            former: what the text replaces; it may not lose all of it.
        """
        if goes_round(text):
            return ""
        sentences = sentences_in(text)
        kept = "".join(sentence for sentence in sentences if self._is_sound(sentence)).strip()
        return (
            "" if self._share(self._terms(kept)) < _PARAGRAPH_SHARE else self._holding(kept, former)
        )

    def lines(self, lines: Sequence[str], former: str = "") -> list[str]:
        """Return the sound lines of an answer; none if the whole is to be refused.

        That is also so if most lines only repeat others.
        """
        kept = [line for line in without_repetitions(lines) if self.paragraph(line)]
        if 2 * len(kept) < len(lines) or not self._holding("\n".join(kept), former):
            return []
        return kept

    def _holding(self, text: str, former: str) -> str:
        terms = self._terms(former)
        kept = self._terms(text)
        return text if not terms or len(terms & kept) >= _KEPT_SHARE * len(terms) else ""

    def _is_sound(self, text: str) -> bool:
        """Return whether a text says something, no form's words and no name that was not given."""
        return not (is_empty_answer(text) or self._echoes_form(text) or self._invents_name(text))

    def _echoes_form(self, text: str) -> bool:
        """Return whether a text is part of the instructions, or an example that was not said."""
        words = words_of(text)
        phrase = f" {' '.join(words)} "
        if len(words) < _MIN_ECHO_WORDS or phrase in self._given_phrase:
            return False
        instructions, examples = self._form_phrases
        is_example = phrase in examples and self._share(self._terms(text)) < _VALUE_SHARE
        return is_example or phrase in instructions

    def _invents_name(self, text: str) -> bool:
        """Return whether a text has a capitalised word that neither speaker said.

        Where capitals tell nothing, at the beginning of a sentence, in German and in titles, only
        one of the form's examples is meant.
        """
        tokens = _TOKEN.findall(text)
        capitals = sum(token[0].isupper() for token in tokens)
        is_title = capitals >= _MIN_TITLE_CAPITALS and 2 * capitals > len(tokens)
        is_plain = is_title or language_of(text) == "de"
        previous = "."
        for token in tokens:
            inside = previous[0].isalnum() and not is_plain
            previous = token
            word = token.lower()
            if not token[0].isupper() or word in _DAYS or word in self._speakers:
                continue
            if (inside or token in self._form_names) and not self._is_given(token, text):
                return True
        return False

    def _is_given(self, word: str, text: str) -> bool:
        parts = words_of(word)
        terms = set(terms_of(word, language_of(text)))
        known = set(parts) & self._given_words or any(part in _EMPTY_WORDS for part in parts)
        return not terms or bool(known) or self._share(terms) > 0

    def _share(self, terms: set[str]) -> float:
        """Return the share of terms that were given, in any form of the word."""
        given = self._given_terms
        found = sum(term in given or term[:_BEGINNING_CHARS] in given for term in terms)
        return found / len(terms) if terms else 0.0

    def _terms(self, text: str) -> set[str]:
        """Return the terms of a text that can be compared: no numbers, days and speakers."""
        words = self._content_words(text)
        return {term for term in self._terms_of_words(words, text) if not term.isdecimal()}

    def _content_words(self, text: str) -> list[str]:
        if UNSPACED_RUN.search(text):
            text = _LONG_EMPTY_RUN.sub(" ", text.lower())
        return [
            word
            for word in words_of(text)
            if word not in _EMPTY_WORDS and word not in _DAYS and word not in self._speakers
        ]

    def _terms_of_words(self, words: Sequence[str], text: str) -> set[str]:
        return set(terms_of(" ".join(words), language_of(text)))

    @cached_property
    def _given_terms(self) -> frozenset[str]:
        """The terms of what was given, and the beginnings of its words."""
        terms = {term for text in self._given for term in terms_of(text)}
        beginnings = {term[:_BEGINNING_CHARS] for term in terms | self._given_words}
        return frozenset(terms | beginnings | self._given_words)

    @cached_property
    def _given_words(self) -> frozenset[str]:
        return frozenset(word for text in self._given for word in words_of(text))

    @cached_property
    def _given_phrase(self) -> str:
        return f" {' | '.join(' '.join(words_of(text)) for text in self._given)} "

    @cached_property
    def _form_phrases(self) -> tuple[str, str]:
        """The words of the form without what it quotes, and those of its quotations."""
        parts = (_QUOTED.split(self._form), _QUOTED.findall(self._form))
        instructions, examples = (
            f" {' | '.join(' '.join(words_of(text)) for text in texts)} " for texts in parts
        )
        return instructions, examples

    @cached_property
    def _form_words(self) -> frozenset[str]:
        return frozenset(words_of(self._form))

    @cached_property
    def _form_names(self) -> frozenset[str]:
        return frozenset(token for token in _TOKEN.findall(self._form) if token[0].isupper())
