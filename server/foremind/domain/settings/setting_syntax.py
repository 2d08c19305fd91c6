"""The syntax of settings in files and the environment: lists, mappings, misspelt names. Pure."""

import difflib
import json
from collections.abc import Iterable, Mapping
from typing import Any, get_args, get_origin

PREFIX = "FOREMIND_"
#: Variables with this prefix hold the API keys that companions refer to (`llm_key_env`).
KEY_PREFIX = "FOREMIND_LLM_KEY_"
#: Other variables with the prefix: those of clients and of test runs.
OTHER_VARIABLES = frozenset({"FOREMIND_TOKEN", "FOREMIND_URL", "FOREMIND_LOAD_REPORT"})
OTHER_PREFIXES = (KEY_PREFIX, "FOREMIND_TEST_")


def parsed(text: str, annotation: Any) -> Any:
    """Parse the text of a setting by its type annotation; scalars are returned as text.

    `a, b` or JSON for lists and sets, `name=1, other=2` or JSON for mappings, `null` for None.

    Raises:
        ValueError: the text is malformed; the message says what was expected.
    """
    types = {get_origin(type_) or type_ for type_ in (annotation, *get_args(annotation))}
    if type(None) in types and text.strip().lower() == "null":
        return None
    if dict in types:
        return _mapping(text.strip())
    if types & {tuple, frozenset} and get_origin(annotation) in (tuple, frozenset):
        return _sequence(text.strip())
    return text


def unknown_variables(environment: Iterable[str], names: Iterable[str]) -> list[str]:
    """Return an error for each variable that looks like a setting, with the closest setting."""
    known = [PREFIX + name.upper() for name in names]
    return [
        _unknown(variable, known)
        for variable in sorted(environment)
        if variable.upper().startswith(PREFIX)
        and variable.upper() not in known
        and variable.upper() not in OTHER_VARIABLES
        and not variable.upper().startswith(OTHER_PREFIXES)
    ]


def unknown_keys(file: str, given: Mapping[str, object], names: Iterable[str]) -> list[str]:
    """Return an error for each unknown key of a file, with the closest setting."""
    known = list(names)
    return [f"{file}: {_unknown(key, known)}" for key in given if key not in known]


def _unknown(name: str, known: list[str]) -> str:
    upper = name.upper() if name.upper().startswith(PREFIX) else name
    matches = difflib.get_close_matches(upper, known, n=1)
    return f"{name}: not a setting" + (f"; {matches[0]} is" if matches else "")


def _sequence(text: str) -> list[Any]:
    if not text.startswith("["):
        return [item.strip() for item in text.split(",") if item.strip()]
    try:
        value = json.loads(text)
    except (ValueError, RecursionError):
        value = None
    if not isinstance(value, list):
        raise ValueError("expected values with commas between them, or a JSON list")
    return value


def _mapping(text: str) -> dict[str, Any]:
    error = ValueError("expected name=value with commas between them, or a JSON object")
    if text.startswith("{"):
        try:
            value = json.loads(text)
        except (ValueError, RecursionError):
            raise error from None
        return dict(value)
    pairs = [item.partition("=") for item in text.split(",") if item.strip()]
    if any(not separator for _, separator, _ in pairs):
        raise error
    mapping = {name.strip(): value.strip() for name, _, value in pairs}
    if len(mapping) < len(pairs):
        raise ValueError("expected every name once")
    return mapping
