"""The exception hierarchy.

ForemindError
├── RequestError            the request cannot be fulfilled; names the field
│   ├── InvalidMessage      the message is malformed
│   ├── NotAuthenticated    the token is missing, invalid or expired
│   ├── NotAllowed          the principal lacks permission
│   ├── NotFound            the named resource does not exist
│   ├── Conflict            the resource has changed in the meantime
│   ├── TooLarge            the body exceeds its byte limit
│   └── UnsupportedMediaType  the body has an unsupported media type
├── TemporaryError          the same request may succeed later (retryable)
│   ├── Overloaded          a bounded queue is full
│   ├── RateLimited         the principal exceeds a rate limit
│   │   └── TokenLimitReached  the user has spent the tokens of a day
│   ├── Interrupted         preempted by something more urgent
│   ├── Draining            this server accepts no new sessions
│   ├── StorageUnavailable  the database did not answer
│   └── ModelServerError    the language model server failed
│       └── UnusableAnswer  its answer was unusable, or it refuses the request
├── SetupError              the operator must change something before Foremind can run
│   ├── UnsafeBinding       reachable from outside without authentication
│   ├── DatabaseUnsuitable  PostgreSQL or pgvector is missing, old or differs from the migrations
│   ├── ModelMismatch       vectors come from another embedding model than expected
│   └── InvalidFile         a file written by the operator has an invalid field
"""

import msgspec

#: What msgspec raises for bytes that are not JSON: malformed, not UTF-8, nested too deeply.
NOT_JSON = (msgspec.DecodeError, UnicodeError, RecursionError)


class ForemindError(Exception):
    """Base class of all errors that Foremind raises deliberately."""

    kind = "server_error"  #: the error's `type` on the wire
    code = "internal_error"
    retryable = False
    retry_after_s: float | None = None  #: when to retry, where that is known
    for_operator: str | None = None  #: what the log says of it besides the code

    def __init__(self, message: str, *, param: str | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.param = param


class RequestError(ForemindError):
    """The request cannot be fulfilled."""

    kind = "invalid_request_error"
    code = "invalid_request"


class InvalidMessage(RequestError):
    """A message is malformed; `param` names the field, the text says what was expected."""

    def __init__(self, message: str, *, param: str | None = None, code: str | None = None) -> None:
        super().__init__(message, param=param)
        self.code = code or "invalid_message"


class NotAuthenticated(RequestError):
    """The token is missing, invalid or expired."""

    kind = "authentication_error"
    code = "not_authenticated"


class NotAllowed(RequestError):
    """The principal is authenticated but lacks permission."""

    kind = "permission_error"
    code = "not_allowed"


class NotFound(RequestError):
    """The named resource does not exist."""

    code = "not_found"


class Conflict(RequestError):
    """The resource has changed since the client read it."""

    code = "conflict"


class TooLarge(RequestError):
    """The body exceeds the byte limit of this request."""

    code = "too_large"


class StorageFull(RequestError):
    """The user has stored as much as one user may."""

    code = "storage_full"


class UnsupportedMediaType(RequestError):
    """The body has a media type that this request does not support."""

    code = "unsupported_media_type"


class TemporaryError(ForemindError):
    """The same request may succeed later."""

    kind = "unavailable_error"
    code = "unavailable"
    retryable = True


class Overloaded(TemporaryError):
    """A bounded queue is full."""

    code = "overloaded"


class RateLimited(TemporaryError):
    """The principal exceeds a rate limit; `retry_after_s` is when to retry."""

    kind = "rate_limit_error"
    code = "rate_limited"
    retry_after_s: float

    def __init__(self, message: str, *, retry_after_s: float = 1.0) -> None:
        super().__init__(message)
        self.retry_after_s = retry_after_s


class TokenLimitReached(RateLimited):
    """The user has spent the tokens of language models that one may on a day."""

    code = "token_limit"


class Interrupted(TemporaryError):
    """Work in flight was preempted by something more urgent."""

    code = "interrupted"


class Draining(TemporaryError):
    """This server is stopping; another, or this one after its restart, will take the session."""

    code = "draining"


class StorageUnavailable(TemporaryError):
    """The database is down or did not answer in time."""

    code = "storage_unavailable"


#: What a player is told of a model server's failure, by code.
_FOR_PLAYERS = {
    "model_unreachable": "The companion cannot answer right now. Try again in a minute.",
    "model_timeout": "The companion took too long to answer. Try again.",
    "model_busy": "The companion is asked too much at once. Try again in a minute.",
    "model_refused": "The companion cannot answer this. Try again later, or in other words.",
    "model_broken": "The companion's answer did not arrive whole. Try again.",
}


class ModelServerError(TemporaryError):
    """The language model server is down, slow, or sent an invalid response.

    The message is for players. What to check is for the operator, in the log.
    """

    def __init__(
        self,
        for_operator: str,
        *,
        code: str,
        message: str | None = None,
        retry_after_s: float | None = None,
    ) -> None:
        super().__init__(message or _FOR_PLAYERS[code])
        self.code = code
        self.for_operator = for_operator
        self.retry_after_s = retry_after_s

    def __str__(self) -> str:
        return self.for_operator or self.message


class UnusableAnswer(ModelServerError):
    """The language model's answer was unusable, or it refuses the request."""

    def __init__(self, problem: str, code: str = "model_broken") -> None:
        super().__init__(f"The language model's answer is not valid: {problem}", code=code)


class SetupError(ForemindError):
    """The operator must change something; the text says what."""

    code = "setup_error"


class UnsafeBinding(SetupError):
    """The server would be reachable from outside without authentication."""


class DatabaseUnsuitable(SetupError):
    """PostgreSQL, pgvector or the schema is not what this version needs."""


class ModelMismatch(SetupError):
    """Stored vectors, or those of an embeddings server, come from another embedding model."""


class InvalidFile(SetupError):
    """A file written by the operator has an invalid field."""
