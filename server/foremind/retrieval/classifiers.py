"""Two linear classifiers over a text's vector and features: worth keeping, needs memories.

`foremind_models` trains them on a corpus of its own. They are logistic regressions; their weights
are stored with the embedding model's manifest or calibration: they mean nothing to another model.
"""

import math
import re
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from foremind.text.languages import utterances
from foremind.text.languages.detection import language_of
from foremind.text.languages.language_files import ENGLISH
from foremind.text.languages.utterances import is_question
from foremind.text.tokenization import MAX_CHARS, names_in
from foremind_models import ClassifierFile, TextFeatures

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


FEATURE_NAMES = (
    "length", "questions", "digits", "time", "names", "first person", "second person",
    "exclamations", "reaction",
)  # fmt: skip

# A unit vector's 384 components are small; this keeps the features from outweighing them.
_SCALE = 0.45

_TIME = re.compile(
    r"\b(?:yesterday|today|tonight|tomorrow|last|next|ago|this (?:morning|week|month|year|weekend)|"
    r"since|weekend|when i|spring|summer|autumn|winter|fall|"
    r"(?:mon|tues|wednes|thurs|fri|satur|sun)day|january|february|march|april|may|june|july|"
    r"august|september|october|november|december)\b",
    re.IGNORECASE,
)
_FIRST_PERSON = re.compile(
    r"\b(?:i|i[’'](?:m|ve|d|ll)|my|me|mine|we|we[’'](?:re|ve)|our|us)\b", re.I
)
_SECOND_PERSON = re.compile(r"\b(?:you|your|you[’'](?:re|ve)|yours)\b", re.IGNORECASE)
_REACTION = re.compile(
    r"^\W*(?:wow|oh|haha|hey|hi|hello|thanks|thank|cool|nice|great|that|that[’']s|sounds|aww?|"
    r"congrats|congratulations|yeah|yep|absolutely|definitely|good|glad|sorry|sure|no way|awesome|"
    r"amazing)\b",
    re.IGNORECASE,
)
_SENTENCE_END = re.compile(r"(?<=[.!?])\s+")


def text_features(text: str) -> npt.NDArray[np.float32]:
    """Return the features of `text`, float32 [9], in the order of `FEATURE_NAMES`."""
    text = text[:MAX_CHARS]
    words = max(3, len(text.split()))
    sentences = [sentence for sentence in _SENTENCE_END.split(text) if sentence] or [""]
    return _SCALE * np.array(
        [
            math.log1p(len(text)),
            sum(sentence.endswith("?") for sentence in sentences) / len(sentences),
            any(char.isdigit() for char in text),
            _TIME.search(text) is not None,
            min(3, len(names_in(text))) / 2,
            5 * len(_FIRST_PERSON.findall(text)) / words,
            5 * len(_SECOND_PERSON.findall(text)) / words,
            sum(sentence.endswith("!") for sentence in sentences) / len(sentences),
            _REACTION.match(text) is not None,
        ],
        np.float32,
    )


TEXT_FEATURES = TextFeatures(FEATURE_NAMES, text_features)
Vector = npt.NDArray[np.float32]


class TextClassifiers:
    """Classifies a text by its vector, float32 [dimension], and its features."""

    def __init__(self, file: ClassifierFile) -> None:
        self._weights = np.array([file.keep.weights, file.recall.weights], np.float32)
        self._biases = np.array([file.keep.bias, file.recall.bias], np.float32)

    def classify(self, text: str, vector: Vector) -> "Classification":
        """Return the log odds of both classifiers."""
        keep, recall = self._weights @ features_of(text, vector) + self._biases
        return Classification(keep=float(keep), recall=float(recall))


@dataclass(frozen=True, slots=True)
class Classification:
    """Log odds, above 0 for yes: the text is worth keeping; memories would help to answer it."""

    keep: float
    recall: float


def features_of(text: str, vector: Vector) -> Vector:
    """Return the input of the classifiers, float32 [dimension + 9]."""
    return np.concatenate([vector, text_features(text)])
