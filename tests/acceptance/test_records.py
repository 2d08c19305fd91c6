"""How much may be written into a relationship's layers."""

import asyncio
from datetime import datetime, timedelta

import pytest

from foremind.domain.record import MOST_LISTED, MOST_TITLE, NewRecord
from foremind.storage import record_changes
from tests.acceptance.layers import world
from tests.conftest import PATIENCE, StartServer, owner_of, patiently


async def test_references_have_limits(start: StartServer) -> None:
    """In number and length; nothing of what is over one is stored."""
    async with world(start, model=False) as w:
        await w.talk("Hello")
        note = {"layer": "vault", "content": "A note", "refs": ["a"] * MOST_LISTED}
        assert (await w.answer("POST", "/records", note)).status_code == 201
        for refs, param in (
            (["a"] * (MOST_LISTED + 1), "refs"),
            (["a", "b" * (MOST_TITLE + 1)], "refs[1]"),
        ):
            refused = await w.answer("POST", "/records", note | {"refs": refs})
            assert (refused.status_code, refused.json()["error"]["param"]) == (400, param)
        assert len(await w.records("vault")) == 1


@pytest.mark.parametrize(
    "large",
    [
        {"content": "a" * 5000},
        {"title": "a" * 300, "kind": "b" * 300, "content": "c" * 4400},
        {"content": "a", "refs": ["bc de " * 40] * 20},
    ],
)
async def test_a_relationship_has_room_for_so_many_bytes_of_records(
    start: StartServer, monkeypatch: pytest.MonkeyPatch, large: dict[str, object]
) -> None:
    """Written, changed or imported, whichever field they are in; removing some makes room."""
    monkeypatch.setattr(record_changes, "MOST_RECORD_BYTES", 50_000)
    async with world(start, model=False) as w:
        await w.talk("Hello")
        numbers = []
        while True:
            answer = await w.answer("POST", "/records", {"layer": "vault", "content": "a"} | large)
            if answer.status_code != 201:
                break
            numbers.append(answer.json()["id"])
        assert (answer.status_code, answer.json()["error"]["code"]) == (413, "too_large")
        assert answer.json()["error"]["param"] == "content"
        assert 5 <= len(numbers) == len(await w.records("vault")) <= 10
        longer = {"content": "d" * 8000}
        assert (await w.answer("PATCH", f"/records/{numbers[0]}", longer)).status_code == 413
        exported = await w.request("GET", "/export")
        exported["records"] += [each | {"id": "9" + each["id"]} for each in exported["records"]]
        await w.request("DELETE", f"/records/{numbers[0]}")
        small = {"layer": "vault", "content": "a"}
        assert (await w.answer("POST", "/records", small)).status_code == 201
        await w.request("DELETE", "/memories")
        mine, w.relationship = w.relationship, "import"  # type: ignore[assignment]
        answer = await w.answer("POST", "?companion=wren", exported)
        assert (answer.status_code, answer.json()["error"]["param"]) == (413, "records")
        w.relationship = mine
        assert (await w.request("GET", "/export"))["turns"] == []


async def test_what_background_work_writes_is_cut(start: StartServer) -> None:
    """A model knows no limits; a record that it makes has those of everybody's."""
    async with world(start, model=False) as w:
        await w.talk("Hello")
        core = w.server.app.core
        new = NewRecord(
            "vault", "a" * 9000, "model", title="b" * 400, kind="c" * 400, refs=("d" * 400,) * 200
        )
        async with core.records.changing(w.relationship, w.clock.now()) as changes:
            await changes.add(new)
        (record,) = await w.records("vault")
        assert len(record["content"]) == 8000
        assert {len(record["title"]), len(record["kind"]), *map(len, record["refs"])} == {300}
        assert len(record["refs"]) == MOST_LISTED


async def test_a_status_is_one_that_its_layer_has(start: StartServer) -> None:
    """Any other is refused by its name, from a file too."""
    async with world(start, model=False) as w:
        await w.talk("Hello")
        for layer, known in (("questions", {"open", "settled"}), ("vault", set[str]())):
            note = {"layer": layer, "content": "Where is the compass?"}
            written = await w.request("POST", "/records", note)
            for status in ("open", "settled", "done", ""):
                path = f"/records/{written['id']}"
                answer = await w.answer("PATCH", path, {"status": status})
                assert answer.status_code == (200 if status in known else 400), answer.text
                if status not in known:
                    assert answer.json()["error"]["param"] == "status"
        exported = await w.request("GET", "/export")
        exported["records"][1]["details"] = {"status": "open"}
        await w.request("DELETE", "/memories")
        answer = await w.imported(exported)
        assert (answer.status_code, answer.json()["error"]["param"]) == (
            400,
            "records[1].details.status",
        )


async def test_a_record_knows_how_often_it_stood_in_a_prompt(start: StartServer) -> None:
    """And when it last did: in those of replies, not in what is prepared or only looked at."""
    async with world(start, model=False) as w:
        await w.talk("Hello")
        for layer, content in (("profile", "Afraid of heights"), ("vault", "The code is 4711")):
            await w.request("POST", "/records", {"layer": layer, "content": content})
        await w.settled()
        assert "heights" in await w.lines("profile")
        assert {record["used"] for record in await w.records("profile")} == {0}
        await w.talk("Let us climb", "No, higher")
        spoken = w.clock.now()
        await w.clock.advance(10)
        async with asyncio.timeout(PATIENCE):
            while [record["used"] for record in await w.records("profile")] != [2]:
                await w.clock.advance(1)
        (profile,) = await w.records("profile")
        assert spoken - timedelta(seconds=60) < datetime.fromisoformat(profile["used_at"]) <= spoken
        assert [record["used"] for record in await w.records("vault")] == [0]
        exported = (await w.request("GET", "/export"))["records"]
        assert sorted(each["used"] for each in exported if each["layer"] == "profile") == [2]


async def test_what_a_change_does_not_name_stays_as_it_is_by_then(start: StartServer) -> None:
    """Not as it was when the change was asked for: something in it may be forgotten since."""
    async with world(start, model=False) as w:
        await w.talk("Hello")
        note = {"layer": "scratchpad", "kind": "other", "content": "The key is below the mat"}
        number = (await w.request("POST", "/records", note))["id"]
        await w.settled()
        owner = owner_of(w.server.app.core)
        async with owner.acquire() as raw, raw.transaction():
            await raw.execute("SELECT FROM relationships WHERE id = $1 FOR UPDATE", w.relationship)
            changing = asyncio.create_task(
                w.request("PATCH", f"/records/{number}", {"kind": "goal"})
            )

            async def waits() -> bool:
                return bool(await owner.fetchval(_WAITING))

            await patiently(waits)
            await raw.execute(
                "UPDATE records SET content = 'The key', revision = revision + 1 WHERE id = $1",
                int(number),
            )
        await changing
        (record,) = await w.records("scratchpad")
        assert (record["kind"], record["content"]) == ("goal", "The key")


_WAITING = """
SELECT EXISTS (
    SELECT FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'
)
"""
