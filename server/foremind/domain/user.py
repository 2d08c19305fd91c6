"""Users, what they are called, and the revocations that are exported with their data.

What clients say of a player's time zone and language: read as far as they can be.

Runtimes name these in many ways. A hint that is not understood counts as not given, and its client
is told so: it never keeps a player out.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from functools import cache
from importlib.resources import files
from typing import Annotated, Any
from zoneinfo import ZoneInfo

import msgspec
from babel.core import get_global
from msgspec import Meta

#: What a user is called whose name is not known.
NO_NAME = "the user"
MAX_NAME_CHARS = 64
_NAME = re.compile(r"(?!(?:player|user)\Z)[^\W\d_]+(?:[ .'’-]+[^\W\d_]+)*\.?", re.IGNORECASE)


class ExportedRevocation(msgspec.Struct, frozen=True):
    """A revocation of all tokens of a user, or of the single `token_id`."""

    token_id: str | None
    until: datetime


class ExportedEvent(msgspec.Struct, frozen=True):
    """Something that a player witnessed in a world, and how; `at` in the world's time."""

    id: str
    type: str
    actor: str
    to: list[str]
    text: str
    how: str
    place: str
    at: datetime


@dataclass(frozen=True, slots=True)
class User:
    """A user; `id` is the database id, `external_id` the one that clients use.

    `language` is the first subtag of the BCP 47 tag that a client has stated, None if none has, and
    `region` that of its region.
    """

    id: int
    external_id: str
    name: str
    time_zone: str
    language: str | None
    region: str | None = None

    @property
    def language_tag(self) -> str | None:
        """The language with its region, where that is known: "pt-BR"."""
        return with_region(self.language, self.region)


def name_of(stated: str | None, user_id: str) -> str:
    """Return what a user is called: as stated, else by an id that reads like a name. Pure."""
    if stated:
        return stated[:MAX_NAME_CHARS]
    named = len(user_id) <= MAX_NAME_CHARS and _NAME.fullmatch(user_id) is not None
    return user_id if named else NO_NAME


def with_region(language: str | None, region: str | None) -> str | None:
    """Return a language with its region, "pt-BR"; without one as it is."""
    return f"{language}-{region}" if language and region else language


#: A value of any type that helps if it is understood, and otherwise counts as not given.
TextHint = Annotated[Any, Meta(extra_json_schema={"anyOf": [{"type": "string"}, {"type": "null"}]})]
#: The fields that are hints.
HINTS = frozenset({"time_zone", "language", "resume"})
UTC = ZoneInfo("UTC")
TIME_ZONE_EXPECTED = "time_zone: expected an IANA name such as Europe/Lisbon"
LANGUAGE_EXPECTED = "language: expected a BCP 47 tag such as de or pt-BR"

_MAX_CHARS = 512  # of a hint; the longest are lists of languages
_OFFSET = re.compile(
    r"\(?(?:utc|gmt)? ?([+\-\u2212])(\d{1,2})(?::?([0-5]\d))?(?::00)?(?:\).*)?", re.IGNORECASE
)
_NO_ZONES = {"factory", "localtime", "posixrules"}
#: A zone without daylight saving time for each offset that no zone of Etc has.
_PARTS_OF_HOURS = {
    "-09:30": "Pacific/Marquesas", "+03:30": "Asia/Tehran", "+04:30": "Asia/Kabul",
    "+05:30": "Asia/Kolkata", "+05:45": "Asia/Kathmandu", "+06:30": "Asia/Yangon",
    "+08:45": "Australia/Eucla", "+09:30": "Australia/Darwin",
}  # fmt: skip
_TAG = re.compile(r"([a-z]{2,3})(?:[-_][a-z0-9]{1,8})*[-_]?(?:[.@].*)?")
_REGION = re.compile(r"[a-z]{2,3}(?:[-_][a-z]{4})?[-_]([a-z]{2}|\d{3})(?![a-z\d])")
_NO_LANGUAGES = {"mis", "mul", "und", "unk", "zxx"}  # codes that say that it is another, or unknown
#: Other names of languages that there are words of, such as those of operating systems.
_NAMES = {
    name: code
    for code, names in {
        "de": "german deutsch deu ger", "en": "english eng", "es": "spanish spa",
        "fr": "french fra fre", "he": "iw", "id": "in", "it": "italian ita",
        "ja": "japanese jpn", "ko": "korean kor", "nl": "dutch nld dut", "pl": "polish pol",
        "pt": "portuguese por", "ru": "russian rus", "th": "thai tha", "tr": "turkish tur",
        "yi": "ji", "zh": "chinese chinesesimplified chinesetraditional zho chi cmn",
    }.items()
    for name in names.split()
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class PlayerHints:
    """What was understood; `warnings` name each field that was given and was not understood.

    `language` is the first subtag of a tag, `region` that of its region, in upper case.
    """

    time_zone: ZoneInfo | None
    language: str | None
    warnings: tuple[str, ...] = ()
    region: str | None = None

    @property
    def language_tag(self) -> str | None:
        """The language with its region, where that was understood: "pt-BR"."""
        return with_region(self.language, self.region)


NO_HINTS = PlayerHints(None, None)


def read_hints(time_zone: object, language: object) -> PlayerHints:
    """Return what is understood of a player's time zone and language; None is not given."""
    zone, code = time_zone_of(time_zone), language_of(language)
    read = ((time_zone, zone, TIME_ZONE_EXPECTED), (language, code, LANGUAGE_EXPECTED))
    unread = (expected for given, found, expected in read if given is not None and found is None)
    return PlayerHints(zone, code, tuple(map(not_understood, unread)), _region_of(language, code))


def not_understood(expected: str) -> str:
    """Return the warning about a hint of which something else was expected."""
    return f"{expected}; it counts as not given"


def time_zone_of(hint: object) -> ZoneInfo | None:
    """Return the time zone that a hint names, None if it is not understood.

    Names are those of IANA, in upper or lower case, or of Windows. Offsets from UTC are understood,
    too: "GMT+2" is two hours ahead of it, as people write it. "Etc/GMT+2" is behind it, as IANA has
    it.
    """
    if not isinstance(hint, str) or len(hint) > _MAX_CHARS:
        return None
    text = hint.strip(" \t\r\n\0:").rpartition("zoneinfo/")[2]
    text = text.removeprefix("posix/").removeprefix("right/")
    name = _zone_names().get(text.replace(" ", "_").casefold())
    offset = None if name else _OFFSET.fullmatch(text)
    if offset:
        name = _zone_at(offset[1], int(offset[2]), offset[3] or "00")
    return ZoneInfo(name) if name else None


def language_of(hint: object) -> str | None:
    """Return the first subtag of a BCP 47 tag, "pt" of "pt-BR"; None if it is not understood.

    Names of locales ("en_US.UTF-8") and lists, of which the first that is understood counts, are
    read as well.
    """
    return next(filter(None, map(_language, _tags_in(hint))), None)


def _region_of(hint: object, language: str | None) -> str | None:
    """Return the first region that a hint has with a language: "US" of "en,en-US,en-GB"."""
    tags = [tag.strip() for tag in _tags_in(hint) if language and _language(tag) == language]
    regions = (match[1].upper() for tag in tags if (match := _REGION.match(tag)))
    return next(regions, None)


def _tags_in(hint: object) -> list[str]:
    if isinstance(hint, list):
        hint = ",".join(part for part in hint if isinstance(part, str))
    if not isinstance(hint, str) or len(hint) > _MAX_CHARS:
        return []
    return re.split("[,:]", hint.lower())


def _language(text: str) -> str | None:
    text = text.partition(";")[0].strip(" \t\r\n\0")
    name = re.split(r"[^a-z]", text)[0]
    if name in _NAMES:
        return _NAMES[name]
    tag = _TAG.fullmatch(text)
    return None if tag is None or tag[1] in _NO_LANGUAGES else tag[1]


def _zone_at(sign: str, hours: int, minutes: str) -> str | None:
    """Return the name of a zone that is always so far from UTC; None if there is none."""
    sign = "+" if sign == "+" else "-"
    if minutes != "00":
        return _PARTS_OF_HOURS.get(f"{sign}{hours:02}:{minutes}")
    if not hours:
        return UTC.key
    # The signs of these names are those of POSIX, where they are the other way round.
    name = f"etc/gmt{'-' if sign == '+' else '+'}{hours}"
    return _zone_names().get(name)


@cache
def _zone_names() -> Mapping[str, str]:
    """Return the names of IANA's time zones by these, and by those of Windows, in lower case."""
    names = (files("tzdata") / "zones").read_text("utf-8").split()
    known = {name.casefold(): name for name in names if name.casefold() not in _NO_ZONES}
    windows = get_global("windows_zone_mapping").items()
    named = {name.replace(" ", "_").casefold(): zone for name, zone in windows}
    return named | known | {"z": UTC.key}
