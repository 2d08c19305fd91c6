"""What a reply asks a game to do: how a model is told what it can, and how its reply is read. Pure.

A model that is told of actions marks them in its reply: `[[give {"item": "rope"}]]`. Models also
write `[[give(item="rope")]]`, `[[give rope]]`, or the tool calls that they were trained with, such
as `<tool_call>{"name": "give", "arguments": {"item": "rope"}}</tool_call>`. None of it is text.
"""

import re
from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from foremind.domain.actions import Action, ActionCall, Offer, folded, signature
from foremind.domain.errors import NOT_JSON, InvalidMessage
from foremind.domain.storable_text import check_storable
from foremind.llm.answer_parsing import UnparsableAnswer, mended_json

_MARKS = {"[[": "]]", "<tool_call>": "</tool_call>"}  # what opens a mark, and what closes it
_OPENING = re.compile(r"\[\[|<tool_call>")
_MAX_MARK_CHARS = 4000
MAX_CALLS = 4  #: actions that one reply asks for at most
_NAME = re.compile(r"\s*([A-Za-z][\w-]{0,63})\s*[:=]?\s*(.*?)\s*\Z", re.DOTALL)
_PAIR = re.compile(
    r"\s*,?\s*([A-Za-z_]\w*)\s*[=:]\s*(\"(?:[^\"\\]|\\.)*\"|'[^']*'|[^,]*)", re.DOTALL
)
#: In the tool that several actions are, the argument that says which.
_WHICH = "do"


# In English, as all of a mind's prompt that is not quoted.
_HOW = (
    '- To do something, write it in double brackets, like [[name {"argument": "value"}]]. What '
    "happens then you will be told. You can do:"
)


def offered(offer: Offer | None) -> list[str]:
    """Return the lines of a prompt by which a model is told what it can do."""
    if offer is None or offer.as_tools or not offer.actions:
        return []
    lines = [_HOW]
    for group in folded(offer.actions):
        names = ", ".join(
            f"{action.name} ({action.description})" if action.description else action.name
            for action in group
        )
        lines.append(f"  - {names} {signature(group[0])}".rstrip())
    return lines


def tools_of(offer: Offer | None) -> list[dict[str, Any]]:
    """Return the tools by which a model is told what it can do.

    Actions with the same arguments are one tool.
    """
    tools: list[dict[str, Any]] = []
    for group in folded(offer.actions if offer is not None and offer.as_tools else ()):
        if _WHICH in group[0].properties:
            tools += [_tool(action.name, action.description, action.schema) for action in group]
            continue
        described = [f"{action.name}: {action.description}".rstrip(": ") for action in group]
        if len(group) == 1:
            tools.append(_tool(group[0].name, group[0].description, group[0].schema))
            continue
        schema = group[0].schema
        which = {"type": "string", "enum": [action.name for action in group]}
        tools.append(
            _tool(
                "_or_".join(action.name for action in group)[:64],
                "; ".join(described),
                schema
                | {
                    "properties": {_WHICH: which} | dict(group[0].properties),
                    "required": [_WHICH, *schema.get("required", [])],
                },
            )
        )
    return tools


def _tool(name: str, description: str, schema: Mapping[str, Any]) -> dict[str, Any]:
    parameters = {"properties": {}} | _of_object(schema)
    function = {"name": name, "description": description, "parameters": parameters}
    return {"type": "function", "function": function}


def mark_of(name: str, arguments: str) -> str:
    """Return the mark that says the same as a tool call of a model."""
    return f"[[{name} {arguments}]]"


class ActionMarks:
    """Passes a streamed reply on without the marks of actions, and collects what they ask for.

    Apart from marks, the beginning of one and white space are held back until more has arrived.
    """

    def __init__(self) -> None:
        self.calls: list[ActionCall] = []
        self._buffer = ""
        self._space = ""
        self._has_text = self._after_mark = False

    def feed(self, piece: str) -> str:
        """Return the text that can be passed on once `piece` has arrived."""
        self._buffer += piece
        return self._advance(last=False)

    def end(self) -> str:
        """Return the text that was held back, at the end of the reply."""
        text = self._advance(last=True)
        return text if self._after_mark else text + self._space

    def _advance(self, *, last: bool) -> str:
        passed = ""
        while found := _OPENING.search(self._buffer):
            passed += self._pass(found.start())
            chars = self._mark(last=last)
            if chars is None:
                return passed
            if chars:
                self._buffer = self._buffer[chars:]
                self._after_mark = True
            else:
                passed += self._pass(len(found[0]))
        held = 0 if last else max(_overlap(self._buffer, opening) for opening in _MARKS)
        return passed + self._pass(len(self._buffer) - held)

    def _pass(self, chars: int) -> str:
        """Take text from the buffer; white space at its end waits, as a mark may follow."""
        text, self._buffer = self._buffer[:chars], self._buffer[chars:]
        if self._after_mark:
            bare = text.lstrip()
            self._space = self._space or text[: len(text) - len(bare)]
            if not bare:
                return ""
            text, self._after_mark = bare, False
            if not self._has_text:
                self._space = ""
        text = self._space + text
        bare = text.rstrip()
        self._space = text[len(bare) :]
        self._has_text |= bool(bare)
        return bare

    def _mark(self, *, last: bool) -> int | None:
        """Take the mark that the buffer begins with; return its length.

        0 if it begins with none, None if more must arrive to tell.
        """
        opening = next(mark for mark in _MARKS if self._buffer.startswith(mark))
        closing, end = _MARKS[opening], len(opening)
        limit = self._buffer[:_MAX_MARK_CHARS]
        while (end := limit.find(closing, end)) >= 0:
            call = _call_in(limit[len(opening) : end])
            if call is not None:
                if len(self.calls) < MAX_CALLS and call not in self.calls:
                    self.calls.append(call)
                return end + len(closing)
            end += 1
        return 0 if last or len(self._buffer) >= _MAX_MARK_CHARS else None


def without_actions(text: str) -> str:
    """Return a complete text without the marks of actions in it."""
    marks = ActionMarks()
    return marks.feed(text) + marks.end()


def _overlap(text: str, opening: str) -> int:
    """Return how many characters a text ends with that an opening begins with."""
    return next(
        (chars for chars in range(len(opening) - 1, 0, -1) if text.endswith(opening[:chars])), 0
    )


def _call_in(text: str) -> ActionCall | None:
    """Return what a mark asks for; None if its text is not whole, or is none."""
    if text.lstrip().startswith("{"):
        try:
            call = msgspec.json.decode(text.strip())
        except NOT_JSON:
            return None
        arguments = call.get("arguments", call.get("parameters", {}))
        shown = arguments if isinstance(arguments, str) else msgspec.json.encode(arguments).decode()
        return ActionCall(str(call.get("name", "")), shown)
    found = _NAME.fullmatch(text)
    if found is None:
        return None
    name, arguments = found[1], found[2]
    if arguments.startswith("(") and arguments.endswith(")"):
        arguments = arguments[1:-1].strip()
    if "{" not in arguments and "[[" in arguments:
        return None  # this is text, and another mark begins in it
    if arguments.startswith("{") and arguments.count("{") > arguments.count("}"):
        return None  # the brackets were within its text
    return ActionCall(name, arguments)


def checked(call: ActionCall, actions: Sequence[Action]) -> tuple[Action, dict[str, Any]] | None:
    """Return the action that is asked for, and its arguments; None if there is none, or not so.

    Numbers in quotation marks are taken for numbers where these are expected, and a lone value for
    the only argument.
    """
    by_name = {action.name: action for action in actions}
    action = by_name.get(call.name)
    given = _arguments(call.arguments, () if action is None else list(action.properties))
    if action is None:  # perhaps the tool that several are
        action = by_name.get(str(given.pop(_WHICH, "")))
    if action is None:
        return None
    arguments = {name: _as(action.properties.get(name), value) for name, value in given.items()}
    try:
        check_storable(arguments)
    except InvalidMessage:
        return None
    return (action, arguments) if not schema_problem(action.schema, arguments) else None


def _arguments(text: str, names: Sequence[str]) -> dict[str, Any]:
    if text.startswith("{"):
        try:
            value = mended_json(text)
        except UnparsableAnswer:
            return {}
        return value if isinstance(value, dict) else {}
    pairs = _PAIR.findall(text)
    if pairs and _PAIR.match(text):
        return {name: _scalar(value) for name, value in pairs}
    return {names[0]: _scalar(text)} if text and len(names) == 1 else {}


def _scalar(text: str) -> Any:
    text = text.strip()
    try:
        return msgspec.json.decode(text)
    except NOT_JSON:
        return text[1:-1] if text[:1] == "'" == text[-1:] else text


def _as(schema: Any, value: Any) -> Any:
    """Return a value as the type that is expected, if only quotation marks keep it from that."""
    kind = schema.get("type") if isinstance(schema, dict) else None
    if isinstance(value, str) and kind in ("integer", "number", "boolean"):
        return _scalar(value)
    if kind == "string" and isinstance(value, int | float) and not isinstance(value, bool):
        return str(value)
    return value


def schema_problem(schema: Mapping[str, Any], value: object) -> str:
    """Return what is wrong with a value by a JSON Schema; "" if nothing is.

    Nothing is fetched: a reference to another document is a problem. The first call may take half
    a second, which no event loop should spend.
    """
    # Imported here because only worlds with actions need them.
    import jsonschema  # noqa: PLC0415
    from referencing import Registry  # noqa: PLC0415
    from referencing.exceptions import Unresolvable  # noqa: PLC0415

    validator = jsonschema.Draft202012Validator(_of_object(schema), registry=Registry())
    try:
        return next((_described(error) for error in validator.iter_errors(value)), "")
    except (Unresolvable, RecursionError, re.error):
        return "$: the schema cannot be applied"


def problem_of_schema(schema: Mapping[str, Any]) -> str:
    """Return why something is no JSON Schema of arguments; "" if it is one."""
    import jsonschema  # noqa: PLC0415

    if schema.get("type", "object") != "object":
        return "$.type: expected object"
    try:
        jsonschema.Draft202012Validator.check_schema(_of_object(schema))
    except jsonschema.SchemaError as error:
        return _described(error)
    except RecursionError:
        return "$: expected less nesting"
    return ""


def _of_object(schema: Mapping[str, Any]) -> dict[str, Any]:
    return {"type": "object"} | dict(schema)


def _described(error: Any) -> str:
    return f"{error.json_path}: {error.message}"[:200]
