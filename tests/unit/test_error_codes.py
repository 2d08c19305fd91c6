"""Every code of an error is documented, and no other."""

import re

from foremind.api.responses import STATUSES
from foremind.gateway.transport import request_heads
from tests.conftest import ROOT

_CODE = re.compile(
    r'\bcode *= *(?:code or )?"(\w+)"|_failures_named\(options, "(\w+)"\)|Refusal\(\s*\d+, "(\w+)"'
)
_OF_SETUP = {"setup_error"}  # before there is anybody to be told


def test_the_table_of_codes_is_whole() -> None:
    """With the statuses that are answered."""
    table = re.findall(
        r"^\| (\w+) \| `\w+_error` \| (.*) \|$", (ROOT / "docs/access.md").read_text(), re.MULTILINE
    )
    told = {code for _, text in table for code in re.findall(r"`([a-z_]+)`", text)}
    used = {
        "".join(found)
        for path in (ROOT / "server/foremind").rglob("*.py")
        for found in _CODE.findall(path.read_text())
    }
    assert told == used - _OF_SETUP
    statuses = {int(status) for status, _ in table if status.isdigit()}
    below = {
        each.status
        for each in (request_heads.TOO_LARGE, request_heads.LONG_TARGET, request_heads.TOO_LATE)
    }
    assert statuses == {status for _, status in STATUSES} | {405} | below
