"""Whether values fit the bounds of the server's settings, one setting at a time. Pure."""

from collections.abc import Callable
from functools import cache, partial
from typing import Annotated, Any

import msgspec
from pydantic import AfterValidator, ConfigDict, TypeAdapter, ValidationError

from foremind.domain.settings import Settings, check_url

_NOTHING = object()
_FURTHER: dict[str, Callable[[Any], Any]] = {"llm_url": check_url}


def problem_with(own: msgspec.Struct) -> tuple[str, str] | None:
    """Return the first setting that is out of the server's bounds, and what was expected."""
    for name in own.__struct_fields__:
        value = getattr(own, name)
        if value is None or name not in Settings.model_fields:
            continue
        try:
            _adapter(name).validate_python(value)
        except ValidationError as error:
            (first, *_) = error.errors()
            inner = "".join(f".{part}" for part in first["loc"] if part != "[key]")
            return name + inner, str(first["msg"]).removeprefix("Value error, ")
    return None


def salvaged(given: object, fits: Callable[[Any], bool]) -> tuple[dict[str, Any], list[str]]:
    """Return what is usable of a stored object, and the paths of what is not.

    Args:
        fits: tells whether an object is usable as a whole.
    """
    dropped: list[str] = []

    def part(value: object, within: Callable[[object], object], path: str) -> object:
        if fits(within(value)):
            return value
        if isinstance(value, dict):
            parts = {
                name: part(each, partial(_inside, within, name), f"{path}.{name}")
                for name, each in value.items()
            }
            kept = {name: each for name, each in parts.items() if each is not _NOTHING}
            if kept and fits(within(kept)):
                return kept
        dropped.append(path.lstrip("."))
        return _NOTHING

    kept = part(given, lambda value: value, "")
    return (kept if isinstance(kept, dict) else {}), dropped


def _inside(within: Callable[[object], object], name: str, value: object) -> object:
    return within({name: value})


@cache
def _adapter(name: str) -> TypeAdapter[Any]:
    field = Settings.model_fields[name]
    checked: Any = Annotated[field.annotation, field]
    if name in _FURTHER:
        checked = Annotated[checked, AfterValidator(_FURTHER[name])]
    return TypeAdapter(checked, config=ConfigDict(allow_inf_nan=False))
