"""What an utterance does, by the words of its language: asks, states something, or neither. Pure.

For languages besides English, for which there are no patterns and no trained classifiers. Where the
language of a text is unsure, it is the `fallback` of `language_of`.
"""

import re

from foremind.text.languages.detection import language_of
from foremind.text.languages.language_files import ENGLISH, LANGUAGES, UNSPACED, Language
from foremind.text.sentences import QUESTION_MARKS

_MAX_CHARS = 16_000  # the beginning of a longer text is judged
_SENTENCE = re.compile(r"[^.!?。！？؟۔…\n]+[.!?。！？؟۔…]*")
_WORD = re.compile(r"[^\W_]+(?:['’-][^\W_]+)*")
_CHUNK = re.compile(r"[^\s,、，;；]+")
_INVERTED_MARK = "¿"
# "Nothing", "whenever": a question word with one of these states something.
_INDEFINITE = "(?!も|でも|か|都|也|도|든)"
_QUESTION_WORDS = {
    code: re.compile(f"(?:{'|'.join(map(re.escape, language.question_words))}){_INDEFINITE}")
    for code, language in LANGUAGES.items()
    if language.script in UNSPACED
}


_GAP = r".{1,200}"  # between words in order; without a bound, each is looked for from each


def _in_order(language: Language) -> re.Pattern[str]:
    """Return a pattern of the words that ask to be told something where they stand in order."""
    gap = _GAP if language.script in UNSPACED else rf"\b{_GAP}\b"
    phrases = [
        gap.join(map(re.escape, words.split("+")))
        for words in language.request_words
        if "+" in words
    ]
    bound = "" if language.script in UNSPACED else r"\b"
    return re.compile(rf"{bound}(?:{'|'.join(sorted(phrases)) or '(?!)'}){bound}")


_REQUESTS_IN_ORDER = {code: _in_order(language) for code, language in LANGUAGES.items()}
_CLAUSE_BREAK = re.compile(r"[,;:、，]")
# A statement has this many words, two of them no stop words, or letters where words are not
# separated; fewer of either if it is about the speaker.
_MIN_WORDS, _MIN_OWN_WORDS = 3, 2
_MIN_LETTERS, _MIN_OWN_LETTERS = 6, 4


def asks(text: str, fallback: str = ENGLISH) -> bool:
    """Return whether a sentence of `text` is a question."""
    language = _language(text, fallback)
    return any(_asks(sentence, language) for sentence in _sentences(text))


def only_asks(text: str, fallback: str = ENGLISH) -> bool:
    """Return whether every sentence of `text` is a question, besides greetings and the like."""
    language = _language(text, fallback)
    sentences = [sentence for sentence in _sentences(text) if not _is_filler(sentence, language)]
    return bool(sentences) and all(_asks(sentence, language) for sentence in sentences)


def requests(text: str, fallback: str = ENGLISH) -> bool:
    """Return whether a sentence of `text` asks to be told or shown something: "zeig die Karte"."""
    language = _language(text, fallback)
    return any(_requests(sentence, language) for sentence in _sentences(text))


def states(text: str, fallback: str = ENGLISH) -> bool:
    """Return whether a sentence of `text` states something: no question, greeting or filler."""
    language = _language(text, fallback)
    return any(_states(sentence, language) for sentence in _sentences(text))


def is_about_speaker(text: str, fallback: str = ENGLISH) -> bool:
    """Return whether `text` has a word for its speaker: "I", "my"."""
    language = _language(text, fallback)
    return any(_mentions_speaker(sentence, language) for sentence in _sentences(text))


def has_content(text: str, fallback: str = ENGLISH) -> bool:
    """Return whether `text` says or asks anything: it is more than greetings and fillers."""
    language = _language(text, fallback)
    return any(
        _asks(sentence, language) or not _is_filler(sentence, language)
        for sentence in _sentences(text)
    )


def _language(text: str, fallback: str) -> Language:
    return LANGUAGES[language_of(text, fallback)]


def _sentences(text: str) -> list[str]:
    found = (match.strip() for match in _SENTENCE.findall(text[:_MAX_CHARS]))
    return [sentence for sentence in found if _WORD.search(sentence)]


def _words(sentence: str) -> list[str]:
    return [word.replace("’", "'") for word in _WORD.findall(sentence.lower())]


def _asks(sentence: str, language: Language) -> bool:
    if sentence.endswith(QUESTION_MARKS) or _INVERTED_MARK in sentence:
        return True
    if language.script in UNSPACED:
        return _asks_unspaced(sentence, language)
    if sentence.endswith((".", "!")) or _CLAUSE_BREAK.search(sentence):
        return False
    content = [word for word in _words(sentence) if word not in language.fillers]
    first = content[0] if content else ""
    elided = first.partition("'")[0]
    return first in language.question_words or (
        elided != first and elided in language.question_words
    )


def _asks_unspaced(sentence: str, language: Language) -> bool:
    words = _WORD.findall(sentence.lower())
    if words[-1].endswith(language.question_endings):
        return True
    if sentence.endswith(("。", "！", ".", "!")) or _CLAUSE_BREAK.search(sentence):
        return False
    return _QUESTION_WORDS[language.code].search(sentence) is not None


def _requests(sentence: str, language: Language) -> bool:
    if _REQUESTS_IN_ORDER[language.code].search(sentence.lower().replace("’", "'")):
        return True
    if language.script in UNSPACED:
        words, letters = tuple(language.request_words), sentence.strip(" .!?。！")
        return bool(words) and (letters.startswith(words) or letters.endswith(words))
    content = [word for word in _words(sentence) if word not in language.fillers]
    asking = {part for word in (content[:1] + content[-1:]) for part in (word, word.split("-")[0])}
    return len(content) > 1 and not language.request_words.isdisjoint(asking)


def _is_filler(sentence: str, language: Language) -> bool:
    if language.script in UNSPACED:
        parts = [_WORD.findall(chunk.lower()) for chunk in _CHUNK.findall(sentence)]
        return all("".join(part) in language.fillers for part in parts if part)
    return language.fillers.union(language.stop_words).issuperset(_words(sentence))


def _states(sentence: str, language: Language) -> bool:
    if _is_filler(sentence, language) or _asks(sentence, language):
        return False
    own = _mentions_speaker(sentence, language)
    if language.script in UNSPACED:
        letters = sum(map(str.isalpha, sentence))
        return letters >= (_MIN_OWN_LETTERS if own else _MIN_LETTERS)
    words = _words(sentence)
    content = [word for word in words if word not in language.stop_words | language.fillers]
    return len(words) >= _MIN_OWN_WORDS if own else len(words) >= _MIN_WORDS and len(content) > 1


def _mentions_speaker(sentence: str, language: Language) -> bool:
    if language.script in UNSPACED:
        return any(word in sentence for word in language.first_person)
    return any(
        part in language.first_person
        for word in _words(sentence)
        for part in (word, *word.split("'"))
    )


_GREETING = r"^\W*(?:(?i:hey|hi|hello|so|and|but|well|now|then|ok|okay|oh|um+)\b\W*){0,2}"
# A text is a question if it begins with a question word or an inversion ("did she", "was the",
# "has Ines"), or asks whether somebody knows ("do you know who has it", "can you say where it is").
_QUESTION_START = re.compile(
    rf"{_GREETING}(?:(?i:(?:do|did|does|can|could|would) (?:you|anyone|anybody|someone|somebody) "
    r"(?:happen to |still |even )?(?:know|say|tell|guess|recall)(?: me)? (?:about )?)?"
    r"(?i:(?:who|what|where|when|why|how)(?:s|[’']\w+)?|whom|whose|which)|"
    r"(?i:did|does|do|is|are|was|were|has|have|had|will|would) "
    r"(?:(?i:i|we|he|she|they|my|our|his|her|their)\b|[A-Z]\w+)|"
    r"(?i:did|was|were|has|had) (?i:the|an?|any|some|every)\w*) +\S"
)
_SENTENCE_BREAK = re.compile(r"[.!?…\n]\s*\S")
_PRONOUN = r"(?:i|you|he|she|it|we|they|my|your|our|his|her|their)\b"
# A question without a question mark: "where do I live", not "what I want is a boat".
_PRONOUN_INVERSION = re.compile(
    rf"{_GREETING}(?i:(?:who|what|which|where|when|why|how)(?: \w+)? )?"
    rf"(?i:(?:do|does|did|is|are|was|were|can|could|will|would|has|have|had) {_PRONOUN})"
)
# "Can't you remember my violin", "should I call her"; not "don't you dare", nor "isn't it lovely, I
# got a dog", nor "don't we all".
_OTHER_INVERSION = re.compile(
    rf"{_GREETING}(?i:(?:who|what|which|where|when|why|how)(?: \w+)? )?(?i:(?:(?:(?:do|does|did|is|"
    r"are|was|were|ca|could|wo|would|should|has|have|had)n[’']?t|can ?not|am|must) "
    rf"{_PRONOUN}|should (?:i|we|my|our)\b|(?:may|might) i\b))"
    r"(?!(?i: (?:dare|worry|forget|ever|start|mind|all|both|just|believe|know it)\b))[^,;:]*$"
)
# "You remember my violin, right", "any idea where my keys are".
_TAG_QUESTION = re.compile(
    rf"{_GREETING}(?i:(?:you|u)(?: do| still)? (?:know|remember|recall) "
    r"(?:my|our|his|her|their|the|who|what|where|when|which)\b[^,;:]*,? "
    r"(?:right|yes|no|yeah|do(?:n[’']?t)? (?:you|u))|"
    r"(?:(?:have|do) you (?:have |got )?|got )?any idea (?:who|what|where|when|why|how|which)\b"
    r"[^,;:]*)\W*$"
)
# The same without a pronoun: "what was the name of my dog again", "where does Tomas live".
_NOUN_INVERSION = re.compile(
    rf"{_GREETING}(?:(?i:(?:what|who|where|when|how)(?:[’']?s| is| are| was| were|[’']re)) "
    r"(?i:the|my|your|our|his|her|their|this|that|these|those)\b|"
    r"(?i:what|where|when|why|how|whom?) (?i:did|does) (?!it\b))[^,]*$"
)
_INDIRECT_QUESTION = re.compile(
    rf"{_GREETING}(?i:please |(?:can|could|will|would) you (?:please )?)?"
    r"(?i:tell me|remind me|i(?: was|[’']?m|)? wonder(?:ing)?)(?i: again| once more)? "
    r"(?i:what|who|whom|whose|where|which)\b"
)
# A request to be told what was said: "tell me the name of my violin", "say her name again", "I
# forgot what my violin is called". Not "tell me the truth", nor "I forgot my keys in Porto".
_REQUEST = re.compile(
    rf"{_GREETING}(?i:please |(?:can|could|will|would) you (?:please )?)?(?:"
    r"(?i:tell me(?: again| once more)? (?:about )?(?:the (?!truth\b)|(?:my|our|his|her|their) ))|"
    r"(?i:(?:say|repeat|spell) (?:the|my|our|his|her|their) "
    r"(?=.* (?:again|once more|please)\W{0,3}$))|"
    r"(?i:i(?:[’']ve| have)? (?:forg[eo]t(?:ten)?|can(?:no|[’']?)t (?:remember|recall)|"
    r"do(?:n[’']?t| not) (?:remember|recall)) "
    r"(?:(?:what|who|whom|whose|where|which) (?:my|our|his|her|their|the)\b|the name of\b|"
    r"(?:my|our|his|her|their) (?:\S+ ){1,3}name\b)))[^,;:]*"
    r"(?i:, (?:what|who|where) (?:was|is|were|are) (?:it|that|she|he|they)\b[^,;:]*)?$"
)
_QUESTION_FORMS = (
    _PRONOUN_INVERSION, _OTHER_INVERSION, _NOUN_INVERSION, _TAG_QUESTION, _INDIRECT_QUESTION,
    _REQUEST,
)  # fmt: skip
# Statements in the form of a question: "Did you know that I moved to Porto?"
_STATEMENT_AS_QUESTION = re.compile(
    rf"{_GREETING}(?i:did(?:n[’']?t)? (?:you|u) know|(?:can|could|would) you believe|"
    r"(?:did(?:n[’']?t)? i|have(?:n[’']?t)? i)(?: ever| already)? "
    r"(?:tell|told|mention(?:ed)?|say|said)(?: to)?+(?: you)?+)"
    r"(?i:,? that)?+ (?!(?i:what|who|whom|whose|where|when|which|why|how|if|whether|about)\b)"
    r"(?:\S+\s+){2}\S"
)
# What is asked of the companion is kept: "Can you remind me to call Ines", "could you call me Sam".
_ASKS_TO_DO = re.compile(
    rf"{_GREETING}(?i:(?:can|could|will|would)(?:n[’']?t)? you (?:please |just )?"
    r"(?:remind me (?:to|that|of|about|when|on|in|at)|call me|keep (?:your|the|it|in mind)|stop|"
    r"use|note|save|write down|remember (?:that|to))\b)"
)
# Set phrases that ask for nothing; all are short.
_MAX_PHRASE_CHARS = 100
_TURN_OF_PHRASE = re.compile(
    rf"{_GREETING}(?:what an? (?!\w+ (?:is|was|are|were|do|does|did|has|had)\b).*|"
    r"how (?!many\b|much\b|long\b|old\b|far\b|often\b|big\b|tall\b)\w+[^?]*!.*|"
    r"(?:what(?:[’']?s| is)|how(?:[’']?s| is| was|[’']re| are)|what are|what have) "
    r"(?:up|new|going on|happening|life|things|it|everything|everybody|everyone|you|"
    r"your (?:day|morning|evening|night|week|weekend))"
    r"(?: (?:up to|been up to|been doing|doing|been|going|today|tonight|now|all|feeling|so far|"
    r"treating you|with you|there|then|these days|since we last talked))*|"
    r"how do you do|who (?:knows|cares)|why not|how so|how come|(?:do )?you know what i mean|"
    r"what about you|how about you|"
    r"what do you (?:think|mean|say)|what happened then|(?:what|how|when) ever|what goes around .*)"
    r"\W*(?:mate|man|buddy|friend|dude|bro)?\W*$",
    re.IGNORECASE,
)


def is_question(text: str, fallback: str = ENGLISH) -> bool:
    """Return whether `text` begins like a question and is not just a turn of phrase.

    In other languages than English, whether a sentence of it is a question. `fallback` is the
    language where it is unsure.
    """
    if language_of(text, fallback) != ENGLISH:
        return asks(text, fallback)
    return _QUESTION_START.match(text) is not None and not is_turn_of_phrase(text)


def is_pure_question(text: str, fallback: str = ENGLISH) -> bool:
    """Return whether `text` is a single question that states nothing.

    In other languages than English it may be several questions. `fallback` is the language where
    it is unsure.
    """
    text = text.strip()
    if language_of(text, fallback) != ENGLISH:
        return only_asks(text, fallback)
    if (
        _SENTENCE_BREAK.search(text)
        or _STATEMENT_AS_QUESTION.match(text)
        or _ASKS_TO_DO.match(text)
    ):
        return False
    if any(form.match(text) for form in _QUESTION_FORMS):
        return True
    return text.endswith("?") and (is_question(text, fallback) or "," not in text)


def is_turn_of_phrase(text: str) -> bool:
    """Return whether `text` looks like a question but asks for nothing ("how are you")."""
    return len(text) <= _MAX_PHRASE_CHARS and _TURN_OF_PHRASE.match(text) is not None
