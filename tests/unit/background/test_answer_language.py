"""Background work asks a language model for answers in the language of what was said."""

from datetime import UTC, datetime

import pytest

from foremind.background.extractive_summary import Utterance
from foremind.background.prompts import (
    core_memory_prompt,
    episodes_prompt,
    notes_prompt,
    summary_prompt,
    topic_prompt,
)
from foremind.domain.companion_rules import ProfileRules, ScratchpadRules
from foremind.llm.prompt.layout import Message

NOW = datetime(2026, 5, 20, 12, tzinfo=UTC)
GERMAN = "Mein Hund heißt Bello und ich wohne in Leipzig."
ENGLISH = "My dog is called Bello and I live in Leipzig."


def _tasks(text: str, own: str | None = None) -> list[str]:
    """Return the system messages of the prompts that ask for sentences."""
    said = [Utterance(1, "Ana", by_user=True, text=text, significance=0.5)]
    prompts: list[list[Message]] = [
        notes_prompt(ScratchpadRules(prompt=own), [], ProfileRules(), said),
        summary_prompt("", said, own),
        episodes_prompt([], said, own),
        topic_prompt("Bello", [(NOW, text)], own),
        core_memory_prompt("", [text], NOW, own),
    ]
    return [messages[0]["content"] for messages in prompts]


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        (GERMAN, " Write in German; "),
        ("私の犬の名前はベロです。", " Write in Japanese; "),
    ],
)
def test_an_answer_is_asked_for_in_the_language_of_what_was_said(text: str, sentence: str) -> None:
    """Or a model would sum up in the language of its instructions."""
    for task in _tasks(text):
        assert sentence in task.partition("What was said")[0]


@pytest.mark.parametrize("text", [ENGLISH, "Bello"])
def test_nothing_is_said_of_english_and_of_what_tells_no_language(text: str) -> None:
    """The instructions are in English anyway."""
    for task in _tasks(text):
        assert "Write in" not in task


def test_a_companion_with_a_prompt_of_its_own_is_not_told_the_language() -> None:
    """Its author may have asked for one."""
    for task in _tasks(GERMAN, "Write like a log."):
        assert "Write in" not in task


def test_what_the_companion_says_tells_no_language() -> None:
    """It may speak its own."""
    said = [
        Utterance(1, "Ana", by_user=True, text=ENGLISH, significance=0.5),
        Utterance(2, "Wren", by_user=False, text=GERMAN, significance=0.5),
        Utterance(3, "Wren", by_user=False, text=GERMAN, significance=0.5),
    ]
    assert "Write in" not in summary_prompt("", said)[0]["content"]
