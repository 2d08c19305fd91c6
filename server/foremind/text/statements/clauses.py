"""Statements, and clauses without their adverbs and negation. Pure."""

from dataclasses import dataclass
from typing import Literal

from foremind.text.statements.vocabulary import PRESENT, pattern

Polarity = Literal["yes", "no", "ended", "past"]


@dataclass(frozen=True, slots=True)
class Statement:
    """A slot of a profile and its value as it was said.

    `about` says what a slot of many kinds refers to: "colour" for a favourite, "dog" for a pet. A
    statement that no longer `holds` retracts the value, or any value if it has none; where it was
    the value, another may be so `instead`.
    """

    slot: str
    value: str
    about: str = ""
    holds: bool = True
    instead: str = ""

    @property
    def title(self) -> str:
        """The title of the value: "favourite colour", "home"."""
        if self.slot == "favourites":
            return f"favourite {self.about}" if self.about else "favourites"
        return f"name of {self.about}" if self.slot == "names" else self.slot

    @property
    def content(self) -> str:
        """The value, and what it is about unless the title says so: "dog Scout"."""
        if self.slot in ("family", "pets") and self.about:
            return f"{self.about} {self.value}".strip()
        return self.value


def canonical(clause: str) -> tuple[str, Polarity]:
    """Return a clause without its adverbs and negation, "we have never been" as "i am".

    So "I've just moved" is "i moved", and "my name isn't Bob" is "my name is Bob", which is not so.
    """
    clause = pattern("degree").sub("", clause)  # "super allergic", "a really bad allergy"
    subject = pattern("subject").match(clause)
    verb = None if subject else pattern("is").search(clause)
    if subject is not None:
        head, rest = "i ", clause[subject.end() + 1 :]
    elif verb is not None:
        head, rest = f"{clause[: verb.start()]} is ", clause[verb.end() :]
    else:
        return clause, "yes"
    polarity: Polarity = "past" if verb is not None and verb["past"] else "yes"
    present = False
    while (modifier := pattern("modifier").match(rest)) is not None:
        words = modifier[0].lower()
        if modifier["be"]:
            if head != "i ":
                break
            head = "i am "
        if modifier["ended"]:
            polarity = "ended"
        elif modifier["no"] or " never " in words:
            polarity = "no"
        present |= bool(modifier["perfect"]) or words in ("always ", "never ")
        rest = rest[modifier.end() :]
    first, _, others = rest.partition(" ")
    if present and head == "i ":
        rest = f"{PRESENT.get(first.lower(), first)} {others}"
    return head + rest, polarity
