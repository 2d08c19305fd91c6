"""Texts in sentences, and what tells that two sentences are the same. Pure."""

import re

from foremind.text.tokenization import words_of

# White space after an end stays with its sentence, so that sentences can be put together again.
_END = re.compile(r"(?<=[.!?…;|])[\"'”’)\]]*\s+|(?<=[。！？])|\s*\n\s*")
# What rules write before a quotation: "Ana: ", "home (20 May 2026): ".
_LABEL = re.compile(
    r"(?:[\w'’-]{1,40}(?:,? [\w'’-]{1,40}){0,3}(?: \([^()]{1,40}\))?: +){1,3}(?=\S)"
)
_LEAST_WORDS = 3  # of a sentence that may not stand twice: "Oh yes!" may
_INTRODUCES = re.compile(r":\s*$")  # "On 20 May 2026:" belongs to what follows it
_MOST_LISTED = 400  # sentences of one text that are told apart; what follows counts as the last
_MOST_COMPARED = 20_000  # characters of one text


def sentences_in(text: str) -> list[str]:
    """Return the sentences of a text; put together they are the text."""
    sentences: list[str] = []
    start = 0
    for match in _END.finditer(text):
        if match.end() > start and text[start : match.end()].strip():
            sentences.append(text[start : match.end()])
            start = match.end()
            if len(sentences) == _MOST_LISTED:
                break
    if text[start:].strip():
        sentences.append(text[start:])
    return sentences


def keys_of(sentences: list[str]) -> list[int]:
    """Return what tells each sentence from others, whoever said it in whatever case.

    0 stands for one that is too short to say anything, or only introduces the next.
    """
    return [_key(sentence) for sentence in sentences]


def _key(sentence: str) -> int:
    words = words_of(_unlabelled(sentence))
    if len(words) < _LEAST_WORDS or _INTRODUCES.search(sentence):
        return 0
    return hash(" ".join(words))


def _unlabelled(sentence: str) -> str:
    label = _LABEL.match(sentence)
    return sentence if label is None else sentence[label.end() :]


def said_in(text: str) -> frozenset[int]:
    """Return the keys of what a text says, near its beginning."""
    return frozenset(keys_of(sentences_in(text[:_MOST_COMPARED]))) - {0}
