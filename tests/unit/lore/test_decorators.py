"""Decorators are read from the head of a content, and removed from it."""

import pytest

from foremind.lore.lorebook import Decorators, split_decorators


@pytest.mark.parametrize(
    ("content", "decorators", "remainder"),
    [
        ("Plain.", Decorators(), "Plain."),
        ("@@depth 4\n\n\nText.\n", Decorators(depth=4), "Text."),
        ("\n@@depth 4\n\n@@role user\nText.", Decorators(depth=4, role="user"), "Text."),
        ("Text.\n@@depth 4", Decorators(), "Text.\n@@depth 4"),
        ("@@depth 4\n@@depth 9\nText.", Decorators(depth=4), "Text."),
        ("@@role narrator\nText.", Decorators(), "Text."),
        ("@@depth deep\nText.", Decorators(), "Text."),
        ("@@depth nan\nText.", Decorators(), "Text."),
        ("@@activate false\nText.", Decorators(), "Text."),
        ("@@activate\n@@dont_activate\nText.",
         Decorators(activate=True, dont_activate=True), "Text."),
        ("@@position before_desc\nText.", Decorators(position="before_char"), "Text."),
        ("@@position personality\nText.", Decorators(), "Text."),
        ("@@activate_only_every 0\nText.", Decorators(), "Text."),
        ("@@instruct_depth 5\n@@is_user_icon hat\n@@unheard_of\nText.", Decorators(), "Text."),
        ("@@exclude_keys a b, c,\n@@exclude_keys d\nText.",
         Decorators(exclude_keys=("a b", "c")), "Text."),
        ("@@additional_keys a,b\n@@additional_keys c\nText.",
         Decorators(additional_keys=(("a", "b"), ("c",))), "Text."),
        ("@@ignore_on_max_context\n@@keep_activate_after_match\n@@scan_depth 3\nText.",
         Decorators(ignore_on_max_context=True, keep_activate_after_match=True, scan_depth=3),
         "Text."),
    ],
)  # fmt: skip
def test_decorators_are_read_and_removed(
    content: str, decorators: Decorators, remainder: str
) -> None:
    """Unknown, unsupported and invalid ones too; the first of a name counts, or all its lists."""
    assert split_decorators(content) == (decorators, remainder)


@pytest.mark.parametrize(
    ("lines", "decorators"),
    [
        ("@@depth 2\n@@@role user", Decorators(depth=2)),
        ("@@unheard_of 2\n@@@depth 3\n@@@depth 4", Decorators(depth=3)),
        ("@@depth deep\n@@@depth 3", Decorators(depth=3)),
        ("@@a\n@@@b\n@@@c\n@@@d\n@@@e\n@@@depth 3", Decorators(depth=3)),
        ("@@@depth 3", Decorators()),
        ("@@unheard_of\n@@role user\n@@@depth 3", Decorators(role="user")),
    ],
)
def test_a_fallback_is_used_if_the_decorator_before_it_is_not(
    lines: str, decorators: Decorators
) -> None:
    """However many of them follow one another; a fallback of nothing is ignored."""
    assert split_decorators(f"{lines}\nText.") == (decorators, "Text.")
