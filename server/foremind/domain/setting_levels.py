"""Who may set what, for whom: the server, a companion, a relationship, a turn. Pure.

What a player may set is a short list, and nothing in it goes beyond what the operator chose: not
when it is set, and not when the operator chooses less afterwards.
"""

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import msgspec

from foremind.domain.companion import CompanionSettings, RelationshipSettings
from foremind.domain.errors import NOT_JSON, InvalidMessage
from foremind.domain.policy import laid_over, policy_for, value_of
from foremind.domain.setting_bounds import problem_with
from foremind.domain.settings import Settings
from foremind.domain.storable_text import check_storable

#: Where words come from and who else counts: set by the server and the companion alone.
OPERATORS = frozenset(
    {
        "llm_url",
        "llm_model",
        "llm_key_env",
        "llm_tokenizer",
        "llm_ahead",
        "shares_counts",
        "consent",
        "behaviours",
    }
)

#: What acts on one reply, and may therefore be set for one turn.
OF_A_TURN = frozenset(
    {
        "vector_weight",
        "keyword_weight",
        "significance_weight",
        "session_weight",
        "time_weight",
        "recency_weight",
        "user_weight",
        "permanent_significance",
        "memory_decay",
        "memory_max_age_days",
        "memory_half_life_days",
        "recall_any_age",
        "recall_gate",
        "recall_min_score",
        "recall_min_share",
        "recall_limit",
        "context_tokens",
        "working_tokens",
        "layers_off",
        "layers_share",
        "layers_deadline_ms",
        "topic_half_life_days",
        "llm_max_tokens",
        "llm_temperature",
    }
)

_LONGEST_NAME = 64  # of what is told back of a name that is none
_UNKNOWN = re.compile("Object contains unknown field `(.+?)`")


@dataclass(frozen=True, slots=True)
class PlayerBound:
    """How far a player's value may go.

    `within` returns the nearest value that is allowed beside the operator's; `expected` says it.
    """

    within: Callable[[Any, Any], Any]
    expected: str


_FREE = PlayerBound(lambda own, _: own, "any value")
_AT_MOST = PlayerBound(min, "at most {0}, which is the operator's")
_AT_LEAST = PlayerBound(max, "at least {0}, which is the operator's")
_ONLY_ON = PlayerBound(lambda own, wider: own or wider, "true, or nothing")
_ONLY_OFF = PlayerBound(lambda own, wider: own and wider, "false, or nothing")
_AND_MORE = PlayerBound(lambda own, wider: own | frozenset(wider), "{0} and any others")


def _no_longer(own: Mapping[str, float], wider: Mapping[str, float]) -> dict[str, float]:
    return {name: min(days, wider.get(name, days)) for name, days in own.items()}


def _no_rating(own: msgspec.Struct, wider: Any) -> msgspec.Struct:
    asks = getattr(own, "model", None) and not wider.model
    return msgspec.structs.replace(own, model=None) if asks else own


#: All that a player may set, for a relationship or (see `OF_A_TURN`) for a turn.
PLAYERS: Mapping[str, PlayerBound] = {
    "pause_ms": _AT_LEAST,
    "eager": _ONLY_OFF,
    "significance": PlayerBound(_no_rating, "no `model`, which is the operator's"),
    "significance_threshold": _AT_LEAST,
    "recall_any_age": _FREE,
    "memory_max_age_days": _FREE,
    "recall_gate": _ONLY_ON,
    "recall_min_score": _AT_LEAST,
    "recall_min_share": _AT_LEAST,
    "recall_limit": _AT_MOST,
    "layers_off": _AND_MORE,
    "layers_share": _AT_MOST,
    "context_tokens": _AT_MOST,
    "working_tokens": _AT_MOST,
    "retention_days": PlayerBound(_no_longer, "no more days than {0}, which are the operator's"),
    "llm_max_tokens": _AT_MOST,
    "llm_temperature": _FREE,
}


def in_force(
    companion: CompanionSettings, relationship: RelationshipSettings, server: Settings
) -> CompanionSettings:
    """Return what a relationship goes by: its user's settings, as far as the operator's let them.

    Over them the operator's for this relationship, over the companion's.
    """
    operators = laid_over(companion, relationship.operator)
    return laid_over(operators, bounded(relationship.user, operators, server))


def bounded(
    own: CompanionSettings, wider: CompanionSettings, server: Settings
) -> CompanionSettings:
    """Return a player's settings, each brought within what the operator's let it be."""
    kept: dict[str, Any] = {}
    for name, bound in PLAYERS.items():
        value, theirs = getattr(own, name), value_of(name, wider, server)
        within = None if value is None else bound.within(value, theirs)
        if within == value or within != theirs:  # else it adds nothing to the operator's
            kept[name] = within
    return CompanionSettings(**kept)


def values_of(raw: Mapping[str, msgspec.Raw]) -> dict[str, Any]:
    """Read the values that somebody sent, one by one, so that a wrong one has its name.

    Raises:
        InvalidMessage: naming the field and what was expected.
    """
    values = {}
    for name, value in raw.items():
        try:
            values[name] = msgspec.json.decode(value)
        except NOT_JSON as error:  # or a number that no machine holds
            raise _refused(name[:_LONGEST_NAME], str(error)) from None
    return values


def read_settings(raw: object) -> CompanionSettings:
    """Read settings that somebody sent.

    Raises:
        InvalidMessage: naming the field and what was expected.
    """
    try:
        own = msgspec.convert(raw, CompanionSettings)
    except msgspec.ValidationError as error:
        message = str(error)
        field = message.rpartition("$.")[2].rstrip("`") if "$." in message else ""
        field = field.partition("[")[0]
        unknown = _UNKNOWN.match(message)
        parts = [field, "" if unknown is None else unknown[1]]
        raise _refused(".".join(part for part in parts if part), message) from None
    problem = problem_with(own)
    if problem is not None:
        raise _refused(*problem)
    check_storable(own, "settings")
    return own


def check_player(
    own: CompanionSettings, names: Sequence[str], wider: CompanionSettings, server: Settings
) -> None:
    """Make sure that a player may set what it gives, beside what the operator's levels have.

    Args:
        names: the settings that are given.

    Raises:
        InvalidMessage: naming the field and its bound.
    """
    for name in names:
        bound = PLAYERS.get(name)
        if bound is None:
            allowed = ", ".join(sorted(PLAYERS))
            raise _refused(name, f"expected a setting that players may set: {allowed}")
        value, theirs = getattr(own, name), value_of(name, wider, server)
        if value is not None and bound.within(value, theirs) != value:
            raise _refused(name, f"expected {bound.expected.format(_shown(theirs))}")


def check_relationship(
    own: CompanionSettings, names: Sequence[str], companion: CompanionSettings, server: Settings
) -> None:
    """Make sure that a relationship may have settings, and that they can be gone by.

    Raises:
        InvalidMessage: naming the field.
    """
    for name in names:
        if name in OPERATORS:
            raise _refused(name, "expected a setting that a relationship may have")
    try:
        policy_for(laid_over(companion, own), server)
    except (ValueError, ArithmeticError) as error:
        raise InvalidMessage(f"settings: {error}", param="settings") from None


def settings_of_turn(
    raw: Mapping[str, msgspec.Raw],
    wider: CompanionSettings,
    server: Settings,
    operators: CompanionSettings | None,
) -> CompanionSettings:
    """Read the settings of a turn and lay them over those in force.

    Args:
        wider: the settings in force without them.
        operators: what bounds a player's, who may go beyond settings of its own; None is no player.

    Raises:
        InvalidMessage: naming the field and what was expected.
    """
    own = read_settings(values_of(raw))
    names = given_in(own)
    for name in names:
        if name not in OF_A_TURN:
            raise _refused(name, "expected a setting that one turn may have")
    if operators is not None:
        check_player(own, names, operators, server)
    return laid_over(wider, own)


def given_in(own: CompanionSettings) -> list[str]:
    """Return the names of what is set."""
    return [name for name in own.__struct_fields__ if getattr(own, name) is not None]


def changed(own: CompanionSettings, patch: Mapping[str, Any]) -> CompanionSettings:
    """Return settings after a JSON merge patch (RFC 7396): null takes something away.

    Raises:
        InvalidMessage: naming the field and what was expected.
    """
    for name in patch:
        if name not in own.__struct_fields__:
            raise _refused(name[:_LONGEST_NAME], "expected the name of a setting")
    return read_settings(_patched(msgspec.to_builtins(own), patch))


def _patched(whole: Any, patch: Any) -> Any:
    if not isinstance(patch, Mapping):
        return patch
    result = dict(whole) if isinstance(whole, Mapping) else {}
    for name, value in patch.items():
        if value is None:
            result.pop(name, None)
        else:
            result[name] = _patched(result.get(name), value)
    return result


def origins_of(
    companion: CompanionSettings, relationship: RelationshipSettings, server: Settings
) -> dict[str, dict[str, object]]:
    """Return each setting, its value in force and the narrowest level that it comes from.

    Where the language model is, and its key, are the operator's own business.
    """
    operators = laid_over(companion, relationship.operator)
    user = bounded(relationship.user, operators, server)
    whole = laid_over(operators, user)
    levels = {"relationship": laid_over(relationship.operator, user), "companion": companion}
    return {
        name: {
            "value": value_of(name, whole, server),
            "from": next(
                (level for level, own in levels.items() if getattr(own, name) is not None), "server"
            ),
        }
        for name in whole.__struct_fields__
        if name not in OPERATORS
    }


def _shown(value: object) -> str:
    if isinstance(value, frozenset):
        return str(sorted(value))
    return str(value)


def _refused(field: str, message: str) -> InvalidMessage:
    path = f"settings.{field}" if field else "settings"
    return InvalidMessage(f"{path}: {message}", param=path)
