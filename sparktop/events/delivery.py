"""Sends the events that a store announces to the hook program and the webhook of the configuration."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Awaitable, Callable
from contextlib import suppress
from pathlib import PurePath

from sparktop.events.document import event_document
from sparktop.events.hook import Hook
from sparktop.events.outbox import Outbox
from sparktop.events.webhook import Webhook
from sparktop.model.event import Event, Severity
from sparktop.model.targets import EventSettings
from sparktop.model.text import clean
from sparktop.python310.timeouts import timeout
from sparktop.store import Store

GRACE_S = 1.0
"""Seconds that the last events may take when the program ends."""
SUBJECT = "sparktop"


class Delivery:
    """Sends the announced events of a store to a hook program and a webhook, each with its own outbox."""

    def __init__(self, settings: EventSettings, store: Store) -> None:
        """Prepare the receivers of `settings`; nothing is sent before `run`."""
        self._settings = settings
        self._store = store
        self._webhook = Webhook(settings.webhook, settings.webhook_token) if settings.webhook else None
        self._outboxes: list[Outbox] = []
        self._reporting = False
        """True while an event about deliveries is added: such an event is not delivered itself."""
        if settings.hook:
            name = f"the hook {clean(PurePath(settings.hook[0]).name, 60)}"
            self._add(name, Hook(settings.hook, os.environ).send)
        if self._webhook is not None:
            self._add("the webhook", self._webhook.send)

    def _add(self, name: str, send: Callable[[bytes], Awaitable[str | None]]) -> None:
        async def send_event(event: Event, dropped: int) -> str | None:
            simulated = self._store.snapshot().simulated
            return await send(event_document(event, simulated=simulated, dropped=dropped))

        self._outboxes.append(Outbox(name, send_event, self._report))

    def hear(self, event: Event) -> None:
        """Queue an event for the hook and the webhook if it is severe enough; return before it is sent."""
        if self._reporting or event.importance.rank < self._settings.severity.rank:
            return
        for outbox in self._outboxes:
            outbox.put(event)

    async def run(self) -> None:
        """Send events until cancelled; then allow `GRACE_S` seconds for queued events.

        A hook that still runs after these seconds is killed.
        """
        end = self._store.listen_events(self.hear)
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
                await asyncio.gather(*(outbox.drained() for outbox in self._outboxes))
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        if self._webhook is not None:
            await self._webhook.close()

    def _report(self, message: str, trouble: bool) -> None:  # noqa: FBT001 - an outbox's two words
        self._reporting = True
        try:
            self._store.note(SUBJECT, message, Severity.WARNING if trouble else Severity.INFO)
        finally:
            self._reporting = False


async def deliver(settings: EventSettings, store: Store) -> None:
    """Deliver the announced events of `store` until cancelled."""
    await Delivery(settings, store).run()
