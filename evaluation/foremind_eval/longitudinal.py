"""A relationship over months, one session a day: what each layer costs and contributes.

A dialogue runs through the real store on a simulated clock, with background work after every
exchange and every session. For every message of the user, and for every question at the end, the
context is built as for a language model. Evidence counts as present if the prompt contains a
sentence of the turn that answers, verbatim.
"""

import re
from collections.abc import Callable, Mapping, Sequence
from contextlib import aclosing
from dataclasses import dataclass, replace
from functools import partial
from statistics import fmean

import msgspec

from foremind.app.core import Core
from foremind.domain.settings.setting_definitions import LAYERS, LayerName
from foremind.llm.prompt.assembly import AssembledPrompt
from foremind.typeahead.context_cache import PreparedContext
from foremind_eval.daily_sessions import ALL, Costs, DailySessions, prompt_tokens
from foremind_eval.dialogues import Dialogue
from foremind_eval.doubles.manual_clock import ManualClock

_SENTENCE = re.compile(r"[^.!?\n]+[.!?]*")
_MIN_WORDS = 4
_DAYS_PER_WEEK = 7


class LayerReport(msgspec.Struct, frozen=True):
    """One layer: mean tokens and milliseconds per question, and the evidence in the prompt.

    `without` is the share of evidence present with every layer but this one, `alone` the share with
    only this one; `repeating` are its tokens without deduplication.
    """

    layer: str
    tokens: float
    repeating: float
    ms: float
    without: float
    alone: float


class WeekReport(msgspec.Struct, frozen=True):
    """The means of one week of all dialogues, joined into one relationship.

    `tokens` are those of a whole prompt, `repeating` those without deduplication, and `ms` the time
    to build it; `alive` are the layers that contributed to any prompt.
    """

    week: int
    alive: list[str]
    tokens: float
    repeating: float
    ms: float
    max_tokens: int


class LongitudinalReport(msgspec.Struct, frozen=True):
    """Results over all dialogues; `asked` is the background work per message, by kind.

    Means per question: `tokens` of the whole prompt, and the lines of `memories`. `repeating` and
    `repeating_evidence` are the tokens and the evidence of the same prompts without deduplication.
    """

    questions: int
    evidence: float
    layers: list[LayerReport]
    weeks: list[WeekReport]
    asked: dict[str, float]
    budget: int
    tokens: float
    repeating: float
    repeating_evidence: float
    memories: float


async def measure_longitudinal(
    core: Core,
    clock: ManualClock,
    dialogues: Sequence[Dialogue],
    days: int,
    advance: Callable[[int], None],
) -> LongitudinalReport:
    """Run `days` days of every dialogue, then ask its questions with and without each layer."""
    async with aclosing(DailySessions(core, clock)) as sessions:
        return await _measure(core, sessions, dialogues, days, advance)


async def _measure(
    core: Core,
    sessions: DailySessions,
    dialogues: Sequence[Dialogue],
    days: int,
    advance: Callable[[int], None],
) -> LongitudinalReport:
    results: list[_QuestionResult] = []
    for dialogue in dialogues:
        relationship, _ = await sessions.run_dialogue(dialogue, days, advance)
        texts = {turn.id: turn.text for turn in dialogue.turns}
        for question in dialogue.questions:
            evidence = [texts[turn_id] for turn_id in question.evidence]
            context = await sessions.build_context(relationship, question.text)
            assemble = partial(sessions.assemble_prompt, relationship, context, question.text, ())
            results.append(
                _evaluate_question(assemble, assemble(deduplicate=False), context, evidence)
            )
            advance(1)
    _, costs = await sessions.run_dialogue(_joined(dialogues), days, advance)
    work_per_message = {
        sample.labels["work"]: sample.value / max(1, sessions.messages)
        for metric in core.runtime.metrics.background_tasks.collect()
        for sample in metric.samples
        if sample.name.endswith("_total")
    }
    return LongitudinalReport(
        questions=len(results),
        evidence=_mean([result.present for result in results]),
        layers=[_layer_report(layer, results) for layer in LAYERS],
        weeks=_week_reports(costs),
        asked={work: round(count, 3) for work, count in work_per_message.items()},
        budget=int(sessions.policy.context_tokens * sessions.policy.share),
        tokens=_mean([result.prompt_tokens for result in results]),
        repeating=_mean([result.repeating_tokens for result in results]),
        repeating_evidence=_mean([result.repeating_present for result in results]),
        memories=_mean([result.memories for result in results]),
    )


@dataclass(frozen=True, slots=True)
class _QuestionResult:
    """The share of a question's evidence with all layers, without each and with each alone.

    `tokens` and `ms` are per layer, `prompt_tokens` those of the whole prompt. `repeating`, those
    of the whole prompt and its evidence are the same without deduplication.
    """

    present: float
    without: Mapping[LayerName, float]
    alone: Mapping[LayerName, float]
    tokens: Mapping[LayerName, int]
    ms: Mapping[LayerName, float]
    prompt_tokens: int
    repeating: Mapping[LayerName, int]
    repeating_tokens: int
    repeating_present: float
    memories: int


def _evaluate_question(
    assemble: Callable[[frozenset[LayerName]], AssembledPrompt],
    repeating: AssembledPrompt,
    context: PreparedContext,
    evidence: Sequence[str],
) -> _QuestionResult:
    """Evaluate a question; `assemble` builds its prompt with some layers switched off.

    Args:
        repeating: the prompt without deduplication.
    """
    all_layers = frozenset(LAYERS)
    complete = assemble(frozenset())
    return _QuestionResult(
        present=_share_present(complete, evidence),
        without={layer: _share_present(assemble(frozenset({layer})), evidence) for layer in LAYERS},
        alone={layer: _share_present(assemble(all_layers - {layer}), evidence) for layer in LAYERS},
        tokens=complete.tokens,
        ms=context.timings.layers_ms,
        prompt_tokens=prompt_tokens(complete),
        repeating=repeating.tokens,
        repeating_tokens=prompt_tokens(repeating),
        repeating_present=_share_present(repeating, evidence),
        memories=sum(
            len(section.lines)
            for section in complete.prompt.recalled
            if section.layer == "memories"
        ),
    )


def _share_present(assembled: AssembledPrompt, evidence: Sequence[str]) -> float:
    """Return the share of the evidence turns of which the prompt contains a sentence."""
    messages = assembled.prompt.messages()
    text = " ".join(message["content"] for message in messages).replace('\\"', '"')
    return fmean(any(sentence in text for sentence in _sentences(turn)) for turn in evidence)


def _sentences(text: str) -> list[str]:
    sentences = [match.strip() for match in _SENTENCE.findall(text)]
    long_enough = [sentence for sentence in sentences if len(sentence.split()) >= _MIN_WORDS]
    return long_enough or [text.strip()]


def _layer_report(layer: LayerName, results: Sequence[_QuestionResult]) -> LayerReport:
    return LayerReport(
        layer=layer,
        tokens=_mean([result.tokens.get(layer, 0) for result in results]),
        repeating=_mean([result.repeating.get(layer, 0) for result in results]),
        ms=_mean([result.ms.get(layer, 0.0) for result in results]),
        without=_mean([result.without[layer] for result in results]),
        alone=_mean([result.alone[layer] for result in results]),
    )


def _joined(dialogues: Sequence[Dialogue]) -> Dialogue:
    """Return one long dialogue of all sessions, without questions."""
    turns = tuple(
        replace(turn, id=f"{dialogue.id}/{turn.id}", session=f"{dialogue.id}/{turn.session}")
        for dialogue in dialogues
        for turn in dialogue.turns
    )
    first = dialogues[0]
    return Dialogue(ALL, first.user_name, first.companion_name, turns, ())


def _week_reports(costs: Sequence[Costs]) -> list[WeekReport]:
    weeks = []
    for first in range(0, len(costs), _DAYS_PER_WEEK):
        days = costs[first : first + _DAYS_PER_WEEK]
        tokens = [count for day in days for count in day.tokens]
        times_ms = [duration for day in days for duration in day.ms]
        if tokens:
            alive = set().union(*(day.alive for day in days))
            weeks.append(
                WeekReport(
                    week=first // _DAYS_PER_WEEK + 1,
                    alive=[layer for layer in LAYERS if layer in alive],
                    tokens=_mean(tokens),
                    repeating=_mean([count for day in days for count in day.repeating]),
                    ms=_mean(times_ms),
                    max_tokens=max(tokens),
                )
            )
    return weeks


def _mean(values: Sequence[float]) -> float:
    return round(fmean(values), 4) if values else 0.0
