"""Changes the last exchange of a session: what no longer stands is erased with all made of it."""

from collections.abc import Awaitable, Callable, Collection
from dataclasses import dataclass, field, replace

import structlog

from foremind.domain.announcements import ReplyStored
from foremind.domain.clock import Clock
from foremind.domain.turn import MAX_REPLIES, LastExchange, MadeReply, OpenedSession, require_last
from foremind.memory.erasure.eraser import Eraser, Replacement
from foremind.storage.database import DatabaseConnection
from foremind.storage.erasure_store import ErasureReader, ErasureTransaction
from foremind.storage.turn_store import ExchangeTransaction

_log = structlog.get_logger("foremind.memory")

#: Stores a message within a transaction.
InsertMessage = Callable[[DatabaseConnection], Awaitable[None]]
_Pick = Callable[[LastExchange], MadeReply]


@dataclass(frozen=True, slots=True)
class ExchangeOwner:
    """Whose exchange is changed.

    Attributes:
        names: the user's and the companion's.
        actor: who requested it, for the audit trail.
        read_in_exchange: whether the companion's memories are embedded with their neighbours.
        needs_consent: whether a reply is remembered only with the user's consent.
        origin: the window that is told by other means, if any.
    """

    session: OpenedSession
    names: tuple[str, str]
    actor: str
    read_in_exchange: bool
    needs_consent: bool
    origin: str = ""


class ExchangeChanges:
    """Changes the last exchange of a session, each time in one transaction.

    What is withdrawn is erased as what was never meant to be kept: with its memories, facts and
    records, while all that the user also said elsewhere stays.
    """

    def __init__(self, eraser: Eraser, clock: Clock) -> None:
        self._eraser = eraser
        self._clock = clock

    async def edit(
        self, owner: ExchangeOwner, message_id: str, edited_id: str, insert: InsertMessage
    ) -> bool:
        """Put another message in the place of the last one, and of all replies to that.

        Args:
            edited_id: the id of the message that takes its place.
            insert: stores that message.

        Returns:
            False if a message is stored under its id already; then nothing was changed.

        Raises:
            InvalidMessage: `message_id` is not the last message's.
            Conflict, NotAuthenticated, NotFound: as `insert`.
            RateLimited, StorageUnavailable, Overloaded: try again later; nothing was changed.
        """
        edit = _Edit(owner.session, message_id, edited_id, insert)
        await self._replace(owner, edit)
        return edit.stored

    async def withdraw_reply(
        self, owner: ExchangeOwner, message_id: str, request_id: str
    ) -> LastExchange:
        """Withdraw the reply to the last message, so that another can be made; it can be chosen.

        The same request again withdraws nothing.

        Returns:
            The exchange as it was before.

        Raises:
            InvalidMessage: `message_id` is not the last message's.
            RateLimited, StorageUnavailable, Overloaded: try again later; nothing was changed.
        """
        withdrawal = _Withdrawal(owner.session, message_id, request_id)
        await self._replace(owner, withdrawal)
        last = withdrawal.last
        return replace(last, reply_id=None, reply=None) if withdrawal.repeated else last

    async def choose(
        self, owner: ExchangeOwner, message_id: str, index: int, *, ingested: bool
    ) -> int:
        """Let one of the replies to the last message stand; return its turn.

        Args:
            index: among all replies to it, the earliest first.
            ingested: whether it is ingested.

        Raises:
            InvalidMessage: `message_id` is not the last message's, or there is no such reply.
            RateLimited, StorageUnavailable, Overloaded: try again later; nothing was changed.
        """
        return await self._choose(owner, message_id, lambda last: last.chosen(index), ingested)

    async def restore(
        self, owner: ExchangeOwner, message_id: str, index: int, *, ingested: bool
    ) -> int:
        """Let a reply stand unless another one does by now; return the turn that stands.

        Arguments and errors as of `choose`.
        """

        def pick(last: LastExchange) -> MadeReply:
            return last.chosen(index) if last.reply is None else last.reply

        return await self._choose(owner, message_id, pick, ingested)

    async def show(
        self, owner: ExchangeOwner, message_id: str, text: str, *, ingested: bool
    ) -> int:
        """Let a reply with this text stand: the one that has it, or one that the player wrote.

        Arguments, result and errors as of `choose`.
        """

        def pick(last: LastExchange) -> MadeReply:
            for reply in last.replies:
                if reply.text == text:
                    return reply
            positions = [reply.position for reply in last.replies]
            return MadeReply(max(positions, default=-1) + 1, "completed", text, self._clock.now())

        return await self._choose(owner, message_id, pick, ingested)

    async def _choose(
        self, owner: ExchangeOwner, message_id: str, pick: _Pick, ingested: bool
    ) -> int:
        terms = _Terms(ingested, owner.needs_consent)
        choice = _Choice(owner.session, message_id, pick, terms, self._clock, owner.origin)
        await self._replace(owner, choice)
        return choice.turn_id

    async def _replace(self, owner: ExchangeOwner, replacement: Replacement) -> None:
        await self._eraser.replace(
            owner.session.relationship_id,
            owner.names,
            replacement,
            actor=owner.actor,
            read_in_exchange=owner.read_in_exchange,
        )
        _log.info("exchange.changed", relationship_id=owner.session.relationship_id)


@dataclass(slots=True)
class _Change:
    """What the changes have in common: the exchange as it was read last."""

    session: OpenedSession
    message_id: str
    last: LastExchange = field(init=False)

    async def read(self, reader: ErasureReader) -> LastExchange:
        found = await reader.last_exchange(self.session.session_id)
        self.last = require_last(found, self.message_id)
        return self.last

    def standing_turns(self) -> list[int]:
        return [] if self.last.reply_id is None else [self.last.reply_id]

    def exchange(self, transaction: ErasureTransaction) -> ExchangeTransaction:
        return ExchangeTransaction(
            transaction.connection, self.session.relationship_id, self.last.turn_id
        )


@dataclass(slots=True)
class _Edit(_Change):
    """Another message in place of the last one."""

    edited_id: str
    insert: InsertMessage
    stored: bool = False

    async def withdrawn(self, reader: ErasureReader) -> Collection[int]:
        self.stored = not await reader.knows_message(self.session.user_id, self.edited_id)
        if not self.stored:
            return ()
        last = await self.read(reader)
        return [last.turn_id, *self.standing_turns()]

    async def store(self, transaction: ErasureTransaction) -> bool:
        if self.stored:
            await self.insert(transaction.connection)
        return self.stored


@dataclass(slots=True)
class _Withdrawal(_Change):
    """No reply, until another one is made; the one that stood can be chosen."""

    request_id: str

    async def withdrawn(self, reader: ErasureReader) -> Collection[int]:
        await self.read(reader)
        return () if self.repeated else self.standing_turns()

    @property
    def repeated(self) -> bool:
        """Whether the same request was made before."""
        return self.last.regenerated_by == self.request_id

    async def store(self, transaction: ErasureTransaction) -> bool:
        if self.repeated:
            return False
        exchange, last = self.exchange(transaction), self.last
        if last.reply is not None:
            # All of them: until another is made, the one that stood may have to stand again.
            await exchange.put_alternatives(last.replies[-MAX_REPLIES:])
        await exchange.untie_removed_reply()
        await exchange.note_regeneration(self.request_id)
        return last.reply is not None


@dataclass(frozen=True, slots=True)
class _Terms:
    """Whether a reply is ingested, and whether that needs the user's consent."""

    ingested: bool
    needs_consent: bool


@dataclass(slots=True)
class _Choice(_Change):
    """One of the replies in place of the one that stands."""

    pick: _Pick
    terms: _Terms
    clock: Clock
    origin: str
    turn_id: int = 0

    async def withdrawn(self, reader: ErasureReader) -> Collection[int]:
        last = await self.read(reader)
        return () if self.pick(last) is last.reply else self.standing_turns()

    async def store(self, transaction: ErasureTransaction) -> bool:
        last, reply = self.last, self.pick(self.last)
        if reply is last.reply:
            assert last.reply_id is not None
            self.turn_id = last.reply_id
            return False
        exchange = self.exchange(transaction)
        # One that the player wrote takes the place of the one that stood, which cannot be chosen.
        choices = last.replies if reply in last.replies else last.others
        others = [other for other in choices if other is not reply]
        await exchange.put_alternatives(others[1 - MAX_REPLIES :])
        await exchange.untie_removed_reply()
        stored = await exchange.insert_reply(reply, needs_consent=self.terms.needs_consent)
        assert stored is not None  # the relationship is locked, and no other reply is tied
        self.turn_id, kept = stored
        transaction.connection.announce(
            ReplyStored(
                self.session.relationship_id,
                self.session.session_id,
                None,
                self.turn_id,
                self.origin,
            )
        )
        if self.terms.ingested and kept:
            await transaction.enqueue_ingest([self.turn_id], self.clock.now())
        return True
