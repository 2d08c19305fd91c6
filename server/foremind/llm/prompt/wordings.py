"""How users would say what is known of them, to find the same statement in other words. Pure.

Only plain wordings: a sentence that says more, such as why or since when, equals none of them.
"""

from collections.abc import Sequence

from foremind.text.tokenization import words_of

_LIKES = ("i like {}", "i love {}", "i enjoy {}", "i adore {}")
_CALLED = ("my {} is {}", "my {}'s name is {}", "my {} is called {}", "i have a {} called {}",
           "i have a {} named {}")  # fmt: skip
# By profile slot, with the value in place of {}; family and pets with the kind and the name.
_WORDINGS: dict[str, tuple[str, ...]] = {
    "name": ("my name is {}", "my name's {}", "i am {}", "call me {}"),
    "age": ("i am {}", "i am {} years old"),
    "birthday": ("my birthday is {}", "my birthday is on {}"),
    "home": ("i live in {}", "i am living in {}"),
    "origin": ("i am from {}", "i come from {}"),
    "job": ("i am a {}", "i am an {}", "i work as a {}", "i work as an {}"),
    "employer": ("i work for {}", "i work at {}"),
    "studies": ("i study {}", "i am studying {}"),
    "status": ("i am {}",),
    "languages": ("i speak {}",),
    "diet": ("i am {}",),
    "health": ("i have {}", "i am {}"),
    "family": _CALLED,
    "pets": _CALLED,
    "goals": ("my goal is to {}", "my dream is to {}", "i want to {}", "i hope to {}",
              "i plan to {}"),
    "prefers": ("i prefer {}",),
    "likes": (*_LIKES, *(f"{wording[:-2]}to {{}}" for wording in _LIKES), "i have always liked {}",
              "i have always loved {}", "i always loved {}", "i live for {}"),
    "dislikes": ("i hate {}", "i dislike {}", "i don't like {}", "i can't stand {}",
                 "i can't bear {}", "i never liked {}", "i have never liked {}",
                 "i always hated {}", "i have always hated {}", "i no longer like {}",
                 "i am no fan of {}", "i have gone off {}", "{} is not my thing",
                 "{} are not my thing", "{} isn't my thing", "{} aren't my thing"),
}  # fmt: skip
_FAVOURITE = "favourite "
_FAVOURITES = ("my favourite {} is {}", "my favorite {} is {}")

_THE_USER = (["the", "user"], ["user"])
_VERBS = {"is": "am", "has": "have", "does": "do", "goes": "go"}
_POSSESSIVES = frozenset(("her", "his", "their"))
_SPEAKER = frozenset(("i", "i'm", "i've", "i'd", "i'll"))
_FIRST_PERSON = _SPEAKER | {"my", "we", "our", "you", "your"}


def wordings(slot: str, title: str, value: str) -> list[str]:
    """Return sentences that state no more than that a profile slot has a value, as words."""
    words = " ".join(words_of(value))
    if slot == "favourites" and title.startswith(_FAVOURITE):
        about = title.removeprefix(_FAVOURITE)
        return [wording.format(about, words) for wording in _FAVOURITES]
    templates = _WORDINGS.get(slot, ())
    if templates is not _CALLED:
        return [template.format(words) for template in templates]
    kind, _, name = words.partition(" ")
    return [template.format(kind, name) for template in templates] if name else []


def in_first_person(note: str, user_name: str) -> list[str]:
    """Return how the user may have said a note: "Lives in Porto" as "I live in Porto".

    Each as its words; empty if the note is in the user's own words. The result is for comparison:
    where the note has another subject, it is no sentence that anybody says.
    """
    words, named = _without_subject(words_of(note), words_of(user_name))
    if not words or (not named and (words[0] in _FIRST_PERSON or not _SPEAKER.isdisjoint(words))):
        return []
    if words[0] == "my":
        return [" ".join(words)]
    rest = ["my" if word in _POSSESSIVES else word for word in words[1:]]
    return [" ".join(["i", verb, *rest]) for verb in _base_forms(words[0])]


def _without_subject(words: list[str], name: Sequence[str]) -> tuple[list[str], bool]:
    """Return words without the user as their subject, and whether it was; possessives as "my"."""
    for subject in (list(name), list(name[:1]), *_THE_USER):
        if not subject:
            continue
        if words[: len(subject)] == subject:
            return words[len(subject) :], True
        if words[: len(subject)] == [*subject[:-1], f"{subject[-1]}'s"]:
            return ["my", *words[len(subject) :]], True
    return words, False


def _base_forms(verb: str) -> list[str]:
    """Return what the verb of a third person may be in the first."""
    if verb in _VERBS:
        return [_VERBS[verb]]
    if verb.endswith("ies"):
        return [f"{verb[:-3]}y"]
    if verb.endswith("es"):
        return [verb[:-1], verb[:-2]]
    return [verb[:-1]] if verb.endswith("s") else [verb]
