"""What each server's decode rate is compared with: the fastest steps of its setups, published rates, weights.

A setup is what may change the rate: versions, flags, firmware. A step is a pass of the engine over its batch.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from urllib.parse import urlsplit

from msgspec.structs import replace

from sparktop.analysis.bandwidth import bandwidth_gb_per_s
from sparktop.analysis.speed_state import is_gb10
from sparktop.analysis.yardsticks import batch_key
from sparktop.model.instant import Instant
from sparktop.model.node import ModelWeights, Workload
from sparktop.model.series import known_max
from sparktop.model.snapshot import BackendView
from sparktop.model.targets import ModelFacts
from sparktop.model.text import known_texts
from sparktop.model.yardsticks import (
    ENGINE_VERSION,
    FLAGS,
    MOST_BESTS,
    MOST_SETUPS,
    NO_FLAGS,
    PastSetup,
    PublishedRates,
    SteadyLoad,
    YardstickBasis,
)
from sparktop.store.backend import BackendTrack
from sparktop.store.node import NodeTrack

_BETTER = 0.005
"""Share by which a best must be beaten to be replaced: else it is the same."""
_FROM_CONFIGURATION = "the configuration"
_SetupKey = tuple[str, str, str]


def is_simulated_version(version: str | None) -> bool:
    """Return whether a server's version, such as 0.32.0+simulated, is that of a simulated one."""
    return version is not None and version.endswith("+simulated")


class YardstickBases:
    """Keeps the basis of each backend's yardsticks, and which of its setups have new bests."""

    def __init__(self, nodes: Mapping[str, NodeTrack], models: Mapping[str, ModelFacts]) -> None:
        """Keep a reference to `nodes` (by name), which may change; `models` are facts by served name."""
        self._nodes, self._models = nodes, models
        self._setups: dict[_SetupKey, list[PastSetup]] = {}
        self._published: tuple[PublishedRates, ...] = ()
        self._published_for: dict[tuple[str | None, ...], tuple[PublishedRates, ...]] = {}
        """Those of an engine and model on machines with these GPUs: they are looked for at each poll."""
        self._bases: dict[str, YardstickBasis] = {}
        """As of the newest poll of each backend whose model is known."""
        self._busy_since: dict[str, float] = {}
        self._changed: set[_SetupKey] = set()
        self.wanted: set[_SetupKey] = set()
        """The keys of servers of which files may know more."""

    def learn(self, setups: Iterable[PastSetup], published: Iterable[PublishedRates]) -> None:
        """Add what files know; a setup that is known keeps the better figures of both."""
        for setup in setups:
            for best in setup.bests:
                self._keep_best(replace(setup, bests=()), best)
        by_source = {rates.source: rates for rates in (*self._published, *published)}
        self._published = tuple(by_source.values())
        self._published_for.clear()

    def take_changed(self) -> tuple[PastSetup, ...]:
        """Return the setups of all servers whose bests changed since the last call, but of simulated ones."""
        changed, self._changed = self._changed, set()
        setups = (setup for key in sorted(changed) for setup in self.setups(key))
        return tuple(setup for setup in setups if not is_simulated_version(setup.facts.get(ENGINE_VERSION)))

    def setups(self, key: _SetupKey) -> tuple[PastSetup, ...]:
        """Return the known setups of a server: (address, engine, model)."""
        return tuple(self._setups.get(key, ()))

    def of(self, name: str) -> YardstickBasis:
        """Return the basis of a backend's yardsticks, as of its newest poll."""
        return self._bases.get(name) or YardstickBasis()

    def forget(self, name: str) -> None:
        """Forget a backend that restarted, is another server now, or is not watched; its setups stay."""
        self._bases.pop(name, None)
        self._busy_since.pop(name, None)

    def note(self, track: BackendTrack, process: Workload | None, when: Instant) -> None:
        """Update a backend's basis after a poll; `process` is its own, if a watched machine shows it."""
        view, name = track.view, track.target.name
        key = (_address(view.url), view.engine or "", view.model or "")
        if view.model is None:
            self._bases.pop(name, None)
            return
        self.wanted.add(key)
        if view.running:
            self._busy_since.setdefault(name, when.at)
        basis = self._make_basis(view, process)
        wall_at = when.wall.timestamp()
        # One judgement: what "slow-steps" finds slow is neither kept nor judged again.
        steady = None if track.slow_steps.seems_slow else track.steady
        if steady is not None and self._keep_best(
            PastSetup(*key, basis.facts, wall_at), replace(steady, at=wall_at)
        ):
            self._changed.add(key)
        busy_s = when.at - self._busy_since[name] if view.running else 0.0
        self._bases[name] = replace(basis, setups=self.setups(key), steady=steady, busy_s=busy_s)

    def _make_basis(self, view: BackendView, server: Workload | None) -> YardstickBasis:
        """Return the basis as far as it follows from a backend's setup, weights and machines."""
        samples = [self._nodes[node].view.sample for node in view.nodes if node in self._nodes]
        bandwidth = bandwidth_gb_per_s(samples) if len(samples) == len(view.nodes) else None
        return YardstickBasis(
            self._facts(view, server),
            published=self._published_rates(view),
            weights=self._weights(view, server),
            bandwidth_gb_per_s=None if bandwidth is None else bandwidth * len(view.nodes),
            machines=max(1, len(view.nodes)),
            cores=max(1, len(view.lanes)),
            command=None if server is None else server.command,
        )

    def _keep_best(self, setup: PastSetup, load: SteadyLoad) -> bool:
        """Keep `load` in its setup if it is the best of its batch there; return whether it is."""
        setups = self._setups.setdefault(setup.key, [])
        same_setup = next((other for other in setups if other.facts == setup.facts), setup)
        best_of = {_batch_of(best): best for best in same_setup.bests}
        before = best_of.get(_batch_of(load))
        best = load if before is None else _better_of(before, load)
        if best is before:
            return False
        best_of[_batch_of(load)] = best
        bests = sorted(best_of.values(), key=lambda best: -best.at)[:MOST_BESTS]
        newest = replace(same_setup, at=max(same_setup.at, setup.at), bests=tuple(bests))
        other_setups = [other for other in setups if other is not same_setup]
        self._setups[setup.key] = sorted([newest, *other_setups], key=lambda other: -other.at)[:MOST_SETUPS]
        return True

    def _facts(self, view: BackendView, server: Workload | None) -> Mapping[str, str]:
        """Return the facts of a setup by name, as far as they are known: versions, flags, firmware."""
        nodes = [self._nodes[name] for name in view.nodes if name in self._nodes]
        identities = [node.view.identity for node in nodes]
        setups = [identity.setup for identity in identities if identity.setup is not None]
        every_process = [node.view.process_of(view.name) for node in nodes]
        processes = [process for process in every_process if process is not None]
        cache = None  # its flags say it where the server's process is known
        if server is None and view.prefix is not None:
            cache = "on" if view.prefix.cache.on else "off"
        facts = {
            ENGINE_VERSION: view.version,
            FLAGS: None if server is None or server.flags is None else " ".join(server.flags) or NO_FLAGS,
            "prefix cache": cache,
            "model revision": None if server is None else server.revision,
            "kernel": known_texts(identity.os for identity in identities),
            "driver": known_texts(identity.driver for identity in identities),
            "BIOS": known_texts(setup.bios for setup in setups),
            "GPU firmware": known_texts(setup.gpu_firmware for setup in setups),
            "image": known_texts(process.image for process in processes),
            "NCCL": known_texts(process.nccl_version or process.nccl_mark for process in processes),
        }
        return {name: value for name, value in facts.items() if value}

    def _weights(self, view: BackendView, server: Workload | None) -> ModelWeights | None:
        """Return the weights that a step reads: by the configuration, else by the model's files."""
        known = None if server is None else server.weights
        read = known if known and known.token_gb > 0 else None  # another machine may report anything
        size_gb = self._models.get(view.model or "", ModelFacts()).bytes_per_token_gb
        if size_gb is None:
            return read
        weights = ModelWeights(0.0, mixture=True) if read is None else read
        return replace(weights, token_gb=size_gb, source=_FROM_CONFIGURATION)

    def _published_rates(self, view: BackendView) -> tuple[PublishedRates, ...]:
        """Return the published rates of a backend's model on its engine and machines."""
        samples = [self._nodes[name].view.sample for name in view.nodes if name in self._nodes]
        gpus = [
            ("GB10" if is_gb10(gpu, unified=sample.memory.unified) else gpu.name or "").lower()
            for sample in samples
            if sample is not None
            for gpu in sample.gpus
        ]
        key = (view.engine, view.model, f"{len(view.nodes)}", *gpus)
        if key not in self._published_for:
            self._published_for[key] = tuple(
                rates
                for rates in self._published
                if (rates.engine, rates.machines) == (view.engine, len(view.nodes))
                and gpus
                and all(rates.machine.lower() in gpu for gpu in gpus)
                and are_same_model(rates.model, view.model or "")
            )
        return self._published_for[key]


def _address(url: str) -> str:
    """Return host, port and path of a server, without what else a URL may hold."""
    parts = urlsplit(url)
    return f"{parts.netloc.rpartition('@')[2]}{parts.path}"


def are_same_model(name: str, other: str) -> bool:
    """Return whether two names are of one model; an owner or folder before a slash may be left out."""
    return name.lower().rpartition("/")[2] == other.lower().rpartition("/")[2]


def _batch_of(load: SteadyLoad) -> tuple[int, int, int]:
    return batch_key(load.running, load.batch, load.kv_percent)


def _better_of(before: SteadyLoad, load: SteadyLoad) -> SteadyLoad:
    """Return the load with the shorter steps of two of the same batch, with the higher rate of both.

    `before` is returned unchanged if `load` betters neither by more than `_BETTER`.
    """
    faster = load.step_ms < (1 - _BETTER) * before.step_ms
    higher = (load.tps or 0.0) > (1 + _BETTER) * (before.tps or 0.0)
    if not faster and not higher:
        return before
    return replace(load if faster else before, tps=known_max((before.tps, load.tps)), at=load.at)
