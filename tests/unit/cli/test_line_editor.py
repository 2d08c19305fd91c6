"""The terminal's line editor."""

import pytest

from foremind.cli.chat import (
    Entered,
    LeavePressed,
    LineEditor,
    StopPressed,
    Typed,
    harmless,
    prompt_line,
)


def test_typing_builds_a_draft_and_enter_returns_it() -> None:
    """Also with characters whose bytes arrive one by one."""
    editor = LineEditor()
    rain = "雨".encode()
    assert editor.feed(b"hi ") == [Typed()] * 3
    assert editor.feed(rain[:1]) == []
    assert editor.feed(rain[1:]) == [Typed()]
    assert editor.draft == "hi 雨"
    assert editor.feed(b"\r") == [Entered("hi 雨")]
    assert editor.draft == ""


@pytest.mark.parametrize(
    ("keys", "draft"),
    [
        (b"abc\x7f", "ab"),
        (b"\x7f", ""),
        (b"one two\x17", "one"),
        (b"abc\x15", ""),
        (b"a\x00b", "ab"),
    ],
)
def test_editing_keys_change_the_draft(keys: bytes, draft: str) -> None:
    """Backspace, Ctrl-W and Ctrl-U; other control characters are ignored."""
    editor = LineEditor()
    editor.feed(keys)
    assert editor.draft == draft


def test_control_keys_are_recognised() -> None:
    """Ctrl-C exits, so does Ctrl-D on an empty line; Esc stops; arrow keys are ignored."""
    editor = LineEditor()
    assert editor.feed(b"\x03") == [LeavePressed()]
    assert editor.feed(b"\x04") == [LeavePressed()]
    assert editor.feed(b"\x1b") == [StopPressed()]
    assert editor.feed(b"\x1b[A") == []
    assert editor.feed(b" \r") == [Typed(), Typed()]


@pytest.mark.parametrize(
    "keys", ["\x1b[A", "\x1b[1;5D", "\x1bOP", "\x1b[15~", "\x1bb", "\x1b[D\x1b[D\x1b[C"]
)
def test_arrow_and_function_keys_leave_the_draft_as_it_is(keys: str) -> None:
    """Also when they arrive with other keys, or in pieces."""
    together = LineEditor()
    assert StopPressed() not in together.feed(f"ab{keys}c\x7f{keys}d".encode())
    assert together.draft == "abd"


def test_an_arrow_key_may_arrive_in_pieces() -> None:
    """Its end is awaited; Escape alone is not."""
    editor = LineEditor()
    for piece in (b"ab\x1b[", b"1;5", b"Dc\x1bO", b"Px"):
        editor.feed(piece)
    assert editor.draft == "abcx"
    assert editor.feed(b"y\x1b") == [Typed(), StopPressed()]


def test_a_long_draft_shows_its_end() -> None:
    """It is cut to the width of the terminal."""
    line = prompt_line("ready", "", "x" * 100 + "END", 40)
    assert line.endswith("END")
    assert len(line) < 40 + 20


def test_received_text_cannot_control_the_terminal() -> None:
    """Escape sequences lose their control characters."""
    assert harmless("a\x1b[2Jb\nc\x07") == "a[2Jb\nc"
