"""A scripted model's answers to background requests: valid, and derived from the conversation.

Each answer repeats quotations of the request, so that a test can trace where a text came from.
"""

import json
import re
from collections.abc import Callable
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
        '"operations": ': {
            "operations": [{"op": "ADD", "kind": "other", "entry": f"Note: {last}"}]
        },
        '"lines": ': {"lines": [f"Ana: {text[:200]}" for text in user_texts[-3:]] or [last[:200]]},
        '"episodes": ': {
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
        '"entries": ': {"entries": []},
        '"text": ': {"text": "Written by the model: " + " | ".join(quotations[-8:])},
    }
    return _answer_to(task, answers)


def empty_answer(word: str) -> Callable[[dict[str, Any]], str]:
    """Return a model that fills every field of every form with one word, such as "N/A"."""
    changes = [{"op": "UPDATE", "id": number, "entry": word} for number in range(1, 9)]
    deletions = [{"op": "DELETE", "id": number} for number in range(1, 9)]
    texts = dict.fromkeys(("topic", "summary"), word)
    lists = {key: [word] for key in ("references", "questions", "conclusions", "open_questions")}
    return _filling(
        {
            '"operations": ': {
                "operations": [
                    {"op": "ADD", "kind": "other", "entry": word},
                    *changes[:5],
                    *deletions[:6],
                ]
            },
            '"lines": ': {"lines": [word] * 5},
            '"episodes": ': {
                "episodes": [{**texts, **lists}],
                "left_at": word,
                "settled": [1, 2, 3],
            },
            '"entries": ': {
                "entries": [
                    {"slot": slot, "value": word, "holds": holds}
                    for slot in ("name", "home", "job", "pets", "health")
                    for holds in (True, False)
                ]
            },
            '"text": ': {"text": word},
        }
    )


def _answer_to(task: str, answers: dict[str, Any]) -> str:
    """Return what a form asks for: some are for the notes and the profile together."""
    asked = [answer for field, answer in answers.items() if field in task]
    return json.dumps({name: value for answer in asked for name, value in answer.items()})


def _filling(answers: dict[str, Any]) -> Callable[[dict[str, Any]], str]:
    def answer(chat: dict[str, Any]) -> str:
        return _answer_to(chat["messages"][0]["content"], answers)

    return answer


#: A model that answers whatever it is asked with what nobody said: the forms' own examples, and
#: what is in many a text.
invented_answer = _filling(
    {
        '"operations": ': {
            "operations": [
                {"op": "ADD", "kind": "relationship", "entry": "Has a dog named Scout"},
                {"op": "ADD", "kind": "other", "entry": "who the user is: name, age, home, work"},
                {"op": "UPDATE", "id": 1, "entry": "Works as a software engineer at Google"},
                {"op": "DELETE", "id": 1},
            ]
        },
        '"lines": ': {"lines": ["Rita", "Wren", "Wren", "Rita", "Rita", *(["Wren"] * 94)]},
        '"episodes": ': {
            "episodes": [
                {
                    "topic": "Space Travel",
                    "summary": "They planned a journey to Mars with Captain Nemo.",
                    "references": ["Mars", "Nemo"],
                    "questions": ["Who is Nemo?"],
                    "conclusions": ["Mars it is"],
                    "open_questions": ["What does Nemo want?"],
                }
            ],
            "left_at": "Captain Nemo said goodbye.",
            "settled": [1, 2, 3],
        },
        '"entries": ': {
            "entries": [
                {"slot": "name", "value": "what the user wants to be called"},
                {"slot": "pets", "value": "dog Scout"},
                {"slot": "family", "value": "brother Tom"},
                {"slot": "home", "value": "Lisbon"},
            ]
        },
        '"text": ': {"text": "Captain Nemo and Scout travel to Mars. " * 20},
    }
)


def _topic(quotations: list[str]) -> str:
    words = re.findall(r"[a-z]{6,}", " ".join(quotations).lower())
    return max(set(words), key=lambda word: (words.count(word), word), default="a chat")
