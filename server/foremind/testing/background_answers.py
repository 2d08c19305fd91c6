"""Answers of a scripted model to what is asked in the background: valid, and made of what was said.

Each answer repeats quotations of the request, so that a test can tell where a text came from.
"""

import json
import re
from itertools import pairwise
from typing import Any

_QUOTED = re.compile(r'"(?:[^"\\]|\\.)*"')


def curate(chat: dict[str, Any]) -> str:
    """Return the JSON that the request asks for."""
    task, given = (each["content"] for each in chat["messages"][:2])
    said = [json.loads(each) for each in _QUOTED.findall(given)]
    users = [text for name, text in pairwise(said) if name == "Ana"]
    last = users[-1] if users else (said[-1] if said else "nothing")
    answers: dict[str, Any] = {
        '{"operations"': {"operations": [{"op": "ADD", "kind": "other", "entry": f"Note: {last}"}]},
        '{"lines"': {"lines": ["Ana told many things.", f"Among them: {last}", "All went well."]},
        '{"episodes"': {
            "episodes": [
                {
                    "topic": _topic(said),
                    "summary": f"They spoke at length. {last}",
                    "references": re.findall(r"\b[A-Z][a-z]{3,}\b", " ".join(users)),
                    "questions": [user for user in users if user.endswith("?")][:3],
                    "conclusions": [user for user in users if "decided" in user],
                    "open_questions": [user for user in users if "later" in user],
                }
            ],
            "left_at": f"They parted after: {last}",
            "settled": [],
        },
        '{"entries"': {"entries": []},
        '{"text"': {"text": "Written by the model: " + " | ".join(said[-8:])},
    }
    return next(json.dumps(answer) for shape, answer in answers.items() if shape in task)


def _topic(said: list[str]) -> str:
    words = re.findall(r"[a-z]{6,}", " ".join(said).lower())
    return max(set(words), key=lambda word: (words.count(word), word), default="a chat")
