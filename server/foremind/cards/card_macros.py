"""The macros in a card's texts, such as {{char}}. Pure.

Source: "Curly Braced Syntaxes" of the specification of Character Card V3, which include those of
V2, and <USER> and <BOT>, which are older. Names are the same in any case. What is not known is left
as it is.

What is drawn at random is drawn by a hash of the conversation, not by a generator: a prompt that is
prepared before Enter must be the one that is made at Enter.
"""

import re
from dataclasses import dataclass
from hashlib import blake2b

from foremind.cards.card_fields import MAX_TEXT_CHARS

MAX_DEPTH = 16  # of macros within macros; deeper ones are left as they are
DRAWN = 1 << 64
_BRACES = re.compile(r"(\{\{|\}\}|<user>|<bot>)", re.IGNORECASE)
_CHOICE = re.compile(r"(?<!\\),")
_DICE = re.compile(r"\s*d?(\d{1,9})\s*", re.IGNORECASE)
_TAGS = re.compile("[<>]")


@dataclass(frozen=True, slots=True)
class MacroValues:
    """What macros stand for.

    `conversation` decides what {{pick}} draws, `moment` together with it what {{random}} and
    {{roll}} draw; texts that stay at the head of a prompt have one moment in a conversation.
    """

    character: str
    user: str
    conversation: str = ""
    moment: str = ""


def expand_card_macros(text: str, values: MacroValues, max_chars: int = MAX_TEXT_CHARS) -> str:
    """Return a text with its macros replaced, inner ones first, in time linear in its length.

    What takes a macro's place is not read again, so nobody's name can bring in a macro.

    Args:
        max_chars: to which a text may grow; what would make it longer is left as it is.
    """
    if "{{" not in text and "<" not in text:
        return text
    expansion = _Expansion(values, max_chars - len(text))
    for piece in _BRACES.split(text):
        expansion.take(piece)
    return expansion.finish()


def drawn(*source: str) -> int:
    """Return a number below `DRAWN` that is drawn at random; of the same source, the same."""
    text = "\0".join(source).encode("utf-8", "replace")
    return int.from_bytes(blake2b(text, digest_size=8).digest())


class _Expansion:
    """One text: the macros that are open, outermost first, each as the pieces it has so far."""

    def __init__(self, values: MacroValues, room: int) -> None:
        self._values = values
        self._room = room  # characters by which the text may still grow
        # Players choose their names: one line, which closes no tag.
        self._user = " ".join(_TAGS.sub("", values.user).split())
        self._open: list[list[str]] = [[]]
        self._too_deep = 0  # macros that are open beyond the limit
        self._drawn = 0

    def take(self, piece: str) -> None:
        """Take the next piece of the text: braces, a name in angle brackets, or other text."""
        if piece == "{{":
            if len(self._open) > MAX_DEPTH:
                self._too_deep += 1
                self._open[-1].append(piece)
            else:
                self._open.append([])
        elif piece == "}}" and self._too_deep:
            self._too_deep -= 1
            self._open[-1].append(piece)
        elif piece == "}}" and len(self._open) > 1:
            macro = "".join(self._open.pop())
            self._replace(f"{{{{{macro}}}}}", self._expanded(macro))
        else:
            names = {"<user>": self._user, "<bot>": self._values.character}
            self._replace(piece, names.get(piece.lower()))

    def _replace(self, written: str, expanded: str | None) -> None:
        """Add what is put in the place of something, if there is any and it fits."""
        growth = 0 if expanded is None else len(expanded) - len(written)
        if expanded is None or growth > max(0, self._room):
            self._open[-1].append(written)
        else:
            self._room -= growth
            self._open[-1].append(expanded)

    def finish(self) -> str:
        """Return the whole text; macros that were not closed are left as they are."""
        return "{{".join("".join(pieces) for pieces in self._open)

    def _expanded(self, macro: str) -> str | None:
        """Return what a macro stands for; None if it is not known."""
        simple = {"char": self._values.character, "user": self._user}.get(macro.strip().lower())
        if simple is not None:
            return simple
        if macro.lstrip().startswith("//"):
            return ""
        name, separator, argument = macro.partition(":")
        if not separator:
            return None
        match name.strip().lower():
            case "comment" | "hidden_key":
                return ""
            case "reverse":
                return argument[::-1]
            case "random":
                return self._choice(argument, self._values.moment)
            case "pick":
                return self._choice(argument, "")
            case "roll":
                return self._roll(argument)
        return None

    def _choice(self, argument: str, moment: str) -> str:
        if argument.startswith(":"):  # a common variant: {{random::one::two}}
            choices = argument[1:].split("::")
        else:
            choices = [choice.replace("\\,", ",") for choice in _CHOICE.split(argument)]
        choices = [choice.strip() for choice in choices]
        return choices[self._draw(len(choices), argument, moment)]

    def _roll(self, argument: str) -> str | None:
        dice = _DICE.fullmatch(argument)
        if dice is None or int(dice[1]) == 0:
            return None
        return str(self._draw(int(dice[1]), argument, self._values.moment) + 1)

    def _draw(self, count: int, argument: str, moment: str) -> int:
        """Return a number below `count`; two equal macros of a text draw for themselves."""
        self._drawn += 1
        return drawn(self._values.conversation, moment, str(self._drawn), argument) % count
