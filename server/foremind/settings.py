"""Server settings: read once from the environment and `foremind.toml`, then frozen."""

import ipaddress
from pathlib import Path
from typing import Annotated, Literal, get_args

from pydantic import Field, SecretStr, ValidationError
from pydantic_settings import (
    BaseSettings,
    PydanticBaseSettingsSource,
    SettingsConfigDict,
    TomlConfigSettingsSource,
)

from foremind.errors import InvalidFile, UnsafeBinding

SETTINGS_FILE = "foremind.toml"

Ahead = Literal["off", "prefill", "reply"]
Decay = Literal["window", "half_life", "hourly", "product"]
LayerName = Literal[
    "working", "summary", "opening", "episodes", "topics", "profile", "scratchpad", "questions",
    "hot", "library", "vault", "behaviours", "memories",
]  # fmt: skip
LAYERS: tuple[LayerName, ...] = get_args(LayerName)


class Settings(BaseSettings):
    """Every setting, its default and its unit.

    The environment (`FOREMIND_` and the name in capitals) wins over `foremind.toml` in the
    working directory, which wins over these defaults.
    """

    model_config = SettingsConfigDict(
        env_prefix="FOREMIND_", toml_file=SETTINGS_FILE, frozen=True, extra="ignore"
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
    database_timeout_s: float = Field(10.0, gt=0, description="longest a statement may take")

    embedding_model: str = Field("all-MiniLM-L6-v2", description="name of a model manifest")
    embedding_queue_size: int = Field(256, ge=4, description="most embeddings waiting")

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
        (), description="web origins besides the server's own that may connect"
    )

    pause_ms: int = Field(500, ge=50, le=10_000, description="rest that counts as a pause")
    eager: bool = Field(True, description="prepare at settled keystrokes, not only at pauses")
    prepared_ttl_s: float = Field(60.0, gt=0, description="life of a prepared context")
    prepared_capacity: int = Field(10_000, ge=1, description="most prepared contexts held")

    index_bytes: int = Field(
        268_435_456, ge=0, description="most memory for relationships' memories in the process"
    )
    layers_bytes: int = Field(
        134_217_728, ge=0, description="most memory for relationships' other layers in the process"
    )

    vector_weight: float = Field(0.70, ge=0, le=1, description="share of the cosine in a score")
    keyword_weight: float = Field(0.30, ge=0, le=1, description="share of BM25 in a score")
    significance_threshold: float = Field(
        0.30, ge=0, le=1, description="least significance that is stored and recalled"
    )
    significance_weight: float = Field(
        0.25, ge=0, le=1, description="what a memory's significance adds to its score"
    )
    time_weight: float = Field(
        0.20, ge=0, le=1, description="what fitting a time that was asked for adds to a score"
    )
    memory_decay: Decay = Field(
        "window", description="how memories fade: window, half_life, hourly or product"
    )
    memory_max_age_days: float | None = Field(
        90.0, gt=0, description="oldest memory the window recalls; 'null' in the file: no limit"
    )
    memory_half_life_days: float = Field(
        180.0, gt=0, description="time after which an unused memory has half its recency"
    )
    recency_weight: float = Field(
        0.10, ge=0, le=1, description="what recency adds to a score, where memories fade"
    )
    permanent_significance: float = Field(
        0.85, ge=0, le=1, description="significance from which a memory never fades"
    )
    user_weight: float = Field(
        1.0, gt=0, le=2, description="weight of the user's own words under 'product'"
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
    recall_limit: int = Field(10, ge=0, le=100, description="most memories in a context")

    context_tokens: int = Field(16_384, ge=200, description="tokens the language model takes in")
    working_tokens: int = Field(
        12_000, ge=0, description="most tokens of recent turns in a prompt, where they fit"
    )
    session_hours: float = Field(
        24.0, gt=0, description="time without a word after which a session is over"
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
    summary_tokens: int = Field(
        8000, ge=100, description="tokens of turns from which the oldest are summarised"
    )
    summary_messages: int = Field(
        20, ge=12, le=500, description="number of turns from which the oldest are summarised"
    )
    topic_half_life_days: float = Field(
        180.0, gt=0, description="time after which a topic without news has half its weight"
    )
    retention_days: dict[str, Annotated[float, Field(gt=0)]] = Field(
        {}, description="days that layers and types of memories are kept, by name; others stay"
    )

    llm_url: str | None = Field(None, description="base URL of an OpenAI-compatible server")
    llm_model: str = Field("default", description="model name sent to it")
    llm_key: SecretStr | None = Field(None, description="its key, where it wants one")
    llm_tokenizer: Path | None = Field(
        None, description="its tokenizer.json; without, four bytes count as a token"
    )
    llm_max_tokens: int = Field(400, ge=1, description="hard limit of a reply, in tokens")
    llm_temperature: float = Field(0.8, ge=0, le=2, description="sampling temperature")
    llm_ahead: Ahead = Field(
        "off", description="what the model does before Enter: off, prefill (read) or reply"
    )
    llm_slots: int = Field(
        1, ge=1, le=1024, description="requests that the model server works on at once"
    )
    llm_connect_timeout_s: float = Field(5.0, gt=0, description="longest wait to connect")
    llm_token_timeout_s: float = Field(30.0, gt=0, description="longest wait for the next token")
    llm_reply_timeout_s: float = Field(120.0, gt=0, description="longest a whole reply may take")

    max_sessions: int = Field(5000, ge=1, description="most sessions at once")
    max_sessions_per_user: int = Field(50, ge=1, description="most sessions of one user")
    max_connections_per_address: int = Field(
        500, ge=1, description="most connections from one address; loopback has no limit"
    )
    trusted_proxies: tuple[str, ...] = Field(
        ("127.0.0.1",), description="addresses whose X-Forwarded-For is believed"
    )
    drafts_per_s: float = Field(
        30.0, gt=0, description="drafts a second of one connection; a faster one is slowed down"
    )
    sends_per_s: float = Field(
        30.0, gt=0, description="other messages a second of one connection, likewise"
    )
    http_per_s: float = Field(
        50.0, gt=0, description="HTTP requests a second of one user; more are answered with 429"
    )
    resume_s: float = Field(
        300.0, gt=0, description="time in which a lost connection can be resumed"
    )
    reply_grace_s: float = Field(
        60.0, ge=0, description="time that a reply goes on after its connection is lost"
    )
    max_text_chars: int = Field(8000, ge=1, le=16000, description="longest draft or message")
    open_timeout_s: float = Field(10.0, gt=0, description="time for session.open to come")
    heartbeat_s: float = Field(20.0, gt=0, le=25, description="interval of WebSocket pings")
    heartbeat_timeout_s: float = Field(20.0, gt=0, description="longest wait for a pong")
    outbound_bytes: int = Field(
        1_048_576, ge=65_536, description="most bytes waiting for a slow reader"
    )
    drain_s: float = Field(15.0, ge=0, description="time given to running replies at shutdown")

    @classmethod
    def settings_customise_sources(
        cls,
        settings_cls: type[BaseSettings],
        init_settings: PydanticBaseSettingsSource,
        env_settings: PydanticBaseSettingsSource,
        dotenv_settings: PydanticBaseSettingsSource,
        file_secret_settings: PydanticBaseSettingsSource,
    ) -> tuple[PydanticBaseSettingsSource, ...]:
        return init_settings, env_settings, TomlConfigSettingsSource(settings_cls)

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
        InvalidFile: a value is wrong; the message names each setting and what it wants.
    """
    given = {key: value for key, value in overrides.items() if value is not None}
    try:
        return Settings(**given)  # type: ignore[arg-type]
    except ValidationError as error:
        lines = [
            f"  FOREMIND_{'_'.join(str(part) for part in item['loc']).upper()}: {item['msg']}"
            for item in error.errors()
        ]
        raise InvalidFile("These settings are wrong:\n" + "\n".join(lines)) from None


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
    if not _is_loopback(settings.host):
        raise UnsafeBinding(
            f"Refusing to listen on {settings.host} without authentication: anyone could read "
            "anyone's memories. Set FOREMIND_AUTH_SECRET or FOREMIND_AUTH_KEYS, or listen on "
            "127.0.0.1."
        )


def _is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"
