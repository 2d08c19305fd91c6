"""Records: limits, statuses, counts of use, and concurrent changes."""

import asyncio
from datetime import datetime, timedelta

import pytest

from foremind.domain.record import MAX_LIST_ITEMS, MAX_TITLE_CHARS, NewRecord
from foremind.storage import record_store
from tests.acceptance.world import world
from tests.conftest import PATIENCE, StartServer, eventually_async, owner_of


async def test_references_of_a_record_are_limited(start: StartServer) -> None:
    """In number and length; records over a limit are not stored."""
    async with world(start, model=False) as w:
        await w.talk("Hello")
        note = {"layer": "vault", "content": "A note", "refs": ["a"] * MAX_LIST_ITEMS}
        assert (await w.response_to("POST", "/records", note)).status_code == 201
        for refs, param in (
            (["a"] * (MAX_LIST_ITEMS + 1), "refs"),
            (["a", "b" * (MAX_TITLE_CHARS + 1)], "refs[1]"),
        ):
            refused = await w.response_to("POST", "/records", note | {"refs": refs})
            assert (refused.status_code, refused.json()["error"]["param"]) == (400, param)
        assert len(await w.records("vault")) == 1


async def test_a_record_says_something(start: StartServer) -> None:
    """White space is no text, neither at first nor later."""
    async with world(start, model=False) as w:
        await w.talk("Hello")
        note = {"layer": "vault", "content": "A note"}
        record_id = (await w.request("POST", "/records", note))["id"]
        for method, path in (("POST", "/records"), ("PATCH", f"/records/{record_id}")):
            body = note if method == "POST" else {}
            refused = await w.response_to(method, path, body | {"content": " \n"})
            assert (refused.status_code, refused.json()["error"]["param"]) == (400, "content")
        assert [pin["content"] for pin in await w.records("vault")] == ["A note"]


@pytest.mark.parametrize(
    "large",
    [
        {"content": "a" * 5000},
        {"title": "a" * 300, "kind": "b" * 300, "content": "c" * 4400},
        {"content": "a", "refs": ["bc de " * 40] * 20},
    ],
)
async def test_records_of_a_relationship_have_a_byte_limit(
    start: StartServer, monkeypatch: pytest.MonkeyPatch, large: dict[str, object]
) -> None:
    """Of all fields, for created, changed and imported records; deleting some makes room."""
    monkeypatch.setattr(record_store, "MAX_RECORD_BYTES", 50_000)
    async with world(start, model=False) as w:
        await w.talk("Hello")
        ids = []
        while True:
            response = await w.response_to(
                "POST", "/records", {"layer": "vault", "content": "a"} | large
            )
            if response.status_code != 201:
                break
            ids.append(response.json()["id"])
        assert (response.status_code, response.json()["error"]["code"]) == (413, "too_large")
        assert response.json()["error"]["param"] == "content"
        assert 5 <= len(ids) == len(await w.records("vault")) <= 10
        longer = {"content": "d" * 8000}
        assert (await w.response_to("PATCH", f"/records/{ids[0]}", longer)).status_code == 413
        exported = await w.request("GET", "/export")
        exported["records"] += [
            record | {"id": "9" + record["id"]} for record in exported["records"]
        ]
        await w.request("DELETE", f"/records/{ids[0]}")
        small = {"layer": "vault", "content": "a"}
        assert (await w.response_to("POST", "/records", small)).status_code == 201
        await w.request("DELETE", "/memories")
        relationship_id, w.relationship = w.relationship, "import"  # type: ignore[assignment]
        response = await w.response_to("POST", "?companion=wren", exported)
        assert (response.status_code, response.json()["error"]["param"]) == (413, "records")
        w.relationship = relationship_id
        assert (await w.request("GET", "/export"))["turns"] == []


async def test_records_of_background_work_are_truncated(start: StartServer) -> None:
    """To the limits of other records, since models do not know them."""
    async with world(start, model=False) as w:
        await w.talk("Hello")
        core = w.server.app.core
        new = NewRecord(
            "vault", "a" * 9000, "model", title="b" * 400, kind="c" * 400, refs=("d" * 400,) * 200
        )
        async with core.stores.records.begin_changes(w.relationship, w.clock.now()) as changes:
            await changes.add(new)
        (record,) = await w.records("vault")
        assert len(record["content"]) == 8000
        assert {len(record["title"]), len(record["kind"]), *map(len, record["refs"])} == {300}
        assert len(record["refs"]) == MAX_LIST_ITEMS


async def test_the_status_of_a_record_is_one_of_its_layer(start: StartServer) -> None:
    """Errors for others name the field, also in imports."""
    async with world(start, model=False) as w:
        await w.talk("Hello")
        for layer, allowed in (("questions", {"open", "settled"}), ("vault", set[str]())):
            note = {"layer": layer, "content": "Where is the compass?"}
            record = await w.request("POST", "/records", note)
            for status in ("open", "settled", "done", ""):
                path = f"/records/{record['id']}"
                response = await w.response_to("PATCH", path, {"status": status})
                assert response.status_code == (200 if status in allowed else 400), response.text
                if status not in allowed:
                    assert response.json()["error"]["param"] == "status"
        exported = await w.request("GET", "/export")
        exported["records"][1]["details"] = {"status": "open"}
        await w.request("DELETE", "/memories")
        response = await w.import_file(exported)
        assert (response.status_code, response.json()["error"]["param"]) == (
            400,
            "records[1].details.status",
        )


async def test_a_record_counts_its_uses_in_prompts(start: StartServer) -> None:
    """Those of replies only, not of prefetched or viewed contexts, with the time of the last."""
    async with world(start, model=False) as w:
        await w.talk("Hello")
        for layer, content in (("profile", "Afraid of heights"), ("vault", "The code is 4711")):
            await w.request("POST", "/records", {"layer": layer, "content": content})
        await w.wait_until_idle()
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
        assert [record["used"] for record in exported if record["layer"] == "profile"] == [2]


async def test_a_patch_keeps_concurrent_changes_of_other_fields(start: StartServer) -> None:
    """The content may have been shortened by an erasure in the meantime."""
    async with world(start, model=False) as w:
        await w.talk("Hello")
        note = {"layer": "scratchpad", "kind": "other", "content": "The key is below the mat"}
        record_id = (await w.request("POST", "/records", note))["id"]
        await w.wait_until_idle()
        owner = owner_of(w.server.app.core)
        async with owner.acquire() as raw, raw.transaction():
            await raw.execute("SELECT FROM relationships WHERE id = $1 FOR UPDATE", w.relationship)
            patch = asyncio.create_task(
                w.request("PATCH", f"/records/{record_id}", {"kind": "goal"})
            )
            await eventually_async(owner.is_waited_for)
            await raw.execute(
                "UPDATE records SET content = 'The key', revision = revision + 1 WHERE id = $1",
                int(record_id),
            )
        await patch
        (record,) = await w.records("scratchpad")
        assert (record["kind"], record["content"]) == ("goal", "The key")
