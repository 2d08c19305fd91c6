"""Which words of a text stand for names, where they are everyday words too. Pure.

"Will you sing?" asks for a song, "I saw Will" speaks of a brother. Most names are no other word,
and are found however they are written. One that is counts as a name where it has a capital: inside
a sentence always, and at the beginning of one unless what follows shows that it is a verb there, as
pronouns, articles and the like do ("May I", "Mark my words", "Hope you are well").
"""

import re

from foremind.text.tokenization import MOST_CHARS

#: Everyday words that people are called by, or works. Flowers, stones and the like are not among
#: them: who writes "ruby" in small letters may well mean her.
EVERYDAY = frozenset(
    """art august bill chance chase cliff dale dawn dean don drew faith frank gene grace grant guy
    hope hunter jack joy june lane march mark mason may miles nick norm page pat pierce ray rich rob
    rod rose stone sue summer van wade ward will""".split()  # noqa: SIM905
)
# What shows that the word before it, at the beginning of a sentence, is none.
_AFTER_A_VERB = frozenset(
    """i you he she it we they me him us them my your his her its our their a an the this that these
    those there any anyone anybody anything some someone somebody something every everyone everybody
    everything no nobody nothing not all""".split()  # noqa: SIM905
)
_TOKEN = re.compile(r"[^\W_]+(?:['’][^\W_]+)*|[.!?…:;\n\"“„(\[*>—,]")


def meant_as_names(text: str) -> set[str]:
    """Return the everyday words, folded, that stand for names in `text`, or in its beginning."""
    text = text[:MOST_CHARS]
    if text.isupper():
        return set()  # capitals tell nothing here
    tokens = _TOKEN.findall(text)
    around = zip([".", *tokens], tokens, [*tokens[1:], "."], strict=False)
    return {
        word.lower()
        for before, word, after in around
        if word[0].isupper()
        and word.lower() in EVERYDAY
        and (_goes_on(before) or after.lower() not in _AFTER_A_VERB)
    }


def _goes_on(before: str) -> bool:
    """Tell whether what follows a token stands inside a sentence."""
    return before == "," or before[0].isalnum()
