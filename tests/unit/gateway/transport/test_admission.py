"""Who may be connected, and who makes room."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from foremind.domain.errors import SetupError
from foremind.domain.settings import load_settings
from foremind.gateway.transport.admission import Admission
from foremind.gateway.transport.file_descriptors import most_connections
from foremind.runtime.metrics import Metrics


class Connection:
    """A connection that leaves when it is told to."""

    def __init__(self, admission: Admission, address: str) -> None:
        self.address = address
        self.evicted = False
        self._admission = admission

    def evict(self) -> None:
        self.evicted = True


def admission(most: int = 10, of_address: int = 100, most_bytes: int = 1000) -> Admission:
    """Room for ten; addresses of 10.* are shared."""
    return Admission(most, of_address, lambda each: each.startswith("10."), Metrics(), most_bytes)


def enter(room: Admission, address: str = "1.1.1.1") -> Connection | None:
    """Come in, where that is possible."""
    if not room.admits(address):
        return None
    connection = Connection(room, address)
    room.enter(connection)
    return connection


def entered(room: Admission, address: str = "1.1.1.1") -> Connection:
    """Come in."""
    connection = enter(room, address)
    assert connection is not None
    return connection


def test_connections_that_say_nothing_lock_nobody_out() -> None:
    """However many: the one that was silent for longest makes room."""
    room = admission()
    silent = [entered(room) for _ in range(1000)]
    assert len(room) == 10
    room.heard(silent[990], 1)
    honest = entered(room)
    assert not honest.evicted
    assert [each.evicted for each in silent[990:993]] == [False, True, False]


def test_who_is_known_or_served_makes_room_for_nobody() -> None:
    """Where all are, who comes is refused."""
    room = admission()
    known = [entered(room) for _ in range(10)]
    for each in known:
        room.protect(each)
    assert enter(room) is None
    room.expose(known[3])  # its request is answered
    assert enter(room) is not None
    assert known[3].evicted


def test_an_address_has_only_so_many_that_say_nothing() -> None:
    """Those that are known, and addresses that many share, are not counted."""
    room = admission(most=100, of_address=3)
    mine = [entered(room) for _ in range(3)]
    assert enter(room) is None
    assert enter(room, "2.2.2.2") is not None
    room.protect(mine[0])
    assert enter(room) is not None
    assert all(enter(room, "10.0.0.1") for _ in range(20))
    assert not any(each.evicted for each in mine)


def test_what_strangers_hold_is_bounded_in_bytes() -> None:
    """Who has been silent for longest goes first."""
    room = admission(most=100, most_bytes=1000)
    held = [entered(room) for _ in range(5)]
    for each in held:
        room.heard(each, 300)
    assert [each.evicted for each in held] == [True, False, False, False, True]


@given(st.lists(st.tuples(st.sampled_from(["enter", "leave", "protect", "expose", "heard"]),
                          st.integers(0, 30), st.integers(0, 500)), max_size=120))  # fmt: skip
def test_the_counts_are_those_of_who_is_there(steps: list[tuple[str, int, int]]) -> None:
    """After anything, in any order."""
    room = admission(most=8, of_address=5)
    there: list[Connection] = []
    for step, index, held in steps:
        if step == "enter":
            if (new := enter(room, f"1.1.1.{index % 3}")) is not None:
                there.append(new)
        elif there:
            one = there[index % len(there)]
            room.heard(one, held) if step == "heard" else getattr(room, step)(one)
            if step == "leave":
                there.remove(one)
        there = [each for each in there if not each.evicted]
        assert len(room) == len(there) <= 8
        assert room.anonymous == sum(room._of_address.values())
        assert room._bytes == sum(room._anonymous.values()) <= 1000


def test_there_are_as_many_connections_as_descriptors_allow() -> None:
    """At most ten thousand where nobody says how many; some are kept for the rest."""
    settings = load_settings()
    assert most_connections(settings, 1024) == 758
    assert most_connections(settings, 1_048_576) == 10_000
    assert most_connections(load_settings(max_connections=20_000), 1_048_576) == 20_000


def test_more_connections_than_descriptors_are_refused_at_the_start() -> None:
    """Naming the setting and what to raise."""
    with pytest.raises(SetupError, match=r"FOREMIND_MAX_CONNECTIONS=1000 needs 1266 .*LimitNOFILE"):
        most_connections(load_settings(max_connections=1000), 1024)
