"""Resolves the effective settings: turn over relationship over companion over server. Pure."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields
from datetime import UTC, datetime, timedelta
from typing import Any, TypeVar

import msgspec

from foremind.domain.companion_rules import (
    KINDS,
    Behaviour,
    ProfileRules,
    ProfileSlot,
    Prompts,
    ScratchpadRules,
    SignificanceRules,
    profile_slots,
)
from foremind.domain.record import RECORD_LAYERS
from foremind.domain.settings.setting_definitions import (
    ALL,
    EXPIRING_NAMES,
    Ahead,
    Consent,
    Decay,
    ExpiringName,
    LayerName,
    RememberReplies,
)
from foremind.domain.settings.settings import (
    LEVEL_SETTINGS,
    SERVER_SETTINGS,
    CompanionSettings,
    NarrowSettings,
    Settings,
)

# Of the settings that the server has no setting for.
_DEFAULTS = NarrowSettings()

_NO_LIMIT = datetime.min.replace(tzinfo=UTC)
_CANDIDATES = 40
# The published product of similarity, importance, weight and recency ranks about 300.
_PRODUCT_CANDIDATES = 150


@dataclass(frozen=True, slots=True)
class RecallPolicy:
    """Limits and weights of a search; names and units are those of `Settings`.

    `in_world`: what is searched was witnessed in a world. The words that nearly all of it contains
    are not searched for beside others, and its places count.
    """

    vector_weight: float
    keyword_weight: float
    significance_weight: float
    session_weight: float
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
    min_share: float
    limit: int
    in_world: bool = False

    @property
    def candidate_limit(self) -> int:
        """The number of candidates of each of the two searches, vector and lexical."""
        return _PRODUCT_CANDIDATES if self.decay == "product" else _CANDIDATES

    def oldest_recalled(self, now: datetime) -> datetime:
        """Return the earliest `created_at` that may be recalled at `now`."""
        if self.max_age_days is None:
            return _NO_LIMIT
        oldest = max(_NO_LIMIT.timestamp(), now.timestamp() - self.max_age_days * 86_400)
        return datetime.fromtimestamp(oldest, UTC)


@dataclass(frozen=True, slots=True)
class StoragePolicy:
    """What becomes a memory, and how it is indexed."""

    threshold: float
    rules: SignificanceRules
    read_in_exchange: bool
    consolidate: bool
    remember_replies: RememberReplies


@dataclass(frozen=True, slots=True)
class LayerPolicy:
    """Token budgets of the memory layers, retention, and rules for writing them.

    `scratchpad` and `profile` are complete: they include the default kinds and slots. `retention`
    has whatever expires by name, also what the settings call `all`.
    """

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
    retention: Mapping[ExpiringName, timedelta]
    scratchpad: ScratchpadRules
    profile: ProfileRules
    prompts: Prompts
    behaviours: tuple[Behaviour, ...]
    emotions: tuple[str, ...]

    def on(self, layer: LayerName) -> bool:
        """Return whether a layer is enabled."""
        return layer not in self.off

    @property
    def expires_sources_only(self) -> bool:
        """Whether memories or the transcript expire, but nothing that is derived from them."""
        return bool(self.retention) and self.retention.keys().isdisjoint(RECORD_LAYERS)

    @property
    def kinds(self) -> Mapping[str, str]:
        """The kinds of note, with what each is for."""
        return self.scratchpad.kinds or {}

    @property
    def slots(self) -> Mapping[str, ProfileSlot]:
        """The slots of the profile, in order."""
        return self.profile.slots or {}


@dataclass(frozen=True, slots=True)
class ChatModelPolicy:
    """The chat model and its parameters; names and units are those of `Settings`.

    `key_env` names the environment variable with a companion's own API key; `own` those of the
    settings of the model that are not the server's, so that a failure names the right ones, and a
    companion's own `tokens_per_day` counts only what is said to it.
    """

    url: str | None
    model: str
    key_env: str | None
    max_tokens: int
    temperature: float
    ahead: Ahead
    own: frozenset[str] = frozenset()
    tokenizer: str | None = None
    tokens_per_day: int | None = None
    extra: Mapping[str, Any] = field(default_factory=dict, hash=False)
    tools: bool = False
    background: bool = True


@dataclass(frozen=True, slots=True)
class Policy:
    """The effective settings of a relationship or a turn."""

    pause_s: float
    eager: bool
    consent: Consent
    recall: RecallPolicy
    storage: StoragePolicy
    layers: LayerPolicy
    chat_model: ChatModelPolicy


_MODEL_SETTINGS = ("llm_url", "llm_model", "llm_key_env", "llm_extra", "llm_tokens_per_day")
_Part = TypeVar("_Part", RecallPolicy, StoragePolicy, LayerPolicy, ChatModelPolicy)
# What the name of a setting may have before the name of the field that holds its value.
_PREFIXES: Mapping[type, tuple[str, ...]] = {
    RecallPolicy: ("", "recall_", "memory_"),
    StoragePolicy: ("", "significance_"),
    LayerPolicy: ("", "layers_", "llm_"),
    ChatModelPolicy: ("llm_",),
}
_SETTINGS_OF = {
    part: {
        member.name: prefix + member.name
        for member in fields(part)
        for prefix in prefixes
        if prefix + member.name in LEVEL_SETTINGS
    }
    for part, prefixes in _PREFIXES.items()
}


def policy_for(own: CompanionSettings, server: Settings) -> Policy:
    """Return the policy of merged companion, relationship and turn settings over the server's."""

    def pick(name: str) -> Any:
        return effective_value(name, own, server)

    return Policy(
        pause_s=pick("pause_ms") / 1000,
        eager=pick("eager"),
        consent=pick("consent"),
        recall=_part(RecallPolicy, pick, max_age_days=_max_age(pick)),
        storage=_part(StoragePolicy, pick, rules=pick("significance")),
        layers=_part(
            LayerPolicy,
            pick,
            reply_tokens=pick("llm_max_tokens"),
            deadline_s=pick("layers_deadline_ms") / 1000,
            session=timedelta(hours=pick("session_hours")),
            topic_half_life=timedelta(days=pick("topic_half_life_days")),
            retention=_retention(pick("retention_days")),
        ),
        chat_model=_part(
            ChatModelPolicy,
            pick,
            url=pick("llm_url") or None,
            own=frozenset(name for name in _MODEL_SETTINGS if getattr(own, name) is not None),
        ),
    )


def _part(part: type[_Part], pick: Callable[[str], Any], **computed: object) -> _Part:
    """Return a part of a policy: the settings that its fields name, and what is computed."""
    picked = {
        member: pick(name) for member, name in _SETTINGS_OF[part].items() if member not in computed
    }
    return part(**picked, **computed)  # type: ignore[arg-type] # the setting's type is the field's


def _retention(days: Mapping[str, float]) -> dict[ExpiringName, timedelta]:
    return {
        name: timedelta(days=age)
        for name in EXPIRING_NAMES
        if (age := days.get(name, days.get(ALL))) is not None
    }


def effective_value(name: str, own: CompanionSettings, server: Settings) -> Any:
    """Return the effective value of a setting; structs and mappings are complete."""
    value = getattr(own, name)
    wider = getattr(server if name in SERVER_SETTINGS else _DEFAULTS, name)
    merged = _merged(wider, value, name)
    if name == "scratchpad" and merged.kinds is None:
        return msgspec.structs.replace(merged, kinds=KINDS)
    if name == "profile":
        return msgspec.structs.replace(merged, slots=profile_slots(merged))
    return merged


def overlay_settings(base: CompanionSettings, own: CompanionSettings) -> CompanionSettings:
    """Return `base` overridden by `own`, the narrower level.

    Structs and mappings are merged recursively; lists are replaced as a whole.
    """
    merged: CompanionSettings = _merged(base, own)
    return merged


def _merged(wider: Any, narrower: Any, setting: str = "") -> Any:
    if narrower is None:
        return wider
    if isinstance(wider, msgspec.Struct) and isinstance(narrower, msgspec.Struct):
        overrides = {
            name: _merged(getattr(wider, name), value, name)
            for name in narrower.__struct_fields__
            if (value := getattr(narrower, name)) is not None
        }
        return msgspec.structs.replace(wider, **overrides) if overrides else wider
    if isinstance(wider, dict) and isinstance(narrower, dict):
        if setting == "retention_days" and ALL in narrower:
            # It is for what the wider level names, too, unless that is kept for less time.
            wider = {name: min(days, narrower[ALL]) for name, days in wider.items()}
        return wider | narrower
    return narrower


def _max_age(pick: Callable[[str], Any]) -> float | None:
    """Return the age limit, which only the `window` decay has."""
    if pick("recall_any_age") or pick("memory_decay") != "window":
        return None
    max_age_days: float | None = pick("memory_max_age_days")
    return max_age_days
