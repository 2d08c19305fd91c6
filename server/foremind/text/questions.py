"""Questions, with or without a question mark. Pure."""

import re

from foremind.text.languages import utterances
from foremind.text.languages.detection import language_of
from foremind.text.languages.language_files import ENGLISH

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
        return utterances.asks(text, fallback)
    return _QUESTION_START.match(text) is not None and not is_turn_of_phrase(text)


def is_pure_question(text: str, fallback: str = ENGLISH) -> bool:
    """Return whether `text` is a single question that states nothing.

    In other languages than English it may be several questions. `fallback` is the language where
    it is unsure.
    """
    text = text.strip()
    if language_of(text, fallback) != ENGLISH:
        return utterances.only_asks(text, fallback)
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
