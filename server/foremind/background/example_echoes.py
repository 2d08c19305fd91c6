"""Recognises answers that repeat an example of their prompt, as small models do. Pure."""

from collections.abc import Iterable, Sequence

from foremind.background.extractive_summary import Utterance
from foremind.text.tokenization import terms_of


def repeats_example(text: str, examples: Iterable[str], utterances: Sequence[Utterance]) -> bool:
    """Return whether a text says what an example does, and nothing that was said."""
    terms = set(terms_of(text))
    if not terms or all(set(terms_of(example)) != terms for example in examples):
        return False
    return not any(terms & set(terms_of(utterance.text)) for utterance in utterances)
