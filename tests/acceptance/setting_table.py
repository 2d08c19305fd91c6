"""A table of all settings with levels: a value for each level, and where it takes effect."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any

from foremind.domain.companion_rules import (
    KINDS,
    PROFILE_SLOTS,
    Behaviour,
    ProfileRules,
    ProfileSlot,
    Prompts,
    ScratchpadRules,
    SignificanceRules,
)
from foremind.domain.policy import Policy

_PIRATE = ("pirate", "Answer like a pirate.")
_BOAT = {"boat": ProfileSlot("what she sails")}
_EXAMPLE = {"said": "No onions", "kind": "food", "entry": "Eats no onions"}


@dataclass(frozen=True, slots=True)
class SettingRow:
    """A value of a setting for each level, and the effective value that results.

    Attributes:
        effective: reads the effective value from a policy.
        values: the values to set by level, the widest level first, without the levels on which
            the setting may not be set.
        merged: the effective values by level where they differ from the value that is set.
    """

    effective: Callable[[Policy], Any]
    values: Mapping[str, Any]
    merged: Mapping[str, Any] = field(default_factory=dict)

    def expected(self, level: str) -> Any:
        """Return the effective value while `level` is the narrowest that sets it."""
        return self.merged.get(level, self.values[level])


def _row(effective: Callable[[Policy], Any], *values: Any, **merged: Any) -> SettingRow:
    levels = ("server", "companion", "relationship", "turn")
    return SettingRow(effective, dict(zip(levels, values, strict=False)), merged)


def _row_without_server(
    effective: Callable[[Policy], Any], *values: Any, **merged: Any
) -> SettingRow:
    levels = ("companion", "relationship", "turn")
    return SettingRow(effective, dict(zip(levels, values, strict=False)), merged)


def _hours(p: Policy) -> float:
    return p.layers.session / timedelta(hours=1)


def _days(p: Policy) -> Mapping[str, float]:
    return {name: age / timedelta(days=1) for name, age in p.layers.retention.items()}


def setting_rows(urls: tuple[str, str], tokenizers: tuple[str, str]) -> dict[str, SettingRow]:
    """Return a row for every setting, by its name.

    Args:
        urls: two base URLs of a model server.
        tokenizers: two paths of a tokenizer.
    """
    return {
        "pause_ms": _row(lambda p: round(p.pause_s * 1000), 400, 300, 600),
        "eager": _row(lambda p: p.eager, False, True, False),
        "vector_weight": _row(lambda p: p.recall.vector_weight, 0.1, 0.2, 0.3, 0.4),
        "keyword_weight": _row(lambda p: p.recall.keyword_weight, 0.1, 0.2, 0.4, 0.5),
        "significance_threshold": _row(lambda p: p.storage.threshold, 0.1, 0.2, 0.4),
        "significance": _row_without_server(
            lambda p: p.storage.rules,
            {"phrases": {"moon": 0.7}, "model": True, "floors": {"goal": 0.1}},
            {"phrases": {"sun": 0.6}, "learned": False, "model": False},
            companion=SignificanceRules({"moon": 0.7}, {}, {"goal": 0.1}, True, True),
            relationship=SignificanceRules(
                {"moon": 0.7, "sun": 0.6}, {}, {"goal": 0.1}, False, False
            ),
        ),
        "significance_weight": _row(lambda p: p.recall.significance_weight, 0.1, 0.2, 0.3, 0.4),
        "session_weight": _row(lambda p: p.recall.session_weight, 0.1, 0.3, 0.4, 0.5),
        "time_weight": _row(lambda p: p.recall.time_weight, 0.1, 0.3, 0.4, 0.5),
        "memory_decay": _row(lambda p: p.recall.decay, "half_life", "window", "hourly", "product"),
        "memory_max_age_days": _row(lambda p: p.recall.max_age_days, 10, 20, 30, 40),
        "memory_half_life_days": _row(lambda p: p.recall.half_life_days, 10, 20, 30, 40),
        "recency_weight": _row(lambda p: p.recall.recency_weight, 0.2, 0.3, 0.4, 0.5),
        "permanent_significance": _row(
            lambda p: p.recall.permanent_significance, 0.5, 0.6, 0.7, 0.8
        ),
        "user_weight": _row(lambda p: p.recall.user_weight, 0.5, 0.6, 0.7, 0.8),
        "read_in_exchange": _row(lambda p: p.storage.read_in_exchange, False, True, False),
        "consolidate": _row(lambda p: p.storage.consolidate, False, True, False),
        "remember_replies": _row(lambda p: p.storage.remember_replies, "all", "none", "all"),
        "recall_any_age": _row_without_server(
            lambda p: p.recall.max_age_days is None, True, False, True
        ),
        "recall_gate": _row(lambda p: p.recall.gate, False, True, False, True),
        "recall_min_score": _row(lambda p: p.recall.min_score, 0.2, 0.3, 0.4, 0.5),
        "recall_min_share": _row(lambda p: p.recall.min_share, 0.1, 0.2, 0.3, 0.4),
        "recall_limit": _row(lambda p: p.recall.limit, 1, 2, 3, 4),
        "context_tokens": _row(lambda p: p.layers.context_tokens, 4000, 5000, 6000, 7000),
        "working_tokens": _row(lambda p: p.layers.working_tokens, 1000, 2000, 3000, 4000),
        "session_hours": _row(_hours, 1, 2, 3),
        "layers_off": _row(
            lambda p: sorted(p.layers.off), ["hot"], ["topics"], ["vault"], ["library"]
        ),
        "layers_share": _row(lambda p: p.layers.share, 0.1, 0.3, 0.4, 0.5),
        "layers_deadline_ms": _row(lambda p: round(p.layers.deadline_s * 1000), 500, 600, 700, 800),
        "summary_tokens": _row(lambda p: p.layers.summary_tokens, 1000, 2000, 3000),
        "summary_messages": _row(lambda p: p.layers.summary_messages, 30, 40, 50),
        "topic_half_life_days": _row(
            lambda p: p.layers.topic_half_life / timedelta(days=1), 10, 20, 30, 40
        ),
        "retention_days": _row(
            _days,
            {"hot": 9, "vault": 9},
            {"vault": 8, "topics": 8},
            {"topics": 7},
            companion={"hot": 9, "vault": 8, "topics": 8},
            relationship={"hot": 9, "vault": 8, "topics": 7},
        ),
        "consent": _row_without_server(lambda p: p.consent, "required"),
        "emotions": _row_without_server(lambda p: p.layers.emotions, ("calm", "happy")),
        "scratchpad": _row_without_server(
            lambda p: p.layers.scratchpad,
            {"prompt": "Note pets.", "examples": [_EXAMPLE]},
            {"prompt": "Note food.", "kinds": {"food": "meals"}},
            companion=ScratchpadRules(
                "Note pets.", KINDS, _converted(ScratchpadRules, {"examples": [_EXAMPLE]}).examples
            ),
            relationship=ScratchpadRules(
                "Note food.",
                {"food": "meals"},
                _converted(ScratchpadRules, {"examples": [_EXAMPLE]}).examples,
            ),
        ),
        "profile": _row_without_server(
            lambda p: p.layers.profile,
            {"prompt": "Sailors.", "slots": {"boat": {"description": "what she sails"}}},
            {"only": True, "slots": {"rank": {"description": "bosun", "kind": "identity"}}},
            companion=ProfileRules("Sailors.", PROFILE_SLOTS | _BOAT, False, ()),
            relationship=ProfileRules(
                "Sailors.", _BOAT | {"rank": ProfileSlot("bosun", "identity")}, True, ()
            ),
        ),
        "prompts": _row_without_server(
            lambda p: p.layers.prompts,
            {"summary": "Two lines.", "hot": "In verse."},
            {"hot": "In prose.", "topics": "Short."},
            companion=Prompts("Two lines.", hot="In verse."),
            relationship=Prompts("Two lines.", topics="Short.", hot="In prose."),
        ),
        "behaviours": _row_without_server(
            lambda p: p.layers.behaviours,
            [{"name": _PIRATE[0], "instruction": _PIRATE[1]}],
            companion=(Behaviour(*_PIRATE),),
        ),
        "llm_url": _row(lambda p: p.chat_model.url, *urls),
        "llm_model": _row(lambda p: p.chat_model.model, "one", "two"),
        "llm_key_env": _row_without_server(lambda p: p.chat_model.key_env, "FOREMIND_LLM_KEY_MARA"),
        "llm_tokenizer": _row(lambda p: p.layers.tokenizer, *tokenizers),
        "llm_max_tokens": _row(lambda p: p.chat_model.max_tokens, 101, 102, 103, 104),
        "llm_temperature": _row(lambda p: p.chat_model.temperature, 0.1, 0.2, 0.3, 0.4),
        "llm_ahead": _row(lambda p: p.chat_model.ahead, "prefill", "off"),
        "llm_extra": _row(
            lambda p: p.chat_model.extra, {"top_p": 0.9}, {"top_p": 0.5, "stop": ["Ana:"]}
        ),
        "llm_tools": _row(lambda p: p.chat_model.tools, True, True),
        "llm_background": _row(lambda p: p.chat_model.background, False, True),
        "llm_tokens_per_day": _row(lambda p: p.chat_model.tokens_per_day, 5_000, 9_000),
    }


def _converted(shape: type[Any], raw: object) -> Any:
    import msgspec  # noqa: PLC0415

    return msgspec.convert(raw, shape)
