"""A sweep result with everything that a report can show."""

from __future__ import annotations

import html
import json
import re
from collections.abc import Iterator, Sequence

from sparktop.commands.sweep.run import level_line
from sparktop.panels.parts.text import row_text
from sparktop.panels.sweep.history import history_screen
from sparktop.panels.sweep.screen import curves_screen, notices_screen, sweep_band, sweep_screen
from sparktop.panels.sweep.topology import topology_screen
from sparktop.sweep.formats.written import sweep_report
from sparktop.sweep.history import stored_row
from sparktop.sweep.plan.plan import TargetKind
from sparktop.sweep.result.results import (
    Holds,
    LevelResult,
    NodeSide,
    RequestColumns,
    ServerSide,
    SloResult,
    SweepResult,
    TargetResult,
    Validity,
)
from sparktop.sweep.view.result import result_view
from tests.sweep.made_results import made_level, made_sweep

NODES = ("node-x", "node-y")
BACKENDS = ("alpha", "omega")


def full_level(concurrency: int, step: float = 0.25, backends: Sequence[str] = BACKENDS) -> LevelResult:
    """Return a level of a router: a split of each run, batches, machines, marks and single requests."""
    made = made_level(concurrency, step=step)
    count = 3 * concurrency
    each = (made.each or RequestColumns()).model_copy(
        update={
            "ttft_ms": tuple(900.0 + 37 * index % 400 for index in range(count)),
            "served_by": tuple(index % 2 for index in range(count)),
            "backends": tuple(backends),
        }
    )
    first, second = backends
    half = count // 2
    return made.model_copy(
        update={
            "each": each,
            "served_by": {first: half, second: count - half},
            "runs_split": tuple({first: run, second: concurrency - run} for run in range(3)),
            "busy_batch": {first: 1.5, second: 2.5},
            "backends": {name: ServerSide(waiting_max=2.0) for name in backends},
            "hardware": {
                name: NodeSide(gpu_c_max=71.0, power_w_mean=48.0, headroom_min_bytes=9 * 2**30)
                for name in NODES
            },
            "padding_percent": 20.0,
            "roofline_percent": 52.0 if concurrency == 1 else None,
            "validity": (Validity(code="queue_limited", message=f"{first} had 2 waiting"),),
        }
    )


def full_sweep(
    router: str = "proxy", alone: str = "alpha", url: str = "http://10.1.2.3:4000", model: str = "org/model"
) -> SweepResult:
    """Return a sweep of a router and of one of its servers alone."""
    backends = (alone, "omega")
    routed = [full_level(concurrency, 0.2, backends) for concurrency in (2, 4, 8)]
    levels = [made_level(1), *(made_level(one, step=0.3) for one in (2, 4, 8))]
    slo = SloResult(
        conditions=("ttft_p90_ms ≤ 2000",), holds_to={router: Holds(concurrency=4, interval=(4, 7))}
    )
    result = made_sweep((router, routed), (alone, levels))
    targets = (
        TargetResult(name=router, url=url, kind=TargetKind.ROUTER, model=model, levels=tuple(routed)),
        TargetResult(name=alone, url="http://10.1.2.4:8000", model=model, levels=tuple(levels)),
    )
    return result.model_copy(update={"targets": targets, "slo": slo, "guard": "stops below 8 GiB on node-x"})


def texts_of(result: SweepResult) -> Iterator[tuple[str, str]]:
    """Yield (form, text) of all that a user reads of a result."""
    view = result_view(result)
    row = stored_row(result, "1.json")
    for width, height in ((80, 24), (120, 36), (200, 50)):
        drawn = {
            "screen": sweep_screen(view, width, height),
            "curves": curves_screen(view, width, height),
            "notices": notices_screen(view, width, height),
            "band": sweep_band(view, width, 14),
            "results": history_screen([row], width, height, chosen="1.json"),
        }
        if view.topologies is not None:
            drawn["topologies"] = topology_screen(view.topologies, width, height)
        yield from ((f"{form} {width}", "\n".join(map(row_text, rows))) for form, rows in drawn.items())
    for form in ("md", "post", "html"):
        text = sweep_report(result, form)
        text = html.unescape(re.sub(r"<style.*?</style>|<svg.*?</svg>|<[^>]+>", " ", text, flags=re.DOTALL))
        yield form, re.sub(r"[`*]", "", text)
    yield "json", str(json.loads(sweep_report(result, "json"))["headline"])
    yield "headline", view.headline or ""
    yield "verdict", "\n".join(view.verdict)
    yield (
        "lines",
        "\n".join(level_line(target.name, one) for target in result.targets for one in target.levels),
    )
