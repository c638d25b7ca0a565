"""What a sweep waits for before its first request: a reading of each watched server, made for this sweep."""

from __future__ import annotations

from sparktop.model.engine import EngineSample, LaneSample
from sparktop.model.failure import Failure, FailureKind
from sparktop.model.targets import BackendTarget, RouterTarget, Watch
from sparktop.store import SourceKey, Store
from sparktop.sweep.plan.plan import Plan, SweepTarget, TargetKind
from sparktop.sweep.run.server_side import ServerLog, are_all_sampled

PROXY = SweepTarget("proxy", "http://10.0.0.9:4000", TargetKind.ROUTER, known=True)
NAMES = ("spark-a", "spark-b")
WATCH = Watch(
    backends=tuple(
        BackendTarget(name, f"http://10.0.0.{number}:8000") for number, name in enumerate(NAMES, 1)
    ),
    routers=(RouterTarget("proxy", PROXY.url, backends=NAMES),),
)


async def test_a_word_from_before_the_sweep_is_none() -> None:
    """Readings from before the sweep do not count: it waits for new ones, but not for ever."""
    store, log = Store(WATCH, clock=lambda: 100.0), ServerLog(clock=lambda: 100.0)

    def tell(name: str) -> None:
        lane = LaneSample("0", running=0.0, waiting=0.0, generation_tokens=1.0)
        store.accept(SourceKey.backend(name), EngineSample(100.0, "vllm", (lane,)))

    def is_ready() -> bool:
        return are_all_sampled(Plan((PROXY,)), store.snapshot(), log)

    for name in NAMES:
        tell(name)
    store.accept(SourceKey.router("proxy"), Failure(FailureKind.REFUSED, "no", 100.0))
    store.listen(log.accept)
    ready = [is_ready()]
    for name in NAMES:
        tell(name)
        ready.append(is_ready())
    assert ready == [False, False, True]
    assert not await log.wait_for(lambda: False, 0.0)
