"""Verifying access tokens."""

import json
import os
import time
from collections.abc import Callable
from pathlib import Path

import jwt
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from foremind.auth.access_tokens import mint, read_token
from foremind.auth.principal import PLAYER_SCOPES
from foremind.auth.signing_keys import KeyRing, generate_key, read_keys
from foremind.domain.errors import InvalidFile, NotAuthenticated

SECRET = "a secret of thirty-two bytes, or more"
KEYS = KeyRing(SECRET, None)


def token(secret: str = SECRET, **claims: object) -> str:
    """A token for Ana with other `claims`; None omits a claim."""
    merged = {"sub": "ana", "name": "Ana", "exp": time.time() + 86_400} | claims
    return jwt.encode({key: value for key, value in merged.items() if value is not None}, secret)


def test_a_signed_token_names_the_principal() -> None:
    """Its subject is the user id, and its name what the companion calls the user."""
    principal = read_token(token(), KEYS, None, time.time())
    assert (principal.user_id, principal.name, principal.companions) == ("ana", "Ana", None)


@pytest.mark.parametrize(
    "invalid",
    [
        None,
        "",
        "nonsense",
        "a.b.c",
        token(secret="another secret of thirty-two bytes!"),
        token(exp=1),
        token(exp=None),
        token(exp="tomorrow"),
        token(exp=True),
        token(sub=None),
        token(sub=""),
        token(sub="x" * 129),
        token(sub="."),
        token(sub=".."),
        token(sub="ana\n"),
        token(name="a\0b"),
        token(sub="a\0b"),
        token(sub="a\ud800b"),
        token(jti="a\0b"),
        token(exp=float("nan")),
        token(exp=float("inf")),
        token(exp=10**400),
        token(companions="wren"),
        token(scopes="admin"),
        token(jti=7),
        token(nbf=time.time() + 3600),
        token(iat=time.time() + 3600),
        jwt.encode({"sub": "ana", "exp": time.time() + 60}, "", algorithm="none"),
        jwt.encode({"sub": "ana", "exp": time.time() + 60}, SECRET * 2, algorithm="HS512"),
    ],
    ids=lambda _: "token",  # its text depends on the time
)
def test_an_invalid_token_is_refused(invalid: str | None) -> None:
    """Missing, forged, expired, without expiry, not valid yet, unsigned, of another algorithm."""
    with pytest.raises(NotAuthenticated) as caught:
        read_token(invalid, KEYS, None, time.time())
    assert caught.value.param == "token"


@pytest.mark.parametrize("claim", ["sub", "name", "jti"])
def test_claims_that_are_not_utf8_are_refused(claim: str) -> None:
    """What their bytes are replaced with would stand for many users."""
    claims = {"sub": "ana", "exp": int(time.time()) + 100} | {claim: "Jos?"}
    for byte in (b"\xe9", b"\xe8"):
        payload = json.dumps(claims).encode().replace(b"?", byte)
        with pytest.raises(NotAuthenticated):
            read_token(jwt.api_jws.encode(payload, SECRET, "HS256"), KEYS, None, time.time())


def test_a_token_is_valid_until_it_expires() -> None:
    """At the given time, not the system's."""
    signed = token(exp=1000)
    assert read_token(signed, KEYS, None, 999.9).user_id == "ana"
    with pytest.raises(NotAuthenticated):
        read_token(signed, KEYS, None, 1000.0)


def test_a_token_grants_only_its_scopes() -> None:
    """Without the claim, those of a player; scopes of other services are ignored."""
    assert read_token(token(), KEYS, None, 0).scopes == PLAYER_SCOPES
    chat_only = read_token(token(scopes=["chat", "shop:buy"]), KEYS, None, 0)
    assert chat_only.scopes == {"chat"}
    assert not chat_only.allows("memory:read")
    assert read_token(token(scopes=["admin"]), KEYS, None, 0).allows("memory:write")
    assert read_token(token(scopes=[]), KEYS, None, 0).scopes == frozenset()


def test_the_audience_is_checked_if_one_is_configured() -> None:
    """A token for another service is refused."""
    assert read_token(token(aud="foremind"), KEYS, "foremind", 0).user_id == "ana"
    assert read_token(token(aud="shop"), KEYS, None, 0).user_id == "ana"
    for invalid in (token(), token(aud="shop")):
        with pytest.raises(NotAuthenticated):
            read_token(invalid, KEYS, "foremind", 0)


def test_keys_rotate_without_a_restart(tmp_path: Path) -> None:
    """Keys added to the file are accepted from then on, and removed keys no longer."""
    path = tmp_path / "keys.json"
    old, old_public = generate_key("old")
    fresh, fresh_public = generate_key("fresh")
    path.write_text(json.dumps({"keys": [old_public]}))
    keys = KeyRing(None, path)
    old_token = mint({"sub": "ana", "exp": 100}, _signing_key(tmp_path, old))
    fresh_token = mint({"sub": "ana", "exp": 100}, _signing_key(tmp_path, fresh))
    assert read_token(old_token, keys, None, 0).key_id == "old"
    with pytest.raises(NotAuthenticated):
        read_token(fresh_token, keys, None, 0)

    path.write_text(json.dumps({"keys": [old_public, fresh_public]}))
    assert read_token(fresh_token, keys, None, 0).key_id == "fresh"
    path.write_text("half writt")
    assert read_token(fresh_token, keys, None, 0).key_id == "fresh"
    path.write_text(json.dumps({"keys": [fresh_public]}))
    with pytest.raises(NotAuthenticated):
        read_token(old_token, keys, None, 0)


def _replace_by_pipe(path: Path) -> None:
    path.unlink()
    os.mkfifo(path)


@pytest.mark.parametrize(
    "break_file",
    [Path.unlink, lambda path: path.write_text("half writt"), _replace_by_pipe],
)
def test_keys_of_a_file_that_cannot_be_read_are_used_for_seconds(
    tmp_path: Path, break_file: Callable[[Path], object]
) -> None:
    """It may just be being written. Then no token is accepted, and `/readyz` says why."""
    path, now = tmp_path / "keys.json", [0.0]
    private, public = generate_key("k")
    path.write_text(json.dumps({"keys": [public]}))
    keys = KeyRing(None, path, lambda: now[0])
    signed = mint({"sub": "ana", "exp": 100}, _signing_key(tmp_path, private))
    assert keys.health() == {"keys": "ok"}
    break_file(path)
    assert read_token(signed, keys, None, 0).key_id == "k"
    assert keys.health()["keys"].startswith("degraded: ")
    now[0] = 11.0
    with pytest.raises(NotAuthenticated):
        read_token(signed, keys, None, 0)
    path.unlink(missing_ok=True)
    path.write_text(json.dumps({"keys": [public]}))
    assert read_token(signed, keys, None, 0).key_id == "k"
    assert keys.health() == {"keys": "ok"}


def test_a_public_key_is_not_accepted_as_a_secret(tmp_path: Path) -> None:
    """As a forger would use it, to sign with HS256."""
    _, public = generate_key("k")
    path = tmp_path / "keys.json"
    path.write_text(json.dumps({"keys": [public]}))
    claims = {"sub": "ana", "exp": 100}
    forged = jwt.encode(claims, public["x"].ljust(32), "HS256", headers={"kid": "k"})
    with pytest.raises(NotAuthenticated):
        read_token(forged, KeyRing(None, path), None, 0)


@pytest.mark.parametrize(
    "content",
    [
        "",
        "[]",
        '{"keys": 7}',
        '{"keys": [{"kty": "RSA"}]}',
        '{"keys": [{"kty": "oct", "k": "c2hvcnQ", "kid": "k"}]}',
        '{"keys": [{"kty": "oct", "k": "bm8ga2lkIGJ1dCB0aGlydHktdHdvIGJ5dGVzLi4uLi4uLg"}]}',
    ],
)
def test_an_invalid_key_file_is_refused(tmp_path: Path, content: str) -> None:
    """Not a JWK Set, of another algorithm, too short, without a key id."""
    path = tmp_path / "keys.json"
    path.write_text(content)
    with pytest.raises(InvalidFile):
        read_keys(path)


@settings(max_examples=500)
@given(
    st.one_of(
        st.text(),
        st.binary().map(lambda raw: raw.decode("latin-1")),
        st.dictionaries(
            st.sampled_from(["sub", "name", "exp", "iat", "nbf", "jti", "aud", "scopes",
                             "companions"]),
            st.recursive(
                st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False,
                allow_infinity=False) | st.text(),
                lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
                max_leaves=5,
            ),
        ).map(lambda claims: jwt.api_jws.encode(json.dumps(claims).encode(), SECRET, "HS256")),
    )
)  # fmt: skip
def test_any_text_as_a_token_is_a_principal_or_refused(raw: str) -> None:
    """No other exception is raised, whether it is signed or not."""
    try:
        principal = read_token(raw, KEYS, None, 1000.0)
    except NotAuthenticated:
        return
    assert principal.user_id
    assert principal.expires_at is not None


def _signing_key(folder: Path, private_jwk: dict[str, object]):  # type: ignore[no-untyped-def]
    path = folder / "private.json"
    path.write_text(json.dumps({"keys": [private_jwk]}))
    return next(iter(read_keys(path).values()))


def test_the_last_key_that_can_sign_does_unless_one_is_named(tmp_path: Path) -> None:
    """A file of public keys alone verifies tokens and signs none."""
    first, _ = generate_key("first")
    last, _ = generate_key("last")
    _, public = generate_key("public")
    path = tmp_path / "keys.json"
    path.write_text(json.dumps({"keys": [first, last, public]}))
    keys = KeyRing(None, path)
    signing, named = keys.signing_key(None), keys.signing_key("first")
    assert signing is not None
    assert named is not None
    assert (signing.id, named.id) == ("last", "first")
    assert keys.signing_key("public") is None
    path.write_text(json.dumps({"keys": [public]}))
    assert KeyRing(None, path).signing_key(None) is None
