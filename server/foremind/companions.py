"""Companions: a persona, and the settings it may have of its own."""

import tomllib
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec

from foremind.errors import InvalidFile
from foremind.settings import Settings


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
    memory_max_age_days: float | None = None
    recall_any_age: bool = False
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


@dataclass(frozen=True, slots=True)
class RecallPolicy:
    """What a search may return: the weights sum as given, ages are days, None is no limit."""

    vector_weight: float
    keyword_weight: float
    significance_threshold: float
    max_age_days: float | None
    limit: int


@dataclass(frozen=True, slots=True)
class Policy:
    """The settings in force for one companion on this server."""

    pause_s: float
    recall: RecallPolicy
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
            significance_threshold=pick("significance_threshold"),
            max_age_days=None if companion.recall_any_age else pick("memory_max_age_days"),
            limit=pick("recall_limit"),
        ),
        history_turns=pick("history_turns"),
        context_tokens=pick("context_tokens"),
    )


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
