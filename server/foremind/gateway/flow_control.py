"""How much one sender may ask for. Pure: `now` is given, in monotonic seconds."""

from typing import Literal

from foremind.domain.rate_limits import TokenBucket, ViolationBudget
from foremind.domain.settings import Settings
from foremind.gateway.event_stream import MOST_EVENTS
from foremind.gateway.protocol.messages import (
    MAX_FRAME_BYTES,
    MAX_ID_CHARS,
    ClientMessage,
    DraftClear,
    DraftUpdate,
    Limits,
)
from foremind.gateway.turn_pipeline import MAX_WAITING

Kind = Literal["draft", "send"]

_BURST_S = 4.0  # what may come at once: the rate of so many seconds
_OF_A_USER = 2.0  # connections' worth that one user may send over all of them
_CHARS_OF_ONE = 512  # of what is sent: so many more count as one message more
_PATIENCE_S = 3.0  # pressed on for longer than this, a client is no typist
_FIRST_SHUT_S, _LONGEST_SHUT_S = 30.0, 600.0  # for which its user then opens no session


class ConnectionBudget:
    """What one connection, or one user over all of them, may send."""

    def __init__(self, settings: Settings, share: float = 1.0) -> None:
        self._buckets: dict[Kind, TokenBucket] = {
            "draft": TokenBucket(share * settings.drafts_per_s, _BURST_S),
            "send": TokenBucket(share * settings.sends_per_s, _BURST_S),
        }

    def take(self, kind: Kind, now: float, amount: float = 1.0) -> float:
        """Take in what counts as so many messages; return the seconds after which it is due.

        None counts for more than may come at once: a single message is never too many.
        """
        bucket = self._buckets[kind]
        return bucket.take(now, min(amount, bucket.most))


class UserBudget(ConnectionBudget):
    """What a user may send over all its connections, and whether it may open any.

    One that pressed on is shut out for a while, each time for twice as long as before; after as
    long in peace that is forgotten.
    """

    def __init__(self, settings: Settings) -> None:
        super().__init__(settings, _OF_A_USER)
        self._shut_s = 0.0
        self._open_at = 0.0

    def pressed_on(self, now: float) -> None:
        """Shut it out."""
        if self.shut_s(now):
            return  # for another of its connections
        peaceful = now >= self._open_at + self._shut_s
        longer = _FIRST_SHUT_S if peaceful else 2 * self._shut_s
        self._shut_s = min(_LONGEST_SHUT_S, longer)
        self._open_at = now + self._shut_s

    def shut_s(self, now: float) -> float:
        """Return the seconds for which it is still shut out."""
        return max(0.0, self._open_at - now)


class FlowControl:
    """Slows one connection down to what is allowed, and tells when to give it up.

    Not reading is all that slows a sender without costing others anything.
    """

    def __init__(self, own: ConnectionBudget) -> None:
        self._own = own
        #: What its user may send over all connections, once it is known.
        self.of_user: UserBudget | None = None
        self._patience = ViolationBudget(_PATIENCE_S)

    def take(self, kind: Kind, idle_s: float, now: float, amount: float = 1.0) -> float | None:
        """Return how long to wait before reading on; None: it pressed on for too long.

        Args:
            idle_s: how long the server had waited for this message.
            amount: how many messages it counts as.
        """
        wait = self._own.take(kind, now, amount)
        if self.of_user is not None:
            wait = max(wait, self.of_user.take(kind, now, amount))
        if not self._patience.lost(wait, idle_s):
            return wait
        if self.of_user is not None:
            self.of_user.pressed_on(now)
        return None


def kind_of(message: ClientMessage) -> Kind:
    """Return what a message counts as."""
    return "draft" if isinstance(message, DraftUpdate | DraftClear) else "send"


def amount_of(kind: Kind, chars: int) -> float:
    """Return how many messages one of so many characters counts as, however JSON writes them.

    What is sent costs by its length: it is embedded, stored, judged and answered. Drafts do not:
    the next one takes the last one's place.
    """
    return 1.0 + chars / _CHARS_OF_ONE if kind == "send" else 1.0


def limits_of(settings: Settings) -> Limits:
    """Return the limits that a client is told of."""
    return Limits(
        max_frame_bytes=MAX_FRAME_BYTES,
        max_text_chars=settings.max_text_chars,
        max_id_chars=MAX_ID_CHARS,
        max_waiting_messages=MAX_WAITING,
        drafts_per_s=settings.drafts_per_s,
        sends_per_s=settings.sends_per_s,
        http_per_s=settings.http_per_s,
        max_sessions_per_user=settings.max_sessions_per_user,
        resume_s=settings.resume_s,
        replay_events=MOST_EVENTS,
        outbound_bytes=settings.outbound_bytes,
    )
