"""What an evaluation compares: the improvements, switched on one after the other."""

from dataclasses import dataclass, replace
from typing import Any

import msgspec

from foremind.domain.companion import CompanionSettings, SignificanceRules

_SIGNALS_ALONE = SignificanceRules(
    floors={"identity": 0.0, "goal": 0.0, "constraint": 0.0, "preference": 0.0, "answer": 0.0},
    learned=False,
)


@dataclass(frozen=True, slots=True)
class Variant:
    """A companion's settings under a name; those with an equal `telling` store alike."""

    name: str
    telling: str
    settings: CompanionSettings

    def asked_with(self, name: str, **changes: Any) -> "Variant":
        """Return this variant with other settings for recall."""
        return replace(self, name=name, settings=_changed(self.settings, changes))

    def told_with(self, name: str, **changes: Any) -> "Variant":
        """Return this variant with other settings for storing."""
        return Variant(name, name, _changed(self.settings, changes))


def one_variant(*, significance: bool, age_window: bool) -> Variant:
    """Return the server's own way, with the two filters on or off."""
    return Variant(
        "as configured",
        "as configured",
        CompanionSettings(
            significance_threshold=None if significance else 0.0, recall_any_age=not age_window
        ),
    )


def ablation(*, age_window: bool) -> list[Variant]:
    """Return every improvement switched on in turn, then the other ways to fade."""
    hybrid = Variant(
        "70/30 vector + keyword",
        "bare",
        CompanionSettings(
            recall_any_age=not age_window,
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
    signals = hybrid.told_with(
        "70/30, five signals decide what is kept",
        significance_threshold=None,
        significance=_SIGNALS_ALONE,
    )
    exchange = hybrid.told_with("+ read in the exchange", read_in_exchange=True)
    learned = exchange.told_with(
        "+ learned significance decides what is kept", significance_threshold=None
    )
    ranked = learned.asked_with("+ significance in the order", significance_weight=None)
    timed = ranked.asked_with("+ times that are asked for", time_weight=None)
    together = timed.asked_with("+ the session they stand in", session_weight=None)
    merged = together.told_with("+ consolidation", consolidate=None)
    gated = merged.asked_with("+ recall gate", recall_gate=None, recall_min_score=None)
    helpful = gated.asked_with("+ only what is near the best (all)", recall_min_share=None)
    return [
        hybrid.asked_with("vector alone", vector_weight=1.0, keyword_weight=0.0),
        hybrid.asked_with("keyword alone", vector_weight=0.0, keyword_weight=1.0),
        hybrid,
        signals,
        exchange,
        learned,
        ranked,
        timed,
        together,
        merged,
        gated,
        helpful,
        *(helpful.asked_with(f"all, {name} decay", memory_decay=name) for name in _DECAYS),
    ]


_DECAYS = ("half_life", "hourly", "product")


def _changed(settings: CompanionSettings, changes: dict[str, Any]) -> CompanionSettings:
    return msgspec.structs.replace(settings, **changes)
