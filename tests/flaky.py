"""Runs what failed once more, alone: python -m tests.flaky, after a run of all tests.

On a busy machine one of thousands of tests may fail for lack of time. What passes alone is printed
as flaky, to be mended; more than a few such are no accident.
"""

import json
import subprocess
import sys
from pathlib import Path

MAX_FLAKY = 2
FAILED = Path(".pytest_cache/v/cache/lastfailed")


def failed_in(file: Path) -> list[str]:
    """Return the tests that failed in the last run; none if it did not get as far as to run any."""
    return sorted(json.loads(file.read_text("utf-8"))) if file.exists() else []


def main() -> int:
    """Return 0 if a few tests failed that pass alone."""
    failed = failed_in(FAILED)
    if not 0 < len(failed) <= MAX_FLAKY:
        print(f"{len(failed)} tests failed; at most {MAX_FLAKY} are run once more.")
        return 1
    again = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", *failed]
    code = subprocess.run(again, check=False).returncode
    for name in failed:
        print(f"{'FLAKY' if code == 0 else 'FAILED AGAIN'}: {name}")
    return code


if __name__ == "__main__":
    sys.exit(main())
