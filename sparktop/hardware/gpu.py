"""The GPUs of a machine, read through NVML; values that the driver does not report are None.

`Nvml` is the opened library, `Gpu` one device of it; `GpuReader` reads all GPUs with readers of their memory,
MIG instances, processes and throttling. Only the thread that reads the samples uses NVML: there are no locks.
"""

from __future__ import annotations

import logging
import math
import re
from collections.abc import Callable, Hashable, Mapping, Sequence
from contextlib import suppress
from enum import IntEnum
from pathlib import Path
from typing import Any, TypeAlias

from msgspec import Struct
from msgspec.structs import replace

from sparktop.hardware.kernel_file import CounterRates, read_text
from sparktop.model.node import GIB, GpuProcess, GpuReading, LostGpu, MigInstance
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


NvmlModule: TypeAlias = Any
"""nvidia-ml-py's module `pynvml`, or a substitute that behaves like it. Its functions are looked up by name,
because older versions lack some."""
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
        self.now = 0.0
        """Time of the present reading, in seconds."""
        self.generation = 0
        """How often the library was opened: GPU handles and cached values are valid until it is opened
        again."""
        self._module = module
        self._errors: tuple[type[Exception], ...] = ()
        self._handles: dict[int, object] | None = None
        self._open_again_at: float | None = None
        self._unknown: dict[tuple[int | None, Hashable], tuple[float, int | None]] = {}
        """By field that the driver does not support: when it is queried again, and the return code."""
        self._cache: dict[tuple[int | None, Hashable], tuple[float, Any]] = {}
        """By field: until when its value holds, and the value."""

    def handles(self, now: float) -> dict[int, object]:
        """Return the NVML handles of the GPUs that answer, by GPU index.

        Opens the library if it is not open, or again if an attempt is due after a failure or a lost GPU. All
        queries that follow are made at the time `now` (seconds).
        """
        self.now = now
        is_due = self._open_again_at is not None and now >= self._open_again_at
        if is_due or (self._handles is None and self._open_again_at is None):
            self.close()
            self._open_library()
        return dict(self._handles or {})

    def ask(self, index: int | None, function: str, *args: object, key: Hashable = None) -> Any:  # noqa: ANN401 - as many types as fields
        """Call the NVML function named `function` with `args`, for the GPU `index` (None: the driver itself).

        Return its result, or None on an error. A field that the driver does not support is not queried again
        for `_ASK_AGAIN_S`; `key` distinguishes fields that are read with the same function.

        Raises:
            GpuLostError: the GPU, or the driver, is lost.
        """
        field = (index, key or function)
        if self.is_unknown(*field):
            return None
        call = getattr(self._module, function, None)
        if call is None:
            self._unknown[field] = (self.now + _ASK_AGAIN_S, NvmlReturn.FUNCTION_NOT_FOUND)
            return None
        try:
            return call(*args)
        except self._errors as error:
            self._handle_error(index, field, error)
        except UnicodeDecodeError:
            pass  # nvidia-ml-py decodes names itself, and a name can be any bytes
        return None

    def ask_seldom(
        self, index: int | None, function: str, *args: object, every_s: float, key: Hashable = None
    ) -> Any:  # noqa: ANN401 - as ask
        """Call `ask` for a field that changes seldom; the result is cached for `every_s` seconds.

        The cache is emptied when the library is opened again. None (no result) is not cached.
        """
        field = (index, key or function)
        until, answer = self._cache.get(field, (-math.inf, None))
        if self.now < until:
            return answer
        answer = self.ask(index, function, *args, key=key)
        if answer is not None:
            self._cache[field] = (self.now + every_s, answer)
        return answer

    def says_unsupported(self, index: int, key: Hashable) -> bool:
        """Return whether the last query of a field (function name or key) had the result NOT_SUPPORTED."""
        return self._unknown.get((index, key), (0.0, None))[1] == NvmlReturn.NOT_SUPPORTED

    def is_unknown(self, index: int | None, key: Hashable) -> bool:
        """Return whether queries of a field are suspended now because the driver does not support it.

        `key` is the field's function name, or the key that distinguishes it (see `ask`).
        """
        return self.now < self._unknown.get((index, key), (-math.inf, None))[0]

    def constant(self, name: str) -> int | None:
        """Return the value of the constant `name` of nvidia-ml-py; None if the installed version lacks it."""
        return getattr(self._module, name, None)

    def drop_gpu(self, index: int, code: int | None = None) -> None:
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
        self._open_again_at = self.now + _OPEN_AGAIN_S

    def close(self) -> None:
        """Close the library; a later reading opens it again."""
        if self._handles is not None and self._module is not None:
            try:
                self._module.nvmlShutdown()
            except self._errors as error:
                _log.debug("closing NVML: %s", error)
        self._handles = None
        self._open_again_at = None

    def _open_library(self) -> None:
        """Open the library and get the handles of its GPUs.

        On failure set `note` and the time of the next attempt.
        """
        self.note, self.driver, self.firmware, self.lost = None, None, None, {}
        self._unknown, self._cache = {}, {}
        self.generation += 1
        if self._module is None and not has_library():
            self.note = _NOTES[NvmlReturn.LIBRARY_NOT_FOUND]
        else:
            try:
                module = self._load_module()
                module.nvmlInit()
                self._handles = {}
                self._find_gpus(module, self._handles)
            except ImportError:
                self.note = "nvidia-ml-py is not installed: GPUs cannot be read"
            except self._errors as error:
                self.note = _reason_closed(error)
        if self.note is not None:
            self._open_again_at = self.now + _OPEN_AGAIN_S

    def _find_gpus(self, module: NvmlModule, handles: dict[int, object]) -> None:
        """Add the handle of each GPU to `handles`, and store the versions of driver and VBIOS.

        If a GPU has no handle, set `note`; also add the GPU to `lost`, unless this process lacks the
        permission to use it.
        """
        count = min(module.nvmlDeviceGetCount(), _MOST_DEVICES)
        for index in range(count):
            try:
                handles[index] = module.nvmlDeviceGetHandleByIndex(index)
            except self._errors as error:
                self.note = clean(f"GPU {index} does not answer: {error}")
                code = getattr(error, "value", None)
                # A GPU without permission is not lost: it belongs to another container.
                if code != NvmlReturn.NO_PERMISSION:
                    self.lost[index] = _LOST_WORDS.get(code) or clean(f"it does not answer: {error}")
        if not count:
            self.note = "no NVIDIA GPU on this machine"
        self.driver = self._ask_version(None, "nvmlSystemGetDriverVersion")
        for index, handle in list(handles.items())[:1]:
            self.firmware = self._ask_version(index, "nvmlDeviceGetVbiosVersion", handle)

    def _ask_version(self, index: int | None, function: str, *args: object) -> str | None:
        try:
            version = self.ask(index, function, *args)
        except GpuLostError:
            return None
        return clean(version, 40) or None if isinstance(version, str) else None

    def _load_module(self) -> NvmlModule:
        """Return the NVML module, imported if needed, and store the exception types that it raises."""
        if self._module is None:
            import pynvml

            self._module = pynvml
        mismatch = getattr(self._module, "NVMLLibraryMismatchError", self._module.NVMLError)
        self._errors = (self._module.NVMLError, mismatch)
        return self._module

    def _handle_error(self, index: int | None, field: tuple[int | None, Hashable], error: Exception) -> None:
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
            self._unknown[field] = (self.now + _ASK_AGAIN_S, code)
        elif field in self._unknown:
            del self._unknown[field]
        _log.debug("NVML, GPU %s, %s: %s", index, field[1], error)


def _reason_closed(error: Exception) -> str:
    """Return why the library cannot be opened, in one line for the user."""
    return _NOTES.get(getattr(error, "value", None)) or clean(f"the NVIDIA driver does not answer: {error}")


class Gpu:
    """A GPU, or one of its MIG instances, whose fields are read with its NVML handle."""

    def __init__(self, nvml: Nvml, index: int, handle: object, place: int | None = None) -> None:
        """Read the GPU `index`; with `place`, `handle` belongs to its MIG instance of this number."""
        self.nvml = nvml
        self.index = index
        self.handle = handle
        self._place = place

    @property
    def now(self) -> float:
        """Time of the present reading, in seconds."""
        return self.nvml.now

    def ask(self, function: str, *args: object, key: str = "") -> Any:  # noqa: ANN401 - as Nvml.ask
        """Call an NVML function; return its result, or None on an error. `key` is as of `Nvml.ask`."""
        return self.nvml.ask(self.index, function, self.handle, *args, key=(key or function, self._place))

    def ask_seldom(self, function: str, *args: object, every_s: float = math.inf, key: str = "") -> Any:  # noqa: ANN401 - as above
        """Call an NVML function whose result changes seldom; the result is cached for `every_s` seconds."""
        name = (key or function, self._place)
        return self.nvml.ask_seldom(self.index, function, self.handle, *args, every_s=every_s, key=name)

    def is_unknown(self, key: str) -> bool:
        """Return whether queries of a field are suspended now because the driver does not support it."""
        return self.nvml.is_unknown(self.index, (key, self._place))

    def says_unsupported(self, key: str) -> bool:
        """Return whether the last query of a field had the result NOT_SUPPORTED."""
        return self.nvml.says_unsupported(self.index, (key, self._place))


_IDLE = 0x1
"""Bit of a throttle mask for an idle GPU, which is no throttling."""
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
_PERCENT_PER_NS_PER_S = 1e-7
_SHARE_MAX_PERCENT = 110.0
"""A share of time above this means that the counter has another unit. From 100 % up to this, the driver only
counted a little late."""


def reason_words(bits: int) -> tuple[str, ...]:
    """Return the names of the throttle reasons that are active in `bits`, in the order of their bits.

    `bits` is a mask of NVML's clocks event reasons; all bits without a name become one "reason 0x…".
    """
    names = [word for bit, word in _REASONS.items() if bits & bit]
    unnamed = bits & ~(_IDLE | sum(_REASONS))
    return (*names, f"reason 0x{unnamed:x}") if unnamed else tuple(names)


def throttle_fields(driver: str | None) -> dict[int, str]:
    """Return the NVML fields that count throttled time in the driver version `driver`.

    The result has the throttle reason by field number.
    """
    fields = dict(_POLICY_FIELDS)
    try:
        version = tuple(int(part) for part in (driver or "").split("."))
    except ValueError:
        return fields
    for since, first_field in _FIRST_NUMBERS:
        if version >= since:
            if first_field is not None:
                fields = {number: word for number, word in fields.items() if word not in _EVENT_REASONS}
                fields.update(enumerate(_EVENT_REASONS, first_field))
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

    def read(self, gpu: Gpu) -> dict[str, float | None]:
        """Return the throttled percentage of the time since the previous reading, by throttle reason.

        Percentages are 0 to 100, and None if unknown, as in the first reading. Return {} if this driver has
        no such counters.
        """
        answers = gpu.ask("nvmlDeviceGetFieldValues", list(self._fields))
        if answers is None:
            return {}
        # One with an error, or of a type other than a long integer, is left out.
        counters = {
            self._fields[answer.fieldId]: int(answer.value.ullVal)
            for answer in answers
            if answer.fieldId in self._fields and answer.nvmlReturn == 0 and answer.valueType in _LONG_TYPES
        }
        rates = self._rates.step(counters, gpu.now)
        return {reason: _percent_of_time(rates[reason]) for reason in counters}


def _percent_of_time(ns_per_s: float | None) -> float | None:
    """Return a share of time in percent (0 to 100); None if it is unknown or implausible."""
    percent = None if ns_per_s is None else _PERCENT_PER_NS_PER_S * ns_per_s
    return None if percent is None or percent > _SHARE_MAX_PERCENT else min(100.0, percent)


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
_MEMORY, _MEMORY_CLOCK = "nvmlDeviceGetMemoryInfo", "memory clock"
"""A function, and the key of a field that is read with the same function as another."""


def _gib_text(size_bytes: int) -> str:
    return f"{size_bytes / GIB:.1f} GiB"


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


def ask_memory(gpu: Gpu) -> Any:  # noqa: ANN401 - the library's own structure
    """Return NVML's structure with `total` and `used` bytes of a GPU or MIG instance; None on an error."""
    # Version 1 counts what the driver reserves as used.
    return gpu.ask(_MEMORY, gpu.nvml.constant("nvmlMemory_v2"))


class GpuMemoryReader:
    """Reads the memory of one GPU, and detects whether the GPU uses the machine's memory."""

    def __init__(self, gpu: Gpu) -> None:
        """Read the memory of `gpu`."""
        self._gpu = gpu
        self._unified: bool | None = None
        self._again_at = -math.inf
        """Time of the next query to a GPU that uses the machine's memory."""
        self._note: str | None = None

    def read(self, name: str | None, machine_bytes: int | None, *, has_own_node: bool = False) -> GpuMemory:
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
        if self._gpu.now < self._again_at:
            return GpuMemory(self._unified, note=self._note)
        answer = ask_memory(self._gpu)
        if answer is None:
            # A transient error does not reveal the kind of memory; a memory clock does.
            unsupported = self._gpu.says_unsupported(_MEMORY)
            if self._unified is None or unsupported:
                self._decide_unified(fits_unified=unsupported)
            return GpuMemory(self._unified)
        total = int(answer.total)
        is_other_size = machine_bytes is None or abs(total - machine_bytes) > _NEAR * machine_bytes
        # Coherent: CPU and GPU share page tables.
        if total and not has_own_node and self._gpu.ask_seldom("nvmlDeviceGetAddressingMode") == _ATS:
            self._decide_unified(fits_unified=True)
            if self._unified and machine_bytes and is_other_size:
                self._note = (
                    f"the driver reports {_gib_text(total)} of its own, but it uses the machine's memory"
                )
        elif total and is_other_size:
            self._unified = False
        else:
            self._decide_unified(fits_unified=True)
        if self._unified:
            self._again_at = self._gpu.now + _UNIFIED_AGAIN_S
        if self._unified or not total:
            return GpuMemory(self._unified, note=self._note)
        # Where the memory clock could not be read this time, a reported total is still used.
        return GpuMemory(unified=False, total_bytes=total, used_bytes=int(answer.used))

    def correct(self, memory: GpuMemory, held_bytes: int, machine_bytes: int | None) -> GpuMemory:
        """Return `memory`, corrected where processes hold more than the driver says that there is.

        What does not fit into the GPU's memory is in the machine's, if that is large enough; the GPU then
        counts as one that uses the machine's memory, also in later calls of `read`.
        """
        total = memory.total_bytes
        if total is None or held_bytes <= (1 + _NEAR) * total:
            return memory
        held_text = _gib_text(held_bytes)
        note = f"contradictory: the driver reports {_gib_text(total)}, but processes hold {held_text}"
        if machine_bytes is None or held_bytes > machine_bytes:
            return GpuMemory(memory.unified, total, memory.used_bytes, note)
        self._unified, self._note = True, f"{note}; taken as the machine's memory"
        self._again_at = math.inf
        return GpuMemory(unified=True, note=self._note)

    def _decide_unified(self, *, fits_unified: bool) -> None:
        """Set `_unified` to False if the GPU has a memory clock, and to True if its memory clock is 0.

        Only a GPU with its own memory has a memory clock. If the driver does not support the query for the
        clock, set `_unified` to True if the driver's answer about memory fits a GPU without its own memory
        (`fits_unified`), and leave it unchanged otherwise.
        """
        clock = self._gpu.ask_seldom("nvmlDeviceGetMaxClockInfo", _CLOCK_MEMORY, key=_MEMORY_CLOCK)
        if clock is not None:
            self._unified = not clock
        elif fits_unified and self._gpu.is_unknown(_MEMORY_CLOCK):
            self._unified = True


_MIG_AGAIN_S = 5.0
"""Seconds between two reads of the instances and their memory, which take a few calls each."""
_MOST_SLICES = 7
"""Most instances that any GPU so far supports; used when the driver does not report the maximum."""
_ENABLED = 1
"""NVML_DEVICE_MIG_ENABLE."""
_MARK = " MIG "
"""Separates the GPU's name from the profile name in an instance's name: "NVIDIA H100 80GB HBM3 MIG
1g.10gb"."""


class MigSlice(Struct, frozen=True):
    """A MIG instance, how it is read, and its ids."""

    reading: MigInstance
    gpu: Gpu
    ids: tuple[int, int] | None = None
    """(GPU instance id, compute instance id), as NVML's process lists name the instance."""


class MigReader:
    """Reads the MIG instances of one GPU."""

    def __init__(self, gpu: Gpu) -> None:
        """Read the instances of `gpu`."""
        self._gpu = gpu
        self._slices: tuple[MigSlice, ...] = ()
        self._again_at = -math.inf
        """Time of the next read of the instances."""

    def read(self) -> tuple[bool | None, tuple[MigSlice, ...]]:
        """Return whether MIG mode is on (None: the GPU does not support it), and the GPU's MIG instances.

        Raises:
            GpuLostError: the GPU itself is lost.
        """
        now = self._gpu.now
        mode = self._gpu.ask_seldom("nvmlDeviceGetMigMode", every_s=_MIG_AGAIN_S)
        if mode is None or int(mode[0]) != _ENABLED:
            self._slices, self._again_at = (), -math.inf
            return (None if mode is None else False), ()
        if now >= self._again_at:
            self._again_at = now + _MIG_AGAIN_S
            self._slices = self._list_instances()
        return True, self._slices

    def _list_instances(self) -> tuple[MigSlice, ...]:
        """Return the GPU's current MIG instances.

        NVML asks for instances by numbers from 0 up to a maximum; numbers in between may be without an
        instance.
        """
        count = self._gpu.ask_seldom("nvmlDeviceGetMaxMigDeviceCount")
        instances = []
        for index in range(_MOST_SLICES if count is None else int(count)):
            function = "nvmlDeviceGetMigDeviceHandleByIndex"
            handle = self._ask(self._gpu.ask, function, index, key=f"{function} {index}")
            if handle is None:
                continue
            gpu = Gpu(self._gpu.nvml, self._gpu.index, handle, index)
            name = clean(self._ask(gpu.ask, "nvmlDeviceGetName") or "").rpartition(_MARK)[2] or None
            uuid = clean(self._ask(gpu.ask, "nvmlDeviceGetUUID") or "", 96) or None
            gpu_id = self._ask(gpu.ask, "nvmlDeviceGetGpuInstanceId")
            compute_id = self._ask(gpu.ask, "nvmlDeviceGetComputeInstanceId")
            ids = None if gpu_id is None or compute_id is None else (int(gpu_id), int(compute_id))
            memory = self._ask(ask_memory, gpu)
            total = None if memory is None else int(memory.total) or None
            used = None if memory is None else int(memory.used)
            instances.append(MigSlice(MigInstance(index, name, uuid, total, used), gpu, ids))
        return tuple(instances)

    def _ask(self, query: Callable[..., Any], *args: object, **key: str) -> Any:  # noqa: ANN401 - as Nvml.ask
        """Return the result of `query` about a MIG instance, or None on an error.

        If NVML reports the GPU as lost, only this instance has been removed: return None, and read the list
        of instances again at the next reading.
        """
        try:
            return query(*args, **key)
        except GpuLostError:
            self._again_at = self._gpu.now
            return None


_COMPUTE = "nvmlDeviceGetComputeRunningProcesses"
_GRAPHICS = "nvmlDeviceGetGraphicsRunningProcesses"
_GRAPHICS_AGAIN_S = 5.0
"""Seconds between two reads of the graphics processes, which hold little memory and serve no requests."""
_MOST = 256
"""Upper limit of processes shown per GPU."""
_NOT_KNOWN = 2**64 - 1
"""NVML_VALUE_NOT_AVAILABLE: the driver does not report the memory of this process."""


class GpuProcessReader:
    """Reads the processes of GPUs."""

    def __init__(self, root: Path = Path("/")) -> None:
        self._proc = root / "proc"

    def read(self, gpu: Gpu, slices: Sequence[MigSlice] = ()) -> tuple[GpuProcess, ...] | None:
        """Return the processes of a GPU, sorted by memory, largest first.

        None if the driver lists neither compute nor graphics processes. On a GPU in MIG mode, the driver
        lists all processes only to privileged programs. For other programs, the process lists of the GPU's
        MIG instances (`slices`) are joined.
        """
        computing = gpu.ask(_COMPUTE)
        if computing is None and slices:
            computing = _processes_of_slices(slices)
        drawing = gpu.ask_seldom(_GRAPHICS, every_s=_GRAPHICS_AGAIN_S)
        if computing is None and drawing is None:
            return None
        instances = {part.ids: part.reading.index for part in slices if part.ids is not None}
        merged: dict[int, GpuProcess] = {}
        for kind, listed in (("compute", computing), ("graphics", drawing)):
            for process in (listed or ())[:_MOST]:
                _add_process(merged, process, kind, instances)
        named = [replace(process, name=self._process_name(gpu.nvml, pid)) for pid, process in merged.items()]
        return tuple(sorted(named, key=lambda process: (-(process.memory_bytes or 0), process.pid)))

    def _process_name(self, nvml: Nvml, pid: int) -> str:
        """Return the name of a process, from the driver or else from /proc.

        The driver also knows the names of processes in other containers.
        """
        try:
            name = nvml.ask(None, "nvmlSystemGetProcessName", pid)
        except GpuLostError:
            name = None
        if not name:
            name = read_text(str(self._proc / str(pid) / "comm")) or ""
        if name.startswith("/"):
            name = name.split()[0].rsplit("/", 1)[-1]
        return clean(name) or f"pid {pid}"


def _processes_of_slices(slices: Sequence[MigSlice]) -> list[Any] | None:
    """Return the joined process lists of all MIG instances; None when no instance's list can be read."""
    lists = []
    for part in slices:
        with suppress(GpuLostError):  # an instance that was removed just now
            lists.append(part.gpu.ask(_COMPUTE))
    if all(listed is None for listed in lists):
        return None
    return [process for listed in lists for process in listed or ()]


def _add_process(
    merged: dict[int, GpuProcess],
    process: Any,  # noqa: ANN401 - the library's own structure
    kind: str,
    instances: dict[tuple[int, int], int],
) -> None:
    """Add the NVML process entry `process` to `merged`, which has a nameless entry for each process.

    `kind` is the NVML list that has the entry, "compute" or "graphics". A process in both lists gets the kind
    "both", and its memory is counted once. `instances` has the number of each MIG instance by its two ids.
    """
    pid, used_bytes = int(process.pid), getattr(process, "usedGpuMemory", None)
    memory = int(used_bytes) if used_bytes is not None and 0 <= used_bytes < _NOT_KNOWN else None
    entry = merged.get(pid)
    if entry is None:
        ids = (getattr(process, "gpuInstanceId", -1), getattr(process, "computeInstanceId", -1))
        merged[pid] = GpuProcess(pid, "", memory, kind, instances.get(ids))
        return
    sizes = [size for size in (entry.memory_bytes, memory) if size is not None]
    kinds = kind if entry.kind == kind else "both"
    merged[pid] = replace(entry, kind=kinds, memory_bytes=max(sizes, default=None))


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


class _Device:
    """A GPU with its readers, valid until NVML is opened again."""

    def __init__(self, gpu: Gpu) -> None:
        self.gpu = gpu
        self.shares = ThrottleShares(throttle_fields(gpu.nvml.driver))
        self.memory = GpuMemoryReader(gpu)
        self.mig = MigReader(gpu)


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
        held_bytes: list[int] = []
        for index, handle in handles.items():
            try:
                device = self._devices.get(index) or _Device(Gpu(self._nvml, index, handle))
                self._devices[index] = device
                reading, shares_memory = self._read_device(device, machine_bytes)
            except GpuLostError as error:
                self._devices.pop(index, None)
                self._nvml.drop_gpu(index, error.code)
                continue
            readings.append(reading)
            self._named[index] = (reading.name, reading.uuid)
            if shares_memory is not None:
                unified.append(shares_memory)
            if shares_memory and reading.processes is not None:
                held_bytes.append(_sum_bytes(reading.processes))
        if unified:
            self._unified = any(unified)
        return GpuReadings(
            gpus=tuple(readings),
            note=self._nvml.note,
            lost=tuple(
                LostGpu(index, *self._named.get(index, (None, None)), reason)
                for index, reason in sorted(self._nvml.lost.items())
            ),
            unified=self._unified,
            processes_bytes=sum(held_bytes) if held_bytes else None,
        )

    def close(self) -> None:
        """Close NVML, the driver's library."""
        self._nvml.close()

    def _read_device(self, device: _Device, machine_bytes: int | None) -> tuple[GpuReading, bool | None]:
        """Return a GPU's reading, and whether the GPU uses the machine's memory (None: unknown).

        Raises:
            GpuLostError: the GPU does not answer any more.
        """
        gpu = device.gpu
        name = clean(gpu.ask_seldom("nvmlDeviceGetName") or "") or None
        memory = device.memory.read(name, machine_bytes, has_own_node=self._has_own_node)
        mig, slices = device.mig.read()
        processes = self._processes.read(gpu, slices)
        if not slices and processes is not None:
            memory = device.memory.correct(memory, _sum_bytes(processes), machine_bytes)
        rates = gpu.ask("nvmlDeviceGetUtilizationRates")
        clock = gpu.ask("nvmlDeviceGetClockInfo", _CLOCK_SM)
        clock_max = gpu.ask_seldom("nvmlDeviceGetMaxClockInfo", _CLOCK_SM)
        heat = gpu.ask("nvmlDeviceGetTemperature", _TEMPERATURE_GPU)
        reading = GpuReading(
            index=gpu.index,
            name=name,
            uuid=clean(gpu.ask_seldom("nvmlDeviceGetUUID") or "", 96) or None,
            utilization_percent=_in_range("utilization", getattr(rates, "gpu", None)),
            temperature_c=_in_range("temperature", heat),
            limit_margin_c=_in_range("margin", gpu.ask(_MARGIN)),
            slowdown_c=_slowdown_c(gpu),
            power_w=_from_milli("power", gpu.ask("nvmlDeviceGetPowerUsage")),
            power_limit_w=_power_limit_w(gpu),
            energy_j=_energy_j(gpu.ask("nvmlDeviceGetTotalEnergyConsumption")),
            sm_clock_mhz=None if _in_range("clock", clock) is None else int(clock),
            sm_clock_max_mhz=None if _in_range("clock", clock_max) is None else int(clock_max),
            memory_total_bytes=memory.total_bytes,
            memory_used_bytes=memory.used_bytes,
            memory_note=memory.note,
            throttle_reasons=_throttle_reasons(gpu),
            throttled_percent=device.shares.read(gpu),
            processes=processes,
            mig=mig,
            mig_instances=tuple(part.reading for part in slices),
        )
        return reading, memory.unified


def _power_limit_w(gpu: Gpu) -> float | None:
    """Return the enforced power limit in watts, else the configured limit, else None."""
    functions = ("nvmlDeviceGetEnforcedPowerLimit", "nvmlDeviceGetPowerManagementLimit")
    limits = (
        _from_milli("power limit", gpu.ask_seldom(function, every_s=_LIMIT_AGAIN_S)) for function in functions
    )
    return next((watts for watts in limits if watts is not None), None)


def _slowdown_c(gpu: Gpu) -> float | None:
    """Return the temperature (°C) at which the GPU slows down; None if it is unknown.

    Some drivers report instead by how much the GPU is cooler than this temperature. For them, return None.
    """
    if not gpu.is_unknown(_MARGIN):
        return None
    return _in_range("threshold", gpu.ask_seldom("nvmlDeviceGetTemperatureThreshold", _THRESHOLD_SLOWDOWN))


def _throttle_reasons(gpu: Gpu) -> tuple[str, ...] | None:
    """Return the names of the active throttle reasons; None when the driver does not report them."""
    bits = gpu.ask("nvmlDeviceGetCurrentClocksEventReasons")
    return None if bits is None else reason_words(int(bits))


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
    energy_mj = _in_range("energy", millijoules)
    return None if energy_mj is None else energy_mj / _MILLI


def _sum_bytes(processes: tuple[GpuProcess, ...]) -> int:
    """Return the GPU memory of all processes in bytes; unknown sizes count as 0."""
    return sum(process.memory_bytes or 0 for process in processes)
