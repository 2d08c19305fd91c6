"""`make fuzz MINUTES=10`: libFuzzer through atheris, one target after the other.

Every target is a process of its own that starts from the corpus. What crashes, hangs for five
seconds or takes a gigabyte is left in `.fuzz/`: put into the corpus, it is a test from then on.
"""

import argparse
import os
import subprocess
import sys
from pathlib import Path

from tests.fuzzing import CORPUS

_LEFT = Path(".fuzz")
# By their folders: the targets themselves are instrumented as they are imported, later.
_TARGETS = sorted(each.name for each in CORPUS.iterdir())
_HANG_S, _MOST_MB, _MOST_BYTES = 5, 1024, 4096


def main() -> None:
    """Fuzz all targets for a time; exit with 1 where one broke."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--minutes", type=float, default=10, help="of all targets together")
    parser.add_argument("--target", choices=_TARGETS, help=argparse.SUPPRESS)
    options, rest = parser.parse_known_args()
    if options.target:
        _fuzz(options.target, rest)
    broken = [name for name in _TARGETS if _run(name, options)]
    if broken:
        sys.exit(f"Broken: {', '.join(broken)}; see {_LEFT}/")


def _run(name: str, options: argparse.Namespace) -> int:
    found = _LEFT / name
    found.mkdir(parents=True, exist_ok=True)
    seconds = max(1, round(options.minutes * 60 / len(_TARGETS)))
    print(f"{name}: {seconds} s", flush=True)
    return subprocess.run(
        [sys.executable, "-m", "tests.fuzzing.run", "--target", name,
         str(found), str(CORPUS / name),  # what is new goes to the first
         f"-max_total_time={seconds}", f"-timeout={_HANG_S}", f"-rss_limit_mb={_MOST_MB}",
         f"-max_len={_MOST_BYTES}", f"-artifact_prefix={_LEFT}/{name}-", "-verbosity=0",
         "-print_final_stats=1"],
        env={**os.environ, "PYTHONWARNINGS": "ignore"},
        check=False,
    ).returncode  # fmt: skip


def _fuzz(name: str, arguments: list[str]) -> None:
    import atheris  # noqa: PLC0415 - installed by `make fuzz` only

    with atheris.instrument_imports(include=["foremind", "jwt", "pypdf"]):
        from tests.fuzzing.targets import TARGETS  # noqa: PLC0415 - instrumented as it is read

    atheris.Setup([sys.argv[0], *arguments], TARGETS[name])
    atheris.Fuzz()


if __name__ == "__main__":
    main()
