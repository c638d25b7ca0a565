"""Draws the panel of one router: its strategy, the current load of its backends, and its deployments."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from sparktop.graphics import numbers
from sparktop.graphics.cells import EMPTY, fit, segments
from sparktop.model.event import Progress
from sparktop.model.router import LITELLM, UNKNOWN_KIND, Deployment, RouterView
from sparktop.model.series import sum_if_all_known
from sparktop.panels.parts.figures import SEVERITY_SIGNS, figure, label, label_row, part_role, severity_role
from sparktop.panels.parts.text import (
    Row,
    Run,
    fit_row,
    fitted_names,
    frame_role,
    frame_rows,
    in_role,
    name_tab,
    row_width,
)

_FILLS = "■▬▮▰"
"""Signs of the backends in the bar of shares, used in turn, so that neighbours differ even without colour."""
_BAR_MIN, _BAR_MAX = 8, 40
"""Least and greatest cells of a bar."""
_NAME = 16
"""Cells of a backend's name."""
_UNMAPPED = "✖ unmapped"
_STATE_ROLES = {
    "loading": "warn",
    "unreachable": "bad",
    "connecting": "muted",
    "alive": "good",
    "answers": "accent",
}


def router_panel(view: RouterView, width: int, height: int, *, selected: bool = False) -> list[Row]:
    """Draw one router as `height` rows of `width` cells: 3 rows, or more if only the router is shown."""
    inner, inside = width - 4, height - 2
    # The share comes from the backends: it is as fresh as their samples, even if the router failed.
    deployments = [_deployments_count(view)]
    if inside > 1:
        deployments = [[], *_deployments_table(view, inner, inside - 2)]
    if view.failure is not None or view.age_s is None:
        deployments = [in_role(row, "stale") for row in deployments]
    if inside <= 1:
        rows = [[*_shares_row(view, inner - row_width(deployments[0]) - 2), ("  ", "text"), *deployments[0]]]
    else:
        rows = [_shares_row(view, inner), *deployments]
    rows = [fit_row([(" ", "text"), *row], width - 2) for row in rows]
    state: Run = ("slow", "warn") if view.ok and view.slow else (view.state, _STATE_ROLES[view.state])
    since = view.answering_since if view.ok else None
    if not view.ok and view.failure is not None:
        since = view.failing_since
    footnote, note = _footnotes(view, inside)
    return frame_rows(
        rows,
        width,
        height,
        role=frame_role("router", selected=selected, failed=view.failure is not None),
        title=name_tab("router", view.name),
        state=state,
        about=_software_row(view),
        status=[] if since is None else [label(f" since {since.astimezone():%H:%M:%S} ")],
        footnote=footnote,
        note=note,
    )


def _software_row(view: RouterView) -> Row:
    kind = "" if view.sample.kind == UNKNOWN_KIND else view.sample.kind
    name = " ".join(part for part in (kind, view.sample.version) if part)
    software = label(" · ".join((name, *_own_counts(view))) + " ")
    if view.strategy is None and view.sample.kind not in {UNKNOWN_KIND, LITELLM}:
        return [("─ ", "border"), software]  # it has none that it reports
    if view.strategy is None:
        return [("─ ", "border"), label("strategy – "), software]
    reported = label("" if view.strategy_read else "(config) ")
    return [("─ ", "border"), (f"{view.strategy} ", "text"), reported, software]


def _own_counts(view: RouterView) -> Iterator[str]:
    """Yield what the router counts itself: requests that wait in it, and all that have not ended."""
    for title, value in (("queued", view.sample.queued), ("in flight", view.sample.in_flight)):
        if value is not None:
            yield f"{title} {numbers.count(value, 6).strip()}"


def _footnotes(view: RouterView, inside: int) -> tuple[Row, Row]:
    """Return the texts of the frame's lower edge: (for the left, for the right).

    At the left stands the failure, else which backends are stuck, else what is wrong with deployments, else
    the router's note, and its URL where each deployment has a row; at the right the duration of the last
    poll. `inside` is the number of rows inside the frame.
    """
    if view.failure is not None:
        stale = "" if view.age_s is None else f" last answer {numbers.age(view.age_s)} ago:"
        return [(f" ✖{stale} {view.failure.message} ", "bad")], []
    poll: Row = [] if view.poll_ms is None else [(f" answered in {view.poll_ms:.0f} ms ", "muted")]
    if view.stuck:
        listed = "; ".join(f"{name}: {words}" for name, words in view.stuck.items())
        # Red is what is certain, as the backend's own word and alert are.
        unsure = all(words.startswith(Progress.SUSPECT.in_words) for words in view.stuck.values())
        return [(f" ▲ {listed} ", "warn") if unsure else (f" ✖ {listed} ", "bad")], poll
    if view.deployment_troubles:
        listed = "; ".join(view.trouble_sentences)
        sign, role = SEVERITY_SIGNS[view.trouble_severity], severity_role(view.trouble_severity)
        return [(f" {sign} {listed} ", role)], poll
    if view.slow is not None:
        return [(f" ▲ slow: {view.slow} ", "warn")], poll
    note = None if inside > 1 and view.deployments is None else view.sample.note
    words = " · ".join(part for part in (note, view.url if inside > 1 else None) if part)
    return [(f" {words} ", "muted")] if words else [], poll


def _shares_row(view: RouterView, width: int) -> Row:
    """Return a row with each backend's share of the requests that run now: a bar of parts, then numbers."""
    head = label("run ")
    parts = {name: view.running.get(name) for name in view.backends}
    if not parts:  # none is watched: what the router itself counts, by its own names
        requests_by_deployment = (view.sample.sent or {}).items()
        parts = {name.partition("://")[2] or name: load for name, load in requests_by_deployment}
    if not parts:
        words = ", ".join(_own_counts(view)) or "no backend that is watched is behind it"
        return [head, (words, "muted")]
    loads = list(parts.values())
    total = sum_if_all_known(loads)
    key = _parts_legend(parts, total)
    *last_part, _gap_behind = key[-1]
    key[-1] = last_part
    room = width - row_width([head]) - 2 - sum(row_width(part) for part in key)
    length = min(_BAR_MAX, max(_BAR_MIN, 3 * len(key), room))
    track = numbers.UNKNOWN if total is None else EMPTY
    bar: Row = [(track * length, "bar_empty")]
    if total:
        widths = segments([load or 0.0 for load in loads], total, length)
        bar = [(_part_sign(at) * cells, part_role(at)) for at, cells in enumerate(widths[:-1]) if cells]
    row: Row = [head, *bar, ("  ", "text")]
    left = width - row_width(row)
    for number, part in enumerate(key):
        remainder = f"+{len(key) - number}"
        kept_free = 0 if number == len(key) - 1 else len(remainder)
        if row_width(part) > left - kept_free:
            return [*row, (remainder, "muted")]
        row += part
        left -= row_width(part)
    return row


def _part_sign(index: int) -> str:
    """Return the sign of a backend's part of the bar; letters are those of a sweep's targets."""
    return _FILLS[index % len(_FILLS)]


def _parts_legend(parts: Mapping[str, float | None], total: float | None) -> list[Row]:
    names = fitted_names(tuple(parts), _NAME)
    return [
        label_row(
            (_part_sign(index), part_role(index)),
            (f" {names[name].rstrip()}", "text"),
            figure(numbers.count(load, 4)),
            label(numbers.percent(100 * load / total if load is not None and total else None, 6)),
            "   ",
        )
        for index, (name, load) in enumerate(parts.items())
    ]


def _deployments_count(view: RouterView) -> Row:
    """Return a row with the number of deployments.

    If there are deployments without a watched backend, return the number of these instead.
    """
    if view.deployments is None:
        return [label("deployments –")]
    unmapped = sum(name is None for name in view.deployments.values())
    if unmapped:
        return [(f"{unmapped} {_UNMAPPED}", "warn")]
    return [label(numbers.count_words(len(view.deployments), "deployment"))]


def _address_and_model(deployment: Deployment, room: int) -> str:
    """Return both in at most `room` cells; what does not fit is cut to its last part, or left out."""
    details = ""
    for whole in (deployment.address or "no address", deployment.model or ""):
        for text in (whole, whole.rpartition("/")[2]):
            if text and len(details) + 2 + len(text) <= room:
                details += f"  {text}"
                break
    return details


def _deployments_table(view: RouterView, width: int, height: int) -> list[Row]:
    """Return a heading and a row per deployment with its backend, address and model, `height` rows at most.

    The last row counts the deployments that do not fit.
    """
    if view.deployments is None:
        return [[label("deployments – "), label(view.sample.note or "it does not list its deployments")]]
    if not view.deployments:
        return [[label("deployments "), ("no deployment", "warn")]]
    deployments, from_config = view.sample.deployments, ""
    if deployments is None:
        deployments = tuple(Deployment(name) for name in view.deployments)
        from_config = "   (from the config)"
    cells = min(40, max([10, *(len(deployment.id) for deployment in deployments)]))
    rows: list[Row] = [
        [label(f"{fit('deployment', cells)}   {fit('backend', _NAME)}  address and model{from_config}")]
    ]
    for deployment in deployments:
        backend = view.deployments[deployment.id]
        where: Run = (fit(_UNMAPPED, _NAME), "warn") if backend is None else (fit(backend, _NAME), "title")
        details = _address_and_model(deployment, width - cells - 3 - _NAME)
        trouble = view.deployment_troubles.get(deployment.id)
        sign, role = SEVERITY_SIGNS[view.trouble_severity], severity_role(view.trouble_severity)
        told: Row = [] if trouble is None else [(f"  {sign} {trouble}", role)]
        rows.append([(fit(deployment.id, cells), "text"), label(" → "), where, *told, label(details)])
    if len(rows) > height:
        hidden = len(rows) - height + 1
        rows = [*rows[: max(1, height - 1)], [label(f"… and {hidden} more deployments")]]
    return rows
