"""Every server setting with its default, unit and bounds, grouped by topic.

A setting's environment variable is `FOREMIND_` and its name in capitals, whatever its group; the
docstring of a group is its heading in docs/settings.md.
"""

import ipaddress
from pathlib import Path
from typing import Annotated, Literal, get_args

from pydantic import BaseModel, Field, SecretStr

# No setting exceeds these: far beyond any use, and well within what numbers and dates can hold.
MOST = 1_000_000_000
MOST_BYTES = 2**40
MOST_TOKENS = 10_000_000
LEAST_DAYS, MOST_DAYS = 0.01, 36_500
Days = Annotated[float, Field(ge=LEAST_DAYS, le=MOST_DAYS)]

#: What the language model does before Enter.
Ahead = Literal["off", "prefill", "reply"]
Decay = Literal["window", "half_life", "hourly", "product"]
RememberReplies = Literal["all", "informative", "none"]
LayerName = Literal[
    "working", "summary", "opening", "episodes", "topics", "profile", "scratchpad", "questions",
    "hot", "library", "vault", "behaviours", "memories", "state",
]  # fmt: skip
LAYERS: tuple[LayerName, ...] = get_args(LayerName)
#: What `retention_days` calls the texts of what was said.
TRANSCRIPT = "transcript"
#: What can expire: layers of records, types of memories, and the transcript.
ExpiringName = Literal[
    "summary", "opening", "episodes", "topics", "profile", "scratchpad", "questions", "hot",
    "vault", "conversation", "observation", "event", "relationship", "transcript",
]  # fmt: skip
#: What `retention_days` calls whatever it does not name.
ALL = "all"
KeptName = Literal[ExpiringName, "all"]
EXPIRING_NAMES: tuple[ExpiringName, ...] = get_args(ExpiringName)


class ServerSettings(BaseModel):
    """Server"""

    host: str = Field("127.0.0.1", description="address to listen on")
    port: int = Field(8770, ge=0, le=65535, description="port to listen on; 0 picks a free one")
    data_dir: Path = Field(Path(".foremind"), description="embedded database and converted models")
    log_format: Literal["console", "json"] = Field("console", description="format of log lines")
    log_level: Literal["debug", "info", "warning", "error"] = Field(
        "info", description="lowest level that is logged"
    )
    drain_s: float = Field(
        15.0, ge=0, le=86_400, description="grace period for running replies at shutdown"
    )


class ClusterSettings(BaseModel):
    """Several gateways"""

    workers: int = Field(1, ge=1, le=256, description="gateway processes of `foremind serve`")
    gateway_name: str | None = Field(
        None,
        pattern=r"^[A-Za-z0-9._-]{1,64}$",
        description="name among the gateways of a database; by default host name and port",
    )
    public_url: str | None = Field(
        None,
        description="WebSocket URL of this gateway that clients are told, where `{name}` and "
        "`{port}` stand for its own; without it, a single process redirects nobody",
    )


class DatabaseSettings(BaseModel):
    """Database"""

    database_url: SecretStr | None = Field(
        None, description="PostgreSQL to use instead of the embedded one"
    )
    database_pool_size: int = Field(10, ge=2, le=200, description="maximum connections in the pool")
    database_timeout_s: float = Field(10.0, ge=0.01, le=3600, description="statement timeout")
    nats_url: SecretStr | None = Field(
        None,
        description="NATS that carries what several processes on one database tell each other, "
        "instead of PostgreSQL; URLs separated by commas",
    )
    nats_credentials: Path | None = Field(
        None, description="credentials file of the NATS user, if it needs one"
    )


class EmbeddingSettings(BaseModel):
    """Embedding model"""

    embedding_model: str = Field("all-MiniLM-L6-v2", description="name of a model manifest")
    models_path: Path | None = Field(
        None, description="folder of converted models, if not in the data directory"
    )
    embedding_queue_size: int = Field(
        256, ge=4, le=1_000_000, description="maximum embeddings waiting"
    )
    embedding_url: str | None = Field(
        None, description="base URL of an OpenAI-compatible embeddings server of the same model"
    )
    embedding_key: SecretStr | None = Field(
        None, description="its API key, if it needs one; `foremind embed` requires it of clients"
    )
    embedding_server_model: str | None = Field(
        None, description="model name that is sent to it, if not that of the manifest"
    )
    embedding_connections: int = Field(
        4, ge=1, le=256, description="parallel requests to the embeddings server"
    )
    embedding_timeout_s: float = Field(
        1.0, ge=0.01, le=60, description="how long to wait for its vector before embedding locally"
    )


class AccessSettings(BaseModel):
    """Authentication and origins"""

    auth_secret: SecretStr | None = Field(
        None, description="HS256 secret of at least 32 bytes; when set, every session needs a token"
    )
    auth_keys: Path | None = Field(
        None, description="JWK Set with the public keys that sign tokens; reloaded on change"
    )
    auth_audience: str | None = Field(
        None, description="required `aud` of a token; ignored when unset"
    )
    allowed_origins: tuple[str, ...] = Field(
        (), description="web origins besides the server's own that may connect and use HTTP"
    )
    mcp: bool = Field(
        False, description="serve memory tools to MCP clients at `/v1/mcp`; needs `foremind[mcp]`"
    )


class TypingSettings(BaseModel):
    """Typing"""

    pause_ms: int = Field(500, ge=50, le=10_000, description="idle time that counts as a pause")
    eager: bool = Field(True, description="prefetch when a draft settles, not only at pauses")
    prepared_ttl_s: float = Field(
        60.0, ge=0.01, le=3600, description="lifetime of a prefetched context"
    )
    prepared_capacity: int = Field(
        10_000, ge=1, le=10_000_000, description="maximum prefetched contexts in the cache"
    )
    prepared_bytes: int = Field(
        67_108_864, ge=0, le=MOST_BYTES, description="memory limit of prefetched contexts"
    )
    layers_deadline_ms: int = Field(
        1000,
        ge=1,
        le=10_000,
        description="deadline of recall while typing; late results are dropped",
    )
    recall_timeout_s: float = Field(
        2.0, gt=0, le=3600, description="how long Enter waits for recall before it goes on without"
    )


class CacheSettings(BaseModel):
    """In-process caches"""

    index_bytes: int = Field(
        268_435_456, ge=0, le=MOST_BYTES, description="memory limit of in-process memory indexes"
    )
    layers_bytes: int = Field(
        134_217_728, ge=0, le=MOST_BYTES, description="memory limit of in-process layers"
    )


class RecallSettings(BaseModel):
    """Recall"""

    vector_weight: float = Field(0.70, ge=0, le=1, description="weight of the cosine in a score")
    keyword_weight: float = Field(0.30, ge=0, le=1, description="weight of BM25 in a score")
    significance_weight: float = Field(
        0.25, ge=0, le=1, description="weight of a memory's significance in its score"
    )
    session_weight: float = Field(
        0.30, ge=0, le=1, description="weight of the best memory from the same session in a score"
    )
    time_weight: float = Field(
        0.20, ge=0, le=1, description="weight of matching a time that the draft asks for"
    )
    recall_gate: bool = Field(
        True, description="recall nothing for drafts that no memory could help to answer"
    )
    recall_min_score: float = Field(
        0.10, ge=0, le=1, description="minimum relevance (70/30) of a recalled memory"
    )
    recall_min_share: float = Field(
        0.5, ge=0, le=1, description="minimum score of a recalled memory, relative to the best one"
    )
    recall_limit: int = Field(10, ge=0, le=100, description="maximum memories in a context")


class StorageSettings(BaseModel):
    """What is remembered"""

    significance_threshold: float = Field(
        0.30, ge=0, le=1, description="minimum significance to be stored and recalled"
    )
    read_in_exchange: bool = Field(
        True, description="embed a turn together with its neighbours and its speaker's name"
    )
    consolidate: bool = Field(
        True, description="merge duplicate memories and mark outdated ones as superseded"
    )
    remember_replies: RememberReplies = Field(
        "informative",
        description="which of the companion's replies may be remembered: all, informative (those "
        "that tell anything new) or none",
    )
    retention_days: dict[KeptName, Days] = Field(
        {},
        description="days after which layers, memory types or the transcript expire, by name; "
        "`all` is for those that are not named",
    )
    session_hours: float = Field(
        24.0,
        ge=0.01,
        le=24 * MOST_DAYS,
        description="idle time after which a session ends",
    )


class DecaySettings(BaseModel):
    """Decay"""

    memory_decay: Decay = Field(
        "window", description="how memories fade: window, half_life, hourly or product"
    )
    memory_max_age_days: float | None = Field(
        90.0,
        ge=LEAST_DAYS,
        le=MOST_DAYS,
        description="maximum age of a recalled memory under `window`; `null`: no limit",
    )
    memory_half_life_days: float = Field(
        180.0,
        ge=LEAST_DAYS,
        le=MOST_DAYS,
        description="half-life of an unused memory's recency under `half_life`",
    )
    recency_weight: float = Field(
        0.10, ge=0, le=1, description="weight of recency in a score, where memories fade"
    )
    permanent_significance: float = Field(
        0.85, ge=0, le=1, description="significance from which a memory never fades"
    )
    user_weight: float = Field(
        1.25, ge=0.01, le=2, description="weight of the user's own words against the companion's"
    )


class PromptSettings(BaseModel):
    """Prompt and layers"""

    context_tokens: int = Field(
        16_384,
        ge=200,
        le=MOST_TOKENS,
        description="context window of the model, in tokens",
    )
    working_tokens: int = Field(
        12_000,
        ge=0,
        le=MOST_TOKENS,
        description="maximum tokens of recent turns in a prompt, space permitting",
    )
    layers_off: frozenset[LayerName] = Field(
        frozenset(), description="names of layers that are switched off"
    )
    layers_share: float = Field(
        0.20, ge=0, le=0.9, description="share of the context window for all layers together"
    )
    summary_tokens: int = Field(
        8000,
        ge=100,
        le=MOST_TOKENS,
        description="tokens of unsummarised turns from which the oldest are summarised",
    )
    summary_messages: int = Field(
        20, ge=12, le=500, description="unsummarised turns from which the oldest are summarised"
    )
    topic_half_life_days: float = Field(
        180.0,
        ge=LEAST_DAYS,
        le=MOST_DAYS,
        description="half-life of the weight of a topic that does not come up again",
    )


class LanguageModelSettings(BaseModel):
    """Language model"""

    llm_url: str | None = Field(None, description="base URL of an OpenAI-compatible server")
    llm_model: str = Field("default", description="model name that is sent to it")
    llm_key: SecretStr | None = Field(None, description="its API key, if it needs one")
    llm_tokenizer: Path | None = Field(
        None, description="its tokenizer.json; without it, three bytes count as a token"
    )
    llm_max_tokens: int = Field(
        400, ge=1, le=MOST_TOKENS, description="maximum length of a reply, in tokens"
    )
    llm_temperature: float = Field(0.8, ge=0, le=2, description="sampling temperature")
    llm_tokens_per_day: int | None = Field(
        None,
        ge=1,
        le=MOST,
        description="maximum tokens of a user and day (UTC) over all companions; a companion's own "
        "is for its tokens alone; `null`: no limit",
    )
    llm_ahead: Ahead = Field(
        "off", description="speculative generation before Enter: off, prefill or reply"
    )
    llm_slots: int = Field(1, ge=1, le=1024, description="parallel requests of the model server")
    llm_connect_timeout_s: float = Field(5.0, ge=0.01, le=3600, description="connect timeout")
    llm_token_timeout_s: float = Field(
        30.0, ge=0.01, le=3600, description="maximum wait for the next token"
    )
    llm_reply_timeout_s: float = Field(
        120.0, ge=0.01, le=86_400, description="maximum duration of a whole reply"
    )


class ConnectionSettings(BaseModel):
    """Connections and sessions"""

    max_connections: int | None = Field(
        None,
        ge=1,
        le=MOST,
        description="maximum connections; by default what file descriptors allow, up to 10,000",
    )
    max_connections_per_address: int = Field(
        500, ge=1, le=MOST, description="maximum connections per address; loopback is exempt"
    )
    host_addresses: tuple[ipaddress.IPv4Network | ipaddress.IPv6Network, ...] = Field(
        (), description="addresses or networks of game servers, exempt from that limit"
    )
    trusted_proxies: tuple[str, ...] = Field(
        ("127.0.0.1",), description="addresses whose X-Forwarded-For is trusted"
    )
    max_sessions: int = Field(5000, ge=1, le=MOST, description="maximum open sessions")
    max_sessions_per_user: int = Field(
        50, ge=1, le=MOST, description="maximum open sessions per user"
    )
    open_timeout_s: float = Field(
        10.0, ge=0.01, le=3600, description="maximum wait for session.open"
    )
    heartbeat_s: float = Field(20.0, ge=0.01, le=25, description="interval of WebSocket pings")
    heartbeat_timeout_s: float = Field(
        20.0, ge=0.01, le=3600, description="maximum wait for a pong"
    )
    resume_s: float = Field(
        300.0, ge=0.01, le=604_800, description="how long a lost connection can be resumed"
    )
    reply_grace_s: float = Field(
        60.0, ge=0, le=86_400, description="how long a reply goes on after its connection is lost"
    )


class LimitSettings(BaseModel):
    """Rate and size limits"""

    drafts_per_s: float = Field(
        30.0,
        ge=0.01,
        le=MOST,
        description="drafts per second and connection; more are throttled",
    )
    sends_per_s: float = Field(
        30.0, ge=0.01, le=MOST, description="other messages per second and connection, likewise"
    )
    http_per_s: float = Field(
        50.0, ge=0.01, le=MOST, description="HTTP requests per second and user; more get a 429"
    )
    max_text_chars: int = Field(
        8000, ge=1, le=16000, description="maximum length of a draft or message, in characters"
    )
    user_bytes: int = Field(
        268_435_456,
        ge=1_048_576,
        le=MOST_BYTES,
        description="maximum bytes of a user's turns: their texts, and 2048 for each",
    )
    outbound_bytes: int = Field(
        1_048_576, ge=65_536, le=MOST_BYTES, description="maximum bytes queued for a slow reader"
    )
    body_bytes: int = Field(
        268_435_456,
        ge=1_048_576,
        le=MOST_BYTES,
        description="maximum bytes of all request bodies at once, and of all exports",
    )
