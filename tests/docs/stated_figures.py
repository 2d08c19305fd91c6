"""What the documents say of each result file, and `make docs`, which writes its figures there.

A new sentence goes into the document, with any numbers, and here; `make docs` corrects the numbers.
"""

import json
import re
from collections.abc import Callable, Iterator
from operator import eq
from typing import Any

from tests.conftest import ROOT

RESULTS = ROOT / "loadtests" / "results"
_NUMBER = re.compile(r"\d[\d,]*(?:\.\d+)?|\.\d+")

#: A document and a sentence, or a part of one, that it contains; line breaks do not matter.
Statement = tuple[str, str]


def _announcements(result: Any) -> Iterator[Statement]:
    def times(listeners: str, kind: str) -> float:
        postgres, nats = (
            result[f"{listeners} idle listeners"][bus][kind]["per_second"]
            for bus in ("postgres", "nats")
        )
        return float(nats / postgres)

    alone, many = (
        f"{times(listeners, 'message'):.1f} times as many messages with NATS and "
        f"{times(listeners, 'memory'):.1f} times as many memories"
        for listeners in ("0", "60")
    )
    yield "docs/scaling.md", f"with 60 idle processes beside them {many}, without any {alone}"


def _background(result: Any) -> Iterator[Statement]:
    word, reply = (result[part]["with_of_without"] for part in ("first_word_ms", "reply_ms"))
    yield (
        "docs/benchmarks.md",
        f"{word:.2f} times as late as without; the complete reply {reply:.2f} times",
    )
    yield (
        "docs/speculation.md",
        f"With all layers the first word took {word:.2f} times as long, and the complete reply "
        f"{reply:.2f} times (medians of {result['messages']} replies;",
    )


#: Rows of docs/benchmarks.md, after "Enter to model request" or "search in": what was measured, its
#: label, what it is next to, and how both are written.
_ENTER = (
    ("50,000 memories, hit", "miss", ".1f"),
    ("all layers, hit", "memories alone", ".2f"),
    ("1,000 sessions open", "10 sessions", ".2f"),
    ("200 typists at 4 keys a second", "pauses only", ".1f"),
)
_SEARCH = (
    ("1,000 of 100,000", "1,000 memories of 100,000", ".2f", ".1f"),
    ("10,000 of 100,000", "10,000 memories of 100,000", ".2f", ".1f"),
    ("100,000 of 100,000", "100,000 memories", ".1f", ".0f"),
)


def _bench(result: Any) -> Iterator[Statement]:
    named = {row["name"]: row for row in result}

    def p50(name: str, form: str) -> str:
        return format(named[name]["p50"], form)

    def baseline(name: str, form: str) -> str:
        return format(named[name]["baseline_p50"], form)

    embed = [f"embed {tokens} tokens" for tokens in (8, 32, 128)]
    yield (
        "docs/benchmarks.md",
        f"| embedding 8, 32, 128 tokens | {', '.join(p50(name, '.1f') for name in embed)} ms "
        f"| fp32: {', '.join(baseline(name, '.1f') for name in embed)} ms |",
    )
    for part, label, form, against_form in _SEARCH:
        name = f"search {part} in the process"
        yield (
            "docs/benchmarks.md",
            f"| search in {label}, in the process | {p50(name, form)} ms "
            f"| in the database: {baseline(name, against_form)} ms |",
        )
    for case, against, form in _ENTER:
        name = f"Enter to model request, {case}"
        yield (
            "docs/benchmarks.md",
            f"| {name} | {p50(name, '.2f')} ms | {against}: {baseline(name, form)} ms |",
        )
    sessions = [f"memory of {session}" for session in ("an idle session", "a typing session")]
    sizes, limits = (
        ", ".join(f"{of(name, '.0f')} KiB" for name in sessions) for of in (p50, baseline)
    )
    yield (
        "docs/benchmarks.md",
        f"| memory of an idle session, of a typing session | {sizes} | limits: {limits} |",
    )
    hit, miss = (f"Enter to model request, all layers, {outcome}" for outcome in ("hit", "miss"))
    yield (
        "docs/layers-reference.md",
        f"{p50(hit, '.2f')} ms on a hit and {p50(miss, '.1f')} ms on a miss (p50), against "
        f"{baseline(hit, '.2f')} and {baseline(miss, '.1f')} with memories alone in the same run",
    )
    name = "search 10,000 of 100,000 in the database"
    yield (
        "docs/decisions/exact-search.md",
        f"(10,000 of 100,000: {p50(name, '.1f')} ms for the whole search, "
        f"{baseline(name, '.1f')} for a scan of pgvector and `ts_rank`;",
    )


def _capacity(result: Any) -> Iterator[Statement]:
    for deployment in result["deployments"]:
        yield (
            "docs/scaling.md",
            f"| {deployment['workload']['players']:,} | {deployment['gateways']:,} "
            f"| {deployment['gateway_gib']:,.1f} GiB "
            f"| {deployment['load']['database_cores']:,.1f} |",
        )
    costs, deployment = result["unit_costs"], result["deployments"][-1]
    workload, load = deployment["workload"], deployment["load"]
    ms = 1000 * workload["message_interval_s"] / workload["players"]
    typing, keys = costs["typing"]["gateway_cpu_ms"], costs["chars_per_message"]
    floor = keys * costs["bare_keystroke_cpu_ms"]
    yield (
        "docs/scaling.md",
        f"A typed message costs {load['gateway_cores'] * ms:.0f} ms of CPU at the gateway and "
        f"{load['database_cores'] * ms:.0f} ms at the database. Typing takes {typing:.0f} of the "
        f"gateway's: {keys} keys, which a server that only parses them spends {floor:.0f} ms on, "
        f"and {costs['prefetches_per_message']:.1f} prefetched contexts of "
        f"{costs['prefetch']['gateway_cpu_ms']:.1f} ms",
    )
    for check in result["checks"]:
        yield (
            "docs/scaling.md",
            f"| {check['gateways']} | {check['players']:,} | {check['message_interval_s']:.0f} s "
            f"| {check['cores']:.2f} | {check['predicted_cores']:.2f} "
            f"| {check['gib']:.2f} GiB | {check['predicted_gib']:.2f} GiB |",
        )


_DATABASES = {"postgresql": "PostgreSQL", "citus": "Citus, three nodes"}


def _cluster(result: Any) -> Iterator[Statement]:
    runs = {(run["database"], run["gateways"], run["fault"]): run for run in result["runs"]}
    assert not any(run["lost"] or run["doubled"] for run in runs.values())
    for (database, gateways, fault), baseline in runs.items():
        if fault != "none":
            continue
        accepted, ready = baseline["accepted_ms"], baseline["ready_ms"]
        again = runs[database, gateways, "gateway_kill"]["talking_again_s"]
        yield (
            "docs/scaling.md",
            f"| {_DATABASES[database]} | {gateways} | {baseline['messages_a_second']:.1f} "
            f"| {accepted['p50']:.1f} ms, {accepted['p99']:.1f} ms "
            f"| {ready['p50']:.1f} ms, {ready['p99']:.1f} ms "
            f"| {again['p50']:.1f} s, {again['p90']:.1f} s |",
        )
    messages = sum(run["messages"] for key, run in runs.items() if key[2] != "none")
    kills, nats, crashes, moves = (
        sum(run["times"] for key, run in runs.items() if key[2] == fault)
        for fault in ("gateway_kill", "nats_kill", "database_crash", "shard_move")
    )
    yield (
        "docs/scaling.md",
        f"In {kills} kills of gateways, {nats} of NATS, {crashes} crashes of a node of the "
        f"database and {moves} moves of shards, none of {messages:,} messages was lost or stored "
        "twice",
    )
    yield (
        "docs/benchmarks.md",
        f"of {messages:,} messages during {kills} kills of gateways, {nats} of NATS, {crashes} "
        f"crashes of a database node and {moves} moves of shards, none was lost or stored twice",
    )


def _compare(result: Any) -> Iterator[Statement]:
    named = {system["name"]: system for system in result}

    def cells(name: str) -> str:
        system = named[name]
        search, whole = system["search_ms_p50"], system["with_embedding_ms_p50"]
        return f"| {search:.1f} ms | {whole:.1f} ms |"

    ours = "Foremind, as it ships"
    recall = _share(named[ours]["recall@10"])
    yield (
        "docs/compare.md",
        f"| **Foremind**, as it shipped then | before | **{recall}** {cells(ours)}",
    )
    for name, label in (
        ("LanceDB hybrid", "LanceDB, hybrid (RRF)"),
        ("LanceDB full text", "LanceDB, full text alone"),
        ("txtai hybrid", "txtai, hybrid"),
        ("LanceDB vectors", "LanceDB, vectors alone"),
        ("Chroma", "Chroma"),
        ("mem0, pgvector", "mem0 on pgvector, `infer=False`"),
    ):
        system = named[name]
        start = f"| {label} | {system['version']} | {_share(system['recall@10'])} "
        yield "docs/compare.md", start + cells(name)
    yield "docs/compare.md", f"2,960 turns and {named[ours]['questions']:,} questions"


def _compare_independent(result: Any) -> Iterator[Statement]:
    named = {system["name"]: system for system in result}
    recall = {name: _share(system["recall@10"]) for name, system in named.items()}
    ours = "Foremind, as it ships"
    (questions,) = {system["questions"] for system in result}
    yield "docs/compare.md", f"has seen: {questions} questions, one run"
    for name, label in (
        (ours, "| **Foremind**, as it ships |"),
        ("LanceDB full text", "| LanceDB {}, full text |"),
        ("LanceDB hybrid", "| LanceDB {}, hybrid (RRF) |"),
        ("txtai hybrid", "| txtai {}, hybrid |"),
        ("LanceDB vectors", "| LanceDB {}, vectors |"),
        ("Chroma", "| Chroma {} |"),
        ("mem0, pgvector", "| mem0 {} on pgvector |"),
    ):
        system = named[name]
        share = f"**{recall[name]}**" if name == ours else recall[name]
        yield (
            "docs/compare.md",
            f"{label.format(system['version'])} {share} | {system['search_ms_p50']:.2f} ms "
            f"| {system['with_embedding_ms_p50']:.1f} ms |",
        )
    yield (
        "README.md",
        f"({questions} questions, the same vectors), the top ten held {recall[ours]} of the "
        f"evidence, found in {named[ours]['search_ms_p50']:.2f} ms; LanceDB's full text held "
        f"{recall['LanceDB full text']}, its hybrid search {recall['LanceDB hybrid']}, txtai "
        f"{recall['txtai hybrid']}, Chroma {recall['Chroma']} and mem0 {recall['mem0, pgvector']}.",
    )


def _hostile(result: Any) -> Iterator[Statement]:
    attacks = result["attacks"]
    assert not any(attack["lost"] for attack in attacks)
    ratios = [attack["p99_ratio"] for attack in attacks]
    calm_ms = [attack["every_calm_p99_ms"] for attack in attacks]
    memory = max(attack["memory_ratio"] for attack in attacks)
    usual = f"{min(ratios):.1f} to {max(ratios):.1f} times the calm one"
    numbers = sorted({attack["attackers"] for attack in attacks})
    kinds = {attack["attack"] for attack in attacks}
    assert len(attacks) == len(numbers) * len(kinds)
    yield (
        "docs/benchmarks.md",
        f"stays within {memory:.2f} times its calm size. The p99 from Enter to `message.accepted` "
        f"is {usual} ({min(calm_ms):.0f} to {max(calm_ms):.0f} ms)",
    )
    yield (
        "SECURITY.md",
        f"{result['typists']} typists next to {' and to '.join(map(str, numbers))} of one kind of "
        f"attackers, for each of {len(kinds)} kinds: no message lost, memory at most {memory:.2f} "
        f"times as much; the 99th percentile of Enter {usual}",
    )


def _labels(result: Any) -> Iterator[Statement]:
    for layer, part in (("episodes", "episodes"), ("topics", "topics"), ("library", "documents")):
        scores = result[part]
        yield (
            "docs/layers-reference.md",
            f"| `{layer}` | {scores['precision']:.2f} | {scores['found']:.2f} "
            f"| {scores['unasked']:.1f} |\n",
        )
    yield (
        "docs/layers-reference.md",
        f"Of the profile's entries {result['profile_precision']:.2f} are correct, and "
        f"{result['profile_recall']:.2f} of those expected are present. Of the questions that were "
        f"left open {result['questions']:.2f} are open or settled as they should be, with "
        f"{result['other_questions']} spurious ones.",
    )


def _languages(result: Any) -> Iterator[Statement]:
    (facts,) = {report["facts"] for report in result}
    (questions,) = {report["questions"] for report in result}
    (fillers,) = {report["fillers"] for report in result}
    yield (
        "docs/languages.md",
        f"of {facts} facts, {questions} questions, each answered by one of the facts, and "
        f"{fillers} turns",
    )
    yield "docs/languages.md", f"there are {facts + fillers} turns in a set"
    for report in result:
        cells = [
            report[part]
            for part in ("kept", "fillers_kept", "found@3", "found@5", "found_in_other_words")
        ]
        yield (
            "docs/languages.md",
            f"| `{report['language']}` | {' | '.join(map(_percent, cells))} |",
        )


def _layers(result: Any) -> Iterator[Statement]:
    evidence = result["evidence"]
    yield (
        "docs/layers-reference.md",
        f"it asks the {result['questions']} questions. *Evidence* is the share of the turns "
        "answering a question of which the whole prompt contains a sentence, word for word: "
        f"{evidence:.3f} with all layers",
    )
    shown = {"summary", "opening", "episodes", "topics", "profile", "scratchpad", "questions"}
    for layer in result["layers"]:
        if layer["layer"] in shown | {"hot", "memories"}:
            yield (
                "docs/layers-reference.md",
                f"| `{layer['layer']}` | {layer['tokens']:.0f} | {layer['repeating']:.0f} "
                f"| {layer['without']:.3f} | {layer['alone']:.3f} |",
            )
    tokens, repeating = result["tokens"], result["repeating"]
    hot = next(layer for layer in result["layers"] if layer["layer"] == "hot")
    assert result["repeating_evidence"] <= evidence
    yield (
        "docs/layers-reference.md",
        f"A prompt takes {tokens:.0f} tokens. If every layer said all that it holds, the same "
        f"prompts would take {repeating:.0f}: stating things once saves {repeating - tokens:.0f} "
        f"tokens ({1 - tokens / repeating:.0%}) and costs no evidence ({evidence:.3f} with it, "
        f"{result['repeating_evidence']:.3f} without). The largest part, "
        f"{hot['repeating'] - hot['tokens']:.0f} tokens, is what",
    )
    weeks = result["weeks"]
    first, last = weeks[0], weeks[-1]
    late = sum(week["tokens"] for week in weeks[-4:]) / 4
    yield (
        "docs/layers-reference.md",
        f"A prompt takes {first['tokens']:.0f} tokens in the first week and {last['tokens']:.0f} "
        f"in the last ({last['tokens'] / first['tokens']:.2f} times; the last four weeks "
        f"{late:.0f}, {late / first['tokens']:.2f} times), at most "
        f"{max(week['max_tokens'] for week in weeks)}; without deduplication "
        f"{first['repeating']:.0f} in the first week and {last['repeating']:.0f} in the last. The "
        f"layers may take {result['budget']}.",
    )
    asked = result["asked"]
    yield (
        "docs/layers-reference.md",
        f"{asked['notes']:.2f} requests for notes, {asked['summary']:.2f} for summaries, "
        f"{asked['episodes']:.2f} for episodes, {asked['topics']:.2f} for topics, "
        f"{asked['hot']:.2f} for the core memory, {asked['habits']:.2f} for usage patterns;",
    )


def _library(result: Any) -> Iterator[Statement]:
    small, small_size, large, large_size = result
    times = [row["p50"] / row["baseline_p50"] for row in (small, large, small_size, large_size)]
    yield (
        "docs/layers.md",
        f"a search takes {times[0]:.1f} times as long in 1,000 passages and {times[1]:.1f} times "
        f"in 20,000 ({large['p50']:.1f} ms, in a thread), and up to {max(times[2:]):.1f} times "
        "the memory",
    )


def _lore(result: Any) -> Iterator[Statement]:
    entries, again, patterns, reading = result
    loop, alternation, one_by_one = (row["baseline_p50"] for row in (entries, again, patterns))
    yield (
        "docs/lorebooks.md",
        f"A draft to a companion with 2,000 entries and 10,000 keys takes {entries['p50']:.1f} ms, "
        f"against {loop:.1f} ms for a loop over the keys and {alternation:.1f} ms for one "
        f"expression of Python's `re`; with 500 patterns, {patterns['p50']:.1f} ms in a thread, "
        f"against {one_by_one:.1f} ms in Python's `re`. Reading the 2,000 entries takes "
        f"{reading['p50']:.0f} ms",
    )


def _replay(result: Any) -> Iterator[Statement]:
    eager, pauses = result["eager"], result["pauses only"]
    sent, late = (runs["Enter after 200 ms"] for runs in (eager, pauses))
    hits, late_hits, bare_hits, late_bare_hits = (
        runs[f"Enter after 200 ms{end}"]["outcomes"].get("hit", 0)
        for end in ("", ", no sign at the end")
        for runs in (eager, pauses)
    )
    ready, late_ready = sent["ready_ms"], late["ready_ms"]
    cpu, late_cpu = (f"{runs['typing_cpu_ms_per_60_chars']:.0f} ms" for runs in (eager, pauses))
    yield (
        "README.md",
        f"{hits} of {sent['sent']} messages found their context ready ({bare_hits} without final "
        f"punctuation): the model request could start after {ready['p50']:.1f} ms (median), "
        f"against {late_ready['p50']:.1f} ms",
    )
    yield (
        "docs/benchmarks.md",
        f"{hits} of {sent['sent']} messages sent 200 ms after the last key, {bare_hits} without "
        f"final punctuation; with pauses only, {late_hits} and {late_bare_hits}",
    )
    yield (
        "docs/benchmarks.md",
        f"after {ready['p50']:.2f} ms (p50; p99 {ready['p99']:.2f} ms); with pauses only, "
        f"{late_ready['p50']:.2f} ms (p99 {late_ready['p99']:.2f} ms)",
    )
    yield (
        "docs/benchmarks.md",
        f"{cpu} of CPU for sixty characters; with pauses only, {late_cpu}",
    )
    yield (
        "docs/speculation.md",
        f"when a draft settles, and at pauses | {hits} of {sent['sent']} | {bare_hits} | {cpu} |",
    )
    yield (
        "docs/speculation.md",
        f"after 500 ms without a key (`pause_ms`) | {late_hits} of {late['sent']} "
        f"| {late_bare_hits} | {late_cpu} |",
    )
    yield "docs/speculation.md", f"({result['typists']} typists, recorded typing of two people"


def _scenes(result: Any) -> Iterator[Statement]:
    alone, scenes = (result[name] for name in ("one to one", "scenes of four minds"))
    typing, message = (
        scenes[cost] / alone[cost] for cost in ("typing_cpu_ms_per_draft", "cpu_ms_per_message")
    )
    yield (
        "docs/benchmarks.md",
        f"{scenes['outcomes'].get('hit', 0)} of {scenes['sent']} first answers find their context, "
        f"ready after {scenes['ready_ms']['p50']:.1f} ms (p50), because the message is stored with "
        f"its witnesses first; typing costs {typing:.2f} times the CPU of one to one, a message "
        f"with its answer {message:.2f} times",
    )


def _sharding(result: Any) -> Iterator[Statement]:
    commit, read = (
        result[part]["citus"]["p50_ms"] / result[part]["plain"]["p50_ms"]
        for part in ("commit", "read")
    )
    moving = result["moving"]
    assert moving["moves"] == 5
    assert not any(moving[part] for part in ("lost", "twice", "without_job"))
    yield (
        "docs/scaling.md",
        f"a commit took {commit:.1f} times as long as on plain PostgreSQL and a read {read:.1f} "
        f"times (medians, measured in turn); of {moving['messages']:,} messages sent during five "
        "moves",
    )


def _soak(result: Any) -> Iterator[Statement]:
    growth = result["growth_percent_an_hour"]
    assert result["left"] == result["floor"]
    assert result["errors"] == 0
    yield (
        "docs/benchmarks.md",
        f"an hour of {result['typists']} typists who come and go grew the server by {growth:.2f}% "
        "an hour in its second half, with no errors",
    )
    yield (
        "SECURITY.md",
        f"an earlier version: {result['typists']} typists, {result['messages']:,} messages, "
        f"{result['reconnects']:,} connections: +{growth:.2f}% an hour",
    )


def _statements(result: Any) -> Iterator[Statement]:
    halves = result["halves"]
    for name, score in (
        ("all", result), ("tuned", halves["tuned"]), ("held out", halves["held"]),
    ):  # fmt: skip
        yield (
            "docs/memory.md",
            f"| {name} ({score['messages']:,}) | {score['read']} | {score['wrong_of_read']:.1%} "
            f"| {score['plain']} | {score['read_of_plain']:.1%} |",
        )


def _virtual_replay(result: Any) -> Iterator[Statement]:
    for crowd in result.values():
        runs = [
            crowd[f"Enter after {delay} ms{end}"]
            for delay in (80, 150)
            for end in ("", ", no sign at the end")
        ]
        cells = " | ".join(_percent(run["hit_share"]) for run in runs)
        first = runs[0]
        yield (
            "docs/speculation.md",
            f"| {crowd['embed_ms']:g} ms | {first['embedder_busy']:.0%} | {cells} "
            f"| {first['prepared_per_60_chars']:.1f} |",
        )
    alone, crowded = result["alone"], result["crowded"]
    yield "docs/speculation.md", "| Enter after 80 ms | and no sign at the end | after 150 ms |"
    yield "docs/speculation.md", f"draft takes {alone['embed_ms']:g} ms to embed alone"
    name = "Enter after 80 ms"
    signed, bare = alone[name], alone[f"{name}, no sign at the end"]
    assert signed["hit_share"] == bare["hit_share"]
    hits = round(signed["hit_share"] * signed["sent"])
    shares = [_percent(crowded[name + end]["hit_share"]) for end in ("", ", no sign at the end")]
    yield (
        "docs/benchmarks.md",
        f"for {hits} of {signed['sent']} messages, with final punctuation or without, while the "
        f"embedding thread is busy for {signed['embedder_busy']:.0%} of its time; for "
        f"{shares[0]} and {shares[1]} at {crowded[name]['embedder_busy']:.0%}",
    )


def _warm(result: Any) -> Iterator[Statement]:
    modes, shared = result["alone"], result["shared"]

    def ms(mode: str, part: str = "p50") -> str:
        return f"{modes[mode]['first_word_ms'][part]:.0f} ms"

    cold, prefill = (
        f"{shared[mode]['first_word_ms']['p50']:.0f} ms, slowest tenth from "
        f"{shared[mode]['first_word_ms']['p90']:.0f} ms"
        for mode in ("cold", "prefill")
    )
    yield (
        "docs/speculation.md",
        f"where other players' messages came in between: cold {cold}; `prefill` {prefill}",
    )

    distant = result["distant"]
    ahead = (f"{distant[mode]['first_word_ms']['p50']:.0f} ms" for mode in ("prefill", "reply"))
    yield "docs/speculation.md", "`prefill` {}, `reply` {} (median)".format(*ahead)

    yield (
        "README.md",
        f"a llama.cpp server sent its first word {ms('prefill')} after Enter instead of "
        f"{ms('off')} (median)",
    )
    yield (
        "docs/benchmarks.md",
        f"cold {ms('cold')}, `off` {ms('off')}, `prefill` {ms('prefill')}, "
        f"`reply` {ms('reply')} (p50)",
    )
    for mode in ("cold", "off", "prefill", "reply"):
        share = f" ({modes[mode]['p50_of_cold']:.0%})" if mode != "cold" else ""
        name = mode if mode == "cold" else f"`{mode}`"
        yield "docs/speculation.md", f"| {name} | {ms(mode)}{share} | {ms(mode, 'p90')} |"
    yield "docs/speculation.md", f"({result['messages']} messages each, by a typist"


def _abuse(result: Any) -> Iterator[Statement]:
    assert result["errors"] == 0
    yield (
        "docs/benchmarks.md",
        f"by {result['growth_percent_an_hour']:.1f}% an hour in the second half of an hour in "
        f"which it was abused {result['abused']:,} times",
    )


def _searches(result: Any) -> Iterator[Statement]:
    calm, http, mcp = ((row["p50"], row["p99"]) for row in result)
    yield (
        "docs/benchmarks.md",
        f"the time from a draft to its `context.ready` rises from {calm[0]:.0f} ms (p99 "
        f"{calm[1]:.0f} ms) to {http[0]:.0f} ms ({http[1]:.0f} ms), or over MCP to {mcp[0]:.0f} ms "
        f"({mcp[1]:,.0f} ms)",
    )


def _noninterference(result: Any) -> Iterator[Statement]:
    assert result["differing"] == 0
    yield (
        "docs/benchmarks.md",
        f"in {result['worlds']:,} random worlds, lived twice with another text of one event, "
        f"{result['differing']} of {result['prompts']:,} prompts of minds that had not witnessed "
        f"it, or logs of players who had not, differ in a single byte; {result['noticed']:,} of "
        "minds that had do",
    )


def _worlds(result: Any) -> Iterator[Statement]:
    assert result["other_witnesses"] == 0
    yield (
        "docs/benchmarks.md",
        f"of {result['stories']} stories, {result['leaking']} of {result['prompts']:,} prompts "
        f"hold an event that their mind did not witness; of {result['asked']:,} events that it did "
        f"and is asked about, {result['missing']} are missing",
    )


def _world_speed(result: Any) -> Iterator[Statement]:
    batch, single, _, rolled, deep = result
    saves = deep["name"].removeprefix(f"{rolled['name']}, ")
    yield (
        "docs/benchmarks.md",
        f"To {batch['name']}, takes {batch['p50']:,.0f} ms, against "
        f"{batch['baseline_p50']:,.0f} ms for nothing but a row for each witness; to "
        f"{single['name']}, {single['p50']:.1f} ms. To {rolled['name']} takes "
        f"{rolled['p50']:,.0f} ms, {saves} {deep['p50']:,.0f} ms, against "
        f"{rolled['baseline_p50']:,.0f} ms to {rolled['baseline']}",
    )


def _load(result: Any) -> Iterator[Statement]:
    scenes, crowds = result["in_scenes"], result["in_crowds"]
    yield (
        "docs/benchmarks.md",
        f"In {result['scenes']} scenes with four characters each, the first word comes "
        f"{scenes['figures']['Enter to first token']['p50_ms']:.0f} ms after Enter (p50), for "
        f"{scenes['cpu_ms_per_message']:.0f} ms of CPU a message, and "
        f"{result['one_to_one']['cpu_ms_per_message']:.0f} one to one; with {result['minds']:,} "
        f"characters in them, {crowds['figures']['Enter to first token']['p50_ms']:.0f} ms and "
        f"{crowds['cpu_ms_per_message']:.0f} ms",
    )


STATEMENTS: dict[str, Callable[[Any], Iterator[Statement]]] = {
    "abuse.json": _abuse,
    "announcements.json": _announcements,
    "background.json": _background,
    "bench.json": _bench,
    "capacity.json": _capacity,
    "cluster.json": _cluster,
    "compare.json": _compare,
    "compare_independent.json": _compare_independent,
    "hostile.json": _hostile,
    "labels.json": _labels,
    "languages.json": _languages,
    "layers.json": _layers,
    "library.json": _library,
    "load.json": _load,
    "lore.json": _lore,
    "noninterference.json": _noninterference,
    "replay.json": _replay,
    "scenes.json": _scenes,
    "searches.json": _searches,
    "sharding.json": _sharding,
    "soak.json": _soak,
    "statements.json": _statements,
    "virtual_replay.json": _virtual_replay,
    "warm.json": _warm,
    "world_speed.json": _world_speed,
    "worlds.json": _worlds,
}


def _share(number: float) -> str:
    """Write a share as the tables of recall do, such as .843."""
    return f"{number:.3f}".removeprefix("0")


def _percent(share: float) -> str:
    """Write a share as percent, with a decimal where there is one."""
    return f"{share * 100:.1f}".removesuffix(".0") + "%"


def statements() -> list[Statement]:
    """Return what the documents should say now."""
    return [
        statement
        for file, stated in STATEMENTS.items()
        for statement in stated(json.loads((RESULTS / file).read_text("utf-8")))
    ]


def wherever(sentence: str) -> re.Pattern[str]:
    """Return a pattern for a sentence, with any numbers and line breaks; each number is a group."""
    words = [r"\s+".join(map(re.escape, part.split(" "))) for part in _NUMBER.split(sentence)]
    return re.compile(f"({_NUMBER.pattern})".join(words))


def corrected(text: str, sentence: str) -> str:
    """Return a document with the numbers of one sentence corrected. Pure.

    Of sentences that differ only in numbers, the one with most of these numbers is meant.

    Raises:
        ValueError: no sentence, or more than one, is meant.
    """
    numbers = _NUMBER.findall(sentence)
    found = list(wherever(sentence).finditer(text))
    equal = [sum(map(eq, match.groups(), numbers)) for match in found]
    if not found or equal.count(max(equal)) > 1:
        raise ValueError(f"expected once, with any numbers, not {len(found)} times: {sentence}")
    match = found[equal.index(max(equal))]
    for group in range(len(numbers), 0, -1):
        start, end = match.span(group)
        text = text[:start] + numbers[group - 1] + text[end:]
    return text


def main() -> None:
    """Write the figures of all results into the documents."""
    for document, sentence in statements():
        path = ROOT / document
        path.write_text(corrected(path.read_text("utf-8"), sentence), "utf-8")


if __name__ == "__main__":
    main()
