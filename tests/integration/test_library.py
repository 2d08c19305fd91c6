"""Documents, as they are found by what is meant."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from pathlib import Path

import psutil
import pytest

from foremind.app.core import Core
from foremind.domain.companion import CompanionFile
from foremind.domain.errors import InvalidMessage, RequestError
from foremind.domain.policy import policy_for
from foremind.domain.settings.settings import CompanionSettings
from foremind.retrieval.documents import library as library_module
from foremind.retrieval.documents.library import Library
from foremind.retrieval.embedding.service import Priority
from foremind.retrieval.relationship_layers import LayerQuery
from tests.conftest import PATIENCE

FERRY = Path(__file__).with_name("ferry.md").read_text()
PAIRS = [pair for pair in FERRY.split("\n\n") if not pair.startswith("# ")]
UNMARKED = "\n".join(pair.replace("**", "") for pair in PAIRS)
# What is asked in other words than those of the answer, and words of the answer.
ASKED = [
    ("Would my poodle be welcome aboard?", "dogs sail free"),
    ("How expensive is the fare for an adult?", "eleven euros"),
    ("I come straight from work, is nine in the evening too late?", "from pier nine"),
    ("We are on a cycling tour of the coast", "twenty bicycles"),
    ("Do you sail in a gale?", "force nine"),
    ("Can I have lunch on the way?", "fish soup"),
    ("At what time do we arrive if we set off at noon?", "Three hours"),
    ("I left my umbrella on the ship yesterday", "kept for a month"),
    ("Do I need coins or notes?", "cash"),
    ("Who helps if somebody is hurt?", "defibrillator"),
    ("Is it barrier-free for the disabled?", "ramp"),
    ("Will my phone have a connection at sea?", "two miles"),
    ("I get sick on the waves", "ginger"),
    ("My nephew of fourteen wants to visit me by himself", "letter from their parents"),
    ("I would rather go on another day than I booked", "evening before"),
    ("Where do I leave my van meanwhile?", "car park"),
]
NOT_ASKED = [
    "Good morning, how are you?", "My favourite colour is green", "Do you like music?",
    "I am so tired of work these days", "I have to pay my taxes this week",
    "I planted tomatoes in the garden", "Tell me a joke",
]  # fmt: skip


@asynccontextmanager
async def indexed_library(built: Core, *documents: str) -> AsyncIterator[tuple[Library, int]]:
    """A companion with documents, all embedded."""
    library = Library(
        built.stores.documents, built.embedder, built.runtime.clock, built.runtime.supervisor
    )
    companion = await built.stores.companions.put(CompanionFile("wren", "Wren", "p"))
    for number, text in enumerate(documents):
        await library.add(companion.id, f"Leaflet {number}", "text/plain", text.encode())
    async with library:
        async with asyncio.timeout(PATIENCE):
            while not await _embedded(built, companion.id):
                await asyncio.sleep(0.02)
        yield library, companion.id


async def _embedded(built: Core, companion_id: int) -> bool:
    documents = await built.stores.documents.documents_of(companion_id)
    return all(document.embedded == document.chunks for document in documents)


async def found(built: Core, library: Library, companion_id: int, text: str) -> tuple[str, ...]:
    """What stands in a prompt for a draft."""
    draft = LayerQuery(
        text=text,
        references=(),
        vector=await built.embedder.embed_query(text, Priority.ENTER),
        user_name="Ana",
        policy=policy_for(CompanionSettings(), built.runtime.settings).layers,
        now=datetime(2026, 5, 20, tzinfo=UTC),
    )
    return (await library.recall(companion_id, draft)).lines


@pytest.mark.parametrize(
    "documents",
    [(FERRY,), (UNMARKED,), tuple(PAIRS)],
    ids=["one file", "one without blank lines", "thirty files"],
)
async def test_an_answer_is_found_by_what_is_meant_however_the_text_is_filed(
    built: Core, documents: tuple[str, ...]
) -> None:
    """Thirty questions and answers in one file as well as in thirty: 12 of 16 at least."""
    async with indexed_library(built, *documents) as (library, companion_id):
        lines = {text: await found(built, library, companion_id, text) for text, _ in ASKED}
        hits = [text for text, words in ASKED if any(words in line for line in lines[text])]
        assert len(hits) >= 12, sorted(set(lines) - set(hits))
        assert all(len(line) < 700 for shown in lines.values() for line in shown)
        for text in NOT_ASKED:
            assert await found(built, library, companion_id, text) == ()


@pytest.mark.parametrize(
    ("body", "media_type", "problem"),
    [
        (b"%PDF-1.7 and no more", "application/pdf", "body: expected application/pdf: the file is"),
        (b"<p> </p>", "text/html", "body: expected a document with text"),
        (b"\xff\xfe", "text/plain", "body: expected text/plain"),
        (b"{}", "application/json", "content-type: expected one of"),
    ],
)
async def test_a_document_that_cannot_be_read_says_why(
    built: Core, body: bytes, media_type: str, problem: str
) -> None:
    """Though another process reads it."""
    async with indexed_library(built) as (library, companion_id):
        with pytest.raises(RequestError, match=problem):
            await library.add(companion_id, "Rules", media_type, body)


async def test_a_document_that_takes_too_long_is_refused_and_its_reader_ends(
    built: Core, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A hostile one may have been made for that."""
    monkeypatch.setattr(library_module, "_MAX_READ_S", 0.05)
    async with indexed_library(built) as (library, companion_id):
        with pytest.raises(InvalidMessage, match="can be read within"):
            await library.add(companion_id, "Rules", "text/html", b"<p>Pier nine.</p>")
        running = [" ".join(child.cmdline()) for child in psutil.Process().children()]
        assert not any("text_extraction" in command for command in running)


async def test_a_page_is_read_by_another_process(built: Core) -> None:
    """Its parser would hold the interpreter's lock."""
    page = b"<html><body>" + b"<div>" * 50_000 + "<h1>Harbour é</h1><p>Pier nine.</p>".encode()
    async with indexed_library(built) as (library, companion_id):
        await library.add(companion_id, "Harbour", "text/html; charset=utf-8", page)
        (document,) = await built.stores.documents.documents_of(companion_id)
    assert document.chunks == 1
