"""Recognises processes of inference engines by their command lines.

Engines change their titles with setproctitle; the kernel's short name (comm) is cut to 15 characters, so that
ranks are only in the command line. Nothing else than model and port is kept of a command line, because it can
hold keys.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from sparktop.model.text import clean

_LONGEST = 80
_MOST_ARGUMENTS = 200
_RANKS = re.compile(r"_((?:ATTN_|MOE_)?(?:DP|EP|PP|TP|CP|PCP|DCP))(\d{1,4})(?![0-9])")
_VLLM = re.compile(r"[\w.-]{1,32}::(APIServer|DPCoordinator|EngineCore|Worker)(?![a-z])")
_VLLM_ROLES = {
    "APIServer": "API server",
    "DPCoordinator": "DP coordinator",
    "EngineCore": "engine core",
    "Worker": "worker",
}
_RAY = re.compile(r"ray::RayWorker(Wrapper|Proc)(\.initialize_worker)?")
_SGLANG = re.compile(r"sglang::(\w+?)(?:_(?:[A-Z].*)|:.*)?$")
_SGLANG_ROLES = {
    "scheduler": "scheduler",
    "detokenizer": "detokenizer",
    "data_parallel_controller": "DP controller",
    "tokenizer_worker": "tokenizer",
}
_HUB = re.compile(r"models--([^/]+?)--([^/]+)")
_NAME = ("--served-model-name", "--alias")
_PATH = ("--model", "--model-path", "--model-id", "-m", "--hf-repo", "-hf")
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
UNSETTLED = ("python", "ray::", "sh", "bash", "docker-init", "tini", "uv", "env")
"""Beginnings of program names that may become an engine's process: by a new title, or by exec."""


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
    if found := _VLLM.match(title):
        return Title("vllm", _VLLM_ROLES[found[1]], _ranks(title))
    if found := _RAY.match(title):
        return Title("vllm", "worker, loading" if found[2] else "worker")
    if title.startswith("sglang::"):
        name = _SGLANG.match(title)
        word = name[1] if name else ""
        return Title("sglang", _SGLANG_ROLES.get(word) or clean(word, 32) or "worker", _ranks(title))
    return _server(arguments)


def _ranks(title: str) -> str | None:
    found = _RANKS.findall(title)
    return " ".join(f"{kind.rpartition('_')[2]}{number}" for kind, number in found) or None


def _server(arguments: Sequence[str]) -> Title | None:
    """Return the title of a server by its program, its script or its module."""
    program, rest = program_of(arguments), list(arguments[1:])
    if program.startswith("python"):
        program, rest = _script(rest)
    if program.startswith("mgmn_worker_node"):
        return Title("trtllm", "worker")
    if program == "ollama" and rest[:1] == ["runner"]:
        return Title("ollama", "runner", model=_model(rest))
    if program in {"vllm", "sglang", "ollama"}:
        return _with_options(program, rest[1:]) if rest[:1] == ["serve"] else None
    return _with_options(program, rest) if program in _SERVERS else None


def _script(arguments: list[str]) -> tuple[str, list[str]]:
    """Return (program, its arguments) that a Python interpreter runs; a module of a server as its program."""
    rest = list(arguments)
    while rest and rest[0].startswith("-") and rest[0] != "-m":
        rest.pop(0)
    if rest[:1] == ["-m"]:
        module, rest = (rest[1:2] or [""])[0], rest[2:]
        program = _MODULES.get(module, module.rpartition(".")[2])
        is_server = program in {"vllm", "sglang"} and rest[:1] != ["serve"]
        return program, ["serve", *rest] if is_server else rest
    return (rest[0].rpartition("/")[2], rest[1:]) if rest else ("", [])


def _with_options(program: str, options: Sequence[str]) -> Title:
    engine, port = _SERVERS[program]
    given = _option(options, ("--port", "-p") if program.startswith("text-") else ("--port",))
    number = int(given) if given is not None and given.isascii() and given.isdecimal() else port
    valid = number if 0 < number < 1 << 16 else None
    return Title(engine, "server", model=_model(options), port=valid, path=_named(options, _PATH))


def _model(options: Sequence[str]) -> str | None:
    named = _named(options, _NAME) or _named(options, _PATH)
    return short_model(named) if named else None


def _named(options: Sequence[str], names: Sequence[str]) -> str | None:
    """Return the value of the first option in `names`, for `_PATH` else the first argument, if it is none."""
    named = next((value for name in names if (value := _option(options, (name,)))), None)
    if named is None and names is _PATH and options and not options[0].startswith("-"):
        return options[0]
    return named


def _option(options: Sequence[str], names: tuple[str, ...]) -> str | None:
    for place, word in enumerate(options):
        name, equals, value = word.partition("=")
        if name in names:
            if equals:
                return value
            return options[place + 1] if place + 1 < len(options) else None
    return None


def short_model(name: str) -> str | None:
    """Return a model's name without the folders of a path; that of a download keeps its owner."""
    hub = _HUB.search(name)
    if hub is not None:
        return clean(f"{hub[1]}/{hub[2]}", _LONGEST)
    if name.startswith(("/", ".", "~")) or name.count("/") > 1:
        name = name.rstrip("/").rpartition("/")[2]
    return clean(name.removesuffix(".gguf"), _LONGEST) or None
