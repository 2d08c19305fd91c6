"""Prometheus metrics: counts and durations, never text."""

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, Info, ProcessCollector

from foremind import __version__

# From a cache lookup (tens of microseconds) to a slow language model (tens of seconds).
_SECONDS = (
    0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05,
    0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0,
)  # fmt: skip


class Metrics:
    """The metrics of one server, in a registry of its own."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        ProcessCollector(registry=self.registry)
        Info("foremind_build", "The version that runs.", registry=self.registry).info(
            {"version": __version__}
        )
        self.stage_seconds = Histogram(
            "foremind_stage_seconds",
            "Duration of a stage: embed, search, prepare, ready, store, first_token, reply.",
            ["stage"],
            registry=self.registry,
            buckets=_SECONDS,
        )
        self.contexts = Counter(
            "foremind_contexts_total",
            "Contexts used on Enter, by outcome: hit, refreshed, miss.",
            ["outcome"],
            registry=self.registry,
        )
        self.prepared = Counter(
            "foremind_prepared_total",
            "Contexts prepared, by trigger: pause, eager, send.",
            ["trigger"],
            registry=self.registry,
        )
        self.held_back = Counter(
            "foremind_eager_held_back_total",
            "Keystrokes at which eager prefetch was suppressed, by reason: busy, allowance.",
            ["reason"],
            registry=self.registry,
        )
        self.ahead = Counter(
            "foremind_model_ahead_total",
            "Speculative work of language models, by kind (prefill, reply) and outcome: finished, "
            "used, displaced, dropped, failed.",
            ["kind", "outcome"],
            registry=self.registry,
        )
        self.tokens = Counter(
            "foremind_tokens_total",
            "Tokens of language models, as their servers report them or else by the tokenizer: by "
            "companion (200 by name, then `other`), purpose (reply; ahead, before Enter, used or "
            "not; behaviour; or a step of background work) and kind (prompt, completion).",
            ["companion", "purpose", "kind"],
            registry=self.registry,
        )
        self.slowed = Counter(
            "foremind_slowed_total",
            "Messages that were throttled, by kind: draft, send.",
            ["kind"],
            registry=self.registry,
        )
        self.dropped = Counter(
            "foremind_dropped_total",
            "Discarded work, by kind: superseded, departed, evicted, rejected, interrupted, "
            "telemetry, note.",
            ["kind"],
            registry=self.registry,
        )
        self.left_out = Counter(
            "foremind_layers_left_out_total",
            "Layers that failed or missed the deadline of a context, by layer.",
            ["layer"],
            registry=self.registry,
        )
        self.background_tasks = Counter(
            "foremind_background_tasks_total",
            "Background work on layers, by kind and outcome: model, rules, failed; displaced, "
            "where it was preempted and is repeated.",
            ["work", "outcome"],
            registry=self.registry,
        )
        self.background_waiting = Gauge(
            "foremind_background_waiting",
            "Waiting steps of background work, by reason: due, running, model (at its concurrency "
            "limit), slot (of its server), backing_off, held. Counts are capped at 10,000.",
            ["step", "reason"],
            registry=self.registry,
        )
        self.background_oldest = Gauge(
            "foremind_background_oldest_seconds",
            "Waiting time of the oldest background work.",
            registry=self.registry,
        )
        self.corrections = Counter(
            "foremind_answers_mended_total",
            "Corrections of the language model's answers to background work, by code: "
            "repaired, prose, dropped, too_many, too_long, out_of_range.",
            ["work", "code"],
            registry=self.registry,
        )
        self.errors = Counter(
            "foremind_errors_total",
            "Error events sent to clients, by code.",
            ["code"],
            registry=self.registry,
        )
        self.responses = Counter(
            "foremind_responses_total",
            "Replies, by status: completed, cancelled, failed.",
            ["status"],
            registry=self.registry,
        )
        self.memories = Counter(
            "foremind_memories_total",
            "Turns ingested, by outcome: stored, insignificant.",
            ["outcome"],
            registry=self.registry,
        )
        self.searches = Counter(
            "foremind_searches_total",
            "Searches, by source of the memories: index, database.",
            ["source"],
            registry=self.registry,
        )
        self.index_bytes = Gauge(
            "foremind_index_bytes", "Memory used by loaded indexes.", registry=self.registry
        )
        self.layers_bytes = Gauge(
            "foremind_layers_bytes", "Memory used by loaded layers.", registry=self.registry
        )
        self.tcp_connections = Gauge(
            "foremind_tcp_connections",
            "Open connections of any kind, WebSocket or not.",
            registry=self.registry,
        )
        self.refused = Counter(
            "foremind_refused_total",
            "Refused or terminated connections and requests, by reason. Connections: address, "
            "connections, descriptors, evicted, silent, head, malformed, body, slow, unread, or "
            "closed_ and a close code. Requests: bodies (no capacity), body_size, exports (no "
            "memory left), exports_of_user, answers (no capacity).",
            ["reason"],
            registry=self.registry,
        )
        self.announcements = Counter(
            "foremind_announcements_total",
            "Announcements between processes, by event: published, received; dropped (published "
            "too late), lost (messages of others), gap (connections lost), missed (changes that "
            "only the database told).",
            ["event"],
            registry=self.registry,
        )
        self.sessions = Gauge("foremind_sessions", "Open sessions.", registry=self.registry)
        self.redirects = Counter(
            "foremind_redirects_total",
            "Clients told that another gateway serves their session, by occasion: open, move (of "
            "an idle session), drain.",
            ["occasion"],
            registry=self.registry,
        )
        self.connections = Gauge(
            "foremind_connections", "Open WebSocket connections.", registry=self.registry
        )
        self.task_up = Gauge(
            "foremind_task_up",
            "1 while a background task is healthy, 0 while it fails, by name.",
            ["task"],
            registry=self.registry,
        )
        self.task_restarts = Counter(
            "foremind_task_restarts_total",
            "Restarts of background tasks after failures, by name.",
            ["task"],
            registry=self.registry,
        )
        self.tasks = Gauge(
            "foremind_tasks", "Asyncio tasks in the process.", registry=self.registry
        )
        self.embedding_queue = Gauge(
            "foremind_embedding_queue_depth", "Embeddings waiting.", registry=self.registry
        )
        self.embedding_busy = Gauge(
            "foremind_embedding_busy_ratio",
            "Recent utilization of the embedding thread, or of the requests to its server.",
            registry=self.registry,
        )
        self.embedding_fallbacks = Counter(
            "foremind_embedding_fallbacks_total",
            "Texts embedded locally because the embeddings server was not usable.",
            registry=self.registry,
        )
        self.prepared_contexts = Gauge(
            "foremind_prepared_contexts", "Cached prepared contexts.", registry=self.registry
        )
        self.prepared_bytes = Gauge(
            "foremind_prepared_bytes", "Memory used by prepared contexts.", registry=self.registry
        )
        self.backup_age = Gauge(
            "foremind_backup_age_seconds",
            "Age of the last backup; without one, of the database.",
            registry=self.registry,
        )
        self.waiting_jobs = Gauge(
            "foremind_waiting_jobs", "Turns waiting to be ingested.", registry=self.registry
        )
