"""Whose tokens a language model reads and writes, and what for: counted, and limited per day."""

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass

from foremind.domain.errors import StorageUnavailable
from foremind.domain.policy import ChatModelPolicy
from foremind.domain.relationship import companion_id_of
from foremind.llm.chat_model import MAX_CHARS_PER_TOKEN
from foremind.llm.completion_parser import StreamEnding
from foremind.llm.prompt.layout import Message
from foremind.llm.prompt.token_counter import counter_for, prompt_tokens
from foremind.runtime.metrics import Metrics
from foremind.runtime.supervision import run_or_offload
from foremind.storage.companion_store import CompanionStore
from foremind.storage.quotas import TokenQuota

#: The token limit of requests that only have a prompt read.
PREFILL_TOKENS = 1
_MAX_NAMES = 200  # of companions in the metrics, which keep a series for each for ever
_OTHER = "other"
_SERVERS_OWN_TOKENS = 16_384  # that a server may add to a prompt, such as instructions of its own


class TokenAccounts:
    """Counts the tokens of every request to a language model, by companion and purpose."""

    def __init__(self, quota: TokenQuota, companions: CompanionStore, metrics: Metrics) -> None:
        self.quota = quota
        self._companions = companions
        self._metrics = metrics
        self._names: dict[int, str] = {}

    def of(self, relationship_id: int, policy: ChatModelPolicy) -> "TokenAccount":
        """Return the account of a relationship under a policy."""
        return TokenAccount(self, relationship_id, policy)

    async def learn_name(self, relationship_id: int) -> None:
        """Read the name by which the metrics call a companion, unless there are too many."""
        companion_id = companion_id_of(relationship_id)
        if companion_id not in self._names and len(self._names) < _MAX_NAMES:
            with suppress(StorageUnavailable):
                companion = await self._companions.get(companion_id)
                self._names[companion_id] = _OTHER if companion is None else companion.slug

    def count(self, relationship_id: int, purpose: str, prompt: int, completion: int) -> None:
        """Count the tokens of a request in the metrics."""
        name = self._names.get(companion_id_of(relationship_id), _OTHER)
        self._metrics.tokens.labels(name, purpose, "prompt").inc(prompt)
        self._metrics.tokens.labels(name, purpose, "completion").inc(completion)


@dataclass(frozen=True, slots=True)
class TokenAccount:
    """The tokens of one user with one companion."""

    accounts: TokenAccounts
    relationship_id: int
    policy: ChatModelPolicy

    async def admit(self, purpose: str) -> None:
        """Check that a request may be made for this purpose.

        Raises:
            TokenLimitReached: as `TokenQuota.admit`; for a reply later than for anything else.
            StorageUnavailable: it is unknown what was spent.
        """
        await self.accounts.learn_name(self.relationship_id)
        if self.policy.tokens_per_day is not None:
            await self.accounts.quota.admit(
                self.relationship_id,
                self.policy.tokens_per_day,
                of_companion="llm_tokens_per_day" in self.policy.own,
                is_reply=purpose == "reply",
            )

    async def record(
        self, purpose: str, messages: Sequence[Message], max_tokens: int, ending: StreamEnding
    ) -> None:
        """Count a request that was accepted, however it ended."""
        written = "".join(ending.written)
        chars = sum(len(message["content"]) for message in messages)
        prompt, completion = ending.usage
        if not _plausible(prompt, chars, chars * 4 + _SERVERS_OWN_TOKENS):
            prompt = None
        if not _plausible(completion, len(written), max_tokens * MAX_CHARS_PER_TOKEN):
            completion = None
        if prompt is None or completion is None:
            counter = counter_for(self.policy.tokenizer)
            counted = await run_or_offload(
                chars + len(written), lambda: (prompt_tokens(messages, counter), counter(written))
            )
            prompt = counted[0] if prompt is None else prompt
            completion = counted[1] if completion is None else completion
        self.accounts.count(self.relationship_id, purpose, prompt, completion)
        # Prefills are made only where prompt tokens cost nothing.
        if self.policy.tokens_per_day is not None and max_tokens > PREFILL_TOKENS:
            self.accounts.quota.add(self.relationship_id, prompt + completion)


def _plausible(tokens: int | None, chars: int, most: int) -> bool:
    """Return whether a text of so many characters may have so many tokens. Pure."""
    return tokens is not None and -(-chars // MAX_CHARS_PER_TOKEN) <= tokens <= most
