"""The GPUs of a machine, read through NVML; values that the driver does not report are None.

`Nvml` is the opened library, `GpuReader` reads all GPUs with readers of their memory, MIG instances,
processes and throttling. Only the thread that reads the samples uses NVML: there are no locks here.
"""

from __future__ import annotations

import logging
import math
import re
from collections.abc import Hashable, Iterable, Mapping, Sequence
from contextlib import suppress
from enum import IntEnum
from pathlib import Path
from typing import Any, Protocol

from msgspec import Struct
from msgspec.structs import replace

from sparktop.hardware.kernel_file import CounterRates, read_text
from sparktop.model.node import GpuProcess, GpuReading, LostGpu, MigInstance
from sparktop.model.text import clean

_log = logging.getLogger(__name__)

_OPEN_AGAIN_S = 30.0
"""Seconds before opening again after no driver, no device or a lost GPU: opening can take a second, and
drivers are loaded rarely."""
_ASK_AGAIN_S = 600.0
"""Seconds before a field that the driver does not support is queried again."""
_MOST_DEVICES = 64
"""Most GPUs that are read."""


class NvmlReturn(IntEnum):
    """The return codes of NVML that this program distinguishes, numbered as nvmlReturn_t of nvml.h.

    NVML never changes these numbers.
    """

    UNINITIALIZED = 1
    NOT_SUPPORTED = 3
    NO_PERMISSION = 4
    DRIVER_NOT_LOADED = 9
    LIBRARY_NOT_FOUND = 12
    FUNCTION_NOT_FOUND = 13
    GPU_IS_LOST = 15
    RESET_REQUIRED = 16
    LIB_RM_VERSION_MISMATCH = 18
    ARGUMENT_VERSION_MISMATCH = 25
    DEPRECATED = 26


_UNKNOWN_FIELD = frozenset(
    {
        NvmlReturn.NOT_SUPPORTED,
        NvmlReturn.NO_PERMISSION,
        NvmlReturn.FUNCTION_NOT_FOUND,
        NvmlReturn.ARGUMENT_VERSION_MISMATCH,
        NvmlReturn.DEPRECATED,
    }
)
"""Return codes that mean that a field is not supported: the next query will have the same result."""
_LOST = frozenset(
    {
        NvmlReturn.UNINITIALIZED,
        NvmlReturn.DRIVER_NOT_LOADED,
        NvmlReturn.GPU_IS_LOST,
        NvmlReturn.RESET_REQUIRED,
    }
)
"""Return codes after which no field of the queried GPU can be read."""
_NOTES: dict[int | None, str] = {
    NvmlReturn.LIBRARY_NOT_FOUND: "no NVIDIA driver on this machine",
    NvmlReturn.DRIVER_NOT_LOADED: "the NVIDIA driver is not loaded",
    NvmlReturn.NO_PERMISSION: "no permission to ask the NVIDIA driver",
    NvmlReturn.LIB_RM_VERSION_MISMATCH: "the NVIDIA driver was updated: reload it or restart the machine",
}
_VBIOS = "nvmlDeviceGetVbiosVersion"
_NO_DEVICE = "no NVIDIA GPU on this machine"


def has_library() -> bool:
    """Return whether the driver's library is on this machine: without it, pynvml is not worth its loading.

    Its 330 kB take 0.2 s of CPU time where no compiled copy of it can be kept.
    """
    import ctypes  # late: 3 ms that reading a machine's files does not need

    try:
        ctypes.CDLL("libnvidia-ml.so.1")
    except OSError:
        return False
    return True


def _return_free_memory() -> None:
    """Release memory that compiling pynvml has left free to the system: 12 MB, where the C library can."""
    import ctypes  # late, as above

    with suppress(AttributeError):  # only glibc has it
        ctypes.CDLL(None).malloc_trim(0)


class NvmlModule(Protocol):
    """The part of nvidia-ml-py's module `pynvml` that is used; a substitute module must behave like it.

    The functions that read one field are not declared here but looked up by name, because older versions of
    the module lack some of these functions.
    """

    NVMLError: type[Exception]

    def nvmlInit(self) -> None:  # noqa: N802 - the library's name
        """Open the library."""
        ...

    def nvmlShutdown(self) -> None:  # noqa: N802 - the library's name
        """Close the library."""
        ...

    def nvmlDeviceGetCount(self) -> int:  # noqa: N802 - the library's name
        """Return the number of GPUs."""
        ...

    def nvmlDeviceGetHandleByIndex(self, index: int, /) -> object:  # noqa: N802 - the library's name
        """Return the handle of a GPU."""
        ...


_DRIVER_GONE = frozenset({NvmlReturn.UNINITIALIZED, NvmlReturn.DRIVER_NOT_LOADED})
"""Return codes that concern the driver itself and not only the GPU that was queried."""
_LOST_WORDS: dict[int | None, str] = {
    NvmlReturn.GPU_IS_LOST: "the driver lost it: its log (dmesg, Xid) says why, a restart may bring it back",
    NvmlReturn.RESET_REQUIRED: "it needs a reset (nvidia-smi --gpu-reset) or a restart of the machine",
}


class GpuLostError(Exception):
    """A GPU, or the driver itself, went away during a query."""

    def __init__(self, message: str, code: int | None = None) -> None:
        """Store the message and the driver's return code."""
        super().__init__(message)
        self.code = code


class Nvml:
    """The opened NVML library: the handles of its GPUs, and the fields that each GPU does not support."""

    def __init__(self, module: NvmlModule | None = None) -> None:
        """Use `module`; None: nvidia-ml-py, imported at the first reading."""
        self.note: str | None = None
        """Why a GPU is missing, in one line for the user; None when no GPU is missing."""
        self.lost: dict[int, str] = {}
        """By GPU index: why a GPU that the driver lists does not answer."""
        self.driver: str | None = None
        """The NVIDIA driver's version; None while the library is not open."""
        self.firmware: str | None = None
        """VBIOS version of the first GPU; None where it is not reported."""
        self.generation = 0
        """How often the library was opened: GPU handles and cached values are valid until it is opened
        again."""
        self._module = module
        self._errors: tuple[type[Exception], ...] = ()
        self._handles: dict[int, object] | None = None
        self._open_again_at: float | None = None
        self._unknown: dict[tuple[int | None, Hashable], tuple[float, int | None]] = {}
        self._kept: dict[tuple[int | None, Hashable], tuple[float, Any]] = {}

    def handles(self, now: float) -> dict[int, object]:
        """Return the NVML handles of the GPUs that answer, by GPU index.

        Opens the library if it is not open, or again if an attempt is due after a failure or a lost GPU.
        """
        due = self._open_again_at is not None and now >= self._open_again_at
        if due or (self._handles is None and self._open_again_at is None):
            self.close()
            self._open_library(now)
        return dict(self._handles or {})

    def ask(self, now: float, index: int | None, function: str, *args: object, key: Hashable = None) -> Any:  # noqa: ANN401 - as many types as fields
        """Call the NVML function named `function` with `args`, for the GPU `index` (None: the driver itself).

        Return its result, or None on an error. A field that the driver does not support is not queried again
        for `_ASK_AGAIN_S`; `key` distinguishes fields that are read with the same function. Raises
        GpuLostError when the GPU is lost.
        """
        field = (index, key or function)
        unknown = self._unknown.get(field)
        if unknown is not None and now < unknown[0]:
            return None
        call = getattr(self._module, function, None)
        if call is None:
            self._unknown[field] = (now + _ASK_AGAIN_S, NvmlReturn.FUNCTION_NOT_FOUND)
            return None
        try:
            return call(*args)
        except self._errors as error:
            self._handle_error(now, index, field, error)
        except UnicodeDecodeError:
            pass  # nvidia-ml-py decodes names itself, and a name can be any bytes
        return None

    def ask_seldom(
        self,
        now: float,
        index: int | None,
        function: str,
        *args: object,
        every_s: float = math.inf,
        key: Hashable = None,
    ) -> Any:  # noqa: ANN401 - as ask
        """Call `ask` for a field that changes seldom; the result is cached for `every_s` seconds.

        The cache is emptied when the library is opened again. None (no result) is not cached.
        """
        field = (index, key or function)
        kept = self._kept.get(field)
        if kept is not None and now < kept[0]:
            return kept[1]
        answer = self.ask(now, index, function, *args, key=key)
        if answer is not None:
            self._kept[field] = (now + every_s, answer)
        return answer

    def says_unsupported(self, index: int, key: Hashable) -> bool:
        """Return whether the last query of a field (function name or key) had the result NOT_SUPPORTED."""
        return self._unknown.get((index, key), (0.0, None))[1] == NvmlReturn.NOT_SUPPORTED

    def is_unknown(self, now: float, index: int, key: Hashable) -> bool:
        """Return whether queries of a GPU's field are suspended now because the driver does not support it.

        `key` is the field's function name, or the key that distinguishes it (see `ask`).
        """
        return now < self._unknown.get((index, key), (now, None))[0]

    def constant(self, name: str) -> int | None:
        """Return the value of the constant `name` of nvidia-ml-py; None if the installed version lacks it."""
        return getattr(self._module, name, None)

    def drop_gpu(self, now: float, index: int, code: int | None = None) -> None:
        """Stop querying the GPU `index`, because a query raised GpuLostError with NVML's return code `code`.

        Set `note`; if only the GPU is lost, and not the driver, also add the GPU to `lost`. The library is
        opened again after `_OPEN_AGAIN_S` seconds.
        """
        if self._handles is not None:
            self._handles.pop(index, None)
        if code in _DRIVER_GONE:
            self.note = "the NVIDIA driver does not answer any more: it was unloaded or is being restarted"
        else:
            self.lost[index] = _LOST_WORDS.get(code, _LOST_WORDS[NvmlReturn.GPU_IS_LOST])
            self.note = f"GPU {index} does not answer any more: the driver lost it"
        self._open_again_at = now + _OPEN_AGAIN_S

    def close(self) -> None:
        """Close the library; a later reading opens it again."""
        if self._handles is not None and self._module is not None:
            try:
                self._module.nvmlShutdown()
            except self._errors as error:
                _log.debug("closing NVML: %s", error)
        self._handles = None
        self._open_again_at = None

    def _open_library(self, now: float) -> None:
        """Open the library and get the handles of its GPUs.

        On failure set `note` and the time of the next attempt.
        """
        self.note, self.driver, self._unknown, self._kept, self.lost = None, None, {}, {}, {}
        self.firmware = None
        self.generation += 1
        if self._module is None and not has_library():
            self.note = _NOTES[NvmlReturn.LIBRARY_NOT_FOUND]
            self._open_again_at = now + _OPEN_AGAIN_S
            return
        try:
            module = self._load_module()
            module.nvmlInit()
            self._handles = {}
            count = module.nvmlDeviceGetCount()
        except ImportError:
            self.note = "nvidia-ml-py is not installed: GPUs cannot be read"
            self._open_again_at = now + _OPEN_AGAIN_S
            return
        except self._errors as error:
            self.note = _reason_closed(error)
            self._open_again_at = now + _OPEN_AGAIN_S
            return
        self._find_gpus(module, min(count, _MOST_DEVICES), now)

    def _find_gpus(self, module: NvmlModule, count: int, now: float) -> None:
        """Store the handle of each GPU and the driver's version.

        If a GPU has no handle, set `note`; also add the GPU to `lost`, unless this process lacks the
        permission to use it.
        """
        for index in range(count):
            try:
                self._handles = {**(self._handles or {}), index: module.nvmlDeviceGetHandleByIndex(index)}
            except self._errors as error:
                self.note = clean(f"GPU {index} does not answer: {error}")
                code = getattr(error, "value", None)
                # A GPU without permission is not lost: it belongs to another container.
                if code != NvmlReturn.NO_PERMISSION:
                    self.lost[index] = _LOST_WORDS.get(code) or clean(f"it does not answer: {error}")
        if not count:
            self.note = _NO_DEVICE
        if self.note is not None:
            self._open_again_at = now + _OPEN_AGAIN_S
        self.driver = self._ask_version(now, None, "nvmlSystemGetDriverVersion")
        first = next(iter((self._handles or {}).items()), None)
        self.firmware = None if first is None else self._ask_version(now, first[0], _VBIOS, first[1])

    def _ask_version(self, now: float, index: int | None, function: str, *args: object) -> str | None:
        try:
            version = self.ask(now, index, function, *args)
        except GpuLostError:
            return None
        return clean(version, 40) or None if isinstance(version, str) else None

    def _load_module(self) -> NvmlModule:
        """Return the NVML module, imported if needed, and store the exception types that it raises."""
        if self._module is None:
            import pynvml

            self._module = pynvml
            _return_free_memory()
        mismatch = getattr(self._module, "NVMLLibraryMismatchError", self._module.NVMLError)
        self._errors = (self._module.NVMLError, mismatch)
        return self._module

    def _handle_error(
        self, now: float, index: int | None, field: tuple[int | None, Hashable], error: Exception
    ) -> None:
        """Handle the exception that a query raised: record a field that is not supported, and log the error.

        A field with any other error is queried again next time.

        Raises:
            GpuLostError: the error means that the GPU, or the driver, is lost.
        """
        # An error without a code is nvidia-ml-py's own: its function is newer than the driver.
        code = getattr(error, "value", NvmlReturn.FUNCTION_NOT_FOUND)
        if code in _LOST:
            raise GpuLostError(clean(error), code) from error
        if code in _UNKNOWN_FIELD:
            self._unknown[field] = (now + _ASK_AGAIN_S, code)
        elif field in self._unknown:
            del self._unknown[field]
        _log.debug("NVML, GPU %s, %s: %s", index, field[1], error)


def _reason_closed(error: Exception) -> str:
    """Return the reason why the library cannot be opened, in one line for the user."""
    return _NOTES.get(getattr(error, "value", None)) or clean(f"the NVIDIA driver does not answer: {error}")


# Why a GPU's clock is reduced (throttled): the active reasons, and the share of time of each reason.

_IDLE = 0x1
_REASONS = {
    0x2: "application clocks",
    0x4: "software power cap",
    0x8: "hardware slowdown",
    0x10: "sync boost",
    0x20: "software thermal",
    0x40: "hardware thermal",
    0x80: "hardware power brake",
    0x100: "display clock",
    0x200: "board limit",
    0x400: "reliability",
}
"""Bits of nvmlClocksEventReason* in nvml.h, without the bit for an idle GPU, which is not throttling."""

_POLICY_FIELDS = {74: "software power cap", 75: "software thermal", 76: "sync boost"}
"""Field numbers of NVML_FI_DEV_PERF_POLICY_*: counters of throttled time whose numbers are the same in every
driver."""
_EVENT_REASONS = ("software thermal", "hardware thermal", "hardware power brake")
"""Reasons counted by the fields NVML_FI_DEV_CLOCKS_EVENT_REASON_*_SLOWDOWN, in the order of the field
numbers."""
_FIRST_NUMBERS = (((580, 82), 269), ((580, 65, 7), None), ((575,), 251))
"""(minimal driver version, field number of the first of `_EVENT_REASONS`), newest version first. The numbers
moved: driver 580.65.06 answers to 251-253 and uses 269-271 for power smoothing, 580.82 has it the other way
round. nvidia-ml-py's constants come from one version of the header, whichever driver is installed, so they
cannot be trusted. None: the numbers of the versions in between are unknown."""
_LONG_TYPES = frozenset({2, 3})
"""nvmlValueType_t of 64-bit counters (unsigned long, unsigned long long)."""
_SHARE_MAX_PERCENT = 110.0
"""A share of time above this means that the counter has another unit. From 100 % up to this, the driver only
counted a little late."""


def reason_words(bits: int) -> tuple[str, ...]:
    """Return the names of the throttle reasons that are active in `bits`, in the order of their bits.

    `bits` is a mask of NVML's clocks event reasons; all bits without a name become one "reason 0x…".
    """
    known = [word for bit, word in _REASONS.items() if bits & bit]
    unknown = bits & ~(_IDLE | sum(_REASONS))
    return (*known, f"reason 0x{unknown:x}") if unknown else tuple(known)


def throttle_fields(driver: str | None) -> dict[int, str]:
    """Return the NVML fields that count throttled time in the driver version `driver`.

    The result has the throttle reason by field number.
    """
    fields = dict(_POLICY_FIELDS)
    try:
        version = tuple(int(part) for part in (driver or "").split("."))
    except ValueError:
        return fields
    for since, first in _FIRST_NUMBERS:
        if version >= since:
            if first is not None:
                fields = {number: word for number, word in fields.items() if word not in _EVENT_REASONS}
                fields.update(enumerate(_EVENT_REASONS, first))
            return fields
    return fields


class ThrottleShares:
    """Converts one GPU's counters of throttled time (ns) into shares of the time between two readings."""

    def __init__(self, fields: Mapping[int, str]) -> None:
        """Prepare to read the NVML fields `fields`.

        `fields` has the throttle reason by field number, as `throttle_fields` returns it.
        """
        self._fields = fields
        self._rates: CounterRates[str] = CounterRates()
        self._first: dict[str, tuple[float, int]] = {}
        """By reason: time and value of the counter's first reading, to check the counter's unit against
        elapsed time."""

    def read(self, nvml: Nvml, index: int, handle: object, now: float) -> dict[str, float | None]:
        """Return the throttled percentage of the time since the previous reading, by throttle reason.

        Percentages are 0 to 100, and None if unknown, as in the first reading. Return {} if this driver has
        no such counters.
        """
        answers = nvml.ask(now, index, "nvmlDeviceGetFieldValues", handle, list(self._fields))
        if answers is None:
            return {}
        counters = self._counters(answers)
        rates = self._rates.step(counters, now)
        return {
            reason: self._percent_of_time(reason, count, rates[reason], now)
            for reason, count in counters.items()
        }

    def _percent_of_time(self, reason: str, count: int, per_second: float | None, now: float) -> float | None:
        """Return the percentage (0 to 100) of time that was throttled for `reason`.

        `count` is the value of the reason's counter, `per_second` its increase per second since the previous
        reading. Return None if `per_second` is None or the percentage is implausible.
        """
        first_at, first = self._first.setdefault(reason, (now, count))
        if count < first:
            self._first[reason] = (now, count)
        elif now > first_at and _percent((count - first) / (now - first_at)) > _SHARE_MAX_PERCENT:
            return None
        percent = None if per_second is None else _percent(per_second)
        return None if percent is None or percent > _SHARE_MAX_PERCENT else min(100.0, percent)

    def _counters(self, answers: Iterable[Any]) -> dict[str, int]:
        """Return the throttled nanoseconds by reason, from NVML's results.

        A field that NVML reports with an error, or with a type other than a long integer, is left out.
        """
        counters: dict[str, int] = {}
        for answer in answers:
            reason = self._fields.get(answer.fieldId)
            if reason is not None and answer.nvmlReturn == 0 and answer.valueType in _LONG_TYPES:
                counters[reason] = int(answer.value.ullVal)
        return counters


def _percent(ns_per_s: float) -> float:
    """Convert throttled nanoseconds per second into a percentage of time."""
    return ns_per_s * 1e-7


# A GPU's memory: its size and use, and whether it is the machine's memory.

_ATS = 2
"""NVML_DEVICE_ADDRESSING_MODE_ATS: CPU and GPU share page tables."""
_CLOCK_MEMORY = 2
"""NVML_CLOCK_MEM."""
_UNIFIED_NAME = re.compile(r"\bGB10\b")
"""Names of GPUs that use the machine's memory and have none of their own, whatever their driver reports."""
_NEAR = 0.10
"""A GPU whose memory size differs from the machine's by at most this fraction may be using the machine's
memory."""
_UNIFIED_AGAIN_S = 30.0
"""Seconds between two memory queries to a GPU that uses the machine's memory: the result is not shown."""
_VERSION_1, _VERSION_2, _MEMORY_CLOCK = "memory v1", "memory v2", "memory clock"
"""Keys of fields that are read with the same function."""


def _gib_text(size_bytes: int) -> str:
    return f"{size_bytes / (1 << 30):.1f} GiB"


class GpuMemory(Struct, frozen=True):
    """A GPU's memory as the NVIDIA driver reports it."""

    unified: bool | None = None
    """Whether the GPU uses the machine's memory; None until the driver has reported."""
    total_bytes: int | None = None
    """Size of the GPU's own memory; None if the GPU uses the machine's memory, even if the driver reports a
    size."""
    used_bytes: int | None = None
    note: str | None = None
    """What contradicts itself in the driver's answers; None if nothing does."""


def ask_memory(nvml: Nvml, now: float, index: int, handle: object, *, place: Hashable = None) -> Any:  # noqa: ANN401 - the library's own structure
    """Return NVML's structure with `total` and `used` bytes of a GPU; None on an error.

    With `place`, `handle` belongs to the GPU's MIG instance number `place`.
    """
    version, keys = nvml.constant("nvmlMemory_v2"), ((_VERSION_2, place), (_VERSION_1, place))
    answer = None
    if version is not None:
        answer = nvml.ask(now, index, "nvmlDeviceGetMemoryInfo", handle, version, key=keys[0])
    # Version 1 counts what the driver reserves as used: only for drivers without version 2.
    if answer is None and (version is None or nvml.is_unknown(now, index, keys[0])):
        answer = nvml.ask(now, index, "nvmlDeviceGetMemoryInfo", handle, key=keys[1])
    return answer


class GpuMemoryReader:
    """Reads the memory of one GPU, and detects whether the GPU uses the machine's memory."""

    def __init__(self, index: int, handle: object) -> None:
        """Create a reader for the GPU with the index `index` and the NVML handle `handle`."""
        self._index = index
        self._handle = handle
        self._unified: bool | None = None
        self._again_at: float | None = None
        self._note: str | None = None

    def read(
        self,
        nvml: Nvml,
        now: float,
        name: str | None,
        machine_bytes: int | None,
        *,
        has_own_node: bool = False,
    ) -> GpuMemory:
        """Return the memory of the GPU called `name`, in a machine with `machine_bytes` of memory.

        A coherent GPU (addressing mode ATS) without a NUMA node of its own (`has_own_node`) and without a
        memory clock uses the machine's memory, whatever size the driver reports.

        The driver of a GB10, which has no memory of its own, reports NOT_SUPPORTED, a total of 0 or the
        machine's total. Other GPUs can give the same answers for other reasons: a discrete GPU without the
        function, or an H200 in a machine of 128 GiB. For these GPUs the memory clock decides, because only a
        GPU with its own memory has a memory clock.
        """
        if _UNIFIED_NAME.search(name or ""):
            self._unified = True
            return GpuMemory(unified=True)
        if self._again_at is not None and now < self._again_at:
            return GpuMemory(self._unified, note=self._note)
        self._again_at = None
        answer = ask_memory(nvml, now, self._index, self._handle)
        if answer is None:
            # A transient error does not reveal the kind of memory; a memory clock does.
            if self._unified is None or nvml.says_unsupported(self._index, (_VERSION_1, None)):
                self._decide_unified(nvml, now, hinted=nvml.says_unsupported(self._index, (_VERSION_1, None)))
            return GpuMemory(self._unified)
        total = int(answer.total)
        if total and not has_own_node and self._is_coherent(nvml, now):
            self._decide_unified(nvml, now, hinted=True)
            if self._unified and machine_bytes and abs(total - machine_bytes) > _NEAR * machine_bytes:
                self._note = (
                    f"the driver reports {_gib_text(total)} of its own, but it uses the machine's memory"
                )
        elif total and (machine_bytes is None or abs(total - machine_bytes) > _NEAR * machine_bytes):
            self._unified = False
        else:
            self._decide_unified(nvml, now, hinted=True)
        if self._unified:
            self._again_at = now + _UNIFIED_AGAIN_S
        if self._unified or not total:
            return GpuMemory(self._unified, note=self._note)
        # Where the memory clock could not be read this time, a reported total is still used.
        return GpuMemory(unified=False, total_bytes=total, used_bytes=int(answer.used))

    def corrected(self, memory: GpuMemory, held_bytes: int, machine_bytes: int | None) -> GpuMemory:
        """Return `memory`, corrected where processes hold more than the driver says that there is.

        What does not fit into the GPU's memory is in the machine's, if that is large enough.
        """
        total = memory.total_bytes
        if total is None or held_bytes <= (1 + _NEAR) * total:
            return memory
        said, held = _gib_text(total), _gib_text(held_bytes)
        note = f"contradictory: the driver reports {said}, but processes hold {held}"
        if machine_bytes is None or held_bytes > machine_bytes:
            return GpuMemory(memory.unified, total, memory.used_bytes, note)
        self._unified, self._note = True, f"{note}; taken as the machine's memory"
        self._again_at = math.inf
        return GpuMemory(unified=True, note=self._note)

    def _is_coherent(self, nvml: Nvml, now: float) -> bool:
        """Return whether CPU and GPU share page tables (addressing mode ATS)."""
        mode: int | None = nvml.ask_seldom(now, self._index, "nvmlDeviceGetAddressingMode", self._handle)
        return mode == _ATS

    def _decide_unified(self, nvml: Nvml, now: float, *, hinted: bool) -> None:
        """Set `_unified` to False if the GPU has a memory clock, and to True if its memory clock is 0.

        Only a GPU with its own memory has a memory clock. If the driver does not support the query for the
        clock, set `_unified` to True if `hinted`, and leave it unchanged otherwise. `hinted` is true if the
        driver's answer about memory fits a GPU without its own memory.
        """
        args = (self._handle, _CLOCK_MEMORY)
        clock = nvml.ask_seldom(now, self._index, "nvmlDeviceGetMaxClockInfo", *args, key=_MEMORY_CLOCK)
        if clock is not None:
            self._unified = not clock
        elif hinted and nvml.is_unknown(now, self._index, _MEMORY_CLOCK):
            self._unified = True


# The instances of a GPU in MIG mode: their profile names and their memory.

_LAYOUT_AGAIN_S = 30.0
"""Seconds between two reads of the list of instances, which only an administrator changes."""
_MEMORY_AGAIN_S = 5.0
"""Seconds between two reads of the instances' memory, which take up to seven calls per GPU."""
_MOST_SLICES = 7
"""Most instances that any GPU so far supports; used when the driver does not report the maximum."""
_ENABLED = 1
"""NVML_DEVICE_MIG_ENABLE."""
_MARK = " MIG "
"""Separates the GPU's name from the profile name in an instance's name: "NVIDIA H100 80GB HBM3 MIG
1g.10gb"."""
_MIB, _GIB = 1024**2, 1024**3
_MEMORY_EIGHTHS = 8
"""A profile's memory is counted in eighths of the GPU's memory, rounded up."""


class MigSlice(Struct, frozen=True):
    """A MIG instance with its NVML handle and its ids."""

    reading: MigInstance
    handle: object
    ids: tuple[int, int] | None = None
    """(GPU instance id, compute instance id), as NVML's process lists name the instance."""


class MigReader:
    """Reads the MIG instances of one GPU."""

    def __init__(self, index: int, handle: object) -> None:
        """Create a reader for the GPU with the index `index` and the NVML handle `handle`."""
        self._index = index
        self._handle = handle
        self._slices: tuple[MigSlice, ...] = ()
        self._layout_again_at: float | None = None
        self._memory_again_at: float | None = None

    def read(self, nvml: Nvml, now: float, gpu_bytes: int | None) -> tuple[bool | None, tuple[MigSlice, ...]]:
        """Return whether MIG mode is on (None: the GPU does not support it), and the GPU's MIG instances.

        `gpu_bytes` is the GPU's memory. Raises GpuLostError when the GPU itself is lost.
        """
        mode = nvml.ask_seldom(
            now, self._index, "nvmlDeviceGetMigMode", self._handle, every_s=_LAYOUT_AGAIN_S
        )
        if mode is None or int(mode[0]) != _ENABLED:
            self._slices, self._layout_again_at = (), None
            return (None if mode is None else False), ()
        if self._layout_again_at is None or now >= self._layout_again_at:
            self._layout_again_at, self._memory_again_at = now + _LAYOUT_AGAIN_S, None
            self._slices = self._list_instances(nvml, now, gpu_bytes)
        if self._memory_again_at is None or now >= self._memory_again_at:
            self._memory_again_at = now + _MEMORY_AGAIN_S
            self._slices = tuple(self._with_memory(nvml, now, instance) for instance in self._slices)
        return True, self._slices

    def _list_instances(self, nvml: Nvml, now: float, gpu_bytes: int | None) -> tuple[MigSlice, ...]:
        """Return the GPU's current MIG instances.

        An instance that was known before keeps its name and ids. NVML asks for instances by numbers from 0 up
        to a maximum; numbers in between may be without an instance.
        """
        count = nvml.ask_seldom(now, self._index, "nvmlDeviceGetMaxMigDeviceCount", self._handle)
        known = {instance.reading.index: instance for instance in self._slices}
        found = []
        for place in range(_MOST_SLICES if count is None else int(count)):
            handle = self._ask(nvml, now, place, "nvmlDeviceGetMigDeviceHandleByIndex", self._handle, place)
            if handle is None:
                continue
            uuid = clean(self._ask(nvml, now, place, "nvmlDeviceGetUUID", handle) or "", 96) or None
            old = known.get(place)
            if old is not None and uuid is not None and old.reading.uuid == uuid:
                found.append(replace(old, handle=handle))
            else:
                found.append(self._meet(nvml, now, place, handle, uuid, gpu_bytes))
        return tuple(found)

    def _meet(
        self, nvml: Nvml, now: float, place: int, handle: object, uuid: str | None, gpu_bytes: int | None
    ) -> MigSlice:
        """Return a MIG instance that was not known before, with its profile name and ids."""
        name = clean(self._ask(nvml, now, place, "nvmlDeviceGetName", handle) or "") or None
        if name is None or _MARK not in name:
            attributes = self._ask(nvml, now, place, "nvmlDeviceGetAttributes", handle)
            name = profile_name(attributes, gpu_bytes) or name
        else:
            name = name.rpartition(_MARK)[2]
        ids = [
            self._ask(nvml, now, place, f"nvmlDeviceGet{kind}InstanceId", handle)
            for kind in ("Gpu", "Compute")
        ]
        known = None if None in ids else (int(ids[0]), int(ids[1]))
        return MigSlice(MigInstance(place, name, uuid), handle, known)

    def _with_memory(self, nvml: Nvml, now: float, instance: MigSlice) -> MigSlice:
        """Return a copy of a MIG instance with its current memory sizes; None for an unreadable size."""
        place = instance.reading.index
        try:
            answer = ask_memory(nvml, now, self._index, instance.handle, place=place)
        except GpuLostError:
            self._layout_again_at = now
            answer = None
        total, used = (None, None) if answer is None else (int(answer.total) or None, int(answer.used))
        return replace(
            instance, reading=replace(instance.reading, memory_total_bytes=total, memory_used_bytes=used)
        )

    def _ask(self, nvml: Nvml, now: float, place: int, function: str, *args: object) -> Any:  # noqa: ANN401 - as Nvml.ask
        """Call an NVML function for the MIG instance at `place`; return its result, or None on an error.

        If NVML reports the GPU as lost, only this instance has been removed: return None, and read the list
        of instances again at the next reading.
        """
        try:
            return nvml.ask(now, self._index, function, *args, key=(function, place))
        except GpuLostError:
            self._layout_again_at = now
            return None


def profile_name(attributes: Any, gpu_bytes: int | None) -> str | None:  # noqa: ANN401 - the library's own structure
    """Return the profile name, such as "1c.3g.40gb", of a MIG instance with these NVML attributes.

    The name states how many slices of the GPU the instance has, and its memory in GB. The memory is rounded
    to eighths of the GPU's memory (`gpu_bytes`), as in NVIDIA's device plugin. None if an attribute is
    missing.
    """
    slices = int(getattr(attributes, "gpuInstanceSliceCount", 0))
    compute = int(getattr(attributes, "computeInstanceSliceCount", 0))
    held_bytes = int(getattr(attributes, "memorySizeMB", 0)) * _MIB
    if not slices or not held_bytes or not gpu_bytes:
        return None
    eighths = math.ceil(held_bytes / gpu_bytes * _MEMORY_EIGHTHS)
    gigabytes = round(eighths / _MEMORY_EIGHTHS * math.ceil(gpu_bytes / _GIB))
    part = f"{compute}c." if compute and compute != slices else ""
    return f"{part}{slices}g.{gigabytes}gb"


# Processes that hold GPU memory, as the driver lists them.

_COMPUTE = "nvmlDeviceGetComputeRunningProcesses"
_GRAPHICS = "nvmlDeviceGetGraphicsRunningProcesses"
_GRAPHICS_AGAIN_S = 5.0
"""Seconds between two reads of the graphics processes, which hold little memory and serve no requests."""
_MOST = 256
"""Upper limit of processes shown per GPU."""
_NOT_KNOWN = 2**64 - 1
"""NVML_VALUE_NOT_AVAILABLE: the driver does not report the memory of this process."""


class _Held(Struct):
    """GPU memory and type of one process, merged from all NVML lists that contain the process."""

    memory_bytes: int | None
    kind: str
    mig_index: int | None


class GpuProcessReader:
    """Reads the processes of GPUs; caches the name of each process while the process holds GPU memory."""

    def __init__(self, root: Path = Path("/")) -> None:
        self._proc = root / "proc"
        self._names: dict[tuple[int, int], str] = {}

    def read(
        self, nvml: Nvml, index: int, handle: object, now: float, slices: Sequence[MigSlice] = ()
    ) -> tuple[GpuProcess, ...] | None:
        """Return the processes of the GPU `index`, sorted by memory, largest first.

        None if the driver lists neither compute nor graphics processes. On a GPU in MIG mode, the driver
        lists all processes only to privileged programs. For other programs, the process lists of the GPU's
        MIG instances (`slices`) are joined.
        """
        computing = nvml.ask(now, index, _COMPUTE, handle)
        if computing is None and slices:
            computing = _processes_of_slices(nvml, index, now, slices)
        drawing = nvml.ask_seldom(now, index, _GRAPHICS, handle, every_s=_GRAPHICS_AGAIN_S)
        if computing is None and drawing is None:
            return None
        places = {one.ids: one.reading.index for one in slices if one.ids is not None}
        held: dict[int, _Held] = {}
        for kind, listed in (("compute", computing), ("graphics", drawing)):
            for process in (listed or ())[:_MOST]:
                _add_process(held, process, kind, places)
        names = {
            (index, pid): self._names.get((index, pid)) or self._process_name(nvml, pid, now) for pid in held
        }
        self._names = {key: name for key, name in self._names.items() if key[0] != index} | names
        found = [
            GpuProcess(pid, names[index, pid], one.memory_bytes, one.kind, one.mig_index)
            for pid, one in held.items()
        ]
        return tuple(sorted(found, key=lambda process: (-(process.memory_bytes or 0), process.pid)))

    def _process_name(self, nvml: Nvml, pid: int, now: float) -> str:
        """Return the name of a process, from the driver or else from /proc.

        The driver also knows the names of processes in other containers.
        """
        try:
            name = nvml.ask(now, None, "nvmlSystemGetProcessName", pid)
        except GpuLostError:
            name = None
        if not name:
            name = read_text(str(self._proc / str(pid) / "comm")) or ""
        if name.startswith("/"):
            name = name.split()[0].rsplit("/", 1)[-1]
        return clean(name) or f"pid {pid}"


def _processes_of_slices(nvml: Nvml, index: int, now: float, slices: Sequence[MigSlice]) -> list[Any] | None:
    """Return the joined process lists of all MIG instances; None when no instance's list can be read."""
    lists = []
    for one in slices:
        try:
            lists.append(nvml.ask(now, index, _COMPUTE, one.handle, key=(_COMPUTE, one.reading.index)))
        except GpuLostError:
            continue  # an instance that was removed just now
    if all(listed is None for listed in lists):
        return None
    return [process for listed in lists for process in listed or ()]


def _add_process(held: dict[int, _Held], process: Any, kind: str, places: dict[tuple[int, int], int]) -> None:  # noqa: ANN401 - the library's own structure
    """Add the NVML process entry `process` to `held`, which has one entry for each process id.

    `kind` is the NVML list that has the entry, "compute" or "graphics". A process in both lists gets the kind
    "both", and its memory is counted once. `places` has the number of each MIG instance by its two ids.
    """
    pid, memory = int(process.pid), _memory_bytes(process)
    known = held.get(pid)
    if known is None:
        ids = (getattr(process, "gpuInstanceId", -1), getattr(process, "computeInstanceId", -1))
        held[pid] = _Held(memory, kind, places.get(ids))
        return
    if known.kind != kind:
        known.kind = "both"
    known.memory_bytes = max(
        (size for size in (known.memory_bytes, memory) if size is not None), default=None
    )


def _memory_bytes(process: Any) -> int | None:  # noqa: ANN401 - the library's own structure
    """Return the GPU memory that a process holds; None when the driver does not report it."""
    used = getattr(process, "usedGpuMemory", None)
    return None if used is None or used >= _NOT_KNOWN or used < 0 else int(used)


_TEMPERATURE_GPU, _THRESHOLD_SLOWDOWN, _CLOCK_SM = 0, 1, 1
"""NVML_TEMPERATURE_GPU, NVML_TEMPERATURE_THRESHOLD_SLOWDOWN, NVML_CLOCK_SM."""
_MARGIN = "nvmlDeviceGetMarginTemperature"
_MILLI = 1000.0
_LIMIT_AGAIN_S = 30.0
"""Seconds between two reads of the power limit, which is changed only by hand."""
_RANGES = {
    "utilization": (0.0, 100.0),
    "temperature": (-50.0, 200.0),
    "threshold": (1.0, 200.0),
    "margin": (-100.0, 200.0),
    "power": (0.0, 20_000.0),
    "power limit": (1.0, 20_000.0),
    "clock": (0.0, 20_000.0),
    "energy": (1.0, 2.0**63),
}
"""Plausible ranges, in %, °C (temperature, threshold, margin), W (power, power limit), MHz and mJ; a value
outside its range is discarded."""


class GpuReadings(Struct, frozen=True):
    """The readings of all GPUs at one time, and their use of the machine's own memory (unified memory)."""

    gpus: tuple[GpuReading, ...] = ()
    note: str | None = None
    """Why a GPU is missing, in one line; None when no GPU is missing."""
    lost: tuple[LostGpu, ...] = ()
    """GPUs that the driver reports as lost or in need of a reset."""
    unified: bool | None = None
    """True if a GPU has no memory of its own and uses the machine's; None if no GPU has reported yet."""
    processes_bytes: int | None = None
    """Bytes that processes hold on the GPUs that use the machine's memory."""


class _Device(Struct, frozen=True):
    """The NVML handle and the readers of one GPU, valid until NVML is opened again."""

    index: int
    handle: object
    shares: ThrottleShares
    memory: GpuMemoryReader
    mig: MigReader


class GpuReader:
    """Reads every GPU; opens NVML at the first reading, and again some time after a GPU was lost."""

    def __init__(self, root: Path = Path("/"), module: NvmlModule | None = None) -> None:
        """Use the NVML module `module` (None: nvidia-ml-py).

        Names of processes that the driver does not report are read from /proc below `root`.
        """
        self._nvml = Nvml(module)
        self._processes = GpuProcessReader(root)
        self._devices: dict[int, _Device] = {}
        self._generation = 0
        self._has_own_node = False
        self._named: dict[int, tuple[str | None, str | None]] = {}
        """Name and UUID of each GPU that has answered, by index: a lost GPU no longer reports them."""
        self._unified: bool | None = None  # kept when the driver goes away: the hardware is the same

    @property
    def driver(self) -> str | None:
        """The NVIDIA driver's version; None while NVML, the driver's library, is not open."""
        return self._nvml.driver

    @property
    def firmware(self) -> str | None:
        """VBIOS version of the first GPU; None while NVML is not open, and where it is not reported."""
        return self._nvml.firmware

    def read(
        self, now: float, machine_bytes: int | None = None, *, has_own_node: bool = False
    ) -> GpuReadings:
        """Return a reading of every GPU at `now` (seconds).

        `machine_bytes` is the memory of NUMA nodes with CPUs: a GPU that reports the same size may be using
        it. `has_own_node` is whether there are nodes without CPUs, which may be the memory of GPUs.
        """
        self._has_own_node = has_own_node
        handles = self._nvml.handles(now)
        if self._nvml.generation != self._generation:
            self._generation, self._devices = self._nvml.generation, {}
        readings: list[GpuReading] = []
        unified: list[bool] = []
        held: list[int] = []
        for index, handle in handles.items():
            try:
                device = self._devices.get(index) or self._meet(index, handle)
                reading, shares_memory = self._read_one(now, device, machine_bytes)
            except GpuLostError as error:
                self._devices.pop(index, None)
                self._nvml.drop_gpu(now, index, error.code)
                continue
            readings.append(reading)
            self._named[index] = (reading.name, reading.uuid)
            if shares_memory is not None:
                unified.append(shares_memory)
            if shares_memory and reading.processes is not None:
                held.append(_sum_bytes(reading.processes))
        if unified:
            self._unified = any(unified)
        return GpuReadings(
            gpus=tuple(readings),
            note=self._nvml.note or _silent_note(readings),
            lost=tuple(
                LostGpu(index, *self._named.get(index, (None, None)), reason)
                for index, reason in sorted(self._nvml.lost.items())
            ),
            unified=self._unified,
            processes_bytes=sum(held) if held else None,
        )

    def close(self) -> None:
        """Close NVML, the driver's library."""
        self._nvml.close()

    def _meet(self, index: int, handle: object) -> _Device:
        """Create and store the readers of the GPU `index`, which has just been found; return them."""
        shares = ThrottleShares(throttle_fields(self._nvml.driver))
        device = _Device(index, handle, shares, GpuMemoryReader(index, handle), MigReader(index, handle))
        return self._devices.setdefault(index, device)

    def _read_one(
        self, now: float, device: _Device, machine_bytes: int | None
    ) -> tuple[GpuReading, bool | None]:
        """Return a GPU's reading, and whether the GPU uses the machine's memory (None: unknown).

        Raises GpuLostError when the GPU does not answer any more.
        """
        nvml, index, handle = self._nvml, device.index, device.handle
        name = clean(self._ask_seldom(now, device, "nvmlDeviceGetName") or "") or None
        memory = device.memory.read(nvml, now, name, machine_bytes, has_own_node=self._has_own_node)
        mig, slices = device.mig.read(nvml, now, memory.total_bytes)
        processes = self._processes.read(nvml, index, handle, now, slices)
        if not slices and processes is not None:
            memory = device.memory.corrected(memory, _sum_bytes(processes), machine_bytes)
        rates = self._ask(now, device, "nvmlDeviceGetUtilizationRates")
        clock = self._ask(now, device, "nvmlDeviceGetClockInfo", _CLOCK_SM)
        clock_max = self._ask_seldom(now, device, "nvmlDeviceGetMaxClockInfo", _CLOCK_SM)
        heat = self._ask(now, device, "nvmlDeviceGetTemperature", _TEMPERATURE_GPU)
        reading = GpuReading(
            index=index,
            name=name,
            uuid=clean(self._ask_seldom(now, device, "nvmlDeviceGetUUID") or "", 96) or None,
            utilization_percent=_in_range("utilization", getattr(rates, "gpu", None)),
            temperature_c=_in_range("temperature", heat),
            limit_margin_c=_in_range("margin", self._ask(now, device, _MARGIN)),
            slowdown_c=self._slowdown_c(now, device),
            power_w=_from_milli("power", self._ask(now, device, "nvmlDeviceGetPowerUsage")),
            power_limit_w=self._power_limit_w(now, device),
            energy_j=_energy_j(self._ask(now, device, "nvmlDeviceGetTotalEnergyConsumption")),
            sm_clock_mhz=_as_int(_in_range("clock", clock)),
            sm_clock_max_mhz=_as_int(_in_range("clock", clock_max)),
            memory_total_bytes=memory.total_bytes,
            memory_used_bytes=memory.used_bytes,
            memory_note=memory.note,
            throttle_reasons=self._throttle_reasons(now, device),
            throttled_percent=self._throttled_percent(now, device),
            processes=processes,
            mig=mig,
            mig_instances=tuple(each.reading for each in slices),
        )
        return reading, memory.unified

    def _ask(self, now: float, device: _Device, function: str, *args: object) -> Any:  # noqa: ANN401 - as Nvml.ask
        """Call an NVML function for a GPU; return its result, or None on an error."""
        return self._nvml.ask(now, device.index, function, device.handle, *args)

    def _ask_seldom(
        self, now: float, device: _Device, function: str, *args: object, every_s: float = math.inf
    ) -> Any:  # noqa: ANN401 - as Nvml.ask
        """Call an NVML function whose result changes seldom; the result is cached for `every_s` seconds."""
        return self._nvml.ask_seldom(now, device.index, function, device.handle, *args, every_s=every_s)

    def _power_limit_w(self, now: float, device: _Device) -> float | None:
        """Return the enforced power limit in watts, else the configured limit, else None."""
        for function in ("nvmlDeviceGetEnforcedPowerLimit", "nvmlDeviceGetPowerManagementLimit"):
            answer = self._ask_seldom(now, device, function, every_s=_LIMIT_AGAIN_S)
            watts = _from_milli("power limit", answer)
            if watts is not None:
                return watts
        return None

    def _slowdown_c(self, now: float, device: _Device) -> float | None:
        """Return the temperature (°C) at which the GPU slows down; None if it is unknown.

        Some drivers report instead by how much the GPU is cooler than this temperature. For them, return
        None.
        """
        if not self._nvml.is_unknown(now, device.index, _MARGIN):
            return None
        threshold = self._ask_seldom(now, device, "nvmlDeviceGetTemperatureThreshold", _THRESHOLD_SLOWDOWN)
        return _in_range("threshold", threshold)

    def _throttle_reasons(self, now: float, device: _Device) -> tuple[str, ...] | None:
        """Return the names of the active throttle reasons; None when the driver does not report them.

        Drivers before 535 have NVML's function under an older name.
        """
        bits = self._ask(now, device, "nvmlDeviceGetCurrentClocksEventReasons")
        if bits is None:
            bits = self._ask(now, device, "nvmlDeviceGetCurrentClocksThrottleReasons")
        return None if bits is None else reason_words(int(bits))

    def _throttled_percent(self, now: float, device: _Device) -> Mapping[str, float | None]:
        """Return the percentage of throttled time since the previous reading, by throttle reason."""
        return device.shares.read(self._nvml, device.index, device.handle, now)


def _in_range(quantity: str, value: float | None) -> float | None:
    """Return `value` as a float if it lies in the range of `quantity` in `_RANGES`, else None."""
    low, high = _RANGES[quantity]
    return float(value) if value is not None and low <= value <= high else None


def _from_milli(quantity: str, value: float | None) -> float | None:
    """Divide `value` by 1000; None when the result is outside the range of `quantity` in `_RANGES`."""
    return None if value is None else _in_range(quantity, value / _MILLI)


def _energy_j(millijoules: int | None) -> float | None:
    """Convert the driver's energy counter, in millijoules since the driver was loaded, to joules.

    Return None for 0, because a driver that does not count energy reports 0; None also for implausible
    values.
    """
    return None if _in_range("energy", millijoules) is None or millijoules is None else millijoules / _MILLI


def _silent_note(readings: Sequence[GpuReading]) -> str | None:
    """Return a note that names the GPUs for which no current value was read; None if there are none."""
    silent = [
        str(gpu.index)
        for gpu in readings
        if gpu.utilization_percent is gpu.temperature_c is gpu.power_w is gpu.sm_clock_mhz is None
        and gpu.throttle_reasons is None
        and gpu.processes is None
    ]
    return (
        f"GPU {', '.join(silent)} reports nothing: the driver answers no query about it" if silent else None
    )


def _as_int(value: float | None) -> int | None:
    """Return a clock in MHz as an integer; None for None."""
    return None if value is None else int(value)


def _sum_bytes(processes: tuple[GpuProcess, ...]) -> int:
    """Return the GPU memory of all processes in bytes; unknown sizes count as 0."""
    return sum(process.memory_bytes or 0 for process in processes)
