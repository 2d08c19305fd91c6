"""Connection limits and eviction."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fair_transport.admission import Admission
from fair_transport.listener import TooFewDescriptors, connection_limit
from fair_transport.options import Hooks, Limits


class EvictedConnection:
    """A connection that records its eviction."""

    def __init__(self, address: str) -> None:
        self.address = address
        self.evicted = False

    def evict(self) -> None:
        self.evicted = True


def make_admission(
    max_connections: int = 10, max_per_address: int = 100, max_total_bytes: int = 1000
) -> Admission:
    """An admission in which addresses of 10.* are shared."""
    return Admission(
        max_connections,
        max_per_address,
        lambda address: address.startswith("10."),
        Hooks(),
        max_total_bytes,
    )


def try_connect(admission: Admission, address: str = "1.1.1.1") -> EvictedConnection | None:
    """A new connection, or None if it is not admitted."""
    if not admission.admits(address):
        return None
    connection = EvictedConnection(address)
    admission.enter(connection)
    return connection


def connect(admission: Admission, address: str = "1.1.1.1") -> EvictedConnection:
    """A new connection, which is admitted."""
    connection = try_connect(admission, address)
    assert connection is not None
    return connection


def test_silent_connections_lock_nobody_out() -> None:
    """However many there are: the one that has been silent for longest is evicted."""
    admission = make_admission()
    silent = [connect(admission) for _ in range(1000)]
    assert len(admission) == 10
    admission.record_activity(silent[990], 1)
    latest = connect(admission)
    assert not latest.evicted
    assert [connection.evicted for connection in silent[990:993]] == [False, True, False]


def test_protected_connections_are_not_evicted() -> None:
    """If all are protected, a new connection is refused."""
    admission = make_admission()
    connections = [connect(admission) for _ in range(10)]
    for connection in connections:
        admission.protect(connection)
    assert try_connect(admission) is None
    admission.expose(connections[3])  # its response is complete
    assert try_connect(admission) is not None
    assert connections[3].evicted


def test_anonymous_connections_of_an_address_are_limited() -> None:
    """Identified connections and shared addresses do not count."""
    admission = make_admission(max_connections=100, max_per_address=3)
    own = [connect(admission) for _ in range(3)]
    assert try_connect(admission) is None
    assert try_connect(admission, "2.2.2.2") is not None
    admission.protect(own[0])
    assert try_connect(admission) is not None
    assert all(try_connect(admission, "10.0.0.1") for _ in range(20))
    assert not any(connection.evicted for connection in own)


def test_the_bytes_of_anonymous_connections_are_limited() -> None:
    """The connection that has been silent for longest is evicted first."""
    admission = make_admission(max_connections=100, max_total_bytes=1000)
    connections = [connect(admission) for _ in range(5)]
    for connection in connections:
        admission.record_activity(connection, 300)
    evicted = [connection.evicted for connection in connections]
    assert evicted == [True, False, False, False, True]


@given(st.lists(st.tuples(st.sampled_from(["enter", "leave", "protect", "expose", "heard"]),
                          st.integers(0, 30), st.integers(0, 500)), max_size=120))  # fmt: skip
def test_the_counts_match_the_open_connections(steps: list[tuple[str, int, int]]) -> None:
    """After any sequence of operations."""
    admission = make_admission(max_connections=8, max_per_address=5)
    connections: list[EvictedConnection] = []
    for step, index, size in steps:
        if step == "enter":
            if (new := try_connect(admission, f"1.1.1.{index % 3}")) is not None:
                connections.append(new)
        elif connections:
            connection = connections[index % len(connections)]
            if step == "leave":
                admission.leave(connection)
                connections.remove(connection)
            elif step == "protect":
                admission.protect(connection)
            elif step == "expose":
                admission.expose(connection)
            else:
                admission.record_activity(connection, size)
        connections = [connection for connection in connections if not connection.evicted]
        assert len(admission) == len(connections) <= 8
        assert admission.anonymous == sum(admission._per_address.values())
        assert admission._bytes == sum(admission._anonymous.values()) <= 1000


def test_the_connection_limit_depends_on_file_descriptors() -> None:
    """It is ten thousand at most by default; some descriptors are reserved."""
    assert connection_limit(Limits(), 1024) == 768
    assert connection_limit(Limits(reserved_descriptors=1020), 1024) == 4
    assert connection_limit(Limits(), 1_048_576) == 10_000
    assert connection_limit(Limits(connections=20_000), 1_048_576) == 20_000


def test_a_limit_beyond_the_file_descriptors_is_refused() -> None:
    """Saying how many are needed."""
    with pytest.raises(TooFewDescriptors, match=r"1000 connections need 1256 .* limited to 1024"):
        connection_limit(Limits(connections=1000), 1024)


def test_the_number_of_connections_is_reported_and_every_refusal() -> None:
    """With its reason."""
    counts: list[int] = []
    reasons: list[str] = []
    hooks = Hooks(on_connections=counts.append, on_refused=reasons.append)
    admission = Admission(2, 2, lambda _: False, hooks)
    first = connect(admission)
    connect(admission)
    assert try_connect(admission) is None
    connect(admission, "2.2.2.2")
    admission.leave(first)  # it was evicted before
    assert counts == [1, 2, 1, 2]
    assert reasons == ["address", "evicted"]
