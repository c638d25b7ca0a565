"""The alert that a backend's steps are slow, compared with its own earlier steps or those of its peers.

Peers are backends that serve the same model. A step takes longer with a larger batch, but never by more than
the batch grew, because the weights are read once per step. So if the batch is k times the peer's, steps count
as slow only if they take at least max(3 √k, 1.5 k) times as long as the peer's, which a larger batch alone
cannot explain.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from statistics import median

from sparktop.analysis.speed_state import StepPace
from sparktop.model.event import Severity, Values
from sparktop.model.instant import Instant
from sparktop.model.snapshot import BackendView
from sparktop.store.alert_book import AlertBook, Finding
from sparktop.store.figures import RATE_WINDOW_S
from sparktop.store.keys import SourceKey

PEER_RATIO = 3.0
"""A backend is slow from this multiple of its peers' step time on: far more than two equal backends differ
by."""
_CLEARS_AT = 2.0
SLOW_AFTER_S = 10.0
"""Steps count as slow once they have been slow for this many seconds."""
_UNJUDGED_S = 120.0
"""The alert stays for this many seconds while the backend or its peers are idle, so that steps cannot be
compared."""


class SlowSteps:
    """State of the "slow-steps" alert of one backend."""

    def __init__(self) -> None:
        """Start without any comparison."""
        self._since: float | None = None
        self._judged_at: float | None = None
        self._against_peers = False
        """True if the active alert came from the comparison with peers. Equally slow earlier steps of the
        backend itself then do not clear the alert."""

    def judge(
        self,
        book: AlertBook,
        key: SourceKey,
        view: BackendView,
        pace: StepPace | None,
        peers: Sequence[BackendView],
        when: Instant,
    ) -> None:
        """Raise, update or clear the alert "slow-steps" after a successful poll.

        `view` is the backend, `pace` compares its steps with its own earlier steps, and `peers` are backends
        with the same model. If the backend runs on a watched node and its steps are slower than earlier, an
        alert of that node reports this instead.
        """
        alert_id, at = f"{key.label}:slow-steps", when.at
        held = book.severity(alert_id) is not None
        found = self._compare(view, pace, peers, held=held)
        if isinstance(found, Finding):
            self._judged_at = at
            self._since = at if self._since is None else self._since
            if at - self._since >= SLOW_AFTER_S:
                book.hold(alert_id, found, when)
            return
        self._since = None
        if found or self._judged_at is None or at - self._judged_at >= _UNJUDGED_S:
            book.clear(alert_id, when)

    def _compare(
        self, view: BackendView, pace: StepPace | None, peers: Sequence[BackendView], *, held: bool
    ) -> Finding | bool:
        """Return the alert's content if steps are slow, True if they are known not to be, False if unknown.

        `held` is whether the alert is active. The limit of the ratio of the step time to the peers' is lower
        then, so that a ratio near the limit does not clear and raise the alert again and again.
        """
        if pace is not None and pace.slow and not view.nodes:
            self._against_peers = False
            message = (
                f"slow steps: {pace.now_ms:.0f} ms each at {pace.running:.0f} running,"
                f" {pace.before_ms:.0f} ms before: look at the machine's clock, power and other work"
            )
            values = _values(view, "before_ms", pace.before_ms)
            return Finding(Severity.WARNING, view.name, message, values)
        ratios = {peer.name: ratio for peer in peers if (ratio := _step_ratio(view, peer)) is not None}
        if not ratios:
            return pace is not None and pace.healthy and not self._against_peers
        middle = median(ratios.values())
        if middle < (_CLEARS_AT if held else PEER_RATIO):
            return True
        self._against_peers = True
        peer = min(
            (one for one in peers if one.name in ratios), key=lambda one: abs(ratios[one.name] - middle)
        )
        message = (
            f"slow steps: {view.step_ms:.0f} ms each at {view.running:.0f} running, {peer.name}'s take"
            f" {peer.step_ms:.0f} ms at {peer.running:.0f}: look at the machine's clock, power and other work"
        )
        values = _values(view, "peer_ms", peer.step_ms)
        limits = {"ratio": middle, "limit_ratio": PEER_RATIO, "clears_below_ratio": _CLEARS_AT}
        return Finding(Severity.WARNING, view.name, message, {**values, **limits, "peer": peer.name})


def _values(view: BackendView, name: str, usual_ms: float | None) -> Values:
    """Return the numbers behind the alert: the step time, and the usual step time under `name`.

    The time over which steps are measured and the time for which they must be slow are included.
    """
    return {
        "step_ms": view.step_ms,
        name: usual_ms,
        "window_s": RATE_WINDOW_S,
        "limit_s": SLOW_AFTER_S,
    }


def _step_ratio(view: BackendView, peer: BackendView) -> float | None:
    """Return step time / peer's step time, corrected for a larger batch; None if unknown.

    The ratio is divided by the largest factor that the difference in batch size can explain.
    """
    if not view.step_ms or not peer.step_ms or not view.running or not peer.running:
        return None
    batches = (
        view.tokens_per_step / peer.tokens_per_step if view.tokens_per_step and peer.tokens_per_step else 1.0
    )
    larger = max(1.0, batches, view.running / peer.running)
    return view.step_ms / peer.step_ms / max(math.sqrt(larger), larger / 2)
