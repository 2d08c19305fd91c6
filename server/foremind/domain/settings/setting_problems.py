"""Says in plain words what was expected of a setting that pydantic refuses. Pure."""

from collections.abc import Mapping
from typing import Any

_OWN_WORDS = "Value error, "
# By pydantic's type of error; names in braces are of its context.
_EXPECTED = {
    "less_than_equal": "at most {le}",
    "greater_than_equal": "at least {ge}",
    "less_than": "less than {lt}",
    "greater_than": "more than {gt}",
    "multiple_of": "a multiple of {multiple_of}",
    "int_type": "a whole number",
    "int_parsing": "a whole number",
    "int_parsing_size": "a whole number of at most 64 bits",
    "int_from_float": "a whole number",
    "float_type": "a number",
    "float_parsing": "a number",
    "finite_number": "a finite number",
    "bool_type": "true or false",
    "bool_parsing": "true or false",
    "string_type": "text",
    "string_too_short": "text of at least {min_length} characters",
    "string_too_long": "text of at most {max_length} characters",
    "string_pattern_mismatch": "text that matches {pattern}",
    "literal_error": "{expected}",
    "too_short": "at least {min_length} elements",
    "too_long": "at most {max_length} elements",
    "list_type": "a list",
    "tuple_type": "a list",
    "set_type": "a list",
    "frozen_set_type": "a list",
    "dict_type": "an object",
    "path_type": "a path",
    "none_required": "nothing",
    "missing": "a value, it is missing",
}


def expected_instead(error: Mapping[str, Any]) -> str:
    """Return what was expected, given an element of `ValidationError.errors()`."""
    message = str(error["msg"])
    if message.startswith(_OWN_WORDS):
        return message.removeprefix(_OWN_WORDS)
    words = _EXPECTED.get(str(error["type"]))
    if words is None:
        return f"expected another value: {message}"
    return f"expected {words.format(**error.get('ctx', {}))}"
