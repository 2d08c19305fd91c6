"""Which texts mention some words: whole words, however they are inflected or spelled. Pure."""

import re
import unicodedata
from collections.abc import Iterable, Iterator, Mapping, Sequence
from difflib import get_close_matches
from itertools import chain

from foremind.text.folding import composed
from foremind.text.languages.detection import language_of
from foremind.text.languages.language_files import ENGLISH, LANGUAGES, UNSPACED, Language
from foremind.text.tokenization import (
    SUFFIXES,
    UNSPACED_RUN,
    is_stop_run,
    stem_of,
    written_words_of,
)

_MAX_NEAR = 3  # spellings that are named
_MIN_NEAR_CHARS = 3
_QUOTED = re.compile(
    "\"([^\"]+)\"|[“„]([^“”]+)[“”]|«([^»]+)»|»([^«]+)«|「([^」]+)」|『([^』]+)』|(?<!\\w)'([^']+)'(?!\\w)"
)
# Digits with what people put between those of one number.
_NUMBER = re.compile(r"\+?\d(?:[\s()./'-]{0,3}\d)*")
_MIN_NUMBER_DIGITS = 7  # fewer are a word
_SURE_DIGITS = 9  # so many tell a number apart without its country code, though nothing marks that
_MAX_CODE_DIGITS = 3

_LETTER = r"[^\W\d_]"
# "I.B.M." is "IBM", "Ph.D." "PhD", and "R & D" is "R&D".
_INITIALS = re.compile(
    rf"(?<![\w.])(?:{_LETTER}(?:\.{_LETTER})+|[A-Z][a-z]?(?:\.[A-Z][a-z]?)+)(?!\w)\.?"
)
_SPACED_AND = re.compile(rf"(?<!\w)({_LETTER}) & (?={_LETTER}\b)")
# Words that a symbol makes others of: "C" is neither "C++" nor "C#", and "R" is not in "R&D".
_OTHER_WORD = re.compile(
    rf"(?<![\w.])\.(?:[A-Z]{{2,}}|net)\b|\b{_LETTER}\w*(?:\+\+\d*|\+|#)(?![\w+#])|"
    rf"\b(?:{_LETTER}&{_LETTER}+|{_LETTER}+&{_LETTER})\b"
)
# What is found only as it is written: also "Node.js", "AC/DC", "P!nk", "10:30", "50%", "$5".
_WITH_SYMBOLS = re.compile(
    rf"{_OTHER_WORD.pattern}|(?<![\w.])\.{_LETTER}\w+|[$€£¥#]\d+(?:[.,]\d+)*|"
    r"(?<!\d)\d+(?:[.,:]\d+)*[%°$€£¥+]|(?<!\d)\d+(?:[,:]\d+)+|(?<!\w)\w+(?:(?:[&/.@!$*_]|\+{1,2})\w+)+"
)
# Letters and digits, which people group as they like: "SW1A 1AA", "DE89 3704 0044 0532 0130 00".
_CODE = re.compile(
    r"(?<![\w.@&/+#'-])(?=[A-Za-z-]*\d)(?=[\d-]*[A-Za-z])(?!\d+s\b)(?=(?:[\w -]*?\d){2})"
    r"[A-Za-z\d]+(?:-[A-Za-z\d]+)*(?: (?:[A-Z]{1,4}|[A-Za-z]*\d[A-Za-z\d]*)\b)*"
    r"(?![\w-]|[.@&/+#]\w)"
)
_HYPHENATED = re.compile(rf"(?<!\w){_LETTER}+(?:[-\u2010\u2011]{_LETTER}+)+")
_WITH_HYPHENS = re.compile(rf"{_HYPHENATED.pattern}(?:'s\b)?")
# A number of three or more digits in groups ("1,000", "902 10"), or a code of letters and digits.
_WITH_COMMAS = re.compile(r"(?<![\d.,])\d{1,3}(?:,\d{3})+(?![.,]?\d)")
_THOUSANDS = re.compile(r"(?<![\d.,])\d{1,3}(?:[ .']\d{3})+(?![.,]?\d)|(?<!\d)\d{3} \d{2}(?!\d)")
_IN_GROUPS = re.compile(
    rf"{_THOUSANDS.pattern}|\b(?:[A-Z]{{1,3}} \d{{2,}}|\d{{3,}} [A-Z]{{1,3}})\b"
)
# What a name begins with, before the rest of it: "O Brien" is "O'Brien", "Mc Donald" "McDonald".
_NAME_PREFIX = re.compile(rf"((?<!\w)(?:o|mc)|^\W*[dl])\s(?={_LETTER}{{2}})", re.IGNORECASE)
_PREFIXED = re.compile(rf"(?<!\w)(?:o|mc|d|l)\s{_LETTER}{{2,}}", re.IGNORECASE)
# Plurals whose stems are not those of their singulars. "Lives" and "leaves" are verbs, too.
_SINGULARS = dict(
    zip(
        *(
            words.split()
            for words in (
                "mice children men women feet teeth geese oxen knives wives wolves shelves loaves "
                "calves thieves elves scarves halves hooves gases lenses atlases canvases quizzes",
                "mouse child man woman foot tooth goose ox knife wife wolf shelf loaf "
                "calf thief elf scarf half hoof gas lens atlas canvas quiz",
            )
        ),
        strict=True,
    )
)
_PLURAL_IN_USES = re.compile(r"\w*[^\Waeou]uses")  # "buses", "viruses"
_DECADE = re.compile(r"\d{4}s")

# Letters that are no others with a mark, as people write them without it.
_PLAIN_LETTERS = str.maketrans(
    {"ø": "o", "đ": "d", "ð": "d", "ł": "l", "ħ": "h", "ı": "i", "æ": "ae", "œ": "oe", "þ": "th"}
)
_SPELLED_OUT = str.maketrans({"ä": "ae", "ö": "oe", "ü": "ue", "å": "aa", "ø": "oe"})
# Marks that are left out in writing. Those of other scripts tell words apart.
_MARKS = re.compile(r"[\u0300-\u036f\u0591-\u05c7\u0640\u064b-\u065f\u0670]")
_ELISIONS = frozenset(elision for language in LANGUAGES.values() for elision in language.elisions)
_SHORTENED_VERBS = frozenset({"m", "d", "re", "ve", "ll"})  # after an apostrophe, in English
_CONTRACTED = _SHORTENED_VERBS | {"s", "t"}
_ALWAYS_CAPITAL = frozenset({"I", "Im", "Ive", "Ill", "Id"})
# Without an apostrophe they are no contractions, and "ill" and "id" are none beside other words.
_NO_CONTRACTIONS = frozenset({"hell", "shed", "shell", "wed"})
_CONTRACTIONS_ALONE = frozenset({"ill", "id"})
_MODALS = frozenset({"may", "might", "must", "shall"})  # search takes them for months and nouns
_MIN_GUESSES = 2  # function words that show what language a request is in
_ENGLISH_TOO = frozenset({"soy"})


def _one_of(words: Iterable[str]) -> str:
    """Return a pattern of any of some words, the longest first."""
    return "|".join(map(re.escape, sorted(words, key=len, reverse=True)))


# "my" before what is meant, in scripts whose words are not separated.
_POSSESSIVE = re.compile(
    "(?:{})[の的]".format(
        _one_of(
            word
            for language in LANGUAGES.values()
            if language.script in UNSPACED
            for word in language.stop_words | language.first_person
        )
    )
)
_PARTICLES = "はがをにでとのもへやか"  # hiragana that follow a word
# What may stand before and after a word, by the script of its first and last character.
_BEFORE = {
    r"[ァ-ヺー]": r"(?<![ァ-ヺー])",
    r"[ぁ-ゖ]": rf"(?:(?<![ぁ-ゖ])|(?<=[{_PARTICLES}]))",
    r"[가-힣]": r"(?<![가-힣])",
    r"[\u0e01-\u0e4e]": r"(?<![เแโใไ])",
}
_AFTER = {
    r"[ァ-ヺー]": r"(?![ァ-ヺー])",
    r"[ぁ-ゖ]": rf"(?:(?![ぁ-ゖ])|(?=[{_PARTICLES}だじなよねさちくまっ]))",
    r"[가-힣]": rf"(?=(?:들|씨|님)?(?:{_one_of(SUFFIXES)}){{0,3}}(?![가-힣]))",
    r"[\u0e01-\u0e4e]": r"(?![\u0e30-\u0e3a\u0e45\u0e47-\u0e4e])",
}

#: The forms of a word: it is in "=", its stems in "~". Words with a common form are the same.
Forms = frozenset[str]
#: Words in a row. Each is the forms that it may have, or is written just like that.
Phrase = Sequence[Forms | str]


class Mention:
    """What texts have to contain all of to be about it.

    Args:
        phrases: of each of these, one alternative, with all of its phrases.
        runs: patterns of words in scripts that do not separate words.
        numbers: with at least seven digits each.
        stemmers: by which inflected words are compared.
    """

    def __init__(
        self,
        phrases: Sequence[Sequence[Sequence[Phrase]]],
        runs: Sequence[re.Pattern[str]],
        numbers: Sequence[str],
        stemmers: Iterable[str],
    ) -> None:
        self._phrases = phrases
        self._runs = runs
        self._numbers = numbers
        self._stemmers = frozenset(stemmers)
        self._forms: dict[str, Forms] = {}  # of the words of texts, which repeat

    def found_in(self, text: str) -> bool:
        """Return whether a text contains all of it."""
        if self._runs or self._numbers:
            whole = _in_one_spelling(text)
            if not all(run.search(whole) for run in self._runs):
                return False
            if not all(_has_number(whole, number) for number in self._numbers):
                return False
        if not self._phrases:
            return True
        words = _bare_words(text)
        return all(
            any(all(self._has_phrase(words, phrase) for phrase in phrases) for phrases in either)
            for either in self._phrases
        )

    def near_spellings(self, texts: Iterable[str]) -> list[str]:
        """Return words of texts that are spelled like some of it that none of them contains."""
        written: dict[str, str] = {}
        found: set[str] = set()
        for text in texts:
            for word in _bare_words(text):
                found |= self._forms_of(word)
                if len(word) >= _MIN_NEAR_CHARS:
                    written.setdefault(_folded(word.lower()), word)
        near: list[str] = []
        for either in self._phrases:
            for part in chain.from_iterable(chain.from_iterable(either)):
                forms = _forms(part.lower(), ()) if isinstance(part, str) else part
                if not forms & found:
                    whole = max((form for form in forms if form[0] == "="), default="")[1:]
                    near += get_close_matches(whole, written, _MAX_NEAR, 0.7)
                    stems = tuple(f[1:] for f in forms if f[0] == "~" and len(f) > _MIN_NEAR_CHARS)
                    near += [word for word in written if word.startswith(stems)]
        return [written[word] for word in dict.fromkeys(near)][:_MAX_NEAR]

    def _has_phrase(self, words: Sequence[str], phrase: Phrase) -> bool:
        return any(
            all(map(self._is, words[start : start + len(phrase)], phrase))
            for start in range(len(words) - len(phrase) + 1)
        )

    def _is(self, word: str, part: Forms | str) -> bool:
        if isinstance(part, str):
            return word == part or word.startswith(f"{part}'")
        return not part.isdisjoint(self._forms_of(word))

    def _forms_of(self, word: str) -> Forms:
        forms = self._forms.get(word)
        if forms is None:
            forms = self._forms[word] = _forms(_lower(word), self._stemmers)
        return forms


def parse_mention(about: str, language: str | None) -> Mention | None:
    """Return what texts about some words contain; None if no word tells anything apart.

    Stop words are left out, but a stop word that is capitalised, as names are, or stands in
    quotation marks counts as it is written. Words in quotation marks stand in a row, and are not
    inflected.

    Args:
        language: the player's, if it is known.
    """
    about = _in_one_spelling(about)
    known = language if language and language in LANGUAGES else ENGLISH
    guess = LANGUAGES[language_of(about, known)]
    languages = {ENGLISH: LANGUAGES[ENGLISH], known: LANGUAGES[known], guess.code: guess}.values()
    stemmers = {spoken.stemmer for spoken in languages if spoken.stemmer}
    stops = _stop_words(written_words_of(about), known, guess)
    mine = frozenset[str]().union(*(spoken.first_person for spoken in languages))
    phrases: list[Sequence[Sequence[Phrase]]] = []
    runs: list[re.Pattern[str]] = []
    numbers: list[str] = []

    def take(part: str, *, quoted: bool) -> None:
        if quoted and (_WITH_SYMBOLS.search(part) or _CODE.search(part)):
            runs.append(_as_written(part))
            return
        runs.extend(map(_however_grouped, _CODE.findall(part)))
        part = _CODE.sub(" ", part)
        for match in _NUMBER.finditer(part):
            digits = _digits(match.group())
            if len(digits) >= _MIN_NUMBER_DIGITS:
                numbers.append(match.group())
        part = _NUMBER.sub(_unless_long, part)
        runs.extend(_as_written(match.group()) for match in _WITH_SYMBOLS.finditer(part))
        part = _WITH_SYMBOLS.sub(" ", part)
        for run in UNSPACED_RUN.findall(part):
            if quoted or not is_stop_run(run):
                runs.append(_run_pattern(run, quoted=quoted))
        if not quoted:
            part = _NAME_PREFIX.sub(
                lambda found: found[0] if _is_stop(found[1].strip(), stops) else found[1], part
            )
            phrases.extend(_together(part, stemmers))
            part = _IN_GROUPS.sub(" ", _WITH_HYPHENS.sub(" ", part))
        words = written_words_of(UNSPACED_RUN.sub(" ", part))
        if quoted and words:
            phrases.append([[_quoted(words, stops)]])
        elif words:
            alone = not (runs or numbers or phrases)
            found = _unquoted(words, stops, mine, stemmers, alone=alone)
            phrases.extend([[phrase]] for phrase in found)

    for match in _QUOTED.finditer(about):
        take(next(filter(None, match.groups())), quoted=True)
    take(_QUOTED.sub(" ", about), quoted=False)
    return Mention(phrases, runs, numbers, stemmers) if phrases or runs or numbers else None


def _stop_words(words: Sequence[str], known: str, guess: Language) -> frozenset[str]:
    """Return what does not count in a request, in lower case without apostrophes.

    One word is no sign of another language in the script of English: "sea" is none of Spanish. Then
    only "my" and the like count as that language's.
    """
    stops = LANGUAGES[ENGLISH].function_words | LANGUAGES[known].function_words | _MODALS
    stops -= _NO_CONTRACTIONS if len(words) == 1 else _NO_CONTRACTIONS | _CONTRACTIONS_ALONE
    if guess.code in (ENGLISH, known):
        return stops
    signs = sum(_lower(word) in guess.function_words for word in words)
    if guess.script == "latin" and signs < _MIN_GUESSES:
        return stops | (guess.first_person - _ENGLISH_TOO)
    return stops | guess.function_words


def _together(part: str, stemmers: Iterable[str]) -> Iterator[Sequence[Sequence[Phrase]]]:
    """Yield what is written together, with hyphens or in groups, or else in one word."""
    for pattern, in_a_row in ((_WITH_HYPHENS, True), (_IN_GROUPS, False)):
        for match in pattern.finditer(part):
            words = written_words_of(match.group())
            forms = [_asked_forms(word, stemmers) for word in words]
            apart = [forms] if in_a_row else [[form] for form in forms]
            yield [apart, [[_asked_forms("".join(words), stemmers)]]]


def _unquoted(
    words: Sequence[str],
    stop_words: frozenset[str],
    mine: frozenset[str],
    stemmers: Iterable[str],
    *,
    alone: bool,
) -> list[Phrase]:
    """Return the phrases of which each has to occur.

    A stop word that is capitalised is the beginning of a name, which other capitals continue ("Will
    Smith"). The capital of the first word may only be that of a beginning: if no other follows, it
    counts in any case; and the player's own "My" does not count.

    Args:
        mine: "my" and the like.
        alone: whether nothing else tells texts apart.
    """
    stops = [_is_stop(word, stop_words) for word in words]
    alone = alone and all(stops)
    phrases: list[Phrase] = []
    place = 0
    while place < len(words):
        word, first, place = words[place], place, place + 1
        if not stops[first]:
            phrases.append([_asked_forms(word, stemmers)])
        elif word[0].isupper() and word.replace("'", "") not in _ALWAYS_CAPITAL:
            beginning = not first and not alone and not (word.isupper() and len(word) > 1)
            if beginning and _bare(word) in mine:
                continue
            while place < len(words) and words[place][0].isupper():
                place += 1
            name = words[first:place]
            as_written = all(stops[first:place]) and (not beginning or len(name) > 1)
            phrases.append(
                [_head(part) if as_written else _forms(_lower(part), ()) for part in name]
            )
    return phrases


def _quoted(words: Sequence[str], stop_words: frozenset[str]) -> Phrase:
    """Return words as a phrase; stop words alone are what is written just like that."""
    if all(_is_stop(word, stop_words) for word in words):
        return words
    return [_forms(_lower(word), ()) for word in words]


def _is_stop(word: str, stop_words: frozenset[str]) -> bool:
    return not stop_words.isdisjoint({_bare(word), _lower(_head(word)), _lower(word)})


def _head(word: str) -> str:
    """Return a word without what English contracts with it."""
    head, _, tail = word.rpartition("'")
    return head if head and tail.lower() in _CONTRACTED else word


def _bare(word: str) -> str:
    return _lower(word).replace("'", "")


def _in_one_spelling(text: str) -> str:
    """Return a text in NFKC: no points in initials, commas in thousands, spaces around "&"."""
    text = _INITIALS.sub(lambda match: match.group().replace(".", ""), composed(text))
    text = _WITH_COMMAS.sub(lambda match: match.group().replace(",", ""), text)
    return _SPACED_AND.sub(r"\1&", text)


def _bare_words(text: str) -> list[str]:
    """Return words as they are written, without those that a symbol makes others of.

    Those with hyphens follow once more without them: "Wi-Fi" is "WiFi", too; so do names that are
    written apart: "O Brien".
    """
    text = _OTHER_WORD.sub(" ", _in_one_spelling(text))
    joined = (
        re.sub(r"\W", "", match.group())
        for pattern in (_HYPHENATED, _PREFIXED, _THOUSANDS)
        for match in pattern.finditer(text)
    )
    return [*written_words_of(text), "", *joined]


def _as_written(part: str) -> re.Pattern[str]:
    """Return a pattern of what is written like that, whatever the case, and no part of more."""
    written = r"\s+".join(map(re.escape, part.split()))
    return re.compile(rf"(?<![\w@])(?<!\d[.,:]){written}(?![\w+#]|[.,:@]\d)", re.IGNORECASE)


def _however_grouped(code: str) -> re.Pattern[str]:
    characters = r"[\s.-]?".join(re.sub(r"\W", "", code))
    return re.compile(rf"(?<!\w){characters}(?:'?s)?(?!\w)", re.IGNORECASE)


def _lower(word: str) -> str:
    return word.lower().replace("i\u0307", "i")


def _asked_forms(word: str, stemmers: Iterable[str]) -> Forms:
    """Return the forms of a word of a request: "Xi'an" is not "Xi", as "Ankara'da" is Ankara."""
    word = _lower(word)
    head, _, tail = word.partition("'")
    inflected = head in _ELISIONS or tail in _CONTRACTED or "turkish" in stemmers
    return _forms(word if inflected else word.replace("'", ""), stemmers)


def _forms(word: str, stemmers: Iterable[str]) -> Forms:
    """Return the forms of a word in lower case: with apostrophe or without, and its stems."""
    wholes = {word.replace("'", "")}
    head, apostrophe, tail = word.partition("'")
    if tail in _SHORTENED_VERBS:
        wholes = {head}
    elif apostrophe and head in _ELISIONS:
        wholes.add(tail)
    elif apostrophe and len(head) > 1 and tail != "t":
        wholes.add(head)
    if stemmers:
        wholes |= {singular for whole in wholes if (singular := _singular(whole))}
    spelled = wholes | {whole.translate(_SPELLED_OUT) for whole in wholes}
    folded = {_folded(whole) for whole in spelled}
    stems = {_folded(stem_of(whole, stemmer)) for whole in spelled | folded for stemmer in stemmers}
    return frozenset({f"={whole}" for whole in folded} | {f"~{stem}" for stem in stems})


def _singular(word: str) -> str | None:
    """Return the singular of a plural that has another stem, else None."""
    if _DECADE.fullmatch(word):
        return word[:-1]
    return _SINGULARS.get(word) or (word[:-2] if _PLURAL_IN_USES.fullmatch(word) else None)


def _folded(word: str) -> str:
    """Return a word in lower case without the marks that people leave out."""
    folded = word.casefold()
    if folded.isascii():
        return folded
    letters = unicodedata.normalize("NFKD", folded.translate(_PLAIN_LETTERS))
    return unicodedata.normalize("NFC", _MARKS.sub("", letters))


def _run_pattern(run: str, *, quoted: bool) -> re.Pattern[str]:
    """Return a pattern of a word among characters that no white space separates.

    Unless it is quoted, it may have a particle after it, or "my" before it.
    """
    words = {run}
    if not quoted:
        mine = _POSSESSIVE.match(run)
        word = run[mine.end() :] if mine and mine.end() < len(run) else run
        bare = {word.removesuffix(ending) for ending in SUFFIXES}
        words = {word, *(shorter for shorter in bare if len(shorter) > 1)}
    return re.compile(
        "|".join(
            _beside(_BEFORE, word[0]) + re.escape(word) + _beside(_AFTER, word[-1])
            for word in sorted(words)
        )
    )


def _beside(conditions: Mapping[str, str], character: str) -> str:
    matching = (beside for script, beside in conditions.items() if re.match(script, character))
    return next(matching, "")


def _digits(number: str) -> str:
    return "".join(str(int(digit)) for digit in number if digit.isdecimal())


def _unless_long(number: re.Match[str]) -> str:
    return " " if len(_digits(number.group())) >= _MIN_NUMBER_DIGITS else number.group()


def _has_number(text: str, number: str) -> bool:
    """Return whether a text has a number, however its digits are grouped.

    Either may lack the code of the country, or the zero before the area.
    """
    wanted, marked = _digits(number), number.startswith(("+", "00"))
    for match in _NUMBER.finditer(text):
        groups = [_digits(group) for group in re.findall(r"\d+", match.group())]
        for first in range(len(groups)):
            joined = ""
            for group in groups[first:]:
                joined += group
                if len(joined) > len(wanted) + _MAX_CODE_DIGITS + 2:
                    break
                with_code = not first and match.group().startswith(("+", "00"))
                if _is_number(wanted, joined, marked=marked) or _is_number(
                    joined, wanted, marked=with_code
                ):
                    return True
    return False


def _is_number(longer: str, shorter: str, *, marked: bool) -> bool:
    """Return whether numbers are one, or differ by a code of the country that one begins with."""
    longer, shorter = longer.lstrip("0") or longer, shorter.lstrip("0") or shorter
    if longer == shorter:
        return True
    enough = len(shorter) >= (_MIN_NUMBER_DIGITS if marked else _SURE_DIGITS)
    code = len(longer) - len(shorter)
    return enough and 0 < code <= _MAX_CODE_DIGITS and longer.endswith(shorter)
