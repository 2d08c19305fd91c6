"""How settings are written: lists with commas, names that are close, problems in one line. Pure."""

import difflib
import json
from collections.abc import Iterable, Mapping
from typing import Any, get_args, get_origin

PREFIX = "FOREMIND_"
#: Variables of this prefix hold the keys that companions name (`llm_key_env`).
KEY_PREFIX = "FOREMIND_LLM_KEY_"
#: What may stand in the environment beside the settings: of clients, and of test runs.
OTHER_VARIABLES = frozenset({"FOREMIND_TOKEN", "FOREMIND_URL", "FOREMIND_LOAD_REPORT"})
OTHER_PREFIXES = (KEY_PREFIX, "FOREMIND_TEST_")


def parsed(text: str, annotation: Any) -> Any:
    """Return what a text means for a setting of a type; what is no collection stays text.

    `a, b` or JSON for lists and sets, `name=1, other=2` or JSON for mappings, `null` for none.

    Raises:
        ValueError: it is neither; the message says what was expected.
    """
    kinds = {get_origin(each) or each for each in (annotation, *get_args(annotation))}
    if type(None) in kinds and text.strip().lower() == "null":
        return None
    if dict in kinds:
        return _mapping(text.strip())
    if kinds & {tuple, frozenset} and get_origin(annotation) in (tuple, frozenset):
        return _sequence(text.strip())
    return text


def unknown_variables(environment: Iterable[str], names: Iterable[str]) -> list[str]:
    """Say of each variable that looks like a setting and is none which it may be meant to be."""
    known = [PREFIX + name.upper() for name in names]
    return [
        _unknown(each, known)
        for each in sorted(environment)
        if each.upper().startswith(PREFIX)
        and each.upper() not in known
        and each.upper() not in OTHER_VARIABLES
        and not each.upper().startswith(OTHER_PREFIXES)
    ]


def unknown_keys(file: str, given: Mapping[str, object], names: Iterable[str]) -> list[str]:
    """Say the same of each key in a file."""
    known = list(names)
    return [f"{file}: {_unknown(each, known)}" for each in given if each not in known]


def _unknown(name: str, known: list[str]) -> str:
    upper = name.upper() if name.upper().startswith(PREFIX) else name
    near = difflib.get_close_matches(upper, known, n=1)
    return f"{name}: not a setting" + (f"; {near[0]} is" if near else "")


def _sequence(text: str) -> list[Any]:
    if not text.startswith("["):
        return [each.strip() for each in text.split(",") if each.strip()]
    try:
        read = json.loads(text)
    except (ValueError, RecursionError):
        read = None
    if not isinstance(read, list):
        raise ValueError("expected values with commas between them, or a JSON list")
    return read


def _mapping(text: str) -> dict[str, Any]:
    wanted = ValueError("expected name=value with commas between them, or a JSON object")
    if text.startswith("{"):
        try:
            read = json.loads(text)
        except (ValueError, RecursionError):
            raise wanted from None
        return dict(read)
    pairs = [each.partition("=") for each in text.split(",") if each.strip()]
    if any(not between for _, between, _ in pairs):
        raise wanted
    return {name.strip(): value.strip() for name, _, value in pairs}
