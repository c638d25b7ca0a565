"""The NVIDIA driver's library (NVML), opened once and queried one field at a time.

NVML is used only by the thread that reads the samples: there are no locks here.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Hashable
from contextlib import suppress
from enum import IntEnum
from typing import Any, Protocol

from sparktop.model.text import clean

_log = logging.getLogger(__name__)

_OPEN_AGAIN_S = 30.0
"""Seconds before opening again after no driver, no device or a lost GPU: opening can take a second, and
drivers are loaded rarely."""
_ASK_AGAIN_S = 600.0
"""Seconds before a field that the driver does not support is queried again."""
_MOST_DEVICES = 64


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
            self._open(now)
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
            self._take_error(now, index, field, error)
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

    def lose(self, now: float, index: int, code: int | None = None) -> None:
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

    def _open(self, now: float) -> None:
        """Open the library and get the handles of its GPUs.

        On failure set `note` and the time of the next attempt.
        """
        self.note, self.driver, self._unknown, self._kept, self.lost = None, None, {}, {}, {}
        self.generation += 1
        if self._module is None and not has_library():
            self.note = _NOTES[NvmlReturn.LIBRARY_NOT_FOUND]
            self._open_again_at = now + _OPEN_AGAIN_S
            return
        try:
            module = self._load()
            module.nvmlInit()
            self._handles = {}
            count = module.nvmlDeviceGetCount()
        except ImportError:
            self.note = "nvidia-ml-py is not installed: GPUs cannot be read"
            self._open_again_at = now + _OPEN_AGAIN_S
            return
        except self._errors as error:
            self.note = _note(error)
            self._open_again_at = now + _OPEN_AGAIN_S
            return
        self._find(module, min(count, _MOST_DEVICES), now)

    def _find(self, module: NvmlModule, count: int, now: float) -> None:
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
        try:
            driver = self.ask(now, None, "nvmlSystemGetDriverVersion")
        except GpuLostError:
            driver = None
        self.driver = clean(driver, 40) if driver else None

    def _load(self) -> NvmlModule:
        """Return the NVML module, imported if needed, and store the exception types that it raises."""
        if self._module is None:
            import pynvml

            self._module = pynvml
            _return_free_memory()
        mismatch = getattr(self._module, "NVMLLibraryMismatchError", self._module.NVMLError)
        self._errors = (self._module.NVMLError, mismatch)
        return self._module

    def _take_error(
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


def _note(error: Exception) -> str:
    """Return the reason why the library cannot be opened, in one line for the user."""
    return _NOTES.get(getattr(error, "value", None)) or clean(f"the NVIDIA driver does not answer: {error}")
