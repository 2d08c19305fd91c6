"""What is left of a session's state when something is forgotten. Pure."""

from collections.abc import Iterable

from foremind.domain.session_state import SessionState
from foremind.memory.erasure_scope import SHARE
from foremind.retrieval.index.bm25 import Corpus

_TASK = ""  # no flag is called that


def left_of(state: SessionState, about: str | None, spoken: Iterable[str]) -> SessionState:
    """Return a state without what holds something forgotten: the task, or flags.

    Args:
        about: words that go where all of them stand together.
        spoken: texts that are forgotten, which go word for word and by most of their words.
    """
    parts = Corpus[str]()
    parts.add(
        [
            (_TASK, state.task),
            *((name, f"{_as_words(name)} {value}") for name, value in state.flags.items()),
        ]
    )
    gone = set() if about is None else parts.mentioning(about)
    for text in spoken:
        gone |= parts.quoting(text) | parts.speaking_of(text, SHARE)
    flags = {name: value for name, value in state.flags.items() if name not in gone}
    return SessionState("" if _TASK in gone else state.task, flags)


def _as_words(name: str) -> str:
    return name.translate({ord(each): " " for each in "_.-"})
