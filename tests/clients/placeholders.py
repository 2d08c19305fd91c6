"""Values in a recording that stand for what only the client or the server knows."""

from typing import Any


class Placeholders:
    """A value like `$id` matches anything at first, then only the same again.

    `$absent` is a field that must not be there.
    """

    def __init__(self) -> None:
        #: Every value that is known, by its name.
        self.known: dict[str, Any] = {}

    def match(self, expected: Any, actual: Any) -> bool:
        """Return whether a value has all expected members, at any depth."""
        if isinstance(expected, dict):
            return isinstance(actual, dict) and all(
                name not in actual
                if value == "$absent"
                else name in actual and self.match(value, actual[name])
                for name, value in expected.items()
            )
        if isinstance(expected, str) and expected.startswith("$"):
            return bool(self.known.setdefault(expected, actual) == actual)
        return bool(expected == actual)

    def substituted(self, value: Any) -> Any:
        """Return a value with what is known in place of names."""
        if isinstance(value, dict):
            return {name: self.substituted(member) for name, member in value.items()}
        return self.known.get(value, value) if isinstance(value, str) else value
