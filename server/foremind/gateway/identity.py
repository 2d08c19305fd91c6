"""Who a caller is: a token where a secret is set, else what the client says of itself. Pure."""

from dataclasses import dataclass
from urllib.parse import urlsplit

import jwt

from foremind.errors import NotAllowed, NotAuthenticated
from foremind.gateway.messages import SessionOpen
from foremind.settings import Settings

_LOOPBACK = frozenset({"localhost", "127.0.0.1", "::1"})
_ALGORITHM = "HS256"
_MAX_NAME_CHARS = 64


@dataclass(frozen=True, slots=True)
class Identity:
    """A known caller; `companions` are the slugs it may open, None for all.

    `admin`: it acts for the companion's owner, not only for itself.
    """

    user_id: str
    name: str
    companions: frozenset[str] | None = None
    admin: bool = False

    def may_open(self, slug: str) -> bool:
        """Tell whether this caller may talk with a companion."""
        return self.companions is None or slug in self.companions


def identify(message: SessionOpen, settings: Settings) -> Identity:
    """Return who wants to open a session.

    Raises:
        NotAuthenticated: the token is missing, wrong or expired, or no user is given.
        NotAllowed: this caller may not open this companion.
    """
    if settings.open_mode:
        if message.user is None:
            raise NotAuthenticated("user: expected {id, name}", param="user")
        identity = Identity(message.user.id, message.user.name)
    else:
        identity = identify_token(message.token, settings)
    if not identity.may_open(message.companion):
        raise NotAllowed("companion: the token does not allow this one", param="companion")
    return identity


def identify_request(
    token: str | None, user_id: str | None, host: str | None, settings: Settings
) -> Identity:
    """Return who sends an HTTP request: by token, or in open mode the `user` it names.

    In open mode the request must be made to a loopback name: a page of a foreign name that points
    here (DNS rebinding) is nobody.

    Raises:
        NotAuthenticated: the token is missing, wrong or expired, or no user is given.
    """
    if not settings.open_mode:
        return identify_token(token, settings)
    if host not in _LOOPBACK:
        raise NotAuthenticated("host: expected a loopback name", param="host")
    if not user_id:
        raise NotAuthenticated("user: expected the id of a user", param="user")
    return Identity(user_id, user_id, admin=True)


def identify_token(token: str | None, settings: Settings) -> Identity:
    """Return whom a token names: `sub`, `name`, `companions` where it limits them, `scopes`.

    Raises:
        NotAuthenticated: it is missing, wrong or expired.
    """
    if not token or settings.auth_secret is None:
        raise NotAuthenticated("token: expected a signed token", param="token")
    try:
        claims = jwt.decode(
            token,
            settings.auth_secret.get_secret_value(),
            algorithms=[_ALGORITHM],
            options={"require": ["sub", "exp"]},
        )
    except jwt.PyJWTError as error:
        raise NotAuthenticated(f"token: {error}", param="token") from None
    subject, name = claims["sub"], claims.get("name") or claims["sub"]
    companions = claims.get("companions")
    if not isinstance(subject, str) or not subject or not isinstance(name, str):
        raise NotAuthenticated("token: expected text in 'sub' and 'name'", param="token")
    if companions is not None and not isinstance(companions, list):
        raise NotAuthenticated("token: expected a list in 'companions'", param="token")
    allowed = None if companions is None else frozenset(map(str, companions))
    scopes = claims.get("scopes") or ()
    admin = isinstance(scopes, list) and "admin" in scopes
    return Identity(subject, name[:_MAX_NAME_CHARS], allowed, admin)


def origin_allowed(origin: str | None, host: str | None, settings: Settings) -> bool:
    """Tell whether a page from `origin` may connect to this server, reached as `host`.

    A program sends no origin. A page must come from this server or be listed. In open mode its
    host must also be a loopback name: a foreign name that points here (DNS rebinding) is not.
    """
    if origin is None or origin in settings.allowed_origins:
        return True
    page = urlsplit(origin)
    if settings.open_mode and page.hostname not in _LOOPBACK:
        return False
    return page.netloc == host
