"""Slow link: the ranks of an engine wait for a network that carries far less than its ports negotiated.

A low rate alone says nothing: a link may have nothing to carry. What a slow link adds to a step grows with
the bytes of the step; what a slow GPU adds grows with the step itself. So the batch has to vary before one is
told from the other; until then it is unknown. Steps are compared with the best of this session or of earlier
ones. A link that was never faster is named only where it carries the same at all batches, so that steps
take as long as their bytes, while a GB10 draws too little power to compute. This is inferred; nothing
reports it.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Iterator, Sequence
from itertools import groupby
from statistics import fmean, median, pstdev
from typing import NamedTuple

from sparktop.analysis.speed_state import SLOW_CLOCK, THROTTLED, is_gb10
from sparktop.analysis.stall import GB10_POWER_W
from sparktop.analysis.yardsticks import own_best
from sparktop.model.event import Finding, FindingKind, Severity, Sure
from sparktop.model.explained import FINDINGS
from sparktop.model.series import known_max, known_min, known_values
from sparktop.model.snapshot import BackendView, NodeView, Situation

KIND = FindingKind.SLOW_LINK
SLOWER = 1.3
"""Steps count as slow from this multiple of the server's own best at this batch on."""
_WELL = 1.1
"""Steps up to this multiple of the best count as the best: power and clock then are the usual ones."""
BUSY_PERCENT, LOW_POWER_SHARE, CLOCK_SHARE = 85.0, 0.85, 0.9
"""Ranks that wait for the network keep the GPU in use, at its usual clock, with less than its usual power."""
LINK_SHARE = 0.4
"""Of the negotiated rate: what a link carries beyond this share is not far below it."""
_LEAST_BYTES_PER_S = 5e7
"""Traffic below which the ranks do not wait for the link: 0.4 Gb/s."""
_HELD_S, _LEAST_S, _FEWEST, _SLOW_PART = 60.0, 30.0, 6, 0.8
"""Seconds that are judged, seconds that their samples must cover, samples that there must be, and share of
these with slow steps. If machines are read too seldom for that, the newest samples of two minutes count."""
_WINDOW_S, _IN_WINDOW, _KEPT, _BESTS = 300.0, 60, 400, 120
"""Seconds over which batches vary, samples that they should have (else those of a quarter of an hour count),
samples kept, and best steps kept."""
_BINS, _IN_BIN, _SPREAD = 3, 4, 1.5
"""Least batch sizes, samples of each, and ratio of the most to the least bytes of a step."""
_JUDGED_AGAIN_S, _STAYS_S = 5.0, 120.0
"""Seconds between two judgements; seconds for which what was found stays, because small batches hide it."""
_EVEN = 0.15
"""Most relative deviation, over batch sizes, of what is taken to be constant."""
_GROWTH, _IN_PROPORTION = 2.0, 0.85
"""Least ratio of the largest to the smallest batch of a link that was never faster; exponent with which its
steps grow with them, at least: weights are read once a step, so that steps that compute grow with 0.7."""


class LinkSample(NamedTuple):
    """A server and its machines at one time."""

    at: float
    step_s: float
    best_s: float | None
    """Of the fastest step of this batch that is known; None while none is."""
    batch: float
    """Tokens of a step over the same seconds as its time; where they are not known, running requests."""
    gpu_percent: float
    power_w: float
    clock_mhz: float
    bytes_per_s: float
    negotiated: float
    """Bytes per second."""
    quiet_w: float = 0.0
    """Power in all below which the GPUs do not compute; 0 where that is not known."""

    @property
    def step_bytes(self) -> float:
        """Bytes that the ranks of one machine exchange in a step."""
        return self.bytes_per_s * self.step_s

    @property
    def ratio(self) -> float | None:
        """Step time as a multiple of the best; None where that is not known."""
        return None if self.best_s is None else self.step_s / self.best_s

    @property
    def is_slower(self) -> bool:
        """Whether steps are slower than the best."""
        return self.ratio is not None and self.ratio >= SLOWER


class SlowLink:
    """Finds that the link between a server's ranks is slow, or may be.

    It remembers the samples of some minutes, and power and clock at the best steps.
    """

    def __init__(self) -> None:
        """Start without samples."""
        self._samples: deque[LinkSample] = deque(maxlen=_KEPT)
        self._well: deque[tuple[float, float]] = deque(maxlen=_BESTS)
        """(power in W, clock in MHz) while steps were as fast as the best."""
        self._read_at: tuple[float, ...] = ()
        """Times of the newest samples of its machines."""
        self._judged_at = self._slow_at = -math.inf
        """When the link was judged last, and found to be slow last."""
        self._found: tuple[Finding, ...] = ()

    def look(self, now: Situation, view: BackendView) -> tuple[Finding, ...]:
        """Return that the link of a server on several machines is slow, or may be."""
        machines = [now.nodes[name] for name in view.nodes if name in now.nodes]
        if not 1 < len(view.nodes) == len(machines):
            return ()
        times = tuple(node.sample.at for node in machines if node.sample is not None)
        sample = None if times == self._read_at else _link_sample(now.at, view, machines)
        self._read_at = times
        if sample is not None:
            self._samples.append(sample)
            if sample.ratio is not None and sample.ratio <= _WELL:
                self._well.append((sample.power_w, sample.clock_mhz))
        if 0 <= now.at - self._judged_at < _JUDGED_AGAIN_S:
            return self._found
        self._judged_at = now.at
        newest = tuple(judge_link(view.name, now.at, self._samples, self._well))
        if any(node.speed.word in {SLOW_CLOCK, THROTTLED} for node in machines):
            newest = ()
        elif any(finding.severity is not None for finding in newest):
            self._slow_at = now.at
        elif self._found and now.at - self._slow_at < _STAYS_S:
            newest = self._found
        self._found = newest
        return newest


def _link_sample(at: float, view: BackendView, machines: Sequence[NodeView]) -> LinkSample | None:
    """Return the sample of now; None where a figure of a machine is missing."""
    batch = _batch_tokens(view)
    if not view.ok or not view.step_ms or not batch:
        return None
    readings: list[tuple[float, ...]] = []
    for node in machines:
        sample, history = node.sample, node.history
        if sample is None or not node.ok:
            return None
        newest = (
            history.gpu_percent.last,
            history.power_w.last,
            history.sm_clock_mhz.last,
            history.rdma_rx_bytes_per_s.last,
            history.rdma_tx_bytes_per_s.last,
            known_max(port.link_bits_per_s for port in sample.network if port.kind == "rdma" and port.up),
        )
        known_figures = known_values(newest)
        if len(known_figures) < len(newest):
            return None
        unified = sample.memory.unified
        quiet = (GB10_POWER_W[0] if is_gb10(gpu, unified=unified) else -math.inf for gpu in sample.gpus)
        readings.append((*known_figures, sum(quiet)))
    percents, watts, clocks, received, sent, negotiated, quiet_w = zip(*readings, strict=True)
    best = own_best(view.yardstick_basis, view.running, batch) if view.running else None
    best_ms = known_min((view.best_step_ms, None if best is None else best.step_ms))
    return LinkSample(
        at,
        view.step_ms / 1000,
        best_ms / 1000 if best_ms else None,
        batch,
        min(percents),
        sum(watts),
        min(clocks),
        max(*received, *sent),
        min(negotiated) / 8,
        max(0.0, sum(quiet_w)),
    )


def _batch_tokens(view: BackendView) -> float | None:
    if view.running and view.steps_per_s and view.generation_tps is not None:
        return ((view.prompt_tps or 0.0) + view.generation_tps) / view.steps_per_s
    return view.running


def judge_link(
    name: str, at: float, samples: Sequence[LinkSample], well: Sequence[tuple[float, float]]
) -> Iterator[Finding]:
    """Yield that the link of a server is slow, or may be, by its samples; `well` has (W, MHz) at its best."""
    newest = _newest(samples, at, _HELD_S, _FEWEST, 2 * _HELD_S)
    if len(newest) < _FEWEST or newest[0].at > at - _LEAST_S:
        return
    mean = _mean_sample(newest)
    carries_some = _LEAST_BYTES_PER_S <= mean.bytes_per_s <= LINK_SHARE * mean.negotiated
    if mean.gpu_percent < BUSY_PERCENT or not carries_some:
        return
    ratios = [sample.ratio for sample in newest if sample.ratio is not None]
    slower = [ratio for ratio in ratios if ratio >= SLOWER]
    is_slower = len(ratios) >= _FEWEST and len(slower) >= _SLOW_PART * len(ratios)
    usual = None
    if is_slower and len(well) >= _FEWEST:
        usual = median(watts for watts, _ in well), median(mhz for _, mhz in well)
    if not _ranks_wait(mean, usual):
        return
    recent = _newest(samples, at, _WINDOW_S, _IN_WINDOW, 3 * _WINDOW_S)
    if is_slower:
        limit, is_gpu = _find_ceiling([sample for sample in recent if sample.is_slower])
    else:
        limit = _flat_top(recent)
        is_gpu = limit is None
    if is_gpu or (limit is not None and limit > LINK_SHARE * mean.negotiated):
        return
    ratio = fmean(ratios) if is_slower else None
    yield _finding(name, mean, at - newest[0].at, ratio, limit, usual)


def _mean_sample(samples: Sequence[LinkSample]) -> LinkSample:
    """Return the newest of these samples with the means of what GPUs and links do."""
    fields = ("gpu_percent", "power_w", "clock_mhz", "bytes_per_s", "negotiated")
    means = {field: fmean(getattr(sample, field) for sample in samples) for field in fields}
    return samples[-1]._replace(**means)


def _ranks_wait(mean: LinkSample, usual: tuple[float, float] | None) -> bool:
    """Return whether ranks wait by power and clock; `usual` has those (W, MHz) of the server's best steps.

    They do if they draw less than at its best at the same clock or, where that is not known, less than any
    GPU that computes.
    """
    if usual is None:
        return mean.power_w < mean.quiet_w
    usual_w, usual_mhz = usual
    return mean.power_w <= LOW_POWER_SHARE * usual_w and mean.clock_mhz >= CLOCK_SHARE * usual_mhz


def _finding(
    name: str,
    mean: LinkSample,
    window_s: float,
    ratio: float | None,
    limit: float | None,
    usual: tuple[float, float] | None,
) -> Finding:
    """Return that ranks wait: for a link that carries `limit` bytes per second; None if that is not known.

    `ratio` is by how much steps are slower than the best, None where they are not known to be.
    """
    short, steps = "steps take as long as their bytes need", "at all batches, from the first step on"
    if ratio is not None:
        short, steps = f"steps take {ratio:.1f} × its best", f"at this batch (limit {SLOWER:g})"
    ranks = f"{mean.power_w:.0f} W in all, they compute from {mean.quiet_w:.0f} W on"
    if usual is not None:
        best = f"{usual[0]:.0f} W at its best; {mean.clock_mhz:.0f} of {usual[1]:.0f} MHz"
        ranks = f"{mean.power_w:.0f} W in all, {best}"
    rate = f"{_gigabits(mean.bytes_per_s)} of {_gigabits(mean.negotiated)} Gb/s"
    line = f"slow link: RDMA carries {rate}, {short}"
    waits = f"at most {_gigabits(limit or 0.0)} Gb/s, the same for all batches"
    if limit is None:
        line = f"ranks wait: RDMA carries {rate}, {short}; if for the link or a GPU is not known"
        waits = "the batch has not varied enough to tell the link from the GPU"
    return Finding(
        KIND,
        name,
        line,
        fix=FINDINGS[KIND].advice("link or GPU" if limit is None else "the link"),
        sure=Sure.UNKNOWN if limit is None else Sure.LIKELY,
        severity=None if limit is None else Severity.WARNING,
        evidence=(
            ("steps", f"{short.removeprefix('steps take ')} {steps}"),
            ("ranks", ranks),
            ("RDMA", f"{rate} negotiated"),
            ("while they wait", waits),
        ),
        values={
            "ratio": ratio,
            "limit_ratio": SLOWER,
            "rdma_bytes_per_s": mean.bytes_per_s,
            "negotiated_bytes_per_s": mean.negotiated,
            "ceiling_bytes_per_s": limit,
            "power_w": mean.power_w,
            "usual_power_w": None if usual is None else usual[0],
            "least_power_w": mean.quiet_w if usual is None else None,
            "window_s": window_s,
        },
    )


def _newest(
    samples: Sequence[LinkSample], at: float, window_s: float, fewest: int, most_s: float
) -> list[LinkSample]:
    """Return the samples of the last `window_s` seconds; if they are too few, the newest of `most_s`."""
    newest = [sample for sample in samples if sample.at > at - window_s]
    if len(newest) < fewest:
        newest = [sample for sample in samples if sample.at > at - most_s]
        newest = newest[-fewest:]
    return newest


def _by_batch(samples: Sequence[LinkSample]) -> list[list[LinkSample]]:
    """Return the samples by size of the batch, ascending, of those seen often enough."""

    def size(sample: LinkSample) -> int:
        return round(2 * math.log2(max(1.0, sample.batch)))

    bins = [list(group) for _, group in groupby(sorted(samples, key=size), size)]
    return [group for group in bins if len(group) >= _IN_BIN]


def _find_ceiling(samples: Sequence[LinkSample]) -> tuple[float | None, bool]:
    """Return (bytes per second of the link while ranks wait, whether the GPU is slow instead).

    The time beyond the best is compared with the bytes of a step, and with the best step itself, over batch
    sizes: the one with which it grows in proportion is its cause. (None, False): that cannot be told.
    """
    bins = [
        (
            fmean(sample.step_s - (sample.best_s or 0.0) for sample in group),
            fmean(sample.step_bytes for sample in group),
            fmean(sample.best_s or 0.0 for sample in group),
        )
        for group in _by_batch(samples)
    ]
    moved = [size for _, size, _ in bins]
    if len(bins) < _BINS or min(moved) <= 0 or min(moved) * _SPREAD > max(moved):
        return None, False
    by_bytes = [beyond / size for beyond, size, _ in bins]
    by_step = [beyond / best for beyond, _, best in bins]
    uneven_bytes, uneven_step = (pstdev(ratios) / fmean(ratios) for ratios in (by_bytes, by_step))
    if uneven_bytes <= _EVEN and uneven_step >= 2 * uneven_bytes:
        return 1 / fmean(by_bytes), False
    return None, uneven_step < uneven_bytes


def _flat_top(samples: Sequence[LinkSample]) -> float | None:
    """Return the bytes per second of a link that carries the same at all batches; None if it does not.

    Steps must also grow as the batch does: beside other traffic the rate could be the same while
    they hardly grow.
    """
    bins = _by_batch(samples)
    if len(bins) < _BINS:
        return None
    sizes = [fmean(sample.batch for sample in group) for group in bins]
    steps = [fmean(sample.step_s for sample in group) for group in bins]
    rates = [fmean(sample.bytes_per_s for sample in group) for group in bins]
    if min(rates) <= 0:
        return None
    growth, slower, faster = (math.log(values[-1] / values[0]) for values in (sizes, steps, rates))
    is_proportional = slower >= _IN_PROPORTION * growth and faster <= (1 - _IN_PROPORTION) * growth
    if growth < math.log(_GROWTH) or not is_proportional:
        return None
    return max(rates) if pstdev(rates) <= _EVEN * fmean(rates) else None


def _gigabits(bytes_per_s: float) -> str:
    return f"{bytes_per_s * 8 / 1e9:.3g}"
