"""The keys that sign tokens: one shared secret, or a JWK Set file that is reloaded on change."""

import hashlib
import json
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import jwt
import structlog
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey
from jwt.algorithms import OKPAlgorithm

from foremind.domain.errors import InvalidFile
from foremind.domain.health import OK, degraded

_ALGORITHMS = ("HS256", "EdDSA")
MIN_SECRET_BYTES = 32
_KEEP_S = 10.0  # for which earlier keys are used while the file cannot be read
_RETRY_S = 1.0

_log = structlog.get_logger("foremind.auth")


@dataclass(frozen=True, slots=True)
class SigningKey:
    """A key and the only algorithm it is used with, whatever a token's header says.

    `fingerprint` distinguishes it from other keys with the same id.
    """

    id: str | None
    algorithm: str
    material: Any
    fingerprint: str = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "fingerprint", _fingerprint(self))


class KeyRing:
    """Finds keys by `kid`.

    Args:
        secret: the HS256 secret for tokens without a `kid`, or for all tokens if there is no file.
        path: a JWK Set (RFC 7517) of `oct` keys for HS256 and Ed25519 keys for EdDSA, each with
            a `kid`. It is reloaded when it changes, so keys rotate without a restart. While it
            cannot be read, the keys read before are used for ten seconds, and then none.
        monotonic: returns the time in seconds.

    Raises:
        InvalidFile: the file is not such a set.
    """

    def __init__(
        self,
        secret: str | None,
        path: Path | None,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self._secret = None if secret is None else SigningKey(None, "HS256", secret)
        self._path = path
        self._loaded_state: tuple[int, int, int] | None = None
        self._keys: dict[str, SigningKey] = {}
        self._monotonic = monotonic
        self._unreadable_since: float | None = None
        self._retry_at = float("inf")
        if path is not None:
            self._keys = read_keys(path)
            self._loaded_state = _file_state(path)

    def health(self) -> dict[str, str]:
        """Return what is wrong with the file, if there is one."""
        if self._path is None:
            return {}
        self._refresh()
        unreadable = self._unreadable_since is not None
        return {"keys": degraded("the file of keys cannot be read") if unreadable else OK}

    def find(self, kid: str | None) -> SigningKey | None:
        """Return the key with this id, or None if it is unknown."""
        self._refresh()
        if kid is None or self._path is None:
            return self._secret
        return self._keys.get(kid)

    def signing_key(self, kid: str | None) -> SigningKey | None:
        """Return a key that can sign: the one with this id, or the secret, or the file's last."""
        signing_keys = [key for key in self._keys.values() if _can_sign(key)]
        if kid is not None:
            return next((key for key in signing_keys if key.id == kid), None)
        return self._secret or (signing_keys[-1] if signing_keys else None)

    def _refresh(self) -> None:
        if self._path is None:
            return
        now, state = self._monotonic(), _file_state(self._path)
        if state == self._loaded_state and now < self._retry_at:
            return
        self._loaded_state = state
        try:
            self._keys, self._unreadable_since = read_keys(self._path), None
            self._retry_at = float("inf")
            _log.info("keys.read", keys=len(self._keys))
        except InvalidFile as error:  # perhaps half-written
            self._retry_at = now + _RETRY_S
            if self._unreadable_since is None:
                self._unreadable_since = now
                _log.error("keys.unreadable", reason=error.message, kept_s=_KEEP_S)
            if now - self._unreadable_since > _KEEP_S and self._keys:
                self._keys = {}
                _log.error("keys.dropped")


def read_keys(path: Path) -> dict[str, SigningKey]:
    """Read a JWK Set.

    Raises:
        InvalidFile: the message names the key and what is wrong with it.
    """
    try:
        if path.exists() and not path.is_file():
            raise OSError("it is no regular file")  # reading a pipe may never end
        jwks = list(json.loads(path.read_text("utf-8"))["keys"])
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise InvalidFile(f"{path}: expected a JWK Set, {{'keys': [...]}}: {error}") from None
    keys = {}
    for position, jwk in enumerate(jwks):
        try:
            key = jwt.PyJWK(jwk)
        except (jwt.PyJWTError, AttributeError, TypeError, ValueError) as error:
            raise InvalidFile(f"{path}: keys[{position}]: {error}") from None
        if not key.key_id or key.algorithm_name not in _ALGORITHMS:
            raise InvalidFile(
                f"{path}: keys[{position}]: expected a kid, and alg {' or '.join(_ALGORITHMS)}"
            )
        if isinstance(key.key, bytes) and len(key.key) < MIN_SECRET_BYTES:
            raise InvalidFile(
                f"{path}: keys[{position}]: expected at least {MIN_SECRET_BYTES} bytes"
            )
        keys[key.key_id] = SigningKey(key.key_id, key.algorithm_name, key.key)
    return keys


def generate_key(kid: str) -> tuple[dict[str, Any], dict[str, Any]]:
    """Generate an Ed25519 key; return its private and its public JWK."""
    private = Ed25519PrivateKey.generate()
    header = {"kid": kid, "alg": "EdDSA", "use": "sig"}
    return (
        header | OKPAlgorithm.to_jwk(private, as_dict=True),
        header | OKPAlgorithm.to_jwk(private.public_key(), as_dict=True),
    )


def _fingerprint(key: SigningKey) -> str:
    """Return a hash of the verifying half: equal for a private key and its public key."""
    material = key.material
    if isinstance(material, Ed25519PrivateKey):
        material = material.public_key()
    if isinstance(material, Ed25519PublicKey):
        material = material.public_bytes_raw()
    raw = material.encode() if isinstance(material, str) else material
    return hashlib.sha256(key.algorithm.encode() + b"\0" + raw).hexdigest()


def _can_sign(key: SigningKey) -> bool:
    return isinstance(key.material, bytes | Ed25519PrivateKey)


def _file_state(path: Path) -> tuple[int, int, int] | None:
    try:
        stat = path.stat()
    except OSError:
        return None
    return stat.st_mtime_ns, stat.st_ctime_ns, stat.st_size
