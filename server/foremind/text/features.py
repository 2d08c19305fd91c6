"""Nine numeric features of a text that its embedding hardly captures. Pure."""

import math
import re

import numpy as np
import numpy.typing as npt

from foremind.text.tokenization import MAX_CHARS, names_in

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
    """Return the features of `text`, float32 [9], in the order of `NAMES`."""
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
