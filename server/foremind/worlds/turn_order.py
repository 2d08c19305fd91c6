"""Who answers in a scene. Pure: chance is drawn from the id of what is answered.

The natural order is the one that SillyTavern publishes for its group chats: whoever is named in the
message answers, in the order of the names; if nobody is, each by chance, as talkative as it is, but
never whoever spoke last; if chance picks nobody, one of them.
"""

import unicodedata
from collections.abc import Mapping, Sequence
from functools import lru_cache
from random import Random

from foremind.domain.world import TurnOrder
from foremind.text.folding import folded
from foremind.text.tokenization import words_of

#: How likely a character is to answer what is said to nobody.
TALKATIVENESS = 0.5


def answering(
    order: TurnOrder,
    text: str,
    to: Sequence[str],
    present: Mapping[str, str],
    last_speaker: str,
    seed: str,
) -> list[str]:
    """Return who answers a message, in order.

    Args:
        to: whom it is said to; nobody: everybody.
        present: the names of the minds that heard it, by slug.
        last_speaker: the mind that spoke last, by slug.
        seed: what chance is drawn from: the same one draws the same.
    """
    named = [slug for slug in to if slug in present]
    if to:
        return named[: order.replies]
    if order.order == "list":
        return [slug for slug in order.minds if slug in present][: order.replies]
    if order.order == "host":
        return []
    named = _named_in(text, present)
    if named:
        return named[: order.replies]
    others = [slug for slug in present if slug != last_speaker] or list(present)
    chance = Random(seed)  # noqa: S311 - it decides who speaks
    chance.shuffle(others)
    likely = {slug: order.talkativeness.get(slug, TALKATIVENESS) for slug in others}
    drawn = [slug for slug in others if chance.random() < likely[slug]]
    willing = [slug for slug in others if likely[slug] > 0]
    return (drawn or willing[:1])[: order.replies]


@lru_cache(maxsize=1024)  # names, which are looked for at each key
def _words_of_name(name: str) -> list[str]:
    return _words(name)


def _words(text: str) -> list[str]:
    """Return words without case and accents, which few type."""
    decomposed = unicodedata.normalize("NFD", folded(text))
    plain = "".join(sign for sign in decomposed if not unicodedata.combining(sign))
    return words_of(unicodedata.normalize("NFC", plain))


def _named_in(text: str, present: Mapping[str, str]) -> list[str]:
    """Return whose names a text has, in their order."""
    words = _words(text)
    said = frozenset(words)
    places: dict[str, int] = {}
    for slug, name in present.items():
        whole = _words_of_name(name)
        for called in (whole, whole[:1]):  # by the whole name, or the first one
            may_be = called and called[0] in said
            starts = range(len(words) - len(called) + 1) if may_be else ()
            found = next((at for at in starts if words[at : at + len(called)] == called), None)
            if found is not None:
                places.setdefault(slug, found)
    return sorted(places, key=places.__getitem__)
