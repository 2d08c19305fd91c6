"""How a model server is asked to hold a model to the shape of an answer. Pure.

Servers differ in what they take; each is first asked for the strictest form.
"""

from functools import cache
from typing import Any

import msgspec

#: From the strictest to none; what a server refuses is not asked of it again.
FORMS = ("json_schema", "json_object with schema", "json_object", "none")

# Lengths and numbers of elements make grammars that some servers refuse, others read for seconds;
# whoever reads the answer looks at them.
_KEPT = ("type", "enum", "const", "anyOf", "items", "properties")


def response_format(form: int, shape: type[msgspec.Struct]) -> dict[str, Any] | None:
    """Return the `response_format` of one of `FORMS`, None for none."""
    name = FORMS[form]
    if name == "none":
        return None
    if name == "json_schema":
        described = {"name": shape.__name__.lower(), "strict": True, "schema": schema_of(shape)}
        return {"type": name, "json_schema": described}
    schema = {"schema": schema_of(shape)} if "schema" in name else {}
    return {"type": "json_object", **schema}


@cache
def schema_of(shape: type[msgspec.Struct]) -> dict[str, Any]:
    """Return the JSON schema of a shape in the least that all servers understand."""
    (schema,), parts = msgspec.json.schema_components([shape], ref_template="#/$defs/{name}")
    simplified: dict[str, Any] = _simplified(schema, parts)
    return simplified


def _simplified(schema: Any, parts: dict[str, Any]) -> Any:
    if "$ref" in schema:
        return _simplified(parts[schema["$ref"].rpartition("/")[2]], parts)
    kept: dict[str, Any] = {}
    for name in _KEPT:
        if name not in schema:
            continue
        value = schema[name]
        if name == "anyOf":
            value = [_simplified(each, parts) for each in value]
        elif name == "items":
            value = _simplified(value, parts)
        elif name == "properties":
            value = {key: _simplified(each, parts) for key, each in value.items()}
            kept["required"] = list(value)
            kept["additionalProperties"] = False
        kept[name] = value
    return kept
