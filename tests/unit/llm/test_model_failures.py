"""What an operator reads of a model server's failure, and what a player does."""

import re

import httpx2
import pytest

from foremind.domain.errors import ModelServerError
from foremind.llm.completion_parser import ReportedError
from foremind.llm.model_failures import AskedModel, mapped_errors, refusal

ASKED = AskedModel("small")
OPERATORS_WORDS = re.compile(r"https?:|FOREMIND|llm_|\bkey\b|HTTP|\d{3}|server|/v1", re.IGNORECASE)


def reported(error_type: str, message: str, **fields: object) -> object:
    """Return the body of a refusal, as OpenAI's API has it."""
    return {"error": {"message": message, "type": error_type, **fields}}


@pytest.mark.parametrize(
    ("status", "body", "code", "says"),
    [
        (401, {}, "model_refused", "Check FOREMIND_LLM_KEY"),
        (403, "<html>", "model_refused", "Check FOREMIND_LLM_KEY"),
        (402, {}, "model_refused", "wants to be paid"),
        (404, {}, "model_refused", "Check FOREMIND_LLM_MODEL ('small'), and FOREMIND_LLM_URL"),
        # Ollama 0.12: openai.NewError(404, "model 'small' not found")
        (404, reported("not_found_error", "model 'small' not found"), "model_refused", "_MODEL"),
        (405, {}, "model_refused", "FOREMIND_LLM_URL, which mostly ends with /v1"),
        (400, {}, "model_refused", "chat template"),
        # llama.cpp: ERROR_TYPE_EXCEED_CONTEXT_SIZE
        (
            400,
            reported(
                "exceed_context_size_error",
                "request (4170 tokens) exceeds the available context size (4096 tokens)",
                n_prompt_tokens=4170,
                n_ctx=4096,
            ),
            "model_refused",
            "FOREMIND_CONTEXT_TOKENS or the companion's context_tokens to the 4096 tokens",
        ),
        # vLLM, OpenAI
        (
            400,
            reported("BadRequestError", "This model's maximum context length is 2048 tokens."),
            "model_refused",
            "Lower FOREMIND_CONTEXT_TOKENS",
        ),
        (413, {}, "model_refused", "refused the request"),
        (429, {}, "model_busy", "FOREMIND_LLM_SLOTS"),
        (429, reported("insufficient_quota", "You exceeded it."), "model_refused", "to be paid"),
        (503, reported("unavailable_error", "Loading model"), "model_busy", "loading its model"),
        (529, {}, "model_busy", "overloaded"),
        (408, {}, "model_timeout", "too long"),
        (504, {}, "model_timeout", "too long"),
        (502, {}, "model_unreachable", "proxy"),
        (500, {}, "model_broken", "failed (HTTP 500). Its own log says why."),
        (507, [], "model_broken", "failed"),
    ],
)
def test_a_refusal_says_what_to_check(status: int, body: object, code: str, says: str) -> None:
    """The key is named only where it may be wrong, and a player reads of nothing technical."""
    error = refusal(ASKED, status, body)
    assert error.code == code
    assert error.for_operator is not None
    assert says in error.for_operator
    assert f"HTTP {status}" in error.for_operator
    assert ("LLM_KEY" in error.for_operator) == (status in (401, 403))
    assert not OPERATORS_WORDS.search(error.message)


def test_what_a_server_says_is_not_repeated_but_for_its_codes() -> None:
    """Its message may quote what the player typed."""
    body = reported("invalid_request_error", "messages: 'I am Ana'", code="bad value: Ana")
    error = refusal(ASKED, 400, body)
    assert error.for_operator is not None
    assert error.for_operator.endswith("It says invalid_request_error.")
    assert "Ana" not in error.for_operator


@pytest.mark.parametrize(
    ("asked", "named"),
    [
        (AskedModel("m", frozenset({"llm_model"})), "Check FOREMIND_LLM_KEY."),
        (AskedModel("m", frozenset({"llm_url"})), "Check the companion's llm_key_env."),
        (AskedModel("m", frozenset({"llm_key_env"})), "Check the companion's llm_key_env."),
        (AskedModel("m", key_known=False), "Check FOREMIND_LLM_KEY, which gives no key."),
    ],
)
def test_the_setting_is_named_where_it_was_set(asked: AskedModel, named: str) -> None:
    """And it is said if it is not set at all."""
    assert named in (refusal(asked, 401, {}).for_operator or "")


@pytest.mark.parametrize(
    ("header", "seconds"),
    [("7", 7.0), ("0.5", 0.5), ("999999", 3600.0), ("-1", None), ("soon", None), ("nan", None)],
)
def test_when_to_try_again_is_passed_on(header: str, seconds: float | None) -> None:
    """As far as it is a sensible number of seconds."""
    assert refusal(ASKED, 429, {}, {"retry-after": header}).retry_after_s == seconds


@pytest.mark.parametrize(
    ("raised", "code", "says"),
    [
        (httpx2.ConnectError("All failed"), "model_unreachable", "(All failed)"),
        (httpx2.ConnectTimeout("x"), "model_timeout", "too long"),
        (httpx2.ReadTimeout("x"), "model_timeout", "too long"),
        (httpx2.InvalidURL("x"), "model_unreachable", "Check FOREMIND_LLM_URL"),
        (httpx2.RemoteProtocolError("x"), "model_broken", "RemoteProtocolError"),
        (ReportedError({"code": 429, "message": "Hello"}), "model_busy", "HTTP 429"),
        (ReportedError({"type": "server_error"}), "model_broken", "It says server_error"),
        (ReportedError("boom"), "model_broken", "reported a failure"),
        (ValueError("Ana said"), "model_broken", "ValueError"),
    ],
)
def test_every_failure_of_a_connection_has_a_code(raised: Exception, code: str, says: str) -> None:
    """And words for the log."""
    with pytest.raises(ModelServerError) as caught, mapped_errors(ASKED, "model_unreachable"):
        raise raised
    assert caught.value.code == code
    assert says in (caught.value.for_operator or "")
    assert "Ana" not in (caught.value.for_operator or "")
    assert not OPERATORS_WORDS.search(caught.value.message)
