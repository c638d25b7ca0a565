"""Sweeps of two real vLLM servers, directly and through a real LiteLLM: our counts equal the servers'."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from sparktop.model.targets import BackendTarget, RouterTarget, Watch
from sparktop.store import Store
from sparktop.sweep.plan.plan import Plan, SweepTarget, TargetKind
from sparktop.sweep.result.results import SweepResult, TargetResult
from sparktop.sweep.run.progress import PhaseChanged, ResultChanged, SweepEvent, SweepPhase
from sparktop.sweep.run.runner import SweepRunner
from sparktop.watch.monitor import Monitor
from tests.known import known
from tests.live.processes import STACK
from tests.live.proxy_process import LITELLM, litellm

pytestmark = [pytest.mark.live, pytest.mark.timeout(540)]

NAMES = ("spark-a", "spark-b")


class Counted:
    """The servers' counters of finished requests before the first run and after the last."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self.before: dict[str, float] = {}
        self.after: dict[str, float] = {}

    def hear(self, event: SweepEvent) -> None:
        """Read the counters while the servers are idle."""
        if isinstance(event, PhaseChanged) and event.phase is SweepPhase.RUNNING and not self.before:
            self.before = self._read()
        elif isinstance(event, ResultChanged) and event.level is not None:
            self.after = self._read()

    def _read(self) -> dict[str, float]:
        return {view.name: sum(view.finished.values()) for view in self._store.snapshot().backends}


async def sweep(plan: Plan, watch: Watch) -> tuple[SweepResult, Counted]:
    store = Store(watch)
    counted = Counted(store)
    monitor = Monitor(watch, store)
    await monitor.start()
    runner = SweepRunner(plan, store)
    runner.listen(counted.hear)
    try:
        return await runner.run(), counted
    finally:
        await monitor.stop()


def watch_of(servers: list[str], router: RouterTarget | None = None) -> Watch:
    backends = tuple(
        BackendTarget(name, url, engine="vllm", slots=8) for name, url in zip(NAMES, servers, strict=True)
    )
    return Watch(backends=backends, routers=(router,) if router else (), interval_s=0.5)


def check_counts(target: TargetResult) -> None:
    """Compare the tokens of every level with the servers' counters, and print the measurements."""
    for level in target.levels:
        decode = level.decode_tps.mean if level.decode_tps else None
        ttft = level.ttft_ms.p50 if level.ttft_ms else None
        sys.stdout.write(
            f"\n{target.name} c={level.concurrency}: {level.tokens} {level.server} decode {decode} "
            f"ttft {ttft} served {level.served_by} {[one.code for one in level.validity]}\n"
        )
        assert level.requests.failed == 0, level.requests.errors
        assert set(known(level.each).prompt_tokens) == {level.pp}
        assert known(level.server).generation_tokens == level.tokens.generated
        assert known(level.server).prompt_tokens == level.tokens.prompt
        codes = {one.code for one in level.validity}
        assert not codes & {"count_mismatch", "foreign_traffic", "restarted", "cache_hits", "short_output"}


async def test_our_counts_are_two_real_servers_own(servers: list[str]) -> None:
    """Tokens and prompts of each level equal the growth of the servers' counters exactly."""
    targets = tuple(SweepTarget(name, url, known=True) for name, url in zip(NAMES, servers, strict=True))
    plan = Plan(targets, (1, 4, 12), pp=96, tg=24, runs=2)
    result, _ = await sweep(plan, watch_of(servers))
    assert result.status == "done", result.stop_reason
    for target in result.targets:
        assert target.error is None
        assert [level.requests.ok for level in target.levels] == [2, 8, 24]
        check_counts(target)
        (queued,) = [level for level in target.levels if level.concurrency == 12]
        assert "queue_limited" in {one.code for one in queued.validity}


@pytest.mark.parametrize("strategy", ["least-busy", "simple-shuffle"])
async def test_who_served_is_what_the_servers_count(
    servers: list[str], strategy: str, tmp_path: Path
) -> None:
    """Through a real LiteLLM, the servers named in its answers are those that counted the requests.

    LiteLLM cannot count the tokens of a text: that prompts have the requested length is checked by the usage
    of complete requests.
    """
    if not LITELLM.exists():
        pytest.skip(f"no LiteLLM in {STACK}: run scripts/real_stack.sh install")
    with litellm(servers, strategy, tmp_path) as url:
        deployments = {"id-a": "spark-a", "id-b": "spark-b"}
        router = RouterTarget("proxy", url, strategy, NAMES, deployments)
        target = SweepTarget(
            "proxy",
            url,
            TargetKind.ROUTER,
            backends=dict(zip(NAMES, servers, strict=True)),
            deployments=deployments,
            known=True,
        )
        plan = Plan((target,), (8,), pp=96, tg=24, runs=3, warmup=False)
        result, counted = await sweep(plan, watch_of(servers, router))
    assert result.status == "done", result.stop_reason
    (proxy,) = result.targets
    check_counts(proxy)
    (level,) = proxy.levels
    grown = {name: round(counted.after[name] - counted.before[name]) for name in NAMES}
    assert {name: level.served_by.get(name, 0) for name in NAMES} == grown
    assert sum(grown.values()) == 24
    sys.stdout.write(f"{known(level.balance)['runs_test']}\n")
