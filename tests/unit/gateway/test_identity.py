"""Who may enter."""

import time

import jwt
import pytest

from foremind.errors import NotAllowed, NotAuthenticated
from foremind.gateway.identity import identify, origin_allowed
from foremind.gateway.messages import SessionOpen, UserClaim
from foremind.settings import load_settings

SECRET = "a secret of thirty-two bytes, or more"
OPEN = load_settings()
CLOSED = load_settings(auth_secret=SECRET)


def token(secret: str = SECRET, **claims: object) -> str:
    """A token for Ana, changed by `claims`."""
    whole = {"sub": "ana", "name": "Ana", "exp": time.time() + 60} | claims
    return jwt.encode({key: value for key, value in whole.items() if value is not None}, secret)


def test_an_open_server_takes_a_client_at_its_word() -> None:
    """On loopback only, which the settings see to."""
    identity = identify(SessionOpen("wren", user=UserClaim("ana", "Ana")), OPEN)
    assert (identity.user_id, identity.name) == ("ana", "Ana")


def test_an_open_server_still_asks_who_it_is() -> None:
    """Without a user there is no memory to work with."""
    with pytest.raises(NotAuthenticated) as caught:
        identify(SessionOpen("wren"), OPEN)
    assert caught.value.param == "user"


def test_a_signed_token_is_believed() -> None:
    """Its subject is the user; what else the client claims is not."""
    message = SessionOpen("wren", token=token(), user=UserClaim("eve", "Eve"))
    assert identify(message, CLOSED).user_id == "ana"


@pytest.mark.parametrize(
    "wrong",
    [
        None,
        "",
        "nonsense",
        token(secret="another secret of thirty-two bytes!"),
        token(exp=1),
        token(exp=None),
        token(sub=None),
        token(companions="wren"),
        jwt.encode({"sub": "ana", "exp": time.time() + 60}, None, algorithm="none"),
    ],
)
def test_anything_else_is_not(wrong: str | None) -> None:
    """Missing, forged, expired, endless, unsigned."""
    with pytest.raises(NotAuthenticated):
        identify(SessionOpen("wren", token=wrong, user=UserClaim("ana", "Ana")), CLOSED)


def test_a_token_may_name_the_companions_it_is_for() -> None:
    """Others stay closed."""
    only = token(companions=["wren"])
    assert identify(SessionOpen("wren", token=only), CLOSED).user_id == "ana"
    with pytest.raises(NotAllowed):
        identify(SessionOpen("other", token=only), CLOSED)


@pytest.mark.parametrize(
    ("origin", "host", "allowed"),
    [
        (None, "127.0.0.1:8770", True),
        ("http://127.0.0.1:8770", "127.0.0.1:8770", True),
        ("http://localhost:8770", "localhost:8770", True),
        ("http://localhost:9999", "localhost:8770", False),
        ("https://evil.example", "127.0.0.1:8770", False),
        ("http://evil.example:8770", "evil.example:8770", False),
        ("null", "127.0.0.1:8770", False),
    ],
)
def test_foreign_pages_stay_outside(origin: str | None, host: str, allowed: bool) -> None:
    """Also those whose name was made to point here."""
    assert origin_allowed(origin, host, OPEN) is allowed


def test_listed_origins_may_connect() -> None:
    """A game's own site."""
    listed = load_settings(allowed_origins=("https://game.example",))
    assert origin_allowed("https://game.example", "127.0.0.1:8770", listed)
