"""Access tokens of a conversation: how they are obtained, and when they are renewed."""

import asyncio
import base64
import json
from collections.abc import Awaitable, Callable

Token = str | Callable[[], Awaitable[str]]

_FETCH_TIMEOUT_S = 30.0
_RENEWAL_SHARE = 0.8  # of a token's lifetime, after which it is renewed
_MIN_DELAY_S = 1.0


class TokenUnavailable(ConnectionError):
    """The function that gets tokens failed or took too long."""


async def fetch_token(token: Token | None) -> str | None:
    """Return the token, or call the function that gets one.

    Raises:
        TokenUnavailable: the function failed, or did not return within 30 s.
    """
    if not callable(token):
        return token
    try:
        async with asyncio.timeout(_FETCH_TIMEOUT_S):
            return await token()
    except Exception as error:  # the game's own code may raise anything
        raise TokenUnavailable(f"no token: {error or type(error).__name__}") from error


def renewal_delay(token: str, now: float) -> float | None:
    """Return the seconds until a token should be renewed; None if its expiry cannot be read.

    The token is not verified; the server does that.

    Args:
        now: Unix time in seconds.
    """
    try:
        payload = token.split(".")[1]
        claims = json.loads(base64.urlsafe_b64decode(payload + "=" * (-len(payload) % 4)))
        expires_at = float(claims["exp"])
        lifetime = expires_at - float(claims.get("iat", now))
    except (LookupError, ValueError, TypeError, AttributeError):
        return None
    remaining = expires_at - now  # by this machine's clock, which may be wrong
    usable = min(lifetime, remaining) if remaining > 0 else lifetime
    return max(_MIN_DELAY_S, _RENEWAL_SHARE * usable)
