"""The commands to the load generator for the runs of a level."""

from __future__ import annotations

from sparktop.model.load import LoadMode
from sparktop.sweep.generator.wire.messages import RunLoad
from sparktop.sweep.plan.order import Load, Stint
from sparktop.sweep.plan.plan import Plan
from sparktop.sweep.run.context.depth import context_of
from sparktop.sweep.run.conversations.level import conversations_of
from sparktop.sweep.run.level.record import LevelRecord
from sparktop.sweep.run.open_loop.arrivals import open_loop_of


def run_command(
    plan: Plan, sweep_id: str, stint: Stint, record: LevelRecord, run: int, *, fit: int | None, warm_up: bool
) -> RunLoad:
    """Return the command for the run number `run` of a level, or for its warm-up.

    `fit` is the most connections that the limit of open files allows; None if unknown.
    """
    load = stint.load
    number = [one.name for one in plan.targets].index(stint.target.name)
    which = "w" if warm_up else str(run)
    run_id = f"{sweep_id}-{number}-{load.word}-{which}"
    # The same seed gives the same prompts; made ones without a cache salt are only of the same kind.
    fresh = "" if record.prepared.takes_salt or plan.prompts is not None else f"/{run_id}"
    steady = plan.mode is LoadMode.STEADY and not warm_up
    mode = LoadMode.BURST if warm_up else plan.mode
    return RunLoad(
        id=run_id,
        target=record.prepared.asks,
        concurrency=_most_at_once(plan, load, fit, warm_up=warm_up),
        prompt_tokens=load.prompt_tokens,
        output_tokens=plan.tg,
        mode=mode,
        run=run,
        requests=plan.requests if steady else None,
        duration_s=plan.duration_s if steady else None,
        seed=plan.seed,
        prompt_salt=f"{plan.seed}/{load.word}-{which}{fresh}",
        cache_salt=run_id,
        timeouts=plan.timeouts,
        open_loop=open_loop_of(plan, load, run) if mode is LoadMode.OPEN else None,
        trace=plan.trace.choice if plan.trace is not None and mode is LoadMode.OPEN else None,
        conversations=conversations_of(plan, load, record.prepared.max_model_len, run),
        context=None if warm_up or not load.depth else context_of(run_id, load.depth),
        warm_up=warm_up,
    )


def _most_at_once(plan: Plan, load: Load, fit: int | None, *, warm_up: bool) -> int:
    """Return the most requests in flight in a run: in an open loop what the limit of open files allows.

    The warm-up of an open loop is a single request; it has arrivals of its own before the measured ones.
    """
    if plan.mode is not LoadMode.OPEN:
        return load.concurrency
    return 1 if warm_up else min(load.concurrency, fit or load.concurrency)
