"""The keys that tokens are signed with: one secret, or a file of keys that may change meanwhile."""

import hashlib
import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import jwt
import structlog
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey
from jwt.algorithms import OKPAlgorithm

from foremind.domain.errors import InvalidFile

_ALGORITHMS = ("HS256", "EdDSA")
MIN_SECRET_BYTES = 32

_log = structlog.get_logger("foremind.auth")


@dataclass(frozen=True, slots=True)
class SigningKey:
    """A key and the one algorithm it is for: a token does not choose its own.

    `fingerprint` tells it from another key of the same id.
    """

    id: str | None
    algorithm: str
    material: Any
    fingerprint: str = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "fingerprint", _fingerprint(self))


class KeyRing:
    """Finds keys by their `kid`.

    Args:
        secret: for HS256; it signs tokens that name no key, or any where there is no file.
        path: a JWK Set (RFC 7517) of `oct` keys for HS256 and Ed25519 keys for EdDSA, each with
            a `kid`. It is read again when it changes, so keys rotate without a restart.

    Raises:
        InvalidFile: the file is no such set.
    """

    def __init__(self, secret: str | None, path: Path | None) -> None:
        self._secret = None if secret is None else SigningKey(None, "HS256", secret)
        self._path = path
        self._seen: tuple[int, int] | None = None
        self._keys: dict[str, SigningKey] = {}
        if path is not None:
            self._keys = read_keys(path)
            self._seen = _state(path)

    def find(self, kid: str | None) -> SigningKey | None:
        """Return the key that a token names, or None where it is not known."""
        self._refresh()
        if kid is None or self._path is None:
            return self._secret
        return self._keys.get(kid)

    def signing(self, kid: str | None) -> SigningKey | None:
        """Return a key that can sign: the one named, else the secret, else the file's newest."""
        usable = [key for key in self._keys.values() if _signs(key)]
        if kid is not None:
            return next((each for each in usable if each.id == kid), None)
        return self._secret or (usable[-1] if usable else None)

    def _refresh(self) -> None:
        if self._path is None or (state := _state(self._path)) == self._seen:
            return
        self._seen = state
        try:
            self._keys = read_keys(self._path)
            _log.info("keys.read", keys=len(self._keys))
        except InvalidFile as error:  # half written, perhaps: what was known stays known
            _log.warning("keys.unreadable", reason=error.message)


def read_keys(path: Path) -> dict[str, SigningKey]:
    """Read a JWK Set.

    Raises:
        InvalidFile: naming the key and what is wrong with it.
    """
    try:
        listed = list(json.loads(path.read_text("utf-8"))["keys"])
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise InvalidFile(f"{path}: expected a JWK Set, {{'keys': [...]}}: {error}") from None
    keys = {}
    for position, each in enumerate(listed):
        try:
            read = jwt.PyJWK(each)
        except (jwt.PyJWTError, AttributeError, TypeError, ValueError) as error:
            raise InvalidFile(f"{path}: keys[{position}]: {error}") from None
        if not read.key_id or read.algorithm_name not in _ALGORITHMS:
            raise InvalidFile(
                f"{path}: keys[{position}]: expected a kid, and alg {' or '.join(_ALGORITHMS)}"
            )
        if isinstance(read.key, bytes) and len(read.key) < MIN_SECRET_BYTES:
            raise InvalidFile(f"{path}: keys[{position}]: expected {MIN_SECRET_BYTES} bytes")
        keys[read.key_id] = SigningKey(read.key_id, read.algorithm_name, read.key)
    return keys


def new_key(kid: str) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return a new Ed25519 key as JWKs: the whole, which signs, and its public half."""
    private = Ed25519PrivateKey.generate()
    named = {"kid": kid, "alg": "EdDSA", "use": "sig"}
    return (
        named | OKPAlgorithm.to_jwk(private, as_dict=True),
        named | OKPAlgorithm.to_jwk(private.public_key(), as_dict=True),
    )


def _fingerprint(key: SigningKey) -> str:
    """Return a hash of what verifies: the same for a private key and its public half."""
    material = key.material
    if isinstance(material, Ed25519PrivateKey):
        material = material.public_key()
    if isinstance(material, Ed25519PublicKey):
        material = material.public_bytes_raw()
    raw = material.encode() if isinstance(material, str) else material
    return hashlib.sha256(key.algorithm.encode() + b"\0" + raw).hexdigest()


def _signs(key: SigningKey) -> bool:
    return isinstance(key.material, bytes | Ed25519PrivateKey)


def _state(path: Path) -> tuple[int, int] | None:
    try:
        stat = path.stat()
    except OSError:
        return None
    return stat.st_mtime_ns, stat.st_size
