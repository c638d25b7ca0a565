"""Reader of what llama.cpp's server reports: metrics (`--metrics`), slots, sleep and models.

The metrics are defined in a table in `server.cpp` (later `server-context.cpp`). Official versions have no
labels; some builds add the label `model` to each sample.

* Generated tokens are counted when a request finishes, prompt tokens when its prefill ends. Both are
  printed with six digits ("1.23457e+06"), so above a million they rise in steps of 10 or more.
  `prompt_tokens_total` are those that were computed; builds from 2026 count cached ones beside them.
* Time per token is reported as a sum and a count only, so it becomes a histogram whose only bound is
  infinite: it has a mean but no quantiles. A request's first token is counted but its time is not (it is part
  of the prefill), so the mean is a little low for very short answers.
* Whether prompts are cached is not reported: they are, unless a request or `--no-cache-prompt` says
  otherwise. Requests are not counted either.
* `prompt_seconds_total` is the time that prompts took, of each request.
* `n_decode_total` counts each call of `llama_decode`, also for every batch of a prompt: it shows that the
  engine goes on, but it does not count tokens.
* `kv_cache_usage_ratio` was removed in 2025. `kv_cache_tokens` is the used part, not the capacity.
* `predicted_tokens_seconds` and `prompt_tokens_seconds` are not read: they are means over the time since
  any client last requested the page.

With `--sleep-idle-seconds` the server unloads its model when idle. From its introduction (December 2025) to
August 2026, GET `/metrics` and `/slots` count as use: they wake it. `/props`, which tells `is_sleeping`, and
`/models` never do. So `/props` is requested before each of them (`is_server`, `is_asleep`).

A server in router mode (no model of its own) starts a child for each model. Its `/models` has their status:
unloaded, loading, loaded, sleeping, downloading. A page is that of one model (`/metrics?model=…`);
`join_pages` makes one page of those of all loaded models, each sample with the label `model`, and each model
is a lane.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Iterable, Mapping
from urllib.parse import quote

from sparktop.engines.document import MAX_MODELS, Answers, count, entries, field, first_model, parse, words
from sparktop.engines.exposition import Page, PageError, Reader
from sparktop.engines.lanes import (
    Fields,
    LanePage,
    label,
    lane_order,
    names_of,
    requests,
    share,
    total,
    total_or_none,
)
from sparktop.model.engine import EngineIdentity, EngineSample, Histogram, LaneSample, PrefixCache
from sparktop.model.failure import FailureKind
from sparktop.model.text import clean

PROPS, MODELS, SLOTS = "/props", "/models", "/slots"
FACTS = (PROPS, "/v1/models")
"""Routes that report the server's identity (version, model, limits)."""
NO_METRICS = "only its slots are known: it has metrics only with --metrics"
ASLEEP = "no request came for a while: the next one loads its model again"
NO_MODEL = "no model is loaded: the next request loads one"
LOADED = "loaded"
"""The status of a model that can be asked for its metrics without waking it."""
_LOADING = "loading"
_AWAKE = frozenset({LOADED, _LOADING})

_OURS = "llamacpp:"
_SECONDS, _PROMPT_SECONDS = f"{_OURS}tokens_predicted_seconds_total", f"{_OURS}prompt_seconds_total"
_CACHED, _STATUS = f"{_OURS}prompt_tokens_cached_total", f"{_OURS}router_model"
FIELDS: Fields = (
    ("running", (f"{_OURS}requests_processing",), requests),
    ("waiting", (f"{_OURS}requests_deferred",), requests),
    ("kv_cache_percent", (f"{_OURS}kv_cache_usage_ratio",), share),
    ("prompt_tokens", (f"{_OURS}prompt_tokens_total",), total),
    ("prompt_tokens_cached", (_CACHED,), total),
    ("generation_tokens", (f"{_OURS}tokens_predicted_total",), total),
    ("spec_drafts", (f"{_OURS}spec_decode_num_drafts_total",), total_or_none),
    ("spec_draft_tokens", (f"{_OURS}spec_decode_num_draft_tokens_total",), total_or_none),
    ("spec_accepted_tokens", (f"{_OURS}spec_decode_num_accepted_tokens_total",), total_or_none),
    ("engine_work", (f"{_OURS}n_decode_total",), total),
    ("prefill_seconds", (_PROMPT_SECONDS,), total),
    ("decode_seconds", (_SECONDS,), total),
)
NAMES = names_of(FIELDS, (), _STATUS)
"""Every metric name that is read, spelled as on the page."""
READER = Reader(NAMES, "llamacpp:")
# "llamacpp:requests_processing 2": name and value, whatever labels stand between.
_LINE = re.compile(rb"(?m)^(llamacpp:\w+)(?:\{[^\n]*\})?[ \t]+(\S+)")


def sample_of(families: Page, at: float) -> EngineSample:
    """Parse a metrics page with at least one `llamacpp:` sample into a sample dated `at` (monotonic seconds).

    Raises:
        PageError: the page holds more samples or lanes than any real server has.
    """
    status_family = families.get(_STATUS, {})
    statuses = {label(labels, "model") or "": label(labels, "status") or "" for labels in status_family}
    page = LanePage(families, lane_label="model" if statuses else None, model_label="model")
    lanes = page.read(FIELDS, ())
    if not statuses:
        lanes.setdefault("0", {})
    for fields in lanes.values():
        _set_derived_fields(fields)
    samples = [
        LaneSample(lane, per_finished_request=True, **lanes[lane]) for lane in sorted(lanes, key=lane_order)
    ]
    if not samples:  # a router without a model that was asked
        samples = [_UNKNOWN_LANE if _AWAKE & {*statuses.values()} else _ASLEEP_LANE]
    loaded = [clean(model) for model, status in statuses.items() if status == LOADED]
    return EngineSample(
        at=at,
        engine="llamacpp",
        lanes=tuple(samples),
        models=tuple(sorted(loaded)) if statuses else page.model_names(),
        note=_router_note(statuses) if statuses else None,
        prefix_cache=PrefixCache(on=True) if _CACHED in families else None,
    )


def _set_derived_fields(fields: dict[str, object]) -> None:
    """Set the received prompt tokens, the lookups of the cache and the mean time of a token."""
    computed, cached = fields.get("prompt_tokens"), fields.get("prompt_tokens_cached")
    fields["prompt_tokens_computed"] = computed
    if isinstance(computed, float) and isinstance(cached, float):
        fields["prompt_tokens"] = fields["prefix_cache_queries"] = computed + cached
        fields["prefix_cache_hits"] = cached
    seconds, tokens = fields.get("decode_seconds"), fields.get("generation_tokens")
    if isinstance(seconds, float) and isinstance(tokens, float):
        fields["itl"] = Histogram((float("inf"),), (tokens,), seconds)


_ASLEEP_LANE = LaneSample("0", running=0.0, waiting=0.0, asleep=True, per_finished_request=True)
_UNKNOWN_LANE = LaneSample("0", per_finished_request=True)


def _router_note(statuses: Mapping[str, str]) -> str:
    """Return how many models of a router are in which state, such as "models: 1 loaded, 2 unloaded"."""
    order = (LOADED, _LOADING, "sleeping", "unloaded")
    numbers = Counter(statuses.values())
    known = [state for state in order if state in numbers]
    others = sorted(numbers.keys() - set(order))
    words = ", ".join(f"{numbers[state]} {clean(state, 20)}" for state in (*known, *others))
    return f"models: {words}" if _AWAKE & numbers.keys() else f"models: {words}; {NO_MODEL}"


def is_server(props: object) -> bool:
    """Return whether a parsed answer of `/props` is one of llama.cpp's server."""
    return isinstance(props, dict) and "default_generation_settings" in props


def is_asleep(props: object) -> bool:
    """Return whether the server sleeps, by its parsed `/props`."""
    return field(props, "is_sleeping") is True


def is_router(props: object) -> bool:
    """Return whether the server is in router mode, by its parsed `/props`."""
    return field(props, "role") == "router"


def models_of(listed: object) -> dict[str, str]:
    """Return the status of each model by the parsed `/models` of a server in router mode."""
    models = entries(listed, "data") or []
    states = {
        words(field(model, "id")): words(field(model, "status", "value"), 20) for model in models[:MAX_MODELS]
    }
    return {model: state for model, state in states.items() if model and state}


def metrics_of(model: str) -> str:
    """Return the route of a model's metrics, which does not load it where it is not loaded."""
    return f"/metrics?model={quote(model, safe='')}&autoload=false"


def join_pages(statuses: Mapping[str, str], pages: Iterable[tuple[str, bytes]]) -> bytes:
    """Return one metrics page of the pages of a router's models, each sample with only its model as label.

    `statuses` are those of all models.
    """

    def quote(text: str) -> bytes:
        return json.dumps(text, ensure_ascii=False).encode("utf-8", "replace")

    lines = [
        b"%b{model=%b,status=%b} 1" % (_STATUS.encode(), quote(model), quote(state))
        for model, state in statuses.items()
    ]
    for model, page in pages:
        lines += [b"%b{model=%b} %b" % (line[1], quote(model), line[2]) for line in _LINE.finditer(page)]
    return b"\n".join([*lines, b""])


def read_json(body: bytes, at: float) -> EngineSample:
    """Parse `/props` of a server that sleeps, or `/slots` of one without metrics, dated `at` (monotonic s).

    Raises:
        PageError: the body is neither.
    """
    document = parse(body)
    if isinstance(document, list) and all(
        isinstance(slot, dict) and "is_processing" in slot for slot in document
    ):
        running_count = sum(slot["is_processing"] is True for slot in document)
        lane, note, slots = LaneSample("0", running=float(running_count)), NO_METRICS, len(document) or None
    elif is_asleep(document):
        lane, note, slots = _ASLEEP_LANE, ASLEEP, count(field(document, "total_slots"))
    else:
        raise PageError(FailureKind.MALFORMED, "neither metrics nor slots of llama.cpp")
    model = words(field(document, "model_alias"))
    return EngineSample(
        at=at,
        engine="llamacpp",
        lanes=(lane,),
        models=(model,) if model else (),
        note=note,
        slots=slots,
    )


def identify(answers: Answers) -> EngineIdentity:
    """Return the identity from `/props` and `/v1/models`; its context length is that of one server slot."""
    props = answers.get(PROPS)
    version = words(field(props, "build_info"), 60)
    if is_router(props):
        return EngineIdentity(version)
    model, _ = first_model(answers.get("/v1/models"))
    return EngineIdentity(
        version=version,
        model=model or words(field(props, "model_alias")) or words(field(props, "model_path")),
        max_model_len=count(field(props, "default_generation_settings", "n_ctx")),
        slots=count(field(props, "total_slots")),
    )
