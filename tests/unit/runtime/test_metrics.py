"""What `/metrics` says besides Foremind's own figures."""

from prometheus_client import generate_latest

from foremind import __version__
from foremind.runtime.metrics import Metrics


def test_the_version_and_the_process_are_told() -> None:
    """So that an operator sees which gateway runs what, since when, and on how much."""
    text = generate_latest(Metrics().registry).decode()
    assert f'foremind_build_info{{version="{__version__}"}} 1.0' in text
    for name in (
        "process_cpu_seconds_total",
        "process_open_fds",
        "process_resident_memory_bytes",
        "process_start_time_seconds",
    ):
        assert f"\n{name} " in text
