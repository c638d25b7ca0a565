"""Write the JSON Schemas in docs/schemas/, from models where there are any, else from example documents.

usage: build_schemas.py [--check]    with --check nothing is written and a stale file exits 1

A schema made from documents has the keys and types that occur in simulated scenarios. A key's description is
that of the field of the same name in the model's class; so are its types if it is null in all documents.
"""

from __future__ import annotations

import ast
import importlib
import json
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from functools import cache
from inspect import cleandoc
from pathlib import Path
from typing import Any

import msgspec

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from sparktop.analysis.wall import wall_of
from sparktop.demo.scenario import SCENARIOS
from sparktop.doctor.check import Check, Status
from sparktop.doctor.check import to_json as doctor_json
from sparktop.events import event_document
from sparktop.report.json_snapshot import to_json as snapshot_json
from sparktop.report.json_snapshot import worst_json
from sparktop.sources.replies import Reply
from sparktop.sweep.result.results import SweepResult
from stage.fleet import RehearsedFleet
from stage.rehearsal import Rehearsal

FOLDER = Path(__file__).resolve().parent.parent / "docs" / "schemas"
DIALECT = "https://json-schema.org/draft/2020-12/schema"
PLAYED_S = 75
PLAYED = (
    "oscillation",
    "faulty",
    "hang-a",
    "slow-start",
    "memory",
    "pd-fault",
    "orphan",
    "kv-starved",
    "reboot",
    "tp2",
)
MODELS = ("snapshot", "node", "engine", "router", "balance", "event", "ranks")
MAPS = frozenset(
    {
        *("values", "finished", "poll_ms", "deployments", "stuck", "failures", "sent", "also_reported"),
        *(
            "throttled_percent",
            "bounds",
            "in_bucket",
            "running_by_backend",
            "evidence",
            "sleep_state",
            "states",
        ),
        *("starved_percent", "mean_load", "requests_share"),
    }
)
"""Keys whose objects map names to values: any key is allowed in them."""
NEVER_NULL = frozenset(
    {"", "schema", "sparktop", "taken_at", "interval_s", "simulated", "name", "url", "ok", "message", "words"}
)
OWNERS = {
    "nodes": "NodeView",
    "backends": "BackendView",
    "routers": "RouterView RouterSample",
    "lanes": "LaneView",
    "gpus": "GpuReading",
    "memory": "MemoryReading",
    "limited_by": "Limit",
    "loading": "Loading",
    "alerts": "Alert",
    "events": "Event",
    "balance": "Balance",
}
"""Model classes that have the fields of an object, the first one first, by the key that holds the object."""
TEXTS = {
    ("", "groups"): "Servers by group, the worst first.",
    (
        "",
        "worst_lists",
    ): "The servers and machines with the worst figures, at most 100 in each list, the worst first; "
    "servers that are down and figures of 0 are left out.",
    ("balance", "step_time"): "The group's step time; null where the samples do not determine it or backends "
    "differ in speed. Without `step_times` too, `lost_percent` is unknown.",
    ("balance", "step_times"): "Step times by backend, where backends differ in speed.",
    (
        "ttft_p95",
        "bound",
    ): "Where the quantile is only known to be above or below the figure: the sign of that.",
}
"""Descriptions of keys that are not fields of a model class, by place and key."""
_NAMES = {"str": "string", "float": "number", "int": "integer", "bool": "boolean"}
Schema = dict[str, Any]


Field = tuple[list[str], str]
"""(JSON types of a model's field, its docstring or "")."""


def schema_of(documents: Iterable[object], place: str = "", key: str = "") -> Schema:
    """Return a schema that fits all `documents`, the values of `key` in objects of `place`.

    Values may be null (unknown), except lists and the values of keys in `NEVER_NULL`.
    """
    found = list(documents)
    types = {_type(one) for one in found}
    if "number" in types:
        types.discard("integer")
    known, text = fields_of(OWNERS.get(place, "")).get(key, ([], ""))
    text = text or TEXTS.get((place, key), "")
    if types <= {"null"}:
        types |= set(known)
    if types - {"null", "array"} and key not in NEVER_NULL:
        types.add("null")
    schema: Schema = {}
    if types - {"null"}:
        schema["type"] = min(types) if len(types) == 1 else sorted(types)
    if text:
        schema["description"] = text
    objects = [one for one in found if isinstance(one, dict)]
    if objects and key in MAPS:
        schema["additionalProperties"] = schema_of(value for one in objects for value in one.values())
    elif objects:
        names = list(dict.fromkeys(name for one in objects for name in one))
        schema["properties"] = {
            name: schema_of((one[name] for one in objects if name in one), key or place, name)
            for name in names
        }
        schema["required"] = [name for name in names if all(name in one for one in objects)]
    items = [item for one in found if isinstance(one, list) for item in one]
    if items:
        schema["items"] = schema_of(items, key)
        if schema["items"].get("type") == "number":
            schema["items"]["type"] = ["null", "number"]
    return schema


def _type(value: object) -> str:
    if value is None:
        return "null"
    if isinstance(value, dict | list):
        return "object" if isinstance(value, dict) else "array"
    return _NAMES[type(value).__name__]


@cache
def fields_of(owners: str) -> Mapping[str, Field]:
    """Return the fields of the classes `owners` of `sparktop.model` by name; of two alike the first one."""
    classes: dict[str, dict[str, Field]] = {}
    for module in MODELS if owners else ():
        path = Path(str(importlib.import_module(f"sparktop.model.{module}").__file__))
        for node in ast.parse(path.read_text(encoding="utf-8")).body:
            if isinstance(node, ast.ClassDef):
                classes.setdefault(node.name, dict(_fields(node.body)))
    return {name: field for owner in reversed(owners.split()) for name, field in classes[owner].items()}


def _fields(body: Sequence[ast.stmt]) -> Iterator[tuple[str, Field]]:
    for field, after in zip(body, [*body[1:], None], strict=True):
        if isinstance(field, ast.AnnAssign) and isinstance(field.target, ast.Name):
            words = ast.unparse(field.annotation).split(" | ")
            types = [_NAMES[word] for word in words if word in _NAMES]
            yield field.target.id, (types, " ".join(_text(after).split()))


def _text(node: ast.stmt | None) -> str:
    """Return the text of `node` if it is a docstring, else ""."""
    value = node.value if isinstance(node, ast.Expr) else None
    return value.value if isinstance(value, ast.Constant) and isinstance(value.value, str) else ""


def snapshots() -> Iterator[dict[str, Any]]:
    """Yield snapshot documents of the scenarios in `PLAYED`, after 1 s and `PLAYED_S` seconds later."""
    for number, name in enumerate(PLAYED):
        more: dict[str, Any] = {"lanes": 1 + number % 2, "speculative": number % 3 == 0}
        rehearsal = Rehearsal(scenario=SCENARIOS[name], nodes=2, **more)
        for seconds in (1, PLAYED_S):
            shown = json.loads(json.dumps(snapshot_json(rehearsal.play(seconds).snapshot())))
            yield shown
    lists = worst_json(wall_of(RehearsedFleet(30, 12).play(14).snapshot()))
    yield {**shown, "worst_lists": lists}  # no scenario has a machine that is slow


def documents() -> dict[str, Schema]:
    """Return all schemas by file name."""
    shown = list(snapshots())
    rehearsal = Rehearsal(scenario=SCENARIOS["faulty"], nodes=2)
    events = rehearsal.play(200).snapshot().events
    now = datetime(2026, 3, 4, tzinfo=UTC)
    checks = [Check("port", Status.OK, "open"), Check("port", Status.FAIL, "closed", "start it")]
    doctor = [doctor_json(checks, now, "sparktop"), doctor_json([], now)]
    lines = [json.loads(event_document(event, simulated=True)) for event in events]
    return {
        "snapshot.json": _titled("sparktop snapshot", schema_of(shown)),
        "event.json": _titled("an event for a hook or webhook", schema_of(lines)),
        "doctor.json": _titled("sparktop doctor --format json", schema_of(doctor)),
        "sweep.json": _titled(
            "a result of sparktop sweep or capacity", SweepResult.model_json_schema(mode="serialization")
        ),
        "node.json": _titled("an answer of sparktop agent", _of_struct(Reply)),
    }


def _of_struct(kind: type) -> Schema:
    """Return the schema of a Struct, with that of each Struct in it under `$defs`."""
    (schema,), definitions = msgspec.json.schema_components([kind], ref_template="#/$defs/{name}")
    for one in definitions.values():
        one["description"] = cleandoc(one["description"])
    return {**definitions.pop(schema["$ref"].removeprefix("#/$defs/")), "$defs": definitions}


def _titled(title: str, schema: Schema) -> Schema:
    return {"$schema": DIALECT, **schema, "title": title}


def main() -> int:
    """Write the schemas, or only check them with --check; return the exit code."""
    stale = []
    for name, schema in documents().items():
        path = FOLDER / name
        text = json.dumps(schema, indent=1, ensure_ascii=False) + "\n"
        if not path.exists() or path.read_text(encoding="utf-8") != text:
            stale.append(path.name)
            if "--check" not in sys.argv:
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_text(text, encoding="utf-8")
    if stale and "--check" in sys.argv:
        print(f"docs/schemas: stale: {', '.join(stale)}: run `make readme`", file=sys.stderr)
    return int(bool(stale) and "--check" in sys.argv)


if __name__ == "__main__":
    sys.exit(main())
