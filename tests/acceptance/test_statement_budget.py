"""What a message costs in the database: counted, so that no machine is too slow for it."""

import asyncio
import re
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager

import pytest

from foremind.domain.settings.setting_definitions import LAYERS
from foremind.storage.named_queries import as_one_read, load_queries
from foremind_client import Client
from foremind_eval.doubles.manual_clock import ManualClock
from tests.conftest import RunningServer, StartServer, eventually_async, owner_of
from tests.integration.test_ingest import sent_statements

_MESSAGES = 4  # of a player who takes 15 seconds for each: two thirds of what is gathered at most
_PAUSE_S = 15.0
_IDLE_S = 60.0
_BUDGET = 30  # statements of one of these messages
# What a connection asks for once, to know the types that it is given.
_OF_A_CONNECTION = re.compile(r"typeinfo_tree|'jit'")


class Sent:
    """What servers have sent to the database, by the names of the statements."""

    def __init__(self, connections: Sequence[Sequence[str]]) -> None:
        names = {query: name for name, query in load_queries().items()}
        names |= {as_one_read(query): name for query, name in names.items()}
        self.statements: Counter[str] = Counter()
        self.transactions = self.notifications = 0
        for statements in connections:
            within = False
            for text in statements:
                if _OF_A_CONNECTION.search(text):
                    continue
                self.statements[names.get(text, text.partition(";")[0])] += 1
                self.notifications += text.count("NOTIFY ")
                self.transactions += not within
                within = text.startswith("BEGIN") or (within and not text.endswith("COMMIT"))

    def per_message(self, idle: "Sent") -> dict[str, float]:
        """Return what each message took, without what idle servers send in the same time."""
        counts = {
            "statements": (self.statements - idle.statements).total(),
            "transactions": self.transactions - idle.transactions,
            "notifications": self.notifications - idle.notifications,
        }
        return {name: count / _MESSAGES for name, count in counts.items()}


@contextmanager
def sent_by(servers: Sequence[RunningServer]) -> Iterator[list[list[str]]]:
    """The statements that each connection of some servers sends to the database meanwhile."""
    with ExitStack() as stack:
        sent = [stack.enter_context(sent_statements(server.app.core)) for server in servers]
        yield [statements for connections in sent for statements in connections]


async def connected(server: RunningServer) -> None:
    """Open all connections of the pool, so that each is listened to."""
    for holder in server.app.core.database.pool._holders:
        if holder._con is None:
            await holder.connect()


async def pass_by(clock: ManualClock, seconds: float) -> None:
    """Let time pass, while sockets are read."""
    for _ in range(round(seconds)):
        await clock.advance(1.0)
        await asyncio.sleep(0.01)


async def say(client: Client, clock: ManualClock, number: int) -> None:
    """Send a message without having typed it, and let time pass until the next."""
    await client.send(f"On day {number} I walked to the harbour and bought boat {number}.")
    await client.expect_all("response.done", "memory.stored")
    await pass_by(clock, _PAUSE_S)


async def type_draft(client: Client, clock: ManualClock, text: str) -> None:
    """Send a draft, and let time pass until its context is ready."""
    await client.send_raw({"type": "draft.update", "text": text})
    ready = asyncio.create_task(client.expect("context.ready"))
    while not ready.done():
        await clock.advance(0.05)
        await asyncio.sleep(0.01)


async def settled(server: RunningServer, clock: ManualClock) -> None:
    """Let the lull of the conversation pass, and what waits for it be done."""
    database = owner_of(server.app.core)

    async def nothing_waits() -> bool:
        await clock.advance(1.0)
        return not await database.fetchval(
            "SELECT (SELECT count(*) FROM relationships WHERE gathered > 0) "
            "+ (SELECT count(*) FROM background_claims) "
            "+ (SELECT count(*) FROM background_steps WHERE due_at <= $1)",
            clock.now(),
        )

    await pass_by(clock, _IDLE_S)
    await eventually_async(nothing_waits)


@pytest.mark.parametrize(
    ("layers_off", "gateways"),
    [([], 1), (list(LAYERS), 1), ([], 3)],
    ids=["all-layers", "no-layers", "three-gateways"],
)
async def test_a_message_keeps_to_its_budget(
    start: StartServer, layers_off: list[str], gateways: int
) -> None:
    """Whichever layers are on, and however many gateways; the failure says what it was."""
    clock = ManualClock()
    servers = [await start(clock=clock, layers_off=layers_off) for _ in range(gateways)]
    for server in servers:
        await connected(server)
    client = await server.session()
    for number in range(3):
        await say(client, clock, number)
    await settled(server, clock)
    began = clock.monotonic()
    with sent_by(servers) as while_talking:
        for number in range(3, 3 + _MESSAGES):
            await say(client, clock, number)
        await settled(server, clock)
    seconds = clock.monotonic() - began
    with sent_by(servers) as while_idle:
        await pass_by(clock, seconds)
    sent, idle = Sent(while_talking), Sent(while_idle)
    cost = sent.per_message(idle)
    spent = (sent.statements - idle.statements).most_common()
    assert cost["statements"] <= _BUDGET and cost["transactions"] <= 10, (cost, spent)
    assert cost["notifications"] <= 2.5, (cost, spent)
    assert sent.statements["finish_steps"] == 1, spent  # one gateway, once, for all messages
    idle_minute = idle.statements.total() * 60 / seconds
    assert idle_minute <= 120 * gateways, idle.statements.most_common()


async def test_a_keystroke_asks_the_database_nothing(start: StartServer) -> None:
    """Once what it needs is loaded."""
    clock = ManualClock()
    server = await start(clock=clock)
    await connected(server)
    client = await server.session()
    await say(client, clock, 1)
    await settled(server, clock)
    await type_draft(client, clock, "Which boat did I buy")
    with sent_statements(server.app.core) as while_typing:
        await type_draft(client, clock, "Which boat did I buy at the harbour?")
    assert Sent(while_typing).statements == Counter()
