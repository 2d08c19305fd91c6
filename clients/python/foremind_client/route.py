"""Which URL to connect to next: the first one, or that of the gateway which serves the session."""

_TIMEOUT_S = 10.0  # for a connection
_TOLD_TIMEOUT_S = 2.0  # for one to a URL that the server told, which may not be reachable from here


class Route:
    """Decides; does not connect.

    A URL that the server told is used until it does not answer. Then the first URL is, at once, and
    the session is served there if it is redirected to the same URL again.
    """

    def __init__(self, first: str) -> None:
        self._first = first
        self._told: str | None = None
        self._unanswered: str | None = None  # a URL that did not answer since the last session
        self._open = self._moved = False  # of this connection
        #: Whether a redirect has been received since the last session.
        self.redirected = False

    @property
    def url(self) -> str:
        """The URL to connect to."""
        return self._told or self._first

    @property
    def told(self) -> bool:
        """Whether that is a URL that the server told."""
        return self._told is not None

    @property
    def timeout_s(self) -> float:
        """How long to wait for the connection."""
        return _TIMEOUT_S if self._told is None else _TOLD_TIMEOUT_S

    def opened(self) -> None:
        """Record that a session was opened or resumed."""
        self._open, self._moved, self.redirected, self._unanswered = True, False, False, None

    def redirect(self, url: str) -> bool:
        """Record that the server told a URL instead of opening a session; connect again at once.

        Return False if it must not do so, having done it already.
        """
        if self.redirected:
            return False
        self.redirected = True
        self._told = None if url == self._unanswered else self._accepted(url)
        return True

    def move(self, url: str) -> None:
        """Record that the server told where the open session continues."""
        self._told, self._moved = self._accepted(url), True

    def lost(self, *, elsewhere: bool = False) -> bool:
        """Record that a connection ended, or failed; return whether to connect again at once.

        Args:
            elsewhere: the server closed it because another gateway serves the session.
        """
        was_open, self._open = self._open, False
        if was_open and elsewhere and not self._moved:
            self._told = None  # the first URL tells where
        if was_open or self._told is None:
            return False
        self._unanswered, self._told = self._told, None
        return True

    def _accepted(self, url: str) -> str | None:
        """Return the URL if it may be followed: with TLS, if the first one has it."""
        schemes = ("wss://",) if self._first.startswith("wss://") else ("ws://", "wss://")
        return url if url.startswith(schemes) else None
