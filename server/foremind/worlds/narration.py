"""What a mind perceived, as lines that nobody can make look like another's. Pure.

Each event is one line. What somebody says stands after the name of who says it; all other lines are
the host's. So line breaks in what is said are none, and what a player is called is shown as a name
only if it reads like one, and like that of nobody else.
"""

import re
import unicodedata
from collections.abc import Iterable, Mapping, Sequence

from foremind.domain.world import Perceived
from foremind.llm.prompt.quoted_lines import quoted
from foremind.text.folding import caseless, visible
from foremind.text.languages.utterances import is_pure_question

_MAX_NAME_CHARS, _MAX_NAME_WORDS = 64, 4
_ALIKE = frozenset(("LATIN", "CYRILLIC", "GREEK", "ARMENIAN", "CHEROKEE", "COPTIC"))
_PLAIN_NAME = re.compile(r"[^\W_]+(?:[’'-][^\W_]+|_[^\W_]+|\.?[ ][^\W_]+)*\.?")
_WORD = re.compile(r"[^\W_]+")
# With these a line would begin that is not read as that of a player.
_RESERVED = frozenset(
    ("you", "everybody", "everyone", "nobody", "somebody", "narrator", "system", "assistant",
     "developer")
)  # fmt: skip
_INNER_QUOTES = str.maketrans("“”", "‘’")


class Names:
    """What players and minds are called in prompts; `minds` are the names of minds by slug."""

    def __init__(self, minds: Mapping[str, str]) -> None:
        self.minds = minds
        self._minds = {slug: flat(name) for slug, name in minds.items()}
        self._of_minds = {" ".join(_words(name)) for name in minds.values()}

    def of(self, name: str) -> str:
        """Return what somebody is called, given the id of a player or the slug of a mind.

        A name that does not read like one is quoted, and marked as is that of somebody else.
        """
        if name in self._minds:
            return self._minds[name]
        shown = flat(name)
        if shown != name or not _is_plain(shown):
            return f"somebody called {quoted(shown)}"
        words = _words(shown)
        is_taken = words == ["user"] or words[0] in _RESERVED
        if is_taken or not self._of_minds.isdisjoint(_phrases(words)):
            return f"somebody called {shown}"
        return shown

    def listed(self, names: Iterable[str]) -> str:
        """Return what several are called: "ana, ben and Mara"."""
        *others, last = map(self.of, names)
        return f"{', '.join(others)} and {last}" if others else last


def narrate(event: Perceived, names: Names) -> str:
    """Return what a mind perceived as a line: what was said with who said it, and to whom.

    What it said itself is only its words. What it was told is said to be so, with the chain of
    those who passed it on: it is no knowledge of its own.
    """
    text = flat(event.text)
    if not event.spoken:
        return text
    if event.how == "own":
        return event.text
    actor = names.of(event.actor)
    whom = "you" if event.how == "told" else ""
    if event.addressed and not whom:
        whom = names.listed(event.addressed)
    if event.telling:
        quotation = f"“{text.translate(_INNER_QUOTES)}”"
        if not event.chain and is_pure_question(text):
            return f"{actor} asked {whom or 'everybody'}: {quotation}"
        origin = ", who has it from ".join(map(names.of, event.chain))
        origin = f" ({actor} has it from {origin})" if origin else ""
        return f"{actor} told {whom or 'everybody'} that {quotation}{origin}"
    return f"{actor}{_manner(event.volume, whom)}: {text}"


def spoken(speaker: str, text: str, names: Names) -> str:
    """Return what somebody says to a mind, as `narrate` does when it was said."""
    return f"{names.of(speaker)}: {flat(text)}"


def flat(text: str) -> str:
    """Return a text on one line."""
    text = visible(text)
    lines: Sequence[str] = text.splitlines()
    if lines == [text]:
        return text
    return " ".join(filter(None, (line.strip() for line in lines)))


def _manner(volume: str, whom: str) -> str:
    """Return how and to whom something is said: " (whispering to you)"."""
    how = {"whisper": "whispering", "shout": "shouting"}.get(volume, "")
    said = f"{how} to {whom}" if whom else how
    return f" ({said.strip()})" if said else ""


def _is_plain(name: str) -> bool:
    """Return whether a name reads like one: few words, of no two scripts that look alike."""
    if len(name) > _MAX_NAME_CHARS or _PLAIN_NAME.fullmatch(name) is None:
        return False
    scripts = {unicodedata.name(letter, "").partition(" ")[0] for letter in name}
    return len(scripts & _ALIKE) <= 1 and len(name.split()) <= _MAX_NAME_WORDS


def _words(name: str) -> list[str]:
    """Return the words of a name as they are compared: without case and accents."""
    plain = unicodedata.normalize("NFKD", caseless(name))
    return _WORD.findall("".join(c for c in plain if not unicodedata.combining(c)))


def _phrases(words: Sequence[str]) -> Iterable[str]:
    """Return all sequences of words within some."""
    for start in range(len(words)):
        for end in range(start + 1, len(words) + 1):
            yield " ".join(words[start:end])
