"""Counts the tokens of a text: with the model's tokenizer, or by a conservative estimate."""

import secrets
from collections.abc import Callable, Sequence
from functools import cache
from hashlib import blake2b
from pathlib import Path
from typing import TYPE_CHECKING

import structlog
from cachetools import LRUCache
from tokenizers import Tokenizer

from foremind.domain.errors import InvalidFile

if TYPE_CHECKING:
    from foremind.llm.prompt.layout import Message

# English prose has four or five, German or French three; some model servers refuse a prompt that is
# too long, others truncate its beginning.
_BYTES_PER_TOKEN = 3
TEMPLATE_TOKENS = 8  # that a chat template adds to each message
_CACHED_TEXTS = 20_000  # whose counts are cached, per tokenizer

_log = structlog.get_logger("foremind.llm")

CountTokens = Callable[[str], int]


def estimate_tokens(text: str) -> int:
    """Estimate the number of tokens in `text`, erring on the high side."""
    return len(text.encode("utf-8", "surrogatepass")) // _BYTES_PER_TOKEN + 1


def prompt_tokens(messages: "Sequence[Message]", count_tokens: CountTokens) -> int:
    """Return the tokens of a prompt, including its chat template."""
    return sum(count_tokens(message["content"]) + TEMPLATE_TOKENS for message in messages)


@cache
def counter_for(tokenizer: str | None) -> CountTokens:
    """Return a counter for a `tokenizer.json`, or the estimate if there is none."""
    if tokenizer is None:
        return estimate_tokens
    try:
        return load_counter(tokenizer)
    except InvalidFile:  # it was valid when it was configured; fall back rather than fail
        _log.warning("tokenizer.unusable")
        return estimate_tokens


def load_counter(tokenizer: str) -> CountTokens:
    """Return a counter for a `tokenizer.json`.

    Raises:
        InvalidFile: the file is not a tokenizer.
    """
    if not Path(tokenizer).is_file():
        raise InvalidFile(f"{tokenizer}: expected a tokenizer.json", param="llm_tokenizer")
    try:
        loaded = Tokenizer.from_file(tokenizer)
    except Exception as error:  # the library raises bare exceptions
        raise InvalidFile(f"{tokenizer}: {error}", param="llm_tokenizer") from None
    loaded.no_padding()
    loaded.no_truncation()

    counts: LRUCache[bytes, int] = LRUCache(_CACHED_TEXTS)
    key = secrets.token_bytes(32)

    def count(text: str) -> int:
        encoded = text.encode("utf-8", "replace")
        # Keyed digests, so that no text that may be erased later is kept here.
        digest = blake2b(encoded, digest_size=16, key=key).digest()
        tokens = counts.get(digest)
        if tokens is None:
            tokens = len(loaded.encode(encoded.decode(), add_special_tokens=False).ids)
            counts[digest] = tokens
        return tokens

    return count
