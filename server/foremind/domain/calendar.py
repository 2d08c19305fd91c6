"""What a world calls its months and days, and its feasts and seasons. Pure."""

from calendar import monthrange
from dataclasses import dataclass
from typing import Annotated

import msgspec
from msgspec import Meta

Name = Annotated[str, Meta(min_length=1, max_length=64, pattern=r"^[^\W_]([^\W_]|[ '’-])*$")]
_LEAP_YEAR = 2024


class Feast(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Days of every year: the first, with the month counted from 1, and how many they are."""

    month: Annotated[int, Meta(ge=1, le=12)]
    day: Annotated[int, Meta(ge=1, le=31)] = 1
    days: Annotated[int, Meta(ge=1, le=366)] = 1

    @property
    def last_day(self) -> int:
        """The last day of its month, in some years at least."""
        return monthrange(_LEAP_YEAR, self.month)[1]


class Calendar(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What a world calls the twelve months, the seven days from Monday on, feasts and seasons.

    Months are as long as in the Gregorian calendar; what has no names has those of the language.
    """

    months: Annotated[tuple[Name, ...], Meta(min_length=12, max_length=12)] | None = None
    days: Annotated[tuple[Name, ...], Meta(min_length=7, max_length=7)] | None = None
    feasts: Annotated[dict[Name, Feast], Meta(max_length=100)] = {}


#: A world that has no names of its own.
NO_CALENDAR = Calendar()


@dataclass(frozen=True, slots=True)
class Surroundings:
    """Where in a world somebody is, and what its days are called."""

    place: str = ""
    calendar: Calendar = NO_CALENDAR


#: Outside of worlds.
NOWHERE = Surroundings()
