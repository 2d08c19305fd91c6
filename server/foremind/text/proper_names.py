"""Which words of a text are used as names although they are everyday words as well. Pure.

"Will you sing?" asks for a song, "I saw Will" mentions a brother. Most names are no other word, and
are recognised in any case. Those that are count as names if capitalised: always inside a sentence,
and at the beginning of one unless the next word shows that it is a verb, as pronouns, articles and
the like do ("May I", "Mark my words", "Hope you are well").
"""

import re

from foremind.text.tokenization import MAX_CHARS

#: Everyday words that are also names of people or works. Flowers, stones and the like are not among
#: them: "ruby" in lower case may well be a person.
EVERYDAY_NAMES = frozenset(
    """art august bill chance chase cliff dale dawn dean don drew faith frank gene grace grant guy
    hope hunter jack joy june lane march mark mason may miles nick norm page pat pierce ray rich rob
    rod rose stone sue summer van wade ward will""".split()  # noqa: SIM905
)
# If one of these follows, the first word of a sentence is not a name.
_AFTER_A_VERB = frozenset(
    """i you he she it we they me him us them my your his her its our their a an the this that these
    those there any anyone anybody anything some someone somebody something every everyone everybody
    everything no nobody nothing not all""".split()  # noqa: SIM905
)
_TOKEN = re.compile(r"[^\W_]+(?:['’][^\W_]+)*|[.!?…:;\n\"“„(\[*>—,]")


def everyday_names_in(text: str) -> set[str]:
    """Return the everyday words, in lower case, that the beginning of `text` uses as names."""
    text = text[:MAX_CHARS]
    if text.isupper():
        return set()  # capitals are no evidence here
    tokens = _TOKEN.findall(text)
    neighbours = zip([".", *tokens], tokens, [*tokens[1:], "."], strict=False)
    return {
        word.lower()
        for previous, word, following in neighbours
        if word[0].isupper()
        and word.lower() in EVERYDAY_NAMES
        and (_inside_sentence(previous) or following.lower() not in _AFTER_A_VERB)
    }


def _inside_sentence(previous: str) -> bool:
    """Return whether a token continues the sentence of the previous one."""
    return previous == "," or previous[0].isalnum()
