"""Decides who a caller is: by token, or in open mode by what it says of itself."""

from dataclasses import replace
from datetime import datetime, timedelta

from foremind.auth.access_tokens import CLOCK_SKEW_S, read_token
from foremind.auth.principal import MAX_USER_CHARS, SCOPES, Principal, Scope, user_id_problem
from foremind.auth.signing_keys import KeyRing
from foremind.domain.announcements import AccessRevoked
from foremind.domain.clock import Clock
from foremind.domain.errors import InvalidMessage, NotAllowed, NotAuthenticated
from foremind.domain.settings import Settings
from foremind.storage.revocation_store import RevocationStore


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

    def of_session(
        self, token: str | None, claimed: tuple[str, str] | None, companion: str
    ) -> Principal:
        """Return who wants to open a session with a companion; it may have been revoked.

        Args:
            claimed: id and name that a client gives itself, which count in open mode only.

        Raises:
            NotAuthenticated: the token is missing, wrong or expired, or no user is given.
            NotAllowed: this caller may not open this companion.
            InvalidMessage: what a client calls itself can be nobody's id.
        """
        if not self._settings.open_mode:
            caller = self.named_by(token)
        elif claimed is None:
            raise NotAuthenticated("user: expected {id, name}", param="user")
        elif problem := user_id_problem(claimed[0]):
            raise InvalidMessage(f"user.id: {problem}", param="user.id")
        else:
            caller = Principal(*claimed)
        require(caller, "chat")
        if not caller.may_open(companion):
            raise NotAllowed("companion: the token does not allow this one", param="companion")
        return caller

    async def of_request(self, token: str | None, user_id: str | None) -> Principal:
        """Return who sends an HTTP request: by token, or in open mode the `user` it names.

        With a token of scope `admin`, `user` is on whose behalf it asks.

        Raises:
            NotAuthenticated: the token is missing, wrong, expired or revoked, or no user is given.
        """
        if not self._settings.open_mode:
            caller = await self.of_token(token)
            return replace(caller, on_behalf_of=_known(user_id)) if caller.admin else caller
        user = _known(user_id)
        if user is None:
            raise NotAuthenticated("user: expected the id of a user", param="user")
        return Principal(user, user, scopes=SCOPES)

    async def of_token(self, token: str | None) -> Principal:
        """Return whom a token names.

        Raises:
            NotAuthenticated: it is missing, wrong, expired or revoked.
        """
        caller = self.named_by(token)
        await self.check_revoked(caller)
        return caller

    def named_by(self, token: str | None) -> Principal:
        """Return whom a token names, who may have been revoked meanwhile.

        Raises:
            NotAuthenticated: it is missing, wrong or expired.
        """
        now = self._clock.now().timestamp()
        return read_token(token, self._keys, self._settings.auth_audience, now)

    async def check_revoked(self, caller: Principal) -> None:
        """Check that a caller's token was not revoked.

        Raises:
            NotAuthenticated: it was.
        """
        if caller.expires_at is None:
            return  # it has none
        if await self._revocations.revoked(caller.user_id, caller.token_id, caller.issued_at):
            raise revoked()

    async def revoke(self, user_id: str, token_id: str | None) -> datetime:
        """Revoke one token of a user, or all that can have been minted by now.

        A minting server's clock may be ahead, so that its tokens claim to be issued later than they
        were. Return until when: a token that claims to be issued after that counts.

        Raises:
            StorageUnavailable: nothing was revoked.
        """
        until = self._clock.now() + timedelta(seconds=CLOCK_SKEW_S)
        await self._revocations.revoke(user_id, token_id, until)
        return until

    async def revoked_lately(self, seconds: float) -> list[AccessRevoked]:
        """Return what was revoked in the last `seconds`."""
        return await self._revocations.since(self._clock.now() - timedelta(seconds=seconds))

    def still_valid(self, caller: Principal) -> bool:
        """Tell whether a session may go on: its token has time, and its key is still the same."""
        if caller.expires_at is None:
            return True
        key = self._keys.find(caller.key_id)
        return (
            not caller.expired(self._clock.now().timestamp())
            and key is not None
            and key.fingerprint == caller.key_fingerprint
        )


def revoked() -> NotAuthenticated:
    """Return the error that tells of a revoked token."""
    return NotAuthenticated("token: it was revoked", param="token")


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


def require(caller: Principal, scope: Scope) -> None:
    """Check that a caller may do something.

    Raises:
        NotAllowed: its token lacks the scope.
    """
    if not caller.allows(scope):
        raise NotAllowed(f"token: expected one with the scope {scope}", param="token")
