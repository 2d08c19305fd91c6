"""How fast a client may be."""

from foremind.domain.rate_limits import TokenBucket
from foremind.domain.settings import load_settings
from foremind.gateway.flow_control import ConnectionBudget, FlowControl, Kind, UserBudget, amount_of

SETTINGS = load_settings(drafts_per_s=10, sends_per_s=5)


def press(pace: FlowControl, kind: Kind, gap_s: float, most: int) -> tuple[int, float]:
    """Send `most` messages, the next `gap_s` after the server reads on; how many, how long."""
    now = 0.0
    for number in range(most):
        wait = pace.take(kind, gap_s, now)
        if wait is None:
            return number, now
        now += wait + gap_s
    return most, now


def test_a_bucket_lets_a_burst_through_and_then_its_rate() -> None:
    """Ten at once, then ten a second."""
    bucket = TokenBucket(10.0, 1.0)
    assert [bucket.take(100.0) for _ in range(10)] == [0.0] * 10
    assert round(bucket.take(100.0), 6) == 0.1
    assert bucket.wait(100.1) > 0.0
    assert bucket.wait(101.0) == 0.0


def test_asking_whether_one_is_left_takes_none() -> None:
    """So that who is refused owes nothing."""
    bucket = TokenBucket(1.0, 1.0)
    assert bucket.take(5.0) == 0.0
    assert [bucket.wait(5.0) for _ in range(3)] == [1.0] * 3


def test_a_typist_is_never_slowed() -> None:
    """Eight keys a second for ten minutes."""
    sent, took = press(FlowControl(ConnectionBudget(SETTINGS)), "draft", 0.125, 4800)
    assert sent == 4800
    assert round(took) == 600


def test_one_that_waits_for_its_answers_is_slowed_and_kept() -> None:
    """It falls into step: as many as are allowed."""
    sent, took = press(FlowControl(ConnectionBudget(SETTINGS)), "send", 0.15, 500)
    assert sent == 500
    assert 95 < took < 105


def test_one_that_presses_on_is_given_up() -> None:
    """After some seconds of being held back."""
    sent, took = press(FlowControl(ConnectionBudget(SETTINGS)), "draft", 0.0, 10_000)
    assert sent < 100
    assert 2 < took < 5


def test_a_user_has_twice_as_much_over_all_connections() -> None:
    """More connections help no further."""
    of_user = UserBudget(SETTINGS)
    paces = [FlowControl(ConnectionBudget(SETTINGS)) for _ in range(4)]
    for pace in paces:
        pace.of_user = of_user
    waits = [pace.take("send", 0.2, 0.0) for _ in range(20) for pace in paces]
    assert waits.count(0.0) == 40


def test_who_pressed_on_is_shut_out_for_longer_each_time_until_it_behaves() -> None:
    """Half a minute, a minute; and half a minute again after a minute in peace."""
    user = UserBudget(SETTINGS)
    assert user.shut_s(0.0) == 0.0
    user.pressed_on(100.0)
    user.pressed_on(101.0)  # another of its connections
    assert user.shut_s(100.0) == 30.0
    assert user.shut_s(130.0) == 0.0
    user.pressed_on(131.0)
    assert user.shut_s(131.0) == 60.0
    user.pressed_on(300.0)
    assert user.shut_s(300.0) == 30.0


def test_it_is_never_shut_out_for_longer_than_ten_minutes() -> None:
    """However often it presses on."""
    user, now = UserBudget(SETTINGS), 0.0
    for _ in range(12):
        user.pressed_on(now)
        now += user.shut_s(now)
    user.pressed_on(now)
    assert user.shut_s(now) == 600.0


def test_long_messages_count_for_more() -> None:
    """In a minute of pressing on, one sends no more text than the rate lets through."""
    own, chars, now, sent = ConnectionBudget(SETTINGS), 8000, 0.0, 0
    while now < 60.0:
        now += own.take("send", now, amount_of("send", chars))
        sent += chars
    assert sent <= (60 + 4 + 1) * SETTINGS.sends_per_s * 512
    assert amount_of("send", 60) < 1.2  # what is typed hardly does
    assert amount_of("draft", chars) == 1


def test_no_single_message_is_too_many() -> None:
    """However long it is, and however little an operator allows."""
    pace = FlowControl(ConnectionBudget(load_settings(sends_per_s=1)))
    assert pace.take("send", 60.0, 60.0, amount_of("send", 65_536)) == 0
    assert pace.take("send", 0.0, 60.0, 1.0) is not None
