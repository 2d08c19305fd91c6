"""`foremind token` and `foremind keys`: access tokens for players, and the keys that sign them."""

import json
import uuid
from contextlib import suppress
from pathlib import Path
from typing import Any

import typer

from foremind.app.configuration import load_settings
from foremind.auth.access_tokens import mint
from foremind.auth.authority import load_keyring
from foremind.auth.principal import SCOPES, user_id_problem
from foremind.auth.signing_keys import generate_key, read_keys
from foremind.domain.clock import SystemClock
from foremind.domain.errors import InvalidFile

keys = typer.Typer(help="Create keys that sign access tokens.", no_args_is_help=True)


def token(
    user: str = typer.Option(help="User id of the player (claim sub)."),
    name: str | None = typer.Option(None, help="Display name; the user id by default."),
    companion: list[str] = typer.Option(
        [], help="Slug of a companion that the player may talk to; repeatable. Default: all."
    ),
    scope: list[str] = typer.Option([], help=f"Scope, repeatable: {', '.join(sorted(SCOPES))}."),
    minutes: float = typer.Option(60.0, min=0.01, help="Validity in minutes."),
    kid: str | None = typer.Option(None, help="Id of the key in FOREMIND_AUTH_KEYS to sign with."),
) -> None:
    """Create an access token, signed with FOREMIND_AUTH_SECRET or FOREMIND_AUTH_KEYS.

    For development: in production, the game server signs tokens itself.
    """
    settings = load_settings()
    if unknown := set(scope) - SCOPES:
        raise typer.BadParameter(f"scope: {', '.join(unknown)}; expected {', '.join(SCOPES)}")
    if problem := user_id_problem(user):
        raise typer.BadParameter(f"user: {problem}")
    key = load_keyring(settings).signing_key(kid)
    if key is None:
        raise InvalidFile(
            "There is no key to sign with: set FOREMIND_AUTH_SECRET, or FOREMIND_AUTH_KEYS to a "
            "file with a private key (foremind keys new makes one)."
        )
    now = SystemClock().now().timestamp()
    claims: dict[str, Any] = {
        "sub": user,
        "name": name or user,
        "iat": int(now),
        "exp": int(now + minutes * 60),
        "jti": uuid.uuid4().hex,
    }
    if companion:
        claims["companions"] = companion
    if scope:
        claims["scopes"] = scope
    if settings.auth_audience:
        claims["aud"] = settings.auth_audience
    print(mint(claims, key))


@keys.command("new")
def new(
    private: Path = typer.Option(
        help="New file for the private key, which the game server signs with."
    ),
    public: Path = typer.Option(
        help="File for FOREMIND_AUTH_KEYS, to which the public key is added."
    ),
    kid: str = typer.Option(
        help="Id of the new key, such as 2026-11; must not have been used before."
    ),
) -> None:
    """Create an Ed25519 key pair.

    To rotate keys, create a new pair, switch the game server to it, and remove the old public key
    from the file once its tokens have expired. Servers reload the file without a restart.
    """
    public_keys = []
    if public.exists():
        if kid in read_keys(public):
            raise InvalidFile(f"{public}: has a key named {kid} already")
        public_keys = json.loads(public.read_text("utf-8"))["keys"]
    private_key, public_key = generate_key(kid)
    temporary = public.with_suffix(".new")
    try:
        # Replaced atomically: a server may be reading it. Where that cannot be, nothing is made.
        temporary.write_text(json.dumps({"keys": [*public_keys, public_key]}, indent=2) + "\n")
        private.touch(mode=0o600, exist_ok=False)
        private.write_text(json.dumps({"keys": [private_key]}, indent=2) + "\n")
        temporary.replace(public)
    except OSError as error:
        with suppress(OSError):
            temporary.unlink()
        raise InvalidFile(f"{error.filename}: expected a file that can be made: {error}") from None
    print(f"Key {kid}: {private} signs, {public} verifies.")
