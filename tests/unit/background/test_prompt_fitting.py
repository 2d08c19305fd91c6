"""Background prompts fit into the model's context, whatever was said."""

from hypothesis import given
from hypothesis import strategies as st

from foremind.background.prompt_fitting import fit_prompt, shorten
from foremind.llm.prompt.layout import Message
from foremind.llm.prompt.token_counter import estimate_tokens, prompt_tokens

LINES = st.lists(st.text("ab é…日", max_size=400), min_size=1, max_size=80)


@given(LINES, st.integers(50, 3_000))
def test_any_text_fits(lines: list[str], room: int) -> None:
    """And a text that fitted before is unchanged."""
    text = "\n".join(lines)
    shown = shorten(text, room, estimate_tokens)
    assert estimate_tokens(shown) <= room
    assert shown == text or estimate_tokens(text) > room


def test_the_longest_line_is_cut_in_the_middle() -> None:
    """Short lines stay whole."""
    long = f"the beginning {'x' * 4_000} the end"
    first, second, third = shorten(f"short\n{long}\nlast", 200, estimate_tokens).split("\n")
    assert (first, third) == ("short", "last")
    assert second.startswith("the beginning x")
    assert second.endswith("x the end")
    assert 300 < len(second) < 600


def test_the_first_and_last_of_very_many_lines_are_kept() -> None:
    """Cutting every line to a few letters would leave no meaning."""
    lines = [f"line {number} of very many that were said" for number in range(1_000)]
    shown = shorten("\n".join(lines), 200, estimate_tokens).split("\n")
    assert shown[0] == lines[0]
    assert shown[-1] == lines[-1]
    assert 10 < len(shown) < 20


def test_instructions_are_never_cut() -> None:
    """Only the data after them is."""
    prompt: list[Message] = [
        {"role": "system", "content": "s" * 900},
        {"role": "user", "content": "u" * 9_000},
    ]
    task, data = fit_prompt(prompt, 1_000, estimate_tokens)
    assert task == prompt[0]
    assert estimate_tokens(data["content"]) > 500
    assert prompt_tokens([task, data], estimate_tokens) <= 1_000
