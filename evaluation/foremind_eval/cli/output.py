"""Results of commands as JSON."""

from pathlib import Path

import msgspec


def output_json(result: object, out: Path | None, *, json: bool) -> bool:
    """Write the JSON of a result to a file; return whether it was printed, too."""
    encoded = msgspec.json.format(msgspec.json.encode(result), indent=2).decode()
    if out is not None:
        out.write_text(encoded + "\n", "utf-8")
    if json:
        print(encoded)
    return json
