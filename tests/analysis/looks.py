"""Builds polls of servers under a constant load, whose counters follow from a known step time."""

from __future__ import annotations

from dataclasses import dataclass

from sparktop.analysis.evidence import MachineEvidence, MachinePoll, Poll
from sparktop.model.snapshot import SpeedState

SECONDS = 60


@dataclass(frozen=True)
class Served:
    """A server whose step takes `fixed_s`, plus a time for each request and each prompt token."""

    running: float = 8
    waiting: float = 0
    kv_percent: float | None = 30.0
    fixed_s: float = 0.05
    per_token_s: float = 0.0
    per_prompt_s: float = 0.0002
    prompt_tokens: float = 50.0
    """Prompt tokens per second."""
    swing: float = 0.0
    """Every other five seconds this many more requests run."""
    unseen: float = 0.0
    """1 where prompts are computed although no request is seen running."""

    def polls(self) -> tuple[Poll, ...]:
        """Return a poll for each second of a minute."""
        made = []
        steps = generated = prompted = finished = 0.0
        for second in range(SECONDS + 1):
            running = self.running + (self.swing if second // 5 % 2 else 0.0)
            load = (running, self.waiting, self.waiting, self.kv_percent)
            made.append(Poll(100.0 + second, *load, steps, generated, prompted, 0.0, finished))
            after = self.running + (self.swing if (second + 1) // 5 % 2 else 0.0)
            batch = (running + after) / 2
            # More in every other second, so that prompts can be separated from steps.
            works = bool(batch or self.unseen)
            prompt = works * self.prompt_tokens * (1.5 if second % 2 else 0.5)
            left_s = max(0.0, 1.0 - prompt * self.per_prompt_s)
            done = left_s / (self.fixed_s + batch * self.per_token_s)
            steps, generated, prompted = steps + done, generated + done * batch, prompted + prompt
            finished += works
        return tuple(made)


def machine(
    name: str = "spark-1",
    *,
    gpu: float = 96.0,
    core: float = 70.0,
    link: float = 0.0,
    clock: float = 2400.0,
    usual: float = 2400.0,
    speed: SpeedState | None = None,
    power: float | None = None,
) -> MachineEvidence:
    """Return a machine with the same readings in each sample."""
    polls = tuple(
        MachinePoll(100.0 + second, gpu, clock, core, link, link * 12.5e9, "rocep1s0f0", power)
        for second in range(0, SECONDS + 1, 2)
    )
    return MachineEvidence(name, polls, speed or SpeedState("normal"), usual)
