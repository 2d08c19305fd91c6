"""Removes from a reply the model's thinking, its speaker's name, sections of its prompt. Pure."""

import re

from foremind.llm.prompt.quoted_lines import PROMPT_TAGS

# The tags of reasoning models, where their server does not remove them: Qwen and DeepSeek, models
# that imitate them, Magistral, Seed-OSS, and Kimi.
_TAGS = {
    "<think>": "</think>",
    "<thinking>": "</thinking>",
    "<thought>": "</thought>",
    "<reasoning>": "</reasoning>",
    "[think]": "[/think]",
    "<seed:think>": "</seed:think>",
    "◁think▷": "◁/think▷",
}
_END_TAGS = tuple(_TAGS.values())
# Small models repeat sections of their prompts. One of these names is a tag of HTML, too.
_SECTIONS = {f"<{name}>": f"</{name}>" for name in PROMPT_TAGS if name != "summary"}
_BEGINNINGS = _TAGS | _SECTIONS
_ALL_TAGS = (*_BEGINNINGS, *_END_TAGS)
_ANY_TAG = re.compile("|".join(map(re.escape, _ALL_TAGS)), re.IGNORECASE)
_TAG = re.compile("|".join(map(re.escape, (*_TAGS, *_END_TAGS))), re.IGNORECASE)
_END_TAG = re.compile("|".join(map(re.escape, _END_TAGS)), re.IGNORECASE)
_MAX_TAG_CHARS = max(map(len, _BEGINNINGS.values()))
# What a name may stand between: "**Wren:** Hello", "[Wren]: Hello".
_MARKS = (*((mark * count,) * 2 for mark in "*_" for count in (1, 2, 3)), ("[", "]"), ("", ""))


class ThinkingFilter:
    """Passes a streamed reply on without thinking and sections, and the white space around them.

    Apart from the thinking itself, at most the length of a tag is buffered, and of a label.

    Args:
        speaker: whose name does not begin the reply, as a label ("Wren: Hello"); "" for none.
        unmarked: the model is known to begin with thinking that has no opening tag, because its
            chat template contains that tag; everything is buffered until the thinking ends.
        sections: whether those of the prompt are removed, too.
    """

    def __init__(
        self, *, speaker: str = "", unmarked: bool = False, sections: bool = False
    ) -> None:
        self._beginning = _ANY_TAG if sections else _TAG
        self._labels = _labels(speaker) if speaker else ()
        self._labelled: str | None = ""  # what may begin a label; None once none may follow
        self._end = _END_TAG if unmarked else None  # what ends the current thinking
        self._unmarked = unmarked
        self._buffer = ""
        self._strip = True  # leading white space is dropped: the reply starts, or continues
        self._last_char = ""  # that was passed on; a space for any white space
        #: Whether any thinking was removed.
        self.thought = False
        #: Whether a closing tag without an opening tag was found.
        self.ended_unmarked = False
        #: Whether the last returned text restarts the reply, because all before was thinking.
        self.restarted = False

    def feed(self, piece: str) -> str:
        """Return the text that can be passed on once `piece` has arrived."""
        self.restarted = False
        self._buffer += piece
        text = ""
        while True:
            tag = (_TAG if self._unmarked else self._end or self._beginning).search(self._buffer)
            if tag is None:
                break
            opened = tag[0].lower()
            if self._unmarked and opened in _TAGS:  # this time it is marked
                self._end, self._unmarked = None, False
            before, self._buffer = self._buffer[: tag.start()], self._buffer[tag.end() :]
            self.thought |= opened not in _SECTIONS and opened not in _SECTIONS.values()
            if self._end is not None:
                self.ended_unmarked |= self._unmarked
                self._end, self._unmarked, self._strip = None, False, self._last_char in ("", " ")
            elif opened in _BEGINNINGS:
                text += self._pass(before)
                self._end = re.compile(re.escape(_BEGINNINGS[opened]), re.IGNORECASE)
            else:
                self.restarted |= bool(self._last_char)
                self.ended_unmarked = True
                text, self._last_char, self._strip, self._labelled = "", "", True, ""
        if self._end is None:
            partial_chars = _partial_tag_chars(self._buffer)
            text += self._pass(self._buffer[: len(self._buffer) - partial_chars])
            self._buffer = self._buffer[len(self._buffer) - partial_chars :]
        elif not self._unmarked:
            self._buffer = self._buffer[-_MAX_TAG_CHARS:]
        return text

    def end(self, *, cut_off: bool = False) -> str:
        """Return the buffered text at the end of the reply; `cut_off` if a limit ended it."""
        self.restarted = False
        if self._end is None:
            return self._pass(self._buffer, last=True)
        # Unmarked and without an end although the reply is complete: there was no thinking.
        thought = not self._unmarked or cut_off
        return self._pass("" if thought else self._buffer, last=True)

    def _pass(self, text: str, *, last: bool = False) -> str:
        if self._labels and self._labelled is not None:
            text = (self._labelled + text).lstrip()
            if not last and any(label.startswith(text.lower()) for label in self._labels):
                self._labelled = text
                return ""
            self._labelled = None
            text = text[len(next(filter(text.lower().startswith, self._labels), "")) :]
        if self._strip:
            text = text.lstrip()
        if text:
            self._strip = False
            self._last_char = " " if text[-1].isspace() else text[-1]
        return text


def without_thinking(text: str) -> str:
    """Return a complete text without the thinking in it."""
    thinking = ThinkingFilter()
    return thinking.feed(text) + thinking.end()


def _labels(speaker: str) -> tuple[str, ...]:
    """Return what a name may look like before what it says, in lower case."""
    name = speaker.lower()
    return tuple(
        label
        for before, after in _MARKS
        for colon in (":", "：", " :")
        for label in (f"{before}{name}{after}{colon}", f"{before}{name}{colon}{after}")
    )


def _partial_tag_chars(text: str) -> int:
    """Return how many characters at the end of a text may be the beginning of a tag."""
    tail = text[-_MAX_TAG_CHARS:].lower()
    for start in range(len(tail)):
        suffix = tail[start:]
        if any(tag.startswith(suffix) for tag in _ALL_TAGS):
            return len(suffix)
    return 0
