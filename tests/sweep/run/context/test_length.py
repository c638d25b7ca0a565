"""Prompt lengths beyond a server's context: skipped with the server's words; the rest is measured."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import AsyncIterator
from dataclasses import dataclass, field

import pytest

from sparktop.commands.sweep.command import verdict
from sparktop.commands.sweep.run import level_line
from sparktop.model.engine import EngineIdentity
from sparktop.model.failure import Failure, FailureKind
from sparktop.model.load import concurrency_point
from sparktop.model.snapshot import BackendView
from sparktop.model.sweep import LevelKey, LevelState
from sparktop.model.targets import BackendTarget, Watch
from sparktop.panels.sweep.table import table_rows
from sparktop.store import SourceKey, Store
from sparktop.sweep.formats import exports, report
from sparktop.sweep.plan.plan import Order, Plan, SweepTarget
from sparktop.sweep.result.results import SweepResult
from sparktop.sweep.run.preparation import beyond_context, reported_context
from sparktop.sweep.run.runner import SweepRunner
from sparktop.sweep.view.levels import stored_evidence
from sparktop.sweep.view.live import LiveView
from sparktop.sweep.view.result import result_view
from tests.sweep.stream_server import Asked, StreamServer
from tests.sweep.watched_servers import PATIENT

CONTEXT = 200
LONG_KEY = LevelKey("solo", concurrency_point(2), 300)


@dataclass
class Short:
    """A server of a short context, and what a sweep of it showed."""

    server: StreamServer
    words: str = f"This model's maximum context length is {CONTEXT} tokens"
    view: LiveView | None = None
    result: SweepResult | None = None
    store: Store = field(init=False)

    def __post_init__(self) -> None:
        self.server.behave = self.answer
        self.store = Store(Watch(backends=(BackendTarget("solo", self.server.url),)))
        self.store.accept(SourceKey.backend("solo"), Failure(FailureKind.TIMEOUT, "no metrics", 1.0))

    async def answer(self, asked: Asked) -> None:
        """Refuse what is longer than the context, prompt and answer together."""
        if asked.prompt_tokens + asked.tokens > CONTEXT:
            asked.refuse(400, self.words)
        else:
            await asked.stream()

    def plan(self, **changes: object) -> Plan:
        """Return a plan of a length that fits and one that does not."""
        kept: dict[str, object] = {"prompt_lengths": (40, 300), "pp": 40, "tg": 9, "runs": 1, **changes}
        target = SweepTarget("solo", self.server.url, known=True)
        return Plan((target,), (2,), timeouts=PATIENT, **kept)  # type: ignore[arg-type]  # fields of Plan

    async def sweep(self, **changes: object) -> SweepResult:
        """Make the sweep."""
        plan = self.plan(**changes)
        self.view = LiveView(plan)
        runner = SweepRunner(plan, self.store)
        runner.listen(self.view.take)
        self.result = await runner.run()
        return self.result


@pytest.fixture
async def short() -> AsyncIterator[Short]:
    server = StreamServer()
    await server.start()
    yield Short(server)
    await server.stop()


def shown(result: SweepResult) -> list[tuple[int | None, bool, str | None]]:
    """Return for each level its length, whether it has figures, and the reason why not."""
    return [(one.pp, one.decode_tps is not None, one.error) for one in result.targets[0].levels]


@pytest.mark.process
async def test_a_length_beyond_the_context_is_skipped_and_the_rest_measured(short: Short) -> None:
    """The refused level has no figures and the server's words; the sweep is done, its exit code is 1."""
    result = await short.sweep(order=Order.ABBA)
    (fits, refused) = shown(result)
    assert fits == (40, True, None)
    assert refused[:2] == (300, False)
    assert short.words in (refused[2] or "")
    assert (result.status, result.targets[0].error) == ("done", None)
    assert verdict(result, short.plan()) == 1
    sent = [one["messages"][0]["content"] for one in short.server.bodies if one["max_tokens"] == 9]
    assert max(map(short.server.count, sent)) < CONTEXT


@pytest.mark.process
async def test_a_reported_context_needs_no_request(short: Short) -> None:
    """What the server's own page says is enough: nothing too long is sent."""
    short.store.identify(SourceKey.backend("solo"), EngineIdentity("1", "tiny", CONTEXT))
    (_, refused) = shown(await short.sweep())
    assert refused[2] == f"solo takes at most {CONTEXT:,} tokens a request; pp 300 and tg 9 need 309"
    assert max(short.server.count(one["messages"][0]["content"]) for one in short.server.bodies) < CONTEXT


@pytest.mark.process
@pytest.mark.parametrize(
    ("words", "least"), [(f"the context length is only {CONTEXT} tokens", CONTEXT - 9), ("too long", 170)]
)
async def test_the_largest_length_that_fits_is_found_and_measured(
    short: Short, words: str, least: int
) -> None:
    """It is exact if the refusal names the context, else found by halves; the exit code is 0."""
    short.words = words
    result = await short.sweep(longest=True)
    found = shown(result)
    assert [(one[0], one[1]) for one in found[:2]] == [(40, True), (300, False)]
    longest, has_figures, _ = found[2]
    assert has_figures
    assert least <= (longest or 0) <= CONTEXT - 9
    assert f"{longest} tokens fit" in (found[1][2] or "")
    assert verdict(result, short.plan(longest=True)) == 0


@pytest.mark.process
async def test_every_form_has_the_row(short: Short) -> None:
    """Command line, screen, Markdown, CSV, JSON and llama-benchy's format have the words and no figure."""
    result = await short.sweep()
    refused = result.targets[0].levels[1]
    assert refused.error is not None
    assert level_line("solo", refused) == f"solo: c = 2, pp 300 · ❌ {refused.error}"
    text = report.sweep_markdown(result)
    lines = text.splitlines()
    assert any(
        line.startswith("| ❌ c2, 300 in") and set(line.split("|")[-2].strip()) == {"–"} for line in lines
    )
    assert f"❌ 300 in: `{refused.error}`" in text.replace("\n", " ")
    row = list(csv.DictReader(io.StringIO(exports.to_csv(result))))[1]
    assert (row["pp"], row["decode_tps_mean"], row["ttft_ms_mean"], row["ok"]) == ("300", "", "", "0")
    assert short.words in row["error"]
    (_, benchmark) = json.loads(exports.to_llama_benchy(result))["benchmarks"]
    assert (benchmark["prompt_size"], benchmark["tg_throughput"]) == (300, None)
    assert short.words in benchmark["error"]
    again = SweepResult.model_validate(result.to_json())
    assert again.targets[0].levels[1] == refused
    assert short.view is not None
    for view in (short.view.view(), result_view(again)):
        assert [level.state for level in view.levels] == [LevelState.DONE, LevelState.REFUSED]
        assert view.words == "done: 1 level, 1 refused by the server"
        text = "\n".join("".join(part for part, _ in row) for row in table_rows(view, 80, 8))
        assert "✘ c2/300" in text
        assert "refused: " in text
    evidence = stored_evidence(again, LONG_KEY)
    assert evidence is not None
    assert [mark.message for mark in evidence.row.marks] == [refused.error]
    assert (evidence.facts, evidence.why_no_timeline) == ((), "the server refused its requests")
    assert "the level has a warning" in " ".join(result_view(again).verdict)


def test_a_context_is_read_from_pages_and_refusals() -> None:
    """Servers' own figure first; of refusals the number that follows their word for it."""
    view = BackendView("a", "http://a", "g", max_model_len=4096)
    assert reported_context([view], ["maximum context length is 1 tokens"]) == 4096
    for words in (
        "This model's maximum context length is 4096 tokens. However, you requested 5000",
        "the model's context length is only 4096 tokens",
        "exceeds the available context size (4096 tokens)",
    ):
        assert reported_context([], ["no", words]) == 4096
    assert reported_context([], ["too long"]) is None
    assert beyond_context(4000, 97, [view]) is not None
    assert beyond_context(4000, 96, [view]) is None
