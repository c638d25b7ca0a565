"""The processes of a machine, their containers, and those of inference engines."""

from __future__ import annotations

import contextlib
import hashlib
import json
import logging
import os
import re
import shlex
import socket
import stat
import struct
import sys
import threading
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from msgspec.structs import replace

from sparktop.hardware.checkpoint import CheckpointReader
from sparktop.hardware.kernel_file import MOST_BYTES, entries, parse_int, read_bytes, read_small
from sparktop.model.node import (
    COMPILERS,
    MOST_CLIENTS,
    MemoryAsk,
    MemoryGuard,
    ProcessReading,
    ProcessTable,
    Sockets,
    Workload,
    Workloads,
    end_marks,
)
from sparktop.model.text import clean

_KERNEL_THREAD = 0x00200000
"""PF_KTHREAD of include/linux/sched.h."""
_PARENT, _FLAGS, _UTIME, _STIME, _START, _RSS = 1, 6, 11, 12, 19, 21
"""Indexes into the fields of /proc/PID/stat after the name (their numbers in man 5 proc_pid_stat, less 3)."""


class Process(NamedTuple):
    """One process, as its file /proc/PID/stat describes it.

    It is a named tuple because creating one takes 0.23 µs; a frozen dataclass takes 0.58 µs.
    """

    pid: int
    comm: bytes
    ticks: int
    """Processor time since the process started, in clock ticks of the kernel."""
    start: int
    """Start in clock ticks since the machine booted."""
    rss_pages: int
    parent: int = 0


def parse_stat(pid: int, content: bytes) -> Process | None:
    """Parse a stat file; None for a kernel thread and for content that is not a stat file.

    The process's name stands in parentheses and can itself hold spaces and parentheses.
    """
    head, _, tail = content.rpartition(b")")
    fields = tail.split(None, _RSS + 1)
    try:
        if int(fields[_FLAGS]) & _KERNEL_THREAD:
            return None
        ticks = int(fields[_UTIME]) + int(fields[_STIME])
        rss_pages = max(0, int(fields[_RSS]))
        return Process(
            pid, head.partition(b"(")[2], ticks, int(fields[_START]), rss_pages, int(fields[_PARENT])
        )
    except (ValueError, IndexError):
        return None


_log = logging.getLogger(__name__)

ID_DIGITS = 12
"""Digits of a container's ID that are shown, as Docker does."""
# A container's ID: 64 hexadecimal digits.
_ID = re.compile(rb"(?<![0-9a-f])[0-9a-f]{64}(?![0-9a-f])")
_ASK_AGAIN_S = 30.0
"""Least seconds between two requests for names."""
_ANSWER_S = 2.0
"""Longest time of one request; it runs in a thread of its own, so that no sample waits."""
_MOST_ANSWER_BYTES = 1 << 20
_MOST_NAMES = 512
"""Containers whose names are kept, and files of oomd's settings."""
_MOST_CACHED = 4096
"""Processes whose containers are remembered."""
_REQUEST = b"GET /containers/json HTTP/1.0\r\nHost: localhost\r\nAccept: application/json\r\n\r\n"
_SOCKETS = ("run/docker.sock", "var/run/docker.sock", "run/podman/podman.sock")


def container_id(cgroup: bytes | None) -> str | None:
    """Return the ID of the container in the content of /proc/PID/cgroup; None outside of containers.

    Of nested containers it is the innermost. Inside of a container the file does not name it.
    """
    for line in (cgroup or b"").splitlines():
        if ids := _ID.findall(line.rpartition(b":")[2]):
            return str(ids[-1], "ascii")
    return None


class ContainerReader:
    """Finds the container of a process and its name; IDs are cached while the process lives.

    IDs are from /proc/PID/cgroup, names from Docker or Podman, if this user may use the socket already:
    whoever may use Docker's socket can become root, so this program never asks for that right.
    """

    def __init__(self, root: Path = Path("/")) -> None:
        """Read /proc below `root`, and the sockets of Docker and Podman there."""
        self._root = root
        self._ids: dict[tuple[int, int], str | None] = {}
        self._names: dict[str, str] = {}
        self._unknown: set[str] = set()
        """IDs whose names were not requested yet."""
        self._asked_at = -_ASK_AGAIN_S
        self._thread: threading.Thread | None = None

    def find(self, pid: int, start: int) -> tuple[str | None, str | None]:
        """Return (first digits of the ID, name) of a process' container; None for what is not known.

        `start` is the process' start in clock ticks, because a process ID can be reused.
        """
        key = (pid, start)
        if key not in self._ids:
            if len(self._ids) >= _MOST_CACHED:
                self._ids.clear()
            new_id = self._ids[key] = container_id(read_small(f"{self._root}/proc/{pid}/cgroup"))
            if new_id is not None and new_id not in self._names:
                self._unknown.add(new_id)
        full_id = self._ids[key]
        return (None, None) if full_id is None else (full_id[:ID_DIGITS], self._names.get(full_id))

    def oom_kills(self, pid: int, start: int) -> int | None:
        """Return how many processes of a process' container the kernel has killed for lack of memory.

        Return None outside of containers, and where the container's memory.events cannot be read.
        """
        if self._ids.get((pid, start)) is None:
            return None
        events = read_of_cgroup(self._root, pid, "memory.events") or b""
        counts = [line.partition(b" ")[2] for line in events.splitlines() if line.startswith(b"oom_kill ")]
        return parse_int(counts[0]) if counts else None

    def learn_names(self, now: float) -> None:
        """Request the names of new containers in the background, at most every 30 s."""
        busy = self._thread is not None and self._thread.is_alive()
        if not self._unknown or busy or now - self._asked_at < _ASK_AGAIN_S:
            return
        self._asked_at = now
        self._unknown.clear()
        runtime = os.environ.get("XDG_RUNTIME_DIR", "")
        paths = [str(self._root / path) for path in _SOCKETS]
        paths += [f"{runtime}/podman/podman.sock"] if runtime.startswith("/") else []
        sockets = [path for path in paths if _is_usable(path)]
        if sockets:
            self._thread = threading.Thread(
                target=self._ask_names, args=(sockets,), name="sparktop-containers", daemon=True
            )
            self._thread.start()

    def _ask_names(self, sockets: list[str]) -> None:
        names: dict[str, str] = {}
        for path in sockets:
            names |= ask_names(path)
        if names:
            self._names = names


def read_of_cgroup(root: Path, pid: int, name: str) -> bytes | None:
    """Return the file `name` of a process' control group (version 2), read below `root`; None without it."""
    cgroups = read_small(f"{root}/proc/{pid}/cgroup") or b""
    path = next((line[3:] for line in cgroups.splitlines() if line.startswith(b"0::/")), None)
    if path is None or b".." in path:
        return None
    return read_small(f"{root}/sys/fs/cgroup{path.decode('utf-8', 'replace')}/{name}")


def _is_usable(path: str) -> bool:
    try:
        return stat.S_ISSOCK(os.stat(path).st_mode) and os.access(path, os.R_OK | os.W_OK)  # noqa: PTH116 - as Path.stat, without a Path
    except OSError:
        return False


def ask_names(path: str) -> dict[str, str]:
    """Return {ID: name} of the running containers by the socket at `path`; {} if it does not answer."""
    end = time.monotonic() + _ANSWER_S
    answer = b""
    with contextlib.closing(socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)) as line:
        try:
            line.settimeout(_ANSWER_S)
            line.connect(path)
            line.sendall(_REQUEST)
            while len(answer) <= _MOST_ANSWER_BYTES:
                left_s = end - time.monotonic()
                if left_s <= 0:
                    break
                line.settimeout(left_s)
                part = line.recv(1 << 16)
                if not part:
                    return read_names(answer)
                answer += part
        except OSError as error:
            _log.debug("container names at %s: %s", path, error)
    return {}


def read_names(answer: bytes) -> dict[str, str]:
    """Return {ID: name} from an HTTP answer to /containers/json; {} if it is anything else."""
    head, _, body = answer.partition(b"\r\n\r\n")
    if b" 200 " not in head.partition(b"\r\n")[0]:
        return {}
    try:
        listed = json.loads(body)
    except (ValueError, RecursionError):
        return {}
    names: dict[str, str] = {}
    if not isinstance(listed, list):
        return names
    for item in listed[:_MOST_NAMES]:
        if isinstance(item, dict) and isinstance(item.get("Id"), str) and isinstance(item.get("Names"), list):
            words = [name for name in item["Names"] if isinstance(name, str)]
            name = clean(words[0].lstrip("/"), 64) if words else ""
            if name:
                names[item["Id"]] = name
    return names


_READ_AGAIN_S = 5.0
"""Seconds after which the table is read again: it costs more than the rest of a sample."""
_FORGOTTEN_S = 60.0
"""If the previous table is older than this many seconds, CPU use since then is not reported: it is not
current."""
_MOST = 200
"""Upper limit of processes in the table; `ProcessTable.count` counts all processes."""
_CUT_NAME_BYTES = 15
"""Length to which the kernel cuts a name (TASK_COMM_LEN - 1): "VLLM::Worker_TP0" loses its number."""
_Life = tuple[int, int]
"""(pid, start): identifies a process for its lifetime, because a pid can be reused."""


class ProcessTableReader:
    """Reads the process table; returns the previous table while it is less than a few seconds old.

    Reading the stat files of 329 processes takes 2.8 ms; psutil takes 14 ms for name and memory (2-core AMD
    EPYC, Linux 6.18, medians of thread time).
    """

    def __init__(
        self,
        root: Path = Path("/"),
        *,
        containers: ContainerReader | None = None,
        page_bytes: int | None = None,
        ticks_per_s: int | None = None,
    ) -> None:
        """Create a reader of /proc below `root`.

        `containers` finds the containers of processes (None: a reader of its own). `page_bytes` is the size
        of a memory page, `ticks_per_s` the kernel's clock ticks per second (None: those of this machine).
        """
        self._proc = root / "proc"
        self._containers = containers or ContainerReader(root)
        self._page_bytes = page_bytes or os.sysconf("SC_PAGE_SIZE")
        self._ticks_per_s = ticks_per_s or os.sysconf("SC_CLK_TCK")
        self._read_at: float | None = None
        self._table = ProcessTable()
        self._ticks: dict[_Life, int] = {}

    def read(self, now: float) -> ProcessTable:
        """Return the process table at `now` (seconds), or the previous table if that is less than 5 s old.

        The CPU use of processes is None in the first table, and after a pause of a minute.
        """
        elapsed_s = None if self._read_at is None else now - self._read_at
        if elapsed_s is not None and 0 <= elapsed_s < _READ_AGAIN_S:
            table = self._table
            return ProcessTable(table.processes, table.count, elapsed_s)
        if elapsed_s is None or not 0 < elapsed_s < _FORGOTTEN_S:
            elapsed_s, self._ticks = None, {}
        proc = str(self._proc)
        pids = [int(name) for name in entries(self._proc) if name.isdecimal()]
        parsed = [parse_stat(pid, read_small(f"{proc}/{pid}/stat") or b"") for pid in pids]
        processes = [process for process in parsed if process is not None]  # without kernel threads
        before = self._ticks
        self._ticks = {(process.pid, process.start): process.ticks for process in processes}
        largest = sorted(processes, key=lambda process: (-process.rss_pages, process.pid))[:_MOST]
        self._read_at = now
        self._table = ProcessTable(
            processes=tuple(
                self._reading(process, before.get((process.pid, process.start)), elapsed_s)
                for process in largest
            ),
            count=len(processes) or None,
            age_s=0.0,
        )
        self._containers.learn_names(now)
        return self._table

    def _reading(self, process: Process, before: int | None, elapsed_s: float | None) -> ProcessReading:
        """Return a row of the table; if the kernel has cut a name, complete it from the command line."""
        name = process.comm
        if len(name) >= _CUT_NAME_BYTES:
            command = (read_bytes(f"{self._proc}/{process.pid}/cmdline") or b"").partition(b"\0")[0]
            words = command.rpartition(b"/")[2].split(None, 1)
            if words and words[0].startswith(name):
                name = words[0]
        container, container_name = self._containers.find(process.pid, process.start)
        return ProcessReading(
            process.pid,
            clean(name.decode("utf-8", "replace"), 64) or f"pid {process.pid}",
            process.rss_pages * self._page_bytes,
            _cpu_percent(process.ticks, before, elapsed_s, self._ticks_per_s),
            container,
            container_name,
        )


def _cpu_percent(ticks: int, before: int | None, elapsed_s: float | None, per_s: int) -> float | None:
    """Return the CPU use of a process since the previous reading, in percent of one core.

    `before` are its ticks then; None if it has none, if `elapsed_s` is None or 0, or if the ticks fell.
    """
    if before is None or not elapsed_s or elapsed_s < 0 or ticks < before:
        return None
    return 100.0 * (ticks - before) / per_s / elapsed_s


# Processes of inference engines are recognised by their command lines: engines change their titles with
# setproctitle, and the kernel's short name (comm) is cut to 15 characters. A command line can hold keys, so
# that no more of it is kept than model, port and the options below.

_LONGEST_NAME = 80
"""Most characters of a model's name."""
_MOST_ARGUMENTS = 200
"""Arguments of a command line that are read."""
# "_DP1", "_MOE_EP0", "_TP3": a kind of parallelism and a rank.
_RANKS = re.compile(r"_((?:ATTN_|MOE_)?(?:DP|EP|PP|TP|CP|PCP|DCP))(\d{1,4})(?![0-9])")
# "VLLM::EngineCore_DP0": the part of vLLM that a process is.
_VLLM = re.compile(r"[\w.-]{1,32}::(APIServer|DPCoordinator|EngineCore|Worker)(?![a-z])")
_VLLM_ROLES = {
    "APIServer": "API server",
    "DPCoordinator": "DP coordinator",
    "EngineCore": "engine core",
    "Worker": "worker",
}
# "ray::RayWorkerWrapper.initialize_worker".
_RAY = re.compile(r"ray::RayWorker(Wrapper|Proc)(\.initialize_worker)?")
# "sglang::scheduler_TP0": the part of SGLang that a process is.
_SGLANG = re.compile(r"sglang::(\w+?)(?:_(?:[A-Z].*)|:.*)?$")
_SGLANG_ROLES = {
    "scheduler": "scheduler",
    "detokenizer": "detokenizer",
    "data_parallel_controller": "DP controller",
    "tokenizer_worker": "tokenizer",
}
# "models--Qwen--Qwen3-8B": owner and name of a model in the cache of a hub.
_HUB = re.compile(r"models--([^/]+?)--([^/]+)")
_NAME = ("--served-model-name", "--alias")
_PATH = ("--model", "--model-path", "--model-id", "-m", "--hf-repo", "-hf")
_SPEED_OPTIONS = (
    "--tensor-parallel-size -tp --tp-size --tp --pipeline-parallel-size -pp --pp-size "
    "--data-parallel-size -dp --dp-size --enable-expert-parallel --ep-size --quantization -q "
    "--kv-cache-dtype --dtype --max-model-len --context-length --max-num-seqs --max-running-requests "
    "--max-num-batched-tokens --chunked-prefill-size --gpu-memory-utilization --mem-fraction-static "
    "--enforce-eager --disable-cuda-graph --cuda-graph-max-bs --cuda-graph-bs --cuda-graph-sizes "
    "--cudagraph-capture-sizes --compilation-config -cc -O --attention-backend --moe-backend "
    "--moe-runner-backend --mxfp4-backend --mxfp4-layers --block-size --page-size --swap-space "
    "--cpu-offload-gb --num-gpu-blocks-override --kv-cache-memory-bytes --max-cudagraph-capture-size "
    "--stream-interval --async-scheduling --no-async-scheduling --enable-prefix-caching "
    "--no-enable-prefix-caching --disable-radix-cache --enable-chunked-prefill "
    "--no-enable-chunked-prefill --speculative-config --speculative-algorithm --speculative-num-steps "
    "--speculative-eagle-topk --speculative-num-draft-tokens --distributed-executor-backend "
    "--disable-custom-all-reduce --all2all-backend --mamba-cache-mode --revision --ctx-size -c --parallel "
    "-np --n-gpu-layers -ngl --batch-size -b --ubatch-size -ub --flash-attn -fa --cache-type-k -ctk "
    "--cache-type-v -ctv --threads -t "
)
_KEPT_OPTIONS = frozenset(_SPEED_OPTIONS.split())
"""Options that change the speed of a server, by which its setup is told from others."""
_OTHER_SHOWN = (
    "--port --tokenizer-mode --load-format --trust-remote-code --reasoning-parser --tool-call-parser "
    "--enable-auto-tool-choice --scheduling-policy --api-server-count --jinja --metrics --slots"
)
_SHOWN_OPTIONS = _KEPT_OPTIONS.union(_OTHER_SHOWN.split())
"""Options whose values are shown in a server's command line: those of others may be secret."""
# "--max-model-len".
_OPTION_NAME = re.compile(r"--[a-z][a-z0-9_.-]{1,60}", re.ASCII)
LONGEST_COMMAND = 1000
"""Most characters of a server's command line that are shown."""
# A value that may be shown: a number or a word.
_PLAIN_VALUE = re.compile(r"[\w.,:+-]{1,60}", re.ASCII)
# "api-key", "HF_TOKEN": names whose value is never shown.
_SECRET_FIELD = re.compile(r"(?i)(?:.*[_-])?(?:key|token|secret|passw(?:or)?d|auth|credentials?)")
_LONGEST_JSON, _MOST_JSON = 16_384, 240
"""Characters of an option's JSON that are read, and that are kept to compare it."""
_SHARES = ("--gpu-memory-utilization", "--mem-fraction-static")
_KV_BYTES = ("--kv-cache-memory-bytes", "--kv-cache-memory")
_TENSOR = ("--tensor-parallel-size", "-tp", "--tp-size", "--tp")
_PIPELINE = ("--pipeline-parallel-size", "-pp", "--pp-size")
# "32k", "1.5M": a number and its unit.
_SIZE = re.compile(r"(\d{1,18}(?:\.\d{0,9})?|\.\d{1,9})([kKmMgGtT]?)", re.ASCII)
_UNITS = {"k": 10**3, "m": 10**6, "g": 10**9, "t": 10**12, "K": 2**10, "M": 2**20, "G": 2**30, "T": 2**40}
"""vLLM's: small letters are decimal, capital ones binary (human_readable_int of vllm/engine/arg_utils.py)."""
_MOST_ASKED = 1 << 50
"""Bytes, and ranks, of an option above which it is damaged."""
_SERVERS: Mapping[str, tuple[str, int]] = {
    "vllm": ("vllm", 8000),
    "sglang": ("sglang", 30000),
    "llama-server": ("llamacpp", 8080),
    "trtllm-serve": ("trtllm", 8000),
    "text-generation-launcher": ("tgi", 3000),
    "text-generation-router": ("tgi", 3000),
    "ollama": ("ollama", 11434),
}
"""By name of a server's program: (engine, port without an option). `vllm` and `sglang` count only with the
word `serve`."""
_MODULES: Mapping[str, str] = {
    "vllm.entrypoints.openai.api_server": "vllm",
    "vllm.entrypoints.cli.main": "vllm",
    "sglang.launch_server": "sglang",
}
"""By module run with `python -m`: the program of `_SERVERS`."""


class Title(NamedTuple):
    """What a command line says about a process of an engine."""

    engine: str
    role: str
    rank: str | None = None
    model: str | None = None
    port: int | None = None
    """Only of a server's own process."""
    path: str | None = None
    """Path or name of the model as the command line has it; only of a server's own process."""
    flags: tuple[str, ...] = ()
    """Its options that change its speed, sorted, each with its value; only of a server's own process."""
    asks: MemoryAsk | None = None
    """Only of a server's own process."""
    command: str | None = None
    """Its command line as `Workload.command` has it; only of a server's own process."""


def arguments_of(content: bytes) -> list[str]:
    """Split the content of /proc/PID/cmdline into arguments; a title of setproctitle is a single one."""
    parts = content.rstrip(b"\0 ").split(b"\0")[:_MOST_ARGUMENTS]
    return [part.decode("utf-8", "replace") for part in parts]


def program_of(arguments: Sequence[str]) -> str:
    """Return the name of the program without its folder; "" for an empty command line."""
    words = arguments[0].split() if arguments else []
    if not words or "::" in words[0]:
        return words[0] if words else ""
    return words[0].rpartition("/")[2]


def read_title(arguments: Sequence[str]) -> Title | None:
    """Return what a command line says about an engine's process; None if it is not one."""
    if not arguments or not arguments[0]:
        return None
    title = arguments[0]
    if match := _VLLM.match(title):
        return Title("vllm", _VLLM_ROLES[match[1]], _rank_words(title))
    if match := _RAY.match(title):
        return Title("vllm", "worker, loading" if match[2] else "worker")
    if title.startswith("sglang::"):
        name = _SGLANG.match(title)
        word = name[1] if name else ""
        return Title("sglang", _SGLANG_ROLES.get(word) or clean(word, 32) or "worker", _rank_words(title))
    return _server_title(arguments)


def _rank_words(title: str) -> str | None:
    ranks = _RANKS.findall(title)
    return " ".join(f"{kind.rpartition('_')[2]}{number}" for kind, number in ranks) or None


def _server_title(arguments: Sequence[str]) -> Title | None:
    """Return the title of a server by its program, its script or its module."""
    program, arguments_left = program_of(arguments), list(arguments[1:])
    if program.startswith("python"):
        program, arguments_left = _python_command(arguments_left)
    if program.startswith("mgmn_worker_node"):
        return Title("trtllm", "worker")
    if program == "ollama" and arguments_left[:1] == ["runner"]:
        return Title("ollama", "runner", model=_model_name(arguments_left))
    if program in {"vllm", "sglang", "ollama"}:
        return _title_of_options(program, arguments_left[1:]) if arguments_left[:1] == ["serve"] else None
    return _title_of_options(program, arguments_left) if program in _SERVERS else None


def _python_command(arguments: list[str]) -> tuple[str, list[str]]:
    """Return (program, its arguments) that a Python interpreter runs: a script or a module.

    A module that starts vLLM or SGLang is returned as their command `serve`.
    """
    left = list(arguments)
    while left and left[0].startswith("-") and left[0] != "-m":
        left.pop(0)
    if left[:1] == ["-m"]:
        module = left[1] if len(left) > 1 else ""
        left = left[2:]
        program = _MODULES.get(module, module.rpartition(".")[2])
        is_server = program in {"vllm", "sglang"} and left[:1] != ["serve"]
        return program, ["serve", *left] if is_server else left
    return (left[0].rpartition("/")[2], left[1:]) if left else ("", [])


def _title_of_options(program: str, words: Sequence[str]) -> Title:
    """Return the title of a server by the words behind its program."""
    engine, port = _SERVERS[program]
    options = dict(options_of(words))  # of an option that is given twice, engines take the last
    port_word = options.get("--port", "")
    if not port_word and program.startswith("text-"):  # TGI's programs: to others, -p is something else
        port_word = options.get("-p", "")
    kept_options = {name: value for name, value in options.items() if _bare(name) in _KEPT_OPTIONS}
    number = int(port_word) if port_word.isascii() and port_word.isdecimal() else port
    return Title(
        engine,
        "server",
        model=_model_name(words),
        port=number if 0 < number < 1 << 16 else None,
        path=_model_path(words),
        flags=tuple(sorted(_flag_text(name, value) for name, value in kept_options.items())),
        asks=_memory_ask(options),
        command=_shown_command(program, words),
    )


def _bare(name: str) -> str:
    """Return an option's name without a level or field of its JSON behind it: -O of -O3, -cc of -cc.mode."""
    return name.partition(".")[0].rstrip("0123456789")


def _shown_command(program: str, words: Sequence[str]) -> str:
    """Return a server's command line for a shell, "…" in place of what may be secret."""
    name = _PATH[0]  # of the model, which may stand first without an option
    words_shown = [program, "serve"] if program in {"vllm", "sglang", "ollama"} else [program]
    for word in words:
        if not word.startswith("-") or word[1:2].isdigit():
            words_shown.append(_shown_value(name, word))
            continue
        name, equals, value = word.partition("=")
        is_name = _bare(name) in {*_SHOWN_OPTIONS, *_PATH, *_NAME} or _OPTION_NAME.fullmatch(name)
        words_shown.append(f"{name if is_name else '…'}{f'={_shown_value(name, value)}' if equals else ''}")
    return clean(" ".join(words_shown), LONGEST_COMMAND)


def _shown_value(name: str, value: str) -> str:
    name = name.replace("_", "-")
    if name in {*_PATH, *_NAME}:
        return shlex.quote(short_model(value) or "…")
    if _bare(name) not in _SHOWN_OPTIONS:
        return "…"
    return value if _PLAIN_VALUE.fullmatch(value) else shlex.quote(_short_json(value) or "…")


def options_of(words: Sequence[str]) -> list[tuple[str, str]]:
    """Return (name, value) of each option, its name with hyphens; the value is "" where none follows."""
    pairs = []
    for word, after in zip(words, (*words[1:], "-"), strict=False):
        name, equals, value = word.partition("=")
        if name.startswith("-"):
            if not equals and not after.startswith("-"):
                value = after
            pairs.append((name.replace("_", "-"), value))
    return pairs


def option(words: Sequence[str], names: Sequence[str]) -> str | None:
    """Return the value that counts, the last one, of the first of `names` that is given; None without one."""
    options = dict(options_of(words))
    return next((options[name] for name in names if options.get(name)), None)


def _flag_text(name: str, value: str) -> str:
    """Return an option as it is kept: of JSON the beginning; of a value that is no plain word its digest."""
    if value and not _PLAIN_VALUE.fullmatch(value):
        short = _short_json(value)
        value = _digest(value) if short is None else short
        if len(value) > _MOST_JSON:
            value = f"{value[:_MOST_JSON]}…{_digest(value)}"
    return f"{name} {value}".rstrip()


def _digest(text: str) -> str:
    return f"#{hashlib.sha256(text.encode()).hexdigest()[:8]}"


def _short_json(text: str) -> str | None:
    """Return a JSON object with its fields in order, what may be secret as digests; None for another text."""
    if not text.startswith("{") or len(text) > _LONGEST_JSON:
        return None
    try:
        return json.dumps(_kept_part(json.loads(text)), sort_keys=True, separators=(",", ":"))
    except (ValueError, RecursionError):
        return None


def _kept_part(value: object, field: str = "") -> object:
    """Return a part of an option's JSON as it is kept; `field` is the name that it has there."""
    if isinstance(value, dict):
        return {
            name if _PLAIN_VALUE.fullmatch(name) else _digest(name): _kept_part(part, name)
            for name, part in value.items()
        }
    if isinstance(value, list):
        return [_kept_part(part, field) for part in value]
    if _SECRET_FIELD.fullmatch(field) and not isinstance(value, bool):
        return _digest(str(value))
    if isinstance(value, str) and not _PLAIN_VALUE.fullmatch(value):
        return short_model(value) if field == "model" else _digest(value)
    return value


def _memory_ask(options: Mapping[str, str]) -> MemoryAsk:
    """Return what a server's options ask of memory; an option that makes no sense counts as not given."""

    def number(names: Sequence[str]) -> float | None:
        match = _SIZE.fullmatch(next((options[name] for name in names if name in options), ""))
        return None if match is None else float(match[1]) * _UNITS.get(match[2], 1)

    share, kv_bytes = number(_SHARES), number(_KV_BYTES)
    ranks = (number(_TENSOR) or 1) * (number(_PIPELINE) or 1)
    return MemoryAsk(
        share if share is not None and 0 < share <= 1 else None,
        int(kv_bytes) if kv_bytes is not None and 1 <= kv_bytes < _MOST_ASKED else None,
        int(ranks) if 1 <= ranks <= _MOST_ASKED else 1,
    )


def _model_path(words: Sequence[str]) -> str | None:
    """Return a model's path or name by an option, else the first word if that is no option."""
    path = option(words, _PATH)
    return words[0] if path is None and words and not words[0].startswith("-") else path


def _model_name(words: Sequence[str]) -> str | None:
    """Return the name under which a model is served, else the short one of its path."""
    name = option(words, _NAME) or _model_path(words)
    return short_model(name) if name else None


_EARLYOOM, _OOMD = "earlyoom", "systemd-oomd"
_EARLYOOM_PERCENT, _OOMD_PERCENT = 10.0, 90.0
"""Their usual limits: of memory and swap that are free, and that are used."""
_OOMD_FILES = (
    "etc/systemd/oomd.conf",
    "usr/lib/systemd/oomd.conf.d/*.conf",
    "etc/systemd/oomd.conf.d/*.conf",
)
# "SwapUsedLimit=90%": the setting of systemd-oomd.
_OOMD_LIMIT = re.compile(rb"(?m)^\s*SwapUsedLimit\s*=\s*(\d{1,3}(?:\.\d{1,2})?)\s*%")


def read_guard(program: str, arguments: Sequence[str], root: Path) -> MemoryGuard | None:
    """Return the limits of a program that ends processes where memory runs out; None for any other.

    The settings of systemd-oomd are read below `root`.
    """
    if program == _OOMD:
        return _oomd_guard(root)
    return _earlyoom_guard(arguments) if program == _EARLYOOM else None


def _oomd_guard(root: Path) -> MemoryGuard:
    """Return the limits of systemd-oomd: by default 90 % of memory and of swap in use (man 5 oomd.conf).

    It has other rules for groups of processes.
    """
    limit_percent = _OOMD_PERCENT
    for pattern in _OOMD_FILES:
        for path in sorted(root.glob(pattern))[:_MOST_NAMES]:
            for limit in _OOMD_LIMIT.findall(read_small(str(path)) or b""):  # the last one holds
                limit_percent = min(100.0, float(limit))
    return MemoryGuard(_OOMD, 100.0 - limit_percent, None, 100.0 - limit_percent)


def _earlyoom_guard(arguments: Sequence[str]) -> MemoryGuard:
    """Return the limits of earlyoom by its options: by default 10 % of memory and of swap free.

    -m and -s are percentages of memory and of swap, -M is KiB of memory (man 1 earlyoom).
    """

    def number(letter: str) -> float | None:
        value = option(arguments, (f"-{letter}",)) or next(
            (word[2:] for word in arguments if word.startswith(f"-{letter}") and word[2:]), ""
        )
        match = _SIZE.match(value.partition(",")[0])
        return None if match is None else float(match[1])

    free_percent, free_kib, swap_percent = number("m"), number("M"), number("s")
    free_bytes = None if free_kib is None else int(free_kib) << 10
    if free_percent == 0 or (free_percent is None and free_bytes is None):
        free_percent = _EARLYOOM_PERCENT
    if swap_percent is None:
        swap_percent = _EARLYOOM_PERCENT
    return MemoryGuard(_EARLYOOM, free_percent, free_bytes, min(100.0, swap_percent))


def short_model(name: str) -> str | None:
    """Return a model's name without the folders of a path; that of a download keeps its owner."""
    hub = _HUB.search(name)
    if hub is not None:
        return clean(f"{hub[1]}/{hub[2]}", _LONGEST_NAME)
    if name.startswith(("/", ".", "~")) or name.count("/") > 1:
        name = name.rstrip("/").rpartition("/")[2]
    return clean(name.removesuffix(".gguf"), _LONGEST_NAME) or None


_ESTABLISHED, _CLOSE_WAIT, _LISTEN = b"01", b"08", b"0A"
"""States of include/net/tcp_states.h."""
_INODE = 5
"""Index of a socket's inode in the fields after its state."""


def read_sockets(proc: str, pid: int, port: int, *, contained: bool) -> Sockets | None:
    """Return the connections at the port `port` of the server `pid`; None if they cannot be seen.

    That is also so where nothing listens there: the server is reached by another port, or by a Unix socket.
    The kernel lists them for the server's network namespace in /proc/PID/net/tcp and tcp6, which any user may
    read. `contained` says whether it runs in a container, which may have a namespace of its own.
    """
    sockets = _sockets_at_port(f"{proc}/{pid}/net", port)
    listening = {entry.inode for entry in sockets or () if entry.state == _LISTEN}
    if sockets is None or not listening:
        return None
    outside = _sockets_at_port(f"{proc}/net", port) if contained else None
    bridged = contained and listening.isdisjoint(entry.inode for entry in outside or ())
    clients = [entry for entry in sockets if entry.state == _ESTABLISHED][:MOST_CLIENTS]
    is_running_system = proc == "/proc"  # only its kernel can be asked
    return Sockets(
        tuple(end_marks(*entry.client) for entry in clients),
        sum(entry.state == _CLOSE_WAIT for entry in sockets),
        bridged,
        _asked_s(clients, bridged=bridged) if is_running_system else (),
    )


class _Socket(NamedTuple):
    """A TCP socket of a server."""

    state: bytes
    server: tuple[str, int]
    """(host, port) of the server's end."""
    client: tuple[str, int]
    inode: bytes


def _sockets_at_port(folder: str, port: int) -> list[_Socket] | None:
    """Return each TCP socket at a local port; None where a list cannot be read, or is too long."""
    # "  1: 0100007F:1F40 0100007F:C350 01 …": number, local and remote address with port, state, the rest.
    line = re.compile(
        rb"^ *\d+: ([0-9A-F]+):%04X ([0-9A-F]+):([0-9A-F]{4}) ([0-9A-F]{2}) (.*)$" % port, re.MULTILINE
    )
    sockets: list[_Socket] = []
    for name in ("tcp", "tcp6"):
        content = read_bytes(f"{folder}/{name}")
        if content is None and name == "tcp6":  # without IPv6
            continue
        if content is None or len(content) >= MOST_BYTES:
            return None
        for local, remote, remote_port, state, columns in line.findall(content):
            fields = columns.split(None, _INODE + 1)
            if len(local) == len(remote) in {8, 32} and len(fields) > _INODE:
                client = _host_of(remote), int(remote_port, 16)
                sockets.append(_Socket(state, (_host_of(local), port), client, fields[_INODE]))
    return sockets


# The kernel tells any user what has gone through a connection of its own network namespace: sock_diag(7), by
# struct inet_diag_req_v2, inet_diag_msg and tcp_info of include/uapi/linux. Of a server in a container, only
# the connections that a process outside made (such as docker-proxy) can be asked about: at that end.

_SOCK_DIAG, _BY_FAMILY, _REQUEST_FLAG = 4, 20, 1
"""NETLINK_SOCK_DIAG, SOCK_DIAG_BY_FAMILY and NLM_F_REQUEST of Linux's netlink.h and sock_diag.h."""
_INFO = 2
"""INET_DIAG_INFO."""
_STATE_AT, _PORTS, _INODE_AT, _ATTRIBUTES_AT = 17, slice(20, 24), 84, 88
"""Where an answer has what is read of it."""
_TRAFFIC = struct.Struct("=44xI4xI64xQQ16xII")
"""Of tcp_info: tcpi_last_data_sent and tcpi_last_data_recv in ms, tcpi_bytes_acked, tcpi_bytes_received,
tcpi_data_segs_in and tcpi_data_segs_out."""
_ASK_BYTES = 40
"""Least mean size of what carries a request: a GET with its host. Pongs of a WebSocket and window updates of
HTTP/2 are smaller."""
_DIAG_ANSWER_S = 0.2
"""Seconds that the kernel may take to answer: it does within milliseconds."""


def _asked_s(clients: Sequence[_Socket], *, bridged: bool) -> tuple[float | None, ...]:
    """Return `Sockets.asked_s` of established connections."""
    try:
        with socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, _SOCK_DIAG) as line:
            line.settimeout(_DIAG_ANSWER_S)
            return tuple(_ask_kernel(line, client, bridged=bridged) for client in clients)
    except OSError:
        return ()


def _ask_kernel(line: socket.socket, connection: _Socket, *, bridged: bool) -> float | None:
    """Return one item of `Sockets.asked_s`.

    With `bridged` the client's end of the connection is asked: what it sent, the server received.
    """
    near, far = (connection.client, connection.server) if bridged else (connection.server, connection.client)
    if bridged and near[0] == far[0]:  # within the container: outside, other sockets have these addresses
        return None
    family = socket.AF_INET6 if ":" in near[0] else socket.AF_INET
    ends = b"".join(socket.inet_pton(family, host).ljust(16, b"\0") for host, _ in (near, far))
    ports = struct.pack(">HH", near[1], far[1])
    request = struct.pack("=BBBxI", family, socket.IPPROTO_TCP, 1 << (_INFO - 1), 1 << int(_ESTABLISHED, 16))
    request += ports + ends + bytes(4) + b"\xff" * 8
    line.send(struct.pack("=IHHII", 16 + len(request), _BY_FAMILY, _REQUEST_FLAG, 0, 0) + request)
    answer = line.recv(4096)
    if len(answer) < _ATTRIBUTES_AT or answer[_STATE_AT] != int(_ESTABLISHED, 16) or answer[_PORTS] != ports:
        return None  # it has closed
    if not bridged and struct.unpack_from("=I", answer, _INODE_AT)[0] != int(connection.inode):
        return None  # another namespace's
    offset = _ATTRIBUTES_AT
    while offset + 4 <= len(answer):
        size, kind = struct.unpack_from("=HH", answer, offset)
        if kind == _INFO and size >= 4 + _TRAFFIC.size:
            sent_ms, came_ms, segs_out, segs_in, data_in, data_out = _TRAFFIC.unpack_from(answer, offset + 4)
            if bridged:
                came_ms, segs_out, segs_in, data_in = (sent_ms, segs_in, segs_out, data_out)
            only_asks = data_in > 0 and segs_in >= _ASK_BYTES * data_in and segs_out >= segs_in
            return came_ms / 1000 if only_asks else time.monotonic()
        offset += max(4, (size + 3) & ~3)
    return None


def _host_of(digits: bytes) -> str:
    """Return the address that the kernel writes as hexadecimal words of 32 bits in its own byte order."""
    words = [
        int(digits[index : index + 8], 16).to_bytes(4, sys.byteorder) for index in range(0, len(digits), 8)
    ]
    packed = b"".join(words)
    return socket.inet_ntop(socket.AF_INET if len(words) == 1 else socket.AF_INET6, packed)


_WORKLOADS_READ_AGAIN_S = 5.0
"""Seconds between two readings."""
_WORKLOADS_MOST = 64
"""Upper limit of workloads in a sample."""
_MOST_GUARDS, _MOST_ANCESTORS = 8, 8
"""Guards of a machine that are kept; ancestors of a process among which its server is searched."""
_NOT_ENGINE = Title("", "")
_PARTS = frozenset({"engine core", "worker", "worker, loading", "scheduler", "detokenizer", "runner"})
"""Roles of processes that serve nobody by themselves."""
_REAPERS = frozenset(
    b"systemd init tini docker-init dumb-init catatonit conmon containerd-shim s6-svscan sleep tail sh bash "
    b"dash zsh fish".split()
)
"""Names of processes that become the parent of those whose own has ended, and that start no part of an engine
but its server."""


_KTHREADD = 2
"""Process ID of the parent of all kernel threads, which no container sees."""


def _boot_s() -> float:
    """Return the seconds since the machine booted."""
    return time.clock_gettime(time.CLOCK_BOOTTIME)


class WorkloadReader:
    """Reads the workloads of a machine every few seconds; returns the previous ones in between.

    The list of process IDs takes 0.1 ms, a command line 8 µs. All are read each time: a Python process gets
    its title seconds after its start.
    """

    def __init__(
        self,
        root: Path = Path("/"),
        *,
        containers: ContainerReader | None = None,
        since_boot: Callable[[], float] = _boot_s,
        page_bytes: int | None = None,
        ticks_per_s: int | None = None,
    ) -> None:
        """Create a reader of /proc below `root`; `since_boot` returns seconds since the machine booted."""
        self._root, self._proc = root, str(root / "proc")
        self._containers = containers or ContainerReader(root)
        self._checkpoints = CheckpointReader(root)
        self._since_boot = since_boot
        self._page_bytes = page_bytes or os.sysconf("SC_PAGE_SIZE")
        self._ticks_per_s = ticks_per_s or os.sysconf("SC_CLK_TCK")
        self._read_at: float | None = None
        self._workloads = Workloads()
        self._titles: dict[int, Title] = {}
        """Of the processes of engines, by process ID."""
        self._ticks: dict[_Life, int] = {}

    def read(self, now: float, on_gpu: Collection[int] = ()) -> Workloads:
        """Return the workloads at `now` (seconds); `on_gpu` are the IDs of processes that hold GPU memory."""
        age_s = None if self._read_at is None else now - self._read_at
        if age_s is not None and 0 <= age_s < _WORKLOADS_READ_AGAIN_S:
            return replace(self._workloads, age_s=age_s)
        self._read_at = now
        compilers, guards = self._read_commands()
        pids = sorted(self._titles.keys() | set(on_gpu))[:_WORKLOADS_MOST]
        processes = {pid: self._read_process(pid) for pid in pids}
        by_pid = {pid: process for pid, process in processes.items() if process is not None}
        workloads = tuple(self._workload(process, age_s, by_pid) for process in by_pid.values())
        self._ticks = {(process.pid, process.start): process.ticks for process in by_pid.values()}
        self._workloads = Workloads(
            _with_servers(workloads, {process.pid: process.parent for process in by_pid.values()}),
            compilers,
            age_s=0.0,
            guards=guards,
            sees_all=self._sees_all(),
        )
        self._containers.learn_names(now)
        return self._workloads

    def _read_commands(self) -> tuple[int, tuple[MemoryGuard, ...]]:
        """Read all command lines: store the titles, and return the number of compilers and the guards."""
        self._titles, guards, compilers = {}, list[MemoryGuard](), 0
        for pid in [int(name) for name in entries(self._root / "proc") if name.isdecimal()]:
            content = read_small(f"{self._proc}/{pid}/cmdline")
            arguments = arguments_of(content) if content else []
            program = program_of(arguments)
            compilers += program in COMPILERS
            if (title := read_title(arguments)) is not None:
                self._titles[pid] = title
            if (guard := read_guard(program, arguments, self._root)) is not None:
                guards.append(guard)
        return compilers, tuple(guards[:_MOST_GUARDS])

    def _sees_all(self) -> bool:
        """Return whether the parent of all kernel threads can be seen, which no container sees."""
        stat_file = read_small(f"{self._proc}/{_KTHREADD}/stat") or b""
        fields = stat_file.rpartition(b")")[2].split(None, _FLAGS + 1)
        flags = parse_int(fields[_FLAGS]) if len(fields) > _FLAGS else None
        return bool((flags or 0) & _KERNEL_THREAD)

    def _read_process(self, pid: int) -> Process | None:
        return parse_stat(pid, read_small(f"{self._proc}/{pid}/stat") or b"")

    def _is_adopted(self, process: Process, by_pid: Mapping[int, Process]) -> bool | None:
        """Return whether an init process is the parent of an engine's process, or of the engine's first.

        None if one of its ancestors can be a server, or where that parent cannot be seen.
        """
        top = process
        for _ in range(_MOST_ANCESTORS):
            parent, title = by_pid.get(top.parent), self._titles.get(top.parent)
            if parent is None or title is None:
                break
            if title.role not in _PARTS:
                return None
            top = parent
        parent = self._read_process(top.parent) if top.parent else None
        return None if parent is None else parent.comm in _REAPERS

    def _workload(self, process: Process, elapsed_s: float | None, by_pid: Mapping[int, Process]) -> Workload:
        """Return a workload; `elapsed_s` are the seconds since the previous reading, None without one."""
        pid = process.pid
        title = self._titles.get(pid, _NOT_ENGINE)
        container, name = self._containers.find(pid, process.start)
        before = self._ticks.get((pid, process.start))
        sockets = None
        if title.role == "server" and title.port is not None:
            sockets = read_sockets(self._proc, pid, title.port, contained=container is not None)
        weights = self._checkpoints.find(pid, process.start, title.path, title.flags)
        return Workload(
            pid,
            title.engine or None,
            title.role or None,
            title.rank,
            title.model,
            title.port,
            container=container,
            container_name=name,
            age_s=max(0.0, self._since_boot() - process.start / self._ticks_per_s),
            memory_bytes=process.rss_pages * self._page_bytes,
            cpu_percent=_cpu_percent(process.ticks, before, elapsed_s, self._ticks_per_s),
            read_bytes=self._read_bytes(pid),
            checkpoint_bytes=weights.size_bytes,
            oom_kills=self._containers.oom_kills(pid, process.start) if title.engine else None,
            sockets=sockets,
            adopted=self._is_adopted(process, by_pid) if title.role in _PARTS else None,
            weights=weights.step,
            flags=title.flags if title.role == "server" else None,
            revision=weights.revision,
            asks=title.asks,
            command=title.command,
        )

    def _read_bytes(self, pid: int) -> int | None:
        """Return the bytes that a process has read from disks; None where this user may not see that."""
        content = read_small(f"{self._proc}/{pid}/io") or b""
        for line in content.splitlines():
            if line.startswith(b"read_bytes:"):
                return parse_int(line.partition(b":")[2].strip())
        return None


def _with_servers(workloads: tuple[Workload, ...], parents: dict[int, int]) -> tuple[Workload, ...]:
    """Return the workloads, each with its server, and with the server's model where it names none.

    The server is the first ancestor that is a server; else the only server in the same container.
    """
    by_pid = {workload.pid: workload for workload in workloads}

    def server_of(workload: Workload) -> Workload | None:
        ancestor: Workload | None = workload
        for _ in range(_MOST_ANCESTORS):
            if ancestor is None or ancestor.role == "server":
                return ancestor
            ancestor = by_pid.get(parents.get(ancestor.pid, 0))
        return None

    def in_container(workload: Workload) -> Workload | None:
        key = ("server", workload.engine, workload.container)
        servers = [other for other in workloads if (other.role, other.engine, other.container) == key]
        return servers[0] if len(servers) == 1 and workload.container is not None else None

    def with_server(workload: Workload) -> Workload:
        if workload.engine is None:
            return workload
        server = server_of(workload) or in_container(workload)
        if server is None:
            return workload
        return replace(workload, server=server.pid, model=workload.model or server.model)

    return tuple(map(with_server, workloads))
