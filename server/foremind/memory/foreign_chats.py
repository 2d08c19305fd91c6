"""Chats and memories in the files of other programs, made into a relationship. Pure.

Read are SillyTavern's chats (JSON lines), ChatGPT's export (`conversations.json`), histories of
Character.AI as its own interface and the tools for it give them, and what `get_all` of mem0
returns; alone or several in a zip archive. The formats are those that these programs, or those who
read them, have in their sources; what is in a file and cannot be read is listed, never guessed.

As a program, it reads an `AskedReading` and files, and writes `ReadPart`s, each on a line. A server
has files read like that.
"""

import io
import json
import re
import zipfile
import zlib
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from itertools import pairwise
from typing import IO, Any
from urllib.parse import unquote
from uuid import uuid4
from zoneinfo import ZoneInfo

import msgspec

from foremind.domain.companion import Notice
from foremind.domain.errors import InvalidMessage, TooLarge
from foremind.domain.export_file import Export, ExportedSession, ExportedTurn
from foremind.domain.settings.settings import CompanionSettings
from foremind.domain.storable_text import storable
from foremind.domain.turn import Speaker
from foremind.runtime.reader_process import serve_reading

MAX_DOCUMENT = 16_000_000  # characters of JSON that are decoded at once
MAX_ARCHIVE_BYTES = 256_000_000  # of all files of an archive, unpacked
_HEAD_BYTES = 65_536  # by which a file is known
_MAX_FILES = 10_000  # of an archive
_MAX_BROKEN = 100  # places of a file that are no JSON: each takes a look at all before it
_MAX_USER_CHARS = 64  # of a name
_MAX_REASONS = 100  # that are listed
_MILLISECONDS = 1e11  # since the epoch; what is less are seconds
_EARLIEST = datetime(1990, 1, 1, tzinfo=UTC)
_PROGRAM_NAMES = ("System", "SillyTavern System")  # as SillyTavern calls itself
_NO_NAMES = frozenset({"", "user", "you", "unused", "none", "system"})
_ARCHIVE = b"PK\x03\x04"
_OWN = re.compile(rb'"format"\s*:\s*"foremind\.relationship"|"exported_at"\s*:')
_FOREIGN = re.compile(
    rb"\A\s*\[|\A(?:\xff\xfe|\xfe\xff)|\A" + _ARCHIVE + rb'|"(?:mapping|chat_metadata|mes|'
    rb'candidates|is_human|msgs|histories|memory|results|isUser)"\s*:|historyData = JSON\.parse\(`'
)
#: Where the page that CAI Tools makes for reading offline has its chats.
_OFFLINE = "historyData = JSON.parse(`"
#: What ChatGPT writes where its page shows a source, a picture, or the name of a thing.
_CITED = re.compile(
    r"\ue200(?:entity\ue202\[[^\]\ue200\ue201]*?,\s*\"([^\"\ue200\ue201]*)\")?"
    r"[^\ue200\ue201]*\ue201"
)
#: Dates as SillyTavern has written them: 2024-7-12@01h31m37s, 2024-6-5 @14h 56m 50s 682ms, in UTC.
_HUMANIZED = re.compile(r"(\d{4})-(\d\d?)-(\d\d?) ?@(\d\d?)h ?(\d\d?)m ?(\d\d?)s")
_ENGLISH = "%B %d, %Y %I:%M%p"  # June 19, 2023 2:20pm
_SPACE = re.compile(r"[\s,]*")


@dataclass(frozen=True, slots=True)
class _Said:
    """Something that somebody said; `event` is the id of what a program remembers instead."""

    speaker: Speaker
    text: str
    at: datetime | None
    event: str = ""
    name: str = ""  # of the character that a chat says it is of; of an event, its user's id


@dataclass(slots=True)
class _Past:
    """What files say: conversations, and what could not be read of them."""

    zone: ZoneInfo
    program: str = ""
    begun: datetime | None = None  # of the chat that is read, if it says so
    conversations: list[list[_Said]] = field(default_factory=list)
    names: Counter[str] = field(default_factory=Counter)
    unread: dict[str, tuple[str, int]] = field(default_factory=dict)

    def leave_out(self, place: str, reason: str) -> None:
        """Record what could not be read; the first place counts."""
        first, count = self.unread.get(reason, (place, 0))
        if count or len(self.unread) < _MAX_REASONS:
            self.unread[reason] = first, count + 1

    def notices(self) -> list[Notice]:
        """Return what could not be read, and how often it was found."""
        return [
            Notice(place, reason + (f"; {count} in all" if count > 1 else ""))
            for reason, (place, count) in self.unread.items()
        ]


@dataclass(frozen=True, slots=True)
class ForeignPast:
    """A relationship that another program's files tell of, and what could not be read of them."""

    program: str
    export: Export
    notices: Sequence[Notice]


def is_foreign(file: bytes) -> bool:
    """Return whether a file may be another program's, and is no export of this one."""
    head = file[:_HEAD_BYTES]
    return _FOREIGN.search(head) is not None and _OWN.search(head) is None


def read_foreign(
    files: Sequence[bytes],
    companion: str,
    user: tuple[str | None, str],
    *,
    max_chars: Mapping[Speaker, int],
    session: timedelta,
    zone: ZoneInfo,
    now: datetime,
    max_turns: int,
) -> ForeignPast:
    """Return what files of other programs tell, as one relationship.

    Args:
        companion: its slug.
        user: the name, if it is known, and what to call them if the files name nobody either.
        max_chars: of what one says.
        session: after such a pause another session begins.
        zone: of the user, for dates that have none.

    Raises:
        InvalidMessage: nothing of them can be read.
        TooLarge: they exceed a bound.
    """
    past = _Past(zone)
    for file in files:
        for name, content in _unpacked(file) if file.startswith(_ARCHIVE) else [("", file)]:
            past.conversations.append([])
            past.begun = None
            loose: list[dict[str, Any]] = []  # messages of Character.AI that nothing is around
            for place, document in _documents(content, past):
                if isinstance(document, dict) and _is_character_ai(document):
                    loose.append(document)
                else:
                    _read(document, name + place, past)
            if loose:
                _read_character_ai_chat(loose, name, past)
    _keep_one_user(past, user[1])
    said = _in_order(past, companion, max_chars, session, now)
    if not said:
        raise InvalidMessage(
            "body: expected a chat of SillyTavern, an export of ChatGPT or Character.AI, or a dump "
            "of mem0" + "".join(f"; {notice.field}: {notice.text}" for notice in past.notices()),
            param="body",
        )
    if (excess := sum(map(len, said)) - max_turns) > 0:
        past.leave_out("body", f"more than {max_turns} messages: the oldest were left out")
        said = _without_oldest(said, excess)
    name = user[0] or next((name for name, _ in past.names.most_common(1)), "") or user[1]
    export = _export(said, past.program, companion, storable(name)[:_MAX_USER_CHARS], zone, now)
    return ForeignPast(past.program, export, past.notices())


def _documents(file: bytes, past: _Past) -> Iterator[tuple[str, Any]]:
    """Yield the JSON documents of a file with their places: the elements of a list, or lines."""
    text = file.decode(json.detect_encoding(file), "replace").removeprefix("\ufeff").strip()
    page, marker, offline = text.partition(_OFFLINE)
    if marker and page.startswith("<"):
        text = offline.partition("`)")[0]
    is_list = text.startswith("[")
    if not is_list and text.partition("\n")[0].strip() in ("{", text) and len(text) > MAX_DOCUMENT:
        raise TooLarge(f"body: expected at most {MAX_DOCUMENT} characters of JSON", param="body")
    decoder = json.JSONDecoder(strict=False)
    begin, read, line, number, broken = int(is_list), 0, 1, 0, 0
    while True:
        found = _SPACE.match(text, begin)
        begin = found.end() if found else begin
        if begin >= len(text) or (is_list and text[begin] == "]"):
            return
        line += text.count("\n", read, begin)
        read = begin
        place = f"[{number}]" if is_list else f"line {line}"
        number += 1
        try:
            document, begin = decoder.raw_decode(text, begin)
        except (ValueError, RecursionError):
            broken += 1
            is_end = is_list or broken > _MAX_BROKEN
            past.leave_out(place, "expected JSON" + (": what follows is not read" * is_end))
            following = text.find("\n", begin)
            if is_end or following < 0:
                return
            begin = following
        else:
            yield place, document


def _unpacked(archive: bytes) -> Iterator[tuple[str, bytes]]:
    """Yield the files of an archive that may have chats."""
    try:
        with zipfile.ZipFile(io.BytesIO(archive)) as opened:
            entries = [
                entry
                for entry in opened.infolist()
                if entry.filename.lower().endswith((".json", ".jsonl"))
            ]
            if len(entries) > _MAX_FILES:
                raise TooLarge(
                    f"body: expected an archive of at most {_MAX_FILES} JSON files, "
                    f"got {len(entries)}",
                    param="body",
                )
            size = sum(entry.file_size for entry in entries)
            if size > MAX_ARCHIVE_BYTES:
                raise TooLarge(
                    f"body: expected at most {MAX_ARCHIVE_BYTES} bytes when unpacked, got {size}",
                    param="body",
                )
            for entry in entries:
                with opened.open(entry) as file:  # which gives no more than the entry claims
                    yield f"{entry.filename}: ", file.read(entry.file_size)
    except (
        zipfile.BadZipFile,
        zlib.error,
        EOFError,
        ValueError,
        NotImplementedError,
        RuntimeError,
    ):
        raise InvalidMessage("body: expected a zip archive", param="body") from None


def _read(document: Any, place: str, past: _Past) -> None:
    """Read a document of whichever program it is."""
    if not isinstance(document, dict):
        past.leave_out(place, "expected an object")
    elif "mes" in document or "chat_metadata" in document or "user_name" in document:
        _read_sillytavern(document, place, past)
    elif isinstance(document.get("mapping"), dict):
        _read_chatgpt(document, place, past)
    elif isinstance(document.get("conversations"), list):
        for number, conversation in enumerate(document["conversations"]):
            _read(conversation, f"{place}.conversations[{number}]", past)
    elif isinstance(document.get("memory"), str):
        _read_memory(document, place, past)
    elif memories := _list(document.get("results")) or _list(document.get("memories")):
        for number, memory in enumerate(memories):
            _read_memory(memory, f"{place}.results[{number}]", past)
        for number, _ in enumerate(_list(document.get("relations"))):
            past.leave_out(f"{place}.relations[{number}]", "relations of a graph are not read")
    elif not _read_character_ai(document, place, past):
        past.leave_out(place, "not known to be of a chat")


def _list(value: Any) -> list[Any]:
    """Return a list; of anything else, none."""
    return value if isinstance(value, list) else []


def _object(value: Any) -> dict[str, Any]:
    """Return an object; of anything else, none."""
    return value if isinstance(value, dict) else {}


def _read_sillytavern(line: dict[str, Any], place: str, past: _Past) -> None:
    """Read a line of a chat: the first begins it, the others are messages."""
    if "mes" not in line:
        past.program = past.program or "SillyTavern"
        past.names.update(_named(line.get("user_name")))
        past.begun = _moment(line.get("create_date"), past)
        past.conversations.append([])
        return
    past.program = past.program or "SillyTavern"
    mes, extra = line["mes"], _object(line.get("extra"))
    text = mes.get("message") if isinstance(mes, dict) else mes  # Chub's have more around it
    is_remark = extra.get("type") not in (None, "", "assistant_message") or (
        line.get("is_system") is True and line.get("name") in _PROGRAM_NAMES
    )
    if is_remark or extra.get("tool_invocations"):
        past.leave_out(place, "remarks of the program and of narrators are not read")
        return
    is_user = line.get("is_user") is True
    names = _named(line.get("name"))
    if is_user:
        past.names.update(names)
    _add(
        past,
        place,
        "user" if is_user else "companion",
        text,
        _moment(line.get("send_date"), past) or past.begun,
        name="" if is_user else "".join(names),
    )


def _read_chatgpt(conversation: dict[str, Any], place: str, past: _Past) -> None:
    """Read the branch of a conversation that is shown: from its last message to its first."""
    past.program = past.program or "ChatGPT"
    mapping = conversation["mapping"]
    node_id = conversation.get("current_node")
    if not isinstance(node_id, str) or node_id not in mapping:  # the last that nothing follows
        ends = [key for key, node in mapping.items() if not _object(node).get("children")]
        node_id = ends[-1] if ends else None
    branch: list[tuple[str, dict[str, Any]]] = []
    seen: set[str] = set()
    while isinstance(node_id, str) and node_id in mapping and node_id not in seen:
        seen.add(node_id)
        node = _object(mapping[node_id])
        if isinstance(node.get("message"), dict):
            branch.append((node_id, node["message"]))
        node_id = node.get("parent")
    begun = _moment(conversation.get("create_time"), past)
    past.conversations.append([])
    for node_id, message in reversed(branch):
        _read_chatgpt_message(message, f"{place}.mapping.{node_id}", begun, past)
    for node_id, node in mapping.items():
        if node_id not in seen and isinstance(node, dict) and node.get("message"):
            past.leave_out(f"{place}.mapping.{node_id}", "replies that were made anew are not read")


def _read_chatgpt_message(
    message: dict[str, Any], place: str, begun: datetime | None, past: _Past
) -> None:
    role = _object(message.get("author")).get("role")
    content, metadata = _object(message.get("content")), _object(message.get("metadata"))
    if metadata.get("is_visually_hidden_from_conversation") or role == "system":
        return  # never shown
    kind = content.get("content_type")
    if role not in ("user", "assistant") or message.get("recipient") not in (None, "all"):
        past.leave_out(place, "what tools were asked and answered is not read")
        return
    if kind not in ("text", "multimodal_text"):
        past.leave_out(place, "messages other than of text are not read")
        return
    texts: list[str] = []
    for part in _list(content.get("parts")):
        text = part if isinstance(part, str) else _object(part).get("text")
        if text:
            texts.append(_CITED.sub(lambda cited: cited[1] or "", str(text)))
        elif not isinstance(part, str):
            past.leave_out(place, "pictures, recordings and files are not read")
    speaker: Speaker = "user" if role == "user" else "companion"
    at = _moment(message.get("create_time"), past) or begun
    if texts:
        _add(past, place, speaker, "\n".join(texts), at)


def _read_character_ai(document: dict[str, Any], place: str, past: _Past) -> bool:
    """Read all lists of messages in a document; return whether there is any."""
    found = False
    begun = document.get("created") or document.get("create_time") or document.get("date")
    past.begun = _moment(begun, past) if isinstance(begun, str) else past.begun
    for name, value in document.items():
        inner = f"{place}.{name}"
        if isinstance(value, dict):
            found = _read_character_ai(value, inner, past) or found
        elif isinstance(value, list):
            messages = [message for message in value if isinstance(message, dict)]
            if any(map(_is_character_ai, messages)):
                _read_character_ai_chat(messages, inner, past)
                found = True
                continue
            for number, message in enumerate(messages):
                found = _read_character_ai(message, f"{inner}[{number}]", past) or found
    return found


def _is_character_ai(message: dict[str, Any]) -> bool:
    return (
        isinstance(message.get("candidates"), list)
        or (isinstance(message.get("src"), dict) and "text" in message)
        or ("is_human" in message and "text" in message)
        or ("isUser" in message and "message" in message)  # offline pages of CAI Tools
    )


def _read_character_ai_chat(messages: list[dict[str, Any]], place: str, past: _Past) -> None:
    past.program = past.program or "Character.AI"
    chat: list[_Said] = []
    past.conversations.append(chat)
    for number, message in enumerate(messages):
        author = message.get("author") or message.get("src") or message
        at = message.get("create_time") or message.get("created") or message.get("timestamp")
        author = _object(author)
        is_user = author.get("is_human") is True or author.get("isUser") is True
        if is_user:
            past.names.update(_named(author.get("name")))
        text = message.get("text")
        if isinstance(message.get("message"), str):
            text = unquote(message["message"])
        candidates = [x for x in _list(message.get("candidates")) if isinstance(x, dict)]
        if candidates:
            chosen = message.get("primary_candidate_id")
            shown = [x for x in candidates if x.get("candidate_id") == chosen] or candidates
            text, at = shown[0].get("raw_content"), at or shown[0].get("create_time")
        speaker: Speaker = "user" if is_user else "companion"
        _add(past, f"{place}[{number}]", speaker, text, _moment(at, past) or past.begun)
    dates = [said.at for said in chat if said.at is not None]
    if len(dates) > 1 and dates[0] > dates[-1]:  # its interface gives the newest first
        chat.reverse()


def _read_memory(memory: Any, place: str, past: _Past) -> None:
    """Read a memory of mem0, as something that was observed when it was last written."""
    past.program = past.program or "mem0"
    if not isinstance(memory, dict):
        past.leave_out(place, "expected an object")
        return
    dates = ("updated_at", "updatedAt", "created_at", "createdAt")  # its library for JavaScript
    at = next((memory[name] for name in dates if memory.get(name)), None)
    event = str(memory.get("id") or place)
    past.conversations.append([])
    _add(
        past,
        place,
        "companion",
        memory.get("memory"),
        _moment(at, past),
        event,
        str(memory.get("user_id") or ""),
    )


def _add(
    past: _Past,
    place: str,
    speaker: Speaker,
    text: Any,
    at: datetime | None,
    event: str = "",
    name: str = "",
) -> None:
    if not isinstance(text, str) or not storable(text).strip():
        past.leave_out(place, "messages without text are not read")
        return
    past.conversations[-1].append(_Said(speaker, storable(text).strip(), at, event, name))


def _named(name: Any) -> list[str]:
    """Return a name, unless it stands for anybody."""
    text = " ".join(name.split()) if isinstance(name, str) else ""
    return [] if text.lower() in _NO_NAMES else [text]


def _moment(value: Any, past: _Past) -> datetime | None:
    """Return a moment in any of the forms that these programs have written; None without one."""
    if value is None or value == "" or isinstance(value, bool):
        return None
    try:
        if isinstance(value, int | float) or str(value).isdigit():
            seconds = float(value)
            moment = datetime.fromtimestamp(
                seconds / 1000 if seconds >= _MILLISECONDS else seconds, UTC
            )
        elif written := _HUMANIZED.match(str(value)):
            moment = datetime(*(int(part) for part in written.groups()), tzinfo=UTC)  # type: ignore[misc,arg-type]
        else:
            moment = _written(str(value))
        if moment.tzinfo is None:
            moment = moment.replace(tzinfo=past.zone)
        return moment.astimezone(UTC)
    except (ValueError, OverflowError, OSError, TypeError, KeyError):
        # A KeyError is strptime's, of letters that its pattern takes for those of a month.
        past.leave_out("dates", "some dates could not be read: those before them were taken")
        return None


def _written(text: str) -> datetime:
    try:
        return datetime.fromisoformat(text)
    except ValueError:
        return datetime.strptime(text, _ENGLISH)  # noqa: DTZ007 - the user's zone is added


def _in_order(
    past: _Past,
    companion: str,
    max_chars: Mapping[Speaker, int],
    session: timedelta,
    now: datetime,
) -> list[list[_Said]]:
    """Return all sessions by their dates: every message has one, and none is before another's."""
    sessions: list[list[_Said]] = []
    for conversation in past.conversations:
        dates = [said.at for said in conversation if said.at is not None]
        if conversation and not dates:
            past.leave_out("dates", "some chats have none: they stand as of now")
        last = dates[0] if dates else now
        main = _main_character(conversation, companion)
        turns: list[_Said] = []
        for said in conversation:
            at = said.at or last
            if not _EARLIEST <= at <= now:
                past.leave_out("dates", "some are before 1990 or to come: others were taken")
                at = last if _EARLIEST <= last <= now else now
            last = max(last, at) if last <= now else at
            text = said.text
            if not said.event and said.name not in ("", main):
                past.leave_out("body", "other characters speak: their names stand before it")
                text = f"{said.name}: {text}"
            if len(text) > max_chars[said.speaker]:
                limit = max_chars[said.speaker]
                past.leave_out("body", f"messages over {limit} characters were cut there")
                text = text[:limit]
            turns.append(_Said(said.speaker, text, last, said.event))
        begins = [
            place
            for place, (before, after) in enumerate(pairwise(turns), 1)
            if _at(after) - _at(before) > session
        ]
        for begin, end in pairwise([0, *begins, len(turns)]):
            sessions.append(turns[begin:end])
    return sorted(filter(None, sessions), key=lambda turns: _at(turns[0]))


def _keep_one_user(past: _Past, user: str) -> None:
    """Leave out what mem0 remembers of others than the user; if it knows them not, than its first.

    What is of nobody stays.
    """
    ids = [said.name for chat in past.conversations for said in chat if said.event and said.name]
    if len(set(ids)) < 2:
        return
    kept = user if user in ids else ids[0]
    for chat in past.conversations:
        for said in list(chat):
            if said.event and said.name not in ("", kept):
                chat.remove(said)
                past.leave_out("body", "memories of other users are not read")


def _main_character(conversation: Sequence[_Said], companion: str) -> str:
    """Return the name of whom a chat is with: the companion's slug, else who says most."""
    names = Counter(said.name for said in conversation if said.name)
    own = [name for name in names if "-".join(name.lower().split()) == companion]
    return next(iter([*own, *(name for name, _ in names.most_common(1))]), "")


def _without_oldest(sessions: list[list[_Said]], excess: int) -> list[list[_Said]]:
    """Return sessions without so many of the messages at their beginning; fewer than there are."""
    place = 0
    while excess >= len(sessions[place]):
        excess -= len(sessions[place])
        place += 1
    return [sessions[place][excess:], *sessions[place + 1 :]]


def _at(said: _Said) -> datetime:
    assert said.at is not None
    return said.at


def _export(
    sessions: Sequence[Sequence[_Said]],
    program: str,
    companion: str,
    user_name: str,
    zone: ZoneInfo,
    now: datetime,
) -> Export:
    """Return an export of what was said; the ids of messages and events say where it comes from."""
    mark = f"import-{program.lower().replace('.', '-')}-{uuid4().hex[:8]}"
    exported: list[ExportedSession] = []
    turns: list[ExportedTurn] = []
    for number, said in enumerate(sessions):
        session = None if said[0].event else str(number)
        if session is not None:
            begin, end = _at(said[0]), _at(said[-1])
            exported.append(ExportedSession(session, begin, end, end))
        asked: str | None = None  # the message that nobody has answered yet
        for spoken in said:
            turn_id = str(len(turns) + 1)
            is_user = spoken.speaker == "user"
            turns.append(
                ExportedTurn(
                    id=turn_id,
                    session=session,
                    speaker=spoken.speaker,
                    message_id=f"{mark}-{turn_id}" if is_user else None,
                    reply_to=None if is_user else asked,
                    status="completed",
                    text=spoken.text,
                    said_at=_at(spoken),
                    judged=False,
                    event_id=f"{mark}-{spoken.event[:200]}-{turn_id}" if spoken.event else None,
                    event_type="observation" if spoken.event else None,
                )
            )
            asked = turn_id if is_user else None
    return Export(
        companion=companion,
        user_name=user_name,
        time_zone=zone.key,
        exported_at=now,
        settings=CompanionSettings(),
        sessions=exported,
        turns=turns,
        memories=[],
        records=[],
    )


class AskedReading(msgspec.Struct, frozen=True):
    """What `read_foreign` is asked, and the sizes of the files that follow; times are seconds."""

    sizes: tuple[int, ...]
    companion: str
    user: tuple[str | None, str]
    max_chars: dict[Speaker, int]
    session_s: float
    zone: str
    now: datetime
    max_turns: int


class ReadPart(msgspec.Struct, frozen=True):
    """A part of what was read: first all of it but its lists, then parts of these."""

    program: str = ""
    notices: Sequence[Notice] = ()
    export: Export | None = None
    sessions: list[ExportedSession] = []
    turns: list[ExportedTurn] = []


_PART_TURNS = 100  # decoding so many takes a millisecond or two


def main() -> None:
    """Read files, and write what they tell."""
    serve_reading(_read_as_asked)


def _read_as_asked(source: IO[bytes], written: IO[bytes]) -> None:
    asked = msgspec.json.decode(source.readline(), type=AskedReading)
    past = read_foreign(
        [source.read(size) for size in asked.sizes],
        asked.companion,
        asked.user,
        max_chars=asked.max_chars,
        session=timedelta(seconds=asked.session_s),
        zone=ZoneInfo(asked.zone),
        now=asked.now,
        max_turns=asked.max_turns,
    )
    export = past.export
    parts = [
        ReadPart(
            past.program,
            past.notices,
            msgspec.structs.replace(export, sessions=[], turns=[]),
        )
    ]
    for first in range(0, max(len(export.sessions), len(export.turns)), _PART_TURNS):
        part = slice(first, first + _PART_TURNS)
        parts.append(ReadPart(sessions=export.sessions[part], turns=export.turns[part]))
    written.writelines(msgspec.json.encode(part) + b"\n" for part in parts)


if __name__ == "__main__":
    main()
