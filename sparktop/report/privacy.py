"""Decides what reports and bundles must not show of a text, and what stands in its place.

Secrets are left out of all of them, addresses unless a report may show them, names on request. Known names
and hosts are recognised wherever they occur, all else by its form, such as that of an address.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from pathlib import PurePath

from msgspec import Struct, field

from sparktop.analysis.placement import is_address, normal_host, public_url
from sparktop.engines import ENGINES
from sparktop.model.text import free_name

ADDRESS, SECRET, PATH, USER = "(address)", "(secret)", "(path)", "(user)"
"""Words in the place of what is left out."""
BACKEND, ROUTER = "backend", "router"
"""Kinds of servers: the first words of their numbered names."""
_SHORTEST = 3
"""Characters: shorter names occur in any text."""
_ORDINARY = frozenset(
    {*ENGINES, "auto", "local", "localhost", "machine", "node", "prometheus", "proxy", "backend"}
    | {"root", "router", "server", "sparktop", "this machine", "litellm", "http", "https", "ssh"}
    | {"agent", "error", "warning", "config", "prefill", "decode", "nvidia", "ubuntu", "user", "host"}
)
"""Words of sparktop's own texts: who calls a server, a host or a user so is not known by it."""
_NO_HOSTS = frozenset({"localhost", "secret", "address"})
"""What may stand in the place of a host, and names none."""
_TOP_LEVEL = (
    "com|org|net|edu|gov|mil|int|io|dev|ai|app|cloud|tech|info|biz|xyz|site|local|localdomain|lan|internal|intranet"
    "|intra|corp|private|home|arpa|test|example|invalid|de|uk|fr|nl|be|ch|at|it|es|pl|se|no|fi|dk|cz|eu|us|ca|au|jp"
    "|cn|kr|in|ru|br|il|ie|pt|tw|sg|hk|nz|mx|tr|ua|gr|hu|ro"
)
"""Ends of host names; a module's or a file's name has another one."""
# "https://spark-a:8000/v1", "http://[fe80::1]:8000".
_URL = re.compile(r"(?<![a-zA-Z])[a-zA-Z][a-zA-Z0-9+.-]{0,30}://(?:\[[^\]\s]{0,60}\]|[^\s'\"`<>|)\]}])+")
_URL_HOST = re.compile(r"(://)(\[[^\]]*\]|[^/:]+)")
# "Bearer …", "sk-…", "api_key=…".
_SECRET = re.compile(
    r"(?i)\b(?:bearer|basic)\s+[^\s'\"`,;]+|\b(?:sk|hf|ghp|glpat|xox[a-z])[-_][\w-]{6,}"
    r"|\b(?:[\w-]*api[-_ ]?key|authorization|password|passwd|secret|token|x-[\w-]+)"
    r"(?:\s+provided)?['\"]?\s*[:=]\s*['\"]?(?:(?:bearer|basic)\s+)?[^\s'\"`,;]+"
)
# Words so long, of letters and digits, are keys or digests; with hyphens they may also be names of models.
_LONG = re.compile(r"(?<![^\W_])(?=[A-Za-z]*\d)(?=\d*[A-Za-z])[A-Za-z0-9]{32,}(?![^\W_])")
_LONG_WITH_HYPHENS = re.compile(r"(?<![\w-])(?=[\w-]*\d)(?=[\w-]*[A-Za-z])[\w-]{32,}(?![\w-])")
# A user and a host, as for ssh.
_USER_AT_HOST = re.compile(r"(?<![\w.+-])([\w.+-]+)@(?!sha256:)([\w-]+(?:\.[\w-]+)*)")
# Addresses of network cards, and identities of GPUs.
_HARDWARE = re.compile(
    r"(?<![0-9a-fA-F:])(?:[0-9a-fA-F]{2}[:-]){5,}[0-9a-fA-F]{2}(?![^\W_])|\b(?:GPU|MIG)-[0-9a-fA-F-]{36}\b"
)
_NOTHING = re.compile("(?!)")
_PORT = r"(?::\d+(?!\w))?"
_IP4 = r"(?:\d{1,3}\.){3}\d{1,3}(?!\d)(?!\.\d)"
# What may be an address of IPv6, in brackets with a port, or of IPv4: no part of "1.2.3.4.5", no time.
_ADDRESSES = (
    re.compile(
        rf"\[?(?<![\w.])((?:[0-9a-fA-F]{{0,4}}:){{2,7}}(?:{_IP4}|[0-9a-fA-F]{{1,4}}|(?<=::)))(?!:*\w)"
        rf"(?:%[\w.-]+)?(?:\]{_PORT})?"
    ),
    re.compile(rf"(?<!\d)(?<!\d\.)({_IP4}){_PORT}"),
)
# A host name with a domain.
_DOTTED_HOST = re.compile(
    rf"(?i)(?<![\w.])((?=[\w.-]*[a-z])(?:[\w-]+\.)+(?:{_TOP_LEVEL})|localhost)(?!\w|\.\w){_PORT}"
)
# The rest of a container image behind its registry: "/nvidia/vllm:26.01", "/x/vllm@sha256:…".
_OF_IMAGE = re.compile(r"(?:/[\w.-]+)+(?::[\w.-]+|@sha256:)")
# A name before a port.
_HOST_AND_PORT = re.compile(r"(?<![\w./@-])([A-Za-z][\w-]*):\d{2,5}(?![\w:.])")
# The folder of a user; "/home/me/model", "~/x", "C:\x".
_HOME = re.compile(r"(/(?:home|Users)/)([^/\s'\"`:,;]+)")
_IN_PATH = r"(?:\((?:address|secret|user)\)|[^\s'\"`,;:)])*"
_PATH = re.compile(
    rf"(?<![\w/.:<])(?:~|\.{{1,2}})?/(?=[\w.@+-]|\((?:a|s|u)){_IN_PATH}|\b[A-Za-z]:\\(?=[^)]){_IN_PATH}"
)
_FEW_SLASHES = 1
"""A model's name may have one slash, between its publisher and its own name; a path has more."""


class Privacy(Struct):
    """Decides what a report may show: names and texts pass through it.

    URLs are kept only if `addresses` is True and `anonymous` is False. With `anonymous`, numbered names also
    replace the real names of targets, servers and machines, and paths are left out. With `numbered` as well,
    paths stay, and hosts, addresses and users have numbered stand-ins, the same one wherever they occur.
    """

    addresses: bool = False
    anonymous: bool = False
    numbered: bool = False
    _names: dict[str, str] = field(default_factory=dict)
    """What targets and servers are called in the report, by name."""
    _machines: dict[str, str] = field(default_factory=dict)
    _aliases: dict[str, str] = field(default_factory=dict)
    """Both in one, for names within a text."""
    _stand_ins: dict[str, str] = field(default_factory=dict)
    """What stands for a host, an address or a user, by the word in small letters."""
    _anywhere: set[str] = field(default_factory=set)
    """Words in small letters that are looked up wherever they occur."""
    _numbers: dict[str, int] = field(default_factory=dict)
    """Numbered names so far, by kind."""
    _known: re.Pattern[str] | None = None
    """Any known word within a text; None where a word has come since."""
    _secrets: re.Pattern[str] = _NOTHING

    def know(
        self,
        servers: Iterable[tuple[str, str]],
        machines: Iterable[str],
        hosts: Iterable[str | None] = (),
        users: Iterable[str] = (),
        secrets: Iterable[str] = (),
    ) -> None:
        """Choose the names that the report uses for `servers`, (name, kind) pairs, and for `machines`.

        In an anonymous report these are numbered names such as "backend-1". A machine with the same name
        as a server gets the server's number ("node-1"). `hosts` are host names and addresses of servers and
        machines, also with a user for ssh; `secrets` are left out wherever they occur.
        """
        with_addresses = Privacy(addresses=True).text
        for name, kind in servers:
            if name not in self._names:
                self._names[name] = self._next(kind) if self.anonymous else with_addresses(name)
        machine_name = self._machine_alias if self.anonymous else with_addresses
        # First those that share a server's name: they take its number.
        for name in sorted(machines, key=lambda name: name not in self._names):
            self._machines[name] = self._machines.get(name) or machine_name(name)
        self._aliases = {**self._machines, **self._names}
        if self.anonymous:
            self._stand_ins = {name.lower(): alias for name, alias in self._aliases.items()} | self._stand_ins
        self._anywhere |= {name.lower() for name in filter(_is_telling, self._aliases)}
        self._known = None
        if words := _any_of(secrets):
            self._secrets = re.compile(f"(?i){words}")
        for user in filter(None, users):
            self._stand_in("user", user)
        for host in filter(None, hosts):
            self._know_host(host)

    def _machine_alias(self, name: str) -> str:
        same = self._names.get(name, "").replace(f"{BACKEND}-", "node-")
        return same or free_name("node-1", self._machines.values(), "node-{1}")

    def _know_host(self, host: str) -> None:
        """Find a host wherever it occurs; the first part of its name has the stand-in of the whole."""
        if "@" in host or "://" in host:
            self.text(host)
        elif not is_address(host):
            stand_in, label = self._stand_in("host", host), host.partition(".")[0]
            self._stand_ins.setdefault(label.lower(), stand_in)
            self._stand_in("host", label)

    @property
    def shows_addresses(self) -> bool:
        """Whether addresses may be shown."""
        return self.addresses and not self.anonymous

    def name(self, name: str) -> str:
        """Return what the report calls a server or target."""
        return self._names.get(name) or self.text(name)

    def machine(self, name: str) -> str:
        """Return what the report calls a machine."""
        return self._machines.get(name) or self.name(name)

    def url(self, url: str) -> str:
        """Return a server's URL without user and query if addresses may be shown, else ""."""
        return _without_credentials(url) if self.shows_addresses else ""

    def model(self, name: str) -> str:
        """Return a model's name without secrets.

        In an anonymous report, the folder that the model was loaded from is removed, too.
        """
        name = _SECRET.sub(SECRET, name)
        is_path = name.startswith(("/", "~", ".")) or "\\" in name or name.count("/") > _FEW_SLASHES
        return PurePath(name.replace("\\", "/")).name or name if self.anonymous and is_path else name

    def text(self, text: str) -> str:
        """Return a text without secrets, and without other things that the report may not show."""
        text = _SECRET.sub(SECRET, _URL.sub(self._url, self._secrets.sub(SECRET, text)))
        if not self.shows_addresses:
            text = self._without_addresses(text)
        if self.numbered:
            return _LONG_WITH_HYPHENS.sub(SECRET, text)
        # Alone it is an id of a report's own, such as a digest.
        return text if _LONG.fullmatch(text) else _LONG.sub(SECRET, text)

    def _without_addresses(self, text: str) -> str:
        """Return a text without addresses and hosts; in an anonymous report without names and paths, too."""
        text = _USER_AT_HOST.sub(
            lambda match: f"{self._stand_in('user', match[1])}@{self._host(match[2])}", text
        )
        text = _HARDWARE.sub(lambda match: self._stand_in("address", match[0]), text)
        for pattern in _ADDRESSES:
            text = pattern.sub(lambda match: self._found(match) if is_address(match[1]) else match[0], text)
        text = _DOTTED_HOST.sub(self._found, text)
        self._known = self._known or self._pattern()
        text = self._known.sub(
            lambda match: self._aliases.get(match[0]) or self._stand_ins.get(match[0].lower(), match[0]), text
        )
        text = _HOST_AND_PORT.sub(lambda match: self._found(match, anywhere=False), text)
        if self.anonymous and not self.numbered:
            text = _PATH.sub(PATH, text)
        if self.anonymous:
            text = _HOME.sub(lambda match: match[1] + self._stand_in("user", match[2]), text)
        return text

    def _url(self, match: re.Match[str]) -> str:
        bare = _without_credentials(match[0])
        if self.shows_addresses:
            return bare
        shown = _URL_HOST.sub(lambda host: host[1] + self._host(host[2]), bare)
        return shown if self.numbered else ADDRESS

    def _found(self, match: re.Match[str], *, anywhere: bool = True) -> str:
        """Return what stands for a host or address, the first group, and its port."""
        whole, host = match[0], match[1]
        is_registry = not self.anonymous and _OF_IMAGE.match(match.string, match.end()) is not None
        if whole in self._aliases or host == "::" or (is_registry and whole == host):
            return self._aliases.get(whole, whole)
        stand_in = self._host(host, anywhere=anywhere)
        return whole.replace(host, stand_in) if self.numbered else ADDRESS

    def _host(self, host: str, *, anywhere: bool = True) -> str:
        bare = host.strip("[]")
        kind, plain = ("address", normal_host(bare)) if is_address(bare) else ("host", bare)
        if plain.lower().strip("()") in _NO_HOSTS:
            return host
        return host.replace(bare, self._stand_in(kind, plain, anywhere=anywhere))

    def _stand_in(self, kind: str, real: str, *, anywhere: bool = True) -> str:
        """Return what stands for a word; a new word gets the next number of its kind.

        With `anywhere`, the word is replaced wherever it occurs from then on, unless it is an ordinary one.
        In a report, the host "gpu" is one, too: letters alone may be any word.
        """
        word = real.lower()
        if word in self._stand_ins.values():
            return real
        if word not in self._stand_ins:
            left_out = USER if kind == "user" else ADDRESS
            self._stand_ins[word] = self._next(kind) if self.numbered else left_out
        is_any_word = word.isalpha() and not self.numbered and not (self.anonymous and kind == "user")
        if anywhere and _is_telling(word) and not is_any_word and word not in self._anywhere:
            self._anywhere.add(word)
            self._known = None
        return self._stand_ins[word]

    def _next(self, kind: str) -> str:
        self._numbers[kind] = self._numbers.get(kind, 0) + 1
        return f"{kind}-{self._numbers[kind]}"

    def _pattern(self) -> re.Pattern[str]:
        """Return a pattern of any known word; of short and ordinary ones, names, in reports alone."""
        exact = () if self.numbered else (name for name in self._aliases if not _is_telling(name))
        parts = []
        if words := _any_of(self._anywhere):
            parts.append(rf"(?<![A-Za-z0-9])(?i:{words})(?![A-Za-z0-9])")
        if words := _any_of(exact):
            parts.append(rf"(?<![\w.-])(?:{words})(?![\w-])")
        return re.compile("|".join(parts)) if parts else _NOTHING


def _is_telling(word: str) -> bool:
    """Return whether a word tells who is meant: neither short nor ordinary."""
    is_long = len(word) >= _SHORTEST or not (word.isalpha() or word.isdigit())
    return is_long and word.lower() not in _ORDINARY


def _any_of(words: Iterable[str]) -> str:
    """Return a regular expression of alternatives, the longest first; "" without words."""
    return "|".join(re.escape(word) for word in sorted(set(words), key=len, reverse=True) if word)


def _without_credentials(url: str) -> str:
    """Return a URL without user, password, query and fragment; `ADDRESS` if it may hold a secret."""
    bare = public_url(url)
    return ADDRESS if bare is None or "@" in bare else bare
