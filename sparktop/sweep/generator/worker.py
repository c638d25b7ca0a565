"""The load generator process: commands come from standard input, messages go to standard output.

Run as `python -m sparktop.sweep.generator.worker`. It is a separate process because a screen that takes 80 ms
to draw in the same event loop would add 80 ms to measured latencies. It exits when its standard input is
closed or its parent process exits.

It also measures its own health: lag of its event loop, and its CPU use.
"""

from __future__ import annotations

import asyncio
import ctypes
import gc
import signal
import statistics
import sys
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from time import perf_counter, process_time

from msgspec.structs import replace

from sparktop.model.load import LoadMode
from sparktop.model.statistics import quantile
from sparktop.sweep.generator.calibration import Calibration
from sparktop.sweep.generator.client import (
    BesideClient,
    LoadClient,
    OpenLoopClient,
    ReplayClient,
)
from sparktop.sweep.generator.connection import (
    ConnectionPool,
    limit_message,
    raise_limit,
    resolve,
)
from sparktop.sweep.generator.conversations import ConversationClient
from sparktop.sweep.generator.exchange import Recipe, RunLog
from sparktop.sweep.generator.wire import (
    ALIVE,
    ALIVE_S,
    BATCHES_PER_S,
    COMMANDS,
    Busy,
    Calibrate,
    Calibrated,
    Cancel,
    ClientHealth,
    Ready,
    Refused,
    RunFinished,
    RunLoad,
    WorkerMessage,
    WorkerTarget,
    encode_line,
)
from sparktop.sweep.plan.texts import text_at
from sparktop.sweep.terms.request_errors import CANCELLED, DESCRIPTORS, RequestFailedError, request_failure


def new_client(load: RunLoad, pool: ConnectionPool, recipe: Recipe, log: RunLog) -> LoadClient:
    """Return the client that executes `load` over `pool`, with requests made as in `recipe`."""
    if load.text is not None:
        recipe = replace(recipe, prompt=partial(text_at, load.text, load.prompt_tokens))
    match load.mode:
        case LoadMode.AGENTS:
            return ConversationClient(load, pool, recipe, log)
        case LoadMode.OPEN:
            return (OpenLoopClient if load.trace is None else ReplayClient)(load, pool, recipe, log)
        case _:
            return (BesideClient if load.beside_tokens else LoadClient)(load, pool, recipe, log)


_PR_SET_PDEATHSIG = 1
"""Option of prctl(2): the signal that this process gets when its parent dies."""
_LONGEST_COMMAND = 1 << 20
"""Most bytes of a command."""
_MOST_UNREAD_BYTES = 4 << 20
"""Maximum bytes of output that the parent has not read yet; above it no batches are sent until it reads
on."""
_GC_THRESHOLDS = (50_000, 50, 100)
"""Thresholds that make garbage collections rare: each takes milliseconds, and nearly all objects of this
process are freed by reference counting."""
_RecipeKey = tuple[WorkerTarget, int, int]
"""(target, prompt length in tokens, seed) that a recipe holds for."""


class Worker:
    """Executes the parent's commands one after the other, and writes the resulting messages."""

    def __init__(self, out: asyncio.WriteTransport, most_connections: int | None) -> None:
        """Write messages to `out`; refuse runs with more than `most_connections` (None: no limit)."""
        self._out = out
        self._most_connections = most_connections
        self._recipes: dict[_RecipeKey, Recipe] = {}
        self._client: LoadClient | None = None
        self._calibrating: asyncio.Task[tuple[Calibrated, Recipe | None]] | None = None
        self._waiting: asyncio.Queue[Calibrate | RunLoad] = asyncio.Queue()
        self._called_off = False
        """True if the command in progress was cancelled."""

    def say(self, message: WorkerMessage) -> None:
        """Write a message to the parent."""
        self._out.write(encode_line(message))

    def say_alive(self) -> None:
        """Write to the parent once a second that this process runs, unless the parent does not read."""
        if self._is_read():
            self._out.write(ALIVE)
        asyncio.get_running_loop().call_later(ALIVE_S, self.say_alive)

    def take(self, command: Calibrate | RunLoad | Cancel) -> None:
        """Queue a command for `work`.

        The command `Cancel` is not queued: it cancels the present command and all queued ones at once.
        """
        if not isinstance(command, Cancel):
            self._waiting.put_nowait(command)
            return
        self._called_off = True
        while not self._waiting.empty():
            self._refuse_cancelled(self._waiting.get_nowait().id)
        if self._client is not None:
            self._client.cancel()
        if self._calibrating is not None:
            self._calibrating.cancel()

    async def work(self) -> None:
        """Execute the queued commands in order; never return."""
        while True:
            command = await self._waiting.get()
            self._called_off = False
            await self._carry_out(command)

    async def _carry_out(self, command: Calibrate | RunLoad) -> None:
        """Execute a command and send its messages; send `Refused` if it cannot be executed."""
        connections = command.concurrency if isinstance(command, RunLoad) else 1
        most_open = self._most_connections
        if most_open is not None and connections > most_open:
            failure = request_failure(DESCRIPTORS, limit_message(connections, most_open), perf_counter())
            self.say(Refused(command.id, failure))
            return
        try:
            endpoint = await resolve(command.target, perf_counter())
        except RequestFailedError as error:
            self.say(Refused(command.id, error.failure))
            return
        pool = ConnectionPool(endpoint, command.timeouts.connect_s)
        try:
            if isinstance(command, Calibrate):
                await self._calibrate(command, pool)
            elif (recipe := self._recipes.get(_recipe_key(command))) is not None:
                await self._run_load(command, pool, recipe)
            else:
                raise ValueError(f"not calibrated: {command.prompt_tokens} tokens at {endpoint.where}")
        finally:
            pool.close()

    async def _calibrate(self, command: Calibrate, pool: ConnectionPool) -> None:
        """Calibrate, send the result, and store the recipe (how to make requests) for later runs."""
        calibration = Calibration(command, pool, lambda words: self.say(Busy(command.id, words)))
        calibrating = self._calibrating = asyncio.create_task(calibration.find())
        if self._called_off:
            calibrating.cancel()
        await asyncio.wait([calibrating])
        self._calibrating = None
        if calibrating.cancelled():
            self._refuse_cancelled(command.id)
            return
        result, recipe = calibrating.result()
        self.say(result)
        if recipe is not None:
            self._recipes[_recipe_key(command)] = recipe

    async def _run_load(self, load: RunLoad, pool: ConnectionPool, recipe: Recipe) -> None:
        log = RunLog(load.id, load.run)
        opened_before = len(pool.connect_ms)
        client = self._client = new_client(load, pool, recipe, log)
        if self._called_off:
            client.cancel()
        await client.prepare()
        # Exempt existing objects from collections: one in the middle of a run would add latency.
        gc.collect()
        gc.freeze()
        flushing = asyncio.create_task(self._send_batches(log))
        health = LoopHealth()
        started_at = perf_counter()
        try:
            await client.run()
        finally:
            flushing.cancel()
            gc.unfreeze()
            self._client = None
        ended_at = perf_counter()
        loop_state = health.stop(pool.connect_ms[opened_before:])
        for message in (log.flush(ended_at), *log.token_times()):
            if message is not None:
                self.say(message)
        self.say(
            RunFinished(
                load.id,
                started_at,
                ended_at,
                cancelled=client.cancelled,
                health=loop_state,
            )
        )

    async def _send_batches(self, log: RunLog) -> None:
        """Send new events of a run `BATCHES_PER_S` times per second, unless the parent does not read."""
        while True:
            await asyncio.sleep(1 / BATCHES_PER_S)
            batch = log.flush(perf_counter()) if self._is_read() else None
            if batch is not None:
                self.say(batch)

    def _is_read(self) -> bool:
        """Return whether the parent reads fast enough, so that little output is buffered."""
        return self._out.get_write_buffer_size() < _MOST_UNREAD_BYTES

    def _refuse_cancelled(self, command_id: str) -> None:
        failure = request_failure(CANCELLED, "cancelled before it began", perf_counter())
        self.say(Refused(command_id, failure))


class _Out(asyncio.BaseProtocol):
    """Protocol of the standard output pipe: sets `gone` when the parent has closed its end."""

    def __init__(self, gone: asyncio.Event) -> None:
        self._gone = gone

    def connection_lost(self, _: Exception | None) -> None:
        self._gone.set()

    def pause_writing(self) -> None:
        """Do nothing when the write buffer is full: its size is checked before each batch."""

    def resume_writing(self) -> None:
        """Do nothing when the write buffer has emptied: see `pause_writing`."""


def _recipe_key(command: Calibrate | RunLoad) -> _RecipeKey:
    return command.target, command.prompt_tokens, command.seed


async def _listen(worker: Worker) -> None:
    """Pass commands from standard input to `worker`; return at the end of input."""
    loop = asyncio.get_running_loop()
    reader = asyncio.StreamReader(limit=_LONGEST_COMMAND)
    await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), sys.stdin.buffer)
    while line := await reader.readline():
        worker.take(COMMANDS.decode(line))


async def _serve() -> None:
    loop = asyncio.get_running_loop()
    gone = asyncio.Event()
    out, _ = await loop.connect_write_pipe(lambda: _Out(gone), sys.stdout.buffer)
    most_connections = raise_limit()
    worker = Worker(out, most_connections)
    worker.say(Ready(most_connections))
    worker.say_alive()
    tasks = [
        asyncio.create_task(_listen(worker)),
        asyncio.create_task(worker.work()),
        asyncio.create_task(gone.wait()),
    ]
    done_tasks, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
    for task in tasks:
        task.cancel()
    for task in done_tasks:
        task.result()  # a programming error ends the process with its traceback


def main() -> int:
    """Execute commands until standard input ends or the parent closes its pipe; return the exit code 0.

    The kernel kills this process when its parent dies.
    """
    # If the parent died before this line, standard input has ended as well.
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    gc.set_threshold(*_GC_THRESHOLDS)
    with asyncio.Runner(loop_factory=loop_factory()) as runner:
        runner.run(_serve())
    return 0


# The health of the load generator during a load run: lag of its event loop, and its CPU use.


_EVERY_S = 0.01
"""Interval of the lag samples in seconds: a hundred per second use 0.1 % of a core."""
TIMER_MS = 1.0
"""Part of the lag in milliseconds that is ignored, because event loops round their timers to milliseconds."""
_SCHEDSTAT = Path("/proc/thread-self/schedstat")
"""Nanoseconds on a core, nanoseconds of waiting for one, and number of times on a core, of this thread."""


class LoopHealth:
    """Samples the lag of the running event loop, and measures CPU use, from construction until `stop`."""

    def __init__(self) -> None:
        """Start sampling."""
        self._loop = asyncio.get_running_loop()
        self._lags_ms: list[float] = []
        self._began = perf_counter()
        self._cpu_began_s = process_time()
        self._waits_began = _core_waits()
        self._due = 0.0
        self._timer = self._next()

    def stop(self, connect_ms: Sequence[float]) -> ClientHealth:
        """Stop sampling; return the health since construction.

        `connect_ms` has the milliseconds that it took to open each connection.
        """
        self._timer.cancel()
        wall_s = perf_counter() - self._began
        cpu_s = process_time() - self._cpu_began_s
        return ClientHealth(
            loop=loop_name(),
            cpu_percent=100 * cpu_s / wall_s if wall_s > 0 else 0.0,
            loop_lag_ms=lag_figures(self._lags_ms),
            connect_ms=statistics.fmean(connect_ms) if connect_ms else None,
            core_wait_ms=_mean_wait_ms(self._waits_began, _core_waits()),
        )

    def _next(self) -> asyncio.TimerHandle:
        self._due = perf_counter() + _EVERY_S
        return self._loop.call_later(_EVERY_S, self._sample)

    def _sample(self) -> None:
        self._lags_ms.append(max(0.0, 1000 * (perf_counter() - self._due) - TIMER_MS))
        self._timer = self._next()


def loop_factory() -> Callable[[], asyncio.AbstractEventLoop] | None:
    """Return the factory of uvloop's event loops; None if uvloop is not installed.

    Timestamps of a burst of 256 requests are up to 2 ms late with uvloop, up to 5 ms with asyncio.
    """
    try:
        import uvloop
    except ImportError:
        return None
    return uvloop.new_event_loop


def loop_name() -> str:
    """Return "uvloop" or "asyncio", depending on the running loop."""
    module = type(asyncio.get_running_loop()).__module__
    return "uvloop" if module.startswith("uvloop") else "asyncio"


def lag_figures(lags_ms: Sequence[float]) -> dict[str, float]:
    """Return mean and quantiles of the lags by name, in milliseconds; empty without lags."""
    if not lags_ms:
        return {}
    ordered = sorted(lags_ms)
    quantiles = {f"p{percent}": quantile(ordered, percent / 100) for percent in (50, 90, 99)}
    return {"mean": statistics.fmean(ordered), **quantiles, "max": ordered[-1]}


def _core_waits() -> tuple[int, int] | None:
    """Return (nanoseconds of waiting for a core, times on a core) of this thread; None if not counted."""
    try:
        _, waited, times = _SCHEDSTAT.read_text().split()
        return int(waited), int(times)
    except (OSError, ValueError):
        return None


def _mean_wait_ms(before: tuple[int, int] | None, after: tuple[int, int] | None) -> float | None:
    if before is None or after is None or after[1] <= before[1]:
        return None
    return (after[0] - before[0]) / (after[1] - before[1]) / 1e6


if __name__ == "__main__":
    status = main()
    sys.stdout = None  # closed with its pipe
    sys.exit(status)
