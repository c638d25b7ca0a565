"""Checks of this machine: driver, GPUs, memory, versions, files, recorder, hook, terminal; comparison."""

from __future__ import annotations

import codecs
import os
import platform
import resource
import shutil
import sys
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from importlib import metadata
from pathlib import Path

from sparktop import __version__
from sparktop.analysis.machines_compared import (
    UNREADABLE,
    MachineGroup,
    MachinesCompared,
    alike_in,
    groups_of,
    unknown_in,
)
from sparktop.analysis.placement import engine_processes, place_backends
from sparktop.doctor.check import Check, Status
from sparktop.graphics import numbers
from sparktop.hardware.gpu import NvmlModule
from sparktop.model.failure import Failure
from sparktop.model.node import GpuReading, NodeIdentity, NodeSample
from sparktop.model.snapshot import BackendView, NodeView, Situation
from sparktop.model.targets import BackendTarget, NodeTarget, Watch
from sparktop.model.text import clean, reason_of
from sparktop.panels.board.layout import MIN_HEIGHT, MIN_WIDTH
from sparktop.recording.flight import flight_folder, make_folder, parts
from sparktop.sources.local import LocalSource
from sparktop.sources.source import PollResult

_DEADLINE_S = 8.0
"""Seconds for reading this machine: waking the driver can take a few; a driver that hangs is not waited
for."""
_SPARK = ("DGX Spark", "GB10")
"""Parts of the names of DGX Sparks and their GPUs."""
_WORDS = {
    "utilization_percent": "use",
    "temperature_c": "temperature",
    "power_w": "power",
    "power_limit_w": "power limit",
    "sm_clock_mhz": "SM clock",
    "memory_used_bytes": "memory",
    "throttle_reasons": "throttling",
    "processes": "processes",
}
"""Figures of a GPU that every driver reports, by field."""
_NOT_THERE = "no NVIDIA"
"""Beginning of the notes in `sparktop.hardware.gpu` that mean that the machine has no GPU, which is not a
fault."""


async def read_machine(nvml: NvmlModule | None = None) -> tuple[NodeSample | Failure, NodeIdentity]:
    """Read a sample of this machine, as the monitor does; return the sample and the machine's identity.

    If the driver hangs, a `Failure` is returned instead of the sample.
    """
    source = LocalSource("this machine", nvml=nvml)
    try:
        reading = await source.poll(_DEADLINE_S)
        return reading, source.identity or NodeIdentity()
    finally:
        await source.close()


def check_machine(reading: NodeSample | Failure, identity: NodeIdentity) -> list[Check]:
    """Return the checks of the driver, each GPU and the memory, from a sample of this machine."""
    if isinstance(reading, Failure):
        advice = "does nvidia-smi hang too? then reload the driver or restart the machine"
        return [Check("driver", Status.FAIL, reading.message, advice)]
    return [*_check_driver(reading, identity), _check_memory(reading, identity)]


def _is_spark(reading: NodeSample, identity: NodeIdentity) -> bool:
    names = (identity.product or "", *(gpu.name or "" for gpu in reading.gpus))
    return any(word in name for word in _SPARK for name in names)


def _check_driver(reading: NodeSample, identity: NodeIdentity) -> list[Check]:
    version = f"driver {clean(identity.driver, 40)}" if identity.driver else "driver without a version"
    checks = [_check_gpu(gpu, version) for gpu in reading.gpus]
    if reading.gpu_note is not None:
        checks.append(check_missing_gpu("driver", reading.gpu_note, reading, identity))
    return checks


def check_missing_gpu(name: str, note: str, reading: NodeSample, identity: NodeIdentity) -> Check:
    """Return the check `name` of a machine, here or elsewhere, of which `note` says why it reports no GPU.

    A machine may have no NVIDIA driver, unless it is a DGX Spark.
    """
    if note.startswith(_NOT_THERE) and not _is_spark(reading, identity):
        return Check(name, Status.SKIP, note)
    return Check(name, Status.FAIL, note, "sudo nvidia-smi shows what the driver itself says")


def _check_gpu(gpu: GpuReading, version: str) -> Check:
    name = f"gpu {gpu.index}"
    model = clean(gpu.name or "without a name", 60)
    missing = [word for field, word in _WORDS.items() if getattr(gpu, field) is None]
    if len(missing) == len(_WORDS):
        advice = "sudo nvidia-smi shows what the driver itself says"
        return Check(name, Status.WARN, f"{model}, {version}: reports no figures", advice)
    gaps = f"; not reported: {', '.join(missing)}" if missing else ""
    return Check(name, Status.OK, f"{model}, {version}{gaps}")


def _check_memory(reading: NodeSample, identity: NodeIdentity) -> Check:
    """Return the check of the memory, and of whether it is shared with the GPU."""
    name = "memory"
    memory = reading.memory
    total = numbers.data(memory.total_bytes, 12).strip()
    notes = [clean(gpu.memory_note, 200) for gpu in reading.gpus if gpu.memory_note]
    if memory.handover_words is not None:  # of a kernel with kexec handover (KHO)
        message = f"{total}; {memory.handover_words}, which no program can use"
        advice = "kho=off on the kernel's command line: RDMA registration can fail with ENOMEM"
        return Check(name, Status.WARN, message, advice)
    if notes:
        advice = "nvidia-smi -q shows what the driver says"
        return Check(name, Status.WARN, f"{total}; {'; '.join(notes)}", advice)
    if memory.unified:
        headroom = numbers.data(memory.headroom_bytes, 12).strip()
        return Check(name, Status.OK, f"{total} shared with the GPU (unified), {headroom} left")
    if _is_spark(reading, identity):
        advice = (
            "the memory left is judged as on a machine with GPU memory of its own: please report the driver"
        )
        return Check(name, Status.WARN, f"{total}, not recognised as shared with the GPU", advice)
    if memory.unified is None:
        reason = "no GPU reports whether it shares this memory" if reading.gpus else "no GPU found"
        return Check(name, Status.OK, f"{total}; {reason}")
    return Check(name, Status.OK, f"{total}; the GPU has memory of its own")


_LIBRARIES = ("aiohttp", "nvidia-ml-py", "pydantic")
"""Libraries whose versions are shown."""


def installed_version(package: str) -> str | None:
    """Return the version of an installed package; None if the package is not installed."""
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return None


def check_versions() -> list[Check]:
    """Return what versions of sparktop, Textual and the other libraries run."""
    ours = f"sparktop {__version__}, Python {platform.python_version()}, {platform.machine()}"
    libraries = ", ".join(f"{name} {installed_version(name) or 'missing'}" for name in _LIBRARIES)
    return [
        Check("version", Status.OK, ours),
        Check("textual", Status.OK, f"Textual {installed_version('textual')}"),
        Check("libraries", Status.OK, libraries),
    ]


RESERVED_FILES = 64
"""Open files that are not available for a sweep's requests: sources, logs, results, libraries."""
USUAL_CONCURRENCY = 256
"""Concurrency that the limit should allow even if the configured sweeps need less."""


def open_file_limits() -> tuple[int | None, int | None]:
    """Return (soft limit, hard limit) of open files of this process; None for unlimited."""
    limits = resource.getrlimit(resource.RLIMIT_NOFILE)
    soft, hard = (None if limit == resource.RLIM_INFINITY else limit for limit in limits)
    return soft, hard


def check_open_files(soft: int | None, hard: int | None, wanted: int = 0) -> Check:
    """Return the check whether the limit of open files allows the concurrency that sweeps need.

    `wanted` is the largest concurrency of the configured sweeps. `soft` and `hard` are the limits, None for
    no limit.
    """
    name = "open files"
    if soft is None:
        return Check(name, Status.OK, "no limit: a sweep can have any number of requests at once")
    reach = max(0, soft - RESERVED_FILES)
    message = f"{soft} allowed: a sweep can have {reach} requests at once"
    needed = max(wanted, USUAL_CONCURRENCY)
    if reach >= needed:
        return Check(name, Status.OK, message)
    goal = needed + RESERVED_FILES
    if hard is None or hard >= goal:
        return Check(name, Status.WARN, message, f"for c = {needed}: ulimit -n {goal}")
    where = "nofile in limits.conf, LimitNOFILE of a unit"
    advice = f"for c = {needed} raise the hard limit ({hard}) to {goal}: {where}"
    return Check(name, Status.WARN, message, advice)


_TITLE = "recorder"
"""Name of the check of the recorder; the next are of the hook and of the comparison."""


def check_recorder(watch: Watch, env: Mapping[str, str]) -> list[Check]:
    """Return the checks of the flight recorder's folder, and what it cannot hold of a machine that hangs."""
    if not watch.flight:
        return [Check(_TITLE, Status.SKIP, "the flight recorder is off ([recorder] flight = false)")]
    folder = flight_folder(env)
    checks = [_check_folder(folder, watch)]
    if any(node.via == "local" for node in watch.nodes):
        message = (
            "should this machine hang, its own recording lacks the last seconds; sparktop record on another "
            "machine keeps them"
        )
        checks.append(Check(_TITLE, Status.OK, message))
    return checks


def _check_folder(folder: Path, watch: Watch) -> Check:
    """Return the check of the recorder's folder: where it is, what it holds, whether it is fast."""
    where = clean(folder, 200)
    try:
        make_folder(folder)
    except OSError as error:
        advice = "nothing is recorded in the background: make the folder writable or set XDG_STATE_HOME"
        return Check(_TITLE, Status.WARN, f"{where}: {reason_of(error)}", advice)
    if not os.access(folder, os.W_OK | os.X_OK):
        return Check(_TITLE, Status.WARN, f"{where}: not writable", "nothing is recorded in the background")
    size_words = numbers.data(sum(file.stat().st_size for file in parts(folder)), 12).strip()
    message = f"{where}: {size_words} of at most {watch.flight_mib} MiB"
    return Check(_TITLE, Status.OK, message)


_HOOK = "hook"


def check_hook(command: Sequence[str], env: Mapping[str, str]) -> Check:
    """Check whether the hook program, the first word of `command`, exists and can be run."""
    program = clean(command[0], 200)
    if "/" not in command[0]:
        executable = shutil.which(command[0], path=env.get("PATH"))
        if executable is None:
            return Check(
                _HOOK, Status.FAIL, f"{program} is not on the PATH", "write its whole path in [events] hook"
            )
        return Check(_HOOK, Status.OK, f"{clean(executable, 200)} is run for events")
    path = Path(command[0])
    if not path.exists():
        return Check(_HOOK, Status.FAIL, f"{program} does not exist", "mend the path in [events] hook")
    if not path.is_file() or not os.access(path, os.X_OK):
        return Check(_HOOK, Status.FAIL, f"{program} is not executable", f"chmod +x {program}")
    return Check(_HOOK, Status.OK, f"{program} is run for events")


_COMPARED = "machines compared"
_LATER_S = 15.0
"""The rule reports some differences, as of clocks, only if they last some seconds. The doctor reads once, so
it shows the rule the same readings again as if this much later."""


def check_compared(
    machines: Sequence[tuple[NodeTarget, PollResult, NodeIdentity]], backends: Sequence[BackendTarget]
) -> list[Check]:
    """Return a check for each difference between machines, else one that says in what they are alike.

    `machines` are targets with what was read there; fewer than two that could be read are not compared.
    """
    read = [
        (target, sample, identity)
        for target, sample, identity in machines
        if isinstance(sample, NodeSample) and identity.setup is not None
    ]
    if len(read) < 2:  # noqa: PLR2004 - one has nothing to compare with
        return []
    now = _situation(read, backends)
    rule = MachinesCompared()
    rule.look(now)  # it remembers since when there is a difference
    checks: list[Check] = []
    for finding in rule.look(Situation(_LATER_S, now.wall, now.backends, now.nodes)):
        status = Status.WARN if finding.severity is not None else Status.SKIP
        checks.append(Check(f"{_COMPARED} {finding.subject}", status, finding.said, finding.fix or ""))
    groups = [group for group in groups_of(now) if len(group.machines) > 1]
    if not checks:
        checks = [_alike_check(group) for group in groups]
    advice = "run the reader there as that user, or as root"
    return checks + [
        Check(_COMPARED, Status.SKIP, f"not readable on {', '.join(hidden)}: {UNREADABLE}", advice)
        for group in groups
        if (hidden := unknown_in(group).get(UNREADABLE))
    ]


def _situation(
    read: Sequence[tuple[NodeTarget, NodeSample, NodeIdentity]], backends: Sequence[BackendTarget]
) -> Situation:
    """Return what the rule judges: a view of each machine, and the servers placed on them.

    A server of the engine "auto" is taken to be of the only engine that is seen, if there is only one.
    """
    nodes = {
        target.name: NodeView(
            target.name,
            target.via,
            sample,
            identity,
            age_s=0.0,
            engine_processes=engine_processes(sample.gpus),
        )
        for target, sample, identity in read
    }
    engines = {process.engine for view in nodes.values() for process in view.engine_processes}
    only = next(iter(engines)) if len(engines) == 1 else None
    engine_by_backend = [
        (backend, only if backend.engine == "auto" else backend.engine) for backend in backends
    ]
    where = place_backends(
        engine_by_backend,
        [(target, identity, nodes[target.name].engine_processes) for target, _, identity in read],
    )
    views = {
        backend.name: BackendView(backend.name, backend.url, backend.name, nodes=where[backend.name])
        for backend in backends
    }
    return Situation(0.0, datetime.now(UTC), views, nodes)


def _alike_check(group: MachineGroup) -> Check:
    who = f"{group.engine}: {', '.join(group.names)}" if group.engine is not None else ", ".join(group.names)
    alike_words = ", ".join(alike_in(group))
    if not alike_words:
        return Check(_COMPARED, Status.SKIP, f"{who}: nothing to compare could be read")
    return Check(_COMPARED, Status.OK, f"{who} have the same {alike_words}")


_TRUE_COLOR = frozenset({"truecolor", "24bit"})
"""Values of COLORTERM for 16 million colours."""


def terminal_size() -> tuple[int, int] | None:
    """Return (columns, rows) of the terminal, both 0 if unknown; None if input or output is no terminal."""
    streams = (sys.stdin, sys.stdout)
    if any(stream is None or not stream.isatty() for stream in streams):
        return None
    try:
        return os.get_terminal_size(sys.stdout.fileno())
    except OSError:
        return 0, 0


def check_terminal(env: Mapping[str, str], size: tuple[int, int] | None, encoding: str) -> list[Check]:
    """Return the checks of the terminal's type, colours, size and encoding.

    `size` is as `terminal_size` returns it; `encoding` is Python's of standard output.
    """
    if size is None:
        return [Check("terminal", Status.SKIP, "not a terminal: not checked")]
    locale = next((f"{key}={env[key]}" for key in ("LC_ALL", "LC_CTYPE", "LANG") if env.get(key)), "")
    return [
        _check_term(env.get("TERM", "")),
        _check_colors(env),
        _check_size(*size),
        _check_encoding(encoding, locale),
    ]


def _check_term(term: str) -> Check:
    if term in {"", "dumb"}:
        message = f"TERM is {clean(term, 40) or 'not set'}: plain reports instead of the screen"
        return Check("terminal", Status.FAIL, message, "export TERM=xterm-256color")
    return Check("terminal", Status.OK, f"TERM={clean(term, 40)}")


def _check_colors(env: Mapping[str, str]) -> Check:
    if env.get("NO_COLOR"):
        return Check("colours", Status.OK, "NO_COLOR is set: bold type and dots instead of colours")
    term = env.get("TERM", "")
    if env.get("COLORTERM") in _TRUE_COLOR or term.endswith("-direct"):
        return Check("colours", Status.OK, "16 million")
    if "256" in term:
        advice = (
            "COLORTERM=truecolor, if the terminal has them (ssh and sudo drop it), or the theme spark-ansi"
        )
        return Check("colours", Status.WARN, "256: gradients are coarse", advice)
    advice = "COLORTERM=truecolor, if the terminal has them, or the theme spark-ansi"
    return Check("colours", Status.WARN, "16, as far as TERM says", advice)


def _check_size(columns: int, rows: int) -> Check:
    if 0 in (columns, rows):
        return Check("size", Status.SKIP, "the terminal does not report it")
    message = f"{columns}×{rows}"
    if columns < MIN_WIDTH or rows < MIN_HEIGHT:
        return Check("size", Status.FAIL, message, f"make it {MIN_WIDTH}×{MIN_HEIGHT} or larger")
    return Check("size", Status.OK, message)


def _check_encoding(encoding: str, locale: str) -> Check:
    try:
        is_utf8 = codecs.lookup(encoding).name == "utf-8"
    except LookupError:
        is_utf8 = False
    message = ", ".join(clean(part, 60) for part in (encoding or "none", locale) if part)
    if is_utf8:
        return Check("encoding", Status.OK, message)
    return Check("encoding", Status.WARN, f"{message}: reports have ? for – and ·", "export LC_ALL=C.UTF-8")
