"""Removes from texts what a report must not show: secrets, addresses, and on request names and paths."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from itertools import count
from pathlib import PurePath

from msgspec import Struct, field

ADDRESS, SECRET, PATH = "(address)", "(secret)", "(path)"
"""Words in the place of what is left out."""
# "https://spark-a:8000/v1".
_URL = re.compile(r"\b[a-zA-Z][a-zA-Z0-9+.-]*://[^\s'\"`<>|)\]}]+")
# The scheme, and what stands between the user's part and the query.
_BARE = re.compile(r"^([^:/]*://)(?:[^/?#]*@)?([^?#]*).*$")
_OCTET = r"(?:25[0-5]|2[0-4]\d|1\d\d|[1-9]?\d)"
_GROUPS = r"[0-9a-fA-F]{1,4}(?::[0-9a-fA-F]{1,4})*"
# Addresses without a scheme: "10.0.0.2", "[fe80::1]", "fe80::1:2", of a network card "4c:bb:47:00:00:01". An
# IPv6 address has "::" or 8 groups, so that a time such as "21:43:48:" is none.
_ADDRESS = re.compile(
    rf"(?<![\w.])(?:(?:{_OCTET}\.){{3}}{_OCTET}(?!\.\d)|\[[0-9a-fA-F:]*::[0-9a-fA-F:.%]*\]"
    rf"|{_GROUPS}::(?:{_GROUPS})?|(?:[0-9a-fA-F]{{1,4}}:){{7}}[0-9a-fA-F]{{1,4}}|(?:[0-9a-fA-F]{{2}}:){{5,}}[0-9a-fA-F]{{2}}"
    r"|[\w-]+(?:\.[\w-]+)*\.(?:local|lan|internal|home|arpa)|localhost)(?::\d+)?(?![\w])"
)
# "Bearer …", "sk-…", "api_key=…".
_SECRET = re.compile(
    r"(?i)\b(?:bearer|basic)\s+[^\s'\"`,;]+|\b(?:sk|hf|ghp|glpat|xox[a-z])[-_][\w-]{6,}"
    r"|\b(?:[\w-]*api[-_ ]?key|authorization|password|passwd|secret|token|x-[\w-]+)"
    r"(?:\s+provided)?['\"]?\s*[:=]\s*['\"]?(?:(?:bearer|basic)\s+)?[^\s'\"`,;]+"
)
# "/home/me/model", "~/x", "C:\x".
_PATH = re.compile(r"(?<![\w/.:<])(?:~|\.{1,2})?/[\w.@+-][^\s'\"`,;:)]*|\b[A-Za-z]:\\[^\s'\"`,;)]+")
_FEW_SLASHES = 1
"""A model's name may have one slash, between its publisher and its own name; a path has more."""
BACKEND, ROUTER = "backend", "router"
"""Kinds of servers: the first words of their numbered names."""


class Privacy(Struct):
    """Decides what a report may show: names and texts pass through it.

    URLs are kept only if `addresses` is True and `anonymous` is False. With `anonymous`, numbered names also
    replace the real names of targets, servers and machines.
    """

    addresses: bool = False
    anonymous: bool = False
    _names: dict[str, str] = field(default_factory=dict)
    """What targets and servers are called in the report, by name."""
    _machines: dict[str, str] = field(default_factory=dict)
    _known: re.Pattern[str] | None = None
    """Any of the names within a text."""
    _hosts: re.Pattern[str] | None = None
    """Any of the known addresses within a text, with or without a port."""

    def know(
        self, servers: Iterable[tuple[str, str]], machines: Iterable[str], hosts: Iterable[str] = ()
    ) -> None:
        """Choose the names that the report uses for `servers`, (name, kind) pairs, and for `machines`.

        In an anonymous report these are numbered names such as "backend-1". A machine with the same name
        as a server gets the server's number ("node-1"). `hosts` are addresses of servers and machines.
        """
        for name, word in servers:
            if name not in self._names:
                number = 1 + sum(alias.startswith(f"{word}-") for alias in self._names.values())
                self._names[name] = f"{word}-{number}" if self.anonymous else _clean_name(name)
        machines = list(machines)
        same = {
            name: self._names[name].replace(f"{BACKEND}-", "node-")
            for name in machines
            if name in self._names
        }
        aliases = (f"node-{number}" for number in count(1))
        free = (alias for alias in aliases if alias not in same.values())
        for name in machines:
            if name not in self._machines:
                self._machines[name] = (same.get(name) or next(free)) if self.anonymous else _clean_name(name)
        words = any_of({*self._names, *self._machines})
        self._known = re.compile(rf"(?<![\w.-])(?:{words})(?![\w-])") if words else None
        self._hosts = _hosts_in_text(list(hosts))

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
        shows = self.shows_addresses
        text = _URL.sub(lambda match: _without_credentials(match[0]) if shows else ADDRESS, text)
        text = _SECRET.sub(SECRET, text)
        if shows:
            return text
        names = {*self._names, *self._machines}
        if self._hosts is not None:
            text = self._hosts.sub(lambda match: match[0] if match[0] in names else ADDRESS, text)
        text = _ADDRESS.sub(lambda match: match[0] if match[0] in self._names else ADDRESS, text)
        if not self.anonymous:
            return text
        if self._known is not None:
            aliases = {**self._machines, **self._names}
            text = self._known.sub(lambda match: aliases[match[0]], text)
        return _PATH.sub(PATH, text)


def _hosts_in_text(hosts: Sequence[str]) -> re.Pattern[str] | None:
    """Return a pattern that matches the host names and addresses `hosts` in text; None if there are none.

    A name of letters only, such as "vllm", matches only with a port; other names also without a port.
    """
    letter_hosts = any_of(host for host in hosts if host.isalpha())
    other_hosts = any_of(host for host in hosts if not host.isalpha())
    patterns = [rf"(?:{letter_hosts}):\d+"] if letter_hosts else []
    patterns += [rf"(?:{other_hosts})(?::\d+)?"] if other_hosts else []
    return re.compile(rf"(?<![\w.-])(?:{'|'.join(patterns)})(?![\w-])") if patterns else None


def any_of(words: Iterable[str]) -> str:
    """Return a regular expression of alternatives, the longest first; "" without words."""
    return "|".join(re.escape(word) for word in sorted(words, key=len, reverse=True) if word)


def _clean_name(name: str) -> str:
    """Return a name with passwords and keys in it removed."""
    return _SECRET.sub(SECRET, _URL.sub(lambda match: _without_credentials(match[0]), name))


def _without_credentials(url: str) -> str:
    """Return a URL without user, password, query and fragment; `ADDRESS` if it may hold a secret."""
    bare = _BARE.sub(r"\1\2", url)
    return ADDRESS if "@" in bare else bare
