"""When not to recall: "haha yeah" needs no memories. Pure."""

import re

# Who asks for a memory in so many words gets one, whatever the learned head says of it.
_ASKS = re.compile(
    r"\b(?:remember|remind|recall|forg[eo]t(?:ten)?|told you|tell you|did i|have i|do i|am i|was i|"
    r"what(?:[’']s| is| was| are| were) my|who(?:[’']s| is| was)|when (?:did|is|was|will)|"
    r"where (?:did|is|was|do)|(?:what|how) about (?!you\b)|"
    r"how(?:[’']s| is| are| was| were) (?:the|my|our|her|his|their)|my)\b",
    re.IGNORECASE,
)
# "What does Ines paint?" asks about someone by name.
_ASKS_ABOUT_SOMEONE = re.compile(
    r"\b(?:[Ww]h(?:at|ich|ere|en|o|ose|y)|[Hh]ow)\b.{0,40}?"
    r"\b(?:is|are|was|were|do|does|did|has|have|had|will|would|can|might)\b (?!I\b)[A-Z]\w+"
)


def worth_searching(text: str, learned: float | None) -> bool:
    """Return whether memories could help to answer `text`.

    Args:
        learned: the recall head's log odds for the text, None where the model has no head.
    """
    if not text.strip():
        return False
    if learned is None or learned > 0:
        return True
    return asks(text)


def asks(text: str) -> bool:
    """Return whether `text` asks for something known, in so many words."""
    return _ASKS.search(text) is not None or _ASKS_ABOUT_SOMEONE.search(text) is not None
