"""`make fuzz MINUTES=10`: libFuzzer through atheris, one target after the other.

Every target runs in its own process, starting from the corpus. Inputs that crash, hang for five
seconds or take a gigabyte are written to `.fuzz/`; moved to the corpus, they become tests.
"""

import argparse
import os
import subprocess
import sys
from pathlib import Path

from tests.fuzzing import CORPUS

_OUTPUT = Path(".fuzz")
# From folder names, because importing the targets must wait until it is instrumented.
_TARGETS = sorted(folder.name for folder in CORPUS.iterdir())
_TIMEOUT_S, _MAX_MB, _MAX_INPUT_BYTES = 5, 1024, 4096


def main() -> None:
    """Fuzz all targets for some time; exit with 1 if any failed."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "--minutes", type=float, default=10, help="duration, for all targets together"
    )
    parser.add_argument("--target", choices=_TARGETS, help=argparse.SUPPRESS)
    options, rest = parser.parse_known_args()
    if options.target:
        _fuzz(options.target, rest)
    failed = [name for name in _TARGETS if _run(name, options)]
    if failed:
        sys.exit(f"Failed: {', '.join(failed)}; see {_OUTPUT}/")


def _run(name: str, options: argparse.Namespace) -> int:
    new_inputs = _OUTPUT / name
    new_inputs.mkdir(parents=True, exist_ok=True)
    seconds = max(1, round(options.minutes * 60 / len(_TARGETS)))
    print(f"{name}: {seconds} s", flush=True)
    return subprocess.run(
        [sys.executable, "-m", "tests.fuzzing", "--target", name,
         str(new_inputs), str(CORPUS / name),  # libFuzzer adds new inputs to the first
         f"-max_total_time={seconds}", f"-timeout={_TIMEOUT_S}", f"-rss_limit_mb={_MAX_MB}",
         f"-max_len={_MAX_INPUT_BYTES}", f"-artifact_prefix={_OUTPUT}/{name}-", "-verbosity=0",
         "-print_final_stats=1"],
        env={**os.environ, "PYTHONWARNINGS": "ignore"},
        check=False,
    ).returncode  # fmt: skip


def _fuzz(name: str, arguments: list[str]) -> None:
    import atheris  # noqa: PLC0415 - installed by `make fuzz` only

    with atheris.instrument_imports(include=["foremind", "jwt", "pypdf"]):
        from tests.fuzzing.targets import TARGETS  # noqa: PLC0415 - instrumented on import

    atheris.Setup([sys.argv[0], *arguments], TARGETS[name])
    atheris.Fuzz()


if __name__ == "__main__":
    main()
