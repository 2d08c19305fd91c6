"""What minds of a world can do there: declared by its host, asked for in replies. Pure.

A host declares actions with a name and a JSON Schema of their arguments. A reply asks for one with
a mark such as `[[give {"item": "rope"}]]`, or by a tool call of its model, which is read as one.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any

import msgspec
from msgspec import Meta

#: Types of the events that an action is, and its result.
REQUESTED, RESULT = "action.requested", "action.result"
#: In the id of an event, before the number of an action.
ACTION = "#"
_MAX_MEMBERS = 1000

ActionName = Annotated[str, Meta(pattern=r"^[A-Za-z][A-Za-z0-9_-]{0,63}$")]
#: That of its event, which names a message, a mind and the steps between.
ActionId = Annotated[str, Meta(min_length=1, max_length=400)]
Members = Annotated[list[str], Meta(max_length=_MAX_MEMBERS)]


class Condition(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """Where something is allowed: to these `minds`, in these `scenes`, while one of these `players`
    is there. What is empty limits nothing.
    """

    minds: Members = []
    scenes: Members = []
    players: Members = []

    def holds(self, mind: str, scene: str, players: Sequence[str]) -> bool:
        """Return whether it allows something to a mind in a scene with players."""
        return (
            (not self.minds or mind in self.minds)
            and (not self.scenes or scene in self.scenes)
            and (not self.players or not set(self.players).isdisjoint(players))
        )


class Action(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """Something that a mind can do: `schema` is the JSON Schema of its arguments, an object.

    With `wait`, the mind goes on talking once it is told the result.
    """

    name: ActionName
    description: Annotated[str, Meta(max_length=500)] = ""
    schema: dict[str, Any] = {}
    when: Condition = Condition()
    wait: bool = False

    @property
    def properties(self) -> Mapping[str, Any]:
        """The schemas of its arguments by name."""
        properties = self.schema.get("properties")
        return properties if isinstance(properties, dict) else {}


@dataclass(frozen=True, slots=True)
class Offer:
    """What a mind can do now, in a world that has actions.

    `as_tools`: its model is told by the tools of its own interface.
    """

    actions: Sequence[Action] = ()
    as_tools: bool = False


@dataclass(frozen=True, slots=True)
class ActionCall:
    """What a reply asks for, as the model wrote it; `arguments` are text of any form."""

    name: str
    arguments: str


class RequestedAction(msgspec.Struct, frozen=True):
    """An action that a mind asks the game for; `id` is that of its event."""

    id: str
    name: str
    arguments: dict[str, Any]


def folded(actions: Sequence[Action]) -> list[list[Action]]:
    """Return actions in groups with the same arguments, in the order of the first of each.

    A model chooses better among a few tools than among many that differ in their names alone.
    """
    groups: dict[bytes, list[Action]] = {}
    for action in actions:
        key = msgspec.json.encode(action.schema, order="sorted")
        groups.setdefault(key, []).append(action)
    return list(groups.values())


def signature(action: Action) -> str:
    """Return the arguments of an action as a model is shown them: `{"item": string}`."""
    required = action.schema.get("required")
    needed = required if isinstance(required, list) else []
    shown = [
        f'"{name}"{"" if name in needed else "?"}: {_kind(schema)}'
        for name, schema in action.properties.items()
    ]
    return f"{{{', '.join(shown)}}}" if shown else ""


def _kind(schema: Any) -> str:
    """Return what a value is, in short: its choices, or its type, with its description."""
    if not isinstance(schema, dict):
        return "any"
    choices, kind = schema.get("enum"), schema.get("type", "any")
    if isinstance(choices, list):
        kind = " | ".join(_json(choice) for choice in choices)
    elif kind == "array":
        kind = f"[{_kind(schema.get('items'))}]"
    elif not isinstance(kind, str) or kind == "object":
        kind = _json({key: value for key, value in schema.items() if key != "description"})
    described = schema.get("description")
    return f"{kind} ({described})" if isinstance(described, str) and described else kind


def _json(value: Any) -> str:
    return msgspec.json.encode(value).decode()
