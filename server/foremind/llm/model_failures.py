"""What went wrong with a model server: a code, words for the player, words for the operator. Pure.

A server's own message may quote the prompt, so none of it is repeated: only its codes, which are
single words, and numbers.
"""

import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import httpx2
import msgspec

from foremind.domain.errors import ModelServerError
from foremind.llm.completion_parser import ReportedError
from foremind.llm.http_client import StreamLimitExceeded

# Statuses with which a server may say that it does not know a response format.
_FORMAT_REFUSED = (400, 404, 415, 422, 500, 501)
# Statuses with which it rejects the content itself: a filter matched, or the prompt is too long.
# Retrying is pointless, unlike for failures of authentication, load or availability.
_CONTENT_REFUSED = (400, 413, 422)
_BUSY = (429, 503, 529)
_REPORTED_CODE = re.compile(r"[A-Za-z][\w.-]{1,59}")
_OUT_OF_CREDIT = re.compile(r"quota|credit|billing|payment", re.IGNORECASE)
_TOO_LONG = re.compile(r"context[ _](?:size|length|window)|maximum.{0,20}length", re.IGNORECASE)
_MAX_RETRY_S = 3600.0


@dataclass(frozen=True, slots=True)
class AskedModel:
    """The model that was asked, and which of its settings are the companion's own.

    `key_known` says whether there is a key to send.
    """

    model: str
    own: frozenset[str] = frozenset()
    key_known: bool = True

    def setting(self, name: str) -> str:
        """Return what a setting of the model is called where it was set."""
        return f"the companion's {name}" if name in self.own else f"FOREMIND_{name.upper()}"

    @property
    def key_setting(self) -> str:
        """What the setting of the key is called, and whether it has one."""
        # The server's key is not sent to a companion's own server.
        is_own = self.own & {"llm_url", "llm_key_env"}
        name = "the companion's llm_key_env" if is_own else "FOREMIND_LLM_KEY"
        return name if self.key_known else f"{name}, which gives no key"


@contextmanager
def mapped_errors(asked: AskedModel, when_lost: str) -> Iterator[None]:
    """Map exceptions of the HTTP library and the network to errors with a code.

    `when_lost` is the code for a lost connection: before the first byte the server is unreachable,
    later the stream is broken.
    """
    try:
        yield
    except ModelServerError:  # already mapped
        raise
    except (httpx2.TimeoutException, TimeoutError) as error:
        raise ModelServerError(
            "The language model took too long to answer.", code="model_timeout"
        ) from error
    except httpx2.HTTPStatusError as error:
        headers = error.response.headers
        raise refusal(
            asked, error.response.status_code, _decoded(error.response.content), headers
        ) from error
    except ReportedError as error:
        raise _reported(asked, error.reported) from error
    except StreamLimitExceeded as error:
        raise ModelServerError(str(error), code="model_broken") from error
    except Exception as error:  # a lost connection, a truncated stream, bad JSON, an odd shape
        lost = isinstance(error, httpx2.RequestError | httpx2.InvalidURL | OSError)
        malformed = isinstance(error, httpx2.ProtocolError)
        if lost and not malformed and when_lost == "model_unreachable":
            reason = f" ({error})" if isinstance(error, httpx2.ConnectError) else ""
            raise ModelServerError(
                f"The language model server cannot be reached. Check {asked.setting('llm_url')}."
                f"{reason}",
                code=when_lost,
            ) from error
        raise ModelServerError(
            "The language model server closed the stream early or sent an invalid response "
            f"({type(error).__name__}). Its own log may say why.",
            code="model_broken",
        ) from error


def refusal(
    asked: AskedModel, status: int, body: object, headers: Mapping[str, str] | None = None
) -> ModelServerError:
    """Return the error for an HTTP status that is no success.

    Args:
        body: of the response, decoded.
    """
    error = body.get("error", body) if isinstance(body, Mapping) else {}
    code, advice = _advice(asked, status, error)
    words = _reported_codes(error)
    says = f" It says {', '.join(words)}." if words else ""
    return ModelServerError(
        f"The language model server {advice[0]} (HTTP {status}). {advice[1]}{says}",
        code=code,
        retry_after_s=_retry_after(headers or {}),
    )


def _advice(asked: AskedModel, status: int, error: object) -> tuple[str, tuple[str, str]]:
    """Return the code for a status, what the server did, and what the operator can do."""
    model, url, text = asked.setting("llm_model"), asked.setting("llm_url"), str(error)
    log = "Its own log says why."
    if status == 402 or (status == 429 and _OUT_OF_CREDIT.search(text)):
        return "model_refused", ("wants to be paid", "Look at the account that the key belongs to.")
    if status in (401, 403):
        return "model_refused", ("refused the request", f"Check {asked.key_setting}.")
    if status in (404, 405):
        check = f"Check {model} ({asked.model!r}), and {url}, which mostly ends with /v1."
        return "model_refused", ("knows no such model or address", check)
    if status in _CONTENT_REFUSED and _TOO_LONG.search(text):
        limit = _context_tokens(error)
        most = "what it reads" if limit is None else f"the {limit} tokens that it reads"
        context = f"Lower FOREMIND_CONTEXT_TOKENS or the companion's context_tokens to {most}."
        return "model_refused", ("refused the prompt as too long", context)
    if status in _BUSY:
        return "model_busy", (
            "is overloaded or loading its model",
            "Send it fewer requests at once (FOREMIND_LLM_SLOTS), or give it more room.",
        )
    if status in (408, 504):
        return "model_timeout", ("took too long", log)
    if status == 502:
        return "model_unreachable", ("is behind a proxy that cannot reach it", log)
    if status >= 500:
        return "model_broken", ("failed", log)
    check = f"{asked.setting('llm_extra')}, its chat template or a filter may be the cause."
    return "model_refused", ("refused the request", f"{check} {log}")


def _reported(asked: AskedModel, error: object) -> ModelServerError:
    """Return the error for a failure that a response reports although its status is a success."""
    status = error.get("code") if isinstance(error, Mapping) else None
    if isinstance(status, int) and 400 <= status < 600:
        return refusal(asked, status, error)
    words = _reported_codes(error)
    says = f" It says {', '.join(words)}." if words else ""
    return ModelServerError(
        f"The language model server reported a failure in its reply. Its own log says why.{says}",
        code="model_broken",
    )


def is_content_refusal(error: ModelServerError) -> bool:
    """Return whether a server rejected the content of a request, so that retrying is pointless."""
    return _status_of(error) in _CONTENT_REFUSED


def may_be_format_refusal(error: ModelServerError) -> bool:
    """Return whether a server may have rejected the response format rather than the request."""
    return _status_of(error) in _FORMAT_REFUSED


def _status_of(error: ModelServerError) -> int | None:
    """Return the HTTP status with which a server refused a request."""
    cause = error.__cause__
    return cause.response.status_code if isinstance(cause, httpx2.HTTPStatusError) else None


def _decoded(content: bytes) -> object:
    try:
        return msgspec.json.decode(content)
    except (msgspec.DecodeError, UnicodeError, RecursionError):
        return {}


def _reported_codes(error: object) -> list[str]:
    """Return the single words with which a server names a failure."""
    if not isinstance(error, Mapping):
        return []
    words = [error.get(name) for name in ("type", "code", "status")]
    return list(
        dict.fromkeys(w for w in words if isinstance(w, str) and _REPORTED_CODE.fullmatch(w))
    )


def _context_tokens(error: Any) -> int | None:
    """Return how many tokens a server says that it reads: as llama.cpp does, in a field."""
    tokens = error.get("n_ctx") if isinstance(error, Mapping) else None
    return tokens if isinstance(tokens, int) else None


def _retry_after(headers: Mapping[str, str]) -> float | None:
    """Return the seconds that a server asks to wait; None for a date, or without a number."""
    try:
        seconds = float(headers.get("retry-after", ""))
    except ValueError:
        return None
    return min(seconds, _MAX_RETRY_S) if seconds >= 0 else None
