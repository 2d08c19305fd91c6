"""Post-reply behaviours with a model that hangs."""

import asyncio

from foremind.app.configuration import load_settings
from foremind.background.post_reply import PostReplyBehaviours
from foremind.domain.companion_rules import Behaviour
from foremind.domain.policy import ChatModelPolicy
from foremind.llm.model_selection import ChatModels
from foremind.llm.prompt.layout import PastTurn
from foremind.runtime.metrics import Metrics
from foremind_eval.doubles.model_server import Script, scripted_model
from tests.conftest import eventually

DIARY = Behaviour("diary", "Write one line of diary.", after=True)
TURNS = [PastTurn("user", "I planted a fig tree"), PastTurn("companion", "How lovely.")]


async def test_a_hanging_model_does_not_block_behaviours_of_other_models() -> None:
    """However many of its own are pending."""
    never = asyncio.Event()
    outcomes: list[str] = []
    metrics, chat_models = Metrics(), ChatModels(load_settings())

    def run(url: str) -> None:
        policy = ChatModelPolicy(url, "scripted", None, 400, 0.8, "off")
        behaviours.run(DIARY, 1, policy, TURNS, lambda: None, lambda _, text: outcomes.append(text))

    async with (
        scripted_model(Script(hold_for=lambda _: never)) as hanging,
        scripted_model(Script(reply=lambda _: ["A fig tree."])) as other,
        PostReplyBehaviours(chat_models, metrics) as behaviours,
    ):
        for _ in range(100):
            run(hanging.url)
        for _ in range(3):
            run(other.url)
        await eventually(lambda: outcomes == ["A fig tree."] * 3)
        dropped = {"kind": "behaviour"}
        assert metrics.registry.get_sample_value("foremind_dropped_total", dropped) == 84
    await chat_models.close()
