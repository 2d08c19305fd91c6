"""The chat model used without a language model."""

from foremind.llm.model_selection import compose
from foremind.llm.prompt.layout import PastTurn
from tests.unit.llm.prompt.test_layout import memory, prompt


def test_a_question_is_answered_from_memory() -> None:
    """With the quotation and its age."""
    reply = compose(prompt((memory(1, "My sister is called Mira."),), message="Who is Mira?"))
    assert reply == "Yes. Yesterday you told me: “My sister is called Mira.”"


def test_a_question_asked_before_is_no_answer() -> None:
    """Only statements answer questions."""
    memories = (memory(1, "Who is Mira?"), memory(2, "Mira is my sister."))
    assert "Mira is my sister" in compose(prompt(memories, message="Tell me, who is Mira?"))


def test_nothing_is_made_up() -> None:
    """Without a memory it says that it does not know."""
    assert "told me" in compose(prompt(message="What is my name?"))


def test_statements_are_acknowledged() -> None:
    """The phrase varies with the turn, and is deterministic."""
    first = compose(prompt(message="I went out."))
    later = compose(prompt((), (PastTurn("user", "a"), PastTurn("companion", "b")), "I went out."))
    assert first != later
    assert first == compose(prompt(message="I went out."))
