"""What language model servers say of themselves: which program, what it reads, whether it thinks.

Asked as Ollama, llama.cpp, LM Studio and vLLM document it; nothing is generated or loaded.
"""

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from typing import Any

import httpx2
import msgspec
import structlog

from foremind.domain.announcements import Announcement, CompanionChanged
from foremind.domain.clock import Clock
from foremind.domain.companion import Companion
from foremind.domain.errors import ForemindError
from foremind.domain.health import OK, degraded
from foremind.domain.policy import Policy, policy_for
from foremind.domain.settings.settings import CompanionSettings, Settings
from foremind.llm.http_client import load_client, tls_context
from foremind.llm.model_failures import AskedModel, mapped_errors
from foremind.llm.model_selection import ChatModels
from foremind.runtime.supervision import SupervisedLoop

_TIMEOUT_S = 3.0
_AGAIN_S = 60.0  # between two probes
_MAX_NAMED = 8  # models that a message lists
_MAX_PROBED = 50  # models of one server
#: Where programs listen by default on this machine.
_USUAL_PORTS = {"Ollama": 11434, "LM Studio": 1234, "llama.cpp": 8080}
_THINKING_TEMPLATE = ("enable_thinking", "<think>")

_log = structlog.get_logger("foremind.llm")


class ServerFacts(msgspec.Struct, frozen=True):
    """What a server says of itself and a model, as far as it does.

    `models` are the names that it accepts, None if any is accepted; `context_tokens` what it
    reads of a prompt and its reply.
    """

    program: str = "OpenAI-compatible"
    models: list[str] | None = None
    context_tokens: int | None = None
    thinks: bool | None = None


class ProbedModel(msgspec.Struct, frozen=True):
    """A language model in use: of these companions, or without any, of the server's settings."""

    model: str
    companions: list[str]
    facts: ServerFacts
    problems: list[str]


class LocalServer(msgspec.Struct, frozen=True):
    """A model server that was found on this machine, and is not used."""

    program: str
    url: str
    models: list[str]


Answers = Mapping[str, Any]


def facts_of(answers: Answers, model: str) -> ServerFacts:
    """Read the answers to a probe, by path; what was not answered is missing. Pure."""
    version = _of(answers.get("/api/version"), "version", str)
    if version is not None:
        return _ollama(answers, model, version)
    settings = _of(answers.get("/props"), "default_generation_settings", dict)
    if settings is not None:
        template = _of(answers["/props"], "chat_template", str) or ""
        return ServerFacts(
            "llama.cpp",
            None,
            _of(settings, "n_ctx", int) or None,
            any(mark in template for mark in _THINKING_TEMPLATE),
        )
    studio = [
        entry for entry in _entries(answers.get("/api/v0/models"), "data") if "state" in entry
    ]
    if studio:
        names = [entry["id"] for entry in studio if entry.get("type") != "embeddings"]
        chosen = next((entry for entry in studio if entry["id"] == model), {})
        loaded = _of(chosen, "loaded_context_length", int)
        return ServerFacts("LM Studio", names, loaded or _of(chosen, "max_context_length", int))
    listed = _entries(answers.get("/models"), "data")
    chosen = next((entry for entry in listed if entry["id"] == model), {})
    if any(entry.get("owned_by") == "llamacpp" for entry in listed):
        return ServerFacts("llama.cpp", None, _of(listed[0].get("meta"), "n_ctx", int))
    program = "vLLM" if any(entry.get("owned_by") == "vllm" for entry in listed) else "unknown"
    context = next(
        filter(None, (_of(chosen, name, int) for name in ("max_model_len", "context_length"))), None
    )
    return ServerFacts(
        ServerFacts().program if program == "unknown" else program,
        [entry["id"] for entry in listed] or None,
        context,
    )


def _ollama(answers: Answers, model: str, version: str) -> ServerFacts:
    names = [entry["id"] for entry in _entries(answers.get("/api/tags"), "models")]
    running = [
        entry
        for entry in _entries(answers.get("/api/ps"), "models")
        if entry["id"] in (model, f"{model}:latest")
    ]
    shown = answers.get("/api/show")
    context = _of(running[0], "context_length", int) if running else _num_ctx(shown)
    capabilities = _of(shown, "capabilities", list)
    thinks = None if capabilities is None else "thinking" in capabilities
    return ServerFacts(f"Ollama {version}", names, context or None, thinks)


def _num_ctx(shown: object) -> int | None:
    """Return the context length that a model's parameters state: `num_ctx 4096`."""
    for line in (_of(shown, "parameters", str) or "").splitlines():
        match line.split():
            case ["num_ctx", digits] if digits.isdecimal():
                return int(digits)
    return None


def _entries(answer: object, name: str) -> list[dict[str, Any]]:
    """Return the models of a list, each with its name as `id`."""
    entries = [entry for entry in _of(answer, name, list) or [] if isinstance(entry, dict)]
    named = [entry | {"id": entry.get("id") or entry.get("name")} for entry in entries]
    return [entry for entry in named if isinstance(entry["id"], str)][:_MAX_PROBED]


def _of(value: object, name: str, kind: type[Any]) -> Any:
    """Return a member of an object if it is there and of a kind, else None."""
    member = value.get(name) if isinstance(value, Mapping) else None
    return member if type(member) is kind else None


def problems_of(facts: ServerFacts, model: str, context_tokens: int) -> list[str]:
    """Return what an operator should look at. Pure."""
    problems = []
    known = facts.models
    if known is not None and model not in known and f"{model}:latest" not in known:
        has = ", ".join(known[:_MAX_NAMED]) or "none"
        problems.append(f"{facts.program} has no model {model!r} (it has: {has})")
    if facts.context_tokens is not None and facts.context_tokens < context_tokens:
        more = " or raise OLLAMA_CONTEXT_LENGTH" if facts.program.startswith("Ollama") else ""
        problems.append(
            f"{facts.program} reads {facts.context_tokens} tokens of {model!r}, prompts may have "
            f"{context_tokens}: lower context_tokens{more}"
        )
    return problems


async def ask_server(
    connections: httpx2.AsyncClient, url: str, model: str, *, listed_only: bool = False
) -> dict[str, Any]:
    """Return what a server answers to each question of a probe.

    Args:
        listed_only: ask only for what every provider has, the list of models.

    Raises:
        httpx2.HTTPError: it is unreachable, or refuses the list for want of a key.
    """
    root = url.rstrip("/").removesuffix("/v1")

    async def ask(path: str) -> tuple[str, Any]:
        full = f"{url.rstrip('/')}{path}" if path == "/models" else f"{root}{path}"
        body = {"model": model} if path == "/api/show" else None
        response = await connections.request("POST" if body else "GET", full, json=body)
        if path == "/models" and response.status_code in (401, 403):
            response.raise_for_status()
        try:
            return path, msgspec.json.decode(response.content) if response.is_success else None
        except (msgspec.DecodeError, UnicodeError, RecursionError):
            return path, None

    answers = dict([await ask("/models")])
    if not listed_only:
        paths = ("/api/version", "/props", "/api/v0/models")
        answers |= dict(await asyncio.gather(*map(ask, paths)))
        if _of(answers["/api/version"], "version", str) is not None:
            ollamas = ("/api/tags", "/api/ps", "/api/show")
            answers |= dict(await asyncio.gather(*map(ask, ollamas)))
    return answers


async def find_local_servers() -> list[LocalServer]:
    """Look for model servers at the usual ports of this machine, and ask them what they have."""
    await asyncio.to_thread(load_client)
    async with httpx2.AsyncClient(
        timeout=_TIMEOUT_S, trust_env=False, verify=tls_context()
    ) as connections:

        async def look(program: str, port: int) -> LocalServer | None:
            url = f"http://127.0.0.1:{port}/v1"
            try:
                facts = facts_of(await ask_server(connections, url, ""), "")
                if not facts.program.startswith(program):
                    return None
                models = facts.models
                if models is None:  # llama.cpp serves one, by any name
                    models = ["default"]
                return LocalServer(facts.program, url, models)
            except (httpx2.HTTPError, httpx2.StreamError, OSError):
                return None

        found = await asyncio.gather(*(look(*usual) for usual in _USUAL_PORTS.items()))
    return [server for server in found if server is not None]


class ModelProbes:
    """Probes the language models in use, and logs what has changed."""

    def __init__(
        self,
        settings: Settings,
        chat_models: ChatModels,
        companions: Callable[[], Awaitable[Sequence[Companion]]],
        clock: Clock,
    ) -> None:
        self._settings = settings
        self._chat_models = chat_models
        self._companions = companions
        self._clock = clock
        self._latest: list[ProbedModel] = []
        self._due = asyncio.Event()

    async def run(self, loop: SupervisedLoop) -> None:
        """Probe now, once a minute, and whenever a companion has changed."""
        while True:
            self._due.clear()
            await self.probe()
            loop.report_progress()
            timer = self._clock.call_at(self._clock.monotonic() + _AGAIN_S, self._due.set)
            try:
                await self._due.wait()
            finally:
                timer.cancel()

    def on_announcement(self, announcement: Announcement) -> None:
        """Probe soon if a companion has changed: it may have another model."""
        if isinstance(announcement, CompanionChanged):
            self._due.set()

    async def probe(self) -> list[ProbedModel]:
        """Probe every model that the server or a companion has, and return what was found."""
        try:
            companions = await self._companions()
        except ForemindError:  # of the database, which is reported by itself
            return self._latest
        used: dict[tuple[object, ...], tuple[Policy, list[str]]] = {}
        for slug, own in [("", CompanionSettings())] + [(c.slug, c.settings) for c in companions]:
            policy = policy_for(own, self._settings)
            model = policy.chat_model
            if model.url is not None:
                key = (model.url, model.model, model.key_env, policy.layers.context_tokens)
                used.setdefault(key, (policy, []))[1].append(slug)
        latest = await asyncio.gather(*(self._probed(*use) for use in used.values()))
        self._log_changes(latest)
        self._latest = latest
        return latest

    async def _probed(self, policy: Policy, owners: Iterable[str]) -> ProbedModel:
        chat_model = policy.chat_model
        model, facts, problems = chat_model.model, ServerFacts(), list[str]()
        companions = sorted(filter(None, owners))
        await self._chat_models.prepare(chat_model)
        server = self._chat_models.model_server_for(chat_model)
        assert server is not None and chat_model.url is not None
        try:
            async with asyncio.timeout(_TIMEOUT_S):
                with server.connections() as (connections, has_key):
                    asked = AskedModel(model, chat_model.own, has_key)
                    with mapped_errors(asked, "model_unreachable"):
                        answers = await ask_server(
                            connections, chat_model.url, model, listed_only=has_key
                        )
            facts = facts_of(answers, model)
            problems = problems_of(facts, model, policy.layers.context_tokens)
        except TimeoutError:
            problems = ["The language model server does not answer."]
        except ForemindError as error:
            problems = [error.for_operator or error.message]
        return ProbedModel(model, companions, facts, problems)

    def _log_changes(self, latest: Sequence[ProbedModel]) -> None:
        for probed in latest:
            if probed not in self._latest:
                log = _log.warning if probed.problems else _log.info
                facts = probed.facts
                log(
                    "model.probed",
                    model=probed.model,
                    companions=probed.companions,
                    program=facts.program,
                    context_tokens=facts.context_tokens,
                    thinks=facts.thinks,
                    problems=probed.problems,
                )

    def health(self) -> dict[str, str]:
        """Return the health check of the language models, nothing without one."""
        if not self._latest:
            return {}
        problems = [problem for probed in self._latest for problem in probed.problems]
        return {"language_model": degraded("; ".join(problems)) if problems else OK}
