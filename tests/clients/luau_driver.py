"""Runs the client in Luau: the arguments are the server's URL, options and commands as JSON.

What Roblox offers the client is made here: HttpService, and `task.wait`, which only tells how long
it would wait.
"""

import json
import sys
import uuid
from collections.abc import Callable
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from types import ModuleType
from typing import Any
from urllib.parse import quote

from tests.clients.turns_http import ask, tell

MODULE = Path(__file__).parents[2] / "clients" / "luau" / "Foremind.luau"
_SECRET = """
return function(value)
    return { AddPrefix = function(_, prefix) return prefix .. value end }
end
"""
_SERVICES = """
return function(encode, decode, request, guid, escape, wait)
    local HttpService = {}
    function HttpService:JSONEncode(value) return encode(value) end
    function HttpService:JSONDecode(text) return decode(text) end
    function HttpService:RequestAsync(options) return request(options) end
    function HttpService:GenerateGUID(wrapped) assert(wrapped == false) return guid() end
    function HttpService:UrlEncode(text) return escape(text) end
    game = { GetService = function(_, name) assert(name == "HttpService") return HttpService end }
    task = { wait = wait }
end
"""
_WITH_VALUE = ("ask", "edit", "choose", "forget")
_OF_HOSTS = ("report", "answerAction")


def _runtime() -> Any:
    """Return the extension of pluau, whose Python modules need a newer Python than it does."""
    found = find_spec("pluau")
    assert found is not None
    package = ModuleType("pluau")
    package.__path__ = list(found.submodule_search_locations or ())
    sys.modules["pluau"] = package
    return import_module("pluau._pluau")


_LUAU = _runtime()


def load(path: Path, lua: Any) -> Any:
    """Load and run a Luau module; return what it returns.

    Raises:
        RuntimeError: it does not compile.
    """
    return lua.load_chunk(path.read_text("utf-8"), name=path.name)()[0]


def machine() -> Any:
    """Return a Luau machine with what the client needs of Roblox."""
    lua = _LUAU.Lua()

    def function(act: Callable[..., Any]) -> Any:
        return lua.create_function(lambda _, values: [_to_luau(lua, act(*map(_from_luau, values)))])

    (services,) = lua.load_chunk(_SERVICES, name="services")()
    services(
        function(json.dumps), function(json.loads), function(_request),
        function(lambda: str(uuid.uuid4())), function(lambda text: quote(text, safe="")),
        function(lambda seconds: tell(waited=seconds)),
    )  # fmt: skip
    return lua


def _request(options: dict[str, Any]) -> dict[str, Any]:
    answer = ask(options["Method"], options["Url"], options["Headers"], options.get("Body"))
    return {
        "StatusCode": answer.status,
        "Headers": dict(answer.headers),
        "Body": answer.body.decode(),
    }


def _from_luau(value: Any) -> Any:
    """Return a value of Luau's; a table is a dict, or a list if it has a first element."""
    if isinstance(value, _LUAU.Table):
        items = {_from_luau(key): _from_luau(member) for key, member in value}
        return [items[key] for key in sorted(items)] if 1 in items else items
    return str(value) if isinstance(value, _LUAU.String) else value


def _to_luau(lua: Any, value: Any) -> Any:
    if isinstance(value, dict):
        table = lua.create_table()
        for name, member in value.items():
            table.set(name, _to_luau(lua, member))
        return table
    if isinstance(value, list):
        table = lua.create_table()
        for member in value:
            table.push(_to_luau(lua, member))
        return table
    return value


def _tell(command: str, answer: Any, failure: Any) -> None:
    if failure is not None:
        tell(failed=failure["code"])
    elif command == "memories":
        tell(memories=[memory["content"] for memory in answer])
    elif command == "forget":
        tell(forgotten=answer["memories"])
    elif command == "choose":
        tell(said=answer["reply"]["text"])
    elif command == "report":
        tell(reported=answer)
    elif command == "answerAction":
        tell(stored=answer)
    else:
        reply = answer["replies"][0]
        tell(said=reply["text"], **({"actions": reply["actions"]} if "actions" in reply else {}))


def main(url: str, options: dict[str, Any], commands: list[dict[str, Any]]) -> None:
    """Run the commands one after another; what is edited or chosen is the last message."""
    lua = machine()
    module = load(MODULE, lua)
    token = options.get("token")
    if "secret" in options:
        ((token,),) = [lua.load_chunk(_SECRET, name="secret")()[0](options["secret"])]
    where: dict[str, Any] = {"companion": "wren"}
    if "world" in options:
        where = {"world": options["world"], "scene": options["scene"]}
    fields = {"url": f"{url}/", "token": token, **where}
    (client,) = module.get("new")(_to_luau(lua, fields))
    player = {"id": "ana", "name": "Ana", "token": options.get("playerToken")}
    last: Any = None
    for command in commands:
        (name, value), *_ = command.items()
        arguments = [] if name in _OF_HOSTS else [_to_luau(lua, player)]
        if name in ("edit", "regenerate", "choose"):
            arguments.append(last)
        if name in _WITH_VALUE:
            arguments.append(value * command.get("times", 1) if name == "ask" else value)
        if name in _OF_HOSTS:
            arguments.append(_to_luau(lua, value))
        if "result" in command:
            arguments.append(_to_luau(lua, command["result"]))
        if "how" in command:
            arguments.append(_to_luau(lua, command["how"]))
        results = [*map(_from_luau, client.get(name)(client, *arguments)), None, None]
        answer, failure = results[:2]
        if answer is not None and "id" in answer:
            last = answer["id"]
        _tell(name, answer, failure)


if __name__ == "__main__":
    main(sys.argv[1], json.loads(sys.argv[2]), json.loads(sys.argv[3]))
