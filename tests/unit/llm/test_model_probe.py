"""What is read of the answers of model servers, written after their sources."""

from typing import Any

import pytest

from foremind.llm.model_probe import ServerFacts, facts_of, problems_of

# Ollama 0.12, server/routes.go and api/types.go: ProcessModelResponse, ShowResponse
_OLLAMA: dict[str, Any] = {
    "/models": {"object": "list", "data": [{"id": "llama3.2:latest", "owned_by": "library"}]},
    "/api/version": {"version": "0.12.6"},
    "/api/tags": {"models": [{"name": "llama3.2:latest", "model": "llama3.2:latest"}]},
    "/api/ps": {"models": [{"name": "llama3.2:latest", "context_length": 4096}]},
    "/api/show": {
        "parameters": 'num_ctx                        8192\nstop    "<|eot_id|>"',
        "capabilities": ["completion", "tools"],
    },
}
# llama.cpp, tools/server/README.md: GET /props and /v1/models
_LLAMA: dict[str, Any] = {
    "/models": {
        "data": [{"id": "m.gguf", "owned_by": "llamacpp", "meta": {"n_ctx_train": 131072}}]
    },
    "/props": {
        "default_generation_settings": {"n_ctx": 8192},
        "chat_template": "{%- if enable_thinking %}<think>{% endif %}",
        "total_slots": 1,
    },
}
# LM Studio, its REST API v0: GET /api/v0/models
_STUDIO: dict[str, Any] = {
    "/api/version": {"error": "Unexpected endpoint or method. (GET /api/version)"},
    "/api/v0/models": {
        "data": [
            {
                "id": "qwen3-4b",
                "type": "llm",
                "state": "loaded",
                "max_context_length": 32768,
                "loaded_context_length": 4096,
            },
            {"id": "other", "type": "vlm", "state": "not-loaded", "max_context_length": 2048},
            {"id": "nomic", "type": "embeddings", "state": "not-loaded"},
        ]
    },
}
# vLLM, ModelCard of its OpenAI-compatible server: GET /v1/models
_VLLM: dict[str, Any] = {
    "/models": {"data": [{"id": "Qwen/Qwen3-4B", "owned_by": "vllm", "max_model_len": 2048}]}
}


@pytest.mark.parametrize(
    ("answers", "model", "facts"),
    [
        (_OLLAMA, "llama3.2", ServerFacts("Ollama 0.12.6", ["llama3.2:latest"], 4096, False)),
        (
            _OLLAMA | {"/api/ps": {"models": []}},  # not loaded yet
            "llama3.2",
            ServerFacts("Ollama 0.12.6", ["llama3.2:latest"], 8192, False),
        ),
        (
            _OLLAMA | {"/api/show": {"capabilities": ["completion", "thinking"]}, "/api/ps": {}},
            "llama3.2",
            ServerFacts("Ollama 0.12.6", ["llama3.2:latest"], None, True),
        ),
        (_LLAMA, "default", ServerFacts("llama.cpp", None, 8192, True)),
        ({"/models": _LLAMA["/models"]}, "default", ServerFacts("llama.cpp", None, None)),
        (_STUDIO, "qwen3-4b", ServerFacts("LM Studio", ["qwen3-4b", "other"], 4096)),
        (_STUDIO, "other", ServerFacts("LM Studio", ["qwen3-4b", "other"], 2048)),
        (_VLLM, "Qwen/Qwen3-4B", ServerFacts("vLLM", ["Qwen/Qwen3-4B"], 2048)),
        ({"/models": {"data": "none"}, "/props": []}, "m", ServerFacts()),
        (
            {"/models": {"data": [3, {"id": 7}, {}]}, "/api/v0/models": {"data": [[]]}},
            "m",
            ServerFacts(),
        ),
        ({}, "m", ServerFacts()),
    ],
)
def test_what_a_server_says_of_itself_is_read(
    answers: dict[str, Any], model: str, facts: ServerFacts
) -> None:
    """In each program's own words; nonsense counts as no answer."""
    assert facts_of(answers, model) == facts


@pytest.mark.parametrize(
    ("facts", "says"),
    [
        (ServerFacts("Ollama 1", ["small:latest"], 4096), ["raise OLLAMA_CONTEXT_LENGTH"]),
        (ServerFacts("vLLM", ["small"], 2048), ["reads 2048 tokens of 'small', prompts may have"]),
        (ServerFacts("vLLM", ["other"]), ["has no model 'small' (it has: other)"]),
        (ServerFacts("Ollama 1", []), ["it has: none"]),
        (ServerFacts("llama.cpp", None, 16_384, True), []),
        (ServerFacts(), []),
    ],
)
def test_what_an_operator_should_look_at(facts: ServerFacts, says: list[str]) -> None:
    """A context shorter than prompts may be, and a model that is not there."""
    problems = problems_of(facts, "small", 16_384)
    assert len(problems) == len(says)
    assert all(text in problem for text, problem in zip(says, problems, strict=True))
