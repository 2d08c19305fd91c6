"""What is known of a user is in a prompt once, in whatever words and layers it is stored."""

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta

import pytest

from foremind.background.core_memory import core_memory_sources
from foremind.domain.memory import Recalled
from foremind.domain.record import Details, MadeBy, Record, RecordLayer
from foremind.domain.settings.setting_definitions import LayerName
from foremind.domain.turn import Speaker
from foremind.llm.prompt.sections import (
    Section,
    memory_lines,
    section,
    standing_sections,
    topic_line,
)
from foremind.llm.prompt.token_budget import BudgetShare, allocate_tokens
from foremind.llm.prompt.token_counter import estimate_tokens
from foremind.text.languages.language_files import LANGUAGES
from foremind.text.languages.prompt_words import day_in, record_words
from foremind.text.sentences import sentence_keys_in

NOW = datetime(2026, 5, 20, 12, tzinfo=UTC)


def record(layer: RecordLayer, content: str, slot: str = "", made_by: MadeBy = "rules") -> Record:
    """A record of today: an entry of a profile slot, a note, or the text of another layer."""
    title = slot if slot else {"profile": "", "topics": "home"}.get(layer, "")
    kind = {"profile": "stated", "scratchpad": "identity"}.get(layer, "")
    slot = slot.partition(" ")[0] if slot != "favourite colour" else "favourites"
    return Record(
        1, layer, kind, title, content, (), Details(slot=slot), None, made_by, None, NOW, NOW, 1
    )


def memory(
    text: str, days: int = 0, speaker: Speaker = "user", superseded: bool = False
) -> Recalled:
    """A memory of some days ago."""
    said_at = NOW - timedelta(days=days)
    return Recalled(1, text, speaker, "conversation", 0.5, said_at, superseded, 0.5, 0.5, 0.5, 0.5)


def shown(
    records: Sequence[Record],
    *memories: Recalled,
    said: str = "",
    topic: str = "",
    language: str = "en",
) -> dict[LayerName, list[str]]:
    """Return the lines of each layer in a prompt with room for everything."""
    standing = standing_sections(records, estimate_tokens, "Ana", language)
    recalled: list[Section] = [
        section("memories", memory_lines(memories, "Ana", NOW), estimate_tokens),
        section(
            "topics", [topic_line(record("topics", topic), NOW)] if topic else [], estimate_tokens
        ),
    ]
    shares = [BudgetShare(standing_section) for standing_section in standing.values()]
    others = [BudgetShare(recalled_section) for recalled_section in recalled]
    allocate_tokens(shares, others, 10_000, sentence_keys_in(said), estimate_tokens)
    return {share.section.layer: list(share.shown().lines) for share in (*shares, *others)}


@pytest.mark.parametrize(
    ("slot", "value", "said"),
    [
        ("home", "Porto", "I live in Porto."),
        ("home", "Porto", "I'm living in Porto"),
        ("job", "baker", "I'm a baker!"),
        ("name", "Ana", "My name is Ana."),
        ("likes", "creating art", "I love creating art!"),
        ("likes", "dance", "I like to dance."),
        ("likes", "music", "I live for music!"),
        ("likes", "thunderstorms", "I've always loved thunderstorms"),
        ("dislikes", "olives", "I never liked olives."),
        ("dislikes", "olives", "I've never liked olives"),
        ("dislikes", "jazz", "I'm no fan of jazz."),
        ("dislikes", "Olives", "Olives aren't my thing."),
        ("goals", "sail to Madeira", "My goal is to sail to Madeira."),
        ("pets", "cat Miso", "My cat's name is Miso."),
        ("favourite colour", "green", "My favourite colour is green"),
    ],
)
def test_a_memory_that_only_states_an_entry_of_the_profile_is_left_out(
    slot: str, value: str, said: str
) -> None:
    """Unless it says more, is of another day, or somebody else said it."""
    profile = [record("profile", value, slot)]
    assert shown(profile, memory(said))["memories"] == []
    for more in (
        memory(f"{said.rstrip('.!')} because of the sea."),
        memory(said, days=3),
        memory(said, speaker="companion"),
        memory(said, superseded=True),
        memory(f"Bruno said: {said.rstrip('.!')} too."),
    ):
        assert shown(profile, more)["memories"], more


@pytest.mark.parametrize(
    ("note", "said", "same"),
    [
        ("Lives in Oslo.", "I live in Oslo", True),
        ("Ana lives in Oslo with her sister.", "I live in Oslo with my sister.", True),
        ("The user is allergic to walnuts", "I'm allergic to walnuts.", True),
        ("Ana's sister is a pilot", "My sister is a pilot", True),
        ("Studies law in Oslo", "I study law in Oslo", True),
        ("Teaches violin to children", "I teach violin to children", True),
        ("I live in Oslo.", "I live in Oslo", True),
        ("Bruno lives in Oslo", "I live in Oslo", False),
        ("Lives in Oslo", "I live in Oslo since May", False),
        ("Lives in Oslo", "My sister lives in Oslo", False),
        ("Does not eat meat", "I eat meat every day", False),
        ("Moved from Oslo to Porto", "I moved from Porto to Oslo", False),
    ],
)
def test_a_memory_that_only_says_what_a_note_says_is_left_out(
    note: str, said: str, same: bool
) -> None:
    """Whether the note is in the user's words or about the user."""
    assert (shown([record("scratchpad", note)], memory(said))["memories"] == []) is same


@pytest.mark.parametrize(
    "text", ["私の犬の名前はベロです。", "我的狗的名字叫做小白。", "หมาของฉันชื่อด่างนะ"]
)
def test_what_is_in_the_history_is_not_repeated_without_spaces_either(text: str) -> None:
    """Nor is it if the memory has no full stop; what is short may occur twice."""
    assert shown([], memory(text.rstrip("。")), said=text) == {"memories": [], "topics": []}
    assert shown([], memory("はい、そうです"), said="はい、そうです") != {
        "memories": [],
        "topics": [],
    }


def test_core_memory_and_notes_do_not_repeat_the_profile() -> None:
    """What they add is shown, a day among it."""
    profile = [record("profile", "Porto", "home"), record("profile", "creating art", "likes")]
    core_memory = (
        "home (20 May 2026): Porto\nlikes (19 May 2026): creating art\n"
        "preference (20 May 2026): I love creating art.\n"
        "preference (19 May 2026): I enjoy creating art.\nAna is in mourning."
    )
    assert shown([*profile, record("hot", core_memory)])["hot"] == [
        '- "preference (19 May 2026): I enjoy creating art."',
        '- "Ana is in mourning."',
    ]
    for note in ("Lives in Porto", "Ana loves creating art.", "I love creating art"):
        assert shown([*profile, record("scratchpad", note)])["scratchpad"] == [], note
    assert shown([*profile, record("scratchpad", "Lives in Porto since May")])["scratchpad"]


def test_manual_text_stays_whatever_says_the_same() -> None:
    """And what is generated does not repeat it."""
    manual = record("scratchpad", "I live in Porto with Ines. Ask after her.", made_by="developer")
    summary = record("summary", "Ana: I live in Porto with Ines.")
    lines = shown(
        [manual, summary, record("profile", "Porto", "home")],
        memory("I live in Porto with Ines."),
        said="I live in Porto with Ines.",
    )
    assert lines["scratchpad"] == ['- identity: "I live in Porto with Ines. Ask after her."']
    assert lines["summary"] == lines["memories"] == []


def test_a_day_of_which_nothing_is_left_is_not_shown() -> None:
    """A day applies to all sentences up to the next."""
    topic = (
        "On 2 May 2026:\nAna: I moved to Porto.\nOn 3 May 2026: Ana: I miss my cat.\n"
        "Ana: I found a flat.\nOn 4 May 2026:\nAna: I like the flat."
    )
    (line,) = shown(
        [], topic=topic, said="I moved to Porto. I miss my cat. I like the flat."
    )["topics"]  # fmt: skip
    assert line.endswith('"On 3 May 2026: Ana: I found a flat."')


@pytest.mark.parametrize("language", sorted(LANGUAGES))
def test_the_core_memory_does_not_repeat_the_profile_in_any_language(language: str) -> None:
    """Its labels and dates are those of when it was written; prompts may be in another by now."""
    profile = [
        record("profile", "Porto", "home"),
        record("profile", "creating art", "likes"),
    ]
    for written_in in (language, "en"):
        lines = core_memory_sources(profile, UTC, written_in)
        assert all(day_in(written_in, NOW) in text for text in lines)
        core_memory = record("hot", "\n".join(lines))
        prompt = shown([*profile, core_memory], language=language)
        assert prompt["profile"] and not prompt["hot"]


@pytest.mark.parametrize("language", sorted(LANGUAGES))
def test_a_day_of_which_nothing_is_left_is_left_out_in_every_language(language: str) -> None:
    """As in English."""
    day = record_words(language).on_day.format(date=day_in(language, NOW))
    paragraph = f"{day}\nMira keeps bees in Porto.\n{day}\nShe sells honey at the market."
    lines = shown([], topic=paragraph, said="Mira keeps bees in Porto.")["topics"]
    assert lines[0].count(day) == 1
    assert "bees" not in lines[0] and "honey" in lines[0]
