"""A database that lost commits, and announcements that nobody made: nothing known is relied on."""

import asyncio
import shutil
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from foremind.domain.announcements import (
    Announcement,
    CompanionChanged,
    ConsentGiven,
    LayersChanged,
    LibraryChanged,
    MemoriesChanged,
    MemoriesForgotten,
    MemoryAnnouncement,
    SettingsChanged,
)
from foremind.storage.embedded_postgres import EmbeddedPostgres
from foremind.storage.migrations import migrate
from foremind_client import Client
from tests.acceptance.test_several_processes import forget_everything, remember, reply_to
from tests.conftest import RunningServer, StartServer, eventually, owner_of, rereading

BOAT, WHAT_BOAT = "I promise to call my boat Zephyrine", "What do I promise to call my boat?"
DOG, WHAT_DOG = "My dog is called Kestrel", "What is my dog called?"
OWL, WHAT_OWL = "I will name my owl Archimedes", "What will I name my owl?"
HUGE = 10**9


class Disposable:
    """A database server of this test alone, which can be set back to a moment."""

    def __init__(self, folder: Path) -> None:
        self.server = EmbeddedPostgres(folder)
        self._saved = folder / "saved"

    def _stop(self) -> None:
        process = self.server._postmaster()
        assert process is not None
        process.kill()
        process.wait()
        assert not self.server.running()

    def save(self) -> None:
        """Keep a copy of the data, as a backup of the disk would be."""
        self._stop()
        ignored = shutil.ignore_patterns(".s.*", "postmaster.pid")
        shutil.copytree(self.server.folder, self._saved, symlinks=True, ignore=ignored)
        self._give(self._saved)
        self.server.ensure_running()

    def set_back(self) -> None:
        """Put the copy in place: whatever was committed since is lost."""
        self._stop()
        shutil.rmtree(self.server.folder)
        self._saved.rename(self.server.folder)
        self.server.ensure_running()

    def _give(self, copy: Path) -> None:
        owner = self.server.folder.owner()
        for path in (copy, *copy.rglob("*")):
            if not path.is_symlink():
                shutil.chown(path, owner)


@pytest.fixture
async def disposable(tmp_path: Path) -> AsyncIterator[Disposable]:
    """A running database server, migrated."""
    database = Disposable(tmp_path)
    await asyncio.to_thread(database.server.start)
    try:
        raw_url = database.server.url("postgres")
        await migrate(raw_url)
        yield database
    finally:
        await asyncio.to_thread(database.server.stop)


async def test_what_was_lost_with_the_database_is_not_recalled_and_what_is_new_is(
    start: StartServer, disposable: Disposable
) -> None:
    """The gateway and its session go on, although every counter is lower than it was."""
    server = await start(database_url=disposable.server.url("postgres"))
    client = await server.session()
    await remember(server, client, BOAT)
    await asyncio.to_thread(disposable.save)
    await answered_again(client, WHAT_BOAT)
    await remember(server, client, DOG)
    assert "Kestrel" in await reply_to(client, WHAT_DOG)

    await asyncio.to_thread(disposable.set_back)
    assert "Kestrel" not in await answered_again(client, WHAT_DOG)
    assert "Zephyrine" in await reply_to(client, WHAT_BOAT)
    await remember(server, client, OWL)  # by now, the counters have caught up
    assert "Archimedes" in await reply_to(client, WHAT_OWL)
    assert "Kestrel" not in await reply_to(client, WHAT_DOG)


async def test_a_player_whose_erasures_were_lost_is_answered(
    start: StartServer, disposable: Disposable
) -> None:
    """The reply is stored, too: no check waits for a number that will not come."""
    server = await start(database_url=disposable.server.url("postgres"))
    client = await server.session()
    await remember(server, client, BOAT)
    await asyncio.to_thread(disposable.save)
    await answered_again(client, WHAT_BOAT)
    await forget_everything(server)
    await asyncio.to_thread(disposable.set_back)
    assert "Zephyrine" in await answered_again(client, WHAT_BOAT)
    await remember(server, client, DOG)
    assert "Kestrel" in await reply_to(client, WHAT_DOG)


async def test_counters_that_went_back_without_a_restart_are_found(start: StartServer) -> None:
    """As where a backup is restored into the tables of a running database."""
    server = await start()
    client = await server.session()
    await remember(server, client, BOAT)
    await forget_everything(server)
    await remember(server, client, DOG)
    await owner_of(server.app.core).execute(
        "UPDATE relationships "
        "SET memory_version = 1, layers_version = 0, removals = 0, erasures = 0"
    )
    assert "Kestrel" in await reply_to(client, WHAT_DOG)
    await remember(server, client, OWL)
    assert "Archimedes" in await reply_to(client, WHAT_OWL)


def forgeries(relationship_id: int, companion_id: int) -> list[Announcement]:
    """Return an announcement of each kind that has a version, with one that will never come."""
    return [
        MemoryAnnouncement(relationship_id, "forged", "user", 0.9, 1, "event", HUGE),
        MemoriesChanged(relationship_id, HUGE),
        LayersChanged(relationship_id, HUGE),
        SettingsChanged(relationship_id, HUGE),
        ConsentGiven(relationship_id, False, HUGE),
        CompanionChanged(companion_id, HUGE),
        LibraryChanged(companion_id, HUGE, gone=True),
        MemoriesForgotten(relationship_id, HUGE, HUGE, HUGE, None, HUGE),
    ]


@pytest.mark.parametrize("number", range(8))
async def test_a_forged_announcement_is_a_reason_to_look_and_no_more(
    start: StartServer, number: int
) -> None:
    """Whoever can reach the bus can announce any version."""
    server = await start()
    client = await server.session()
    await remember(server, client, BOAT)
    owner = owner_of(server.app.core)
    row: Any = (await owner.fetch("SELECT id, companion_id FROM relationships"))[0]
    await forge(server, forgeries(row["id"], row["companion_id"])[number])
    assert "Zephyrine" in await reply_to(client, WHAT_BOAT)
    await remember(server, client, DOG)
    assert "Kestrel" in await reply_to(client, WHAT_DOG)
    await eventually(lambda: not rereading())


async def forge(server: RunningServer, announcement: Announcement) -> None:
    """Announce something that nobody committed, as another process would."""
    payload = f"another {msgspec.json.encode(announcement).decode()}"
    owner = owner_of(server.app.core)
    await owner.execute("SELECT pg_notify('foremind_announcements', $1)", payload)


async def answered_again(client: Client, text: str) -> str:
    """Send a message until it is answered: the database may just have come back."""
    while True:
        await client.send(text)
        events = await client.expect("response.done", "error")
        if events["type"] == "response.done" and events["status"] == "completed":
            return str(events["text"])
        await asyncio.sleep(0.2)
