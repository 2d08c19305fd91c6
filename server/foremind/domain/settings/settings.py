"""Server settings: read once from the environment and `foremind.toml`, then frozen."""

import ipaddress
import os
import re
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any, get_args
from urllib.parse import urlsplit

from pydantic import SecretStr, ValidationError, ValidationInfo, field_validator
from pydantic_settings import (
    BaseSettings,
    InitSettingsSource,
    PydanticBaseSettingsSource,
    SettingsConfigDict,
)

from foremind.domain.errors import InvalidFile, UnsafeBinding
from foremind.domain.settings.setting_definitions import (
    AccessSettings,
    CacheSettings,
    ClusterSettings,
    ConnectionSettings,
    DatabaseSettings,
    DecaySettings,
    EmbeddingSettings,
    LanguageModelSettings,
    LimitSettings,
    PromptSettings,
    RecallSettings,
    ServerSettings,
    StorageSettings,
    TypingSettings,
)
from foremind.domain.settings.setting_problems import expected_instead
from foremind.domain.settings.setting_syntax import PREFIX, parsed, unknown_keys, unknown_variables

SETTINGS_FILE = "foremind.toml"

_ORIGIN = re.compile(r"[a-z][a-z0-9+.-]*://[^/\s?#@]+")
_NATS_URL = re.compile(r"(nats|tls)://([^/\s?#,@]+@)?[^/\s?#,@]+/?")
_URL = re.compile(r"https?://[^/\s?#@]+(/\S*)?")
# Of one host or several; what else may be wrong, PostgreSQL's client says on connecting.
_DATABASE_URL = re.compile(
    r"postgres(?:ql)?://(?:[^@/?]*@)?(?:[^/?:\[\]]|\[[^\]]*\]|:\d*(?=[,/?]|$))*(?:[/?]|$)"
)
_MIN_SECRET_BYTES = 32
_SOCKET_URL = re.compile(r"wss?://[^/\s?#@{}]+/[^\s#{}]*")


def filled_url(template: str, name: str, port: int) -> str:
    """Return the URL of the gateway of that name, which listens on `port`."""
    return template.replace("{name}", name).replace("{port}", str(port))


def check_url(value: str | None) -> str | None:
    """Check that the address of a model server, if any, is an HTTP URL.

    Raises:
        ValueError: stating what was expected.
    """
    try:
        fits = not value or (_URL.fullmatch(value) is not None and urlsplit(value).port != 0)
    except ValueError:  # invalid port or address
        fits = False
    if not fits:
        raise ValueError("expected an address that begins with http:// or https://")
    return value


class Settings(
    ServerSettings,
    ClusterSettings,
    DatabaseSettings,
    EmbeddingSettings,
    AccessSettings,
    LanguageModelSettings,
    TypingSettings,
    CacheSettings,
    RecallSettings,
    StorageSettings,
    DecaySettings,
    PromptSettings,
    ConnectionSettings,
    LimitSettings,
    BaseSettings,
):
    """All settings of a server, frozen.

    The environment (`FOREMIND_` and the name in capitals) takes precedence over `foremind.toml` in
    the working directory, which takes precedence over the defaults.
    """

    model_config = SettingsConfigDict(
        env_prefix=PREFIX,
        frozen=True,
        extra="forbid",
        allow_inf_nan=False,
        enable_decoding=False,  # `_from_text` parses lists, also comma-separated ones
    )

    @field_validator("host_addresses", "trusted_proxies", mode="before")
    @classmethod
    def _addresses(cls, given: Any, info: ValidationInfo) -> Any:
        """Reject invalid addresses, which would silently have no effect."""
        for address in given if isinstance(given, list | tuple) else ():
            if address == "*" and info.field_name == "trusted_proxies":
                continue
            try:
                ipaddress.ip_network(address)
            except ValueError:
                raise ValueError("expected addresses or networks such as 10.0.0.0/8") from None
        return given

    @field_validator("*", mode="before")
    @classmethod
    def _from_text(cls, value: Any, info: ValidationInfo) -> Any:
        """Parse text from the environment or the file."""
        assert info.field_name is not None
        field = cls.model_fields[info.field_name]
        is_path = Path in (field.annotation, *get_args(field.annotation))
        if is_path and isinstance(value, str) and not value.strip():
            raise ValueError("expected a path; leave it unset for the default")
        return parsed(value, field.annotation) if isinstance(value, str) else value

    @field_validator("allowed_origins")
    @classmethod
    def _origins(cls, given: tuple[str, ...]) -> tuple[str, ...]:
        origins = tuple(origin.rstrip("/").lower() for origin in given)
        if not all(_ORIGIN.fullmatch(origin) for origin in origins):
            raise ValueError("expected origins such as https://game.example, without a path")
        return origins

    @field_validator("nats_url")
    @classmethod
    def _nats_url(cls, given: SecretStr | None) -> SecretStr | None:
        if given is None or not given.get_secret_value():
            return None
        if not all(_NATS_URL.fullmatch(url) for url in given.get_secret_value().split(",")):
            raise ValueError("expected addresses that begin with nats:// or tls://")
        return given

    @field_validator("llm_url", "embedding_url")
    @classmethod
    def _url(cls, given: str | None) -> str | None:
        return check_url(given)

    @field_validator("database_url")
    @classmethod
    def _database_url(cls, given: SecretStr | None) -> SecretStr | None:
        if given is not None and not _DATABASE_URL.match(given.get_secret_value()):
            raise ValueError(
                "expected an address such as postgresql://user:password@host:5432/database"
            )
        return given

    @field_validator("public_url")
    @classmethod
    def _public_url(cls, given: str | None) -> str | None:
        filled = filled_url(given or "", "gateway-1", 8770)
        if given is not None and not _SOCKET_URL.fullmatch(filled):
            raise ValueError(
                "expected a WebSocket URL such as wss://game.example/v1/ws?gateway={name}"
            )
        return given

    @classmethod
    def settings_customise_sources(
        cls,
        settings_cls: type[BaseSettings],
        init_settings: PydanticBaseSettingsSource,
        env_settings: PydanticBaseSettingsSource,
        dotenv_settings: PydanticBaseSettingsSource,
        file_secret_settings: PydanticBaseSettingsSource,
    ) -> tuple[PydanticBaseSettingsSource, ...]:
        return init_settings, env_settings, InitSettingsSource(settings_cls, _file())

    @property
    def models_dir(self) -> Path:
        """Where converted embedding models are kept."""
        return self.models_path or self.data_dir / "models"

    def in_scratch(self, folder: Path) -> "Settings":
        """Return these settings with an embedded database in `folder` and the same models."""
        return self.model_copy(
            update={"data_dir": folder, "models_path": self.models_dir, "database_url": None}
        )

    @property
    def open_mode(self) -> bool:
        """Whether clients state who they are instead of presenting a token."""
        return self.auth_secret is None and self.auth_keys is None


def load_settings(**overrides: object) -> Settings:
    """Read the settings.

    Args:
        overrides: values from the command line; None means not given.

    Raises:
        InvalidFile: settings are invalid or unknown; the message names each as it is written in
            the environment or the file, and what was expected, in one line.
    """
    given = {key: value for key, value in overrides.items() if value is not None}
    names = list(Settings.model_fields)
    file = _file()
    problems = [
        *unknown_variables(os.environ, names),
        *unknown_keys(SETTINGS_FILE, file, names),
    ]
    try:
        settings = None if problems else Settings(**given)  # type: ignore[arg-type]
    except ValidationError as error:
        problems = [_problem(part["loc"], expected_instead(part), file) for part in error.errors()]
        settings = None
    if settings is None:
        raise InvalidFile("; ".join(problems))
    return settings


def _problem(loc: tuple[int | str, ...], expected: str, file: Mapping[str, object]) -> str:
    """Describe an invalid setting by the name that it has at its origin."""
    name, *inner = (str(part) for part in loc if part != "[key]")
    variable = PREFIX + name.upper()
    in_environment = any(key.upper() == variable for key in os.environ)
    written = f"{SETTINGS_FILE}: {name}" if name in file and not in_environment else variable
    return f"{'.'.join([written, *inner])}: {expected}"


def _file() -> dict[str, Any]:
    """Return the contents of the settings file in the working directory.

    Raises:
        InvalidFile: it cannot be read.
    """
    try:
        return tomllib.loads(Path(SETTINGS_FILE).read_text("utf-8"))
    except FileNotFoundError:
        return {}
    except (OSError, ValueError, RecursionError) as error:  # also of decoding, and of TOML
        reason = " ".join(str(error).split())
        raise InvalidFile(f"{SETTINGS_FILE}: {reason}") from None


def check_secret(settings: Settings) -> None:
    """Refuse a secret that could be guessed, whether tokens are to be signed or verified with it.

    Raises:
        UnsafeBinding: it is too short for HS256 (RFC 7518, 3.2).
    """
    secret = settings.auth_secret
    if secret is not None and len(secret.get_secret_value().encode()) < _MIN_SECRET_BYTES:
        raise UnsafeBinding(f"FOREMIND_AUTH_SECRET must have at least {_MIN_SECRET_BYTES} bytes.")


def check_binding(settings: Settings) -> None:
    """Refuse to listen beyond loopback without authentication.

    Raises:
        UnsafeBinding: the address is reachable from outside and no keys are configured, or the
            secret is too short.
    """
    check_secret(settings)
    if not settings.open_mode:
        return
    if not is_loopback(settings.host):
        raise UnsafeBinding(
            f"Refusing to listen on {settings.host} without authentication: anyone could read "
            "anyone's memories. Set FOREMIND_AUTH_SECRET or FOREMIND_AUTH_KEYS, or listen on "
            "127.0.0.1."
        )


def is_loopback(host: str) -> bool:
    """Tell whether a host name or address is this machine's loopback."""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"
