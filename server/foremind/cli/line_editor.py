"""A line editor for a terminal: decisions are pure, drawing is one string."""

import codecs
from dataclasses import dataclass, field

from rich.cells import cell_len

LAMP = {"listening": "○", "recalling": "◔", "ready": "●", "away": "×"}
_ESCAPE = "\x1b"
_CLEAR_LINE = "\r\x1b[K"


@dataclass(frozen=True, slots=True)
class Typed:
    """The draft changed."""


@dataclass(frozen=True, slots=True)
class Entered:
    """Enter was pressed on `text`."""

    text: str


@dataclass(frozen=True, slots=True)
class StopPressed:
    """Escape: stop the reply."""


@dataclass(frozen=True, slots=True)
class LeavePressed:
    """Ctrl-C, or Ctrl-D on an empty line."""


Key = Typed | Entered | StopPressed | LeavePressed


@dataclass
class LineEditor:
    """Holds the draft; `feed` takes what the keyboard sent and says what it meant."""

    draft: str = ""
    _decoder: codecs.IncrementalDecoder = field(
        default_factory=lambda: codecs.getincrementaldecoder("utf-8")("replace")
    )

    def feed(self, raw: bytes) -> list[Key]:
        """Apply keystrokes in order."""
        text = self._decoder.decode(raw)
        if text == _ESCAPE:
            return [StopPressed()]
        if text.startswith(_ESCAPE):
            return []  # arrow and function keys: there is nothing to move to
        keys = [self._apply(character) for character in text]
        return [key for key in keys if key is not None]

    def _apply(self, character: str) -> Key | None:
        match character:
            case "\r" | "\n":
                text, self.draft = self.draft, ""
                return Entered(text) if text.strip() else Typed()
            case "\x03":
                return LeavePressed()
            case "\x04":
                return None if self.draft else LeavePressed()
            case "\x7f" | "\b":
                self.draft = self.draft[:-1]
            case "\x15":  # Ctrl-U
                self.draft = ""
            case "\x17":  # Ctrl-W
                self.draft = self.draft.rstrip().rpartition(" ")[0]
            case _ if character.isprintable():
                self.draft += character
            case _:
                return None
        return Typed()


def prompt_line(state: str, detail: str, draft: str, width: int) -> str:
    """Return the line to type on: lamp, what it means, and as much of the draft as fits."""
    head = f"{LAMP[state]} {detail or state} > "
    room = max(8, width - cell_len(head) - 1)
    shown = draft
    while cell_len(shown) > room:
        shown = shown[1:]
    return f"{_CLEAR_LINE}\x1b[2m{head}\x1b[0m{shown}"


def harmless(text: str) -> str:
    """Return `text` without the control characters that could command a terminal."""
    return "".join(each for each in text if each == "\n" or each.isprintable())


def above(line: str) -> str:
    """Return what prints `line` where the prompt was, leaving a fresh line below."""
    return f"{_CLEAR_LINE}{line}\r\n"
