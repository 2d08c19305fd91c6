"""Companions: a persona, and the settings it may have of its own."""

import tomllib
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal

import msgspec
from msgspec import Meta
from pydantic import ValidationError

from foremind.errors import InvalidFile, InvalidMessage
from foremind.settings import Ahead, Decay, LayerName, Settings
from foremind.storable import check_storable

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


_LONGEST_SLUG = 128
_KINDS = {
    "identity": "who the user is: name, age, home, work",
    "preference": "what the user likes, dislikes, wants done or not done",
    "goal": "what the user wants to reach",
    "event": "what happened or will happen to the user, with its date",
    "relationship": "people and animals in the user's life",
    "other": "anything else that is worth knowing in a month",
}


class ScratchpadExample(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What was said, and the entry that it should become."""

    said: str
    kind: str
    entry: str


class ScratchpadRules(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """How a companion keeps its scratchpad: a prompt of its own, the kinds of entry, examples."""

    prompt: str | None = None
    kinds: dict[str, str] = msgspec.field(default_factory=lambda: dict(_KINDS))
    examples: tuple[ScratchpadExample, ...] = ()


class Behaviour(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """An instruction, and when it holds: every condition that is given must.

    `says` are words or phrases of which the message holds one; `recalls` is a layer that brought
    something back; `opening` is the first message of a session; `from_hour` to `to_hour` is the
    player's time of day, also across midnight. `after` runs it once the reply is over, apart from
    it, and the client is told what came of it.
    """

    name: str
    instruction: str
    says: tuple[str, ...] = ()
    recalls: LayerName | None = None
    opening: bool | None = None
    from_hour: Annotated[int, Meta(ge=0, le=23)] | None = None
    to_hour: Annotated[int, Meta(ge=0, le=23)] | None = None
    after: bool = False


class CompanionSettings(
    msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True
):
    """Settings of one companion; None means that the server's value holds.

    The names and units are those of `Settings`. `llm_key_env` names an environment variable,
    so that no key is kept in the database; `recall_any_age` switches the age window off;
    `shares_counts` lets users who agree be counted, and nothing else of them, with other users.
    """

    pause_ms: int | None = None
    eager: bool | None = None
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
    context_tokens: int | None = None
    working_tokens: int | None = None
    session_hours: float | None = None
    layers_off: frozenset[LayerName] | None = None
    layers_share: float | None = None
    layers_deadline_ms: int | None = None
    summary_tokens: int | None = None
    summary_messages: int | None = None
    topic_half_life_days: float | None = None
    retention_days: dict[str, float] | None = None
    shares_counts: bool = False
    scratchpad: ScratchpadRules = ScratchpadRules()
    behaviours: tuple[Behaviour, ...] = ()
    llm_url: str | None = None
    llm_model: str | None = None
    llm_key_env: str | None = None
    llm_tokenizer: str | None = None
    llm_max_tokens: int | None = None
    llm_temperature: float | None = None
    llm_ahead: Ahead | None = None


class CompanionFile(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A companion as it is written in a TOML file."""

    slug: str
    name: str
    persona: str
    greeting: str = ""
    settings: CompanionSettings = CompanionSettings()


@dataclass(frozen=True, slots=True)
class Companion:
    """A companion as it is stored; `version` rises with every change to it.

    Nobody talks with one that is `retired`; what was said to it stays its users'.
    """

    id: int
    slug: str
    name: str
    greeting: str
    persona: str
    settings: CompanionSettings
    version: int
    retired: bool = False


def read_companion(path: Path, server: Settings) -> CompanionFile:
    """Read a companion file, and check its settings as the server's own are checked.

    Raises:
        InvalidFile: naming the field and what was expected.
    """
    try:
        companion = msgspec.convert(tomllib.loads(path.read_text("utf-8")), CompanionFile)
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError, msgspec.ValidationError) as error:
        raise InvalidFile(f"{path}: {error}") from None
    try:
        check_storable(companion)
    except InvalidMessage as error:
        raise InvalidFile(f"{path}: {error.message}", param=error.param) from None
    wrong = wrong_field(companion, server)
    if wrong is not None:
        raise InvalidFile(f"{path}: {': '.join(wrong)}", param=wrong[0])
    return companion


def wrong_field(companion: CompanionFile, server: Settings) -> tuple[str, str] | None:
    """Return the name of a field that is wrong and what is wrong with it, or None."""
    slug = companion.slug
    if (
        not slug
        or not slug.replace("-", "").replace("_", "").isalnum()
        or len(slug) > _LONGEST_SLUG
    ):
        return "slug", f"expected at most {_LONGEST_SLUG} letters, digits, '-' and '_'"
    for field in ("name", "persona"):
        if not getattr(companion, field).strip():
            return field, "expected some text"
    problem = problem_with(companion.settings, server)
    return None if problem is None else ("settings", problem)


def problem_with(own: CompanionSettings, server: Settings) -> str | None:
    """Let the server's own validation judge values that are laid over its; None where they fit."""
    given = {
        name: value
        for name in own.__struct_fields__
        if name in Settings.model_fields and (value := getattr(own, name)) is not None
    }
    try:
        Settings.model_validate({**server.model_dump(), **given})
    except ValidationError as error:
        first = error.errors()[0]
        return f"{'.'.join(str(part) for part in first['loc'])}: {first['msg']}"
    return None
