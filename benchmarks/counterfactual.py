"""Measure the loss by uneven loads, and the advice, against what the same load makes with other routers.

Runs of `load_families/` are watched by the real store. The truth is what the same clients, seeds and servers
generate in a run of their own where the router always knows the loads and sends each request to the least
loaded server, and where it chooses by chance. Nothing of it is computed from a curve. Prompts take next to
no time, a time for each token, or a time for each step that has any, which prompts in one step share. Steps
grow with the batch, or mostly with its root.

A figure is that of the last minute or more, the truth that of the run.

usage: counterfactual.py [--runs 10] [--seed 5000000] [--only WORDS …] [--write]
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from statistics import fmean, median

import tables
from load_families.engine import Speed, least_busy, shuffle
from load_families.families import FAMILIES, Family, Scene
from load_families.watching import Watching

SECONDS, BEGIN_S = 240.0, 60.0
STEPS: Mapping[str, Callable[[Speed], Speed]] = {
    "short prompts": lambda speed: speed,
    "long prompts": lambda speed: replace(speed, prompt_token_s=0.0004),
    "prompts share steps": lambda speed: replace(speed, prompt_step_s=0.2),
    "steps by the root": lambda speed: replace(
        speed,
        base_s=speed.base_s / 4,
        per_request_s=speed.base_s / 4 + speed.per_request_s,
        prompt_step_s=speed.base_s / 2,
        exponent=0.5,
    ),
}
"""What steps and prompts cost, by name; those drawn have short prompts. By the root, a step with prompts
takes half of the drawn base longer."""
CERTAIN_POINTS = 3.0
"""Error of a figure that is shown without one."""
HEADS = (
    *("family", "steps", "runs", "really lost, %: median (range)", "shown, of judgements"),
    *("points off, mean of a run: median / worst", "runs within the error"),
    "random routing advised: gains, %",
)
Task = tuple[int, str, str]
"""(index of the family, name in `STEPS`, seed)."""


@dataclass(slots=True)
class Outcome:
    """What one run lost, and what was said of it."""

    lost: float = 0.0
    """Percent of the tokens that the least loaded server would have made."""
    gain: float = 0.0
    """By how many percent random routing makes more."""
    judged: int = 0
    shown: list[tuple[float, float]] = field(default_factory=list)
    """(percent lost, its error in points), as shown."""
    advised: bool = False
    """Whether random routing was ever advised without a comparison."""


def scene_of(family: Family, prompts: str, seed: str) -> Scene:
    """Return a scene of `family` whose servers take times as `STEPS` has them for `prompts`."""
    scene = family.make(seed)
    for backend in scene.backends:
        backend.speed = STEPS[prompts](backend.speed)
    return scene


def tokens(scene: Scene) -> int:
    """Run a scene; return the tokens that it generates from `BEGIN_S` on."""
    scene.clock.run(BEGIN_S)
    before = so_far(scene)
    scene.clock.run(SECONDS)
    return so_far(scene) - before


def so_far(scene: Scene) -> int:
    """Return the tokens that the servers of a scene have generated."""
    return sum(one.generated_tokens for one in scene.backends)


class Judged(Watching):
    """Collects what is said of the loss and what is advised."""

    def __init__(self, family: Family, seed: str) -> None:
        """Start before the first second."""
        self.outcome = Outcome()
        self._before = 0
        super().__init__(family, seed, None)

    @property
    def made(self) -> int:
        """Tokens from `BEGIN_S` on in this run: polls draw from the dice, so another is not the same."""
        return so_far(self._scene) - self._before

    def _record(self) -> None:
        if self._scene.clock.now_s <= BEGIN_S:
            self._before = so_far(self._scene)
            return
        for balance in self._store.snapshot().balance:
            self.outcome.judged += 1
            if balance.lost_words and balance.lost_estimate_percent is not None:
                error = max(CERTAIN_POINTS, balance.lost_error_points or 0.0)
                self.outcome.shown.append((balance.lost_estimate_percent, error))
            self.outcome.advised |= (balance.hint or "").startswith("try simple-shuffle")


def run_one(task: Task) -> Outcome:
    """Run one scene as it is, with the least loaded server, and with random routing."""
    index, prompts, seed = task
    family = replace(
        FAMILIES[index], seconds=SECONDS, make=lambda seed: scene_of(FAMILIES[index], prompts, seed)
    )
    watched = Judged(family, seed)
    watched.run()
    made = watched.made
    best, random = family.make(seed), family.make(seed)
    gateway = best.gateway
    gateway.choose = least_busy(lambda: gateway.in_flight, best.dice)
    random.gateway.choose = shuffle(random.dice)
    watched.outcome.lost = 100 * (1 - made / tokens(best))
    watched.outcome.gain = 100 * (tokens(random) / made - 1)
    return watched.outcome


def row(family: Family, prompts: str, runs: Sequence[Outcome]) -> list[str]:
    """Return the row of a family with these prompts."""
    losses = sorted(one.lost for one in runs)
    told = [one for one in runs if one.shown]
    off = [
        (abs(fmean(lost for lost, _ in one.shown) - one.lost), fmean(error for _, error in one.shown))
        for one in told
    ]
    shown, judged = (sum(len(one.shown) for one in runs), sum(one.judged for one in runs))
    advised = [one.gain for one in runs if one.advised]
    apart = sorted(points for points, _ in off)
    return [
        family.name,
        prompts,
        str(len(runs)),
        f"{median(losses):.0f} ({losses[0]:.0f} to {losses[-1]:.0f})",
        f"{100 * shown / max(1, judged):.0f} %",
        f"{median(apart):.1f} / {apart[-1]:.1f}" if apart else "–",
        f"{sum(points <= error for points, error in off)} of {len(off)}" if off else "–",
        f"{min(advised):.0f} to {max(advised):.0f} in {len(advised)} runs" if advised else "never",
    ]


def main() -> int:
    """Run the families and print their table."""
    parser = tables.options(__doc__, runs=10, seed=5_000_000)
    parser.add_argument("--only", nargs="+", metavar="WORDS", help="families whose name has one of these")
    options = parser.parse_args()
    words = options.only or ("stale counts", "convoys", "full servers", "random and round-robin")
    chosen = [index for index, one in enumerate(FAMILIES) if any(word in one.name for word in words)]
    kinds = [(index, prompts) for index in chosen for prompts in STEPS]
    todo: list[Task] = [
        (index, prompts, f"{FAMILIES[index].name}-{options.seed + number}")
        for index, prompts in kinds
        for number in range(options.runs)
    ]
    rows, found = list[list[str]](), list[Outcome]()
    for outcome in tables.in_processes(run_one, todo):
        found.append(outcome)
        if len(found) == options.runs:
            index, prompts = kinds[len(rows)]
            rows.append(row(FAMILIES[index], prompts, found))
            print("  ".join(rows[-1]), file=sys.stderr, flush=True)
            found = []
    tables.publish("counterfactual.py", tables.table(HEADS, rows), write=options.write)
    return 0


if __name__ == "__main__":
    sys.exit(main())
