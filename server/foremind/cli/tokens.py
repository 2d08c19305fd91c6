"""`foremind token` and `foremind keys`: what a game server needs to let its players in."""

import json
import uuid
from pathlib import Path
from typing import Any

import typer

from foremind.auth.access_tokens import mint
from foremind.auth.authority import keyring
from foremind.auth.principal import SCOPES, user_id_problem
from foremind.auth.signing_keys import new_key, read_keys
from foremind.domain.clock import SystemClock
from foremind.domain.errors import InvalidFile
from foremind.domain.settings import load_settings

keys = typer.Typer(help="Keys that sign tokens.", no_args_is_help=True)


def token(
    user: str = typer.Option(help="Id of the player (claim sub)."),
    name: str | None = typer.Option(None, help="Display name; by default the id."),
    companion: list[str] = typer.Option([], help="Slug it may open; repeat it. All, if none."),
    scope: list[str] = typer.Option([], help=f"{', '.join(sorted(SCOPES))}; repeat it."),
    minutes: float = typer.Option(60.0, min=0.01, help="How long it is valid."),
    kid: str | None = typer.Option(None, help="Key of FOREMIND_AUTH_KEYS to sign with."),
) -> None:
    """Mint a token, signed with FOREMIND_AUTH_SECRET or a private key of FOREMIND_AUTH_KEYS.

    For development: a game server mints its own.
    """
    settings = load_settings()
    if unknown := set(scope) - SCOPES:
        raise typer.BadParameter(f"scope: {', '.join(unknown)}; expected {', '.join(SCOPES)}")
    if problem := user_id_problem(user):
        raise typer.BadParameter(f"user: {problem}")
    key = keyring(settings).signing(kid)
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
    private: Path = typer.Option(help="File for the game server: the key that signs."),
    public: Path = typer.Option(help="File for FOREMIND_AUTH_KEYS; the key is added to it."),
    kid: str = typer.Option(help="Its name, such as 2026-11; never used before."),
) -> None:
    """Make an Ed25519 key pair. Remove the old public key once its tokens have expired."""
    known = []
    if public.exists():
        if kid in read_keys(public):
            raise InvalidFile(f"{public}: has a key named {kid} already")
        known = json.loads(public.read_text("utf-8"))["keys"]
    whole, half = new_key(kid)
    fresh = public.with_suffix(".new")
    try:
        private.touch(mode=0o600, exist_ok=False)
        private.write_text(json.dumps({"keys": [whole]}, indent=2) + "\n")
        # In one step: a server may be reading it.
        fresh.write_text(json.dumps({"keys": [*known, half]}, indent=2) + "\n")
        fresh.replace(public)
    except OSError as error:
        raise InvalidFile(f"{error.filename}: expected a file that can be made: {error}") from None
    print(f"Key {kid}: {private} signs, {public} verifies.")
