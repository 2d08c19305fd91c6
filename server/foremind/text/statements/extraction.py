"""Extracts what speakers state about themselves: where they live, what they are called. Pure.

By patterns. Each reader finds where a statement begins; its value is what follows, word by word, up
to where the clause ends, and implausible values are discarded.
"""

from foremind.text.languages.detection import language_of
from foremind.text.languages.language_files import ENGLISH
from foremind.text.statements.belongings import called, family, pets
from foremind.text.statements.clauses import Reader, Statement
from foremind.text.statements.conversation_style import manners
from foremind.text.statements.health_and_diet import diets, health
from foremind.text.statements.identity import ages, birthdays, languages, names, pronouns, statuses
from foremind.text.statements.occupation import employers, jobs, studies
from foremind.text.statements.places import homes, origins
from foremind.text.statements.preferences import favourites, goals, preferences, tastes
from foremind.text.statements.self_reference import own_sentences
from foremind.text.tokenization import MAX_CHARS


def _words(words: str) -> frozenset[str]:
    return frozenset(words.split())


# Readers, each with trigger words of which every sentence it matches contains one.
_READERS: tuple[tuple[frozenset[str], Reader], ...] = (
    (_words("name name's call called calls go i'm am prefer"), names),
    (_words("pronouns use go prefer she he they"), pronouns),
    (_words("i'm am turned age"), ages),
    (_words("birthday birthday's bday bday's b-day born"), birthdays),
    (_words("live living lived based residing settled home house flat apartment place hometown "
            "town moved relocated"), homes),
    (_words("from grew raised born"), origins),
    (_words("work working employed job became become i'm am living"), jobs),
    (_words("work working"), employers),
    (_words("study studying majoring degree master masters master's phd bachelor course"), studies),
    (_words("single married engaged divorced widowed widow widower separated relationship"),
     statuses),
    (_words("speak understand fluent bilingual language tongue language's learning studying"),
     languages),
    (_words("have i've we've got own adopted i'm am"), family),
    (_words("have i've we've got own adopted keep died passed ran"), pets),
    (_words("my our"), called),
    (_words("i'm am have i've got suffer live"), health),
    (_words("i'm am eat drink tolerate digest keep"), diets),
    (_words("keep make give send write use don't do never stop no speak talk answer reply respond "
            "be always"), manners),
    (_words("favourite favorite"), favourites),
    (_words("like love enjoy care fancy hate dislike detest loathe despise stand bear abide adore "
            "fan into fond keen obsessed crazy mad never always live liking loving enjoying gone "
            "thing tea me"), tastes),
    (_words("prefer rather"), preferences),
    (_words("goal dream ambition plan aim resolution saving training writing working want hope "
            "intend"), goals),
)  # fmt: skip

EVERY_READER = tuple(reader for _, reader in _READERS)


def statements_in(text: str, fallback: str = ENGLISH) -> list[Statement]:
    """Return what the beginning of `text` states about its speaker, without duplicates.

    Nothing if it is in another language than English; `fallback` is the language where that is
    unsure.
    """
    if language_of(text, fallback) != ENGLISH:
        return []
    statements: dict[Statement, None] = {}
    for sentence in own_sentences(text[:MAX_CHARS]):
        for triggers, reader in _READERS:
            if not triggers.isdisjoint(sentence.words):
                statements.update(dict.fromkeys(reader(sentence.text)))
    return list(statements)
