"""Which settings each level may set: server, companion, relationship, turn. Pure.

Players may set a short list of settings, and never beyond the operator's values: neither when they
set them, nor when the operator lowers a value afterwards.
"""

import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import msgspec

from foremind.domain.errors import NOT_JSON, InvalidMessage
from foremind.domain.field_problems import field_problem, printable, unknown_name, whole_number
from foremind.domain.policy import effective_value, overlay_settings, policy_for
from foremind.domain.settings.settings import (
    LEVEL_SETTINGS,
    CompanionSettings,
    PlayerBound,
    RelationshipSettings,
    Settings,
)
from foremind.domain.storable_text import check_storable

#: Settings that only the server and the companion may have: the model, consent, behaviours.
OPERATOR_SETTINGS = frozenset(
    name for name, setting in LEVEL_SETTINGS.items() if setting.narrowest == "companion"
)
#: Settings that affect a single reply, and may therefore be set for one turn.
TURN_SETTINGS = frozenset(
    name for name, setting in LEVEL_SETTINGS.items() if setting.narrowest == "turn"
)
#: The settings that a player may set, for a relationship or (see `TURN_SETTINGS`) for a turn.
PLAYER_BOUNDS: Mapping[str, PlayerBound] = {
    name: setting.player for name, setting in LEVEL_SETTINGS.items() if setting.player is not None
}

_MAX_PATH_CHARS = 200  # of a field that an error names


def effective_settings(
    companion: CompanionSettings, relationship: RelationshipSettings, server: Settings
) -> CompanionSettings:
    """Return the settings of a relationship over those of its companion.

    The user's settings, clamped to the operator's, override the operator's settings of the
    relationship, which override the companion's.
    """
    operators = overlay_settings(companion, relationship.operator)
    return overlay_settings(operators, clamped(relationship.user, operators, server))


def clamped(
    own: CompanionSettings, wider: CompanionSettings, server: Settings
) -> CompanionSettings:
    """Return a player's settings, each clamped to the operator's."""
    kept: dict[str, Any] = {}
    for name, bound in PLAYER_BOUNDS.items():
        value, operators = getattr(own, name), effective_value(name, wider, server)
        allowed = None if value is None else bound.clamp(value, operators)
        if allowed == value or allowed != operators:  # otherwise it equals the operator's
            kept[name] = allowed
    return CompanionSettings(**kept)


def decode_values(raw: Mapping[str, msgspec.Raw]) -> dict[str, Any]:
    """Decode the values of a request one by one, so that errors name the field.

    Whole numbers may be written as 9.0.

    Raises:
        InvalidMessage: naming the field and what was expected.
    """
    values = {}
    for name, value in raw.items():
        try:
            known = msgspec.json.encode(msgspec.json.decode(value))
            values[name] = json.loads(known, parse_float=whole_number)
        except msgspec.ValidationError:
            raise _invalid(name, "expected numbers of double precision") from None
        except NOT_JSON as error:
            raise _invalid(name, f"expected JSON: {error}") from None
    return values


def read_settings(raw: object) -> CompanionSettings:
    """Convert and validate the settings in a request.

    Raises:
        InvalidMessage: naming the field and what was expected.
    """
    try:
        own = msgspec.convert(raw, CompanionSettings)
    except msgspec.ValidationError:
        raise _invalid(*field_problem(raw, CompanionSettings)) from None
    check_storable(own, "settings")
    return own


def check_player(
    own: CompanionSettings, names: Sequence[str], wider: CompanionSettings, server: Settings
) -> None:
    """Check that a player may set these values, given the operator's.

    Args:
        names: the settings in the request.
        wider: the operator's settings.

    Raises:
        InvalidMessage: naming the field and its bound.
    """
    for name in names:
        bound = PLAYER_BOUNDS.get(name)
        if bound is None:
            allowed = ", ".join(sorted(PLAYER_BOUNDS))
            raise _invalid(name, f"expected a setting that players may set: {allowed}")
        value, operators = getattr(own, name), effective_value(name, wider, server)
        if value is not None and bound.clamp(value, operators) != value:
            raise _invalid(name, f"expected {bound.expected.format(_shown(operators))}")


def check_relationship(
    own: CompanionSettings, names: Sequence[str], companion: CompanionSettings, server: Settings
) -> None:
    """Check that a relationship may have these settings, and that they yield a valid policy.

    Raises:
        InvalidMessage: naming the field.
    """
    for name in names:
        if name in OPERATOR_SETTINGS:
            raise _invalid(name, "expected a setting that a relationship may have")
    try:
        policy_for(overlay_settings(companion, own), server)
    except (ValueError, ArithmeticError) as error:
        raise InvalidMessage(f"settings: {error}", param="settings") from None


def merge_turn_settings(
    raw: Mapping[str, msgspec.Raw],
    wider: CompanionSettings,
    server: Settings,
    operators: CompanionSettings | None,
) -> CompanionSettings:
    """Validate the settings of a turn and merge them over the effective ones.

    Args:
        wider: the effective settings without them.
        operators: the operator's settings, which bound a player's; None if not sent by a player.

    Raises:
        InvalidMessage: naming the field and what was expected.
    """
    accepted = TURN_SETTINGS if operators is None else TURN_SETTINGS & PLAYER_BOUNDS.keys()
    _check_names(raw, accepted)
    own = read_settings(decode_values(raw))
    names = set_names(own)
    for name in names:
        if name not in TURN_SETTINGS:
            listing = ", ".join(sorted(accepted))
            raise _invalid(name, f"expected a setting that one turn may have: {listing}")
    if operators is not None:
        check_player(own, names, operators, server)
    return overlay_settings(wider, own)


def _check_names(given: Iterable[str], accepted: Iterable[str]) -> None:
    """Check that settings exist; otherwise name those that may have been meant, or are accepted."""
    for name in given:
        if name not in CompanionSettings.__struct_fields__:
            short = printable(name)
            raise _invalid(short, unknown_name(short, accepted, "setting"))


def set_names(own: CompanionSettings) -> list[str]:
    """Return the names of the settings that are not None."""
    return [name for name in own.__struct_fields__ if getattr(own, name) is not None]


def apply_settings_patch(own: CompanionSettings, patch: Mapping[str, Any]) -> CompanionSettings:
    """Return settings after a JSON merge patch (RFC 7396): null removes a value.

    Raises:
        InvalidMessage: naming the field and what was expected.
    """
    _check_names(patch, own.__struct_fields__)
    return read_settings(_merge_patch(msgspec.to_builtins(own), patch))


def _merge_patch(target: Any, patch: Any) -> Any:
    if not isinstance(patch, Mapping):
        return patch
    result = dict(target) if isinstance(target, Mapping) else {}
    for name, value in patch.items():
        if value is None:
            result.pop(name, None)
        else:
            result[name] = _merge_patch(result.get(name), value)
    return result


def setting_origins(
    companion: CompanionSettings,
    relationship: RelationshipSettings,
    server: Settings,
    turn: CompanionSettings | None = None,
) -> dict[str, dict[str, object]]:
    """Return each setting's effective value and the narrowest level that sets it.

    The operator's settings, such as the model's address and key, are not included.

    Args:
        turn: the settings of a turn, which are valid.
    """
    turn = turn or CompanionSettings()
    operators = overlay_settings(companion, relationship.operator)
    user = clamped(relationship.user, operators, server)
    merged = overlay_settings(overlay_settings(operators, user), turn)
    levels = {
        "turn": turn,
        "relationship": overlay_settings(relationship.operator, user),
        "companion": companion,
    }
    return {
        name: {
            "value": effective_value(name, merged, server),
            "from": next(
                (level for level, own in levels.items() if getattr(own, name) is not None), "server"
            ),
        }
        for name in merged.__struct_fields__
        if name not in OPERATOR_SETTINGS
    }


def _shown(value: object) -> str:
    if isinstance(value, frozenset):
        return str(sorted(value))
    return str(value)


def _invalid(field: str, message: str) -> InvalidMessage:
    path = f"settings.{field}"[:_MAX_PATH_CHARS] if field else "settings"
    return InvalidMessage(f"{path}: {message}", param=path)
