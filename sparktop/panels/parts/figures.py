"""Figures alike in all panels: numbers and latencies, bars, states, sections, wrapped sentences, sources."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from functools import lru_cache
from itertools import pairwise
from string import ascii_uppercase

from msgspec import Struct

from sparktop.analysis.start_memory import FITS, SHORT
from sparktop.colors.palette import LEVELS, PARTS
from sparktop.graphics import numbers
from sparktop.graphics.cells import bar, cell_width, fit, segments
from sparktop.model.balance import BalanceWord
from sparktop.model.event import Alert, Finding, FindingKind, Severity
from sparktop.model.failure import FailureKind
from sparktop.model.router import Scrape, Sum, stale_s
from sparktop.model.series import Series
from sparktop.model.snapshot import BackendState, BackendView, Latency, NodeView, Quantile
from sparktop.model.text import with_units_joined
from sparktop.panels.parts.text import Row, Run, fit_row, row_width

LATENCY_WIDTH = 8
"""Width in cells of a latency with its sign: ">9.99 s" or " 1234 ms", padded."""
_RATES_S = 10.0
"""Seconds of the usual window of rates."""
_NEARLY = 0.9
"""Share of the usual window of a rate from which on the window counts as complete: a poll may be late or
lost."""


def label(text: str, width: int = 0) -> Run:
    """Return `text` as a muted run (styled text segment), padded to `width` cells unless that is 0."""
    return (fit(text, width) if width else text, "muted")


def label_row(*parts: str | Run) -> Row:
    """Return a row of runs; a text alone is a label."""
    return [label(part) if isinstance(part, str) else part for part in parts]


LIVE = "title"
"""Role of what matters most now: token rates, requests that run or wait, GPU use. The only bold values."""


def figure(text: str, role: str = "text") -> Run:
    """Return the value `text` as a run (text segment) in the colour of `role`; "–" (unknown) is muted."""
    return (text, "muted" if text.strip() == numbers.UNKNOWN else role)


def count_with_unit(value: float | None, width: int, unit: str, role: str = "text") -> Row:
    """Return a value without decimals in `width` cells, and its unit."""
    return [figure(numbers.count(value, width), role), label(unit)]


def sum_run(total: Sum, text_of: Callable[[float | None, int], str], width: int, role: str = "text") -> Run:
    """Return a sum in `width` cells, 0 for as many as it needs; "≥" stands before a lower bound."""
    text = f"{total.sign}{text_of(total.value, width - len(total.sign) if width else 6).strip()}"
    return (fit(text, width, "right") if width else text, role if total.value is not None else "muted")


def quantile_text(quantile: Quantile | None, width: int = LATENCY_WIDTH) -> str:
    """Format a quantile of a latency in `width` cells, such as "1.2 s"; "–" if unknown.

    The text begins with "<" or ">" where the quantile is beyond the bounds of the histogram's buckets, and is
    "≤" and the upper edge of its bucket where that is a wide one.
    """
    if quantile is None:
        return fit("–", width, "right")
    sign, edge_s = quantile.bound_sign, quantile.seconds
    if quantile.bucket_s:
        sign, (_, edge_s) = sign or "≤", quantile.bucket_s
    return fit(sign + numbers.duration(edge_s, width - 1).strip(), width, "right")


LONG_FEW = "a few were very long"
"""What a mean at or above the p95 shows, which reads as a mistake without a word."""


def none_seen(latency: Latency) -> str:
    """Return the words for a latency without an observation: "none in 60 s"; "–" where none is counted."""
    if latency.count is None:
        return "–"
    return f"none in {latency.window_s:.0f} s" if latency.window_s else "none yet"


def latency_row(name: str, latency: Latency, width: int) -> Row:
    """Return a row with the label `name` and a latency's p50 and p95; also its mean if `width` allows it.

    Behind them stand the seconds that they cover, where these fit. Where the mean has no room, it
    replaces a p50 of the same bucket as the p95, which says nothing more; not a mean above that, which needs
    more words.
    With too few observations for quantiles the row has the mean and the reason. Without any observation it
    says in how many seconds there was none: requests may still run.
    """
    if not latency.count:
        return [label(name, 6), (none_seen(latency), "muted")]
    row: Row = [label(name, 6)]
    if latency.p50 is None and latency.mean_s is not None:
        span = f" in {latency.window_s:.0f} s" if latency.window_s else ""
        few = latency.note or f"only {latency.count:.0f}{span}"
        return [*row, *_named_value("mean", numbers.duration(latency.mean_s, 8), 8), (f"  {few}", "muted")]
    is_wide = width >= row_width(row) + 13 + 14 + 16
    is_one_bucket = quantile_text(latency.p50) == quantile_text(latency.p95)
    if is_one_bucket and not is_wide and latency.mean_s is not None and not latency.has_long_few:
        row += _named_value("mean", numbers.duration(latency.mean_s, 8), 8)
    else:
        row += _quantile("p50", latency, latency.p50)
    row += _quantile(" p95", latency, latency.p95)
    if is_wide:
        row += _named_value("  mean", numbers.duration(latency.mean_s, 9), 9)
        few = f" ({LONG_FEW})"
        row += [label(few)] if latency.has_long_few and row_width(row) + len(few) <= width else []
    span = f" ({latency.window_s:.0f} s)" if latency.window_s else ""
    return [*row, label(span)] if row_width(row) + len(span) <= width else row


def latency_role(latency: Latency, quantile: Quantile | None) -> str:
    """Return the role (colour name) of a quantile: "warn" where it is slow, else "text"."""
    return "warn" if latency.is_slow(quantile) else "text"


def _quantile(name: str, latency: Latency, quantile: Quantile | None) -> Row:
    (head, (text, role)) = _named_value(name, quantile_text(quantile), LATENCY_WIDTH)
    return [head, (text, latency_role(latency, quantile) if role == "text" else role)]


def _named_value(name: str, value: str, width: int) -> Row:
    return [(f"{name} ", "muted"), figure(fit(value, width, "right"))]


def bar_runs(fraction: float | None, width: int, gradient: str) -> Row:
    """Return a bar of `width` cells, filled to `fraction` (0 to 1); an empty bar if it is None.

    The colour of the bar is taken from `gradient` at the position `fraction`.
    """
    filled, empty = bar(fraction, width)
    level = 0 if fraction is None else round(min(1.0, max(0.0, fraction)) * (LEVELS - 1))
    return [(filled, f"{gradient}/{level}"), (empty, "bar_empty")]


def share_role(percent: float | None, warn: float, bad: float) -> str:
    """Return the role (colour name) of a percentage: "bad" if at least `bad`, "warn" if at least `warn`.

    "muted" if `percent` is None; "text" for smaller percentages.
    """
    if percent is None:
        return "muted"
    if percent >= bad:
        return "bad"
    return "warn" if percent >= warn else "text"


def live_words(view: BackendView) -> str:
    """Return the time that a backend's newest rates cover as text: "1 s", or more between slower samples."""
    between_s = view.history.generation_tps.interval_s or 1.0
    if view.scrape is not None:
        between_s = view.scrape.every_s
    elif view.page_every_s is not None:
        between_s = view.page_every_s
    return f"{max(1.0, round(2 * between_s) / 2):g} s"


def rate_words(view: BackendView) -> str:
    """Return the time window of a backend's rates as text: "over 10 s", or "over 2 s" of a new one."""
    window_s = view.rate_window_s
    if window_s is None or _NEARLY * _RATES_S <= window_s <= _RATES_S / _NEARLY:
        return f"over {_RATES_S:.0f} s"
    return f"over {max(1, round(window_s))} s"


STATE_ROLES = {
    BackendState.CONNECTING: "muted",
    BackendState.UNREACHABLE: "bad",
    BackendState.ENGINE_DEAD: "bad",
    BackendState.LOADING: "warn",
    BackendState.ASLEEP: "muted",
    BackendState.STUCK: "bad",
    BackendState.SUSPECT: "warn",
    BackendState.STILL: "warn",
    BackendState.PREEMPTING: "bad",
    BackendState.KV_FULL: "bad",
    BackendState.QUEUEING: "warn",
    BackendState.STALE: "warn",
    BackendState.BUSY: "good",
    BackendState.BORED: "info",
    BackendState.IDLE: "muted",
    BackendState.UNKNOWN: "muted",
}
"""The role of each backend state; the state is always written out, too."""

_SHORT_BY_SWEEP = {BackendState.KV_FULL: "full (sweep)", BackendState.QUEUEING: "queue (sweep)"}
"""Words of 13 letters or fewer for states that a sweep of this program causes."""

SHORT_STATES = {
    BackendState.CONNECTING: "connects",
    BackendState.UNREACHABLE: "down",
    BackendState.ENGINE_DEAD: "dead",
    BackendState.PREEMPTING: "preempts",
    BackendState.STILL: "stalled",
}
"""Words of eight letters or fewer for states with longer names, for narrow places."""

_SHORT_PAST = {
    BackendState.PREEMPTING: "preempted",
    BackendState.KV_FULL: "was full",
    BackendState.QUEUEING: "queued",
    BackendState.BUSY: "was busy",
}
"""The same for states that may be past."""


def state_role(view: BackendView) -> str:
    """Return the role of a backend's state: calm where a sweep of this program explains it."""
    return "info" if view.is_full_by_sweep else STATE_ROLES[view.state]


def state_words(view: BackendView) -> tuple[str, ...]:
    """Return texts for a backend's state, the longest first."""
    past = _SHORT_PAST.get(view.state)
    if view.is_state_past and past is not None:
        return view.state_text, f"was {view.state.value}", past
    by_sweep = (_SHORT_BY_SWEEP.get(view.state),) if view.is_full_by_sweep else ()
    texts = (view.state_text, *by_sweep, view.state.value, SHORT_STATES.get(view.state))
    return tuple(text for text in texts if text is not None)


def wait_role(view: BackendView, calm: str = "title") -> str:
    """Return the role of a backend's waiting requests; `calm` where none waits, or a sweep lets them wait."""
    return "warn" if view.waiting and not view.in_sweep else calm


def alarm(view: BackendView, role: str) -> str:
    """Return `role`, that of a figure which is too high, or "text" while a sweep of this program loads it."""
    return "text" if view.in_sweep else role


WORD_ROLES = {
    BalanceWord.UNKNOWN: "muted",
    BalanceWord.IDLE: "muted",
    BalanceWord.OSCILLATING: "bad",
    BalanceWord.STARVED: "bad",
    BalanceWord.UNEVEN: "warn",
    BalanceWord.BALANCED: "good",
}
"""The role of each verdict on balance; the verdict is always written out, too."""


SEVERITY_SIGNS = {Severity.INFO: "·", Severity.WARNING: "▲", Severity.CRITICAL: "✖"}
"""The sign of an alert or event: critical is the sign of servers and machines that do not answer, too."""
_BY_SEVERITY = {Severity.INFO: "text", Severity.WARNING: "warn", Severity.CRITICAL: "bad"}
_ALERTED_STATES = {"kv-full": BackendState.KV_FULL, "preempting": BackendState.PREEMPTING}
"""The state that a backend's panel shows while an alert with this condition holds."""


def alert_role(alert_id: str, severity: Severity) -> str:
    """Return the role of an alert: that of the state or verdict that its panel shows, else by severity."""
    kind, _, alert_name = alert_id.partition(":")
    condition = alert_name.rpartition(":")[2]
    verdict = next((word for word in BalanceWord if kind == "balance" and word.value == condition), None)
    if severity is Severity.WARNING and verdict is not None:
        return WORD_ROLES[verdict]
    if severity is Severity.WARNING and condition in _ALERTED_STATES:
        return STATE_ROLES[_ALERTED_STATES[condition]]
    return _BY_SEVERITY[severity]


def severity_role(severity: Severity) -> str:
    """Return the role of what has this severity."""
    return _BY_SEVERITY[severity]


def alerts_sign(alerts: Sequence[Alert]) -> str:
    """Return the sign of each severity among alerts, with their number if there are several: "✖4 ▲2 ".

    Remarks count only where nothing needs attention.
    """
    counts = Counter(alert.severity for alert in alerts)
    if len(counts) > 1:
        del counts[Severity.INFO]
    several = counts.total() > 1
    gravest_first = [severity for severity in reversed(Severity) if counts[severity]]
    return "".join(f"{SEVERITY_SIGNS[each]}{counts[each] if several else ''} " for each in gravest_first)


def part_role(index: int) -> str:
    """Return the role (colour name) of the backend or target with this index; roles repeat after eight."""
    return PARTS[index % len(PARTS)]


def part_letter(index: int) -> str:
    """Return the letter of a sweep's target with this index, "A" for 0; letters repeat after "Z".

    A capital, because "c" is the concurrency. Servers have no letters: they are shown by name.
    """
    return ascii_uppercase[index % len(ascii_uppercase)]


WIDE_FACTS = 52
"""Column width in cells from which on two values in a row have room for longer labels."""
_LABELS, _WIDE_LABELS = 10, 11
"""Width in cells of the labels in a narrow and in a wide column."""
VALUE_WIDTH = 6
"""Width in cells of a value beside its label."""


def name_width(width: int) -> int:
    """Return the width in cells of the labels at the left, in a column of `width` cells."""
    return _WIDE_LABELS if width >= WIDE_FACTS else _LABELS


class ViewSection(Struct, frozen=True):
    """A part of a full-screen view: a title, and rows below it.

    `window` says which time the values cover ("now", "over 60 s"). It stands at the right end of the
    title's row.
    """

    title: str
    rows: Sequence[Row]
    window: str = ""

    def lines(self, width: int) -> list[Row]:
        """Return the title as a row, followed by the section's rows, all `width` cells wide."""
        return [heading(self.title, self.window, width), *(fit_row(row, width) for row in self.rows)]


def heading(title: str, window: str, width: int) -> Row:
    """Return a horizontal line of `width` cells with the title at its left and `window` at its right."""
    return ruled_line([("─ ", "border"), (title, "accent"), (" ", "border")], window, width)


def ruled_line(left: Row, window: str, width: int) -> Row:
    """Return a line of `width` cells behind `left`, with the text `window` at its right if it fits."""
    right: Row = [(f" {window} ", "muted"), ("─", "border")] if window else []
    gap = width - row_width(left) - row_width(right)
    if gap < 1:
        left = fit_row(left, min(width, row_width(left)))
        return [*left, ("─" * (width - row_width(left)), "border")]
    return [*left, ("─" * gap, "border"), *right]


def stack(sections: Sequence[ViewSection], width: int, height: int) -> list[Row]:
    """Return the rows of all sections, one section below the other.

    Blank rows separate the sections if all rows then fit into `height`.
    """
    needed = sum(len(section.rows) + 1 for section in sections)
    airy = needed + len(sections) - 1 <= height
    rows: list[Row] = []
    for section in sections:
        if rows and airy:
            rows.append(fit_row((), width))
        rows += section.lines(width)
    return rows


def fact(name: str, text: str, unit: str = "", *, role: str = "text") -> Row:
    """Return [label, value, unit] for `facts`; a value of "–" (unknown) is muted and has no unit."""
    is_known = text.strip() != numbers.UNKNOWN
    return [label(name), (text, role if is_known else "muted"), label(unit if is_known else "")]


def facts(cells: Sequence[Row], width: int, columns: int = 2) -> list[Row]:
    """Arrange results of `fact` in `columns` aligned columns: labels left-aligned, values right-aligned."""
    cell_width = width // columns
    names = name_width(width) if columns == 2 else max(1, cell_width - VALUE_WIDTH - 1)
    padded: list[Row] = []
    for name, value, *rest in cells:
        text = value[0].strip().rjust(VALUE_WIDTH)
        padded.append(fit_row([label(name[0], names), (text, value[1]), *rest], cell_width))
    return beside(padded, columns)


def beside(cells: Sequence[Row], columns: int) -> list[Row]:
    """Join cells, which are equally wide pieces of rows, to rows of `columns` cells, in reading order."""
    return [
        [run for cell in cells[start : start + columns] for run in cell]
        for start in range(0, len(cells), columns)
    ]


def two_columns(rows: Iterable[Row], width: int) -> list[Row]:
    """Return rows of `width` cells with two of `rows` side by side in each."""
    return beside([fit_row(row, width // 2) for row in rows], 2)


def percent_bar(name: str, percent: float | None, gradient: str, after: Row, width: int, tail: int) -> Row:
    """Return what `bar_row` does for a percentage (0 to 100); None if it is unknown."""
    return bar_row(name, None if percent is None else percent / 100, gradient, after, width, tail)


def bar_row(name: str, share: float | None, gradient: str, after: Row, width: int, tail: int) -> Row:
    """Return a row with a label, a bar filled to `share` (0 to 1; None if unknown), and the text `after`.

    `tail` is the width in terminal cells that is reserved for `after`.
    """
    length = max(4, width - name_width(width) - tail - 1)
    return [label(name, name_width(width)), *bar_runs(share, length, gradient), (" ", "text"), *after]


def percent_run(percent: float | None, width: int = 5, *, role: str = "text") -> Row:
    """Return a row with a percentage (0 to 100) in `width` cells as its only text segment; "–" for None."""
    return [figure(numbers.percent(percent, width), role)]


class BarPart(Struct, frozen=True):
    """One part of a bar that is made of several parts, such as the uses of memory."""

    name: str
    size: float | None
    sign: str
    """The character that fills the part, so that parts differ in more than colour."""
    role: str


def segmented_bar(parts: Sequence[BarPart], total: float, width: int) -> Row:
    """Return a bar of `width` cells that is divided among `parts` by their part of `total`.

    The last part takes all cells that the others leave.
    """
    widths = segments([part.size or 0.0 for part in parts[:-1]], total, width)
    return [(part.sign * cells, part.role) for part, cells in zip(parts, widths, strict=True) if cells]


def legend(parts: Sequence[BarPart], width: int) -> list[Row]:
    """Return a legend of a bar's parts as rows: sign, name and size in bytes, two parts per row."""
    size = 9 if width >= WIDE_FACTS else 8
    room = width // 2 - size - 4
    if any(cell_width(part.name) > room for part in parts):
        room += 1  # without the blank between both
    return two_columns(
        (
            [
                (part.sign, part.role),
                label(f" {fit(part.name, room)} "),
                figure(numbers.data(part.size, size)),
            ]
            for part in parts
        ),
        width,
    )


_JOINED = "\0"
"""Stands for a space at which no line may end."""


def flow_pieces(pieces: Sequence[Row], width: int) -> list[Row]:
    """Join pieces of text with " · ", on as many rows of `width` cells as needed; no piece is split."""
    rows: list[Row] = []
    for piece in pieces:
        if rows and row_width(rows[-1]) + 3 + row_width(piece) <= width:
            rows[-1] += [label(" · "), *piece]
        else:
            rows.append(list(piece))
    return rows


@lru_cache(maxsize=128)
def wrap_sentence(text: str, width: int) -> tuple[str, ...]:
    """Wrap a sentence at spaces into lines of at most `width` cells; a longer word is cut with "…".

    A number and its unit stay in one line.
    """
    lines: list[str] = []
    for joined in with_units_joined(text, _JOINED).split():
        word = joined.replace(_JOINED, " ")
        if lines and cell_width(lines[-1]) + 1 + cell_width(word) <= width:
            lines[-1] += f" {word}"
        else:
            lines.append(word if cell_width(word) <= width else fit(word, width))
    return tuple(lines)


def finding_note(findings: tuple[Finding, ...]) -> Row:
    """Return the most severe finding for the edge of a panel with the key that shows all; [] without one.

    Where several need attention, their number stands behind the sign, as in the header.
    """
    graded = [(finding.severity, finding) for finding in findings if finding.severity is not None]
    if not graded:
        return []
    severity, finding = max(graded, key=lambda worst: worst[0].rank)
    several = f"{len(graded)}" if len(graded) > 1 else ""
    sign = f"{SEVERITY_SIGNS[severity]}{several} "
    return [*_note_runs(sign, finding, _BY_SEVERITY[severity]), ("enter ", "key")]


def _note_runs(sign: str, finding: Finding, role: str) -> Row:
    """Return a sign and the line; apart from it how sure it is, which stays where the line is cut."""
    doubt: Row = [(f"{finding.doubt.lstrip()} ", role)] if finding.doubt else []
    return [(f" {sign}{finding.line} ", role), *doubt]


START_KINDS = frozenset({SHORT, FITS})
"""Kinds of findings on the memory that a start or waking takes, of a server and of its machine."""


def calm_note(findings: Sequence[Finding]) -> Row:
    """Return the first finding for the edge of a panel where none needs attention; [] without one.

    The key that shows more follows, but for yardsticks: what they are is in their words.
    """
    if not findings:
        return []
    key: Row = [] if findings[0].kind == FindingKind.YARDSTICKS else [("enter ", "key")]
    return [*_note_runs("", findings[0], "muted"), *key]


def findings_section(findings: Sequence[Finding], width: int) -> list[ViewSection]:
    """Return a list with the section of findings for a column of `width` cells; empty without findings."""
    rows: list[Row] = []
    for finding in findings:
        role = "text" if finding.severity is None else _BY_SEVERITY[finding.severity]
        sign = " " if finding.severity is None else SEVERITY_SIGNS[finding.severity]
        rows += sentence_rows((f"{sign} ", role), finding.words, role, width)
        cells = max((cell_width(name) for name, _ in finding.evidence), default=0) + 3
        for name, text in finding.evidence:
            first, *rest = wrap_sentence(text, max(10, width - cells)) or ("",)
            rows.append([label(f"  {name}", cells), (first, "text")])
            rows += [[label("", cells), (line, "text")] for line in rest]
    return [ViewSection("findings", rows)] if rows else []


def sentence_rows(mark: Run, text: str, role: str, width: int) -> list[Row]:
    """Return `text`, wrapped into rows behind `mark` (such as a bullet); further rows are indented."""
    indent = row_width([mark])
    lines = wrap_sentence(text, max(8, width - indent))
    return [[mark if not index else label(" " * indent), (line, role)] for index, line in enumerate(lines)]


_SLOW_PAGE_MS = 1000.0
"""From here on the age of the figures is shown: the page is computed at a time that is not known."""


def scrape_row(scrape: Scrape, age_s: float | None) -> Row:
    """Return which Prometheus a source is read from, and the age of its newest sample."""
    old = "no sample yet" if age_s is None else f"{numbers.age(age_s)} old"
    late = age_s is not None and age_s > stale_s(scrape.every_s)
    return [(f" {scrape.source} every {scrape.every_s:g} s, {old} ", "warn" if late else "muted")]


def slow_page(view: BackendView) -> str:
    """Return how long a server takes for its metrics page, and how old its figures are; "" below a second."""
    if view.poll_ms is None or view.poll_ms < _SLOW_PAGE_MS or view.age_s is None or view.failure is not None:
        return ""
    old = numbers.age(view.age_s + view.poll_ms / 1000)
    return f"page takes {view.poll_ms / 1000:.1f} s, figures up to {old} old"


def is_stale(view: NodeView) -> bool:
    """Return whether the newest sample of a node through a Prometheus is old."""
    return view.failure is not None and view.failure.kind is FailureKind.LATE


def has_failed(view: BackendView | NodeView) -> bool:
    """Return whether a server or machine does not answer, except while it loads or is not asked itself."""
    return view.failure is not None and view.failure.kind not in {FailureKind.LOADING, FailureKind.LATE}


def failure_role(view: BackendView | NodeView) -> str:
    """Return the role of a failure: a server that loads, or whose Prometheus fails, is not at fault."""
    return "bad" if has_failed(view) else "warn"


def failed_since(view: NodeView) -> str:
    """Return since when a node fails, and how old its figures are: " since 09:00:07, figures 16 s old".

    "" where neither is known. The age of a sample through a Prometheus stands in the upper edge.
    """
    since = "" if view.failing_since is None else f" since {view.failing_since.astimezone():%H:%M:%S}"
    if view.age_s is None or is_stale(view):
        return since
    return f"{since}, figures {numbers.age(view.age_s)} old"


_PACE_S = 15.0
"""Newest seconds whose median interval is shown: a single sample may be asked for early."""


def _usual_interval_s(series: Series) -> float | None:
    """Return the median of the newest seconds between two points; None with fewer than two points."""
    times = [at for at, _ in series.since((series.last_at or 0.0) - _PACE_S)]
    between_s = sorted(later - at for at, later in pairwise(times))
    return between_s[len(between_s) // 2] if between_s else series.interval_s


def read_by(view: NodeView, *more: str | None) -> Row:
    """Return how a node is read and how often, and `more` words; of a Prometheus with the sample's age."""
    if view.scrape is not None:
        return scrape_row(view.scrape, view.age_s)
    between_s = _usual_interval_s(view.history.cpu_percent)
    every = "" if between_s is None else f"every {max(1, round(2 * between_s)) / 2:g} s"
    return [label(f" {' · '.join(part for part in (view.via, every, *more) if part)} ")]
