"""Whom a token names."""

import json
import time
from pathlib import Path

import jwt
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from foremind.auth.access_tokens import mint, read_token
from foremind.auth.principal import PLAYER
from foremind.auth.signing_keys import KeyRing, new_key, read_keys
from foremind.domain.errors import InvalidFile, NotAuthenticated

SECRET = "a secret of thirty-two bytes, or more"
KEYS = KeyRing(SECRET, None)


def token(secret: str = SECRET, **claims: object) -> str:
    """A token for Ana, changed by `claims`."""
    whole = {"sub": "ana", "name": "Ana", "exp": time.time() + 86_400} | claims
    return jwt.encode({key: value for key, value in whole.items() if value is not None}, secret)


def test_a_signed_token_is_believed() -> None:
    """Its subject is the user, its name what the companion calls it."""
    caller = read_token(token(), KEYS, None, time.time())
    assert (caller.user_id, caller.name, caller.companions) == ("ana", "Ana", None)


@pytest.mark.parametrize(
    "wrong",
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
    ids=lambda _: "token",  # not its text: it holds the time
)
def test_anything_else_is_not(wrong: str | None) -> None:
    """Missing, forged, expired, endless, too early, unsigned, signed in another way."""
    with pytest.raises(NotAuthenticated) as caught:
        read_token(wrong, KEYS, None, time.time())
    assert caught.value.param == "token"


def test_a_token_counts_until_the_second_it_expires() -> None:
    """By the clock that is given."""
    signed = token(exp=1000)
    assert read_token(signed, KEYS, None, 999.9).user_id == "ana"
    with pytest.raises(NotAuthenticated):
        read_token(signed, KEYS, None, 1000.0)


def test_scopes_are_what_the_token_says_and_no_more() -> None:
    """Without any it is a player's; those of other services mean nothing here."""
    assert read_token(token(), KEYS, None, 0).scopes == PLAYER
    some = read_token(token(scopes=["chat", "shop:buy"]), KEYS, None, 0)
    assert some.scopes == {"chat"}
    assert not some.allows("memory:read")
    assert read_token(token(scopes=["admin"]), KEYS, None, 0).allows("memory:write")
    assert read_token(token(scopes=[]), KEYS, None, 0).scopes == frozenset()


def test_an_audience_is_asked_for_where_one_is_set() -> None:
    """A token for another service is none for this one."""
    assert read_token(token(aud="foremind"), KEYS, "foremind", 0).user_id == "ana"
    assert read_token(token(aud="shop"), KEYS, None, 0).user_id == "ana"
    for wrong in (token(), token(aud="shop")):
        with pytest.raises(NotAuthenticated):
            read_token(wrong, KEYS, "foremind", 0)


def test_keys_rotate_without_a_restart(tmp_path: Path) -> None:
    """What is added to the file counts from then on, what is removed no longer."""
    path = tmp_path / "keys.json"
    old, old_public = new_key("old")
    fresh, fresh_public = new_key("fresh")
    path.write_text(json.dumps({"keys": [old_public]}))
    keys = KeyRing(None, path)
    by_old = mint({"sub": "ana", "exp": 100}, _signing(tmp_path, old))
    by_fresh = mint({"sub": "ana", "exp": 100}, _signing(tmp_path, fresh))
    assert read_token(by_old, keys, None, 0).key_id == "old"
    with pytest.raises(NotAuthenticated):
        read_token(by_fresh, keys, None, 0)

    path.write_text(json.dumps({"keys": [old_public, fresh_public]}))
    assert read_token(by_fresh, keys, None, 0).key_id == "fresh"
    path.write_text("half writt")
    assert read_token(by_fresh, keys, None, 0).key_id == "fresh"
    path.write_text(json.dumps({"keys": [fresh_public]}))
    with pytest.raises(NotAuthenticated):
        read_token(by_old, keys, None, 0)


def test_a_public_key_is_no_secret(tmp_path: Path) -> None:
    """A token signed with HS256 and the public key as the secret is forged."""
    _, public = new_key("k")
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
def test_a_file_of_keys_that_is_none_is_refused(tmp_path: Path, content: str) -> None:
    """Not a JWK Set, not for HS256 or EdDSA, too short, without a name."""
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
def test_whatever_comes_as_a_token_is_a_caller_or_refused(raw: str) -> None:
    """Nothing else is raised, signed or not."""
    try:
        caller = read_token(raw, KEYS, None, 1000.0)
    except NotAuthenticated:
        return
    assert caller.user_id
    assert caller.expires_at is not None


def _signing(folder: Path, whole: dict[str, object]):  # type: ignore[no-untyped-def]
    path = folder / "private.json"
    path.write_text(json.dumps({"keys": [whole]}))
    return next(iter(read_keys(path).values()))
