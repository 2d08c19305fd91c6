"""Decides who a caller is: by token, or in open mode by what it says of itself."""

from dataclasses import replace
from datetime import timedelta

from foremind.clock import Clock
from foremind.errors import InvalidMessage, NotAllowed, NotAuthenticated
from foremind.identity.caller import MAX_USER_CHARS, SCOPES, Caller, Scope
from foremind.identity.keys import KeyRing
from foremind.identity.origins import LOOPBACK
from foremind.identity.tokens import read_token
from foremind.settings import Settings
from foremind.storage.revocations import AccessRevoked, RevocationStore


class Authority:
    """Knows the keys and what was revoked.

    Raises:
        InvalidFile: the file of keys is none.
    """

    def __init__(self, settings: Settings, revocations: RevocationStore, clock: Clock) -> None:
        self._settings = settings
        self._keys = keyring(settings)
        self._revocations = revocations
        self._clock = clock

    async def of_session(
        self, token: str | None, claimed: tuple[str, str] | None, companion: str
    ) -> Caller:
        """Return who wants to open a session with a companion.

        Args:
            claimed: id and name that a client gives itself, which count in open mode only.

        Raises:
            NotAuthenticated: the token is missing, wrong, expired or revoked, or no user is given.
            NotAllowed: this caller may not open this companion.
        """
        if not self._settings.open_mode:
            caller = await self.of_token(token)
        elif claimed is None:
            raise NotAuthenticated("user: expected {id, name}", param="user")
        else:
            caller = Caller(*claimed)
        require(caller, "chat")
        if not caller.may_open(companion):
            raise NotAllowed("companion: the token does not allow this one", param="companion")
        return caller

    async def of_request(self, token: str | None, user_id: str | None, host: str | None) -> Caller:
        """Return who sends an HTTP request: by token, or in open mode the `user` it names.

        With a token of scope `admin`, `user` is on whose behalf it asks.

        In open mode the request must be made to a loopback name: a page of a foreign name that
        points here (DNS rebinding) is nobody.

        Raises:
            NotAuthenticated: the token is missing, wrong, expired or revoked, or no user is given.
        """
        if not self._settings.open_mode:
            caller = await self.of_token(token)
            return replace(caller, on_behalf_of=_known(user_id)) if caller.admin else caller
        if host not in LOOPBACK:
            raise NotAuthenticated("host: expected a loopback name", param="host")
        user = _known(user_id)
        if user is None:
            raise NotAuthenticated("user: expected the id of a user", param="user")
        return Caller(user, user, scopes=SCOPES)

    async def of_token(self, token: str | None) -> Caller:
        """Return whom a token names.

        Raises:
            NotAuthenticated: it is missing, wrong, expired or revoked.
        """
        now = self._clock.now().timestamp()
        caller = read_token(token, self._keys, self._settings.auth_audience, now)
        if await self._revocations.revoked(caller.user_id, caller.token_id, caller.issued_at):
            raise NotAuthenticated("token: it was revoked", param="token")
        return caller

    async def revoked_lately(self, seconds: float) -> list[AccessRevoked]:
        """Return what was revoked in the last `seconds`."""
        return await self._revocations.since(self._clock.now() - timedelta(seconds=seconds))

    def still_valid(self, caller: Caller) -> bool:
        """Tell whether a session may go on: its token has time and its key was not withdrawn."""
        if caller.expires_at is None:
            return True
        return not caller.expired(self._clock.now().timestamp()) and (
            self._keys.find(caller.key_id) is not None
        )


def _known(user_id: str | None) -> str | None:
    """Return a user that a request names, None where it names nobody.

    Raises:
        InvalidMessage: it is too long for a name.
    """
    if user_id and len(user_id) > MAX_USER_CHARS:
        raise InvalidMessage(f"user: expected at most {MAX_USER_CHARS} characters", param="user")
    return user_id or None


def keyring(settings: Settings) -> KeyRing:
    """Return the keys that the settings name.

    Raises:
        InvalidFile: the file of keys is none.
    """
    secret = settings.auth_secret
    return KeyRing(None if secret is None else secret.get_secret_value(), settings.auth_keys)


def require(caller: Caller, scope: Scope) -> None:
    """Check that a caller may do something.

    Raises:
        NotAllowed: its token lacks the scope.
    """
    if not caller.allows(scope):
        raise NotAllowed(f"token: expected one with the scope {scope}", param="token")
