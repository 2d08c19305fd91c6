"""From unit costs and a number of players to cores, memory, database nodes and money. Pure."""

import math

import msgspec

from foremind.domain.background_step import GATHERED_FOR, LULL, MAX_GATHERED_MESSAGES

# How busy a core may be on average, so that bursts find room (Enter waits behind whatever runs).
_GATEWAY_UTILIZATION = 0.6
_DATABASE_UTILIZATION = 0.5
_KIB_PER_GIB = 2**20


class Cost(msgspec.Struct, frozen=True):
    """What one piece of work takes: CPU time, traffic with the database and with the client."""

    gateway_cpu_ms: float
    database_cpu_ms: float
    database_round_trips: float
    database_bytes: float
    client_bytes: float


class UnitCosts(msgspec.Struct, frozen=True):
    """The costs of pieces of work as they occur, and the memory of what a gateway keeps.

    Each is measured by itself, less only what the processes take in the same time anyway, and is
    never rounded up to zero: `negative_costs` names what came out below it.

    Attributes:
        idle: a second of a gateway whose players do nothing, and of its database.
        typing: a text of `chars_per_message` typed, with what is prefetched for it, and not sent.
        message: from Enter to the end of the reply, with its context at hand, without the language
            model, not to be remembered.
        job: what ingesting a turn adds to a message.
        background: the work by rules that waits for a lull, for `messages_at_once` messages.
        keystroke: a draft at a typist's pace where nothing is prefetched; part of `typing`.
        prefetch: a draft for which a context is prepared; part of `typing`.
        bare_keystroke_cpu_ms: the floor of `keystroke`: a server that only parses the draft.
        process_mib: a gateway without sessions.
        memory_kib: one memory in a loaded index.
    """

    idle: Cost
    typing: Cost
    message: Cost
    job: Cost
    background: Cost
    messages_at_once: int
    keystroke: Cost
    prefetch: Cost
    prefetches_per_message: float
    chars_per_message: int
    bare_keystroke_cpu_ms: float
    process_mib: float
    idle_session_kib: float
    typing_session_kib: float
    memory_kib: float


class Workload(msgspec.Struct, frozen=True):
    """Players who are in a conversation at the same time, each sending a message now and then.

    `jobs_per_message`: a language model's reply is ingested like the message, that of the offline
    model is not.
    """

    players: int
    message_interval_s: float
    memories_per_player: int
    jobs_per_message: float = 2.0


class Prices(msgspec.Struct, frozen=True):
    """What machines cost a month, in whatever currency."""

    core: float
    gib: float
    cores_per_machine: int


class Load(msgspec.Struct, frozen=True):
    """What a workload asks of all gateways and databases together, on average."""

    gateway_cores: float
    database_cores: float
    gateway_gib: float
    commits_per_s: float
    database_bytes_per_s: float
    client_bytes_per_s: float


class Deployment(msgspec.Struct, frozen=True):
    """What serves a workload: gateways have a core each; `price` is per month."""

    workload: Workload
    load: Load
    gateways: int
    gateway_gib: float
    database_nodes: int
    price: float


def messages_gathered(interval_s: float) -> int:
    """Return how many messages background work takes together, of a player who sends so often."""
    if interval_s > LULL.total_seconds():
        return 1
    return min(MAX_GATHERED_MESSAGES, 1 + int(GATHERED_FOR.total_seconds() / interval_s))


def negative_costs(costs: UnitCosts) -> list[str]:
    """Return which costs came out below zero, each with its value: errors of measurement."""
    return [
        f"{unit}.{part}: {value:.3f}"
        for unit, cost in msgspec.structs.asdict(costs).items()
        if isinstance(cost, Cost)
        for part, value in msgspec.structs.asdict(cost).items()
        if value < 0
    ]


def load_of(workload: Workload, costs: UnitCosts, gateways: int = 1) -> Load:
    """Return what a workload asks for; each gateway adds an empty process."""
    messages_per_s = workload.players / workload.message_interval_s
    per_message = (
        (costs.typing, 1.0),
        (costs.message, 1.0),
        (costs.job, workload.jobs_per_message),
        (costs.background, 1 / messages_gathered(workload.message_interval_s)),
    )

    def per_second(name: str) -> float:
        working = sum(float(getattr(cost, name)) * count for cost, count in per_message)
        return messages_per_s * working + gateways * float(getattr(costs.idle, name))

    session_kib = costs.typing_session_kib + workload.memories_per_player * costs.memory_kib
    return Load(
        gateway_cores=per_second("gateway_cpu_ms") / 1000,
        database_cores=per_second("database_cpu_ms") / 1000,
        gateway_gib=gateways * costs.process_mib / 1024
        + workload.players * session_kib / _KIB_PER_GIB,
        commits_per_s=messages_per_s * (2 + workload.jobs_per_message),  # message, reply, jobs
        database_bytes_per_s=per_second("database_bytes"),
        client_bytes_per_s=per_second("client_bytes"),
    )


def deployment_for(workload: Workload, costs: UnitCosts, prices: Prices) -> Deployment:
    """Return how many gateways and database nodes a workload needs, and what they cost.

    The language model is not included. A database node is a machine of `cores_per_machine`.
    """
    idle_cores = costs.idle.gateway_cpu_ms / 1000
    gateways = math.ceil(
        load_of(workload, costs, gateways=0).gateway_cores / (_GATEWAY_UTILIZATION - idle_cores)
    )
    load = load_of(workload, costs, gateways)
    database_cores = math.ceil(load.database_cores / _DATABASE_UTILIZATION)
    nodes = math.ceil(database_cores / prices.cores_per_machine)
    return Deployment(
        workload=workload,
        load=load,
        gateways=gateways,
        gateway_gib=load.gateway_gib,
        database_nodes=nodes,
        price=(gateways + database_cores) * prices.core + load.gateway_gib * prices.gib,
    )
