"""Takes what a model thinks aloud out of what it says. Pure."""

import re

# How reasoning models mark it where their server does not take it out: Qwen and DeepSeek, others
# that imitate them, Magistral, and Kimi.
_MARKS = {
    "<think>": "</think>",
    "<thinking>": "</thinking>",
    "<thought>": "</thought>",
    "<reasoning>": "</reasoning>",
    "[think]": "[/think]",
    "◁think▷": "◁/think▷",
}
_ENDS = tuple(_MARKS.values())
_MARK = re.compile("|".join(map(re.escape, (*_MARKS, *_ENDS))), re.IGNORECASE)
_END = re.compile("|".join(map(re.escape, _ENDS)), re.IGNORECASE)
_LONGEST = max(map(len, _ENDS))


class ThinkingFilter:
    """Passes a streamed reply on without any thinking, and without the white space around it.

    At most a mark's length is held back, but for the thinking itself.

    Args:
        unmarked: the model is known to begin with thinking that has no mark before it, because
            its chat template holds that mark; all is held back until the thinking ends.
    """

    def __init__(self, *, unmarked: bool = False) -> None:
        self._end = _END if unmarked else None  # what ends the thinking under way
        self._unmarked = unmarked
        self._held = ""
        self._strip = True  # white space is dropped: the reply begins, or goes on
        self._said = ""  # the last letter passed on
        #: Whether anything was taken out.
        self.thought = False
        #: Whether thinking ended that no mark had begun.
        self.ended_unmarked = False
        #: Whether what was last returned begins the reply anew, because all before was thinking.
        self.anew = False

    def feed(self, piece: str) -> str:
        """Return what of the reply can be passed on once `piece` has arrived."""
        self.anew = False
        self._held += piece
        said = ""
        while True:
            mark = (_MARK if self._unmarked else self._end or _MARK).search(self._held)
            if mark is None:
                break
            if self._unmarked and mark[0].lower() in _MARKS:  # this once it is marked
                self._end, self._unmarked = None, False
            before, self._held = self._held[: mark.start()], self._held[mark.end() :]
            self.thought = True
            if self._end is not None:
                self.ended_unmarked |= self._unmarked
                self._end, self._unmarked, self._strip = None, False, self._said in ("", " ")
            elif mark[0].lower() in _MARKS:
                said += self._pass(before)
                end = _MARKS[mark[0].lower()]
                self._end = re.compile(re.escape(end), re.IGNORECASE)
            else:
                self.anew |= bool(self._said)
                self.ended_unmarked = True
                said, self._said, self._strip = "", "", True
        if self._end is None:
            kept = _begun_mark(self._held)
            said += self._pass(self._held[: len(self._held) - kept])
            self._held = self._held[len(self._held) - kept :]
        elif not self._unmarked:
            self._held = self._held[-_LONGEST:]
        return said

    def end(self, *, cut_off: bool = False) -> str:
        """Return what was held back, once the reply is over; `cut_off` where it was too long."""
        self.anew = False
        if self._end is None:
            return self._pass(self._held)
        # This once it did not think, or it would have come to an end of that.
        return self._pass(self._held) if self._unmarked and not cut_off else ""

    def _pass(self, text: str) -> str:
        if self._strip:
            text = text.lstrip()
        if text:
            self._strip = False
            self._said = " " if text[-1].isspace() else text[-1]
        return text


def without_thinking(text: str) -> str:
    """Return a whole text without what was thought aloud in it."""
    thinking = ThinkingFilter()
    return thinking.feed(text) + thinking.end()


def _begun_mark(text: str) -> int:
    """Return how many letters at the end of a text may be the beginning of a mark."""
    tail = text[-_LONGEST:].lower()
    for start in range(len(tail)):
        rest = tail[start:]
        if any(mark.startswith(rest) for mark in (*_MARKS, *_ENDS)):
            return len(rest)
    return 0
