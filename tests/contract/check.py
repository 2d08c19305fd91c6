"""Validate frames against the contract with a JSON Schema library, apart from our own types."""

import json
from functools import cache
from typing import Any

from jsonschema import Draft202012Validator

from foremind.gateway.protocol.asyncapi import asyncapi


@cache
def document() -> dict[str, Any]:
    """Return the AsyncAPI document as a client reads it."""
    parsed: dict[str, Any] = json.loads(json.dumps(asyncapi()))
    return parsed


@cache
def validator(name: str) -> Draft202012Validator:
    """Return the validator of a message's payload, by its `type`."""
    components = document()["components"]
    messages = [message for message in components["messages"].values() if message["name"] == name]
    assert messages, f"no message of type {name} in the contract"
    return Draft202012Validator({**messages[0]["payload"], "components": components})


def check_event(event: dict[str, Any]) -> None:
    """Check that an event's type is in the contract and its fields match their schema."""
    errors = [f"{problem.json_path}: {problem.message}" for problem in
              validator(event["type"]).iter_errors(event)]  # fmt: skip
    assert not errors, (event["type"], errors)
