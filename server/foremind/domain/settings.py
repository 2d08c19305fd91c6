"""Server settings: read once from the environment and `foremind.toml`, then frozen."""

import ipaddress
import os
import re
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Literal, get_args
from urllib.parse import urlsplit

from pydantic import Field, SecretStr, ValidationError, ValidationInfo, field_validator
from pydantic_settings import (
    BaseSettings,
    InitSettingsSource,
    PydanticBaseSettingsSource,
    SettingsConfigDict,
)

from foremind.domain.errors import InvalidFile, UnsafeBinding
from foremind.domain.setting_syntax import PREFIX, parsed, unknown_keys, unknown_variables

SETTINGS_FILE = "foremind.toml"

# What no setting may exceed: far beyond any use, and well within what numbers and dates can hold.
MOST = 1_000_000_000
MOST_BYTES = 2**40
MOST_TOKENS = 10_000_000
LEAST_DAYS, MOST_DAYS = 0.01, 36_500
Days = Annotated[float, Field(ge=LEAST_DAYS, le=MOST_DAYS)]

Ahead = Literal["off", "prefill", "reply"]
Decay = Literal["window", "half_life", "hourly", "product"]
LayerName = Literal[
    "working", "summary", "opening", "episodes", "topics", "profile", "scratchpad", "questions",
    "hot", "library", "vault", "behaviours", "memories", "state",
]  # fmt: skip
LAYERS: tuple[LayerName, ...] = get_args(LayerName)
#: What `retention_days` calls the texts of what was said.
TRANSCRIPT = "transcript"
#: What may be kept for a time: layers of records, types of memories, and what was said.
KeptName = Literal[
    "summary", "opening", "episodes", "topics", "profile", "scratchpad", "questions", "hot",
    "vault", "conversation", "observation", "event", "relationship", "transcript",
]  # fmt: skip

_ORIGIN = re.compile(r"[a-z][a-z0-9+.-]*://[^/\s?#@]+")
_URL = re.compile(r"https?://[^/\s?#@]+(/\S*)?")


def check_url(value: str | None) -> str | None:
    """Check that an address of a model server, if any, is one of HTTP.

    Raises:
        ValueError: saying what was expected.
    """
    try:
        fits = not value or (_URL.fullmatch(value) is not None and urlsplit(value).port != 0)
    except ValueError:  # no port, or no address
        fits = False
    if not fits:
        raise ValueError("expected an address that begins with http:// or https://")
    return value


class Settings(BaseSettings):
    """Every setting, its default and its unit.

    The environment (`FOREMIND_` and the name in capitals) wins over `foremind.toml` in the
    working directory, which wins over these defaults. Every number has a least and a most.
    """

    model_config = SettingsConfigDict(
        env_prefix=PREFIX,
        frozen=True,
        extra="forbid",
        allow_inf_nan=False,
        enable_decoding=False,  # `_written` reads lists, also with commas
    )

    host: str = Field("127.0.0.1", description="address to listen on")
    port: int = Field(8770, ge=0, le=65535, description="port to listen on; 0 takes a free one")
    data_dir: Path = Field(Path(".foremind"), description="embedded database and converted models")
    log_format: Literal["console", "json"] = Field("console", description="shape of log lines")
    log_level: Literal["debug", "info", "warning", "error"] = Field(
        "info", description="least important level that is logged"
    )

    models_path: Path | None = Field(
        None, description="converted models, where not in the data directory"
    )

    database_url: SecretStr | None = Field(
        None, description="PostgreSQL to use instead of the embedded one"
    )
    database_pool_size: int = Field(10, ge=2, le=200, description="most connections held")
    database_timeout_s: float = Field(
        10.0, ge=0.01, le=3600, description="longest a statement may take"
    )

    embedding_model: str = Field("all-MiniLM-L6-v2", description="name of a model manifest")
    embedding_queue_size: int = Field(
        256, ge=4, le=1_000_000, description="most embeddings waiting"
    )

    auth_secret: SecretStr | None = Field(
        None, description="HS256 secret (32 bytes or more); set, every session needs a token"
    )
    auth_keys: Path | None = Field(
        None, description="JWK Set of keys that sign tokens, by kid; read again when it changes"
    )
    auth_audience: str | None = Field(
        None, description="what `aud` of a token must be; unset, it is not looked at"
    )
    allowed_origins: tuple[str, ...] = Field(
        (), description="web origins besides the server's own that may connect, and use HTTP"
    )

    pause_ms: int = Field(500, ge=50, le=10_000, description="rest that counts as a pause")
    eager: bool = Field(True, description="prepare at settled keystrokes, not only at pauses")
    prepared_ttl_s: float = Field(60.0, ge=0.01, le=3600, description="life of a prepared context")
    prepared_capacity: int = Field(
        10_000, ge=1, le=10_000_000, description="most prepared contexts held"
    )
    prepared_bytes: int = Field(
        67_108_864, ge=0, le=MOST_BYTES, description="most memory for prepared contexts"
    )

    index_bytes: int = Field(
        268_435_456,
        ge=0,
        le=MOST_BYTES,
        description="most memory for relationships' memories in the process",
    )
    layers_bytes: int = Field(
        134_217_728,
        ge=0,
        le=MOST_BYTES,
        description="most memory for relationships' other layers in the process",
    )

    vector_weight: float = Field(0.70, ge=0, le=1, description="share of the cosine in a score")
    keyword_weight: float = Field(0.30, ge=0, le=1, description="share of BM25 in a score")
    significance_threshold: float = Field(
        0.30, ge=0, le=1, description="least significance that is stored and recalled"
    )
    significance_weight: float = Field(
        0.25, ge=0, le=1, description="what a memory's significance adds to its score"
    )
    session_weight: float = Field(
        0.30, ge=0, le=1, description="what the best memory of its session adds to a score"
    )
    time_weight: float = Field(
        0.20, ge=0, le=1, description="what fitting a time that was asked for adds to a score"
    )
    memory_decay: Decay = Field(
        "window", description="how memories fade: window, half_life, hourly or product"
    )
    memory_max_age_days: float | None = Field(
        90.0,
        ge=LEAST_DAYS,
        le=MOST_DAYS,
        description="oldest memory the window recalls; 'null' in the file: no limit",
    )
    memory_half_life_days: float = Field(
        180.0,
        ge=LEAST_DAYS,
        le=MOST_DAYS,
        description="time after which an unused memory has half its recency, under 'half_life'",
    )
    recency_weight: float = Field(
        0.10, ge=0, le=1, description="what recency adds to a score, where memories fade"
    )
    permanent_significance: float = Field(
        0.85, ge=0, le=1, description="significance from which a memory never fades"
    )
    user_weight: float = Field(
        1.0, ge=0.01, le=2, description="weight of the user's own words under 'product'"
    )
    read_in_exchange: bool = Field(
        True, description="read a turn together with those around it and its speaker's name"
    )
    consolidate: bool = Field(
        True, description="merge memories that say the same, mark those that no longer hold"
    )
    recall_gate: bool = Field(
        True, description="recall nothing for a text that no memory could help to answer"
    )
    recall_min_score: float = Field(
        0.10, ge=0, le=1, description="least relevance (70/30) of a recalled memory"
    )
    recall_min_share: float = Field(
        0.5, ge=0, le=1, description="least score of a recalled memory, as a share of the best"
    )
    recall_limit: int = Field(10, ge=0, le=100, description="most memories in a context")

    context_tokens: int = Field(
        16_384, ge=200, le=MOST_TOKENS, description="tokens the language model takes in"
    )
    working_tokens: int = Field(
        12_000,
        ge=0,
        le=MOST_TOKENS,
        description="most tokens of recent turns in a prompt, where they fit",
    )
    session_hours: float = Field(
        24.0,
        ge=0.01,
        le=24 * MOST_DAYS,
        description="time without a word after which a session is over",
    )
    layers_off: frozenset[LayerName] = Field(
        frozenset(), description="layers of memory that are switched off, by name"
    )
    layers_share: float = Field(
        0.20, ge=0, le=0.9, description="share of the model's context for all layers of memory"
    )
    layers_deadline_ms: int = Field(
        1000, ge=1, le=10_000, description="what is not recalled by then is left out of a context"
    )
    recall_timeout_s: float = Field(
        2.0, gt=0, le=3600, description="longest that Enter waits for recall; then it goes without"
    )
    summary_tokens: int = Field(
        8000,
        ge=100,
        le=MOST_TOKENS,
        description="tokens of turns from which the oldest are summarised",
    )
    summary_messages: int = Field(
        20, ge=12, le=500, description="number of turns from which the oldest are summarised"
    )
    topic_half_life_days: float = Field(
        180.0,
        ge=LEAST_DAYS,
        le=MOST_DAYS,
        description="time after which a topic without news has half its weight",
    )
    retention_days: dict[KeptName, Days] = Field(
        {},
        description="days that layers, types of memories and the transcript are kept, by name",
    )

    llm_url: str | None = Field(None, description="base URL of an OpenAI-compatible server")
    llm_model: str = Field("default", description="model name sent to it")
    llm_key: SecretStr | None = Field(None, description="its key, where it wants one")
    llm_tokenizer: Path | None = Field(
        None, description="its tokenizer.json; without, three bytes count as a token"
    )
    llm_max_tokens: int = Field(
        400, ge=1, le=MOST_TOKENS, description="hard limit of a reply, in tokens"
    )
    llm_temperature: float = Field(0.8, ge=0, le=2, description="sampling temperature")
    llm_ahead: Ahead = Field(
        "off", description="what the model does before Enter: off, prefill (read) or reply"
    )
    llm_slots: int = Field(
        1, ge=1, le=1024, description="requests that the model server works on at once"
    )
    llm_connect_timeout_s: float = Field(
        5.0, ge=0.01, le=3600, description="longest wait to connect"
    )
    llm_token_timeout_s: float = Field(
        30.0, ge=0.01, le=3600, description="longest wait for the next token"
    )
    llm_reply_timeout_s: float = Field(
        120.0, ge=0.01, le=86_400, description="longest a whole reply may take"
    )

    max_connections: int | None = Field(
        None,
        ge=1,
        le=MOST,
        description="most connections; unset, what descriptors allow, at most 10,000",
    )
    body_bytes: int = Field(
        268_435_456,
        ge=1_048_576,
        le=MOST_BYTES,
        description="most that request bodies take at once, and exports",
    )
    max_sessions: int = Field(5000, ge=1, le=MOST, description="most sessions at once")
    max_sessions_per_user: int = Field(50, ge=1, le=MOST, description="most sessions of one user")
    max_connections_per_address: int = Field(
        500, ge=1, le=MOST, description="most connections from one address; loopback has no limit"
    )
    host_addresses: tuple[ipaddress.IPv4Network | ipaddress.IPv6Network, ...] = Field(
        (), description="addresses or networks of game servers, not bound by that limit"
    )
    trusted_proxies: tuple[str, ...] = Field(
        ("127.0.0.1",), description="addresses whose X-Forwarded-For is believed"
    )
    drafts_per_s: float = Field(
        30.0,
        ge=0.01,
        le=MOST,
        description="drafts a second of one connection; a faster one is slowed down",
    )
    sends_per_s: float = Field(
        30.0, ge=0.01, le=MOST, description="other messages a second of one connection, likewise"
    )
    http_per_s: float = Field(
        50.0,
        ge=0.01,
        le=MOST,
        description="HTTP requests a second of one user; more are answered with 429",
    )
    resume_s: float = Field(
        300.0, ge=0.01, le=604_800, description="time in which a lost connection can be resumed"
    )
    reply_grace_s: float = Field(
        60.0, ge=0, le=86_400, description="time that a reply goes on after its connection is lost"
    )
    max_text_chars: int = Field(8000, ge=1, le=16000, description="longest draft or message")
    open_timeout_s: float = Field(
        10.0, ge=0.01, le=3600, description="time for session.open to come"
    )
    heartbeat_s: float = Field(20.0, ge=0.01, le=25, description="interval of WebSocket pings")
    heartbeat_timeout_s: float = Field(
        20.0, ge=0.01, le=3600, description="longest wait for a pong"
    )
    outbound_bytes: int = Field(
        1_048_576, ge=65_536, le=MOST_BYTES, description="most bytes waiting for a slow reader"
    )
    drain_s: float = Field(
        15.0, ge=0, le=86_400, description="time given to running replies at shutdown"
    )

    @field_validator("host_addresses", "trusted_proxies", mode="before")
    @classmethod
    def _addresses(cls, given: Any, info: ValidationInfo) -> Any:
        """Refuse what is no address: it would have no effect, and nobody would notice."""
        for each in given if isinstance(given, list | tuple) else ():
            if each == "*" and info.field_name == "trusted_proxies":
                continue
            try:
                ipaddress.ip_network(each)
            except ValueError:
                raise ValueError("expected addresses or networks such as 10.0.0.0/8") from None
        return given

    @field_validator("*", mode="before")
    @classmethod
    def _written(cls, value: Any, info: ValidationInfo) -> Any:
        """Read a text as the environment and the file hold it."""
        assert info.field_name is not None
        field = cls.model_fields[info.field_name]
        return parsed(value, field.annotation) if isinstance(value, str) else value

    @field_validator("allowed_origins")
    @classmethod
    def _origins(cls, given: tuple[str, ...]) -> tuple[str, ...]:
        origins = tuple(each.rstrip("/").lower() for each in given)
        if not all(_ORIGIN.fullmatch(origin) for origin in origins):
            raise ValueError("expected origins such as https://game.example, without a path")
        return origins

    @field_validator("llm_url")
    @classmethod
    def _url(cls, given: str | None) -> str | None:
        return check_url(given)

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
        """True where clients name themselves instead of showing a token."""
        return self.auth_secret is None and self.auth_keys is None


def load_settings(**overrides: object) -> Settings:
    """Read the settings.

    Args:
        overrides: values from the command line; None means not given.

    Raises:
        InvalidFile: a setting is wrong or unknown; the message, one line, names each as it is
            written in the environment or the file, and what it wants.
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
        problems = [_problem(each["loc"], each["msg"], file) for each in error.errors()]
        settings = None
    if settings is None:
        raise InvalidFile("; ".join(problems))
    return settings


def _problem(loc: tuple[int | str, ...], message: str, file: Mapping[str, object]) -> str:
    """Say what is wrong with a setting, named as it is where it comes from."""
    name, *inner = (str(part) for part in loc)
    variable = PREFIX + name.upper()
    in_environment = any(each.upper() == variable for each in os.environ)
    written = f"{SETTINGS_FILE}: {name}" if name in file and not in_environment else variable
    return f"{'.'.join([written, *inner])}: {message.removeprefix('Value error, ')}"


def _file() -> dict[str, Any]:
    """Return what the settings file of the working directory holds.

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


def check_binding(settings: Settings) -> None:
    """Refuse to listen beyond loopback while clients may name themselves.

    Raises:
        UnsafeBinding: the address is reachable from outside and no secret is set.
    """
    if not settings.open_mode:
        secret = settings.auth_secret
        if secret is not None and len(secret.get_secret_value().encode()) < 32:
            raise UnsafeBinding("FOREMIND_AUTH_SECRET must have at least 32 bytes.")
        return
    if not is_loopback(settings.host):
        raise UnsafeBinding(
            f"Refusing to listen on {settings.host} without authentication: anyone could read "
            "anyone's memories. Set FOREMIND_AUTH_SECRET or FOREMIND_AUTH_KEYS, or listen on "
            "127.0.0.1."
        )


def is_loopback(host: str) -> bool:
    """Tell whether a name or an address can only be this machine's own."""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"
