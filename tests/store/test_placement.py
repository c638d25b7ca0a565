"""With which backends a backend's step time is compared."""

from __future__ import annotations

from datetime import UTC, datetime

from msgspec.structs import replace

from sparktop.model.failure import Failure, FailureKind
from sparktop.model.targets import BackendTarget, StateThresholds
from sparktop.store.backend import BackendTrack
from sparktop.store.tracks import MOST_PEERS, Placement


def tracks(count: int) -> dict[str, BackendTrack]:
    """Return `count` backends that answered, of two models in turn, with the same step time."""
    made = {}
    for number in range(count):
        track = BackendTrack(BackendTarget(f"b{number}", f"http://b{number}:8000"), StateThresholds())
        track.view = replace(track.view, model=f"model-{number % 2}", step_ms=10.0)
        made[f"b{number}"] = track
    return made


def test_peers_are_the_next_of_the_same_model_and_bounded() -> None:
    """Of 50 alike, the 16 after it in order, then from the first on; a failing one is left out."""
    backends = tracks(100)
    placement = Placement(backends, {})
    for _ in range(3):
        found = placement.peers(backends["b90"])
        assert [one.name for one in found] == ["b92", "b94", "b96", "b98", *(f"b{2 * n}" for n in range(12))]
        assert len(found) == MOST_PEERS
    backends["b94"].health.bad(Failure(FailureKind.REFUSED, "nothing listens", 1.0), datetime.now(UTC))
    assert [one.name for one in placement.peers(backends["b90"])][:3] == ["b92", "b96", "b98"]
