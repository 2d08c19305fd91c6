"""Inputs that fuzzing found are regression tests."""

import pytest

from tests.fuzzing import CORPUS
from tests.fuzzing.targets import TARGETS


@pytest.mark.parametrize("name", TARGETS)
def test_every_input_of_the_corpus_is_handled(name: str) -> None:
    """A target raises nothing but the errors that it suppresses."""
    inputs = sorted((CORPUS / name).iterdir())
    assert inputs
    for path in inputs:
        TARGETS[name](path.read_bytes())
