"""The GPUs that a machine has reported, and which of these are missing now: alerts and events."""

from __future__ import annotations

from msgspec.structs import replace

from sparktop.graphics import numbers
from sparktop.model.event import Event, Phase, Severity, Values
from sparktop.model.instant import Instant
from sparktop.model.node import LostGpu, NodeSample
from sparktop.store.event_log import ActiveAlerts
from sparktop.store.sources import SourceKey

# A GPU counts as lost if it is missing while other GPUs answer, or if the driver reports it as lost. If all
# GPUs are missing and the driver names none of them, the driver is being restarted or was unloaded. A GPU
# in MIG mode stays listed whatever its instances are, so reconfiguring it is not a loss. A new GPU at the
# index of a missing GPU replaces that GPU.


RESTART_S = 60.0
"""A driver that is being restarted comes back within this many seconds."""
_NOT_LISTED = "the driver does not list it any more"


class GpuRoll:
    """Keeps the known GPUs of one machine, and remembers which lost GPUs have been announced."""

    def __init__(self) -> None:
        """Start without known GPUs."""
        self._known: dict[str, LostGpu] = {}
        self._single: set[str] = set()
        """Keys of missing GPUs that were lost individually; they stay here even if all other GPUs go missing
        later."""
        self._announced: dict[str, tuple[LostGpu, float]] = {}
        """Lost GPUs for which an event has been added, with the monotonic time of the loss, by key."""
        self._driver_gone_at: float | None = None

    def call(self, sample: NodeSample) -> tuple[LostGpu, ...]:
        """Update the known GPUs from `sample`; return the missing GPUs, each with the reason.

        They are in the order of their indices.
        """
        present = {
            _gpu_key(gpu.index, gpu.uuid): LostGpu(gpu.index, gpu.name, gpu.uuid) for gpu in sample.gpus
        }
        new_at = {gpu.index for key, gpu in present.items() if key not in self._known}
        self._known = {
            key: gpu for key, gpu in self._known.items() if key in present or gpu.index not in new_at
        } | present
        reported = {gpu.index: gpu for gpu in sample.gpus_lost}
        for gpu in reported.values():
            if not any(gpu.index == known.index for known in self._known.values()):
                self._known[_gpu_key(gpu.index, gpu.uuid)] = gpu
        missing = {key: gpu for key, gpu in self._known.items() if key not in present}
        self._single &= missing.keys()
        if present or reported:
            self._single |= {key for key, gpu in missing.items() if present or gpu.index in reported}
        else:
            self._driver_gone_at = sample.at if self._driver_gone_at is None else self._driver_gone_at
        if present:
            self._driver_gone_at = None
        other = _NOT_LISTED if present else sample.gpu_note
        lost = (
            LostGpu(
                gpu.index, gpu.name, gpu.uuid, reported[gpu.index].reason if gpu.index in reported else other
            )
            for gpu in missing.values()
        )
        return tuple(sorted(lost, key=lambda gpu: gpu.index))

    def judge(
        self,
        alerts: ActiveAlerts,
        key: SourceKey,
        sample: NodeSample,
        lost: tuple[LostGpu, ...],
        when: Instant,
    ) -> list[Event]:
        """Raise, update or clear the alerts "gpu-lost" and "gpus-gone"; return events about single GPUs.

        "gpu-lost" is about GPUs lost individually, "gpus-gone" about a machine on which no GPU answers.
        `lost` is the result of `call` for the same sample, `when` the sample's time.
        """
        single = [gpu for gpu in lost if _gpu_key(gpu.index, gpu.uuid) in self._single]
        lost_id, gone_id = f"{key.label}:gpu-lost", f"{key.label}:gpus-gone"
        counts: Values = {"gpus": len(sample.gpus), "limit_gpus": len(self._known), "window_s": 0.0}
        if single:
            message = "; ".join(map(loss_text, single))
            alerts.hold(lost_id, Severity.CRITICAL, key.name, message, counts, when, silent=True)
        else:
            alerts.clear(lost_id, when)
        if lost and not sample.gpus and not single:
            gone_s = when.at - (when.at if self._driver_gone_at is None else self._driver_gone_at)
            severity = Severity.CRITICAL if gone_s >= RESTART_S else Severity.WARNING
            which = "its GPU does not answer" if len(lost) == 1 else f"none of its {len(lost)} GPUs answers"
            message = f"{which}: {lost[0].reason or 'the driver gives no reason'}"
            values = {**counts, "window_s": gone_s, "limit_s": RESTART_S}
            alerts.hold(gone_id, severity, key.name, message, values, when)
        else:
            alerts.clear(gone_id, when, "the GPUs answer again" if sample.gpus else None)
        return self._announce(key, single, lost, counts, when)

    def _announce(
        self,
        key: SourceKey,
        single: list[LostGpu],
        lost: tuple[LostGpu, ...],
        counts: Values,
        when: Instant,
    ) -> list[Event]:
        """Return an event for each GPU that was lost individually or came back since the previous sample.

        `lost` are all missing GPUs, `single` those that were lost individually. `counts` has the numbers of
        present and known GPUs, which the events carry.
        """
        missing = {_gpu_key(gpu.index, gpu.uuid) for gpu in lost}
        back = {name: one for name, one in self._announced.items() if name not in missing}
        events: list[Event] = []
        for gpu, lost_s in (one for name, one in back.items() if name in self._known):
            duration_s = max(0.0, when.at - lost_s)
            message = f"{gpu.label} answers again after {numbers.age(duration_s)}"
            event = _event(key, gpu, message, counts, when)
            events.append(
                replace(
                    event,
                    severity=Severity.INFO,
                    phase=Phase.END,
                    duration_s=duration_s,
                    worst=event.severity,
                )
            )
        fresh = {_gpu_key(gpu.index, gpu.uuid): gpu for gpu in single}
        events += [
            _event(key, gpu, loss_text(gpu), counts, when)
            for name, gpu in fresh.items()
            if name not in self._announced
        ]
        kept = {name: one for name, one in self._announced.items() if name in missing}
        self._announced = {name: (gpu, when.at) for name, gpu in fresh.items()} | kept
        return events


def loss_text(gpu: LostGpu) -> str:
    """Return a sentence that names the lost GPU and the reason."""
    return f"{gpu.label} is lost: {gpu.reason or 'the driver gives no reason'}"


def _event(key: SourceKey, gpu: LostGpu, message: str, counts: Values, when: Instant) -> Event:
    """Return the event that marks the beginning of the loss of `gpu`."""
    about = f"{key.label}:gpu-lost/{gpu.index}"
    severity = Severity.CRITICAL
    return Event(when.wall, severity, key.name, message, counts, when.at, about, Phase.BEGIN)


def _gpu_key(index: int, uuid: str | None) -> str:
    """Return a key for a GPU: its UUID if known, else "#index".

    The index alone is not reliable, because indices shift when another GPU is lost.
    """
    return uuid or f"#{index}"
