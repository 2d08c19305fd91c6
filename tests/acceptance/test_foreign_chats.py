"""Chats of other programs come along: over HTTP and by the command, remembered with their dates."""

import json
from datetime import UTC, datetime
from pathlib import Path

import httpx2
import pytest

from tests.acceptance.test_files import foremind
from tests.acceptance.world import world
from tests.conftest import PATIENCE, StartServer, owner_of
from tests.unit.memory.test_foreign_chats import CHATGPT, MEM0, NEW_HEADER, TAVERN, line, lines


async def test_chats_are_imported_and_recalled_with_their_dates(
    start: StartServer, tmp_path: Path
) -> None:
    """Turns are marked as imported, memories are as old as what was said."""
    async with world(start, model=False) as w:
        url = f"http://127.0.0.1:{w.server.port}/v1/relationships/import"
        async with httpx2.AsyncClient(timeout=PATIENCE) as http:
            files = {"ana": TAVERN, "bea": CHATGPT, "cy": json.dumps({"results": MEM0}).encode()}
            for user, file in files.items():
                answer = await http.post(
                    url,
                    params={"user": user, "companion": "wren"},
                    content=file,
                    headers={"content-type": "application/octet-stream"},
                )
                assert answer.status_code == 201, answer.text
                assert answer.json()["program"] in ("SillyTavern", "ChatGPT", "mem0")
            assert answer.json()["turns"] == 2
            again = await http.post(
                url, params={"user": "ana", "companion": "wren"}, content=TAVERN,
                headers={"content-type": "application/octet-stream"},
            )  # fmt: skip
            assert (again.status_code, again.json()["error"]["param"]) == (409, "companion")
            nobody = await http.post(
                url, params={"user": "dee"}, content=TAVERN,
                headers={"content-type": "application/octet-stream"},
            )  # fmt: skip
            assert (nobody.status_code, nobody.json()["error"]["param"]) == (400, "companion")
        chat = tmp_path / "wren.jsonl"
        chat.write_bytes(TAVERN)
        status, output = await foremind(
            w, "import", str(chat), "--companion", "wren", "--user", "eve"
        )
        assert status == 0, output
        assert "Imported 3 turns in 1 session of SillyTavern." in output
        dump = tmp_path / "mem0.json"
        dump.write_text(json.dumps({"results": MEM0}))
        status, output = await foremind(
            w, "import", str(dump), "--companion", "wren", "--user", "fay"
        )
        assert "Imported 2 memories of mem0." in output, output
        status, output = await foremind(w, "import", __file__, "--companion", "wren")
        assert status == 1
        assert "expected a chat of SillyTavern" in output
        # The command has the system's clock.
        await w.clock.leap((datetime.now(UTC) - w.clock.now()).total_seconds() + 1)
        await w.wait_until_idle()
        owner = owner_of(w.server.app.core)
        rows = await owner.fetch(
            "SELECT users.external_id, memories.content, memories.created_at::date::text "
            "FROM memories JOIN relationships ON relationships.id = relationship_id "
            "JOIN users ON users.id = relationships.user_id WHERE memories.speaker = 'user' OR "
            "memories.memory_type = 'observation' ORDER BY 1, 2"
        )
        assert [tuple(row) for row in rows] == [
            ("ana", "Bo is my dog.", "2023-06-19"),
            ("bea", "Bo is my dog.", "2023-11-14"),
            ("cy", "Has a dog called Bo", "2024-05-01"),
            ("cy", "Lives in Lisbon", "2024-06-01"),
            ("eve", "Bo is my dog.", "2023-06-19"),
            ("fay", "Has a dog called Bo", "2024-05-01"),
            ("fay", "Lives in Lisbon", "2024-06-01"),
        ]
        waiting = await owner.fetchval(
            "SELECT count(*) FROM background_steps WHERE step = 'ingest'"
        )
        assert waiting == 0
        ids = await owner.fetch("SELECT message_id FROM turns WHERE message_id IS NOT NULL")
        assert all(row["message_id"].startswith("import-") for row in ids)
        audit = await owner.fetch("SELECT subject FROM audit WHERE action = 'import'")
        assert "3 turns of SillyTavern" in {row["subject"] for row in audit}


async def test_an_import_takes_of_the_users_room(
    start: StartServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Over HTTP and by the command alike; of one that has none, nothing is stored."""
    monkeypatch.setenv("FOREMIND_USER_BYTES", "1048576")
    said = [line("Bo is my dog.", f"2024-6-5 @14h {n % 60}m 50s", user=True) for n in range(520)]
    chat = tmp_path / "wren.jsonl"
    chat.write_bytes(lines(NEW_HEADER, *said))
    async with world(start, model=False, user_bytes=1_048_576) as w:
        answer = await w.import_file(chat.read_bytes())
        assert (answer.status_code, answer.json()["error"]["code"]) == (413, "storage_full")
        status, output = await foremind(w, "import", str(chat), "--companion", "wren")
        assert status == 1
        assert "expected room for" in output
        assert await owner_of(w.server.app.core).fetchval("SELECT count(*) FROM turns") == 0
