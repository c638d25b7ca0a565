"""Events that leave the program: as JSON, one at a time, to a hook program and to a webhook."""

from __future__ import annotations

import asyncio
import json
import os
import signal
from asyncio.subprocess import DEVNULL, PIPE, Process
from collections import deque
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import PurePath

from sparktop import __version__
from sparktop.model.event import Event, Severity
from sparktop.model.plain import json_time, json_values
from sparktop.model.targets import EventSettings
from sparktop.model.text import clean, reason_of
from sparktop.net.failure import AnswerError, host_and_port, key_problem
from sparktop.stopping import timeout
from sparktop.store import Store

GRACE_S = 1.0
"""Seconds that the last events may take when the program ends."""
SUBJECT = "sparktop"
"""Subject of events about deliveries themselves."""


class Delivery:
    """Sends the announced events of a store to a hook program and a webhook, each with its own outbox."""

    def __init__(self, settings: EventSettings, store: Store) -> None:
        """Prepare the receivers of `settings`; nothing is sent before `run`."""
        self._settings = settings
        self._store = store
        self._outboxes: list[Outbox] = []
        self._reporting = False
        """True while an event about deliveries is added: such an event is not delivered itself."""
        if settings.hook:
            name = f"the hook {clean(PurePath(settings.hook[0]).name, 60)}"
            self._add(name, Hook(settings.hook, os.environ).send)
        if settings.webhook:
            self._add("the webhook", Webhook(settings.webhook, settings.webhook_token).send)

    def _add(self, name: str, send: Callable[[bytes], Awaitable[str | None]]) -> None:
        async def send_event(event: Event, dropped: int) -> str | None:
            simulated = self._store.snapshot().simulated
            return await send(event_document(event, simulated=simulated, dropped=dropped))

        self._outboxes.append(Outbox(name, send_event, self._report))

    def on_event(self, event: Event) -> None:
        """Queue an event for the hook and the webhook if it is severe enough; return before it is sent."""
        if self._reporting or event.importance.rank < self._settings.severity.rank:
            return
        for outbox in self._outboxes:
            outbox.put(event)

    async def run(self) -> None:
        """Send events until cancelled; then allow `GRACE_S` seconds for queued events.

        A hook that still runs after these seconds is killed.
        """
        end = self._store.listen_events(self.on_event)
        tasks = [asyncio.create_task(outbox.run()) for outbox in self._outboxes]
        try:
            # Not gather, which would cancel the tasks with this one.
            done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_EXCEPTION)
            for task in done:
                task.result()
        finally:
            end()
            await self._finish(tasks)

    async def _finish(self, tasks: list[asyncio.Task[None]]) -> None:
        with suppress(TimeoutError):
            async with timeout(GRACE_S):
                await asyncio.gather(*(outbox.wait_until_sent() for outbox in self._outboxes))
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    def _report(self, message: str, severity: Severity) -> None:
        self._reporting = True
        try:
            self._store.note(SUBJECT, message, severity)
        finally:
            self._reporting = False


async def deliver(settings: EventSettings, store: Store) -> None:
    """Deliver the announced events of `store` until cancelled."""
    await Delivery(settings, store).run()


SCHEMA = "sparktop.event/1"
"""Name and number of the format. Every key is always present; unknown values are null."""
_MINUTE_S = 60.0


def event_json(event: Event) -> dict[str, object]:
    """Return an event as a dictionary for JSON; its texts may still contain control characters."""
    rate = None if not event.span_s else (event.count - 1) * _MINUTE_S / event.span_s
    return {
        "at": json_time(event.at),
        "severity": event.severity.value,
        "subject": event.subject,
        "message": event.message,
        "id": event.about,
        "kind": event.kind,
        "phase": None if event.phase is None else event.phase.value,
        "worst": None if event.worst is None else event.worst.value,
        "duration_s": event.duration_s,
        "count": event.count,
        "span_s": event.span_s,
        "per_minute": rate,
        "values": event.values,
    }


def event_document(event: Event, *, simulated: bool, dropped: int = 0) -> bytes:
    """Return an event as one line of JSON in UTF-8.

    `simulated` is whether anything watched is simulated, `dropped` the number of events that the receiver
    did not get before this one, because it was too slow.
    """
    head = {"schema": SCHEMA, "sparktop": __version__, "simulated": simulated, "dropped": dropped}
    body = json_values({**head, **event_json(event)})
    return json.dumps(body, ensure_ascii=False, allow_nan=False).encode() + b"\n"


LIMIT_S = 10.0
"""Seconds that the program may run; then it is killed with all that it started."""
PASSED_ON = frozenset(
    {
        *("PATH", "HOME", "USER", "LOGNAME", "SHELL", "LANG", "LANGUAGE", "TZ", "TMPDIR", "HOSTNAME"),
        *("DISPLAY", "WAYLAND_DISPLAY", "XAUTHORITY", "XDG_RUNTIME_DIR", "DBUS_SESSION_BUS_ADDRESS"),
    }
)
"""Environment variables that the program gets, beside LC_*: others may hold secrets."""
_REAP_S = 2.0
"""Seconds that a killed program may take to end."""
_READ_BYTES = 65_536
"""Bytes of a read: all that a pipe holds."""
_TAIL_BYTES = 1024
"""Bytes kept of the end of what the program wrote to standard error."""
_LONGEST = 120
"""Most characters shown of it."""


class Hook:
    """A program that the user configures, run once for each event, with the event as JSON on stdin."""

    def __init__(self, command: Sequence[str], env: Mapping[str, str], *, limit_s: float = LIMIT_S) -> None:
        """Prepare to run `command`, a program and its arguments, for each event.

        The program gets only the variables of `env` that hold no secrets (see `hook_environment`).
        """
        self._command = tuple(command)
        self._env = hook_environment(env)
        self._limit_s = limit_s

    async def send(self, document: bytes) -> str | None:
        """Run the program with `document` on its standard input; return why it failed, None for success."""
        errors = _ErrorOutput()
        try:
            process = await asyncio.create_subprocess_exec(
                *self._command,
                stdin=PIPE,
                stdout=DEVNULL,
                stderr=errors.write_end,
                env=self._env,
                start_new_session=True,
            )
        except (OSError, ValueError) as error:
            errors.close()
            return f"it cannot be started: {reason_of(error)}"
        try:
            async with asyncio.timeout(self._limit_s):
                code = await _run(process, document)
        except TimeoutError:
            return f"it ran longer than {self._limit_s:g} s and was killed"
        finally:
            if process.returncode is None:
                await _kill(process)
            words = errors.close()
        if code == 0:
            return None
        how = f"signal {-code} ended it" if code < 0 else f"it ended with exit code {code}"
        return f"{how}: {words}" if words else how


class _ErrorOutput:
    """A pipe for a program's standard error; only the last bytes written to it are kept.

    The pipe is read while the program runs, so that the program never blocks on a full pipe. `close` does not
    wait for the end of the output, because a background process of the program may hold the pipe open.
    """

    def __init__(self) -> None:
        """Open the pipe and begin to read."""
        self._read_end, self.write_end = os.pipe()
        os.set_blocking(self._read_end, False)
        self._tail = b""
        self._loop = asyncio.get_running_loop()
        self._loop.add_reader(self._read_end, self._read)

    def close(self) -> str:
        """Close both ends of the pipe; return the end of what the program wrote, as one clean line."""
        self._read()
        self._loop.remove_reader(self._read_end)
        for end in (self._read_end, self.write_end):
            os.close(end)
        return clean(self._tail.decode(errors="replace"), _LONGEST)

    def _read(self) -> None:
        with suppress(BlockingIOError):
            self._tail = (self._tail + os.read(self._read_end, _READ_BYTES))[-_TAIL_BYTES:]


def hook_environment(env: Mapping[str, str]) -> dict[str, str]:
    """Return the variables of `env` that are passed to the hook program: `PASSED_ON` and LC_*."""
    return {name: value for name, value in env.items() if name in PASSED_ON or name.startswith("LC_")}


async def _run(process: Process, document: bytes) -> int:
    """Write the document to the program's standard input and wait for the program; return its exit code."""
    if process.stdin is not None:
        with suppress(OSError):  # it ended or closed its input: a program need not read it
            process.stdin.write(document)
            await process.stdin.drain()
        process.stdin.close()
    return await process.wait()


async def _kill(process: Process) -> None:
    """Kill a program and its process group; wait at most `_REAP_S` seconds for its end."""
    with suppress(ProcessLookupError, PermissionError):
        os.killpg(process.pid, signal.SIGKILL)
    with suppress(TimeoutError):
        async with timeout(_REAP_S):
            await process.wait()


PAUSES_S = (1.0, 5.0, 20.0)
"""Seconds before each further try."""
DEADLINE_S = 10.0
"""Seconds that one try may take."""
_OK = range(200, 300)
"""HTTP statuses of success."""
_TRY_AGAIN = frozenset({408, 425, 429, *range(500, 600)})
"""HTTP statuses which mean that the same request may succeed later."""

Sleep = Callable[[float], Awaitable[object]]
"""Waits for a number of seconds."""


class Webhook:
    """A URL that the user configures, to which each event is posted as JSON.

    Its path may be a secret: messages name host and port only.
    """

    def __init__(
        self, url: str, token: str | None, *, sleep: Sleep = asyncio.sleep, deadline_s: float = DEADLINE_S
    ) -> None:
        """Prepare to post to `url`, with `token` as a bearer token unless it is None; nothing is sent yet."""
        self._url = url
        self._token = token
        self._where = host_and_port(url)
        self._sleep = sleep
        self._deadline_s = deadline_s

    async def send(self, document: bytes) -> str | None:
        """Post `document`; return None for success, else why it failed.

        Errors that may be temporary are followed by further tries.
        """
        if key_problem(self._token) is not None:
            return "the token holds characters that no HTTP header may hold: look at webhook_token_env"
        problem, pauses = await self._post_once(document), iter(PAUSES_S)
        while problem is not None and problem[1] and (pause_s := next(pauses, None)) is not None:
            await self._sleep(pause_s)
            problem = await self._post_once(document)
        return None if problem is None else problem[0]

    async def _post_once(self, document: bytes) -> tuple[str, bool] | None:
        """Post once; return None for success, else (why it failed, whether another try may succeed)."""
        from sparktop.net.once import post  # late: most starts have no webhook

        try:
            status = await post(
                self._url, document, where=self._where, deadline_s=self._deadline_s, token=self._token
            )
        except AnswerError as error:
            return error.message, True
        if status in _OK:
            return None
        return f"{self._where} answered with HTTP status {status}", status in _TRY_AGAIN


WAITING = 100
"""Most events that wait; the oldest is dropped for a newer one."""

Send = Callable[[Event, int], Awaitable[str | None]]
"""Sends an event, with the number of events dropped before it; returns why that failed, None for success."""
Report = Callable[[str, Severity], None]
"""Receives a sentence about the deliveries: a warning where trouble begins, an information where it ends."""


class Outbox:
    """The queue of events for one receiver, the hook or the webhook, which are sent one at a time.

    A failed delivery or a full queue is reported once when the trouble begins. Once sending works again, this
    is reported with the number of lost events.
    """

    def __init__(self, name: str, send: Send, report: Report) -> None:
        """Start with an empty queue.

        `report` receives sentences about failing deliveries, in which `name` names the receiver.
        """
        self._name = name
        self._send = send
        self._report = report
        self._waiting: deque[Event] = deque()
        self._more = asyncio.Event()
        self._idle = asyncio.Event()
        self._idle.set()
        self._dropped = 0
        """Events dropped since the last one that was sent."""
        self._lost = 0
        """Events dropped or not delivered since the last success."""

    def put(self, event: Event) -> None:
        """Append an event to the queue and return at once; drop the oldest event if the queue is full."""
        if len(self._waiting) >= WAITING:
            self._waiting.popleft()
            self._dropped += 1
            self._count_lost(f"is too slow: {WAITING} events wait, older ones are dropped")
        self._waiting.append(event)
        self._idle.clear()
        self._more.set()

    async def run(self) -> None:
        """Send the events of the queue, and those added later, until cancelled."""
        while True:
            await self._more.wait()
            while self._waiting:
                event, dropped = self._waiting.popleft(), self._dropped
                self._dropped = 0
                problem = await self._send(event, dropped)
                if problem is not None:
                    self._count_lost(f"fails: {problem}")
                elif self._lost and not self._dropped:
                    words = f"{self._name} works again; events not delivered: {self._lost}"
                    self._report(words, Severity.INFO)
                    self._lost = 0
            self._more.clear()
            self._idle.set()

    async def wait_until_sent(self) -> None:
        """Wait until the queue is empty and no event is being sent."""
        await self._idle.wait()

    def _count_lost(self, why: str) -> None:
        if not self._lost:
            self._report(f"{self._name} {why}", Severity.WARNING)
        self._lost += 1
