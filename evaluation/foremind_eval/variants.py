"""The variants that an evaluation compares: improvements, switched on one after the other."""

from dataclasses import dataclass, replace
from typing import Any

import msgspec

from foremind.domain.companion_rules import SignificanceRules
from foremind.domain.settings.settings import CompanionSettings

#: Both speakers of a labelled conversation are people: what either says counts alike.
TWO_PEOPLE: dict[str, Any] = {"remember_replies": "all", "user_weight": 1.0}

_DECAYS = ("half_life", "hourly", "product")
_SIGNALS_ONLY = SignificanceRules(
    floors={"identity": 0.0, "goal": 0.0, "constraint": 0.0, "preference": 0.0, "answer": 0.0},
    learned=False,
)


@dataclass(frozen=True, slots=True)
class Variant:
    """A companion's settings under a name; variants with equal `store` share what is stored."""

    name: str
    store: str
    settings: CompanionSettings

    def with_recall(self, name: str, **changes: Any) -> "Variant":
        """Return this variant with other recall settings, on the same store."""
        return replace(self, name=name, settings=msgspec.structs.replace(self.settings, **changes))

    def with_storage(self, name: str, **changes: Any) -> "Variant":
        """Return this variant with other settings for what is stored, on a store of its own."""
        return Variant(name, name, msgspec.structs.replace(self.settings, **changes))


def configured_variant(*, significance: bool, age_window: bool) -> Variant:
    """Return the server's configuration, with the two filters on or off."""
    return Variant(
        "as configured",
        "as configured",
        CompanionSettings(
            significance_threshold=None if significance else 0.0,
            recall_any_age=not age_window,
            **TWO_PEOPLE,
        ),
    )


def ablation(*, age_window: bool) -> list[Variant]:
    """Return every improvement switched on in turn, then the other decay functions."""
    hybrid = Variant(
        "70/30 vector + keyword",
        "bare",
        CompanionSettings(
            recall_any_age=not age_window,
            **TWO_PEOPLE,
            significance_threshold=0.0,
            significance_weight=0.0,
            session_weight=0.0,
            time_weight=0.0,
            read_in_exchange=False,
            consolidate=False,
            recall_gate=False,
            recall_min_score=0.0,
            recall_min_share=0.0,
        ),
    )
    signals = hybrid.with_storage(
        "70/30, five signals decide what is kept",
        significance_threshold=None,
        significance=_SIGNALS_ONLY,
    )
    windowed = hybrid.with_storage("+ read in the exchange", read_in_exchange=True)
    learned = windowed.with_storage(
        "+ learned significance decides what is kept", significance_threshold=None
    )
    ranked = learned.with_recall("+ significance in the order", significance_weight=None)
    timed = ranked.with_recall("+ times that are asked for", time_weight=None)
    cohesive = timed.with_recall("+ the session they stand in", session_weight=None)
    merged = cohesive.with_storage("+ consolidation", consolidate=None)
    gated = merged.with_recall("+ recall gate", recall_gate=None, recall_min_score=None)
    trimmed = gated.with_recall("+ only what is near the best (all)", recall_min_share=None)
    return [
        hybrid.with_recall("vector alone", vector_weight=1.0, keyword_weight=0.0),
        hybrid.with_recall("keyword alone", vector_weight=0.0, keyword_weight=1.0),
        hybrid,
        signals,
        windowed,
        learned,
        ranked,
        timed,
        cohesive,
        merged,
        gated,
        trimmed,
        *(trimmed.with_recall(f"all, {name} decay", memory_decay=name) for name in _DECAYS),
    ]
