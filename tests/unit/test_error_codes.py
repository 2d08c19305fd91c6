"""The documented error codes are those in the code."""

import re

from fair_transport import channel
from foremind.api.responses import STATUSES
from tests.conftest import ROOT

_CODE = re.compile(
    r'\bcode *= *(?:code or )?"(\w+)"|^    "(model_\w+)": |Refusal\(\s*\d+, "(\w+)"',
    re.MULTILINE,
)
_SETUP_CODES = {"setup_error"}  # never sent to a client


def test_the_table_of_codes_is_complete() -> None:
    """So is its column of HTTP statuses."""
    table = re.findall(
        r"^\| (\w+) \| `\w+_error` \| (.*) \|$", (ROOT / "docs/access.md").read_text(), re.MULTILINE
    )
    documented = {code for _, text in table for code in re.findall(r"`([a-z_]+)`", text)}
    used = {
        "".join(groups)
        for package in ("server/foremind", "transport/fair_transport")
        for path in (ROOT / package).rglob("*.py")
        for groups in _CODE.findall(path.read_text())
    }
    assert documented == used - _SETUP_CODES
    statuses = {int(status) for status, _ in table if status.isdigit()}
    transport_statuses = {
        refusal.status
        for refusal in (
            channel.TOO_LARGE,
            channel.TARGET_TOO_LONG,
            channel.REQUEST_TIMEOUT,
        )
    }
    assert statuses == {status for _, status in STATUSES} | {405} | transport_statuses
