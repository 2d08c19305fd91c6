"""Selects the behaviours of a companion that apply to a message. Pure."""

from collections.abc import Collection, Sequence
from datetime import datetime

from foremind.domain.companion import Behaviour
from foremind.domain.settings.setting_definitions import LayerName
from foremind.text.tokenization import words_of


def active_behaviours(
    behaviours: Sequence[Behaviour],
    message: str,
    *,
    recalled: Collection[LayerName],
    opening: bool,
    now: datetime,
) -> list[Behaviour]:
    """Return the behaviours whose conditions are all met.

    Args:
        recalled: the layers that returned something for the message.
        opening: whether it is the first message of a session.
        now: in the player's time zone.
    """
    listening = any(behaviour.says for behaviour in behaviours)
    padded = _padded_words(message) if listening else ""
    return [
        behaviour
        for behaviour in behaviours
        if (not behaviour.says or any(_padded_words(phrase) in padded for phrase in behaviour.says))
        and (behaviour.recalls is None or behaviour.recalls in recalled)
        and (behaviour.opening is None or behaviour.opening == opening)
        and _in_hours(behaviour, now.hour)
    ]


def _padded_words(text: str) -> str:
    return f" {' '.join(words_of(text))} "


def _in_hours(behaviour: Behaviour, hour: int) -> bool:
    start, end = behaviour.from_hour, behaviour.to_hour
    if start is None or end is None:
        return (start is None or hour >= start) and (end is None or hour < end)
    return start <= hour < end if start <= end else hour >= start or hour < end
