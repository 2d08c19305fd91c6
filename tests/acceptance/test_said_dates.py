"""What is made of turns is dated by when they were said, however much later it is made."""

from datetime import datetime, timedelta
from typing import Any

from foremind.llm.prompt.sections import day_in_words
from tests.acceptance.world import World, world
from tests.conftest import StartServer

_FACTS = (
    "I live in Porto",
    "I am allergic to peanuts",
    "My sister Lena sings in a choir",
    "save this: the gate code is 4711",
)
_DATED = ("profile", "scratchpad", "hot")  # lines with a day; the others have an age
_DRAFT = "Do you remember the gate code, my sister Lena and her choir?"


async def _lines(w: World) -> dict[str, str]:
    """Return the lines of each layer that are about what was said, not about when she comes."""
    layers = (await w.context(_DRAFT))["layers"]
    words = ("Porto", "peanuts", "choir", "4711")
    return {
        name: "\n".join(
            line
            for line in layer["lines"]
            if any(word in line for word in words) and "favourite topics" not in line
        )
        for name, layer in layers.items()
    }


def _shifted(value: Any, by: timedelta) -> Any:
    """Return an export in which everything happened earlier."""
    if isinstance(value, dict):
        return {name: _shifted(part, by) for name, part in value.items()}
    if isinstance(value, list):
        return [_shifted(part, by) for part in value]
    if isinstance(value, str) and value[4:5] == "-" and value.endswith("Z"):
        return f"{(datetime.fromisoformat(value) - by).isoformat()[:-6]}Z"
    return value


async def test_what_is_made_of_imported_turns_keeps_their_days(start: StartServer) -> None:
    """Whoever imports a past of a year ago is not told that all of it was said today."""
    from foremind.domain.companion import CompanionFile  # noqa: PLC0415

    async with world(start, model=False) as w:
        await w.server.app.core.stores.companions.put(
            CompanionFile("mara", "Mara", "You are Mara.")
        )
        for _ in range(3):
            await w.talk(*_FACTS)
            await w.next_day()
        exported = _shifted(await w.request("GET", "/export"), timedelta(days=365))
        exported |= {"records": [], "revisions": [], "progress": {}}
        imported = await w.import_file(exported, "mara")
        assert imported.status_code == 201, imported.text
        w.relationship = int(imported.json()["id"])
        assert (await w.response_to("POST", "/status")).is_success
        await w.next_day()
        lines = await _lines(w)
        year = (w.clock.now() - timedelta(days=365)).year
        for layer in _DATED:
            assert str(year) in lines[layer] and day_in_words(w.clock.now()) not in lines[layer], (
                layer, lines[layer],
            )  # fmt: skip
        for layer in ("topics", "vault"):
            assert "twelve months ago" in lines[layer], (layer, lines[layer])
        assert "just now" not in str(lines) and "yesterday" not in str(lines)


async def test_what_is_made_anew_after_an_erasure_keeps_its_day(start: StartServer) -> None:
    """It is made of what is left, which was said then."""
    async with world(start, model=False) as w:
        first = day_in_words(w.clock.now())
        await w.talk(*_FACTS[:3])
        await w.next_day()
        await w.next_day()
        await w.talk(
            "I live in Porto, by the lighthouse", "I am allergic to peanuts and lighthouses"
        )
        again = day_in_words(w.clock.now())
        assert again in (await _lines(w))["profile"]
        await w.next_day()
        await w.request("DELETE", "/memories?about=lighthouse")
        await w.wait_until_idle()
        lines = await _lines(w)
        for layer in _DATED:
            assert first in lines[layer], (layer, lines[layer])
            assert day_in_words(w.clock.now()) not in lines[layer], (layer, lines[layer])
            assert again not in lines[layer], (layer, lines[layer])
