"""Files that version 0.2.0 left on a user's disk open as before, with the figures that it showed."""

from __future__ import annotations

import csv
import io
import json
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from sparktop.cli import main
from sparktop.commands.sweep.run import render
from sparktop.config.schema import load as load_config
from sparktop.files import find_config
from sparktop.panels.board.layout import Boxes
from sparktop.panels.board.view import Preset, Sort, View
from sparktop.sweep.history import History
from sparktop.sweep.plan import draft as last_choice
from sparktop.sweep.plan.draft import Draft
from sparktop.sweep.plan.presets import all_presets, find_preset
from sparktop.sweep.result.store import load, sweeps_folder
from sparktop.ui import remembered
from tests.known import known

OLD = Path(__file__).parent / "data" / "version_0_2_0"
EXPECTED = OLD / "expected"
SHORT, SEARCH = "20261122T220019Z-short.json", "20261122T220255Z-quick.json"
STOPPED, THROUGH_ROUTER = "20261122T220338Z-quick.json", "20261122T220210Z-quick.json"
DELETED, IMPORTED = "20261122T220225Z-quick.json", "imported/benchy.json"
RESULTS = (SHORT, THROUGH_ROUTER, SEARCH, STOPPED)


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, str]:
    """Return the environment of a user who has these files."""
    env = {f"XDG_{kind.upper()}_HOME": str(tmp_path / kind) for kind in ("config", "data", "state", "cache")}
    for kind in ("config", "data", "state", "cache"):
        shutil.copytree(OLD / kind, tmp_path / kind)
    for name, value in env.items():
        monkeypatch.setenv(name, value)
    monkeypatch.delenv("SPARKTOP_CONFIG", raising=False)
    monkeypatch.chdir(tmp_path)
    return env


@pytest.fixture
def history(home: dict[str, str]) -> History:
    shelf = History(sweeps_folder(home))
    shelf.find_changes()
    while shelf.read():
        pass
    return shelf


def test_the_history_lists_what_it_listed(history: History) -> None:
    """Each result has its row in the history, with its end, targets and figures."""
    rows = {row.key: (row.status, row.targets, row.levels, row.doubtful) for row in history.rows()}
    assert rows == {
        STOPPED: ("cancelled", ("proxy",), 3, 3),
        SEARCH: ("done", ("spark-a",), 2, 0),
        THROUGH_ROUTER: ("done", ("proxy",), 1, 1),
        SHORT: ("done", ("spark-a", "spark-b"), 4, 4),
        IMPORTED: ("imported", ("benchy",), 2, 0),
    }
    figures = {row.key: (round(row.decode_tps or 0, 1), round(row.ttft_ms or 0)) for row in history.rows()}
    assert figures[SEARCH] == (81.0, 156)
    assert figures[IMPORTED] == (199.9, 302)


@pytest.mark.parametrize("key", [*RESULTS, IMPORTED])
def test_each_result_opens_on_the_full_screen(history: History, key: str) -> None:
    """Each row of the history opens as a result, with series to compare."""
    assert (history.source(key).result is None) == (key == IMPORTED)
    assert history.series(key)


def test_what_was_deleted_stays_hidden(home: dict[str, str], history: History) -> None:
    """A result that 0.2.0 moved aside for undo is not listed; it and the file of remarks stay."""
    folder = sweeps_folder(home)
    aside = sorted(folder.glob(f".deleted/*/{DELETED}"))
    assert aside
    assert history.delete([STOPPED]).startswith("deleted ")
    assert DELETED not in {row.key for row in history.rows()}
    assert sorted(folder.glob(f".deleted/*/{DELETED}")) == aside
    assert (folder / ".remarks.json").is_file()


def _differences(before: Any, after: Any, place: str = "") -> Iterator[str]:  # noqa: ANN401 - any JSON
    """Yield the places where values of `before` are missing or different in `after`."""
    if isinstance(before, dict) and isinstance(after, dict):
        for name, value in before.items():
            if name in after:
                yield from _differences(value, after[name], f"{place}.{name}")
            else:
                yield f"{place}.{name} is missing"
    elif isinstance(before, list) and isinstance(after, list) and len(before) == len(after):
        for number, (one, other) in enumerate(zip(before, after, strict=True)):
            yield from _differences(one, other, f"{place}[{number}]")
    elif before != after:
        yield f"{place}: {before} became {after}"


@pytest.mark.parametrize("path", sorted((OLD / "data").rglob("2*.json")), ids=lambda path: path.name)
def test_nothing_of_a_result_is_lost(path: Path) -> None:
    """A result that is read and written again still holds every value that 0.2.0 wrote."""
    before = json.loads(path.read_text(encoding="utf-8"))
    assert list(_differences(before, load(path).to_json())) == []


@pytest.mark.parametrize("key", RESULTS)
def test_a_result_gives_the_same_table(key: str) -> None:
    """The CSV table holds each figure of 0.2.0 under the same name."""
    old = (EXPECTED / key).with_suffix(".csv").read_text(encoding="utf-8")
    new = render(load(OLD / "data/sparktop/sweeps" / key), "csv")
    before, after = (list(csv.DictReader(io.StringIO(text))) for text in (old, new))
    assert list(_differences(before, after)) == []


def test_a_result_prints_its_table(capsys: pytest.CaptureFixture[str], home: dict[str, str]) -> None:
    """`sparktop compare` prints the figures of an old result."""
    assert main(["compare", str(sweeps_folder(home) / SHORT)]) == 0
    printed = capsys.readouterr().out
    assert all(figure in printed for figure in ("56.4", "80.8", "55.5", "80.2"))


def test_old_results_compare_by_the_same_figures(
    capsys: pytest.CaptureFixture[str], home: dict[str, str]
) -> None:
    """A comparison of old and imported results holds the values that 0.2.0 compared."""
    folder = sweeps_folder(home)
    files = [str(folder / key) for key in (SHORT, SEARCH, IMPORTED)]
    assert main(["compare", "--format", "json", *files]) == 0
    printed = json.loads(capsys.readouterr().out)
    old = json.loads((EXPECTED / "comparison.json").read_text(encoding="utf-8"))
    assert _compared(old) == _compared(printed)


def _compared(comparison: dict[str, Any]) -> dict[tuple[str, int], dict[str, float]]:
    return {(row["metric"], row["concurrency"]): row["values"] for row in comparison["rows"]}


def test_the_store_is_listed(capsys: pytest.CaptureFixture[str], home: dict[str, str]) -> None:
    """`sparktop compare --list` names each stored sweep with its targets and its end."""
    assert main(["compare", "--list"]) == 0
    printed = capsys.readouterr().out
    folder = sweeps_folder(home)
    assert f"{folder / SHORT}  " in printed
    assert f"{folder / STOPPED}  2026-11-22 " in printed
    assert "  spark-a, spark-b  done\n" in printed
    assert "  proxy  cancelled\n" in printed


def test_the_last_choice_is_offered(home: dict[str, str]) -> None:
    """The editor opens with the fields of the last session, whose preset and targets still exist."""
    draft = last_choice.recall(remembered.state_file(home).with_name("sweep.json"))
    assert draft == Draft(
        preset="topology",
        targets=("proxy",),
        concurrency="1,2,4,8,16,32,64",
        pp="1024",
        tg="128",
        duration="12",
    )
    path = known(find_config(None, home))
    watch = load_config(path).watch(home)
    routers = {router.name for router in watch.routers}
    assert last_choice.without_missing(draft, all_presets(watch.sweeps), routers) == draft


def test_the_view_is_as_it_was_left(home: dict[str, str]) -> None:
    """Visible panels, view and sort order are those of the last session."""
    assert remembered.recall(remembered.state_file(home)) == View(
        preset=Preset.COMPACT, boxes=Boxes(events=True, self_cost=False), sort=Sort.NAME
    )


def test_the_configuration_is_read(home: dict[str, str]) -> None:
    """The configuration of 0.2.0 is found, passes the check, and its own preset keeps its settings."""
    path = known(find_config(None, home))
    watch = load_config(path).watch(home)
    assert [router.name for router in watch.routers] == ["proxy"]
    short = find_preset("short", watch.sweeps)
    assert (tuple(short.concurrency or ()), short.runs, short.requests, short.order) == ((1, 2), 2, 4, "abba")
    assert main(["config", "--check"]) == 0
