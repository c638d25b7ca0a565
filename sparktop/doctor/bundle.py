"""One file to attach to a report of a fault: the doctor's checks, versions, configuration, last log lines.

It names nobody: hosts, addresses, servers, machines and users have stand-ins, such as "host-1", the same one
wherever they occur. Secrets, and whatever may be one, are left out.
"""

from __future__ import annotations

import platform
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from ipaddress import ip_address
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from msgspec.structs import replace

from sparktop import __version__
from sparktop.config.schema import SETTINGS, Config, ValueKind
from sparktop.config.watch import absolute_path, variable_words
from sparktop.doctor.check import Check
from sparktop.doctor.machine import installed_version
from sparktop.doctor.network import is_address
from sparktop.engines import ENGINES
from sparktop.files import read_bounded
from sparktop.model.targets import Target, Watch
from sparktop.model.text import clean, lines_of
from sparktop.report.privacy import SECRET, Privacy, any_of

SCHEMA = "sparktop.bundle/1"
"""Name and number of the format."""
_PACKAGES = (
    *("aiohttp", "backports.zstd", "httptools", "httpx", "jinja2", "msgspec", "nvidia-ml-py", "plotext"),
    *("prometheus_client", "psutil", "pydantic", "textual", "tomlkit", "uvloop", "yarl"),
)
"""What sparktop needs, as in pyproject.toml."""
_MOST_LOG_BYTES, _MOST_LOG_LINES, _LONGEST_LINE = 64 << 10, 200, 1000
"""Bytes at the end of the log that are read; lines that are taken of them, and characters of each."""
_SECRET_VARIABLE = re.compile(r"(?i)key|token|secret|passw|credential|auth")
"""Names of environment variables whose values may be secrets."""
_SHORTEST_SECRET, _SHORTEST_NAME = 6, 3
"""Characters: shorter values of such variables, such as "1", and shorter names occur in any text."""
_SECRET_KEYS = frozenset({"headers", "webhook", "hook", "extra_body"})
"""Settings whose texts may be secrets, whatever they are called."""
_TOKEN_FILES = frozenset({"token_file", "bearer_file"})
"""Settings that name files with a secret in the first line."""
_ORDINARY = frozenset(
    {*ENGINES, "auto", "local", "localhost", "machine", "node", "prometheus", "proxy"}
    | {"root", "router", "server", "sparktop", "this machine", "litellm", "http", "https", "ssh"}
    | {"agent", "error", "warning", "config"}
)
"""Words of sparktop's own texts: who calls a server, a host or a user so is not known by it."""
_NO_HOSTS = frozenset({"localhost", "(secret)", "(address)"})
"""What may stand in the place of a host, and names none."""
_TOP_LEVEL = (
    "com|org|net|edu|gov|mil|int|io|dev|ai|app|cloud|tech|info|biz|xyz|site|local|localdomain|lan|internal|intranet"
    "|intra|corp|private|home|arpa|test|example|invalid|de|uk|fr|nl|be|ch|at|it|es|pl|se|no|fi|dk|cz|eu|us|ca|au|jp"
    "|cn|kr|in|ru|br|il|ie|pt|tw|sg|hk|nz|mx|tr|ua|gr|hu|ro"
)
"""Ends of host names; a module's or a file's name has another one."""
_LONG_WORD = re.compile(r"(?<![\w-])(?=[\w-]*\d)(?=[\w-]*[A-Za-z])[\w-]{32,}(?![\w-])")
"""Words so long, of letters and digits, are keys or digests."""
_URL_HOST = re.compile(r"(?i)(\b[a-z][a-z0-9+.-]*://)(\[[^\]\s]*\]|[^\s/:?#'\"`<>|)\]}]+)")
"""Scheme and host of a URL."""
_USER_AT_HOST = re.compile(r"(?<![\w.+-])([\w.+-]+)@([\w-]+(?:\.[\w-]+)*)")
"""A user and a host, as for ssh."""
_HARDWARE = re.compile(
    r"(?<![\w:-])(?:[0-9a-fA-F]{2}[:-]){5}[0-9a-fA-F]{2}(?![\w:-])|\bGPU-[0-9a-fA-F-]{36}\b"
)
"""Addresses of network cards, and identities of GPUs."""
_IP6 = re.compile(r"(?<![\w:.])[0-9a-fA-F]{0,4}(?::[0-9a-fA-F.]*){2,}(?![\w:])")
"""What may be an address of IPv6; the next of IPv4."""
# "192.168.1.2", but not a part of "1.2.3.4.5".
_IP4 = re.compile(r"(?<!\d)(?<!\d\.)(?:\d{1,3}\.){3}\d{1,3}(?!\d)(?!\.\d)")
_DOTTED_HOST = re.compile(rf"(?i)(?<![\w.-])(?=[\w.-]*[a-z])(?:[\w-]+\.)+(?:{_TOP_LEVEL})(?![\w-]|\.\w)")
"""A host name with a domain."""
_HOST_AND_PORT = re.compile(r"(?<![\w./@-])([A-Za-z][\w-]*)(?=:\d{2,5}(?![\w:.]))")
"""A name before a port."""
_HOME = re.compile(r"(/(?:home|Users)/)([^/\s'\"`:,;]+)")
"""The folder of a user."""


class Redactor:
    """Replaces what identifies somebody in texts; equal things have equal stand-ins in all of them."""

    def __init__(
        self,
        *,
        secrets: Iterable[str] = (),
        hosts: Iterable[str] = (),
        names: Iterable[str] = (),
        users: Iterable[str] = (),
    ) -> None:
        """Replace these wherever they occur; others are found by their form, such as an address or a URL."""
        self._secrets = _any_of(secrets, is_whole_word=False)
        self._without_secrets = Privacy(addresses=True).text
        self._stand_ins: dict[str, str] = {}
        """What stands for a word, by the word in small letters."""
        self._numbers: dict[str, int] = {}
        """Stand-ins so far, by kind."""
        self._anywhere: dict[str, None] = {}
        """Words that are replaced wherever they occur."""
        self._pattern: re.Pattern[str] | None = None
        for kind, words in (("user", users), ("host", hosts), ("name", names)):
            for word in words:
                if word and not is_address(word):
                    self._add(kind, word)

    def _add(self, kind: str, word: str) -> None:
        """Replace a word wherever it occurs; the first part of a host name has the stand-in of the whole."""
        stand_in, label = self._stand_in(kind, word), word.partition(".")[0]
        if kind == "host":
            self._stand_ins.setdefault(label.lower(), stand_in)
            self._stand_in(kind, label)

    def text(self, text: str) -> str:
        """Return a text without secrets, and with stand-ins for hosts, addresses, names and users."""
        if self._secrets is not None:
            text = self._secrets.sub(SECRET, text)
        text = self._without_secrets(text)
        text = _URL_HOST.sub(lambda match: match[1] + self._host(match[2]), text)
        text = _USER_AT_HOST.sub(
            lambda match: f"{self._stand_in('user', match[1])}@{self._host(match[2])}", text
        )
        text = _HOME.sub(lambda match: match[1] + self._stand_in("user", match[2]), text)
        text = _HARDWARE.sub(lambda match: self._stand_in("address", match[0]), text)
        for pattern in (_IP6, _IP4):
            text = pattern.sub(lambda match: self._address(match[0]), text)
        text = _DOTTED_HOST.sub(lambda match: self._host(match[0]), text)
        if self._pattern is not None:
            text = self._pattern.sub(lambda match: self._stand_ins[match[0].lower()], text)
        text = _HOST_AND_PORT.sub(lambda match: self._host(match[1], anywhere=False), text)
        return _LONG_WORD.sub(SECRET, text)

    def check(self, check: Check) -> Check:
        """Return a check whose texts are redacted."""
        parts = (check.name, check.message, check.advice)
        name, message, advice = map(self.text, parts)
        return replace(check, name=name, message=message, advice=advice)

    def settings(self, kind: ValueKind, value: Any) -> object:  # noqa: ANN401 - of any kind
        """Return a value of the configuration file, of this kind, redacted; keys of fixed tables stay."""
        if isinstance(value, dict):
            if kind.table is None:
                return {
                    self.text(key): self.settings(kind.items or kind, part) for key, part in value.items()
                }
            return {key: self._setting(key, kind.table[key].kind, part) for key, part in value.items()}
        if isinstance(value, list):
            return [self.settings(kind.items or kind, part) for part in value]
        return self.text(value) if isinstance(value, str) else value

    def _setting(self, key: str, kind: ValueKind, value: Any) -> object:  # noqa: ANN401 - as above
        if key == "hook":
            return [self.text(value[0]), *(SECRET for _ in value[1:])] if value else []
        if key in _SECRET_KEYS:
            return SECRET
        if key.endswith("_env"):
            return self.text(value) if value in variable_words(value) else SECRET
        return self.settings(kind, value)

    def _host(self, host: str, *, anywhere: bool = True) -> str:
        bare = host.strip("[]")
        if is_address(bare):
            return host.replace(bare, self._address(bare))
        return bare if bare.lower() in _NO_HOSTS else self._stand_in("host", bare, anywhere=anywhere)

    def _address(self, text: str) -> str:
        """Return a stand-in for the address that a text begins with; the text itself if that is none."""
        bare = text if text.endswith("::") else text.rstrip(".:")
        if not is_address(bare):
            return text
        address = ip_address(bare)
        is_anybodys = address.is_loopback or address.is_unspecified
        return text if is_anybodys else self._stand_in("address", str(address)) + text[len(bare) :]

    def _stand_in(self, kind: str, real: str, *, anywhere: bool = True) -> str:
        """Return what stands for a word; a new word gets the next number of its kind.

        With `anywhere`, the word is replaced wherever it occurs from then on, unless it is an ordinary one.
        """
        word = real.lower()
        if word in self._stand_ins.values():
            return real
        if word not in self._stand_ins:
            self._numbers[kind] = self._numbers.get(kind, 0) + 1
            self._stand_ins[word] = f"{kind}-{self._numbers[kind]}"
        is_ordinary = len(word) < _SHORTEST_NAME or word in _ORDINARY
        if anywhere and not is_ordinary and word not in self._anywhere:
            self._anywhere[word] = None
            self._pattern = _any_of(self._anywhere, is_whole_word=True)
        return self._stand_ins[word]


def _any_of(words: Iterable[str], *, is_whole_word: bool) -> re.Pattern[str] | None:
    """Return a pattern of any of the words, the longest first; None without words."""
    listed = any_of(set(words))
    if not listed:
        return None
    edges = ("(?<![A-Za-z0-9])", "(?![A-Za-z0-9])") if is_whole_word else ("", "")
    return re.compile(f"(?i){edges[0]}(?:{listed}){edges[1]}")


def redactor_of(
    watch: Watch,
    config: Config | None,
    env: Mapping[str, str],
    *,
    own_names: Iterable[str],
    users: Iterable[str],
) -> Redactor:
    """Return a redactor that knows what the targets, the configuration and the environment name.

    `own_names` are this machine's, `users` the names of who runs the program.
    """
    routers = (*watch.routers, *watch.sweep_routers)
    targets: tuple[Target, ...] = (*watch.nodes, *watch.backends, *routers, *watch.prometheus)
    hosts = [urlsplit(target.url).hostname or "" for target in targets if target.url]
    ssh = [target.ssh.rpartition("@") for target in watch.nodes if target.ssh]
    of_environment = [value for name, value in env.items() if _SECRET_VARIABLE.search(name)]
    of_file = () if config is None else _secrets_of(config.settings, config.path, env)
    return Redactor(
        secrets=[*(value for value in of_environment if len(value) >= _SHORTEST_SECRET), *of_file],
        hosts=[*own_names, *hosts, *watch.discover, *(host for _, _, host in ssh)],
        names=[target.name for target in targets],
        users=[*users, *(user for user, _, _ in ssh)],
    )


def _secrets_of(value: object, path: Path, env: Mapping[str, str], key: str = "") -> Iterable[str]:
    """Yield the secrets that settings of the file `path` hold or name.

    These are values of variables, first lines of files, and headers.
    """
    if isinstance(value, dict):
        for name, part in value.items():
            yield from _secrets_of(part, path, env, key if key in _SECRET_KEYS else str(name))
    elif isinstance(value, list):
        for part in value[1:] if key == "hook" else value:  # the first word of a hook is its program
            yield from _secrets_of(part, path, env, key)
    elif isinstance(value, str):
        yield from _secrets_of_text(value, path, env, key)


def _secrets_of_text(text: str, path: Path, env: Mapping[str, str], key: str) -> list[str]:
    """Return the secrets that a text of the settings, under `key`, holds or names."""
    if key in _SECRET_KEYS or key == "basic_user":
        return [text] if len(text) >= _SHORTEST_SECRET else []
    if key.endswith("_env"):
        return [env[text]] if env.get(text) else []
    return _first_line(Path(absolute_path(text, path, env))) if key in _TOKEN_FILES else []


def _first_line(path: Path) -> list[str]:
    try:
        content, _ = read_bounded(path, _MOST_LOG_BYTES)
    except OSError:
        return []
    return [line for line in lines_of(content.decode(errors="replace"))[:1] if line.strip()]


def last_lines(path: Path) -> list[str]:
    """Return the last lines of the log, none if there is no log."""
    try:
        with path.open("rb") as log:
            size = log.seek(0, 2)
            log.seek(max(0, size - _MOST_LOG_BYTES))
            text = log.read(_MOST_LOG_BYTES).decode(errors="replace")
    except OSError:
        return []
    lines = lines_of(text)
    return lines[1 if size > _MOST_LOG_BYTES else 0 :][-_MOST_LOG_LINES:]


def bundle(
    checks: Sequence[Check],
    report: Callable[[Sequence[Check]], Mapping[str, object]],
    config: Config | None,
    log: Sequence[str],
    redactor: Redactor,
) -> dict[str, object]:
    """Return the bundle as JSON-ready values; `report` makes the doctor's report of the redacted checks.

    The configuration is null without a file, and where the checks say what is wrong with it.
    """

    def redact_parts() -> dict[str, object]:
        return {
            "doctor": report([redactor.check(check) for check in checks]),
            "configuration": None if config is None else redactor.settings(SETTINGS, config.settings),
            "log": [_log_line(redactor.text(line)) for line in log],
        }

    # A host that one text shows by its form may stand bare in an earlier one: first all are found.
    redact_parts()
    versions = {
        "sparktop": __version__,
        "python": platform.python_version(),
        "system": f"{platform.system()} {platform.release()} {platform.machine()}",
        "packages": {name: installed_version(name) for name in _PACKAGES},
    }
    return {"schema": SCHEMA, "versions": versions, **redact_parts()}


def _log_line(line: str) -> str:
    """Return a line without control characters; the indentation of a traceback stays."""
    indent = " " * min(80, len(line) - len(line.lstrip(" ")))
    return indent + clean(line, _LONGEST_LINE)
