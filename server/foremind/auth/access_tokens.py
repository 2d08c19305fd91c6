"""Signed tokens (JWT, RFC 7519): read and minted. Pure: `now` is given."""

from collections.abc import Collection
from typing import Any

import jwt

from foremind.auth.principal import PLAYER, SCOPES, Principal, Scope, user_id_problem
from foremind.auth.signing_keys import KeyRing, SigningKey
from foremind.domain.errors import InvalidMessage, NotAuthenticated
from foremind.domain.storable_text import check_storable

_MAX_NAME_CHARS = 64
_LATEST = 1e12  # seconds; neither without end nor no number
#: How far the minting server's clock may be ahead.
CLOCK_SKEW_S = 30.0


def read_token(token: str | None, keys: KeyRing, audience: str | None, now: float) -> Principal:
    """Return whom a token names.

    Claims: `sub` and `exp`, and optionally `name`, `companions` (slugs), `scopes`, `iat`, `nbf`,
    `jti`; `aud` where the server has an `audience`. `now` is in seconds since the epoch.

    Raises:
        NotAuthenticated: it is missing, forged, expired, or a claim is wrong.
    """
    if not token:
        raise _refused("expected a signed token")
    try:
        kid = jwt.get_unverified_header(token).get("kid")
        key = keys.find(kid if isinstance(kid, str) else None)
        if key is None:
            raise _refused("it names a key that is not known")
        claims = jwt.decode(
            token,
            key.material,
            algorithms=[key.algorithm],
            audience=audience,
            options={
                "require": ["sub", "exp"] + (["aud"] if audience else []),
                "verify_aud": audience is not None,
                # By the clock that is given, below.
                "verify_exp": False,
                "verify_nbf": False,
                "verify_iat": False,
            },
        )
    except (jwt.PyJWTError, ValueError) as error:
        raise _refused(str(error)) from None
    return _caller(claims, key, now)


def mint(claims: dict[str, Any], key: SigningKey) -> str:
    """Return a token with these claims, signed."""
    headers = None if key.id is None else {"kid": key.id}
    return jwt.encode(claims, key.material, key.algorithm, headers=headers)


def _caller(claims: dict[str, Any], key: SigningKey, now: float) -> Principal:
    subject, name = claims["sub"], claims.get("name") or claims["sub"]
    if problem := user_id_problem(subject if isinstance(subject, str) else ""):
        raise _refused(f"{problem} in 'sub'")
    if not isinstance(name, str):
        raise _refused("expected text in 'name'")
    token_id = claims.get("jti")
    if token_id is not None and not isinstance(token_id, str):
        raise _refused("expected text in 'jti'")
    caller = Principal(
        subject,
        name[:_MAX_NAME_CHARS],
        _listed(claims, "companions"),
        _scopes(_listed(claims, "scopes")),
        _time(claims, "iat"),
        _time(claims, "exp"),
        token_id,
        key.id,
        key.fingerprint,
    )
    try:
        check_storable({"sub": subject, "name": name, "jti": token_id})
    except InvalidMessage as error:
        raise _refused(error.message) from None
    begins = _time(claims, "nbf")
    if caller.expired(now):
        raise _refused("it has expired")
    if any(each is not None and each > now + CLOCK_SKEW_S for each in (begins, caller.issued_at)):
        raise _refused("it is not valid yet")
    return caller


def _scopes(named: frozenset[str] | None) -> frozenset[Scope]:
    """Return the scopes that are known; others are for other services."""
    return PLAYER if named is None else frozenset(each for each in SCOPES if each in named)


def _listed(claims: dict[str, Any], name: str) -> frozenset[str] | None:
    value = claims.get(name)
    if value is None:
        return None
    if not isinstance(value, Collection) or isinstance(value, str | bytes):
        raise _refused(f"expected a list in {name!r}")
    return frozenset(map(str, value))


def _time(claims: dict[str, Any], name: str) -> float | None:
    value = claims.get(name)
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value < _LATEST:
        raise _refused(f"expected seconds in {name!r}")
    return float(value)


def _refused(reason: str) -> NotAuthenticated:
    return NotAuthenticated(f"token: {reason}", param="token")
