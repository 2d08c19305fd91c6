"""Tokens of a conversation: where they come from, and when a fresh one is wanted."""

import asyncio
import base64
import json
from collections.abc import Awaitable, Callable

Token = str | Callable[[], Awaitable[str]]

_FETCH_S = 30.0
_SHARE_OF_LIFE = 0.8  # after which a token is replaced
_LEAST_S = 1.0


class TokenUnavailable(ConnectionError):
    """What gets tokens failed or took too long."""


async def fetch_token(token: Token | None) -> str | None:
    """Return the token, asking for a fresh one where there is something to ask.

    Raises:
        TokenUnavailable: it failed, or did not answer within half a minute.
    """
    if not callable(token):
        return token
    try:
        async with asyncio.timeout(_FETCH_S):
            return await token()
    except Exception as error:  # it is the game's own code: anything may come out of it
        raise TokenUnavailable(f"no token: {error or type(error).__name__}") from error


def renewal_delay(token: str, now: float) -> float | None:
    """Return the seconds until a token should be replaced, None where it does not say its end.

    It is read, not verified: the server does that.

    Args:
        now: seconds since 1970.
    """
    try:
        payload = token.split(".")[1]
        claims = json.loads(base64.urlsafe_b64decode(payload + "=" * (-len(payload) % 4)))
        end = float(claims["exp"])
        life = end - float(claims.get("iat", now))
    except (LookupError, ValueError, TypeError, AttributeError):
        return None
    left = end - now  # by this machine's clock, which may be wrong
    return max(_LEAST_S, _SHARE_OF_LIFE * (min(life, left) if left > 0 else life))
