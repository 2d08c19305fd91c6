"""The error tree.

ForemindError
├── RequestError            what a client sent cannot be done; names the field
│   ├── InvalidMessage      the message itself is wrong
│   ├── NotAuthenticated    the token is missing, wrong or expired
│   ├── NotAllowed          the caller may not do this
│   ├── NotFound            what was named does not exist
│   ├── Conflict            what was to be changed has changed meanwhile
│   ├── TooLarge            a body has more bytes than are taken
│   └── UnsupportedMediaType  a body is of another type than is taken
├── TemporaryError          the same request may succeed later (retryable)
│   ├── Overloaded          a bounded queue is full
│   ├── RateLimited         this caller asks for too much at once
│   ├── Interrupted         something more urgent took its place
│   ├── Draining            this server takes no new sessions
│   ├── StorageUnavailable  the database did not answer
│   └── ModelServerError    the language model server failed
│       └── UnusableAnswer  it answered, and nothing of that could be used, or refuses this
├── SetupError              the operator must change something before Foremind can run
│   ├── UnsafeBinding       reachable from outside without authentication
│   ├── DatabaseUnsuitable  PostgreSQL or pgvector is missing, old or differs from the migrations
│   ├── ModelMismatch       the store's vectors were made by another embedding model
│   ├── ModelUnusable       an embedding model could not be fetched, converted or trusted
│   └── InvalidFile         a file that the operator wrote has a wrong field
"""

import msgspec

#: What msgspec raises for bytes that are no JSON: malformed, not UTF-8, nested without end.
NOT_JSON = (msgspec.DecodeError, UnicodeError, RecursionError)


class ForemindError(Exception):
    """Root of every error that Foremind raises on purpose."""

    kind = "server_error"  #: `type` of the error as clients are told
    code = "internal_error"
    retryable = False

    def __init__(self, message: str, *, param: str | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.param = param


class RequestError(ForemindError):
    """What a client sent cannot be done."""

    kind = "invalid_request_error"
    code = "invalid_request"


class InvalidMessage(RequestError):
    """A message is malformed; `param` names the field, the text what was expected."""

    def __init__(self, message: str, *, param: str | None = None, code: str | None = None) -> None:
        super().__init__(message, param=param)
        self.code = code or "invalid_message"


class NotAuthenticated(RequestError):
    """The token is missing, wrong or expired."""

    kind = "authentication_error"
    code = "not_authenticated"


class NotAllowed(RequestError):
    """The caller is known but may not do this."""

    kind = "permission_error"
    code = "not_allowed"


class NotFound(RequestError):
    """What the request names does not exist."""

    code = "not_found"


class Conflict(RequestError):
    """What the request was made for has changed meanwhile."""

    code = "conflict"


class TooLarge(RequestError):
    """The body has more bytes than this request takes."""

    code = "too_large"


class UnsupportedMediaType(RequestError):
    """The body is of another type than this request takes."""

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
    """This caller asks for more than it may in a second; `retry_after_s` where that is known."""

    kind = "rate_limit_error"
    code = "rate_limited"

    def __init__(self, message: str, *, retry_after_s: float = 1.0) -> None:
        super().__init__(message)
        self.retry_after_s = retry_after_s


class Interrupted(TemporaryError):
    """What was under way was broken off for something more urgent."""

    code = "interrupted"


class Draining(TemporaryError):
    """This server is stopping; another, or this one restarted, will take the session."""

    code = "draining"


class StorageUnavailable(TemporaryError):
    """The database did not answer in time or is away."""

    code = "storage_unavailable"


class ModelServerError(TemporaryError):
    """The language model server is down, slow, or answered nonsense."""

    def __init__(self, message: str, *, code: str) -> None:
        super().__init__(message)
        self.code = code


class UnusableAnswer(ModelServerError):
    """The language model answered, and nothing of it could be used; or it will not answer this."""

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
    """The store holds vectors of another embedding model."""


class ModelUnusable(SetupError):
    """An embedding model could not be fetched, converted or trusted."""


class InvalidFile(SetupError):
    """A file that the operator wrote has a wrong field."""
