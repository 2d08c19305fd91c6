"""A background prompt fits into the model's context, whatever was said."""

from hypothesis import given
from hypothesis import strategies as st

from foremind.background.prompt_fitting import fitted, tokens_of, within
from foremind.llm.prompt.layout import Message
from foremind.llm.prompt.token_counter import estimate_tokens

LINES = st.lists(st.text("ab é…日", max_size=400), min_size=1, max_size=80)


@given(LINES, st.integers(50, 3_000))
def test_whatever_is_said_fits(lines: list[str], room: int) -> None:
    """And nothing is touched that fitted before."""
    text = "\n".join(lines)
    shown = within(text, room, estimate_tokens)
    assert estimate_tokens(shown) <= room
    assert shown == text or estimate_tokens(text) > room


def test_of_the_longest_line_the_middle_goes() -> None:
    """What is short stays whole."""
    long = f"the beginning {'x' * 4_000} the end"
    first, second, third = within(f"short\n{long}\nlast", 200, estimate_tokens).split("\n")
    assert (first, third) == ("short", "last")
    assert second.startswith("the beginning x")
    assert second.endswith("x the end")
    assert 300 < len(second) < 600


def test_of_very_many_lines_the_first_and_the_last_stay() -> None:
    """A line of two letters would say nothing."""
    lines = [f"line {number} of very many that were said" for number in range(1_000)]
    shown = within("\n".join(lines), 200, estimate_tokens).split("\n")
    assert shown[0] == lines[0]
    assert shown[-1] == lines[-1]
    assert 10 < len(shown) < 20


def test_instructions_are_never_cut() -> None:
    """Only the data below them is."""
    asked: list[Message] = [
        {"role": "system", "content": "s" * 900},
        {"role": "user", "content": "u" * 9_000},
    ]
    task, data = fitted(asked, 1_000, estimate_tokens)
    assert task == asked[0]
    assert estimate_tokens(data["content"]) > 500
    assert tokens_of([task, data], estimate_tokens) <= 1_000
