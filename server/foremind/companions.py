"""Companions: a persona, and the settings it may have of its own."""

import tomllib
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal

import msgspec
from msgspec import Meta

from foremind.errors import InvalidFile
from foremind.settings import Decay, Settings

SignalName = Literal["phrase", "emotion", "commitment", "question", "long"]
FloorName = Literal["identity", "goal", "constraint", "preference"]
Share = Annotated[float, Meta(ge=0, le=1)]


class SignificanceRules(
    msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True
):
    """What matters to one companion, beside what matters to all; scores are 0 to 1.

    `phrases` are floors for turns that hold them; `signals` and `floors` change the published
    weights by name; `learned` switches the learned head; `model` lets the language model rate
    what was kept, or nearly, from 1 to 10, afterwards.
    """

    phrases: dict[str, Share] = {}
    signals: dict[SignalName, Share] = {}
    floors: dict[FloorName, Share] = {}
    learned: bool = True
    model: bool = False


class CompanionSettings(
    msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True
):
    """Settings of one companion; None means that the server's value holds.

    The names and units are those of `Settings`. `llm_key_env` names an environment variable,
    so that no key is kept in the database; `recall_any_age` switches the age window off.
    """

    pause_ms: int | None = None
    vector_weight: float | None = None
    keyword_weight: float | None = None
    significance_threshold: float | None = None
    significance: SignificanceRules = SignificanceRules()
    significance_weight: float | None = None
    time_weight: float | None = None
    memory_decay: Decay | None = None
    memory_max_age_days: float | None = None
    memory_half_life_days: float | None = None
    recency_weight: float | None = None
    permanent_significance: float | None = None
    user_weight: float | None = None
    read_in_exchange: bool | None = None
    consolidate: bool | None = None
    recall_any_age: bool = False
    recall_gate: bool | None = None
    recall_min_score: float | None = None
    recall_limit: int | None = None
    history_turns: int | None = None
    context_tokens: int | None = None
    llm_url: str | None = None
    llm_model: str | None = None
    llm_key_env: str | None = None
    llm_max_tokens: int | None = None
    llm_temperature: float | None = None


class CompanionFile(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A companion as it is written in a TOML file."""

    slug: str
    name: str
    persona: str
    greeting: str = ""
    settings: CompanionSettings = CompanionSettings()


@dataclass(frozen=True, slots=True)
class Companion:
    """A companion as it is stored; `version` rises with every change to it."""

    id: int
    slug: str
    name: str
    greeting: str
    persona: str
    settings: CompanionSettings
    version: int


_OPERATORS = frozenset({"llm_url", "llm_model", "llm_key_env"})


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
class Policy:
    """The settings in force for one companion on this server."""

    pause_s: float
    recall: RecallPolicy
    storage: StoragePolicy
    history_turns: int
    context_tokens: int


def policy_for(companion: CompanionSettings, server: Settings) -> Policy:
    """Lay a companion's settings over the server's."""

    def pick(name: str) -> Any:
        own = getattr(companion, name)
        return getattr(server, name) if own is None else own

    return Policy(
        pause_s=pick("pause_ms") / 1000,
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
        history_turns=pick("history_turns"),
        context_tokens=pick("context_tokens"),
    )


def origins_of(companion: CompanionSettings, server: Settings) -> dict[str, dict[str, object]]:
    """Return each setting that a companion may have, its value in force and where it comes from.

    Where the language model is, and its key, are the operator's own business.
    """
    listed: dict[str, dict[str, object]] = {}
    for name in companion.__struct_fields__:
        if name in _OPERATORS:
            continue
        own, default = getattr(companion, name), getattr(CompanionSettings(), name)
        given = own != default
        value = own if given or name not in Settings.model_fields else getattr(server, name)
        listed[name] = {"value": value, "from": "companion" if given else "server"}
    return listed


def _max_age(companion: CompanionSettings, pick: Callable[[str], Any]) -> float | None:
    """Only the window has an edge; the other ways to fade have none."""
    if companion.recall_any_age or pick("memory_decay") != "window":
        return None
    age: float | None = pick("memory_max_age_days")
    return age


def read_companion(path: Path, server: Settings) -> CompanionFile:
    """Read a companion file, and check its settings as the server's own are checked.

    Raises:
        InvalidFile: naming the field and what was expected.
    """
    try:
        companion = msgspec.convert(tomllib.loads(path.read_text("utf-8")), CompanionFile)
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError, msgspec.ValidationError) as error:
        raise InvalidFile(f"{path}: {error}") from None
    if not companion.slug or not companion.slug.replace("-", "").replace("_", "").isalnum():
        raise InvalidFile(f"{path}: slug: expected letters, digits, '-' and '_'", param="slug")
    for field in ("name", "persona"):
        if not getattr(companion, field).strip():
            raise InvalidFile(f"{path}: {field}: expected some text", param=field)
    _check_ranges(path, companion.settings, server)
    return companion


def _check_ranges(path: Path, own: CompanionSettings, server: Settings) -> None:
    """Let the server's own validation judge the values that a companion overrides."""
    given = {
        name: value
        for name in own.__struct_fields__
        if name in Settings.model_fields and (value := getattr(own, name)) is not None
    }
    try:
        Settings.model_validate({**server.model_dump(), **given})
    except ValueError as error:
        raise InvalidFile(f"{path}: settings: {error}") from None
