"""Recall gate: decides when a text needs no memories, such as "haha yeah". Pure."""

import re

from foremind.text.languages import utterances
from foremind.text.languages.detection import language_of
from foremind.text.languages.language_files import ENGLISH
from foremind.text.questions import is_question

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
# To be told or shown something: "tell me about Cape Sorrow", "show me the map", "read me the note".
# Also "I want to hear about Cape Sorrow", "the map, please". Not "tell me all about it", "tell me
# about your day", "give me a break".
_IMPERATIVE = re.compile(
    r"^\W*(?:(?:hey|hi|hello|so|and|but|now|then|ok|okay|well|right|yes|great|thanks)\b\W*){0,2}"
    r"(?:(?:please|pl[sz]|just|(?:could|can) (?:you|u|we|i)|may i|(?:would|will) (?:you|u)|"
    r"i(?:[’']d| would)? (?:want|like|love|need)(?: you)? to|i wanna|let me|let[’']s)\b\W*){0,2}(?:"
    r"(?:tell|remind|talk|speak|teach|hear|know|learn|read|find out)"
    r"(?: (?:me|us|to me|to us|with me))?"
    r"(?: (?:again|once more|more|everything|something|all|all you know|what you know))?"
    r" (?:about|of) (?!(?:it|that|this|them|you|yourself|your (?:day|week|self|life))\W*$)\S|"
    r"(?:show|read|give|describe|explain|recite|repeat|spell|send|list|find|fetch|get|see|have|hear|"
    r"bring up|pull up|look up|open up|dig out|read out|open|look at)"
    r"(?: (?:me|us|to me|to us|again|once more|out))*(?: all)?(?: of)? "
    r"(?:(?:the|my|our|his|her|their|that|those|these|what|where|which|who|how)\b|(?-i:[A-Z])\w)|"
    r"(?:(?:some )?more|something|anything|everything) (?:about|on) (?!(?:it|that|this|you)\W*$)\S|"
    r"(?:i[’']m )?curious about (?!(?:it|that|this|you)\W*$)\S|i need (?:the|that|those)\b|"
    r"(?:do (?:you|u) (?:still )?have (?:the|that|those|my|our)\b|"
    r"(?:got |have (?:you|u) (?:got )?)?any (?:idea|clue|news) (?:about|of|on) \S)|"
    r"(?:(?:the|my|our|his|her|their|that|those)\b|(?-i:[A-Z]\w+ (?=[A-Z])))(?: ?[\w’'-]+){1,6}"
    r"(?:,? (?:again|once more))?(?:,? (?:please|pl[sz])\W*$|\?$))",
    re.IGNORECASE,
)
# A question about somebody by name: "What does Ines paint?"
_QUESTION_ABOUT_NAME = re.compile(
    r"\b(?:[Ww]h(?:at|ich|ere|en|o|ose|y)|[Hh]ow)\b.{0,40}?"
    r"\b(?:is|are|was|were|do|does|did|has|have|had|will|would|can|might)\b (?!I\b)[A-Z]\w+"
)


def worth_searching(text: str, log_odds: float | None, fallback: str = ENGLISH) -> bool:
    """Return whether memories could help to answer `text`.

    In other languages than English, any text that is more than greetings and fillers.

    Args:
        log_odds: the recall classifier's output for the text; None if the model has none. It was
            trained on English and does not decide about other languages.
        fallback: the language where it is unsure.
    """
    if not text.strip():
        return False
    if language_of(text, fallback) != ENGLISH:
        return utterances.has_content(text, fallback)
    if log_odds is None or log_odds > 0:
        return True
    return asks_for_memory(text, fallback)


def asks_for_memory(text: str, fallback: str = ENGLISH) -> bool:
    """Return whether `text` asks for something that may be remembered.

    Explicitly, by asking to be told or shown it, or by a question that is no turn of phrase.
    """
    if language_of(text, fallback) != ENGLISH:
        return is_question(text, fallback) or utterances.requests(text, fallback)
    if any(
        pattern.search(text) for pattern in (_EXPLICIT_REQUEST, _QUESTION_ABOUT_NAME, _IMPERATIVE)
    ):
        return True
    return is_question(text, fallback)
