"""Which tests are run once more."""

import json
from pathlib import Path

import pytest

from tests import flaky


@pytest.mark.parametrize(
    ("failed", "passes", "code"), [(0, True, 1), (1, True, 0), (1, False, 1), (3, True, 1)]
)
def test_a_few_that_failed_may_pass_alone(
    failed: int,
    passes: bool,
    code: int,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
) -> None:
    """Not more than two; and none where the run ended before any test did, as by mypy."""
    monkeypatch.chdir(tmp_path)
    names = [f"test_{number}.py::test_once" for number in range(failed)]
    for name in names:
        source = f"def test_once() -> None:\n    assert {passes}\n"
        (tmp_path / name.partition("::")[0]).write_text(source, "utf-8")
    if names:
        flaky.FAILED.parent.mkdir(parents=True)
        flaky.FAILED.write_text(json.dumps(dict.fromkeys(names, True)), "utf-8")
    assert flaky.main() == code
    assert ("FLAKY: test_0.py" in capfd.readouterr().out) == (code == 0)
