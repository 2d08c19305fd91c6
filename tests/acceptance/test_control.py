"""What its user may do with everything in every layer: see, correct, delete, export, restore."""

import json

import pytest

from tests.acceptance.layers import World, world
from tests.acceptance.traces import held_in_process, stored_text
from tests.conftest import StartServer

WITH_AND_WITHOUT = pytest.mark.parametrize("model", [True, False], ids=["model", "rules"])
SECRET = "I decided to bury the xylophone under the pear tree of Beatriz"
WORD = "xylophon"


async def fill(w: World) -> None:
    """Three sessions in which the secret gets into every layer."""
    for text in (
        f"My favourite colour is green. {SECRET}",
        f"Save this: {SECRET}",
        "Let's talk about the xylophone of Beatriz later. My goal is to play the xylophone",
    ):
        await w.talk(text, "The garden is lovely in May and I planted tulips there")
        await w.next_day()


async def memory_of(w: World, word: str) -> int:
    """The first memory that holds a word."""
    found = await w.memories()
    return int(next(each["id"] for text, each in found.items() if word in text.lower()))


@WITH_AND_WITHOUT
async def test_forgetting_a_topic_leaves_nothing_of_it_anywhere(
    start: StartServer, model: bool
) -> None:
    """No table, cache, summary, profile or hot context; what is left is made anew without it."""
    async with world(start, model=model) as w:
        await fill(w)
        await w.context("Do you remember the xylophone?")
        assert WORD in await stored_text(w.server)
        receipt = await w.request("DELETE", "/memories?about=xylophone")
        assert receipt["memories"]
        assert receipt["records"] >= 5
        await w.settled()
        await w.next_day()
        assert WORD not in await stored_text(w.server)
        assert not held_in_process(WORD)
        assert WORD not in str(await w.context("Do you remember the garden?")).lower()
        for layer in ("episodes", "hot"):
            assert "tulips" in str(await w.records(layer)), layer
        audit = (await w.request("GET", "/audit"))["audit"]
        assert [each["subject"] for each in audit if each["action"] == "forget"] == ["a topic"]


@pytest.mark.parametrize("by", ["memory", "session", "everything"])
async def test_forgetting_by_other_means(start: StartServer, by: str) -> None:
    """One memory, one session, or all of it: the same promise."""
    async with world(start, model=False) as w:
        await w.talk(SECRET, "The garden is lovely in May and I planted tulips there")
        await w.next_day()
        await w.talk("My favourite colour is green")
        await w.next_day()
        if by == "memory":
            path = f"/memories/{await memory_of(w, WORD)}"
        elif by == "session":
            sessions = (await w.request("GET", "/sessions"))["sessions"]
            path = f"/memories?session={sessions[-1]['id']}"
        else:
            path = "/memories"
        await w.request("DELETE", path)
        await w.settled()
        await w.next_day()
        everything = await stored_text(w.server)
        assert WORD not in everything
        assert ("tulips" in everything) == (by == "memory")
        assert ("colour is green" in everything) == (by != "everything")


async def test_a_removed_record_is_not_made_again(start: StartServer) -> None:
    """Though what it was made of is still there."""
    async with world(start, model=False) as w:
        for _ in range(3):
            await w.talk("I painted my lighthouse. The lighthouse is my pride")
            await w.next_day()
        (topic,) = await w.records("topics", "lighth")
        receipt = await w.request("DELETE", f"/records/{topic['id']}")
        assert receipt["records"] >= 1
        await w.settled()
        await w.talk("I painted my lighthouse again. The lighthouse is my pride")
        await w.next_day()
        assert await w.records("topics", "lighth") == []


@WITH_AND_WITHOUT
async def test_a_corrected_memory_is_found_by_its_new_words_at_once(
    start: StartServer, model: bool
) -> None:
    """And nothing holds the old ones, neither history nor episode nor profile."""
    async with world(start, model=model) as w:
        await w.talk("I planted tulips in the garden", "My favourite instrument is the xylophone")
        await w.next_day()
        memory = await memory_of(w, WORD)
        correction = {"content": "My favourite instrument is the bassoon"}
        await w.request("PATCH", f"/memories/{memory}", correction)
        shown = await w.context("Do you remember my favourite instrument?")
        assert shown["memories"][0]["content"] == correction["content"]
        await w.settled()
        await w.next_day()
        assert WORD not in await stored_text(w.server)
        assert not held_in_process(WORD)
        assert "bassoon" in str(await w.records("episodes"))
        wrong = await w.answer("PATCH", f"/memories/{memory}", {"content": " "})
        assert wrong.json()["error"]["param"] == "content"


@WITH_AND_WITHOUT
async def test_an_export_restores_everything_with_another_companion(
    start: StartServer, model: bool
) -> None:
    """By its published schema; what was said with this one stays what it is."""
    from foremind.domain.companion import CompanionFile  # noqa: PLC0415

    async with world(start, model=model) as w:
        await w.server.app.core.companions.put(CompanionFile("mara", "Mara", "You are Mara."))
        await fill(w)
        exported = await w.request("GET", "/export")
        question = "Do you remember the xylophone of Beatriz?"
        before = await w.context(question)
        again = await w.imported(exported, "mara")
        assert again.status_code == 201, again.text
        twice = await w.imported(exported, "mara")
        assert (twice.status_code, twice.json()["error"]["code"]) == (409, "conflict")
        w.relationship = int(again.json()["id"])
        await w.settled()
        after = await w.context(question)
        assert [each["content"] for each in after["memories"]] == [
            each["content"] for each in before["memories"]
        ]
        for layer in ("profile", "scratchpad", "hot", "episodes", "questions", "vault"):
            assert after["layers"][layer]["lines"] == before["layers"][layer]["lines"], layer
        second = await w.request("GET", "/export")
        assert _without_ids(second) == _without_ids(exported)


@pytest.mark.parametrize("kind", [str, int])
async def test_an_imported_topic_knows_what_it_was_made_of(start: StartServer, kind: type) -> None:
    """By the ids of this server, also where a file of an earlier version has a number."""
    from foremind.domain.companion import CompanionFile  # noqa: PLC0415

    async with world(start, model=False) as w:
        await w.server.app.core.companions.put(CompanionFile("mara", "Mara", "You are Mara."))
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
            record("70001", "topics", "Tulips", details={"upto": kind(70003), "sessions": 2}),
            record("70002", "episodes", "The first day"),
            record("70003", "episodes", "The second day"),
            record("70004", "episodes", "The third day"),
            record("70005", "topics", "Nets", details={"upto": kind(5), "sessions": 1}),
        ]
        exported["progress"] = {}
        again = await w.imported(exported, "mara")
        assert again.status_code == 201, again.text
        w.relationship = int(again.json()["id"])
        records = {each["title"]: each for each in (await w.request("GET", "/export"))["records"]}
        assert records["Tulips"]["details"] == {
            "sessions": 2, "upto": records["The second day"]["id"]
        }  # fmt: skip
        assert records["Nets"]["details"] == {"sessions": 1}


def _without_ids(export: dict[str, object]) -> object:
    """An export as it reads apart from the numbers that a server gives."""
    return json.dumps(
        [
            [(each["text"], each["said_at"]) for each in export["turns"]],  # type: ignore[attr-defined]
            [(each["content"], each["significance"]) for each in export["memories"]],  # type: ignore[attr-defined]
            [(each["layer"], each["content"], each["created_at"]) for each in export["records"]],  # type: ignore[attr-defined]
        ]
    )


@pytest.mark.parametrize(
    ("change", "param"),
    [
        ({"version": 2}, "version"),
        ({"turns": [{"id": "1"}]}, "turns[0]"),
        ({"sessions": []}, "turns"),
        ({"turns": []}, "memories"),
        ({"time_zone": "Mars/Olympus"}, "time_zone"),
        ({"user_name": "A\0na"}, "user_name"),
        ({"user_name": ""}, "user_name"),
        ({"exported_at": "2026-11-22T09:00:00"}, "exported_at"),
        ({"exported_at": "0001-01-01T00:00:00+14:00"}, "exported_at"),
        ({"progress": {"dismissed": ["a", "b\0"]}}, "progress.dismissed[1]"),
        ({"settings": {"shares_counts": "no"}}, "settings.shares_counts"),
        ({"settings": {"retention_days": {"a\0": 1}}}, "settings.retention_days"),
    ],
)
async def test_a_wrong_export_names_the_field(
    start: StartServer, change: dict[str, object], param: str
) -> None:
    """And nothing of it is stored."""
    async with world(start, model=False) as w:
        await w.talk("I promise to remember the red door")
        exported = await w.request("GET", "/export") | change
        await _refused(w, exported, param)


@pytest.mark.parametrize(
    ("part", "field", "value", "param"),
    [
        ("turns", "text", "a\0b", "turns[2].text"),
        ("turns", "said_at", "2026-11-22T09:00:00", "turns[2].said_at"),
        ("turns", "message_id", "x" * 257, "turns[2].message_id"),
        ("turns", "message_id", None, "turns"),
        ("turns", "reply_to", "1", "turns"),
        ("memories", "content", "a\0b", "memories[1].content"),
        ("memories", "significance", 2, "memories[1].significance"),
        ("memories", "happened_from", "2026-11-22T09:00:00Z", "memories"),
    ],
)
async def test_a_wrong_part_of_an_export_names_the_field(
    start: StartServer, part: str, field: str, value: object, param: str
) -> None:
    """In what was said second, or remembered of it; the rest is as it should be."""
    async with world(start, model=False) as w:
        await w.talk("I promise to remember the red door", "I promise to remember the blue one")
        exported = await w.request("GET", "/export")
        exported[part][2 if part == "turns" else 1][field] = value
        await _refused(w, exported, param)


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


async def test_a_file_has_the_limits_of_every_other_door(start: StartServer) -> None:
    """Whatever is too long or too many is refused by its name before anything is stored."""
    async with world(start, model=False) as w:
        await w.talk("I promise to remember the red door")
        note = {"layer": "vault", "kind": "other", "content": "Likes xylophones"}
        number = (await w.request("POST", "/records", note))["id"]
        await w.request("PATCH", f"/records/{number}", {"content": "Likes bassoons"})
        exported = await w.request("GET", "/export")
        await w.request("DELETE", "/memories")
        for part, change, param in OVER_A_LIMIT:
            first, *others = exported[part]
            await _refused(w, exported | {part: [first | change, *others]}, param)
        assert (await w.request("GET", "/export"))["turns"] == []
        assert (await w.imported(exported)).status_code == 201


async def _refused(w: World, exported: dict[str, object], param: str) -> None:
    answer = await w.imported(exported)
    assert answer.status_code == 400
    assert answer.json()["error"]["param"] == param


async def test_the_schema_of_an_export_is_published(start: StartServer) -> None:
    """As JSON Schema."""
    async with world(start, model=False) as w:
        w.relationship = "../schemas"  # type: ignore[assignment]
        schema = await w.request("GET", "/export")
        assert "Export" in schema["$defs"]


async def test_what_is_past_its_days_is_let_go(start: StartServer) -> None:
    """By layer and by type of memory; the rest stays."""
    days = {"conversation": 10, "episodes": 10}
    async with world(start, model=False, retention_days=days) as w:
        await w.talk(SECRET)
        await w.next_day()
        assert await w.records("episodes")
        for _ in range(12):
            await w.next_day()
        assert await w.records("episodes") == []
        assert await w.memories() == {}


async def test_a_removed_record_is_in_no_prepared_context(start: StartServer) -> None:
    """Nor held with the relationship's other records."""
    async with world(start, model=False) as w:
        await w.talk("Hello")
        saved = {"layer": "vault", "content": SECRET, "by": "developer"}
        number = (await w.request("POST", "/records", saved))["id"]
        await w.settled()
        await w.talk("Do you remember what is under the pear tree of Beatriz?")
        assert "PreparedContext" in held_in_process(WORD)
        await w.request("DELETE", f"/records/{number}")
        await w.settled()
        assert not held_in_process(WORD)
        assert WORD not in await stored_text(w.server)


async def test_every_change_is_in_the_audit_trail_without_its_words(start: StartServer) -> None:
    """Who did what, to which layer."""
    async with world(start, model=False) as w:
        await w.talk("Hello")
        note = {"layer": "scratchpad", "kind": "other", "content": "Likes xylophones"}
        number = (await w.request("POST", "/records", note))["id"]
        await w.request("PATCH", f"/records/{number}", {"content": "Likes bassoons"})
        await w.request("POST", f"/records/{number}/restore", {"revision": 1})
        await w.request("DELETE", f"/records/{number}")
        await w.request("GET", "/export")
        trail = (await w.request("GET", "/audit"))["audit"]
        assert [(each["actor"], each["action"]) for each in trail] == [
            ("ana", action) for action in ("write", "correct", "restore", "forget", "export")
        ]
        assert WORD not in str(trail)


@pytest.mark.parametrize(
    ("method", "path", "body", "param"),
    [
        ("POST", "/records", {"layer": "soul", "content": "x"}, "layer"),
        ("POST", "/records", {"layer": "vault"}, "body"),
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
async def test_a_wrong_request_names_the_field(
    start: StartServer, method: str, path: str, body: object, param: str
) -> None:
    """And changes nothing."""
    async with world(start, model=False) as w:
        await w.talk("I promise to remember the red door")
        answer = await w.answer(method, path, body)
        assert answer.status_code in (400, 404)
        assert answer.json()["error"]["param"] == param
