"""What runs after replies, beside models that hang."""

import asyncio

from foremind.background.post_reply import PostReplyBehaviours
from foremind.domain.companion import Behaviour
from foremind.domain.policy import ChatModelPolicy
from foremind.domain.settings import load_settings
from foremind.llm.model_selection import ChatModels
from foremind.llm.prompt.layout import PastTurn
from foremind.runtime.metrics import Metrics
from foremind.testing.model_server import Script, scripted_model
from tests.conftest import eventually

DIARY = Behaviour("diary", "Write one line of diary.", after=True)
SAID = [PastTurn("user", "I planted a fig tree"), PastTurn("companion", "How lovely.")]


async def test_a_model_that_hangs_leaves_room_for_what_others_do() -> None:
    """However many replies of its companion are over."""
    never = asyncio.Event()
    told: list[str] = []
    metrics, voices = Metrics(), ChatModels(load_settings())

    def run(url: str) -> None:
        voice = ChatModelPolicy(url, "scripted", None, 400, 0.8, "off")
        afterwards.run(DIARY, voice, SAID, lambda: None, lambda _, text: told.append(text))

    async with (
        scripted_model(Script(holds=lambda _: never)) as hanging,
        scripted_model(Script(reply=lambda _: ["A fig tree."])) as other,
        PostReplyBehaviours(voices, metrics) as afterwards,
    ):
        for _ in range(100):
            run(hanging.url)
        for _ in range(3):
            run(other.url)
        await eventually(lambda: told == ["A fig tree."] * 3)
        dropped = {"kind": "behaviour"}
        assert metrics.registry.get_sample_value("foremind_dropped_total", dropped) == 84
    await voices.close()
