"""How long ago something was, in words. Pure."""

from datetime import datetime, timedelta

_NUMBERS = ("zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten",
            "eleven", "twelve")  # fmt: skip


def age_in_words(then: datetime, now: datetime) -> str:
    """Return "just now", "an hour ago", "yesterday", "three weeks ago" and the like."""
    elapsed = now - then
    if elapsed < timedelta(minutes=1):
        return "just now"
    if elapsed < timedelta(hours=1):
        return _ago(int(elapsed.total_seconds() // 60), "minute")
    days = (now.date() - then.date()).days
    if days == 0:
        return _ago(max(1, int(elapsed.total_seconds() // 3600)), "hour")
    if days == 1:
        return "yesterday"
    if days < 14:
        return _ago(days, "day")
    if days < 60:
        return _ago(days // 7, "week")
    if days < 730:
        return _ago(round(days / 30.44), "month")
    return _ago(round(days / 365.25), "year")


def _ago(count: int, unit: str) -> str:
    if count == 1:
        return f"{'an' if unit == 'hour' else 'a'} {unit} ago"
    return f"{_NUMBERS[count] if count < len(_NUMBERS) else count} {unit}s ago"
