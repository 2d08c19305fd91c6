"""TODO."""

from dataclasses import dataclass
from datetime import datetime
from typing import Literal
from uuid import UUID

import numpy as np
import numpy.typing as npt

from foremind.domain.companion import CompanionSettings, RelationshipSettings

Speaker = Literal["user", "companion"]


Status = Literal["completed", "cancelled", "failed"]


@dataclass(frozen=True, slots=True)
class OpenedSession:
    """Identifiers of a session, the versions its relationship has, and its own settings.

    `begun`: it is a new one, none goes on. `erasures` is how often something was erased so far,
    `consented` whether the user agreed to be remembered, `active_at` when something was last said.
    """

    session_id: UUID
    relationship_id: int
    user_id: int
    memory_version: int
    layers_version: int
    settings: RelationshipSettings
    erasures: int
    consented: bool
    begun: bool
    active_at: datetime | None = None


@dataclass(frozen=True, slots=True)
class Turn:
    """One message of either side, as it is stored."""

    id: int
    speaker: Speaker
    message_id: str | None
    status: Status
    content: str
    created_at: datetime


@dataclass(frozen=True, slots=True)
class StoredTurn:
    """Where a user's message is stored.

    `duplicate` where it already was; `answered` where a reply to it was already given; `elsewhere`
    where another process is answering it.
    """

    id: int
    duplicate: bool
    answered: bool
    elsewhere: bool = False


@dataclass(frozen=True, slots=True)
class TurnToRemember:
    """A turn that waits to be judged; `message_id` is that of the user's turn it is or answers."""

    id: int
    relationship_id: int
    speaker: Speaker
    content: str
    created_at: datetime
    message_id: str | None
    user_name: str
    companion_name: str
    time_zone: str
    companion_settings: CompanionSettings
    settings: RelationshipSettings


@dataclass(frozen=True, slots=True)
class ExchangeTurn:
    """A turn among its neighbours in a session; vector and memory where it has them.

    `vector` is the unit vector of the turn's exact text, float32 [dimension].
    """

    id: int
    speaker: Speaker
    content: str
    vector: npt.NDArray[np.float32] | None
    memory_id: int | None
