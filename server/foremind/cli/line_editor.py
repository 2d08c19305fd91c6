"""A line editor for a terminal: interprets keys and formats lines. Pure."""

import codecs
import re
from dataclasses import dataclass, field

from rich.cells import cell_len

LAMP = {"listening": "○", "recalling": "◔", "ready": "●", "away": "×"}
# Arrow, function and Alt keys; and the beginning of one whose end has not arrived.
_SEQUENCE = re.compile(r"\x1b(?:\[[0-?]*[ -/]*[@-~]|O.|[^\[O\x1b])", re.DOTALL)
_INCOMPLETE = re.compile(r"\x1b(?:\[[0-?]*[ -/]*|O)\Z")
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
    """Holds the draft; `feed` applies keyboard input and returns what it means."""

    draft: str = ""
    _incomplete: str = ""
    _decoder: codecs.IncrementalDecoder = field(
        default_factory=lambda: codecs.getincrementaldecoder("utf-8")("replace")
    )

    def feed(self, raw: bytes) -> list[Key]:
        """Apply input in order; characters and keys of several bytes may arrive in pieces.

        Arrow and function keys are ignored.
        """
        text = self._incomplete + self._decoder.decode(raw)
        beginning = _INCOMPLETE.search(text)
        self._incomplete = "" if beginning is None else beginning[0]
        text = _SEQUENCE.sub("", text.removesuffix(self._incomplete))
        keys = [self._apply(character) for character in text]
        return [key for key in keys if key is not None]

    def _apply(self, character: str) -> Key | None:
        match character:
            case "\r" | "\n":
                text, self.draft = self.draft, ""
                return Entered(text) if text.strip() else Typed()
            case "\x1b":
                return StopPressed()
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
    """Return the input line: status lamp, status text, and the end of the draft that fits."""
    status = f"{LAMP[state]} {detail or state} > "
    available = max(8, width - cell_len(status) - 1)
    visible = draft
    while cell_len(visible) > available:
        visible = visible[1:]
    return f"{_CLEAR_LINE}\x1b[2m{status}\x1b[0m{visible}"


def harmless(text: str) -> str:
    """Return `text` without control characters, which could control the terminal."""
    return "".join(character for character in text if character == "\n" or character.isprintable())


def above(line: str) -> str:
    """Return what prints `line` in place of the input line, and begins a new one below."""
    return f"{_CLEAR_LINE}{line}\r\n"
