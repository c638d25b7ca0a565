"""Draw the pictures that README.md and docs/ show, from the demo in virtual time: always the same bytes."""

from __future__ import annotations

import argparse
import asyncio
import os
import re
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import cache, partial
from pathlib import Path

from msgspec.structs import replace
from textual.pilot import Pilot

from sparktop.colors.palette import shipped_palettes
from sparktop.demo.scenario import DEFAULT_SCENARIO, SCENARIOS
from sparktop.model.load import Level, LoadKind, LoadPoint, concurrency_point
from sparktop.model.snapshot import Snapshot
from sparktop.model.targets import SweepSpec
from sparktop.simulation.calibration import SOLO
from sparktop.store import Store
from sparktop.sweep.history import History
from sparktop.sweep.plan.capacity import default_capacity, make_capacity_plan
from sparktop.sweep.plan.plan import Plan
from sparktop.sweep.plan.presets import make_plan
from sparktop.sweep.result.results import SweepResult
from sparktop.sweep.result.store import new_file, save
from sparktop.sweep.session import Stage, Sweeping
from sparktop.sweep.view.result import SweepSource
from sparktop.ui.app import SparktopApp
from sparktop.ui.report import screen_svg
from sparktop.ui.screens.sweep import SweepScreen
from sparktop.ui.screens.sweep_history import HistoryScreen
from stage.fleet import RehearsedFleet
from stage.moving_picture import animate
from stage.rehearsal import START, Outage, Rehearsal
from stage.sweep import Halt, RehearsedSweep

Size = tuple[int, int]
Draw = Callable[[Size], Awaitable[str]]

FOLDER = Path(__file__).parent.parent / "screenshots"
_SHOWN = re.compile(r"screenshots/([\w-]+)\.svg")
MANY = 12
"""Number of backends in the pictures of the compact view and the wall."""
FLEET_S = 100
"""Virtual seconds that the fleet of 500 servers runs: by then its largest groups have a verdict."""
HERO_S = 206.0
"""Virtual second at which the README's moving picture begins: by then the router's cost is known."""
HERO_MOMENTS, HERO_MOMENT_S = 28, 0.5
"""Number of its frames, a virtual second apart, and seconds that each is shown; the swing takes 28 s."""
RIVAL = "simple-shuffle"
NAMES = ("proxy", RIVAL, "spark-a")
PP, TG, RUNS = 512, 64, 5
LEVELS = (1, 4, 16, 48)
HALT = Halt(Level(RIVAL, concurrency_point(16), PP, TG), run=2, after_s=2.0)
"""Moment at which the running sweep is drawn."""
SEARCH_S, SEARCHED = 60.0, 6.0
"""Seconds per level in the search for the number of agents, and the number being tried in its picture."""
AGENTS, AGENTS_S = 8, 120.0
"""Number of agents of the level that is drawn, and its length in seconds."""
WHEN = START + timedelta(days=4)
"""Time at which the history is shown."""


@cache
def played(outage: Outage | None, backends: int, scenario: str | None, play_s: float = 170) -> Store:
    """Return the store after `play_s` virtual seconds of the demo; drawing does not change it.

    `scenario` names a scenario of `sparktop demo`; None is a load that shows every kind of graph.
    """
    told = None if scenario is None else SCENARIOS[scenario]
    return Rehearsal(outage=outage, backends=backends, nodes=backends if told else 1, scenario=told).play(
        play_s
    )


async def picture(
    size: tuple[int, int],
    *,
    theme: str = "spark-dark",
    keys: tuple[str, ...] = (),
    outage: Outage | None = None,
    backends: int = 2,
    scenario: str | None = None,
    play_s: float = 170,
    store: Store | None = None,
) -> str:
    """Press `keys`; return as SVG the screen of `store`, or of the demo after `play_s` virtual seconds."""
    app = SparktopApp((store or played(outage, backends, scenario, play_s)).snapshot, theme=theme)
    async with app.run_test(size=size) as pilot:
        await pilot.pause()
        for key in keys:
            await pilot.press(key)
        await pilot.pause()
        return screen_svg(app)


async def hero() -> str:
    """Return the moving picture of the README: one period of the swing that a router causes."""
    rehearsal = Rehearsal(backends=2, nodes=2, scenario=SCENARIOS["cooldown"])
    rehearsal.play(HERO_S)
    app = SparktopApp(rehearsal.store.snapshot)
    moments: list[str] = []
    async with app.run_test(size=(110, 32)) as pilot:
        for _ in range(HERO_MOMENTS):
            app.overview.redraw()
            await pilot.pause()
            moments.append(screen_svg(app))
            rehearsal.play(1)
    return animate(moments, HERO_MOMENT_S)


class Staying(Sweeping):
    """A sweep for the board that keeps running and never changes."""

    def __init__(self, app: SparktopApp, sweep: RehearsedSweep) -> None:
        """Show `sweep` as it is at the moment up to which it was played."""
        super().__init__(sweep.rehearsal.store, folder=None, say=app.desk.say, changed=app.sweep_changed)
        self.stage = Stage.RUNNING
        self._sweep = sweep

    @property
    def source(self) -> SweepSource:
        """The sweep that is shown."""
        return self._sweep

    def look(self, snapshot: Snapshot) -> None:
        """Ignore the snapshot: the sweep does not change."""


@dataclass(slots=True)
class Played:
    """All sweeps that the pictures show."""

    running: RehearsedSweep
    done: RehearsedSweep
    searching: RehearsedSweep
    """A running search for the number of agents that one server can serve; `found` is a finished one."""
    found: RehearsedSweep
    agents: RehearsedSweep
    """A running level of agents on one server."""
    history: Mapping[datetime, SweepResult]
    """Results by start time; the newest two are from before and after a change of the router's strategy."""


def plan_of(sweep: RehearsedSweep, names: Sequence[str], preset: str, levels: Sequence[int] = LEVELS) -> Plan:
    """Return a plan that measures the targets with these names."""
    targets = tuple(sweep.targets[name] for name in names)
    return Plan(targets, tuple(levels), pp=PP, tg=TG, runs=RUNS, more_runs=True, preset=preset)


async def play() -> Played:
    """Play all sweeps that the pictures show."""
    running, done = (RehearsedSweep(rivals=(RIVAL,)) for _ in range(2))
    await running.play(plan_of(running, NAMES, "topology"), halt=HALT)
    await done.play(plan_of(done, NAMES, "topology"))
    compared = done.result
    assert compared is not None  # noqa: S101 - it was played to its end
    found = {START - timedelta(days=9, hours=-5): compared}
    scenario = SCENARIOS[DEFAULT_SCENARIO]
    for days, strategy, seed in ((2.0, scenario.strategy, 1), (3.1, RIVAL, 2)):
        one = RehearsedSweep(scenario=replace(scenario, strategy=strategy), seed=seed)
        await one.play(plan_of(one, ("proxy",), "router", (1, 4, 16, 32)))
        assert one.result is not None  # noqa: S101 - as above
        found[START + timedelta(days=days)] = one.result
    stopped = RehearsedSweep(seed=3)
    halt = Halt(Level("spark-b", concurrency_point(16), PP, TG), run=0, after_s=1.0)
    await stopped.play(plan_of(stopped, ("spark-b",), "quick"), halt=halt)
    assert stopped.result is not None  # noqa: S101 - its first levels are done
    update = {"status": "cancelled", "stop_reason": "stopped by hand"}
    found[START + timedelta(days=1.4)] = stopped.result.model_copy(update=update)
    return Played(running, done, *(await searches()), await at_work(), found)


async def at_work() -> RehearsedSweep:
    """Measure 2 and then 8 agents on one server; return the sweep, halted in the run of the second level."""
    sweep = RehearsedSweep(scenario=SCENARIOS["agents"])
    preset = SweepSpec("agents", agents=(2, AGENTS), duration_s=AGENTS_S)
    plan = make_plan(preset | SweepSpec(seed=7), [sweep.targets["spark-a"]])
    level = plan.level("spark-a", LoadPoint(LoadKind.AGENTS, AGENTS))
    await sweep.play(plan, halt=Halt(level, run=0, after_s=0.8 * AGENTS_S))
    return sweep


async def searches() -> tuple[RehearsedSweep, RehearsedSweep]:
    """Search for the number of agents that one server can serve; return (a halted search, a finished one)."""
    profile = replace(SOLO, max_model_len=49_152, max_num_seqs=16)
    scenario = replace(SCENARIOS[DEFAULT_SCENARIO], profile=profile)
    running, done = (RehearsedSweep(scenario=scenario) for _ in range(2))
    target = running.targets["spark-a"]
    plan = make_capacity_plan(default_capacity(), [target], SweepSpec(duration_s=SEARCH_S, seed=7))
    level = plan.level("spark-a", LoadPoint(LoadKind.AGENTS, SEARCHED))
    await running.play(plan, halt=Halt(level, run=0, after_s=0.8 * SEARCH_S))
    await done.play(plan)
    return running, done


def keep(folder: Path, results: Mapping[datetime, SweepResult]) -> History:
    """Store results as sparktop does, return the history of the folder."""
    for at, result in sorted(results.items()):
        took = (result.finished_at or result.started_at) - result.started_at
        path = new_file(folder, at, result.plan.preset or "sweep")
        save(path, result.model_copy(update={"started_at": at, "finished_at": at + took}))
    return History(folder)


class Pictures:
    """Draws the pictures of sweeps."""

    def __init__(self, played: Played) -> None:
        """Draw the sweeps of `played`."""
        self._played = played

    def all(self) -> dict[str, Draw]:
        """Return what draws each picture of a sweep, by name."""
        running, done = self._played.running, self._played.done
        return {
            "sweep-board": lambda size: self._board(size, running),
            "sweep": lambda size: self._screen(size, running),
            "sweep-done": lambda size: self._screen(size, done),
            "topologies": lambda size: self._screen(size, done, "t"),
            "timeline": self._timeline,
            "sweep-editor": self._editor,
            "agents": lambda size: self._screen(size, self._played.agents),
            "capacity": lambda size: self._screen(size, self._played.searching),
            "capacity-done": lambda size: self._screen(size, self._played.found),
            "history": self._history,
            "difference": lambda size: self._history(size, "space", "space", "c"),
        }

    @staticmethod
    def _app(sweep: RehearsedSweep) -> SparktopApp:
        rehearsal = sweep.rehearsal
        return SparktopApp(rehearsal.store.snapshot, store=rehearsal.store, watch=rehearsal.watch)

    async def _board(self, size: Size, sweep: RehearsedSweep) -> str:
        """Draw the monitor with the sweep's band."""
        app = self._app(sweep)
        async with app.run_test(size=size) as pilot:
            await pilot.pause()
            app.desk.sweeping = staying = Staying(app, sweep)
            app.sweep_changed()
            await pilot.pause()
            svg = screen_svg(app)
            staying.stage = Stage.OVER
            return svg

    async def _screen(self, size: Size, sweep: RehearsedSweep, *keys: str) -> str:
        """Draw the screen of a sweep once `keys` are pressed."""
        app = self._app(sweep)
        async with app.run_test(size=size) as pilot:
            await app.push_screen(SweepScreen(app.role_styles, sweep))
            return await _pressed(app, pilot, keys)

    async def _timeline(self, size: Size) -> str:
        """Draw the requests of one level."""
        done = self._played.done
        app = self._app(done)
        async with app.run_test(size=size) as pilot:
            screen = SweepScreen(app.role_styles, done)
            await app.push_screen(screen)
            screen.chosen = Level(RIVAL, concurrency_point(16), PP, TG)
            return await _pressed(app, pilot, ("enter", "pagedown"))

    async def _editor(self, size: Size) -> str:
        """Draw the editor of sweeps as it opens."""
        app = self._app(self._played.done)
        async with app.run_test(size=size) as pilot:
            return await _pressed(app, pilot, ("S",))

    async def _history(self, size: Size, *keys: str) -> str:
        """Draw the history of sweeps once `keys` are pressed."""
        app = self._app(self._played.done)
        with tempfile.TemporaryDirectory() as folder:
            history = keep(Path(folder), self._played.history)
            async with app.run_test(size=size) as pilot:
                await app.push_screen(HistoryScreen(app.role_styles, history, lambda _: None))
                return await _pressed(app, pilot, keys)


async def _pressed(app: SparktopApp, pilot: Pilot[None], keys: Sequence[str]) -> str:
    await _still(app, pilot)
    for key in keys:
        await pilot.press(key)
        await _still(app, pilot)
    return screen_svg(app)


async def _still(app: SparktopApp, pilot: Pilot[None]) -> None:
    """Wait until all background workers have finished and the screen is drawn."""
    await pilot.pause()
    await app.workers.wait_for_complete()
    await pilot.pause()


def shown() -> list[str]:
    """Return the names of the pictures that the pages show, as `overview-80x24`."""
    root = FOLDER.parent
    pages = [root / "README.md", *sorted((root / "docs").glob("*.md"))]
    return sorted({name for page in pages for name in _SHOWN.findall(page.read_text(encoding="utf-8"))})


async def draw(names: Iterable[str]) -> dict[str, str]:
    """Return the pictures with these names as SVG."""
    fleet = RehearsedFleet().play(FLEET_S)

    drawings = Pictures(await play()).all() | {
        "overview": picture,
        "dead-backend": partial(picture, keys=("3",), outage=Outage(1, 140)),
        # Moves down to the first backend, below the node and the balance.
        "detail": partial(picture, keys=("down", "down", "down", "enter")),
        "node": partial(picture, keys=("down", "enter")),
        "swing": partial(picture, scenario=DEFAULT_SCENARIO),
        "balance": partial(picture, keys=("b",), scenario=DEFAULT_SCENARIO),
        "why": partial(picture, keys=("b", "w"), scenario=DEFAULT_SCENARIO),
        "fleet": partial(picture, store=fleet),
        "fleet-group": partial(picture, keys=("down", "enter"), store=fleet),
        "fleet-list": partial(picture, keys=("l",), store=fleet),
        "compact": partial(picture, keys=("v", "down", "down"), backends=MANY),
        "wall": partial(picture, keys=("v", "v", "v"), backends=MANY),
        "help": partial(picture, keys=("question_mark",)),
        "menu": partial(picture, keys=("m",)),
        **{f"theme-{theme}": partial(picture, theme=theme) for theme in shipped_palettes()},
    }
    pictures: dict[str, str] = {}
    for name in names:
        drawing, _, size = name.rpartition("-")
        columns, _, rows = size.partition("x")
        pictures[name] = (
            await hero() if name == "hero" else await drawings[drawing]((int(columns), int(rows)))
        )
    return pictures


def words(svg: str) -> list[str]:
    """Return the texts of a picture without styles and positions, which vary with the version of Textual."""
    return re.findall(r"<text[^>]*>([^<]*)</text>", svg)


def stale(folder: Path, pictures: dict[str, str]) -> list[str]:
    """Return the names of pictures whose texts in `folder` and in `pictures` differ."""
    files = {path.stem: path.read_text(encoding="utf-8") for path in folder.glob("*.svg")}
    names = sorted({*files, *pictures})
    return [name for name in names if words(files.get(name, "")) != words(pictures.get(name, ""))]


def main() -> int:
    """Write all pictures, or only check them with --check; return the exit code."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--check", action="store_true", help="write nothing; exit 1 if a picture differs")
    parser.add_argument("folder", nargs="?", type=Path, default=FOLDER)
    parser.add_argument("--only", nargs="+", metavar="NAME", help="draw these: overview-80x24 …")
    chosen = parser.parse_args()
    folder: Path = chosen.folder
    os.environ["TZ"] = "UTC"  # the clock on the pictures must not depend on where they are drawn
    time.tzset()
    os.environ.pop("NO_COLOR", None)
    pictures = asyncio.run(draw(chosen.only or shown()))
    if chosen.check:
        old = stale(folder, pictures)
        if old:
            print(f"stale: run `make screenshots` ({', '.join(old)})", file=sys.stderr)
        return int(bool(old))
    folder.mkdir(exist_ok=True)
    for path in () if chosen.only else folder.glob("*.svg"):
        path.unlink()
    for name, svg in pictures.items():
        (folder / f"{name}.svg").write_text(svg, encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
