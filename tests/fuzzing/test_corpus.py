"""What fuzzing once found stays mended; what it reaches is read without surprises."""

import pytest

from tests.fuzzing import CORPUS
from tests.fuzzing.targets import TARGETS


@pytest.mark.parametrize("name", TARGETS)
def test_every_input_of_the_corpus_is_read_or_refused(name: str) -> None:
    """Nothing is raised that a target does not say it raises."""
    inputs = sorted((CORPUS / name).iterdir())
    assert inputs
    for input_ in inputs:
        TARGETS[name](input_.read_bytes())
