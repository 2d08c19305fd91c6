"""File descriptors: as many as the system allows, and how many connections fit into them."""

import contextlib
import resource

from foremind.domain.errors import SetupError
from foremind.domain.settings import Settings

_RESERVED = 256  # for files, listeners, the language model's server, the database's announcements
_MOST = 10_000  # connections where nobody says how many
_ENOUGH = 1_048_576  # where there is no limit


def raise_descriptor_limit() -> int:
    """Raise this process's limit of descriptors to what it may have; return it."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if hard == resource.RLIM_INFINITY:
        hard = _ENOUGH
    if soft != resource.RLIM_INFINITY and soft < hard:
        with contextlib.suppress(ValueError, OSError):  # macOS allows less than it says
            resource.setrlimit(
                resource.RLIMIT_NOFILE, (hard, resource.getrlimit(resource.RLIMIT_NOFILE)[1])
            )
    soft = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    return _ENOUGH if soft == resource.RLIM_INFINITY else soft


def most_connections(settings: Settings, descriptors: int) -> int:
    """Return how many connections there may be at once.

    Raises:
        SetupError: more are wanted than there are descriptors for.
    """
    reserved = _RESERVED + settings.database_pool_size
    fitting = descriptors - reserved
    wanted = settings.max_connections or max(1, min(_MOST, fitting))
    if wanted > fitting:
        raise SetupError(
            f"FOREMIND_MAX_CONNECTIONS={wanted} needs {wanted + reserved} file descriptors, and "
            f"this process may have {descriptors}: raise its limit (`ulimit -n`, LimitNOFILE=)."
        )
    return wanted
