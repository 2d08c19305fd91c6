"""What remains of a session's state after an erasure. Pure."""

from collections.abc import Iterable

from foremind.domain.session_state import SessionState
from foremind.memory.erasure_scope import MIN_TERM_OVERLAP
from foremind.memory.quotation_index import QuotationIndex
from foremind.text.mentions import Mention

_TASK = ""  # a key that no flag can have


def remaining_state(
    state: SessionState, about: Mention | None, erased_texts: Iterable[str]
) -> SessionState:
    """Return a state without the task or the flags that contain something erased.

    Args:
        about: a part that mentions this is erased.
        erased_texts: a part that quotes one of these, or contains most of its words, is erased.
    """
    texts = {
        _TASK: state.task,
        **{name: f"{_as_words(name)} {value}" for name, value in state.flags.items()},
    }
    parts = QuotationIndex[str]()
    parts.add(texts.items())
    erased = {name for name, text in texts.items() if about is not None and about.found_in(text)}
    for text in erased_texts:
        erased |= parts.quoting(text) | parts.sharing_terms_with(text, MIN_TERM_OVERLAP)
    flags = {name: value for name, value in state.flags.items() if name not in erased}
    return SessionState("" if _TASK in erased else state.task, flags)


def _as_words(name: str) -> str:
    return name.translate({ord(separator): " " for separator in "_.-"})
