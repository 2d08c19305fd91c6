"""What remains of a session's state after an erasure. Pure."""

from collections.abc import Iterable

from foremind.domain.session_state import SessionState
from foremind.memory.erasure_scope import MIN_TERM_OVERLAP
from foremind.memory.quotation_index import QuotationIndex

_TASK = ""  # a key that no flag can have


def remaining_state(
    state: SessionState, about: str | None, erased_texts: Iterable[str]
) -> SessionState:
    """Return a state without the task or the flags that contain something erased.

    Args:
        about: a part that contains all of these words is erased.
        erased_texts: a part that quotes one of these, or contains most of its words, is erased.
    """
    parts = QuotationIndex[str]()
    parts.add(
        [
            (_TASK, state.task),
            *((name, f"{_as_words(name)} {value}") for name, value in state.flags.items()),
        ]
    )
    erased = set() if about is None else parts.mentioning(about)
    for text in erased_texts:
        erased |= parts.quoting(text) | parts.sharing_terms_with(text, MIN_TERM_OVERLAP)
    flags = {name: value for name, value in state.flags.items() if name not in erased}
    return SessionState("" if _TASK in erased else state.task, flags)


def _as_words(name: str) -> str:
    return name.translate({ord(separator): " " for separator in "_.-"})
