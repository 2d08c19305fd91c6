"""How many tokens a text takes: by the model's own tokenizer, or the usual estimate."""

from collections.abc import Callable
from functools import cache, lru_cache
from pathlib import Path

from tokenizers import Tokenizer

from foremind.errors import InvalidFile

_BYTES_PER_TOKEN = 4  # the usual estimate
_KNOWN_TEXTS = 20_000  # whose count is remembered, for each tokenizer

CountTokens = Callable[[str], int]


def estimate_tokens(text: str) -> int:
    """Estimate the tokens `text` takes, erring on the high side for other scripts."""
    return len(text.encode("utf-8", "surrogatepass")) // _BYTES_PER_TOKEN + 1


@cache
def counter_for(tokenizer: str | None) -> CountTokens:
    """Return what counts tokens with a `tokenizer.json`, or the estimate where none is known.

    Raises:
        InvalidFile: the file is not a tokenizer.
    """
    if tokenizer is None:
        return estimate_tokens
    if not Path(tokenizer).is_file():
        raise InvalidFile(f"{tokenizer}: expected a tokenizer.json", param="llm_tokenizer")
    try:
        loaded = Tokenizer.from_file(tokenizer)
    except Exception as error:  # the library raises bare exceptions
        raise InvalidFile(f"{tokenizer}: {error}", param="llm_tokenizer") from None
    loaded.no_padding()
    loaded.no_truncation()

    @lru_cache(_KNOWN_TEXTS)
    def count(text: str) -> int:
        plain = text.encode("utf-8", "replace").decode()
        return len(loaded.encode(plain, add_special_tokens=False).ids)

    return count
