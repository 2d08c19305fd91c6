"""The stand-in, used without a language model: it quotes, and affirms nothing."""

from dataclasses import replace

import pytest

from foremind.llm.model_selection import compose
from foremind.llm.prompt.layout import PastTurn
from foremind.text.languages.language_files import LANGUAGES
from tests.conftest import ROOT
from tests.unit.llm.prompt.test_layout import memory, prompt


@pytest.mark.parametrize(
    ("told", "asked", "reply"),
    [
        (
            "I'm allergic to walnuts",
            "Could I eat a walnut cake?",
            "Yesterday you told me: “I'm allergic to walnuts”",
        ),
        (
            "My sister is called Mira.",
            "who is Mira",
            "Yesterday you told me: “My sister is called Mira.”",
        ),
        (
            "Ich vertrage keine Walnüsse",
            "Darf ich den Walnusskuchen essen?",
            "Gestern hast du mir gesagt: „Ich vertrage keine Walnüsse“",
        ),
        (
            "Soy alérgica a las nueces",
            "¿Puedo comer una tarta de nueces?",
            "Ayer me dijiste: «Soy alérgica a las nueces»",
        ),
        (
            "Je suis allergique aux noix",
            "Est-ce que je peux manger un gâteau aux noix ?",
            "Hier, tu m'as dit : « Je suis allergique aux noix »",
        ),
        (
            "Sono allergica alle noci",
            "Posso mangiare una torta di noci?",
            "Ieri mi hai detto: «Sono allergica alle noci»",
        ),
        (
            "Eu tenho alergia a nozes",
            "Eu posso comer um bolo de nozes?",
            "Ontem você me disse: “Eu tenho alergia a nozes”",
        ),
        (
            "くるみアレルギーです",
            "くるみのケーキは食べられますか？",
            "昨日、あなたはこう言いました：「くるみアレルギーです」",
        ),
        (
            "호두 알레르기가 있어요",
            "호두 케이크를 먹어도 돼요?",
            "어제 이렇게 말했어요: “호두 알레르기가 있어요”",
        ),
        ("我对核桃过敏", "我能吃核桃蛋糕吗？", "昨天你告诉我：“我对核桃过敏”"),
    ],
)
def test_a_question_is_answered_by_a_quotation_alone(told: str, asked: str, reply: str) -> None:
    """With its age, in the language of the question, and without a yes or a no."""
    assert compose(prompt((memory(1, told),), message=asked)) == reply


def test_a_statement_brings_back_what_was_said() -> None:
    """It is not promised to be kept."""
    reply = compose(prompt((memory(1, "Mira loves the sea."),), message="Mira went sailing today."))
    assert reply == "Yesterday you told me: “Mira loves the sea.”"


def test_a_question_asked_before_is_no_answer() -> None:
    """Only statements answer questions."""
    memories = (memory(1, "Who is Mira?"), memory(2, "Mira is my sister."))
    assert "Mira is my sister" in compose(prompt(memories, message="Tell me, who is Mira?"))


@pytest.mark.parametrize("language", sorted(LANGUAGES))
def test_nothing_is_made_up(language: str) -> None:
    """Without a memory it says that it does not know, or listens, in each language."""
    unknown = compose(replace(prompt(message="Zephyrine?"), language=language))
    listening = compose(replace(prompt(message="Zephyrine."), language=language))
    own = LANGUAGES[language].prompt
    assert own is not None
    assert unknown in own.stand_in.unknown.splitlines()
    assert listening in own.stand_in.listening.splitlines()


def test_the_stand_in_speaks_every_language_of_the_page() -> None:
    """With a quotation, and all that it says without one."""
    for path in (ROOT / "client_demo" / "languages").glob("*.json"):
        own = LANGUAGES[path.stem].prompt
        assert own is not None
        words = own.stand_in
        assert all((words.told, words.happened, words.unknown, words.listening)), path.stem


def test_statements_are_acknowledged() -> None:
    """The phrase varies with the turn, and is deterministic."""
    first = compose(prompt(message="I went out."))
    later = compose(prompt((), (PastTurn("user", "a"), PastTurn("companion", "b")), "I went out."))
    assert first != later
    assert first == compose(prompt(message="I went out."))
