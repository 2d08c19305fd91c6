"""When a session is checked next: before a time limit of it can have passed for long."""

from foremind.app.configuration import load_settings
from foremind.gateway.session_sweeper import next_check

NOW = 1000.0


def test_a_connected_session_is_checked_often_only_if_its_token_expires() -> None:
    """Otherwise there are only old events to remove."""
    settings = load_settings()
    expiring = next_check(settings, NOW, None, busy=False, token_expires=True)
    lasting = next_check(settings, NOW, None, busy=False, token_expires=False)
    assert NOW < expiring < lasting


def test_a_detached_session_is_checked_when_its_time_is_over() -> None:
    """A reply may go on for a shorter time than a client may take to come back."""
    settings = load_settings()
    detached_at = NOW - 1.0
    idle = next_check(settings, NOW, detached_at, busy=False, token_expires=True)
    busy = next_check(settings, NOW, detached_at, busy=True, token_expires=True)
    assert idle == detached_at + settings.resume_s
    assert busy == detached_at + settings.reply_grace_s


def test_a_session_does_not_outlast_its_reply_by_long() -> None:
    """Most often the reply is complete a moment after its client has gone."""
    settings = load_settings(resume_s=10.0, reply_grace_s=60.0)
    just_lost = next_check(settings, NOW, NOW, busy=True, token_expires=False)
    still_busy = next_check(settings, NOW, NOW - 10.0, busy=True, token_expires=False)
    nearly_stopped = next_check(settings, NOW, NOW - 59.5, busy=True, token_expires=False)
    assert just_lost == NOW + 10.0
    assert still_busy == NOW + 1.0
    assert nearly_stopped == NOW + 0.5


def test_an_overdue_session_is_checked_a_moment_later() -> None:
    """Its reply was stopped, and is about to be stored."""
    settings = load_settings()
    check_at = next_check(settings, NOW, 0.0, busy=True, token_expires=False)
    assert NOW < check_at < NOW + 1.0
