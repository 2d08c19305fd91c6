"""Files of other programs, as their versions of 2024 to 2026 write them, become a relationship."""

import io
import json
import zipfile
from datetime import UTC, datetime, timedelta
from typing import Any
from zoneinfo import ZoneInfo

import pytest

from foremind.domain.errors import InvalidMessage, TooLarge
from foremind.memory import foreign_chats
from foremind.memory.foreign_chats import ForeignPast, is_foreign, read_foreign
from foremind.memory.import_relationship import check

NOW = datetime(2026, 3, 1, tzinfo=UTC)


def lines(*documents: object) -> bytes:
    """JSON lines."""
    return "\n".join(json.dumps(document) for document in documents).encode()


def read(*files: bytes, name: str | None = None, max_turns: int = 50_000) -> ForeignPast:
    """Read files of Ana's and Wren's."""
    past = read_foreign(
        files,
        "wren",
        (name, "ana"),
        max_chars={"user": 100, "companion": 200},
        session=timedelta(hours=24),
        zone=ZoneInfo("Europe/Lisbon"),
        now=NOW,
        max_turns=max_turns,
    )
    check(past.export)
    return past


def said(past: ForeignPast) -> list[tuple[str, str, str]]:
    """Who said what, when."""
    return [
        (turn.speaker, turn.text, f"{turn.said_at:%Y-%m-%d %H:%M}") for turn in past.export.turns
    ]


def missing(past: ForeignPast) -> list[str]:
    """What could not be read."""
    return [f"{notice.field}: {notice.text}" for notice in past.notices]


# SillyTavern 1.12: public/script.js (saveChat, sendMessageAsUser), public/scripts/utils.js.
OLD_HEADER = {"user_name": "Ana", "character_name": "Wren", "create_date": "2024-7-12@01h31m37s",
              "chat_metadata": {"note_prompt": ""}}  # fmt: skip
NEW_HEADER = {"chat_metadata": {"integrity": "x"}, "user_name": "unused",
              "character_name": "unused"}  # fmt: skip


def line(mes: object, date: object, *, user: bool = False, **more: object) -> dict[str, object]:
    """A message of SillyTavern's."""
    return {"name": "Ana" if user else "Wren", "is_user": user, "is_system": False,
            "send_date": date, "mes": mes, "extra": {}} | more  # fmt: skip


TAVERN = lines(
    OLD_HEADER,
    line("You are wet.", "June 19, 2023 2:20pm"),
    line("Bo is my dog.", "June 19, 2023 2:21pm", user=True),
    line("Good dog.", "June 19, 2023 2:21pm", swipes=["Hm.", "Good dog."], swipe_id=1),
)


@pytest.mark.parametrize(
    ("date", "expected"),
    [
        ("June 19, 2023 2:20pm", "2023-06-19 13:20"),  # in Lisbon
        ("2024-7-12@01h31m37s", "2024-07-12 01:31"),
        ("2024-6-5 @14h 56m 50s 682ms", "2024-06-05 14:56"),
        ("2025-11-02T09:15:30.123Z", "2025-11-02 09:15"),
        (1_700_000_000_000, "2023-11-14 22:13"),
        ("1700000000000", "2023-11-14 22:13"),
    ],
)
def test_every_date_of_sillytavern_is_read(date: object, expected: str) -> None:
    """Whatever its version has written."""
    past = read(lines(NEW_HEADER, line("Hi.", date, user=True)))
    assert said(past) == [("user", "Hi.", expected)]
    assert missing(past) == []


def test_a_chat_of_sillytavern_is_read() -> None:
    """With its greeting, the swipe that is shown, and the name of its user."""
    past = read(TAVERN)
    assert (past.program, past.export.user_name) == ("SillyTavern", "Ana")
    assert said(past) == [
        ("companion", "You are wet.", "2023-06-19 13:20"),
        ("user", "Bo is my dog.", "2023-06-19 13:21"),
        ("companion", "Good dog.", "2023-06-19 13:21"),
    ]
    greeting, message, reply = past.export.turns
    assert (greeting.reply_to, reply.reply_to) == (None, message.id)
    assert str(message.message_id).startswith("import-sillytavern-")
    (session,) = past.export.sessions
    assert session.opened_at == greeting.said_at
    assert session.closed_at == session.active_at == reply.said_at


def test_what_of_a_chat_cannot_be_read_is_listed() -> None:
    """By its first place, and how often it was found; the rest is read."""
    past = read(
        lines(
            NEW_HEADER,
            line("One.", 1_700_000_000_000, user=True, name="Bea"),
            line("", 1_700_000_001_000, extra={"image": "x.png"}),
            line("# Note", 1_700_000_002_000, name="System", is_system=True),
            line("Night falls.", 1_700_000_002_000, name="System", extra={"type": "narrator"}),
        )
        + b'\n{"name": "Wren", "mes": "half\n'
        + lines(
            line({"message": "Two."}, "someday"),  # Chub's have more around a text
            line("Three \ud83d.", 1_700_000_003_000),
            line("x" * 300, 1_700_000_004_000),
            line("Four.", 4_000_000_000_000, user=True),
        )
    )
    assert past.export.user_name in ("Ana", "Bea")
    assert said(past) == [
        ("user", "One.", "2023-11-14 22:13"),
        ("companion", "Two.", "2023-11-14 22:13"),
        ("companion", "Three .", "2023-11-14 22:13"),
        ("companion", "x" * 200, "2023-11-14 22:13"),
        ("user", "Four.", "2023-11-14 22:13"),
    ]
    assert missing(past) == [
        "line 3: messages without text are not read",
        "line 4: remarks of the program and of narrators are not read; 2 in all",
        "line 6: expected JSON",
        "dates: some dates could not be read: those before them were taken",
        "body: messages over 200 characters were cut there",
        "dates: some are before 1990 or to come: others were taken",
    ]


def test_what_sillytavern_says_itself_is_no_line_of_the_companion() -> None:
    """But a greeting of its assistant is; and a line that is hidden from models was said."""
    at = 1_700_000_000_000
    tool = {"isSmallSys": True, "tool_invocations": [{"id": "x", "name": "dice", "result": "3"}]}
    past = read(
        lines(
            NEW_HEADER,
            line("Hi.", at, user=True, is_system=True),
            line("Tool calls: dice", at, name="SillyTavern System", is_system=True, extra=tool),
            line("Hello.", at, name="SillyTavern System", is_system=True),
            line("Hey.", at, extra={"type": "assistant_message", "swipeable": False}),
        )
    )
    assert [text for _, text, _ in said(past)] == ["Hi.", "Hey."]
    assert missing(past) == [
        "line 3: remarks of the program and of narrators are not read; 2 in all"
    ]


def test_who_speaks_in_a_group_is_told() -> None:
    """The companion, or who says most, as before; the others after their names."""
    at = 1_700_000_000_000
    group = [
        line("Hi.", at, user=True),
        line("Ho.", at, name="Mara"),
        line("Hum.", at, name="Mara"),
    ]
    past = read(lines({"chat_metadata": {}}, *group, line("Hey.", at)))
    assert [text for _, text, _ in said(past)] == ["Hi.", "Mara: Ho.", "Mara: Hum.", "Hey."]
    assert missing(past) == ["body: other characters speak: their names stand before it; 2 in all"]
    past = read(lines(*group, line("Hey.", at, name="Bo")))
    assert [text for _, text, _ in said(past)] == ["Hi.", "Ho.", "Hum.", "Bo: Hey."]


def test_messages_without_a_date_are_of_when_their_chat_began() -> None:
    """Whatever calls that: the first line, or what is around the messages."""
    past = read(lines(OLD_HEADER, line("Hi.", None, user=True)))
    assert said(past) == [("user", "Hi.", "2024-07-12 01:31")]
    history = {"created": "2024-05-01T10:00:00Z", "msgs": [{"text": "Hi.", "is_human": True}]}
    past = read(json.dumps({"histories": [history]}).encode())
    assert (said(past), missing(past)) == ([("user", "Hi.", "2024-05-01 10:00")], [])


# ChatGPT's export: conversations.json of 2023 to 2026.
def node(
    key: str, parent: str | None, children: list[str], role: str = "", *parts: object, **more: Any
) -> dict[str, Any]:
    """A node of the tree of messages."""
    message = None
    if role:
        message = {
            "id": key, "author": {"role": role, "name": None, "metadata": {}},
            "create_time": more.get("at"), "update_time": None, "status": "finished_successfully",
            "content": {"content_type": more.get("kind", "text"), "parts": list(parts)},
            "metadata": more.get("metadata", {}), "recipient": more.get("recipient", "all"),
        }  # fmt: skip
    return {"id": key, "message": message, "parent": parent, "children": children}


def conversation(*nodes: dict[str, Any], **more: Any) -> dict[str, Any]:
    """A conversation."""
    return {"title": "t", "create_time": 1_700_000_000.5, "update_time": 1_700_000_900.0,
            "mapping": {x["id"]: x for x in nodes}, "conversation_id": "c"} | more  # fmt: skip


CHATGPT = json.dumps(
    [
        conversation(
            node("r", None, ["s"]),
            node("s", "r", ["u"], "system", "", metadata={"is_user_system_message": True}),
            node("u", "s", ["a1", "a2"], "user", "Bo is my dog.", at=1_700_000_100.0),
            node("a1", "u", [], "assistant", "A cat?", at=1_700_000_101.0),
            node("a2", "u", ["t"], "assistant", "Good dog.", at=1_700_000_200.0),
            node("t", "a2", ["t2"], "assistant", "search()", recipient="browser"),
            node("t2", "t", ["p"], "tool", "found"),
            node("p", "t2", ["q"], "user", {"content_type": "image_asset_pointer"}, "Look!",
                 kind="multimodal_text", at=1_700_000_300.0),
            node("q", "p", ["e"], "assistant", "He is black.", at=None),
            node("e", "q", [], "assistant", kind="thoughts"),
            current_node="e",
        ),
        conversation(node("x", None, [], "user", "Later.", at=1_710_000_000.0)),
    ]
).encode()  # fmt: skip


def test_an_export_of_chatgpt_is_read() -> None:
    """The branch that is shown, of every conversation; the others are listed."""
    past = read(CHATGPT, name="Ana Lima")
    assert (past.program, past.export.user_name) == ("ChatGPT", "Ana Lima")
    assert said(past) == [
        ("user", "Bo is my dog.", "2023-11-14 22:15"),
        ("companion", "Good dog.", "2023-11-14 22:16"),
        ("user", "Look!", "2023-11-14 22:18"),
        ("companion", "He is black.", "2023-11-14 22:18"),
        ("user", "Later.", "2024-03-09 16:00"),
    ]
    assert len(past.export.sessions) == 2
    assert missing(past) == [
        "[0].mapping.t: what tools were asked and answered is not read; 2 in all",
        "[0].mapping.p: pictures, recordings and files are not read",
        "[0].mapping.e: messages other than of text are not read",
        "[0].mapping.a1: replies that were made anew are not read",
    ]


def test_an_export_of_chatgpt_may_have_its_conversations_in_an_object() -> None:
    """And its page shows other things where a text has marks of sources and names."""
    file = json.dumps({"conversations": json.loads(CHATGPT)}).encode()
    assert is_foreign(file)
    assert said(read(file)) == said(read(CHATGPT))
    marked = (
        'Go to \ue200entity\ue202["city","Lisbon","Portugal"]\ue201 now.'
        "\ue200cite\ue202turn0search1\ue202turn0search2\ue201 Bye\ue201"
    )
    past = read(json.dumps([conversation(node("a", None, [], "assistant", marked))]).encode())
    assert [text for _, text, _ in said(past)] == ["Go to Lisbon now. Bye\ue201"]


def test_marks_without_an_end_are_read_in_linear_time() -> None:
    """In quadratic time, these would take hours."""
    marks = "Bye" + '\ue200entity\ue202[,"' * 100_000 + "\ue200" * 200_000
    past = read(json.dumps([conversation(node("a", None, [], "assistant", marks))]).encode())
    ((_, text, _),) = said(past)
    assert text.startswith("Bye\ue200")


@pytest.mark.parametrize(
    "document",
    [
        [conversation(node("a", None, [], "user", "Hi."), current_node=["a"])],
        {**conversation(node("a", None, [], "user", "Hi.")), "current_node": {}},
        [{"mapping": {"b": "x", **conversation(node("a", None, [], "user", "Hi."))["mapping"]}}],
        {"turns": [{"text": "Hi.", "is_human": True}, {"candidates": 3}]},
        {"turns": [{"text": "Hi.", "is_human": True, "candidates": "x", "author": 3}]},
    ],
)
def test_odd_fields_keep_nobody_from_reading_the_others(document: object) -> None:
    """They count as absent."""
    assert [text for _, text, _ in said(read(json.dumps(document).encode()))] == ["Hi."]


@pytest.mark.parametrize("odd", [{"author": "x"}, {"content": "x"}, {"metadata": [1]}])
def test_an_odd_message_is_passed_over(odd: dict[str, Any]) -> None:
    """And the others are read."""
    one, other = node("a", None, ["b"], "user", 3), node("b", "a", [], "user", "Hi.")
    one["message"] |= odd
    assert [text for _, text, _ in said(read(json.dumps([conversation(one, other)]).encode()))] == [
        "Hi."
    ]


# Character.AI's turns as its interface gives them, the newest first; and what CAI Tools and
# CharacterAI Dumper make of its older histories.
def turn(text: str, at: str, *, human: bool) -> dict[str, Any]:
    """A turn with two candidates."""
    author = {"author_id": "1", "name": "ana", "is_human": True} if human else {
        "author_id": "abc", "name": "Wren"}  # fmt: skip
    return {
        "turn_key": {"chat_id": "c", "turn_id": at}, "create_time": at, "author": author,
        "candidates": [
            {"candidate_id": "1", "create_time": at, "raw_content": "No.", "is_final": True},
            {"candidate_id": "2", "create_time": at, "raw_content": text, "is_final": True},
        ],
        "primary_candidate_id": "2",
    }  # fmt: skip


TURNS = [
    turn("Good dog.", "2024-05-01T10:01:00.123456789Z", human=False),
    turn("Bo is my dog.", "2024-05-01T10:00:00Z", human=True),
]
HISTORIES = {
    "info": {"name": "Wren"},
    "histories": {
        "histories": [
            {"msgs": [
                {"id": 1, "text": "Bo is my dog.", "src": {"is_human": True, "name": "ana"},
                 "created": "2024-05-01T10:00:00Z"},
                {"id": 2, "text": "Good dog.", "src": {"is_human": False, "name": "Wren"},
                 "created": "2024-05-01T10:01:00Z"},
            ]}
        ]
    },
}  # fmt: skip
MEM0: list[dict[str, Any]] = [
    {"id": "m1", "memory": "Has a dog called Bo", "hash": "x", "metadata": {"category": "pets"},
     "created_at": "2024-05-01T03:00:00.123456-07:00", "updated_at": None, "user_id": "ana"},
    {"id": "m2", "memory": "Lives in Lisbon", "hash": "y", "score": None, "role": "user",
     "created_at": "2024-04-01T10:00:00Z", "updated_at": "2024-06-01T10:00:00+00:00"},
]  # fmt: skip


@pytest.mark.parametrize(
    "file",
    [{"turns": TURNS, "meta": {"next_token": ""}}, {"chats": [{"turns": TURNS}]}, HISTORIES, TURNS],
    ids=["turns", "chats", "histories", "list"],
)
def test_a_history_of_character_ai_is_read(file: object) -> None:
    """The candidate that was chosen, in the order of time."""
    past = read(json.dumps(file).encode())
    assert (past.program, past.export.user_name) == ("Character.AI", "ana")
    assert said(past) == [
        ("user", "Bo is my dog.", "2024-05-01 10:00"),
        ("companion", "Good dog.", "2024-05-01 10:01"),
    ]
    assert missing(past) == []


def test_a_page_of_cai_tools_for_reading_offline_is_read() -> None:
    """What its script shows; a message is written as in an address."""
    chat = [
        {"isUser": False, "name": "Wren", "message": "Caf%C3%A9%3F"},
        {"isUser": True, "name": "ana", "message": "100%25%20yes"},
    ]
    data = json.dumps(
        {"charPic": "data:x", "history": [{"date": "2024-05-01T10:00:00.000Z", "chat": chat}]}
    )
    page = f"<!DOCTYPE html>\n<script>\nconst historyData = JSON.parse(`{data}`);\n</script>"
    assert is_foreign(page.encode())
    past = read(page.encode())
    assert (past.program, past.export.user_name) == ("Character.AI", "ana")
    assert said(past) == [
        ("companion", "Café?", "2024-05-01 10:00"),
        ("user", "100% yes", "2024-05-01 10:00"),
    ]
    assert missing(past) == []


@pytest.mark.parametrize(
    "file",
    [
        json.dumps({"results": MEM0}).encode(),
        json.dumps({"memories": MEM0}).encode(),
        # As its library for JavaScript calls the dates.
        json.dumps({"results": MEM0}).replace("ated_at", "atedAt").encode(),
        json.dumps(MEM0).encode(),
        json.dumps({"count": 2, "next": None, "results": MEM0}, indent=2).encode(),
        lines(*MEM0),
    ],
    ids=["results", "memories", "JavaScript", "list", "page", "lines"],
)
def test_a_dump_of_mem0_is_read(file: bytes) -> None:
    """As what was observed when it was last written, not as what anybody said."""
    past = read(file)
    assert past.program == "mem0"
    assert said(past) == [
        ("companion", "Has a dog called Bo", "2024-05-01 10:00"),
        ("companion", "Lives in Lisbon", "2024-06-01 10:00"),
    ]
    assert {(turn.event_type, turn.session) for turn in past.export.turns} == {
        ("observation", None)
    }
    assert past.export.sessions == []
    graph = json.dumps({"results": MEM0, "relations": [{"source": "ana"}]}).encode()
    assert missing(read(graph)) == ["line 1.relations[0]: relations of a graph are not read"]


def test_of_a_dump_of_mem0_with_several_users_one_is_read() -> None:
    """The user that is imported, else its first: the others are none of this relationship's."""
    bea, cy = ({**MEM0[0], "id": name, "user_id": name, "memory": name} for name in ("bea", "cy"))
    for dump, kept in (
        ([bea, *MEM0], {MEM0[0]["memory"], MEM0[1]["memory"]}),
        ([bea, cy], {"bea"}),
    ):
        past = read(json.dumps(dump).encode())
        assert {turn.text for turn in past.export.turns} == kept
        assert missing(past) == ["body: memories of other users are not read"]


def test_several_files_are_one_relationship() -> None:
    """Also in an archive, with others that have no chat; a pause begins a session."""
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("conversations.json", CHATGPT)
        archive.writestr("user.json", '{"id": "user-1", "email": "x"}')
        archive.writestr("chat.html", "<html>")
    past = read(file.getvalue())
    assert len(past.export.turns) == 5
    assert any(text.startswith("user.json: line 1: not known") for text in missing(past))
    newer = lines(NEW_HEADER, line("Hi.", 1_700_000_000_000), line("Ho.", 1_700_100_000_000))
    past = read(newer, TAVERN)
    assert [text for _, text, _ in said(past)] == [
        "You are wet.", "Bo is my dog.", "Good dog.", "Hi.", "Ho."
    ]  # fmt: skip
    assert len(past.export.sessions) == 3


def test_the_newest_messages_count() -> None:
    """Of more than a relationship may have."""
    past = read(TAVERN, max_turns=2)
    assert [text for _, text, _ in said(past)] == ["Bo is my dog.", "Good dog."]
    assert missing(past) == ["body: more than 2 messages: the oldest were left out"]
    days = [line(f"Day {day}.", f"2025-11-{day:02}T09:00:00Z") for day in (2, 4, 6, 6, 8)]
    for kept in range(1, 5):
        past = read(lines(NEW_HEADER, *days), max_turns=kept)
        assert [turn.text for turn in past.export.turns] == [day["mes"] for day in days[-kept:]]


def test_a_file_that_is_mostly_no_chat_is_not_read_to_its_end() -> None:
    """Each place that is no JSON takes a look at all before it."""
    broken = b"\n".join([b"{"] * 101)
    past = read(TAVERN + b"\n" + broken + b"\n" + TAVERN)
    assert len(past.export.turns) == 3
    assert missing(past) == [
        "line 5: expected JSON; 100 in all",
        "line 105: expected JSON: what follows is not read",
    ]


@pytest.mark.parametrize("encoding", ["utf-8-sig", "utf-16"])
def test_other_encodings_are_read(encoding: str) -> None:
    """As programs of Windows write them."""
    file = TAVERN.decode().encode(encoding)
    assert is_foreign(file)
    assert len(read(file).export.turns) == 3


@pytest.mark.parametrize("file", [TAVERN, CHATGPT, json.dumps(HISTORIES).encode(), lines(*MEM0)])
def test_files_of_others_are_known(file: bytes) -> None:
    """And those of one's own are not taken for them."""
    assert is_foreign(file)
    assert not is_foreign(b'{"format": "foremind.relationship", "memories": [{"memory": "x"}]}')


@pytest.mark.parametrize(
    "file",
    [b"", b"[]", b"[1, 2]", b"PK\x03\x04", b'{"name": "Mara"}', b"\xff\xfe", lines(NEW_HEADER)],
)
def test_what_has_no_chat_is_refused(file: bytes) -> None:
    """With what was expected."""
    with pytest.raises(InvalidMessage, match="body: expected") as refused:
        read(file)
    assert refused.value.param == "body"


def test_bombs_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """Before they are unpacked or decoded."""
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("conversations.json", bytes(10_000))
    monkeypatch.setattr(foreign_chats, "MAX_ARCHIVE_BYTES", 9_999)
    monkeypatch.setattr(foreign_chats, "MAX_DOCUMENT", 100)
    for bomb in (file.getvalue(), json.dumps({"results": ["x" * 200]}).encode()):
        with pytest.raises(TooLarge, match="body: expected at most"):
            read(bomb)
    assert len(read(lines(*MEM0, *MEM0)).export.turns) == 4


def test_an_archive_of_too_many_files_is_told_how_many_it_may_have() -> None:
    """Files that are no JSON do not count."""
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w") as archive:
        archive.writestr("chat.html", "<html>")
        for number in range(10_001):
            archive.writestr(f"{number}.json", b"")
    with pytest.raises(TooLarge) as refused:
        read(file.getvalue())
    expected = "body: expected an archive of at most 10000 JSON files, got 10001"
    assert (refused.value.message, refused.value.param) == (expected, "body")
