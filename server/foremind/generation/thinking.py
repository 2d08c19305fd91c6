"""Takes what a model thinks aloud out of what it says. Pure."""

# How reasoning models mark it where their server does not take it out: Qwen and DeepSeek, others
# that imitate them, and Magistral.
_MARKS = {"<think>": "</think>", "<thinking>": "</thinking>", "[THINK]": "[/THINK]"}


class ThinkingFilter:
    """Passes a streamed reply on without the thinking, and white space, that it begins with.

    Only the beginning is looked at: a companion may speak of such marks later on. At most a mark's
    length is held back.
    """

    def __init__(self) -> None:
        self._begun = False  # the reply itself, after all thinking
        self._end: str | None = None  # the mark that ends the thinking under way
        self._held = ""
        #: Whether anything was taken out.
        self.thought = False

    def feed(self, piece: str) -> str:
        """Return what of the reply can be passed on once `piece` has arrived."""
        if self._begun:
            return piece
        self._held += piece
        while True:
            if self._end is not None:
                _, ended, rest = self._held.partition(self._end)
                if not ended:
                    self._held = self._held[-len(self._end) :]
                    return ""
                self._end, self._held = None, rest
            said = self._held.lstrip()
            mark = next((mark for mark in _MARKS if said.startswith(mark)), None)
            if mark is None:
                break
            self.thought = True
            self._end, self._held = _MARKS[mark], said.removeprefix(mark)
        if any(mark.startswith(said) for mark in _MARKS):
            self._held = said
            return ""
        self._begun = True
        return said

    def end(self) -> str:
        """Return what was held back, once the reply is over."""
        unfinished = self._end is not None or self._begun
        return "" if unfinished else self._held
