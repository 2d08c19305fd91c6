"""The settings in force: turn over relationship over companion over server. Pure."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

import msgspec

from foremind.companions import (
    Behaviour,
    CompanionSettings,
    ScratchpadRules,
    SignificanceRules,
    problem_with,
)
from foremind.errors import InvalidMessage
from foremind.settings import Decay, LayerName, Settings

# What says where words come from and who else counts is the operator's alone.
OPERATORS = frozenset(
    {
        "llm_url",
        "llm_model",
        "llm_key_env",
        "llm_tokenizer",
        "llm_ahead",
        "shares_counts",
        "behaviours",
    }
)


@dataclass(frozen=True, slots=True)
class RecallPolicy:
    """What a search may return and in which order; names and units are those of `Settings`."""

    vector_weight: float
    keyword_weight: float
    significance_weight: float
    time_weight: float
    recency_weight: float
    user_weight: float
    significance_threshold: float
    permanent_significance: float
    decay: Decay
    max_age_days: float | None
    half_life_days: float
    gate: bool
    min_score: float
    limit: int


@dataclass(frozen=True, slots=True)
class StoragePolicy:
    """What becomes a memory, and how it is read."""

    threshold: float
    rules: SignificanceRules
    read_in_exchange: bool
    consolidate: bool


@dataclass(frozen=True, slots=True)
class LayerPolicy:
    """What the layers of memory may take, and how long things live; sizes are tokens."""

    off: frozenset[LayerName]
    context_tokens: int
    share: float
    working_tokens: int
    reply_tokens: int
    tokenizer: str | None
    deadline_s: float
    session: timedelta
    summary_tokens: int
    summary_messages: int
    topic_half_life: timedelta
    retention: dict[str, timedelta]
    scratchpad: ScratchpadRules
    behaviours: tuple[Behaviour, ...]
    shares_counts: bool

    def on(self, layer: LayerName) -> bool:
        """Tell whether a layer is switched on."""
        return layer not in self.off


@dataclass(frozen=True, slots=True)
class Policy:
    """The settings in force, for one relationship or one turn."""

    pause_s: float
    eager: bool
    recall: RecallPolicy
    storage: StoragePolicy
    layers: LayerPolicy


def policy_for(companion: CompanionSettings, server: Settings) -> Policy:
    """Lay a companion's settings over the server's."""

    def pick(name: str) -> Any:
        own = getattr(companion, name)
        return getattr(server, name) if own is None else own

    return Policy(
        pause_s=pick("pause_ms") / 1000,
        eager=pick("eager"),
        recall=RecallPolicy(
            vector_weight=pick("vector_weight"),
            keyword_weight=pick("keyword_weight"),
            significance_weight=pick("significance_weight"),
            time_weight=pick("time_weight"),
            recency_weight=pick("recency_weight"),
            user_weight=pick("user_weight"),
            significance_threshold=pick("significance_threshold"),
            permanent_significance=pick("permanent_significance"),
            decay=pick("memory_decay"),
            max_age_days=_max_age(companion, pick),
            half_life_days=pick("memory_half_life_days"),
            gate=pick("recall_gate"),
            min_score=pick("recall_min_score"),
            limit=pick("recall_limit"),
        ),
        storage=StoragePolicy(
            threshold=pick("significance_threshold"),
            rules=companion.significance,
            read_in_exchange=pick("read_in_exchange"),
            consolidate=pick("consolidate"),
        ),
        layers=LayerPolicy(
            off=frozenset(pick("layers_off")),
            context_tokens=pick("context_tokens"),
            share=pick("layers_share"),
            working_tokens=pick("working_tokens"),
            reply_tokens=pick("llm_max_tokens"),
            tokenizer=None if pick("llm_tokenizer") is None else str(pick("llm_tokenizer")),
            deadline_s=pick("layers_deadline_ms") / 1000,
            session=timedelta(hours=pick("session_hours")),
            summary_tokens=pick("summary_tokens"),
            summary_messages=pick("summary_messages"),
            topic_half_life=timedelta(days=pick("topic_half_life_days")),
            retention={name: timedelta(days=days) for name, days in pick("retention_days").items()},
            scratchpad=companion.scratchpad,
            behaviours=companion.behaviours,
            shares_counts=companion.shares_counts,
        ),
    )


def laid_over(base: CompanionSettings, own: CompanionSettings) -> CompanionSettings:
    """Return `base` with what `own` gives; the narrower wins: turn, relationship, companion."""
    default = CompanionSettings()
    given = {
        name: value
        for name in own.__struct_fields__
        if (value := getattr(own, name)) != getattr(default, name)
    }
    return msgspec.structs.replace(base, **given) if given else base


def origins_of(
    levels: Mapping[str, CompanionSettings], server: Settings
) -> dict[str, dict[str, object]]:
    """Return each setting, its value in force and the level it comes from.

    Args:
        levels: by name, the narrowest first: what a relationship has of its own, a companion.

    Where the language model is, and its key, are the operator's own business.
    """
    listed: dict[str, dict[str, object]] = {}
    default = CompanionSettings()
    for name in default.__struct_fields__:
        if name in OPERATORS:
            continue
        level, value = next(
            (
                (level, getattr(own, name))
                for level, own in levels.items()
                if getattr(own, name) != getattr(default, name)
            ),
            ("server", getattr(server, name, getattr(default, name))),
        )
        listed[name] = {"value": value, "from": level}
    return listed


def settings_of_users(raw: object, server: Settings) -> CompanionSettings:
    """Read settings that a relationship or a turn has of its own.

    Raises:
        InvalidMessage: naming the field and what was expected.
    """
    try:
        own = msgspec.convert(raw, CompanionSettings)
    except msgspec.ValidationError as error:
        raise InvalidMessage(f"settings: {error}", param="settings") from None
    default = CompanionSettings()
    for name in OPERATORS:
        if getattr(own, name) != getattr(default, name):
            raise InvalidMessage(
                f"settings.{name}: expected a setting that is not the operator's",
                param=f"settings.{name}",
            )
    problem = problem_with(own, server)
    if problem is not None:
        raise InvalidMessage(f"settings.{problem}", param="settings")
    return own


def _max_age(companion: CompanionSettings, pick: Callable[[str], Any]) -> float | None:
    """Only the window has an edge; the other ways to fade have none."""
    if companion.recall_any_age or pick("memory_decay") != "window":
        return None
    age: float | None = pick("memory_max_age_days")
    return age
