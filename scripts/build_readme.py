"""Fill the generated parts of the pages in docs/: help, keys, presets, words, figures, settings, schemas.

usage: build_readme.py [--check]    with --check nothing is written and a stale page exits 1
"""

from __future__ import annotations

import io
import json
import os
import re
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import redirect_stdout
from functools import reduce
from pathlib import Path
from typing import Any, NamedTuple

from msgspec.structs import replace

from sparktop.agent.exposition import PageMetric
from sparktop.cli import COMMANDS
from sparktop.cli import main as sparktop
from sparktop.config import schema
from sparktop.config.keys import KEYS
from sparktop.config.options import ALL
from sparktop.config.schema import SETTINGS, Reach, ValueKind
from sparktop.config.watch import default_toml
from sparktop.export.metrics import metric_tables
from sparktop.model.explained import ALERTS, BALANCE, FINDINGS, LIMITS, RANKS, SPEEDS, STATES, Explained
from sparktop.sweep.plan.capacity import PUBLISHED_LIMITS
from sparktop.sweep.plan.conversations import find_conversations
from sparktop.sweep.plan.presets import BUILT_IN
from sparktop.sweep.terms.definitions import METRICS, TERMS, WARNINGS
from sparktop.ui.screens.help import FIGURES

ROOT = Path(__file__).parent.parent
_HELP_COLUMNS = 100


def help_block() -> str:
    """Return the output of `sparktop --help` as a code block."""
    return _help([])


def commands_block() -> str:
    """Return a section for each command with the output of its `--help`."""
    return "\n\n".join(f"### sparktop {name}\n\n{_help([name])}" for name in COMMANDS)


def _help(words: list[str]) -> str:
    os.environ["COLUMNS"] = str(_HELP_COLUMNS)
    written = io.BytesIO()
    with redirect_stdout(io.TextIOWrapper(written, "utf-8", write_through=True)):
        sparktop([*words, "--help"])
        text = written.getvalue().decode()
    return f"```text\n{text.rstrip()}\n```"


def schemas_block() -> str:
    """Return a table of the JSON Schemas in docs/schemas, each with the keys of its documents."""
    rows = []
    for path in sorted((ROOT / "docs" / "schemas").glob("*.json")):
        schema = json.loads(path.read_text(encoding="utf-8"))
        keys = ", ".join(f"`{key}`" for key in schema["properties"])
        name = f"`sparktop.{path.stem}/1`"
        rows.append((schema["title"], name, f"[{path.name}](schemas/{path.name})", keys))
    return table(("document", "`schema`", "JSON Schema", "keys"), rows)


def keys_block() -> str:
    """Return a table of the key bindings."""
    rows = [f"| `{key.shown}` | {key.help} |" for key in KEYS]
    return "\n".join(["| key | does |", "|---|---|", *rows])


def metrics_block() -> str:
    """Return the metrics of `sparktop export` as tables."""
    return "\n\n".join(_table(*part) for part in metric_tables())


def _table(title: str, shared: Sequence[str], metrics: Sequence[PageMetric[Any]]) -> str:
    """Return a section with the metrics of one kind of object; all of them have the labels `shared`."""
    labels = [", ".join(f"`{label}`" for label in (*shared, *one.labels)) or "–" for one in metrics]
    rows = [f"| `{one.full_name}` | {own} | {one.text} |" for one, own in zip(metrics, labels, strict=True)]
    return "\n".join([f"### {title}", "", "| metric | labels | meaning |", "|---|---|---|", *rows])


_HEADER = re.compile(r"#?\[{1,2}(?P<name>[a-z]+)(?:\.[^\]]*)?\]{1,2}")
_PAIR = re.compile(r"#?(?P<key>[a-z_0-9]+) = (?P<value>.*)")
_MEANINGS = {
    ("nodes", "name"): "Its name on the screen, and in `nodes` of backends.",
    (
        "nodes",
        "via",
    ): "How it is read: here, through an agent there, or over ssh with nothing installed.",
    ("nodes", "url"): "With `agent`: its URL.",
    (
        "nodes",
        "ssh",
    ): "With `ssh`: the destination: a host of ssh's configuration, or user@host.",
    ("nodes", "token_file"): "With `agent`: a file whose first line is the token; read at each connection.",
    ("backends", "name"): "Its name on the screen, and in `backends` of routers.",
    ("backends", "url"): "Its URL, without /metrics or /v1 at the end.",
    ("backends", "engine"): "What it runs; `auto` finds out.",
    ("routers", "name"): "Its name on the screen.",
    ("routers", "url"): "Its URL.",
    (
        "routers",
        "strategy",
    ): "How it chooses, in any words, where it does not report that: shown beside its name. "
    "`simple-shuffle` and `round-robin` are known to choose without regard to load.",
    ("routers", "backends"): "Names of the backends behind it; without it, those that its deployments name.",
    ("routers", "deployments"): "Backend by deployment id, where their addresses do not match.",
    ("routers", "weights"): "Relative part of the requests by backend, where it is meant to be unequal: "
    "`{ spark-a = 3, spark-b = 1 }`. Of LiteLLM they are read.",
    (
        "routers",
        "api_key_env",
    ): "The environment variable that holds its key; with it, deployments are read.",
    ("routers", "tls_ca"): "As of a backend.",
    ("prometheus", "name"): "Its name on the screen.",
    ("prometheus", "url"): "Its URL, without /api/v1; of a Mimir with its prefix: `http://mimir/prometheus`.",
    ("prometheus", "bearer_env"): "The environment variable that holds a bearer token.",
    (
        "",
        "timeout_s",
    ): "Longest time in seconds that one poll of a server may take, as Prometheus' scrape_timeout. One that "
    "answers fast is given less, so that a hang is soon seen: three times its slowest answers, at least 2 s.",
    ("prometheus", "bearer_file"): "A file whose first line is the bearer token.",
    ("prometheus", "basic_user"): "The user of basic authentication.",
    ("prometheus", "password_env"): "The environment variable that holds that user's password.",
    ("prometheus", "tls_ca"): "A certificate file that verifies the server's, where the system's do not.",
    ("prometheus", "tls_cert"): "The viewer's own certificate (mTLS).",
    ("prometheus", "tls_key"): "Its key.",
    ("prometheus", "headers"): "More headers, such as the tenant of Mimir.",
    ("prometheus", "machine_selector"): "Matchers that the queries for machines have.",
    ("prometheus", "machines"): "The hosts of a server by its instance, where labels do not show them.",
    (
        "",
        "target_files",
    ): "Files that list servers as Prometheus' file_sd does, in JSON or YAML (which needs PyYAML), read "
    "again every minute; paths may have wildcards, `**` is no more than `*`. Ray writes "
    "`/tmp/ray/prom_metrics_service_discovery.json` while its dashboard runs.",
    ("prometheus", "group_by"): "The labels that name a group; otherwise model, job and namespace.",
    ("sweeps", "name"): "What `--preset NAME` and the editor call it.",
    ("sweeps", "concurrency"): "Requests in flight, a level each.",
    (
        "sweeps",
        "prompt_lengths",
    ): "Several prompt lengths instead of `pp`, each at every concurrency.",
    ("sweeps", "runs"): "Runs of each level; three or more have an interval.",
    ("sweeps", "duration_s"): "Seconds of a steady level.",
    ("sweeps", "agents"): "Numbers of agents instead of concurrency: each does what `workload` describes.",
    (
        "sweeps",
        "rate",
    ): "Requests per second instead: `0.5,1,2`, `0.5..4` (one rising level) or `auto`.",
    ("sweeps", "trace"): "A file with recorded traffic to replay, relative to this file.",
    ("sweeps", "texts"): "Kinds of built-in text: each concurrency is measured with prompts of every kind.",
    ("sweeps", "prompts"): "A file with your own prompts (`--prompts`), relative to this file.",
    ("sweeps", "extra_body"): "More fields of each request's body. Results keep no text of them.",
    ("sweeps", "headers"): "More headers of each request. Results keep their names alone.",
    ("sweeps", "timeout_s"): "Seconds that a request may wait for its first and each next token.",
    ("sweeps", "longest"): "Measure the largest prompt length that fits, where a server refuses one.",
    ("sweeps", "leave"): "Hang up in the middle of answers after each level, and see how long servers go on.",
    (
        "sweeps",
        "beside",
    ): "Measure each steady level again while prompts of so many tokens arrive, one by one.",
    ("sweeps", "whole"): "Send context and prompt in one request.",
    ("sweeps", "trace_format"): "Its format, if its first line does not tell.",
    ("sweeps", "api"): "Which API is asked; otherwise chat.",
    ("sweeps", "slo"): "Conditions: the sweep looks for the concurrencies under which all hold (`--slo`).",
    ("sweeps", "seed"): "The seed of prompts and arrivals; otherwise a new one for each sweep.",
    ("sweeps", "warmup"): "Whether an unmeasured run goes ahead of each level; otherwise true.",
    (
        "sweeps",
        "max_error_share",
    ): "The exit code is 1 if this share of the requests failed, or more; otherwise 0.01 (1 %).",
    ("models", "bytes_per_token_gb"): "GB of weights read for each token of one request: for the roofline.",
    (
        "models",
        "cudagraph_capture_sizes",
    ): "Batch sizes captured as CUDA graphs: for the padding.",
    ("events", "webhook"): "The URL that gets the same JSON by POST.",
    (
        "events",
        "webhook_token_env",
    ): "The environment variable that holds the webhook's bearer token.",
}
"""Meanings of the settings that neither the options menu nor the example file explains, by (table, key)."""
_TYPES = {"str": "text", "int": "whole number", "float": "number", "bool": "true or false"}


def table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Return a Markdown table; "|" in a cell is escaped."""
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join(f"| {' | '.join(cell.replace('|', '&#124;') for cell in line)} |" for line in lines)


def words_block() -> str:
    """Return tables of all words on the screen, with their meanings and remedies."""
    parts: list[tuple[str, Mapping[Any, Explained]]] = [
        ("State of a server", STATES),
        ("Limited by", LIMITS),
        ("Balance of a group", BALANCE),
        ("Speed of a machine", SPEEDS),
        ("Ranks of an engine", RANKS),
        ("Findings about a server or machine", FINDINGS),
        ("Alerts", ALERTS),
    ]
    blocks = [f"## {title}\n\n{_explained('word', words)}" for title, words in parts]
    rows = [(f"`{one.code}`", one.word, one.meaning, one.remedy or "–") for one in WARNINGS.values()]
    marks = table(("code in files", "on the screen", "meaning", "what to do"), rows)
    return "\n\n".join([*blocks, f"## Warnings on a level of a sweep\n\n{marks}"])


def _explained(head: str, words: Mapping[Any, Explained]) -> str:
    rows = [(f"**{word}**", one.meaning, "<br>".join(one.all_remedies) or "–") for word, one in words.items()]
    return table((head, "meaning", "what to do"), rows)


def watched_block() -> str:
    """Return a table of the figures on the board, with their meanings."""
    return table(("on the screen", "meaning"), ((f"`{name}`", text) for name, text in FIGURES))


def figures_block() -> str:
    """Return the definitions of the figures of a sweep."""
    rows = [(one.title, f"`{one.name}`", one.unit, one.definition) for one in METRICS.values()]
    terms = [(name, text) for name, text in TERMS.items()]
    return "\n\n".join(
        [table(("figure", "key in files", "unit", "definition"), rows), table(("term", "meaning"), terms)]
    )


_PURPOSES = {
    "quick": "Where does the server become full? The first thing to run.",
    "topology": "Router, TP=2 or one server: the tables that the forum compares.",
    "arena": "Spark Arena's grid of context depth and concurrency, with its own odd 65,535.",
    "wide": "Every usual batch size once: where do steps and padding show?",
    "interactive": "One user: latency and tokens per second.",
    "batch-scaling": "How much does a second, fourth, sixteenth request cost?",
    "long-context": "Prefill of long prompts, one at a time.",
    "high-concurrency": "Very many requests at once.",
    "interference": "How much do long prompts of others slow down the tokens of short requests?",
    "kinds": "Do drafts pay for code, prose, tables, calls of tools? Drafts accepted on each.",
}


def presets_block() -> str:
    """Return the built-in presets of sweeps with their levels."""
    rows = []
    for one in BUILT_IN:
        levels = f"c = {_numbers(one.concurrency)}" + (f" … {one.climb_to}" if one.climb_to else "")
        if one.depths:
            levels += f", each at depth {_numbers(one.depths)}"
        if one.beside:
            levels += f", each alone and while prompts of {one.beside:,} tokens arrive"
        if one.texts:
            levels += f", each with {', '.join(one.texts)}"
        tokens = f"{_numbers(one.prompt_lengths)} in, {one.tg} out"
        rows.append((f"`{one.name}`", _PURPOSES[one.name], levels, tokens))
    return table(("preset", "question", "levels", "tokens of a request"), rows)


def _numbers(values: Iterable[float]) -> str:
    return ", ".join(f"{value:,g}" for value in values)


_WORKLOADS = ("chat", "coder", "coder-quick", "rag")


def workloads_block() -> str:
    """Return the built-in workloads of agents."""
    found = [find_conversations(name) for name in _WORKLOADS]
    return table(("workload", "what its agents do"), [(f"`{one.name}`", one.description) for one in found])


def limits_block() -> str:
    """Return the published limits."""
    rows = [
        (f"`{name}`", f"`{conditions}`", f"{100 * share:g} % of the requests")
        for name, (conditions, share) in PUBLISHED_LIMITS.items()
    ]
    return table(("preset", "conditions", "must hold for"), rows)


class Setting(NamedTuple):
    """A key of the configuration file."""

    name: str
    values: str
    default: str
    meaning: str
    is_harmless: bool
    """Whether a file that was only found may set it."""


def configuration_block() -> str:
    """Return every table of the configuration file with its keys."""
    notes, keys = _comments(default_toml())
    moved = ", ".join(f"`{key.name}`" for key in KEYS)
    settings = SETTINGS.table or {}
    blocks = [_section("At the top", "", _settings("", settings, keys))]
    for name, one in settings.items():
        if (table := _table_of(one.kind)) is not None:
            title = f"[[{name}]]" if list in one.kind.types else f"[{name}]"
            title = f'[{name}."NAME"]' if name == "models" else title
            blocks.append(_section(f"`{title}`", notes.get(name, ""), _settings(name, table, keys)))
    about = re.sub(r"Names: [^.]*\.", f"Names: {moved}.", notes["keys"])
    return "\n\n".join([*blocks, f"## `[keys]`\n\n{about}"])


def _section(title: str, note: str, settings: Iterable[Setting]) -> str:
    rows = [
        (f"`{one.name}`{'' if one.is_harmless else ' †'}", one.values, one.default, one.meaning)
        for one in settings
    ]
    parts = [f"## {title}", note, table(("key", "value", "default", "meaning"), rows)]
    return "\n\n".join(filter(None, parts))


def _settings(
    place: str, table: Mapping[str, schema.Setting], keys: Mapping[tuple[str, str], str]
) -> Iterator[Setting]:
    helps = {one.place: one.help for one in ALL}
    of_table = (SETTINGS.table or {})[place].reach if place else Reach.UNKNOWN
    for name, one in table.items():
        if name != "keys" and _table_of(one.kind) is None:
            path = (place, name) if place else (name,)
            meaning = _MEANINGS.get((place, name)) or helps.get(path) or keys.get((place, name))
            if meaning is None:
                raise ValueError(f"[{place}] {name} has no meaning: add it to _MEANINGS")
            is_harmless = Reach.NONE in {of_table, one.reach}
            yield Setting(name, _values(one.kind), _default(one), meaning, is_harmless)


def _table_of(kind: ValueKind) -> Mapping[str, schema.Setting] | None:
    """Return the keys of a table, or of each table of a list or a table; None for a plain value."""
    return kind.table if kind.items is None else kind.items.table


def _comments(text: str) -> tuple[dict[str, str], dict[tuple[str, str], str]]:
    """Return (comment on each table, comment on each key by table and key) of the example file."""
    notes: dict[str, str] = {}
    keys: dict[tuple[str, str], str] = {}
    at, comment = "", list[str]()
    for line in text.splitlines():
        if line.startswith("# "):
            comment.append(line[2:])
            continue
        said, comment = " ".join(comment), []
        if header := _HEADER.fullmatch(line):
            at = header["name"]
            notes.setdefault(at, said)
        elif (pair := _PAIR.fullmatch(line)) and said:
            keys.setdefault((at, pair["key"]), said)
    return notes, keys


def _values(kind: ValueKind) -> str:
    """Return the allowed values of a key: its type with its bounds, or its words."""
    if kind.items is not None:
        if len(kind.items.choices) > _MOST_WORDS:
            return "list of [kinds of alerts](words.md#alerts)"
        if kind.items.choices:
            return f"list of {_values(kind.items)}"
        plain, comma, bounds = _values(replace(kind.items, items=None)).partition(",")
        return f"{'table' if dict in kind.types else 'list'} of {plain}s{comma}{bounds}"
    if kind.choices:
        return ", ".join(f"`{word}`" for word in kind.choices)
    has = [
        f"{sign} {limit:g}"
        for sign, limit in (("≥", kind.least), (">", kind.above), ("≤", kind.most))
        if limit is not None
    ]
    return ", ".join([kind.noun.removesuffix(" in quotes").removeprefix("a "), *has])


_MOST_WORDS = 16


def _default(setting: schema.Setting) -> str:
    if setting.required:
        return "must be set"
    value = setting.default
    if value is None or value == "" or (isinstance(value, tuple | Mapping) and not value):
        return "–"
    if isinstance(value, bool):
        return f"`{str(value).lower()}`"
    if isinstance(value, tuple):
        return ", ".join(f"`{one}`" for one in value)
    return f"`{value:g}`" if isinstance(value, float) else f"`{value}`"


REFERENCES = {
    "words.md": {"words": words_block},
    "configuration.md": {"settings": configuration_block},
    "commands.md": {
        "help": help_block,
        "keys": keys_block,
        "presets": presets_block,
        "workloads": workloads_block,
        "limits": limits_block,
        "commands": commands_block,
    },
    "figures.md": {"watched": watched_block, "figures": figures_block, "metrics": metrics_block},
    "schemas.md": {"schemas": schemas_block},
}
"""Functions that return the generated blocks of each page, by the name of the block."""
_OF_ARGPARSE = {"help", "commands"}
"""Blocks in argparse's form, which differs from Python 3.13 on; pages show the form of 3.11 and 3.12."""


def filled(text: str, name: str, block: str) -> str:
    """Return `text` with the content between the two markers of `name` replaced by `block`."""
    begin, end = f"<!-- {name}:begin -->", f"<!-- {name}:end -->"
    head, _, rest = text.partition(begin)
    _, _, tail = rest.partition(end)
    return f"{head}{begin}\n{block}\n{end}{tail}"


def main() -> int:
    """Write the pages, or only check them with --check; return the exit code."""
    pages = {}
    for file, blocks in REFERENCES.items():
        path = ROOT / "docs" / file
        text = path.read_text(encoding="utf-8")
        shown = [name for name in blocks if sys.version_info < (3, 13) or name not in _OF_ARGPARSE]
        pages[path] = (text, reduce(lambda page, name: filled(page, name, blocks[name]()), shown, text))
    stale = [path for path, (before, after) in pages.items() if before != after]
    for path in stale:
        if "--check" in sys.argv:
            print(f"{path.relative_to(ROOT)} is stale: run `make readme`", file=sys.stderr)
        else:
            path.write_text(pages[path][1], encoding="utf-8")
    return int(bool(stale) and "--check" in sys.argv)


if __name__ == "__main__":
    sys.exit(main())
