"""Answers that say nothing of what a model was given, as small models write them, are no facts."""

from collections.abc import Callable
from datetime import UTC, datetime

import msgspec
import pytest

from foremind.background.notes import grounded_operations, valid_operations
from foremind.background.profile_extraction import valid_entries
from foremind.background.prompts import (
    CoreMemoryAnswer,
    EpisodesAnswer,
    NoteOperation,
    NotesAndProfileAnswer,
    NotesAnswer,
    ProfileAnswer,
    SummaryAnswer,
    TopicAnswer,
    core_memory_prompt,
    episodes_prompt,
    notes_prompt,
    summary_prompt,
    topic_prompt,
)
from foremind.domain.companion_rules import KINDS, PROFILE_SLOTS, ProfileRules, ScratchpadRules
from foremind.llm.answer_parsing import UnparsableAnswer, parse_answer
from foremind.llm.background_answer_gate import AnswerGate, goes_round, is_empty_answer
from foremind.llm.prompt.layout import Message
from foremind.text.languages.language_files import LANGUAGES

NOW = datetime(2026, 5, 20, 12, tzinfo=UTC)
NOTES, PROFILE = ScratchpadRules(kinds=KINDS), ProfileRules(slots=PROFILE_SLOTS)
PROMPTS: dict[type[msgspec.Struct], Callable[[], list[Message]]] = {
    NotesAnswer: lambda: notes_prompt(NOTES, [], None, []),
    ProfileAnswer: lambda: notes_prompt(None, [], PROFILE, []),
    NotesAndProfileAnswer: lambda: notes_prompt(NOTES, [], PROFILE, []),
    SummaryAnswer: lambda: summary_prompt("", []),
    EpisodesAnswer: lambda: episodes_prompt([], []),
    TopicAnswer: lambda: topic_prompt("boats", []),
    CoreMemoryAnswer: lambda: core_memory_prompt("", [], NOW),
}
PROFILE_FORM = NOTES_FORM = PROMPTS[NotesAndProfileAnswer]()[0]["content"]
SAID = [
    "Hi, I'm Rita and I live in Porto with my dog Faro.",
    "My sister Lena has a ceramics studio; I'm 34 and I love tea.",
    "I have an exam tomorrow, and I'm scared.",
]


@pytest.mark.parametrize("shape", PROMPTS, ids=lambda shape: shape.__name__)
@pytest.mark.parametrize(
    "form", ["{}", "Sure! Here it is:\n```json\n{}\n```", "<think>x</think>{}"]
)
def test_the_form_of_the_answer_is_no_answer(shape: type[msgspec.Struct], form: str) -> None:
    """A model that writes down the form it was shown says nothing, in any layer."""
    shown = PROMPTS[shape]()[0]["content"].partition("JSON only: ")[2]
    assert shown
    try:
        answer = parse_answer(form.replace("{}", shown), shape, prose=True).value
    except UnparsableAnswer:
        return
    fields = msgspec.structs.asdict(answer)
    operations = fields.pop("operations", [])
    assert valid_operations(operations, KINDS, set(range(1, 100))) == []
    assert valid_entries(fields.pop("entries", []), PROFILE_SLOTS, (1,)) == []
    assert not any(fields.values())


@pytest.mark.parametrize(
    "text",
    """unknown|Unknown.|Not mentioned|not mentioned in the conversation|N/A|n/a
    |NA|null|NULL|None|none.
    |No information provided|The user did not mention any name|not specified|(empty)|nothing|-|…|?
    |There is no information about the user.|undefined|TBD|No changes.|None mentioned so far
    |unbekannt|Nicht erwähnt|keine Angabe|Keine Informationen vorhanden|nicht bekannt
    |desconocido|No mencionado|no especificado|ninguno|sin información|No se menciona
    |inconnu|Non mentionné|aucune information|non précisé|Aucun
    |sconosciuto|Non menzionato|nessuna informazione|Nessuno
    |desconhecido|Não mencionado|nenhuma informação|não informado|Nenhum
    |onbekend|Niet vermeld|geen informatie|nieznane|Nie podano|brak danych|brak
    |неизвестно|Не указано|нет данных|Не упоминается|bilinmiyor|Belirtilmemiş|bilgi yok
    |不明|なし|特になし|言及なし|情報なし|未知|未提及|没有提到|无|不适用|没有信息
    |없음|알 수 없음|언급되지 않음|정보 없음
    |ไม่ทราบ|ไม่ระบุ|ไม่มีข้อมูล""".replace("\n    |", "|").split("|"),
)
def test_empty_words_are_no_facts(text: str) -> None:
    """In every language that prompts use, however they are written."""
    gate = AnswerGate(
        PROFILE_FORM, [*SAID, "I know none of them, n/a.", "なしです。没有信息。없음"]
    )
    assert is_empty_answer(text)
    assert not gate.admits_value(text) and not gate.admits(text)
    assert not gate.paragraph(text) and not gate.lines([text]) and not gate.touches(text)


def test_every_language_of_prompts_has_words_for_nothing() -> None:
    assert {code for code, language in LANGUAGES.items() if language.empty_words} == {*LANGUAGES}


@pytest.mark.parametrize(
    ("value", "admitted"),
    [
        ("Rita", True),
        ("Porto", True),
        ("dog Faro", True),
        ("sister Lena", True),
        ("34", True),
        ("tea", True),
        ("ceramics", True),
        ("dog Scout", False),
        ("brother Tom", False),
        ("tea to coffee", False),
        ("what the user wants to be called", False),
        ("where the user lives now", False),
        ("Lisbon", False),
        ("35", False),
        ("software engineer", False),
        ("single", False),
        ("name", False),
        ("Ana", False),
    ],
)
def test_a_value_was_said_and_is_not_one_of_the_form(value: str, admitted: bool) -> None:
    assert AnswerGate(PROFILE_FORM, SAID).admits_value(value) is admitted


def test_a_value_in_other_languages_was_said_there() -> None:
    """Also where words are not separated, and where endings differ."""
    said = [
        "Ich bin Bäckerin und lebe in Köln.",
        "我住在北京，我的狗叫小黑。",
        "東京に住んでいます",
        "я живу в Москве",
    ]
    gate = AnswerGate(PROFILE_FORM, said)
    for value in ("Bäckerin", "Köln", "北京", "小黑", "東京", "Москва"):
        assert gate.admits_value(value), value
    for value in ("上海", "大阪", "Ärztin", "Казань"):
        assert not gate.admits_value(value), value


@pytest.mark.parametrize(
    ("note", "admitted"),
    [
        ("Rita lives in Porto with her dog Faro.", True),
        ("The user has an exam on Friday, 27 November 2026.", True),
        ("Loves tea", True),
        ("Has a sister, Lena, who makes ceramics", True),
        ("Wants to travel to Japan in spring", False),
        ("The user has a dog named Scout", False),
        ("Works as a software engineer at Google and loves hiking", False),
        ("who the user is: name, age, home, work", False),
        ("what the user likes, dislikes, wants done or not done", False),
        ("Most talk needs no operation at all", False),
        ("The user said nothing worth noting.", False),
    ],
)
def test_a_note_speaks_of_what_was_said(note: str, admitted: bool) -> None:
    assert AnswerGate(NOTES_FORM, SAID).admits(note) is admitted


def test_an_own_example_counts_only_where_it_was_said() -> None:
    """A companion's examples are facts of nobody; whoever says the same has said it."""
    form = 'You keep notes. "No onions for me!" becomes an entry of kind need: "Eats no onions".'
    assert not AnswerGate(form, ["Nice weather."]).admits("Eats no onions.")
    assert AnswerGate(form, ["No onions for me, I eat none!"]).admits("Eats no onions.")


@pytest.mark.parametrize(
    ("lines", "kept"),
    [
        (["Rosa", "Wren", "Wren", "Rosa", "Rosa"], []),
        (["None", "None", "Rosa has a dog, Faro."], []),
        (["Rosa has a dog, Faro."] * 5, []),
        (["Rosa lives in Porto.", "Rosa lives in Porto.", "She loves tea."], [0, 2]),
        (["Rosa lives in Porto.", "N/A", "She loves tea."], [0, 2]),
        (["Rosa lives in Porto. Rosa lives in Porto. " * 6], []),
    ],
)
def test_lines_that_say_nothing_or_the_same_are_dropped(lines: list[str], kept: list[int]) -> None:
    """Where most are like that, the answer is refused."""
    gate = AnswerGate("Summarise.", SAID, ["Rosa", "Wren"])
    assert gate.lines(lines) == [lines[index] for index in kept]


def test_a_former_text_is_not_replaced_by_nothing() -> None:
    former = "Rita is allergic to peanuts, plays the violin, and fears storms since the flood."
    gate = AnswerGate("Write a paragraph.", [former, *SAID])
    assert gate.paragraph("Rita has an exam tomorrow.", former) == ""
    both = "Rita, who is allergic to peanuts and plays the violin, has an exam tomorrow."
    assert gate.paragraph(both, former) == both
    assert gate.paragraph("Faro is a dog. N/A. Scout barks at Tom.") == "Faro is a dog."


@pytest.mark.parametrize(
    ("text", "loop"),
    [
        ("and so on " * 20, True),
        ("はいはいはいはいはいはいはいはい", True),
        ("我喜欢茶。我喜欢茶。我喜欢茶。我喜欢茶。", True),
        ("I live in Porto with my dog Faro, and my sister lives in Porto with her cat.", False),
        ("Yes.", False),
        ("", False),
    ],
)
def test_loops_are_recognised(text: str, loop: bool) -> None:
    assert goes_round(text) is loop


def test_notes_are_not_replaced_or_deleted_by_what_has_nothing_to_do_with_them() -> None:
    """What is new is added; what was not touched on stays; the same is added once."""
    known = {1: "Allergic to peanuts", 2: "Lives in Lisbon", 3: "Has an exam in June"}
    gate = AnswerGate(NOTES_FORM, ["I moved from Lisbon to Porto.", "My exam is over. I love tea."])
    assert grounded_operations(
        [
            NoteOperation("DELETE", 1),
            NoteOperation("DELETE", 3),
            NoteOperation("UPDATE", 1, None, "Loves tea"),
            NoteOperation("UPDATE", 2, None, "Lives in Porto"),
            NoteOperation("UPDATE", 2, None, "N/A"),
            NoteOperation("UPDATE", 2, None, "unknown"),
            NoteOperation("ADD", None, "other", "Loves tea."),
            NoteOperation("ADD", None, "other", "Likes long walks"),
        ],
        known,
        gate,
    ) == [
        NoteOperation("DELETE", 3),
        NoteOperation("ADD", None, "other", "Loves tea"),
        NoteOperation("UPDATE", 2, None, "Lives in Porto"),
    ]
    # The number of an entry gives no reason to add what it says once more.
    again = NoteOperation("ADD", 2, "goal", "Lives in Lisbon")
    cat = AnswerGate(NOTES_FORM, ["I live with my cat Mo"])
    assert grounded_operations([again], known, cat) == []
