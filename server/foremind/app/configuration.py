"""Reads settings from the environment and `foremind.toml`, and companions from their files."""

import json
import os
import tomllib
from collections.abc import Iterable, Iterator, Mapping
from difflib import get_close_matches
from pathlib import Path
from typing import Any

import msgspec
from msgspec import inspect

from foremind.domain.companion import CompanionFile, first_invalid_field
from foremind.domain.errors import InvalidFile, InvalidMessage
from foremind.domain.field_problems import alternatives, find_problem, whole_number
from foremind.domain.settings.settings import KEY_PREFIX, SERVER_SETTINGS, Settings
from foremind.domain.storable_text import check_storable

SETTINGS_FILE = "foremind.toml"
PREFIX = "FOREMIND_"
#: Other variables with the prefix: those of clients and of test runs.
OTHER_VARIABLES = frozenset(
    {
        "FOREMIND_TOKEN",
        "FOREMIND_COMPANION",
        "FOREMIND_URL",
        "FOREMIND_SCENES",
        "FOREMIND_MINDS",
        "FOREMIND_LOAD_REPORT",
    }
)
OTHER_PREFIXES = (KEY_PREFIX, "FOREMIND_TEST_")

_FIELDS = {field.name: field.type for field in msgspec.structs.fields(Settings)}
_BOOLEANS = {
    **dict.fromkeys(("true", "on", "yes", "1", "t", "y"), True),
    **dict.fromkeys(("false", "off", "no", "0", "f", "n"), False),
}


class _InvalidSetting(ValueError):
    """A setting has an invalid value: the path within it, and what was expected."""

    def __init__(self, expected: str, path: str = "") -> None:
        super().__init__(expected)
        self.path = path


def load_settings(**overrides: object) -> Settings:
    """Read the settings.

    The environment (`FOREMIND_` and the name in capitals) takes precedence over `foremind.toml` in
    the working directory, which takes precedence over the defaults.

    Args:
        overrides: values from the command line; None means not given.

    Raises:
        InvalidFile: settings are invalid or unknown; the message names each as it is written in
            the environment or the file, and what was expected, in one line.
    """
    file = _file()
    problems = [*unknown_variables(os.environ), *_unknown_keys(file)]
    values: dict[str, Any] = {}
    for name, written, given in _given(file, overrides):
        try:
            values[name] = _value(name, given)
        except _InvalidSetting as error:
            dot = "." if error.path and not error.path.startswith("[") else ""
            problems.append(f"{written}{dot}{error.path}: {error}")
    if problems:
        raise InvalidFile("; ".join(problems))
    return Settings(**values)


def _given(
    file: Mapping[str, object], overrides: Mapping[str, object]
) -> Iterator[tuple[str, str, object]]:
    """Yield each setting that is given, as it is written, and its value of most precedence."""
    environment = {name.upper(): value for name, value in os.environ.items()}
    for name in _FIELDS:
        variable = PREFIX + name.upper()
        if overrides.get(name) is not None:
            yield name, variable, overrides[name]
        elif variable in environment:
            yield name, variable, environment[variable]
        elif name in file:
            yield name, f"{SETTINGS_FILE}: {name}", file[name]


def _value(name: str, given: object) -> object:
    """Return the value of a setting, in its normal form.

    Raises:
        _InvalidSetting: stating what was expected.
    """
    shape = _FIELDS[name]
    value = _parsed(given, inspect.type_info(shape))
    if problem := find_problem(value, shape):
        raise _InvalidSetting(problem.expected, problem.path)
    try:
        value = msgspec.convert(value, shape, dec_hook=_custom)
        check = SERVER_SETTINGS[name].check
        return value if check is None or value is None else check(value)
    except (msgspec.ValidationError, ValueError) as error:
        raise _InvalidSetting(str(error)) from None


def _custom(kind: type, value: Any) -> object:
    """Make a path or a secret of its text."""
    return value if isinstance(value, kind) else kind(value)


def _parsed(given: object, shape: inspect.Type) -> object:
    """Parse the text of a setting, or a number in the file; what cannot be parsed stays as it is.

    `a, b` or JSON for lists and sets, `name=1, other=2` or JSON for mappings, `null` for None.

    Raises:
        _InvalidSetting: the text is malformed.
    """
    if isinstance(given, bool) or not isinstance(given, str | int | float):
        return given
    word, is_text = str(given).strip(), isinstance(given, str)
    kinds = list(alternatives(shape))
    if word.lower() == "null" and any(isinstance(kind, inspect.NoneType) for kind in kinds):
        return None
    for kind in kinds:
        match kind:
            case inspect.BoolType():
                return _BOOLEANS.get(word.lower(), given)
            case inspect.IntType() | inspect.FloatType():
                return _number(word, given)
            case inspect.DictType(value_type=members) if is_text:
                return _mapping(word, members)
            case inspect.CollectionType() if is_text:
                return _sequence(word)
            case inspect.CustomType(cls=cls) if issubclass(cls, Path) and not word:
                raise _InvalidSetting("expected a path; leave it unset for the default")
    return given


def _number(text: str, given: object) -> object:
    try:
        return int(text) if text.lstrip("+-").isdigit() else whole_number(text)
    except (ValueError, OverflowError):
        return given


def _sequence(text: str) -> list[Any]:
    if not text.startswith("["):
        return [item.strip() for item in text.split(",") if item.strip()]
    try:
        value = json.loads(text)
    except (ValueError, RecursionError):
        value = None
    if not isinstance(value, list):
        raise _InvalidSetting("expected values with commas between them, or a JSON list")
    return value


def _mapping(text: str, members: inspect.Type) -> dict[str, Any]:
    expected = "expected name=value with commas between them, or a JSON object"
    if isinstance(members, inspect.AnyType):  # what a text would mean is only clear in JSON
        expected = "expected a JSON object"
    if text.startswith("{") or isinstance(members, inspect.AnyType):
        try:
            pairs = list(json.loads(text or "{}", parse_constant=_no_number).items())
        except (AttributeError, ValueError, RecursionError):
            raise _InvalidSetting(expected) from None
        if isinstance(members, inspect.AnyType):
            return dict(pairs)
    else:
        parts = [item.partition("=") for item in text.split(",") if item.strip()]
        if any(not separator for _, separator, _ in parts):
            raise _InvalidSetting(expected)
        pairs = [(name.strip(), value) for name, _, value in parts]
    mapping = {name: _parsed(value, members) for name, value in pairs}
    if len(mapping) < len(pairs):
        raise _InvalidSetting("expected every name once")
    return mapping


def _no_number(constant: str) -> object:
    raise ValueError(constant)


def unknown_variables(environment: Iterable[str]) -> list[str]:
    """Return an error for each variable that looks like a setting, with the closest setting."""
    known = [PREFIX + name.upper() for name in _FIELDS]
    return [
        _unknown(variable, known)
        for variable in sorted(environment)
        if variable.upper().startswith(PREFIX)
        and variable.upper() not in known
        and variable.upper() not in OTHER_VARIABLES
        and not variable.upper().startswith(OTHER_PREFIXES)
    ]


def _unknown_keys(file: Mapping[str, object]) -> list[str]:
    return [
        f"{SETTINGS_FILE}: {_unknown(key, list(_FIELDS))}" for key in file if key not in _FIELDS
    ]


def _unknown(name: str, known: list[str]) -> str:
    upper = name.upper() if name.upper().startswith(PREFIX) else name
    matches = get_close_matches(upper, known, n=1)
    return f"{name}: not a setting" + (f"; {matches[0]} is" if matches else "")


def _file() -> dict[str, Any]:
    """Return the contents of the settings file in the working directory.

    Raises:
        InvalidFile: it cannot be read.
    """
    try:
        return tomllib.loads(Path(SETTINGS_FILE).read_text("utf-8"))
    except FileNotFoundError:
        return {}
    except (OSError, ValueError, RecursionError) as error:  # also of decoding, and of TOML
        reason = " ".join(str(error).split())
        raise InvalidFile(f"{SETTINGS_FILE}: {reason}") from None


def read_companion(path: Path) -> CompanionFile:
    """Read a companion file and validate its settings as the server's own.

    Raises:
        InvalidFile: naming the field and what was expected.
    """
    try:
        content = tomllib.loads(path.read_text("utf-8"))
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise InvalidFile(f"{path}: {error}") from None
    if problem := find_problem(content, CompanionFile):
        raise InvalidFile(f"{path}: {': '.join(problem)}", param=problem.path)
    companion = msgspec.convert(content, CompanionFile)
    try:
        check_storable(companion)
    except InvalidMessage as error:
        raise InvalidFile(f"{path}: {error.message}", param=error.param) from None
    invalid = first_invalid_field(companion)
    if invalid is not None:
        raise InvalidFile(f"{path}: {': '.join(invalid)}", param=invalid[0])
    return companion
