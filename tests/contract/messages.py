"""The messages of the AsyncAPI document, as the generators of client code need them. Pure."""

from collections.abc import Mapping
from typing import Any


def payloads(operation: str, document: Mapping[str, Any]) -> dict[str, Mapping[str, Any]]:
    """Return the schema of each message of an operation by its type on the wire, in order."""
    components = document["components"]
    names = [
        message["$ref"].rpartition("/")[2]
        for message in document["operations"][operation]["messages"]
    ]
    return {components["messages"][name]["name"]: components["schemas"][name] for name in names}
