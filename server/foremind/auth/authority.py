"""Authenticates sessions and requests: by token, or in open mode by the user id that they claim."""

import time
from collections.abc import Callable
from dataclasses import replace
from datetime import datetime, timedelta

from foremind.auth.access_tokens import CLOCK_SKEW_S, read_token
from foremind.auth.principal import (
    CLAIMED_SCOPES,
    SCOPES,
    Principal,
    Scope,
    user_id_problem,
)
from foremind.auth.signing_keys import KeyRing
from foremind.domain.announcements import AccessRevoked
from foremind.domain.clock import Clock
from foremind.domain.errors import InvalidMessage, NotAllowed, NotAuthenticated
from foremind.domain.settings.settings import Settings, check_secret
from foremind.domain.user import name_of
from foremind.storage.user_store import RevocationStore, TokenIdentity


class Authority:
    """Verifies tokens against the signing keys and the revocations.

    Raises:
        InvalidFile: the key file is not a valid JWK Set.
    """

    def __init__(self, settings: Settings, revocations: RevocationStore, clock: Clock) -> None:
        self._settings = settings
        self._keys = load_keyring(settings, clock.monotonic)
        self._revocations = revocations
        self._clock = clock

    def health(self) -> dict[str, str]:
        """Return what is wrong with the file of keys, if there is one."""
        return self._keys.health()

    def authenticate_session(
        self, token: str | None, claimed: tuple[str, str] | None, companion: str
    ) -> Principal:
        """Return the principal that opens a session with a companion, "" for a scene of a world.

        Revocation is not checked here; see `check_revoked`.

        Args:
            claimed: the user id and name that the client claims; used in open mode only.

        Raises:
            NotAuthenticated: the token is missing, invalid or expired, or no user is given.
            NotAllowed: this principal may not open this companion.
            InvalidMessage: the claimed user id is invalid.
        """
        if not self._settings.open_mode:
            principal = self.verify_token(token)
        elif claimed is None:
            raise NotAuthenticated("user: expected {id, name}", param="user")
        elif problem := user_id_problem(claimed[0]):
            raise InvalidMessage(f"user.id: {problem}", param="user.id")
        else:
            principal = Principal(*claimed, scopes=CLAIMED_SCOPES)
        require_scope(principal, "chat")
        if companion and not principal.may_open(companion):
            raise NotAllowed(
                "companion: the token does not allow this companion", param="companion"
            )
        return principal

    async def authenticate_request(self, token: str | None, user_id: str | None) -> Principal:
        """Return the principal of an HTTP request: by token, or in open mode by `user_id`.

        With a token of scope `admin`, `user_id` is the user on whose behalf the request acts.

        Raises:
            NotAuthenticated: the token is missing, invalid, expired or revoked, or no user is
                given.
            NotAllowed: another user is named, without the scope `admin`.
            InvalidMessage: the user id is none.
        """
        user = user_id or None
        if user is not None and (problem := user_id_problem(user)):
            raise InvalidMessage(f"user: {problem}", param="user")
        if not self._settings.open_mode:
            principal = await self.authenticate_token(token)
            if principal.admin:
                return replace(principal, on_behalf_of=user)
            if user not in (None, principal.user_id):
                raise NotAllowed(
                    "user: expected the token's own user, or a token with the scope admin",
                    param="user",
                )
            return principal
        if user is None:
            raise NotAuthenticated("user: expected the id of a user", param="user")
        return Principal(user, name_of(None, user), scopes=SCOPES)

    async def authenticate_token(self, token: str | None) -> Principal:
        """Return the principal of a token that is valid and not revoked.

        Raises:
            NotAuthenticated: the token is missing, invalid, expired or revoked.
        """
        principal = self.verify_token(token)
        await self.check_revoked(principal)
        return principal

    def verify_token(self, token: str | None) -> Principal:
        """Return the principal of a token, without checking whether it was revoked.

        Raises:
            NotAuthenticated: the token is missing, invalid or expired.
        """
        now = self._clock.now().timestamp()
        return read_token(token, self._keys, self._settings.auth_audience, now)

    async def check_revoked(self, principal: Principal) -> None:
        """Check that a principal's token has not been revoked.

        Raises:
            NotAuthenticated: it has been revoked.
        """
        if principal.expires_at is None:
            return  # open mode: there is no token
        if await self._revocations.is_revoked(
            principal.user_id, principal.token_id, principal.issued_at
        ):
            raise token_revoked()

    async def token_identity(self, principal: Principal) -> TokenIdentity | None:
        """Return what a principal's token may be revoked by; None in open mode."""
        if principal.expires_at is None:
            return None
        return await self._revocations.identity(
            principal.user_id, principal.token_id, principal.issued_at
        )

    async def revoke(self, user_id: str, token_id: str | None) -> datetime:
        """Revoke one token of a user, or all tokens that can have been minted by now.

        The clock of the issuing server may be ahead by `CLOCK_SKEW_S`, so tokens minted before the
        revocation may carry a later `iat`. Returns the latest `iat` that is revoked.

        Raises:
            StorageUnavailable: nothing was revoked.
        """
        until = self._clock.now() + timedelta(seconds=CLOCK_SKEW_S)
        await self._revocations.revoke(user_id, token_id, until)
        return until

    async def recent_revocations(self, seconds: float) -> list[AccessRevoked]:
        """Return the revocations of the last `seconds`."""
        return await self._revocations.revoked_since(self._clock.now() - timedelta(seconds=seconds))

    def still_valid(self, principal: Principal) -> bool:
        """Tell whether a session may continue: its token has not expired and its key is in use."""
        if principal.expires_at is None:
            return True
        key = self._keys.find(principal.key_id)
        return (
            not principal.expired(self._clock.now().timestamp())
            and key is not None
            and key.fingerprint == principal.key_fingerprint
        )


def token_revoked() -> NotAuthenticated:
    """Return the error for a revoked token."""
    return NotAuthenticated("token: revoked", param="token")


def load_keyring(settings: Settings, monotonic: Callable[[], float] = time.monotonic) -> KeyRing:
    """Return the configured signing keys.

    Raises:
        InvalidFile: the key file is not a valid JWK Set.
        UnsafeBinding: the secret is too short.
    """
    check_secret(settings)
    secret = settings.auth_secret
    value = None if secret is None else secret.reveal()
    return KeyRing(value, settings.auth_keys, monotonic)


def require_host(principal: Principal, world: str) -> None:
    """Check that a principal is the game server of a world.

    Raises:
        NotAllowed: its token lacks the scope, or the world.
    """
    if not principal.hosts(world):
        raise NotAllowed(
            "token: expected one with the scope world, and this world in its claim worlds",
            param="token",
        )


def require_scope(principal: Principal, scope: Scope) -> None:
    """Check that a principal has a scope.

    Raises:
        NotAllowed: its token lacks the scope.
    """
    if not principal.allows(scope):
        raise NotAllowed(f"token: expected one with the scope {scope}", param="token")
