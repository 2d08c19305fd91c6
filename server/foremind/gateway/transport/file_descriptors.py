"""File descriptors: raising the process limit, and how many connections it allows."""

import contextlib
import resource

from foremind.domain.errors import SetupError
from foremind.domain.settings.settings import Settings

_RESERVED = 256  # for files, listeners, connections to the model server, database notifications
_DEFAULT_MAX_CONNECTIONS = 10_000
_UNLIMITED = 1_048_576  # assumed when the system sets no limit


def raise_descriptor_limit() -> int:
    """Raise the soft limit on file descriptors to the hard limit; return the resulting limit."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if hard == resource.RLIM_INFINITY:
        hard = _UNLIMITED
    if soft != resource.RLIM_INFINITY and soft < hard:
        with contextlib.suppress(ValueError, OSError):  # macOS allows less than it reports
            resource.setrlimit(
                resource.RLIMIT_NOFILE, (hard, resource.getrlimit(resource.RLIMIT_NOFILE)[1])
            )
    soft = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    return _UNLIMITED if soft == resource.RLIM_INFINITY else soft


def connection_limit(settings: Settings, descriptors: int) -> int:
    """Return the maximum number of simultaneous connections.

    Raises:
        SetupError: the configured number needs more file descriptors than there are.
    """
    reserved = _RESERVED + settings.database_pool_size
    available = descriptors - reserved
    limit = settings.max_connections or max(1, min(_DEFAULT_MAX_CONNECTIONS, available))
    if limit > available:
        raise SetupError(
            f"FOREMIND_MAX_CONNECTIONS={limit} needs {limit + reserved} file descriptors, but "
            f"this process is limited to {descriptors}: raise the limit (`ulimit -n`, "
            "LimitNOFILE=)."
        )
    return limit
