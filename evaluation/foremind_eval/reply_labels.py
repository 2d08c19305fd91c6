"""Measures which replies of companions are remembered, against labels of what they tell."""

import tomllib
from pathlib import Path

import msgspec

from foremind.app.core import Core
from foremind.domain.companion_rules import SignificanceRules
from foremind.memory.scoring import score_significance
from foremind.memory.short_answers import is_informative

LABELLED_REPLIES = Path(__file__).parent / "replies.toml"


class LabelledReply(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A reply, the message before it, and whether it tells anything new."""

    message: str
    reply: str
    informative: bool


class ReplyReport(msgspec.Struct, frozen=True):
    """The shares of replies kept, of those that tell anything new and of the others.

    `all_…` is what the significance alone keeps, as with `remember_replies` set to `all`; `wrong`
    are the replies that are judged otherwise than labelled.
    """

    informative: int
    others: int
    all_informative_kept: float
    all_others_kept: float
    informative_kept: float
    others_kept: float
    wrong: list[str]


def read_replies(path: Path = LABELLED_REPLIES) -> list[LabelledReply]:
    """Read labelled replies."""
    return msgspec.convert(tomllib.loads(path.read_text("utf-8"))["replies"], list[LabelledReply])


async def measure_replies(core: Core, replies: list[LabelledReply]) -> ReplyReport:
    """Score each reply as ingest does, with and without asking whether it tells anything new."""
    threshold = core.runtime.settings.significance_threshold
    kept: dict[tuple[bool, str], list[bool]] = {
        (label, rule): [] for label in (True, False) for rule in ("all", "informative")
    }
    wrong = []
    for labelled in replies:
        vector = await core.embedder.embed_passage(labelled.reply)
        learned = None
        if core.classifiers is not None:
            learned = core.classifiers.classify(labelled.reply, vector).keep
        score = score_significance(labelled.reply, learned, SignificanceRules()).score
        tells = is_informative(labelled.reply, [labelled.message])
        kept[labelled.informative, "all"].append(score >= threshold)
        kept[labelled.informative, "informative"].append(score >= threshold and tells)
        if tells != labelled.informative:
            wrong.append(labelled.reply)

    def share(label: bool, rule: str) -> float:
        outcomes = kept[label, rule]
        return round(sum(outcomes) / max(1, len(outcomes)), 3)

    return ReplyReport(
        informative=len(kept[True, "all"]),
        others=len(kept[False, "all"]),
        all_informative_kept=share(True, "all"),
        all_others_kept=share(False, "all"),
        informative_kept=share(True, "informative"),
        others_kept=share(False, "informative"),
        wrong=wrong,
    )
