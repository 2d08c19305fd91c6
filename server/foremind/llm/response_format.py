"""The `response_format` parameter that constrains an answer to a shape. Pure.

Servers differ in what they support; the strictest form is tried first.
"""

from functools import cache
from typing import Any

import msgspec

#: From the strictest to none; a form that a server refused is not tried again.
FORMS = ("json_schema", "json_object with schema", "json_object", "none")

# Limits of lengths and item counts produce grammars that some servers refuse and others compile for
# seconds; `answer_parsing` enforces them instead.
_KEYWORDS = ("type", "enum", "const", "anyOf", "items", "properties")


def response_format(form: int, shape: type[msgspec.Struct]) -> dict[str, Any] | None:
    """Return the `response_format` of `FORMS[form]`, None for the last."""
    name = FORMS[form]
    if name == "none":
        return None
    if name == "json_schema":
        json_schema = {"name": shape.__name__.lower(), "strict": True, "schema": schema_of(shape)}
        return {"type": name, "json_schema": json_schema}
    schema = {"schema": schema_of(shape)} if "schema" in name else {}
    return {"type": "json_object", **schema}


@cache
def schema_of(shape: type[msgspec.Struct]) -> dict[str, Any]:
    """Return the JSON schema of a shape, reduced to keywords that all servers understand."""
    (schema,), parts = msgspec.json.schema_components([shape], ref_template="#/$defs/{name}")
    simplified: dict[str, Any] = _simplified(schema, parts)
    return simplified


def _simplified(schema: Any, parts: dict[str, Any]) -> Any:
    if "$ref" in schema:
        return _simplified(parts[schema["$ref"].rpartition("/")[2]], parts)
    simplified: dict[str, Any] = {}
    for keyword in _KEYWORDS:
        if keyword not in schema:
            continue
        value = schema[keyword]
        if keyword == "anyOf":
            value = [_simplified(choice, parts) for choice in value]
        elif keyword == "items":
            value = _simplified(value, parts)
        elif keyword == "properties":
            value = {name: _simplified(member, parts) for name, member in value.items()}
            simplified["required"] = list(value)
            simplified["additionalProperties"] = False
        simplified[keyword] = value
    return simplified
