"""Values that PostgreSQL cannot store are refused by the name of their field."""

import pytest

from foremind.domain.errors import InvalidMessage
from foremind.domain.storable_text import check_storable


def test_the_field_is_named() -> None:
    """With its place in objects and lists."""
    with pytest.raises(InvalidMessage, match=r"^data\.a\[1\]\.b: expected text") as error:
        check_storable({"a": ["", {"b": "\0"}]}, "data")
    assert error.value.param == "data.a[1].b"


@pytest.mark.parametrize("levels", [1, 60])
def test_long_names_are_not_repeated_for_every_value_in_them(levels: int) -> None:
    """Otherwise the work would be the product of the length of names and the number of values."""
    value: object = "\0"
    for _ in range(levels):
        value = {"x" * 10_000: [0, value]}
    with pytest.raises(InvalidMessage) as error:
        check_storable(value, "data")
    assert error.value.param is not None
    assert error.value.param.startswith("data.xxx")
    assert len(error.value.param) <= 200
