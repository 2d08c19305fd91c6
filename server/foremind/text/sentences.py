"""Splits texts into sentences, and gives sentences keys to find duplicates by. Pure."""

import re

from foremind.text.tokenization import words_of

# Trailing white space stays with its sentence, so that joined sentences are the text again.
_END = re.compile(r"(?<=[.!?…;|])[\"'”’)\]]*\s+|(?<=[。！？])|\s*\n\s*")
# Labels in front of a quotation: "Ana: ", "home (20 May 2026): ".
_LABEL = re.compile(
    r"(?:[\w'’-]{1,40}(?:,? [\w'’-]{1,40}){0,3}(?: \([^()]{1,40}\))?: +){1,3}(?=\S)"
)
_MIN_WORDS = 3  # shorter sentences may occur twice: "Oh yes!"
_INTRODUCES = re.compile(r":\s*$")  # "On 20 May 2026:" belongs to what follows
_MAX_SENTENCES = 400  # of one text; the rest of it counts as one sentence
_MAX_CHARS = 20_000  # of one text that are compared


def sentences_in(text: str) -> list[str]:
    """Return the sentences of a text; joined they are the text."""
    sentences: list[str] = []
    start = 0
    for match in _END.finditer(text):
        if match.end() > start and text[start : match.end()].strip():
            sentences.append(text[start : match.end()])
            start = match.end()
            if len(sentences) == _MAX_SENTENCES:
                break
    if text[start:].strip():
        sentences.append(text[start:])
    return sentences


def keys_of(sentences: list[str]) -> list[int]:
    """Return a key for each sentence, which ignores case, punctuation and speaker labels.

    The key is 0 for a sentence that is too short, or only introduces the next.
    """
    return [_key(sentence) for sentence in sentences]


def _key(sentence: str) -> int:
    words = words_of(_without_label(sentence))
    if len(words) < _MIN_WORDS or _INTRODUCES.search(sentence):
        return 0
    return hash(" ".join(words))


def _without_label(sentence: str) -> str:
    label = _LABEL.match(sentence)
    return sentence if label is None else sentence[label.end() :]


def said_in(text: str) -> frozenset[int]:
    """Return the keys of the sentences at the beginning of a text, without 0."""
    return frozenset(keys_of(sentences_in(text[:_MAX_CHARS]))) - {0}
