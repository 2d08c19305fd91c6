"""Make the sample pasts of the page, `client_demo/samples`: `make samples`.

The conversations of `tests/sample_pasts` are held with a real server, which decides what is kept.
What it exports is moved to the days on which they are to have been.
"""

import asyncio
import json
import sys
import tempfile
import tomllib
from collections.abc import Mapping, Sequence
from datetime import UTC, date, datetime, timedelta
from pathlib import Path
from typing import Any

import httpx2

from foremind.app.configuration import load_settings
from foremind_client import connect
from foremind_eval.doubles.model_server import Script, scripted_model
from foremind_eval.processes.server_process import running_server
from tests.conftest import PATIENCE

ROOT = Path(__file__).parents[1]
PASTS = ROOT / "tests" / "sample_pasts"
SAMPLES = ROOT / "client_demo" / "samples"
_USER = "sample"
_MADE_AT = datetime(2025, 1, 31, 20, tzinfo=UTC)  # the page moves all moments along with this one
_BETWEEN_TURNS = timedelta(minutes=1)
_SESSION = timedelta(hours=24)


async def main() -> None:
    """Hold every conversation with a new server, and write what it exports."""
    replies: list[str] = []
    script = Script(background=lambda _: "{}")
    script.reply = lambda _: [replies.pop(0)]
    models_dir = load_settings().models_dir
    with tempfile.TemporaryDirectory() as folder:
        settings = load_settings(data_dir=Path(folder), models_path=models_dir)
        async with scripted_model(script) as model:
            with running_server(settings, {"FOREMIND_LLM_URL": model.url}) as (url, _):
                for path in sorted(PASTS.glob("*.toml")):
                    past = tomllib.loads(path.read_text("utf-8"))
                    exported = await _talk(url, path.stem, past["sessions"], replies)
                    _write(path.stem, past, exported)


async def _talk(
    url: str, slug: str, sessions: Sequence[Mapping[str, Any]], replies: list[str]
) -> dict[str, Any]:
    """Say everything, and return the export once all of it was judged."""
    async with connect(url) as client:
        opened = await client.open_session(slug, user_id=_USER, name=_USER)
        said = [exchange for session in sessions for exchange in session["said"]]
        for number, (text, reply) in enumerate(said, 1):
            replies.append(reply)
            await client.send(text, f"sample-{slug}-{number}")
            await client.expect("response.done")
        base = url.replace("ws://", "http://").removesuffix("/v1/ws")
        path = f"{base}/v1/relationships/{opened['relationship_id']}"
        async with httpx2.AsyncClient(params={"user": _USER}, timeout=PATIENCE) as http:
            while True:
                steps = (await http.get(f"{path}/status")).json()["steps"]
                if all(step["behind"] == 0 for step in steps if step["step"] == "ingest"):
                    break
                await asyncio.sleep(0.2)
            exported: dict[str, Any] = (await http.get(f"{path}/export")).json()
            return exported


def _write(slug: str, past: Mapping[str, Any], exported: dict[str, Any]) -> None:
    sessions = past["sessions"]
    starts = [_MADE_AT - timedelta(days=session["days_ago"]) for session in sessions]
    places = [
        (number, 2 * position + part)
        for number, session in enumerate(sessions)
        for position in range(len(session["said"]))
        for part in (0, 1)
    ]
    moments: dict[str, str] = {}
    for turn, (number, position) in zip(exported["turns"], places, strict=True):
        turn["session"] = str(number)
        turn["said_at"] = moments[turn["id"]] = _text(starts[number] + position * _BETWEEN_TURNS)
    for memory in exported["memories"]:
        said_at = moments[memory["turn"]]
        days = _day(said_at) - _day(memory["created_at"])
        for bound in ("happened_from", "happened_to"):  # days, as long before or after as they were
            if memory[bound] is not None:
                memory[bound] = _text(datetime.fromisoformat(memory[bound]) + days)
        memory |= {"created_at": said_at, "last_used_at": None}
    exported["sessions"] = [
        {
            "id": str(number),
            "opened_at": _text(start),
            "active_at": _text(start + 2 * len(session["said"]) * _BETWEEN_TURNS),
            "closed_at": _text(start + _SESSION),
        }
        for number, (start, session) in enumerate(zip(starts, sessions, strict=True))
    ]
    exported |= {"exported_at": _text(_MADE_AT), "records": [], "revisions": [], "changes": []}
    exported |= {"audit": [], "progress": {}}  # a server that imports it writes these itself
    sample = {"ask": past["ask"], "past": exported}
    text = json.dumps(sample, ensure_ascii=False, indent=1)
    (SAMPLES / f"{slug}.json").write_text(text + "\n", "utf-8")


def _day(moment: str) -> date:
    return datetime.fromisoformat(moment).date()


def _text(moment: datetime) -> str:
    return moment.isoformat().replace("+00:00", "Z")


if __name__ == "__main__":
    sys.exit(asyncio.run(main()))
