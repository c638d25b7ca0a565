"""Metrics pages through a caching proxy stand and jump: this is said, and nothing else is made of it."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass, field

import pytest
from msgspec.structs import replace

from sparktop.engines.registry import read_page
from sparktop.model.snapshot import BackendState, BackendView
from sparktop.model.targets import BackendTarget, Watch
from sparktop.panels.parts.text import row_text
from sparktop.panels.server.detail import backend_sections
from sparktop.panels.server.panel import footnote
from sparktop.report.json_snapshot import to_json
from sparktop.report.text_snapshot import render
from sparktop.store import SourceKey
from tests.known import known
from tests.store.conftest import World

TPS = 100.0
PageOf = Callable[[float, int, float | None], bytes]


def vllm_page(tokens: float, running: int, cpu_s: float | None) -> bytes:
    """Return a page of vLLM; one of several API servers has no CPU time."""
    labels = '{engine="0",model_name="m"}'
    cpu = "" if cpu_s is None else f"process_cpu_seconds_total {cpu_s:.2f}\n"
    return f"""vllm:num_requests_running{labels} {running}
vllm:num_requests_waiting{labels} 0
vllm:kv_cache_usage_perc{labels} {0.1 if running else 0}
vllm:generation_tokens_total{labels} {tokens:.0f}
vllm:prompt_tokens_total{labels} 5000
process_start_time_seconds 1.7e9
{cpu}""".encode()


def sglang_page(tokens: float, running: int, cpu_s: float | None) -> bytes:
    """Return a page of SGLang, whose counters change once in 40 steps; it has no CPU time."""
    del cpu_s
    labels = '{model_name="m",tp_rank="0"}'
    seen = tokens // 400 * 400
    return f"""sglang:num_running_reqs{labels} {running}
sglang:num_queue_reqs{labels} 0
sglang:generation_tokens_total{labels} {seen:.0f}
""".encode()


@dataclass
class Cached(World):
    """A server that makes 100 tokens a second, its page, and a proxy that keeps it for `ttl_s` seconds."""

    ttl_s: float = 0.0
    page_of: PageOf = vllm_page
    running: int = 32
    says_age: bool = False
    interval_s: float = 1.0
    cpu_per_s: float = 0.2
    step_s: float = 0.0
    """Length of a step that makes a token for each request; 0: steps are shorter than a poll."""
    hung_at: float = float("inf")
    kept: tuple[float, bytes] = (-1.0, b"")
    seen: set[BackendState] = field(default_factory=set)

    def __post_init__(self) -> None:
        """Watch the server."""
        self.watch = Watch(backends=(BackendTarget("a", "http://a:8000"),), interval_s=self.interval_s)
        super().__post_init__()

    def origin(self) -> bytes:
        """Return the page of the server itself; reading it costs CPU time."""
        worked_s = min(self.at, self.hung_at)
        tokens = TPS * (worked_s - 900)
        if self.step_s:  # everything is counted at the end of a step
            steps = (worked_s - 900) // self.step_s
            return self.page_of(self.running * steps, self.running, self.cpu_per_s * self.step_s * steps)
        return self.page_of(tokens, self.running, self.cpu_per_s * (worked_s - 900) + 0.005 * (self.at - 900))

    def poll(self) -> None:
        """Read the page, out of the cache while it is fresh."""
        if self.kept[0] < 0 or self.at - self.kept[0] >= self.ttl_s:
            self.kept = self.at, self.origin()
        sample = read_page(self.kept[1], at=self.at, answer_ms=3.0)
        if self.says_age:
            sample = replace(sample, cache_age_s=float(int(self.at - self.kept[0])))
        self.store.accept(SourceKey.backend("a"), sample)

    def run(self, seconds: float) -> BackendView:
        """Poll for so many seconds; return the newest view."""
        for _ in range(round(seconds / self.interval_s)):
            self.at += self.interval_s
            self.poll()
            self.store.judge()
            self.seen.add(self.view("a").state)
        return self.view("a")


@pytest.mark.parametrize(("ttl_s", "says_age"), [(4.5, False), (15.0, True)])
def test_a_cached_page_is_marked_and_its_rates_are_exact(ttl_s: float, *, says_age: bool) -> None:
    """Its period is named, tokens are counted from change to change, and the server just works."""
    world = Cached(ttl_s=ttl_s, says_age=says_age)
    world.run(4 * ttl_s + 2)
    for _ in range(round(6 * ttl_s)):
        view = world.run(1.0)
        assert view.page_note is not None
        for rate in (view.generation_tps, view.generation_tps_1s):
            assert rate is None or rate == pytest.approx(TPS, rel=0.01)
        assert view.state is not BackendState.BORED
    assert view.generation_tps is not None
    assert view.page_every_s == pytest.approx(max(ttl_s, round(ttl_s + 0.25)), abs=0.4)
    assert view.progress is None
    assert not {BackendState.BORED, BackendState.STUCK, BackendState.SUSPECT} & world.seen


def test_the_mark_is_on_every_form() -> None:
    """Panel, detail, text and JSON say how often the page changes."""
    view = (world := Cached(ttl_s=5.0)).run(60.0)
    words = "the page changes every 5 s"
    assert words in "".join(map(row_text, footnote(view, on_board=True)))
    rows = [row for section in backend_sections(view, {}, 60) for row in section.rows]
    assert any(words in row_text(row) for row in rows)
    snapshot = world.store.snapshot()
    assert words in render(snapshot, 120)
    (shown,) = json.loads(json.dumps(to_json(snapshot)))["backends"]
    assert (shown["page_note"], shown["page_every_s"]) == (words, pytest.approx(5.0))


@pytest.mark.parametrize(
    "world",
    [Cached(), Cached(page_of=sglang_page), Cached(interval_s=5.0), Cached(step_s=3.2, running=8)],
    ids=["busy", "sglang", "slow polls", "steps of prefill"],
)
def test_a_live_page_is_not_marked(world: Cached) -> None:
    """A busy, an idle, and a server whose page changes once in many steps."""
    for _ in range(12):
        assert world.run(5.0).page_note is None


@pytest.mark.parametrize(("ttl_s", "says_age"), [(0.0, False), (15.0, True)])
def test_a_hang_is_seen_nevertheless(ttl_s: float, *, says_age: bool) -> None:
    """The time without progress of an engine that hangs is measured through a cache as well."""
    world = Cached(ttl_s=ttl_s, says_age=says_age)
    world.run(100.0)
    world.hung_at = world.at
    view = world.run(121.0 + 2.5 * ttl_s)
    assert view.state is BackendState.STILL
    assert 121.0 <= known(view.progress).seconds <= 122.0 + 2.5 * ttl_s
    assert (view.page_note is not None) == (ttl_s > 0)
