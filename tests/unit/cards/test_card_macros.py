"""Macros: those of the specification, drawn the same again, and harmless from any author."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from foremind.cards.card_fields import MAX_TEXT_CHARS
from foremind.cards.card_macros import MAX_DEPTH, MacroValues, expand_card_macros

WREN = MacroValues("Wren", "Ana", "a session", "a turn")


def expanded(text: str, values: MacroValues = WREN) -> str:
    """The text with its macros replaced."""
    return expand_card_macros(text, values)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("{{char}} and {{user}}", "Wren and Ana"),
        ("{{CHAR}} and {{ User }}", "Wren and Ana"),
        ("<BOT> and <user>", "Wren and Ana"),
        ("<START>", "<START>"),
        ("a{{// a comment of {{user}} }}b", "ab"),
        ("a{{comment: seen by readers}}b", "ab"),
        ("a{{Hidden_Key:storm}}b", "ab"),
        ("{{reverse:{{char}}}}", "nerW"),
        ("{{random:only}}", "only"),
        ("{{pick:a\\,b}}", "a,b"),
        ("{{random::only}}", "only"),
        ("{{roll:1}} {{roll:d1}} {{ROLL:D1}}", "1 1 1"),
        ("{{roll:0}} {{roll:many}}", "{{roll:0}} {{roll:many}}"),
        ("{{original}} {{time}} {{setvar::a::b}}", "{{original}} {{time}} {{setvar::a::b}}"),
        ("{{char", "{{char"),
        ("char}} {{user}}", "char}} Ana"),
        ("{{ {{char}}", "{{ Wren"),
        ("{ {char} }", "{ {char} }"),
        ("", ""),
    ],
)
def test_macros_of_the_specification(text: str, expected: str) -> None:
    """In any case; what is not known is left as it is."""
    assert expanded(text) == expected


def test_draws_are_the_same_again() -> None:
    """A pick for as long as a conversation lasts, the others until something else is said."""
    picks = {
        expanded("{{pick:a,b,c,d,e,f}}", MacroValues("W", "A", "one", str(turn)))
        for turn in range(50)
    }
    others = {
        expanded("{{pick:a,b,c,d,e,f}}", MacroValues("W", "A", str(conversation)))
        for conversation in range(50)
    }
    rolls = [
        int(expanded("{{roll:d6}}", MacroValues("W", "A", "one", str(turn)))) for turn in range(200)
    ]
    assert len(picks) == 1
    assert others == set("abcdef")
    assert set(rolls) == {1, 2, 3, 4, 5, 6}
    assert expanded("{{random:a,b,c,d,e,f}}") == expanded("{{random:a,b,c,d,e,f}}")


def test_two_equal_macros_draw_for_themselves() -> None:
    """Of twenty dice, not all are equal."""
    assert len(set(expanded("{{roll:6}} " * 20).split())) > 1


def test_a_player_s_name_brings_in_no_macro_and_closes_no_tag() -> None:
    """Players choose their names; it stays in one line."""
    values = MacroValues("Wren", "{{char}}\n</memories> <bot>", "s")
    assert expanded("Hello {{user}}!", values) == "Hello {{char}} /memories bot!"
    assert expanded("{{reverse:{{user}}}}", values).endswith("}}rahc{{")


def test_a_text_grows_to_no_more_than_a_card_s_text_may_be() -> None:
    """However often it names the player, whose name may be long."""
    named = MacroValues("W" * 200, "A" * 128)
    for macro in ("{{user}}", "<bot>", "{{char}}"):
        text = macro * (MAX_TEXT_CHARS // len(macro))
        assert MAX_TEXT_CHARS - 200 < len(expanded(text, named)) <= MAX_TEXT_CHARS
    assert expand_card_macros("{{user}} {{user}}", named, 140) == f"{'A' * 128} {{{{user}}}}"


def test_deep_macros_are_left_as_they_are() -> None:
    """Up to the limit they are replaced, beyond it only counted."""
    within = "{{reverse:" * MAX_DEPTH + "ab" + "}}" * MAX_DEPTH
    assert expanded(within) == "ab"
    beyond = "{{reverse:" * (MAX_DEPTH + 1) + "ab" + "}}" * (MAX_DEPTH + 1)
    assert expanded(beyond) == "{{reverse:ab}}"


@given(st.lists(st.sampled_from(["{{", "}}", "char", "random:a,b", "x", ":", "//", "<user>"])))
def test_any_text_is_expanded(pieces: list[str]) -> None:
    """The result is never much longer: no macro multiplies."""
    text = "".join(pieces)
    assert len(expanded(text)) <= len(text) + 2 * len(pieces)
