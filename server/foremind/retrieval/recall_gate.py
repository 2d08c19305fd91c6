"""Recall gate: decides when a text needs no memories, such as "haha yeah". Pure."""

import re

# An explicit request for a memory passes whatever the classifier says.
_EXPLICIT_REQUEST = re.compile(
    r"\b(?:remember|remind|recall|forg[eo]t(?:ten)?|told you|tell you|did i|have i|do i|am i|was i|"
    r"what(?:[’']s| is| was| are| were) my|who(?:[’']s| is| was)|when (?:did|is|was|will)|"
    r"where (?:did|is|was|do)|(?:what|how) about (?!you\b)|"
    r"how(?:[’']s| is| are| was| were) (?:the|my|our|her|his|their)|my|last time|"
    r"(?:i|you|we)(?:[’']ve| have| had)? (?:just |already |once )?"
    r"(?:discussed|mentioned|talked about|agreed|suggested|recommended|promised|decided))\b",
    re.IGNORECASE,
)
# A question about somebody by name: "What does Ines paint?"
_QUESTION_ABOUT_NAME = re.compile(
    r"\b(?:[Ww]h(?:at|ich|ere|en|o|ose|y)|[Hh]ow)\b.{0,40}?"
    r"\b(?:is|are|was|were|do|does|did|has|have|had|will|would|can|might)\b (?!I\b)[A-Z]\w+"
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
# A question without a question mark: "where do I live", not "what I want is a boat".
_PRONOUN_INVERSION = re.compile(
    rf"{_GREETING}(?i:(?:who|what|which|where|when|why|how)(?: \w+)? )?"
    r"(?i:(?:do|does|did|is|are|was|were|can|could|will|would|has|have|had) "
    r"(?:i|you|he|she|it|we|they|my|your|our|his|her|their)\b)"
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
# Statements in the form of a question: "Did you know that I moved to Porto?"
_STATEMENT_AS_QUESTION = re.compile(
    rf"{_GREETING}(?i:did (?:you|u) know|(?:can|could|would) you believe|"
    r"(?:did i|have i)(?: ever| already)? (?:tell|told|mention(?:ed)?|say|said)(?: to)?+(?: you)?+)"
    r"(?i:,? that)?+ (?!(?i:what|who|whom|whose|where|when|which|why|how|if|whether|about)\b)"
    r"(?:\S+\s+){2}\S"
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


def worth_searching(text: str, log_odds: float | None) -> bool:
    """Return whether memories could help to answer `text`.

    Args:
        log_odds: the recall classifier's output for the text; None if the model has none.
    """
    if not text.strip():
        return False
    if log_odds is None or log_odds > 0:
        return True
    return asks_for_memory(text)


def asks_for_memory(text: str) -> bool:
    """Return whether `text` asks for something that may be remembered: explicitly, or by a
    question that is not just a turn of phrase.
    """
    if _EXPLICIT_REQUEST.search(text) or _QUESTION_ABOUT_NAME.search(text):
        return True
    return is_question(text)


def is_question(text: str) -> bool:
    """Return whether `text` begins like a question and is not just a turn of phrase."""
    return _QUESTION_START.match(text) is not None and not is_turn_of_phrase(text)


def is_pure_question(text: str) -> bool:
    """Return whether `text` is a single question that states nothing."""
    text = text.strip()
    if _SENTENCE_BREAK.search(text) or _STATEMENT_AS_QUESTION.match(text):
        return False
    if any(form.match(text) for form in (_PRONOUN_INVERSION, _NOUN_INVERSION, _INDIRECT_QUESTION)):
        return True
    return text.endswith("?") and (is_question(text) or "," not in text)


def is_turn_of_phrase(text: str) -> bool:
    """Return whether `text` looks like a question but asks for nothing ("how are you")."""
    return len(text) <= _MAX_PHRASE_CHARS and _TURN_OF_PHRASE.match(text) is not None
