"""What is to be erased, and the receipt for what was. Pure."""

import msgspec

from foremind.text.mentions import Mention


class ErasureReceipt(msgspec.Struct, frozen=True):
    """What was removed: memories, the texts of turns, records by layer.

    `remade` are those of the records that are regenerated from what remains, `shortened` counts
    records that lost lines only, `reread` neighbouring memories that were re-embedded. Of a
    `dry_run`, what would have been removed.
    """

    memories: tuple[str, ...]
    turns: int
    records: int
    reread: int
    layers: dict[str, int] = {}
    remade: dict[str, int] = {}
    shortened: int = 0
    dry_run: bool = False


class ErasureScope(msgspec.Struct, frozen=True):
    """What is to be erased: memories, turns, a session, what mentions some words, or everything.

    `not_kept`: the turns were never meant to be kept; other turns that say the same stay.
    """

    memories: tuple[int, ...] = ()
    turns: tuple[int, ...] = ()
    not_kept: bool = False
    session: str | None = None
    about: Mention | None = None

    @property
    def everything(self) -> bool:
        """Whether nothing is named."""
        return self == ErasureScope()

    @property
    def param(self) -> str:
        """The name of the parameter that is set."""
        if self.memories:
            return "memory"
        if self.turns:
            return "turn"
        params = ("session", "about")
        return next((param for param in params if getattr(self, param) is not None), "everything")

    def __str__(self) -> str:
        """Describe the scope for the audit trail, without the words of a topic."""
        match self.param:
            case "memory":
                return f"memory {', '.join(map(str, self.memories))}"
            case "turn":
                return f"{len(self.turns)} turns" if self.turns[1:] else f"turn {self.turns[0]}"
            case "about":
                return "a topic"
            case "everything":
                return "everything"
            case param:
                return f"{param} {getattr(self, param)}"
