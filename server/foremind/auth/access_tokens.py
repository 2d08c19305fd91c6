"""Signed access tokens (JWT, RFC 7519): verifying and minting. Pure: the caller passes `now`."""

from collections.abc import Collection
from typing import Any

import jwt
from jwt import exceptions

from foremind.auth.principal import (
    PLAYER_SCOPES,
    SCOPES,
    Principal,
    Scope,
    user_id_problem,
)
from foremind.auth.signing_keys import KeyRing, SigningKey
from foremind.domain.errors import InvalidMessage, NotAuthenticated
from foremind.domain.storable_text import check_storable
from foremind.domain.user import name_of

_MAX_TIMESTAMP = 1e12  # seconds since the epoch; also rejects infinity and NaN
#: How far the clock of the issuing server may be ahead, in seconds.
CLOCK_SKEW_S = 30.0


def read_token(token: str | None, keys: KeyRing, audience: str | None, now: float) -> Principal:
    """Verify a token and return its principal.

    Claims: `sub` and `exp`, and optionally `name`, `companions` (slugs), `worlds`, `scopes`, `iat`,
    `nbf`, `jti`; also `aud` when the server has an `audience`. `now` is in seconds since the epoch.

    Raises:
        NotAuthenticated: the token is missing, forged or expired, or a claim is invalid.
    """
    if not token:
        raise _invalid_token("expected a signed token")
    try:
        kid = jwt.get_unverified_header(token).get("kid")
        key = keys.find(kid if isinstance(kid, str) else None)
        if key is None:
            raise _invalid_token("unknown key id in the 'kid' header")
        claims = jwt.decode(
            token,
            key.material,
            algorithms=[key.algorithm],
            audience=audience,
            options={
                "require": ["sub", "exp"] + (["aud"] if audience else []),
                "verify_aud": audience is not None,
                # Checked below against `now`.
                "verify_exp": False,
                "verify_nbf": False,
                "verify_iat": False,
            },
        )
    except (jwt.PyJWTError, ValueError) as error:
        raise _invalid_token(_reason(error)) from None
    return _principal(claims, key, now)


def mint(claims: dict[str, Any], key: SigningKey) -> str:
    """Return a signed token with these claims."""
    headers = None if key.id is None else {"kid": key.id}
    return jwt.encode(claims, key.material, key.algorithm, headers=headers)


def _reason(error: Exception) -> str:
    """Return why a token was refused, without any part of it."""
    match error:
        case exceptions.MissingRequiredClaimError():
            return f"expected the claim {error.claim!r}"
        case exceptions.InvalidAudienceError():
            return "expected this server's audience in 'aud'"
        case exceptions.InvalidSubjectError():
            return "expected a string in 'sub'"
        case exceptions.InvalidJTIError():
            return "expected a string in 'jti'"
        case exceptions.InvalidAlgorithmError():
            return "expected the algorithm of its key in the 'alg' header"
        case exceptions.InvalidSignatureError():
            return "expected to be signed with a key of this server"
    return "expected a valid signed token: a JWT, three parts with dots between them"


def _principal(claims: dict[str, Any], key: SigningKey, now: float) -> Principal:
    subject, name = claims["sub"], claims.get("name") or ""
    if problem := user_id_problem(subject if isinstance(subject, str) else ""):
        raise _invalid_token(f"{problem} in 'sub'")
    if not isinstance(name, str):
        raise _invalid_token("expected a string in 'name'")
    token_id = claims.get("jti")
    if token_id is not None and not isinstance(token_id, str):
        raise _invalid_token("expected a string in 'jti'")
    principal = Principal(
        subject,
        name_of(name, subject),
        _string_set(claims, "companions"),
        _known_scopes(_string_set(claims, "scopes")),
        _timestamp(claims, "iat"),
        _timestamp(claims, "exp"),
        token_id,
        key.id,
        key.fingerprint,
        worlds=_string_set(claims, "worlds"),
    )
    try:
        check_storable({"sub": subject, "name": name, "jti": token_id})
    except InvalidMessage as error:
        raise _invalid_token(error.message) from None
    not_before = _timestamp(claims, "nbf")
    if principal.expired(now):
        raise _invalid_token("expired")
    latest_start = now + CLOCK_SKEW_S
    if any(
        start is not None and start > latest_start for start in (not_before, principal.issued_at)
    ):
        raise _invalid_token("not valid yet")
    return principal


def _known_scopes(claimed: frozenset[str] | None) -> frozenset[Scope]:
    """Return the scopes that Foremind knows; others belong to other services."""
    return (
        PLAYER_SCOPES
        if claimed is None
        else frozenset(scope for scope in SCOPES if scope in claimed)
    )


def _string_set(claims: dict[str, Any], name: str) -> frozenset[str] | None:
    value = claims.get(name)
    if value is None:
        return None
    if not isinstance(value, Collection) or isinstance(value, str | bytes):
        raise _invalid_token(f"expected a list in {name!r}")
    return frozenset(map(str, value))


def _timestamp(claims: dict[str, Any], name: str) -> float | None:
    value = claims.get(name)
    if value is None:
        return None
    if (
        isinstance(value, bool)
        or not isinstance(value, int | float)
        or not 0 <= value < _MAX_TIMESTAMP
    ):
        raise _invalid_token(f"expected seconds since the epoch in {name!r}")
    return float(value)


def _invalid_token(reason: str) -> NotAuthenticated:
    return NotAuthenticated(f"token: {reason}", param="token")
