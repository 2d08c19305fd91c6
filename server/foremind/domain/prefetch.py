"""How a context was prefetched: what started its build, and what was found on Enter."""

from typing import Literal

Trigger = Literal["pause", "eager", "send"]
Outcome = Literal["hit", "refreshed", "miss"]
