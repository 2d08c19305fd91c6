"""How a context was prefetched: what started its build, what was found on Enter, and done ahead."""

from typing import Literal

Trigger = Literal["pause", "eager", "send"]
SpeculativeWork = Literal["nothing", "prefill", "reply"]
Outcome = Literal["hit", "refreshed", "miss"]
