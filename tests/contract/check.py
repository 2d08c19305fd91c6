"""Frames held to the contract, by a JSON Schema library that knows nothing of the message types."""

import json
from functools import cache
from typing import Any

from jsonschema import Draft202012Validator

from foremind.gateway.protocol.asyncapi import asyncapi


@cache
def document() -> dict[str, Any]:
    """The AsyncAPI document, as a client reads it."""
    read: dict[str, Any] = json.loads(json.dumps(asyncapi()))
    return read


@cache
def validator(name: str) -> Draft202012Validator:
    """What checks the payload of a message, by its `type`."""
    components = document()["components"]
    found = [each for each in components["messages"].values() if each["name"] == name]
    assert found, f"no message of type {name} in the contract"
    return Draft202012Validator({**found[0]["payload"], "components": components})


def check_event(event: dict[str, Any]) -> None:
    """Check a frame; its type must be in the contract, and its fields as described there."""
    errors = [f"{problem.json_path}: {problem.message}" for problem in
              validator(event["type"]).iter_errors(event)]  # fmt: skip
    assert not errors, (event["type"], errors)
