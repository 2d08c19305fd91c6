"""Validates settings against the bounds of the server's, one setting at a time. Pure."""

from collections.abc import Callable
from functools import cache, partial
from typing import Annotated, Any

import msgspec
from pydantic import AfterValidator, ConfigDict, TypeAdapter, ValidationError

from foremind.domain.settings.setting_problems import expected_instead
from foremind.domain.settings.settings import Settings, check_url

_UNUSABLE = object()
_EXTRA_VALIDATORS: dict[str, Callable[[Any], Any]] = {"llm_url": check_url}


def first_invalid_setting(own: msgspec.Struct) -> tuple[str, str] | None:
    """Return the first setting that is out of bounds, and what was expected, or None."""
    for name in own.__struct_fields__:
        value = getattr(own, name)
        if value is None or name not in Settings.model_fields:
            continue
        try:
            _adapter(name).validate_python(value)
        except ValidationError as error:
            (first, *_) = error.errors()
            path = "".join(f".{part}" for part in first["loc"] if part != "[key]")
            return name + path, expected_instead(first)
    return None


def salvage(given: object, fits: Callable[[Any], bool]) -> tuple[dict[str, Any], list[str]]:
    """Return the usable parts of a stored object, and the paths of the rest.

    Args:
        fits: returns whether a complete object is usable.
    """
    dropped: list[str] = []

    def usable_part(value: object, wrap: Callable[[object], object], path: str) -> object:
        if fits(wrap(value)):
            return value
        if isinstance(value, dict):
            members = {
                name: usable_part(member, partial(_wrap_member, wrap, name), f"{path}.{name}")
                for name, member in value.items()
            }
            kept = {name: member for name, member in members.items() if member is not _UNUSABLE}
            if kept and fits(wrap(kept)):
                return kept
        dropped.append(path.lstrip("."))
        return _UNUSABLE

    kept = usable_part(given, lambda value: value, "")
    return (kept if isinstance(kept, dict) else {}), dropped


def _wrap_member(wrap: Callable[[object], object], name: str, value: object) -> object:
    return wrap({name: value})


@cache
def _adapter(name: str) -> TypeAdapter[Any]:
    field = Settings.model_fields[name]
    annotation: Any = Annotated[field.annotation, field]
    if name in _EXTRA_VALIDATORS:
        annotation = Annotated[annotation, AfterValidator(_EXTRA_VALIDATORS[name])]
    return TypeAdapter(annotation, config=ConfigDict(allow_inf_nan=False))
