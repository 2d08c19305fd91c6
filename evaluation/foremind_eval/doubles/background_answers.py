"""A scripted model's answers to background requests: valid, and derived from the conversation.

Each answer repeats quotations of the request, so that a test can trace where a text came from.
"""

import json
import re
from itertools import pairwise
from typing import Any

_QUOTED = re.compile(r'"(?:[^"\\]|\\.)*"')


def background_answer(chat: dict[str, Any]) -> str:
    """Return the JSON answer that a background request asks for."""
    task, data = (message["content"] for message in chat["messages"][:2])
    quotations = [json.loads(quotation) for quotation in _QUOTED.findall(data)]
    user_texts = [text for name, text in pairwise(quotations) if name == "Ana"]
    last = user_texts[-1] if user_texts else (quotations[-1] if quotations else "nothing")
    answers: dict[str, Any] = {
        '{"operations"': {"operations": [{"op": "ADD", "kind": "other", "entry": f"Note: {last}"}]},
        '{"lines"': {"lines": ["Ana told many things.", f"Among them: {last}", "All went well."]},
        '{"episodes"': {
            "episodes": [
                {
                    "topic": _topic(quotations),
                    "summary": f"They spoke at length. {last}",
                    "references": re.findall(r"\b[A-Z][a-z]{3,}\b", " ".join(user_texts)),
                    "questions": [text for text in user_texts if text.endswith("?")][:3],
                    "conclusions": [text for text in user_texts if "decided" in text],
                    "open_questions": [text for text in user_texts if "later" in text],
                }
            ],
            "left_at": f"They parted after: {last}",
            "settled": [],
        },
        '{"entries"': {"entries": []},
        '{"text"': {"text": "Written by the model: " + " | ".join(quotations[-8:])},
    }
    return next(json.dumps(answer) for shape, answer in answers.items() if shape in task)


def _topic(quotations: list[str]) -> str:
    words = re.findall(r"[a-z]{6,}", " ".join(quotations).lower())
    return max(set(words), key=lambda word: (words.count(word), word), default="a chat")
