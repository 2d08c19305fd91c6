"""Rate limits slow clients down, close persistent ones and lock their users out."""

from fair_transport import TokenBucket
from foremind.app.configuration import load_settings
from foremind.gateway.flow_control import ConnectionBudget, FlowControl, Kind, UserBudget, cost_of

SETTINGS = load_settings(drafts_per_s=10, sends_per_s=5)


def flood(flow: FlowControl, kind: Kind, gap_s: float, count: int) -> tuple[int, float]:
    """Send up to `count` messages, each `gap_s` after the server reads on.

    Returns:
        The number of messages before the connection was closed, and the elapsed seconds.
    """
    now = 0.0
    for number in range(count):
        wait_s = flow.take(kind, gap_s, now)
        if wait_s is None:
            return number, now
        now += wait_s + gap_s
    return count, now


def test_a_bucket_passes_a_burst_and_then_its_rate() -> None:
    """Ten at once, then ten a second."""
    bucket = TokenBucket(10.0, 1.0)
    assert [bucket.take(100.0) for _ in range(10)] == [0.0] * 10
    assert round(bucket.take(100.0), 6) == 0.1
    assert bucket.wait(100.1) > 0.0
    assert bucket.wait(101.0) == 0.0


def test_wait_takes_no_token() -> None:
    """So that a refused client owes nothing."""
    bucket = TokenBucket(1.0, 1.0)
    assert bucket.take(5.0) == 0.0
    assert [bucket.wait(5.0) for _ in range(3)] == [1.0] * 3


def test_a_typist_is_never_slowed() -> None:
    """Eight keys a second for ten minutes."""
    sent, elapsed_s = flood(FlowControl(ConnectionBudget(SETTINGS)), "draft", 0.125, 4800)
    assert sent == 4800
    assert round(elapsed_s) == 600


def test_a_client_that_waits_for_answers_is_slowed_and_kept() -> None:
    """It adapts to the rate."""
    sent, elapsed_s = flood(FlowControl(ConnectionBudget(SETTINGS)), "send", 0.15, 500)
    assert sent == 500
    assert 95 < elapsed_s < 105


def test_a_flooding_client_is_closed() -> None:
    """After some seconds of backpressure."""
    sent, elapsed_s = flood(FlowControl(ConnectionBudget(SETTINGS)), "draft", 0.0, 10_000)
    assert sent < 100
    assert 2 < elapsed_s < 5


def test_a_user_has_twice_the_rate_over_all_connections() -> None:
    """More connections do not add to it."""
    user_budget = UserBudget(SETTINGS)
    flows = [FlowControl(ConnectionBudget(SETTINGS)) for _ in range(4)]
    for flow in flows:
        flow.user_budget = user_budget
    waits = [flow.take("send", 0.2, 0.0) for _ in range(20) for flow in flows]
    assert waits.count(0.0) == 40


def test_each_lockout_is_twice_as_long_until_the_user_behaves() -> None:
    """Half a minute, a minute; and half a minute again after a minute without violations."""
    user = UserBudget(SETTINGS)
    assert user.lockout_s(0.0) == 0.0
    user.lock_out(100.0)
    user.lock_out(101.0)  # because of another connection
    assert user.lockout_s(100.0) == 30.0
    assert user.lockout_s(130.0) == 0.0
    user.lock_out(131.0)
    assert user.lockout_s(131.0) == 60.0
    user.lock_out(300.0)
    assert user.lockout_s(300.0) == 30.0


def test_no_lockout_exceeds_ten_minutes() -> None:
    """However often the user violates its rate."""
    user, now = UserBudget(SETTINGS), 0.0
    for _ in range(12):
        user.lock_out(now)
        now += user.lockout_s(now)
    user.lock_out(now)
    assert user.lockout_s(now) == 600.0


def test_long_messages_cost_more() -> None:
    """In a minute of flooding, a client sends no more text than the rate allows."""
    budget, chars, now, sent = ConnectionBudget(SETTINGS), 8000, 0.0, 0
    while now < 60.0:
        now += budget.take("send", now, cost_of("send", chars))
        sent += chars
    assert sent <= (60 + 4 + 1) * SETTINGS.sends_per_s * 512
    assert cost_of("send", 60) < 1.2  # typed messages hardly cost more
    assert cost_of("draft", chars) == 1


def test_no_single_message_is_too_expensive() -> None:
    """However long it is, and however low the rate."""
    flow = FlowControl(ConnectionBudget(load_settings(sends_per_s=1)))
    assert flow.take("send", 60.0, 60.0, cost_of("send", 65_536)) == 0
    assert flow.take("send", 0.0, 60.0, 1.0) is not None
