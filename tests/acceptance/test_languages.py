"""Players who write in other languages than English are remembered, and can be forgotten."""

import signal
from typing import Any
from urllib.parse import quote

import pytest

from foremind.domain.settings.settings import Settings
from foremind_client import Client, connect
from tests.acceptance.test_restart import process
from tests.acceptance.traces import objects_containing, stored_text
from tests.acceptance.world import world
from tests.conftest import StartServer, eventually

# The first is asked about; of the others, the last few are neither kept nor recalled.
_SAID = {
    "de": (
        "Mein Hund heißt Zephyrin",
        "Ich arbeite als Krankenschwester in Leipzig",
        "Meine Schwester wohnt seit Mai in einem Dorf an der Ostsee",
        "Danke schön!",
        "Ja, genau",
    ),
    "ja": (
        "私の犬の名前はゼフィリンです",
        "姉は大阪で看護師をしています",
        "毎朝駅までバスで行きます",
        "ありがとうございます！",
        "そうですね",
    ),
}
_FILLERS = 2
_QUESTIONS = {
    "de": ("wie heißt mein Hund", "Zephyrin"),
    "ja": ("私の犬の名前は何ですか", "ゼフィリン"),
}


async def _say(client: Client, text: str) -> dict[str, Any]:
    await client.send(text)
    return await client.expect_all("response.done", "memory.stored")


@pytest.mark.parametrize("language", ["de", "ja"])
async def test_what_is_said_in_any_language_is_recalled_after_a_restart(
    settings: Settings, language: str
) -> None:
    """Statements are kept, greetings are not, and a question finds its answer, not itself."""
    texts, (question, answer) = _SAID[language], _QUESTIONS[language]
    async with process(settings) as server:
        async with connect(server.url) as client:
            await client.open_session("wren", user_id="ana", name="Ana")
            kept = [(await _say(client, text))["memory.stored"]["stored"] for text in texts]
            assert kept == [True] * (len(texts) - _FILLERS) + [False] * _FILLERS
            assert not (await _say(client, question))["memory.stored"]["stored"]
        await server.stop(signal.SIGTERM)
        await server.start()
        async with connect(server.url) as client:
            await client.open_session("wren", user_id="ana", name="Ana")
            await client.draft(question)
            ready = await client.expect("context.ready")
            assert answer in ready["memories"][0]["content"]
            assert answer in (await _say(client, question))["response.done"]["text"]


@pytest.mark.parametrize(
    ("secret", "about", "word", "other"),
    [
        (
            "Meine Katzen heißen Zephyrin und Xanthos, sie schlafen im Keller",
            "meine Katze",
            "zephyrin",
            "Ich arbeite als Krankenschwester in Leipzig",
        ),
        ("私の猫の名前はゼフィリンです", "猫", "ゼフィリン", "姉は大阪で看護師をしています"),
    ],
)
async def test_a_topic_is_forgotten_by_its_words_in_any_language(
    start: StartServer, secret: str, about: str, word: str, other: str
) -> None:
    """In another form than they were said in; nothing else is forgotten."""
    async with world(start, model=False) as w:
        await w.talk(secret, other)
        assert word in await stored_text(w.server)
        receipt = await w.request("DELETE", f"/memories?about={quote(about)}")
        assert len(receipt["memories"]) == 1
        await w.wait_until_idle()
        assert word not in await stored_text(w.server)
        await eventually(lambda: not objects_containing(word))
        assert list(await w.memories()) == [other]
