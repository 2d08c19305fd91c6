"""The terminal's line editor."""

import pytest

from foremind.cli.line_editor import (
    Entered,
    LeavePressed,
    LineEditor,
    StopPressed,
    Typed,
    harmless,
    prompt_line,
)


def test_letters_build_a_draft_and_enter_hands_it_over() -> None:
    """Also those of several bytes, in pieces."""
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
def test_editing_keys_edit(keys: bytes, draft: str) -> None:
    """Backspace, Ctrl-W, Ctrl-U; others do nothing."""
    editor = LineEditor()
    editor.feed(keys)
    assert editor.draft == draft


def test_control_keys_mean_what_they_mean_elsewhere() -> None:
    """Ctrl-C leaves, Ctrl-D on an empty line too, Esc stops, arrows are ignored."""
    editor = LineEditor()
    assert editor.feed(b"\x03") == [LeavePressed()]
    assert editor.feed(b"\x04") == [LeavePressed()]
    assert editor.feed(b"\x1b") == [StopPressed()]
    assert editor.feed(b"\x1b[A") == []
    assert editor.feed(b" \r") == [Typed(), Typed()]


def test_a_long_draft_shows_its_end() -> None:
    """Within the width of the terminal."""
    line = prompt_line("ready", "", "x" * 100 + "END", 40)
    assert line.endswith("END")
    assert len(line) < 40 + 20


def test_what_others_say_cannot_command_the_terminal() -> None:
    """No escape sequence comes through."""
    assert harmless("a\x1b[2Jb\nc\x07") == "a[2Jb\nc"
