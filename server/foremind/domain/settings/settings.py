"""Every setting, stated once: type, default, bounds, who may set it, and what it does. Pure.

From these declarations come the environment variables (`FOREMIND_` and the name in capitals), the
settings of companions, relationships and turns, the schemas of the contracts and docs/settings.md.
"""

import ipaddress
import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, NamedTuple, get_args

import msgspec
from msgspec import Meta

from foremind.domain.companion_rules import (
    Behaviour,
    ProfileRules,
    Prompts,
    ScratchpadRules,
    SignificanceRules,
)
from foremind.domain.errors import UnsafeBinding
from foremind.domain.settings.setting_definitions import (
    ALL,
    Ahead,
    Consent,
    Decay,
    KeptName,
    LayerName,
    MindKind,
    RememberReplies,
)

#: Variables with this prefix hold the API keys that companions refer to (`llm_key_env`).
KEY_PREFIX = "FOREMIND_LLM_KEY_"
#: The narrowest level that may have a setting; `server` has no narrower one.
Level = Literal["server", "companion", "relationship", "turn"]

# No setting exceeds these: far beyond any use, and well within what numbers and dates can hold.
_MOST = 1_000_000_000
_MOST_BYTES = 2**40
_MOST_TOKENS = 10_000_000
_LEAST_DAYS, _MOST_DAYS = 0.01, 36_500
_MIN_SECRET_BYTES = 32

Share = Annotated[float, Meta(ge=0, le=1)]
Days = Annotated[float, Meta(ge=_LEAST_DAYS, le=_MOST_DAYS)]
Seconds = Annotated[float, Meta(ge=0.01, le=3600)]
LongSeconds = Annotated[float, Meta(ge=0, le=86_400)]
Rate = Annotated[float, Meta(ge=0.01, le=_MOST)]
Count = Annotated[int, Meta(ge=1, le=_MOST)]
Bytes = Annotated[int, Meta(ge=0, le=_MOST_BYTES)]
LargeBytes = Annotated[int, Meta(ge=1_048_576, le=_MOST_BYTES)]
Tokens = Annotated[int, Meta(ge=0, le=_MOST_TOKENS)]

_PORT = r"0*(?:[1-9]\d{0,3}|[1-5]\d{4}|6[0-4]\d{3}|65[0-4]\d{2}|655[0-2]\d|6553[0-5])"
_HOST = r"(?:[^/\s?#@:\[\]]+|\[[0-9A-Fa-f:.]+\])"
_ORIGIN = re.compile(r"[a-z][a-z0-9+.-]*://[^/\s?#@]+")
_NATS_URL = re.compile(r"(nats|tls)://([^/\s?#,@]+@)?[^/\s?#,@]+/?")
# Of one host or several; what else may be wrong, PostgreSQL's client says on connecting.
_DATABASE_URL = re.compile(
    r"postgres(?:ql)?://(?:[^@/?]*@)?(?:[^/?:\[\]]|\[[^\]]*\]|:\d*(?=[,/?]|$))*(?:[/?]|$)"
)
_SOCKET_URL = re.compile(r"wss?://[^/\s?#@{}]+/[^\s#{}]*")


def _matching(pattern: str, expected: str, max_length: int) -> Meta:
    return Meta(pattern=pattern, max_length=max_length, extra={"expected": expected})


# An empty address is that of no server.
Url = Annotated[
    str,
    _matching(
        rf"^(?:https?://{_HOST}(?::{_PORT})?(?:/\S*)?)?$(?!\n)",
        "an address that begins with http:// or https://",
        2000,
    ),
]
TokenizerPath = Annotated[str, _matching(r"\S", "a path", 1000)]
# What Foremind says itself in each request; some servers know names in capitals, too.
_OWN_FIELDS = (
    "model", "messages", "prompt", "stream", "stream_options", "max_tokens",
    "max_completion_tokens", "temperature", "response_format", "n", "tools", "tool_choice",
    "functions", "function_call",
)  # fmt: skip
ExtraField = Annotated[
    str,
    _matching(
        rf"^(?!(?:{'|'.join(_OWN_FIELDS)})$)[a-z][a-z0-9_]*$(?!\n)",
        "a field in small letters that Foremind does not set itself; these it sets: "
        f"{', '.join(_OWN_FIELDS)}",
        100,
    ),
]
# What the mark of an emotion is made of besides its name.
_MARKING = r"\s\[\](){}<>*_:：（）［］【】《》/"
EmotionName = Annotated[
    str,
    _matching(
        rf"^[^{_MARKING}]+(?: [^{_MARKING}]+)*$(?!\n)",
        "words without brackets, colons, slashes, asterisks and underscores",
        40,
    ),
]
# Any other variable may hold a secret that must not reach the companion's model server.
KeyVariable = Annotated[str, Meta(pattern=f"^{KEY_PREFIX}[A-Za-z0-9_]{{1,100}}$(?!\\n)")]


class Secret:
    """A text that is not shown by `repr`, and so in no log."""

    __slots__ = ("_text",)

    def __init__(self, text: str) -> None:
        self._text = text

    def reveal(self) -> str:
        """Return the text."""
        return self._text

    def __repr__(self) -> str:
        return "Secret(...)"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Secret) and self._text == other._text

    def __hash__(self) -> int:
        return hash(self._text)


class PlayerBound(NamedTuple):
    """The bound of a player's value, given the operator's.

    `clamp` takes both and returns the nearest allowed value; `expected` describes the bound.
    """

    clamp: Callable[[Any, Any], Any]
    expected: str


class Setting(NamedTuple):
    """What is stated of a setting besides its type, default and bounds.

    `narrowest` is the narrowest level that may have it; `player` bounds what a player may set, who
    may set nothing without it. `check` returns a value in its normal form, or raises a ValueError
    that says what was expected. `heading` is that of the group that begins with the setting.
    """

    meaning: str
    narrowest: Level
    player: PlayerBound | None
    check: Callable[[Any], Any] | None
    heading: str | None


def _setting(
    meaning: str,
    narrowest: Level = "server",
    player: PlayerBound | None = None,
    *,
    check: Callable[[Any], Any] | None = None,
    heading: str | None = None,
) -> Meta:
    stated = Setting(meaning, narrowest, player, check, heading)
    return Meta(description=meaning, extra={"setting": stated})


def _shorter_retention(own: Mapping[str, float], wider: Mapping[str, float]) -> dict[str, float]:
    return {name: min(days, wider.get(name, wider.get(ALL, days))) for name, days in own.items()}


def _without_model_rating(own: SignificanceRules, wider: SignificanceRules) -> SignificanceRules:
    return msgspec.structs.replace(own, model=None) if own.model and not wider.model else own


_ANY = PlayerBound(lambda own, _: own, "any value")
_AT_MOST = PlayerBound(min, "at most {0}, which is the operator's")
_AT_LEAST = PlayerBound(max, "at least {0}, which is the operator's")
_ONLY_ON = PlayerBound(lambda own, wider: own or wider, "true, or nothing")
_ONLY_OFF = PlayerBound(lambda own, wider: own and wider, "false, or nothing")
_SUPERSET = PlayerBound(lambda own, wider: own | frozenset(wider), "{0} and any others")
_SHORTER = PlayerBound(_shorter_retention, "no more days than {0}, which are the operator's")
_NO_MODEL = PlayerBound(_without_model_rating, "no `model`, which is the operator's")


def filled_url(template: str, name: str, port: int) -> str:
    """Return the URL of the gateway of that name, which listens on `port`."""
    return template.replace("{name}", name).replace("{port}", str(port))


def _socket_url(given: str) -> str:
    if not _SOCKET_URL.fullmatch(filled_url(given, "gateway-1", 8770)):
        raise ValueError("expected a WebSocket URL such as wss://game.example/v1/ws?gateway={name}")
    return given


def _database_url(given: Secret) -> Secret:
    if not _DATABASE_URL.match(given.reveal()):
        raise ValueError(
            "expected an address such as postgresql://user:password@host:5432/database"
        )
    return given


def _nats_url(given: Secret) -> Secret | None:
    if not given.reveal():
        return None
    if not all(_NATS_URL.fullmatch(url) for url in given.reveal().split(",")):
        raise ValueError("expected addresses that begin with nats:// or tls://")
    return given


def _origins(given: tuple[str, ...]) -> tuple[str, ...]:
    origins = tuple(origin.rstrip("/").lower() for origin in given)
    if not all(_ORIGIN.fullmatch(origin) for origin in origins):
        raise ValueError("expected origins such as https://game.example, without a path")
    return origins


def _networks(given: tuple[str, ...]) -> tuple[str, ...]:
    """Refuse invalid addresses, which would silently have no effect."""
    try:
        return tuple(str(ipaddress.ip_network(address)) for address in given)
    except ValueError:
        raise ValueError("expected addresses or networks such as 10.0.0.0/8") from None


def _proxies(given: tuple[str, ...]) -> tuple[str, ...]:
    _networks(tuple(address for address in given if address != "*"))
    return given


class Settings(msgspec.Struct, frozen=True, kw_only=True):
    """All settings of a server."""

    host: Annotated[str, _setting("address to listen on", heading="Server")] = "127.0.0.1"
    port: Annotated[
        int, Meta(ge=0, le=65_535), _setting("port to listen on; 0 picks a free one")
    ] = 8770
    data_dir: Annotated[Path, _setting("embedded database and converted models")] = Path(
        ".foremind"
    )
    log_format: Annotated[Literal["console", "json"], _setting("format of log lines")] = "console"
    log_level: Annotated[
        Literal["debug", "info", "warning", "error"], _setting("lowest level that is logged")
    ] = "info"
    drain_s: Annotated[LongSeconds, _setting("grace period for running replies at shutdown")] = 15.0
    workers: Annotated[
        int,
        Meta(ge=1, le=256),
        _setting("gateway processes of `foremind serve`", heading="Several gateways"),
    ] = 1
    gateway_name: Annotated[
        Annotated[str, Meta(pattern="^[A-Za-z0-9._-]{1,64}$")] | None,
        _setting("name among the gateways of a database; by default host name and port"),
    ] = None
    public_url: Annotated[
        str | None,
        _setting(
            "WebSocket URL of this gateway that clients are told, where `{name}` and `{port}` "
            "stand for its own; without it, a single process redirects nobody",
            check=_socket_url,
        ),
    ] = None
    database_url: Annotated[
        Secret | None,
        _setting(
            "PostgreSQL to use instead of the embedded one", check=_database_url, heading="Database"
        ),
    ] = None
    database_pool_size: Annotated[
        int, Meta(ge=2, le=200), _setting("maximum connections in the pool")
    ] = 10
    database_timeout_s: Annotated[Seconds, _setting("statement timeout")] = 10.0
    nats_url: Annotated[
        Secret | None,
        _setting(
            "NATS that carries what several processes on one database tell each other, instead "
            "of PostgreSQL; URLs separated by commas",
            check=_nats_url,
        ),
    ] = None
    nats_credentials: Annotated[
        Path | None, _setting("credentials file of the NATS user, if it needs one")
    ] = None
    embedding_model: Annotated[
        str, _setting("name of a model manifest", heading="Embedding model")
    ] = "all-MiniLM-L6-v2"
    models_path: Annotated[
        Path | None, _setting("folder of converted models, if not in the data directory")
    ] = None
    embedding_queue_size: Annotated[
        int, Meta(ge=4, le=1_000_000), _setting("maximum embeddings waiting")
    ] = 256
    embedding_url: Annotated[
        Url | None, _setting("base URL of an OpenAI-compatible embeddings server of the same model")
    ] = None
    embedding_key: Annotated[
        Secret | None,
        _setting("its API key, if it needs one; `foremind embed` requires it of clients"),
    ] = None
    embedding_server_model: Annotated[
        str | None, _setting("model name that is sent to it, if not that of the manifest")
    ] = None
    embedding_connections: Annotated[
        int, Meta(ge=1, le=256), _setting("parallel requests to the embeddings server")
    ] = 4
    embedding_timeout_s: Annotated[
        float,
        Meta(ge=0.01, le=60),
        _setting("how long to wait for its vector before embedding locally"),
    ] = 1.0
    auth_secret: Annotated[
        Secret | None,
        _setting(
            "HS256 secret of at least 32 bytes; when set, every session needs a token",
            heading="Authentication and origins",
        ),
    ] = None
    auth_keys: Annotated[
        Path | None, _setting("JWK Set with the public keys that sign tokens; reloaded on change")
    ] = None
    auth_audience: Annotated[
        str | None, _setting("required `aud` of a token; ignored when unset")
    ] = None
    allowed_origins: Annotated[
        tuple[str, ...],
        _setting(
            "web origins besides the server's own that may connect and use HTTP", check=_origins
        ),
    ] = ()
    mcp: Annotated[
        bool, _setting("serve memory tools to MCP clients at `/v1/mcp`; needs `foremind[mcp]`")
    ] = False
    llm_url: Annotated[
        Url | None,
        _setting("base URL of an OpenAI-compatible server", "companion", heading="Language model"),
    ] = None
    llm_model: Annotated[
        str, Meta(max_length=200), _setting("model name that is sent to it", "companion")
    ] = "default"
    llm_key: Annotated[Secret | None, _setting("its API key, if it needs one")] = None
    llm_tokenizer: Annotated[
        TokenizerPath | None,
        _setting("its tokenizer.json; without it, three bytes count as a token", "companion"),
    ] = None
    llm_max_tokens: Annotated[
        int,
        Meta(ge=1, le=_MOST_TOKENS),
        _setting("maximum length of a reply, in tokens", "turn", _AT_MOST),
    ] = 400
    llm_temperature: Annotated[
        float, Meta(ge=0, le=2), _setting("sampling temperature", "turn", _ANY)
    ] = 0.8
    llm_extra: Annotated[
        dict[ExtraField, Any],
        Meta(max_length=50),
        _setting(
            "JSON merged into its requests, such as `top_p`, `min_p`, `stop` or "
            "`chat_template_kwargs`; a companion's is laid over it, and `null` leaves a field out",
            "companion",
        ),
    ] = {}
    llm_tools: Annotated[
        bool,
        _setting(
            "offer it the actions of a world as tools of its interface instead of in the prompt",
            "companion",
        ),
    ] = False
    llm_background: Annotated[
        bool,
        _setting(
            "have it write notes, summaries and other layers in the background; `off` leaves that "
            "to rules",
            "companion",
        ),
    ] = True
    llm_tokens_per_day: Annotated[
        Count | None,
        _setting(
            "maximum tokens of a user and day (UTC) over all companions; a companion's own is "
            "for its tokens alone; `null`: no limit",
            "companion",
        ),
    ] = None
    llm_ahead: Annotated[
        Ahead, _setting("speculative generation before Enter: off, prefill or reply", "companion")
    ] = "off"
    llm_slots: Annotated[
        int, Meta(ge=1, le=1024), _setting("parallel requests of the model server")
    ] = 1
    llm_connect_timeout_s: Annotated[Seconds, _setting("connect timeout")] = 5.0
    llm_token_timeout_s: Annotated[Seconds, _setting("maximum wait for the next token")] = 30.0
    llm_reply_timeout_s: Annotated[
        float, Meta(ge=0.01, le=86_400), _setting("maximum duration of a whole reply")
    ] = 120.0
    pause_ms: Annotated[
        int,
        Meta(ge=50, le=10_000),
        _setting("idle time that counts as a pause", "relationship", _AT_LEAST, heading="Typing"),
    ] = 500
    eager: Annotated[
        bool,
        _setting("prefetch when a draft settles, not only at pauses", "relationship", _ONLY_OFF),
    ] = True
    prepared_ttl_s: Annotated[Seconds, _setting("lifetime of a prefetched context")] = 60.0
    prepared_capacity: Annotated[
        int, Meta(ge=1, le=10_000_000), _setting("maximum prefetched contexts in the cache")
    ] = 10_000
    prepared_bytes: Annotated[Bytes, _setting("memory limit of prefetched contexts")] = 67_108_864
    layers_deadline_ms: Annotated[
        int,
        Meta(ge=1, le=10_000),
        _setting("deadline of recall while typing; late results are dropped", "turn"),
    ] = 1000
    recall_timeout_s: Annotated[
        float,
        Meta(gt=0, le=3600),
        _setting("how long Enter waits for recall before it goes on without"),
    ] = 2.0
    index_bytes: Annotated[
        Bytes, _setting("memory limit of in-process memory indexes", heading="In-process caches")
    ] = 268_435_456
    layers_bytes: Annotated[Bytes, _setting("memory limit of in-process layers")] = 134_217_728
    vector_weight: Annotated[
        Share, _setting("weight of the cosine in a score", "turn", heading="Recall")
    ] = 0.70
    keyword_weight: Annotated[Share, _setting("weight of BM25 in a score", "turn")] = 0.30
    significance_weight: Annotated[
        Share, _setting("weight of a memory's significance in its score", "turn")
    ] = 0.25
    session_weight: Annotated[
        Share, _setting("weight of the best memory from the same session in a score", "turn")
    ] = 0.30
    time_weight: Annotated[
        Share, _setting("weight of matching a time that the draft asks for", "turn")
    ] = 0.20
    recall_gate: Annotated[
        bool,
        _setting("recall nothing for drafts that no memory could help to answer", "turn", _ONLY_ON),
    ] = True
    recall_min_score: Annotated[
        Share, _setting("minimum relevance (70/30) of a recalled memory", "turn", _AT_LEAST)
    ] = 0.10
    recall_min_share: Annotated[
        Share,
        _setting("minimum score of a recalled memory, relative to the best one", "turn", _AT_LEAST),
    ] = 0.5
    recall_limit: Annotated[
        int, Meta(ge=0, le=100), _setting("maximum memories in a context", "turn", _AT_MOST)
    ] = 10
    significance_threshold: Annotated[
        Share,
        _setting(
            "minimum significance to be stored and recalled",
            "relationship",
            _AT_LEAST,
            heading="What is remembered",
        ),
    ] = 0.30
    read_in_exchange: Annotated[
        bool,
        _setting(
            "embed a turn together with its neighbours and its speaker's name", "relationship"
        ),
    ] = True
    consolidate: Annotated[
        bool,
        _setting("merge duplicate memories and mark outdated ones as superseded", "relationship"),
    ] = True
    remember_replies: Annotated[
        RememberReplies,
        _setting(
            "which of the companion's replies may be remembered: all, informative (those that "
            "tell anything new) or none",
            "relationship",
        ),
    ] = "informative"
    retention_days: Annotated[
        dict[KeptName, Days],
        _setting(
            "days after which layers, memory types or the transcript expire, by name; `all` is "
            "for those that are not named",
            "relationship",
            _SHORTER,
        ),
    ] = {}
    session_hours: Annotated[
        float,
        Meta(ge=0.01, le=24 * _MOST_DAYS),
        _setting("idle time after which a session ends", "relationship"),
    ] = 24.0
    memory_decay: Annotated[
        Decay,
        _setting(
            "how memories fade: window, half_life, hourly or product", "turn", heading="Decay"
        ),
    ] = "window"
    memory_max_age_days: Annotated[
        Days | None,
        _setting("maximum age of a recalled memory under `window`; `null`: no limit", "turn", _ANY),
    ] = 90.0
    memory_half_life_days: Annotated[
        Days, _setting("half-life of an unused memory's recency under `half_life`", "turn")
    ] = 180.0
    recency_weight: Annotated[
        Share, _setting("weight of recency in a score, where memories fade", "turn")
    ] = 0.10
    permanent_significance: Annotated[
        Share, _setting("significance from which a memory never fades", "turn")
    ] = 0.85
    user_weight: Annotated[
        float,
        Meta(ge=0.01, le=2),
        _setting("weight of the user's own words against the companion's", "turn"),
    ] = 1.25
    context_tokens: Annotated[
        int,
        Meta(ge=200, le=_MOST_TOKENS),
        _setting(
            "context window of the model, in tokens", "turn", _AT_MOST, heading="Prompt and layers"
        ),
    ] = 16_384
    working_tokens: Annotated[
        Tokens,
        _setting("maximum tokens of recent turns in a prompt, space permitting", "turn", _AT_MOST),
    ] = 12_000
    layers_off: Annotated[
        frozenset[LayerName], _setting("names of layers that are switched off", "turn", _SUPERSET)
    ] = frozenset()
    layers_share: Annotated[
        float,
        Meta(ge=0, le=0.9),
        _setting("share of the context window for all layers together", "turn", _AT_MOST),
    ] = 0.20
    summary_tokens: Annotated[
        int,
        Meta(ge=100, le=_MOST_TOKENS),
        _setting(
            "tokens of unsummarised turns from which the oldest are summarised", "relationship"
        ),
    ] = 8000
    summary_messages: Annotated[
        int,
        Meta(ge=12, le=500),
        _setting("unsummarised turns from which the oldest are summarised", "relationship"),
    ] = 20
    topic_half_life_days: Annotated[
        Days, _setting("half-life of the weight of a topic that does not come up again", "turn")
    ] = 180.0
    max_connections: Annotated[
        Count | None,
        _setting(
            "maximum connections; by default what file descriptors allow, up to 10,000",
            heading="Connections and sessions",
        ),
    ] = None
    max_connections_per_address: Annotated[
        Count, _setting("maximum connections per address; loopback is exempt")
    ] = 500
    host_addresses: Annotated[
        tuple[str, ...],
        _setting("addresses or networks of game servers, exempt from that limit", check=_networks),
    ] = ()
    trusted_proxies: Annotated[
        tuple[str, ...], _setting("addresses whose X-Forwarded-For is trusted", check=_proxies)
    ] = ("127.0.0.1",)
    max_sessions: Annotated[Count, _setting("maximum open sessions")] = 5000
    max_sessions_per_user: Annotated[Count, _setting("maximum open sessions per user")] = 50
    open_timeout_s: Annotated[Seconds, _setting("maximum wait for session.open")] = 10.0
    heartbeat_s: Annotated[float, Meta(ge=0.01, le=25), _setting("interval of WebSocket pings")] = (
        20.0
    )
    heartbeat_timeout_s: Annotated[Seconds, _setting("maximum wait for a pong")] = 20.0
    resume_s: Annotated[
        float, Meta(ge=0.01, le=604_800), _setting("how long a lost connection can be resumed")
    ] = 300.0
    reply_grace_s: Annotated[
        LongSeconds, _setting("how long a reply goes on after its connection is lost")
    ] = 60.0
    drafts_per_s: Annotated[
        Rate,
        _setting(
            "drafts per second and connection; more are throttled", heading="Rate and size limits"
        ),
    ] = 30.0
    sends_per_s: Annotated[Rate, _setting("other messages per second and connection, likewise")] = (
        30.0
    )
    http_per_s: Annotated[Rate, _setting("HTTP requests per second and user; more get a 429")] = (
        50.0
    )
    max_text_chars: Annotated[
        int, Meta(ge=1, le=16_000), _setting("maximum length of a draft or message, in characters")
    ] = 8000
    user_bytes: Annotated[
        LargeBytes, _setting("maximum bytes of a user's turns: their texts, and 2048 for each")
    ] = 268_435_456
    outbound_bytes: Annotated[
        int, Meta(ge=65_536, le=_MOST_BYTES), _setting("maximum bytes queued for a slow reader")
    ] = 1_048_576
    body_bytes: Annotated[
        LargeBytes, _setting("maximum bytes of all request bodies at once, and of all exports")
    ] = 268_435_456

    @property
    def models_dir(self) -> Path:
        """Where converted embedding models are kept."""
        return self.models_path or self.data_dir / "models"

    def in_scratch(self, folder: Path) -> "Settings":
        """Return these settings with an embedded database in `folder` and the same models."""
        return msgspec.structs.replace(
            self, data_dir=folder, models_path=self.models_dir, database_url=None
        )

    @property
    def open_mode(self) -> bool:
        """Whether clients state who they are instead of presenting a token."""
        return self.auth_secret is None and self.auth_keys is None


class NarrowSettings(msgspec.Struct, frozen=True, kw_only=True):
    """The settings that only a companion and what is narrower may have, with their defaults."""

    significance: Annotated[
        SignificanceRules,
        _setting("adjustments to significance scoring", "relationship", _NO_MODEL),
    ] = SignificanceRules(phrases={}, signals={}, floors={}, learned=True, model=False)
    consent: Annotated[
        Consent,
        _setting(
            "with `required`, nothing is remembered about a user who has not agreed", "companion"
        ),
    ] = "assumed"
    mind: Annotated[
        MindKind,
        _setting(
            "in worlds, whether it has a mind for each `player` or one for the whole `world`",
            "companion",
        ),
    ] = "player"
    speaks_first: Annotated[
        bool,
        _setting(
            "in worlds, whether it may speak first when a trigger of the game fires",
            "relationship",
            _ONLY_OFF,
        ),
    ] = True
    recall_any_age: Annotated[
        bool, _setting("recall memories of any age under `window`", "turn", _ANY)
    ] = False
    scratchpad: Annotated[
        ScratchpadRules, _setting("how notes are taken: prompt, kinds, examples", "relationship")
    ] = ScratchpadRules(examples=())
    profile: Annotated[
        ProfileRules,
        _setting(
            "slots of the profile, in addition to the default ones or, with `only`, instead",
            "relationship",
        ),
    ] = ProfileRules(only=False, examples=())
    prompts: Annotated[Prompts, _setting("own prompts for background work", "relationship")] = (
        Prompts()
    )
    behaviours: Annotated[
        tuple[Behaviour, ...],
        Meta(max_length=100),
        _setting("instructions for the model, and when they apply", "companion"),
    ] = ()
    emotions: Annotated[
        tuple[EmotionName, ...],
        Meta(max_length=40),
        _setting(
            "emotions that the model is asked to mark sentences with, such as `calm` and `happy`; "
            "clients are told them apart from the text. Empty: none",
            "companion",
        ),
    ] = ()
    llm_key_env: Annotated[
        KeyVariable | None,
        _setting(
            "environment variable with its API key, so that no key is stored in the database",
            "companion",
        ),
    ] = None


def _stated(shape: type[msgspec.Struct]) -> dict[str, Setting]:
    return {
        field.name: meta.extra["setting"]
        for field in msgspec.structs.fields(shape)
        for meta in field.type.__metadata__
        if meta.extra and "setting" in meta.extra
    }


def _or_none(type_: Any) -> Any:
    return type_ if type(None) in get_args(type_.__origin__) else type_ | None


SERVER_SETTINGS = _stated(Settings)
#: What companions and narrower levels may have.
LEVEL_SETTINGS: Mapping[str, Setting] = {
    name: setting
    for name, setting in (SERVER_SETTINGS | _stated(NarrowSettings)).items()
    if setting.narrowest != "server"
}

if TYPE_CHECKING:

    class CompanionSettings(msgspec.Struct, frozen=True):
        """Typed by the definition below."""

        def __init__(self, **settings: Any) -> None: ...
        def __getattr__(self, name: str) -> Any: ...

else:
    CompanionSettings = msgspec.defstruct(
        "CompanionSettings",
        [
            (field.name, _or_none(field.type), None)
            for shape in (Settings, NarrowSettings)
            for field in msgspec.structs.fields(shape)
            if field.name in LEVEL_SETTINGS
        ],
        namespace={
            "__doc__": "The settings of one level: a companion, a relationship or a turn; None "
            "inherits a value."
        },
        module=__name__,
        frozen=True,
        kw_only=True,
        forbid_unknown_fields=True,
        omit_defaults=True,
    )


class RelationshipSettings(msgspec.Struct, frozen=True):
    """A relationship's own settings, by who set them: the operator or the user."""

    operator: CompanionSettings = CompanionSettings()
    user: CompanionSettings = CompanionSettings()


def check_secret(settings: Settings) -> None:
    """Refuse a secret that could be guessed, whether tokens are to be signed or verified with it.

    Raises:
        UnsafeBinding: it is too short for HS256 (RFC 7518, 3.2).
    """
    secret = settings.auth_secret
    if secret is not None and len(secret.reveal().encode()) < _MIN_SECRET_BYTES:
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
