"""How many tokens a text takes: by the model's own tokenizer, or an estimate on the safe side."""

import secrets
from collections.abc import Callable
from functools import cache
from hashlib import blake2b
from pathlib import Path

import structlog
from cachetools import LRUCache
from tokenizers import Tokenizer

from foremind.domain.errors import InvalidFile

# English prose has four or five, German or French three; a prompt that is too long is refused by
# some model servers, and cut at its beginning by others.
_BYTES_PER_TOKEN = 3
_KNOWN_TEXTS = 20_000  # whose count is remembered, for each tokenizer

_log = structlog.get_logger("foremind.llm")

CountTokens = Callable[[str], int]


def estimate_tokens(text: str) -> int:
    """Estimate the tokens `text` takes, rather too many than too few."""
    return len(text.encode("utf-8", "surrogatepass")) // _BYTES_PER_TOKEN + 1


@cache
def counter_for(tokenizer: str | None) -> CountTokens:
    """Return what counts tokens with a `tokenizer.json`, or the estimate where there is none."""
    if tokenizer is None:
        return estimate_tokens
    try:
        return load_counter(tokenizer)
    except InvalidFile:  # it was one when it was set: a file that is gone stops nobody
        _log.warning("tokenizer.unusable")
        return estimate_tokens


def load_counter(tokenizer: str) -> CountTokens:
    """Return what counts tokens with a `tokenizer.json`.

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

    known: LRUCache[bytes, int] = LRUCache(_KNOWN_TEXTS)
    key = secrets.token_bytes(32)

    def count(text: str) -> int:
        plain = text.encode("utf-8", "replace")
        # Texts are known by a keyed digest: nothing of what may be forgotten is held here.
        digest = blake2b(plain, digest_size=16, key=key).digest()
        tokens = known.get(digest)
        if tokens is None:
            tokens = len(loaded.encode(plain.decode(), add_special_tokens=False).ids)
            known[digest] = tokens
        return tokens

    return count
