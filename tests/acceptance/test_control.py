"""What users may do with the content of every layer: correct, erase, export, import, audit."""

import json
from typing import Any

import pytest

from tests.acceptance.traces import objects_containing, stored_text
from tests.acceptance.world import World, world
from tests.conftest import StartServer, eventually

WITH_AND_WITHOUT_MODEL = pytest.mark.parametrize("model", [True, False], ids=["model", "rules"])
SECRET = "I decided to bury the xylophone under the pear tree of Beatriz"
WORD = "xylophon"


async def fill(w: World) -> None:
    """Hold three sessions through which the secret gets into every layer."""
    for text in (
        f"My favourite colour is green. {SECRET}",
        f"Save this: {SECRET}",
        "Let's talk about the xylophone of Beatriz later. My goal is to play the xylophone",
    ):
        await w.talk(text, "The garden is lovely in May and I planted tulips there")
        await w.next_day()


async def memory_id(w: World, word: str) -> int:
    """Return the id of the first memory that contains a word."""
    memories = await w.memories()
    return int(next(memory["id"] for text, memory in memories.items() if word in text.lower()))


@WITH_AND_WITHOUT_MODEL
async def test_erasing_a_topic_removes_it_from_everywhere(start: StartServer, model: bool) -> None:
    """From tables, caches, summaries, profile and core memory; derived records are rebuilt."""
    async with world(start, model=model) as w:
        await fill(w)
        await w.context("Do you remember the xylophone?")
        assert WORD in await stored_text(w.server)
        receipt = await w.request("DELETE", "/memories?about=xylophone")
        assert receipt["memories"]
        assert receipt["records"] >= 5
        await w.wait_until_idle()
        await w.next_day()
        assert WORD not in await stored_text(w.server)
        await eventually(lambda: not objects_containing(WORD))
        assert WORD not in str(await w.context("Do you remember the garden?")).lower()
        for layer in ("episodes", "hot"):
            assert "tulips" in str(await w.records(layer)), layer
        audit = (await w.request("GET", "/audit"))["audit"]
        assert [entry["subject"] for entry in audit if entry["action"] == "forget"] == ["a topic"]


@pytest.mark.parametrize("by", ["memory", "session", "everything"])
async def test_erasing_a_memory_a_session_or_everything_removes_it_from_everywhere(
    start: StartServer, by: str
) -> None:
    async with world(start, model=False) as w:
        await w.talk(SECRET, "The garden is lovely in May and I planted tulips there")
        await w.next_day()
        await w.talk("My favourite colour is green")
        await w.next_day()
        if by == "memory":
            path = f"/memories/{await memory_id(w, WORD)}"
        elif by == "session":
            sessions = (await w.request("GET", "/sessions"))["sessions"]
            path = f"/memories?session={sessions[-1]['id']}"
        else:
            path = "/memories"
        await w.request("DELETE", path)
        await w.wait_until_idle()
        await w.next_day()
        everything = await stored_text(w.server)
        assert WORD not in everything
        assert ("tulips" in everything) == (by == "memory")
        assert ("colour is green" in everything) == (by != "everything")


async def test_a_removed_record_is_not_created_again(start: StartServer) -> None:
    """Though its sources still exist."""
    async with world(start, model=False) as w:
        for _ in range(3):
            await w.talk("I painted my lighthouse. The lighthouse is my pride")
            await w.next_day()
        (topic,) = await w.records("topics", "lighth")
        receipt = await w.request("DELETE", f"/records/{topic['id']}")
        assert receipt["records"] >= 1
        await w.wait_until_idle()
        await w.talk("I painted my lighthouse again. The lighthouse is my pride")
        await w.next_day()
        assert await w.records("topics", "lighth") == []


@WITH_AND_WITHOUT_MODEL
async def test_a_corrected_memory_is_found_by_its_new_content_at_once(
    start: StartServer, model: bool
) -> None:
    """And nothing contains the old content, neither history nor episodes nor profile."""
    async with world(start, model=model) as w:
        await w.talk("I planted tulips in the garden", "My favourite instrument is the xylophone")
        await w.next_day()
        memory = await memory_id(w, WORD)
        correction = {"content": "My favourite instrument is the bassoon"}
        await w.request("PATCH", f"/memories/{memory}", correction)
        shown = await w.context("Do you remember my favourite instrument?")
        assert shown["memories"][0]["content"] == correction["content"]
        await w.wait_until_idle()
        await w.next_day()
        assert WORD not in await stored_text(w.server)
        await eventually(lambda: not objects_containing(WORD))
        assert "bassoon" in str(await w.records("episodes"))
        wrong = await w.response_to("PATCH", f"/memories/{memory}", {"content": " "})
        assert wrong.json()["error"]["param"] == "content"


@WITH_AND_WITHOUT_MODEL
async def test_an_export_can_be_imported_for_another_companion(
    start: StartServer, model: bool
) -> None:
    """It restores everything; a second import is refused."""
    from foremind.domain.companion import CompanionFile  # noqa: PLC0415

    async with world(start, model=model) as w:
        await w.server.app.core.stores.companions.put(
            CompanionFile("mara", "Mara", "You are Mara.")
        )
        await fill(w)
        exported = await w.request("GET", "/export")
        question = "Do you remember the xylophone of Beatriz?"
        before = await w.context(question)
        imported = await w.import_file(exported, "mara")
        assert imported.status_code == 201, imported.text
        second_import = await w.import_file(exported, "mara")
        assert (second_import.status_code, second_import.json()["error"]["code"]) == (
            409,
            "conflict",
        )
        w.relationship = int(imported.json()["id"])
        await w.wait_until_idle()
        after = await w.context(question)
        assert [memory["content"] for memory in after["memories"]] == [
            memory["content"] for memory in before["memories"]
        ]
        for layer in ("profile", "scratchpad", "hot", "episodes", "questions", "vault"):
            assert after["layers"][layer]["lines"] == before["layers"][layer]["lines"], layer
        second_export = await w.request("GET", "/export")
        assert _without_ids(second_export) == _without_ids(exported)


@pytest.mark.parametrize("memory_type", ["observation", "event"])
async def test_an_imported_memory_keeps_its_type(start: StartServer, memory_type: str) -> None:
    """And prompts tell of what happened, not of what the player said."""
    async with world(start, model=False) as w:
        await w.talk("My boat sank in the harbour of Porto")
        exported = await w.request("GET", "/export")
        (memory,) = [
            memory for memory in exported["memories"] if memory["content"].startswith("My boat")
        ]
        memory |= {"memory_type": memory_type, "content": "The boat sank in the harbour of Porto"}
        await w.request("DELETE", "/memories")
        assert (await w.import_file(exported)).is_success
        for shown in (
            await w.request("GET", "/memories"),
            await w.request("GET", "/export"),
            await w.context("What about the boat in Porto?"),
        ):
            (kept,) = [kept for kept in shown["memories"] if kept["content"] == memory["content"]]
            assert kept["memory_type"] == memory_type
        assert 'this happened: "The boat sank' in await w.lines("memories", "The boat in Porto?")


async def test_an_imported_topic_keeps_its_sources(start: StartServer) -> None:
    """By this server's ids."""
    from foremind.domain.companion import CompanionFile  # noqa: PLC0415

    async with world(start, model=False) as w:
        await w.server.app.core.stores.companions.put(
            CompanionFile("mara", "Mara", "You are Mara.")
        )
        await w.talk("I planted tulips in the garden")
        exported = await w.request("GET", "/export")
        now = exported["exported_at"]

        def record(id_: str, layer: str, content: str, **more: object) -> dict[str, object]:
            return {
                "id": id_, "layer": layer, "kind": "", "title": content, "content": content,
                "refs": [], "details": {}, "made_by": "rules", "session": None, "created_at": now,
                "updated_at": now, "turns": [], "sources": [],
            } | more  # fmt: skip

        exported["records"] = [
            record("70001", "topics", "Tulips", details={"upto": "70003", "sessions": 2}),
            record("70002", "episodes", "The first day"),
            record("70003", "episodes", "The second day"),
            record("70004", "episodes", "The third day"),
            record("70005", "topics", "Nets", details={"upto": "5", "sessions": 1}),
        ]
        exported["progress"] = {}
        imported = await w.import_file(exported, "mara")
        assert imported.status_code == 201, imported.text
        w.relationship = int(imported.json()["id"])
        records = {
            entry["title"]: entry for entry in (await w.request("GET", "/export"))["records"]
        }
        assert records["Tulips"]["details"] == {
            "sessions": 2, "upto": records["The second day"]["id"]
        }  # fmt: skip
        assert records["Nets"]["details"] == {"sessions": 1}


def _without_ids(export: dict[str, Any]) -> object:
    """Return an export without the ids that a server assigns."""
    return json.dumps(
        [
            [[part[field] for field in fields] for part in export[name]]
            for name, fields in (
                ("turns", ("text", "said_at")),
                ("memories", ("content", "significance")),
                ("records", ("layer", "content", "created_at")),
            )
        ]
    )


@pytest.mark.parametrize(
    ("change", "param"),
    [
        ({"version": 2}, "version"),
        ({"turns": [{"id": "1"}]}, "turns[0].session"),
        ({"sessions": []}, "turns[0].session"),
        ({"turns": []}, "memories[0].turn"),
        ({"time_zone": "Mars/Olympus"}, "time_zone"),
        ({"user_name": "A\0na"}, "user_name"),
        ({"user_name": ""}, "user_name"),
        ({"exported_at": "2026-11-22T09:00:00"}, "exported_at"),
        ({"exported_at": "0001-01-01T00:00:00+14:00"}, "exported_at"),
        ({"progress": {"dismissed": ["a", "b\0"]}}, "progress.dismissed[1]"),
        ({"settings": {"recall_gate": "no"}}, "settings.recall_gate"),
        ({"settings": {"retention_days": {"a\0": 1}}}, "settings.retention_days.a\ufffd"),
    ],
)
async def test_the_error_for_an_invalid_export_names_the_field(
    start: StartServer, change: dict[str, object], param: str
) -> None:
    """Nothing of it is stored."""
    async with world(start, model=False) as w:
        await w.talk("I promise to remember the red door")
        exported = await w.request("GET", "/export") | change
        await _assert_import_refused(w, exported, param)


@pytest.mark.parametrize(
    ("part", "field", "value", "param"),
    [
        ("turns", "text", "a\0b", "turns[2].text"),
        ("turns", "said_at", "2026-11-22T09:00:00", "turns[2].said_at"),
        ("turns", "message_id", "x" * 257, "turns[2].message_id"),
        ("turns", "message_id", None, "turns[2].message_id"),
        ("turns", "reply_to", "1", "turns[2].reply_to"),
        ("turns", "session", None, "turns[2].event_id"),
        ("memories", "content", "a\0b", "memories[1].content"),
        ("memories", "significance", 2, "memories[1].significance"),
        ("memories", "happened_from", "2026-11-22T09:00:00Z", "memories[1].happened_to"),
        ("memories", "content", " ", "memories[1].content"),
        ("memories", "again", ["999999"], "memories[1].again"),
    ],
)
async def test_the_error_for_an_invalid_part_of_an_export_names_the_field(
    start: StartServer, part: str, field: str, value: object, param: str
) -> None:
    """The second message or its memory is invalid; everything else is valid."""
    async with world(start, model=False) as w:
        await w.talk("I promise to remember the red door", "I promise to remember the blue one")
        exported = await w.request("GET", "/export")
        exported[part][2 if part == "turns" else 1][field] = value
        await _assert_import_refused(w, exported, param)


LONG = "a" * 8001
MANY = ["a"] * 101


OVER_A_LIMIT: list[tuple[str, dict[str, object], str]] = [
    ("turns", {"text": LONG}, "turns[0].text"),
    ("turns", {"text": "a" * 5_000_000}, "turns[0].text"),
    ("memories", {"content": LONG}, "memories[0].content"),
    ("memories", {"reasons": [{"name": "a" * 301, "score": 1}]}, "memories[0].reasons[0].name"),
    ("memories", {"reasons": [{"name": "a", "score": 1}] * 101}, "memories[0].reasons"),
    ("records", {"content": LONG}, "records[0].content"),
    ("records", {"title": "a" * 301}, "records[0].title"),
    ("records", {"refs": ["a", "a" * 301]}, "records[0].refs[1]"),
    ("records", {"refs": MANY}, "records[0].refs"),
    ("records", {"refs": ["a" * 100] * 100_000}, "records[0].refs"),
    ("records", {"details": {"questions": MANY}}, "records[0].details.questions"),
    ("records", {"details": {"topics": ["a" * 301]}}, "records[0].details.topics[0]"),
    ("records", {"details": {"status": "a" * 301}}, "records[0].details.status"),
    ("revisions", {"content": LONG}, "revisions[0].content"),
    ("sessions", {"id": "a" * 301}, "sessions[0].id"),
]


async def test_imports_have_the_same_limits_as_other_requests(start: StartServer) -> None:
    """What is too long or too many is named in the error, and nothing is stored."""
    async with world(start, model=False) as w:
        await w.talk("I promise to remember the red door")
        note = {"layer": "vault", "kind": "other", "content": "Likes xylophones"}
        record_id = (await w.request("POST", "/records", note))["id"]
        await w.request("PATCH", f"/records/{record_id}", {"content": "Likes bassoons"})
        exported = await w.request("GET", "/export")
        await w.request("DELETE", "/memories")
        for part, change, param in OVER_A_LIMIT:
            first, *others = exported[part]
            await _assert_import_refused(w, exported | {part: [first | change, *others]}, param)
        assert (await w.request("GET", "/export"))["turns"] == []
        assert (await w.import_file(exported)).status_code == 201
        again = await w.import_file(exported)
        assert (again.status_code, again.json()["error"]["param"]) == (409, "companion")


async def _assert_import_refused(w: World, exported: dict[str, object], param: str) -> None:
    response = await w.import_file(exported)
    assert response.status_code == 400
    assert response.json()["error"]["param"] == param


async def test_the_schema_of_an_export_is_published(start: StartServer) -> None:
    """As JSON Schema."""
    async with world(start, model=False) as w:
        w.relationship = "../schemas"  # type: ignore[assignment]
        schema = await w.request("GET", "/export")
        assert "Export" in schema["$defs"]


async def test_a_removed_record_disappears_from_all_caches(start: StartServer) -> None:
    """From contexts and from the layer cache."""
    async with world(start, model=False) as w:
        await w.talk("Hello")
        pinned = {"layer": "vault", "content": SECRET, "by": "developer"}
        record_id = (await w.request("POST", "/records", pinned))["id"]
        await w.wait_until_idle()
        await w.talk("Do you remember what is under the pear tree of Beatriz?")
        assert "PreparedContext" in objects_containing(WORD)
        await w.request("DELETE", f"/records/{record_id}")
        await w.wait_until_idle()
        await eventually(lambda: not objects_containing(WORD))
        assert WORD not in await stored_text(w.server)


async def test_the_audit_trail_lists_every_change_without_its_content(start: StartServer) -> None:
    """With actor, action and layer."""
    async with world(start, model=False) as w:
        await w.talk("Hello")
        note = {"layer": "scratchpad", "kind": "other", "content": "Likes xylophones"}
        record_id = (await w.request("POST", "/records", note))["id"]
        await w.request("PATCH", f"/records/{record_id}", {"content": "Likes bassoons"})
        await w.request("POST", f"/records/{record_id}/restore", {"revision": 1})
        await w.request("DELETE", f"/records/{record_id}")
        await w.request("GET", "/export")
        trail = (await w.request("GET", "/audit"))["audit"]
        assert [(entry["actor"], entry["action"]) for entry in trail] == [
            ("ana", action) for action in ("write", "correct", "restore", "forget", "export")
        ]
        assert WORD not in str(trail)


@pytest.mark.parametrize(
    ("method", "path", "body", "param"),
    [
        ("POST", "/records", {"layer": "soul", "content": "x"}, "layer"),
        ("POST", "/records", {"layer": "vault"}, "content"),
        ("POST", "/records", {"layer": "vault", "content": "x", "by": "model"}, "by"),
        ("POST", "/records", b'{"layer": "vault", "content": "\xff"}', "body"),
        ("PATCH", "/records/999", {"content": "x"}, "record"),
        ("PATCH", "/records/one", {"content": "x"}, "record"),
        ("DELETE", "/memories?about=zeppelin", None, "about"),
        ("DELETE", "/memories?session=none", None, "session"),
        ("PATCH", "/config", {"settings": {"pause_ms": 1}}, "settings.pause_ms"),
        ("PATCH", "/config", {"settings": {"llm_url": "http://evil"}}, "settings.llm_url"),
    ],
)
async def test_the_error_for_an_invalid_request_names_the_field(
    start: StartServer, method: str, path: str, body: object, param: str
) -> None:
    """The request changes nothing."""
    async with world(start, model=False) as w:
        await w.talk("I promise to remember the red door")
        response = await w.response_to(method, path, body)
        assert response.status_code in (400, 404)
        assert response.json()["error"]["param"] == param
