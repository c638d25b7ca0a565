"""Whether a configuration file may do what its settings say.

A file that the user named, or keeps in the own configuration folder, may. One that was only discovered, in
the current folder, may set addresses and looks; its other settings are sensitive (see `Reach` in `schema.py`)
and need the user's approval of this content at this path. One that somebody else could have written is not
used at all.
"""

from __future__ import annotations

import json
import os
import stat
import sys
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path

from sparktop.config.watch import read_config
from sparktop.errors import ConfigError
from sparktop.files import BaseFolder, find_folder, read_bounded, write_whole
from sparktop.model.text import clean, reason_of

_MOST_APPROVALS = 100
"""Approvals that are stored, the newest."""
_MOST_BYTES = 1 << 20
"""Bytes of the file of approvals."""
_MOST_SHOWN = 12
"""Most settings listed."""
_WAYS_OUT = (
    "read it, then allow it: sparktop config --trust; use it once: --config FILE; skip it: --config /dev/null"
)
"""What a user can do about a file that is not used."""


class UntrustedError(ConfigError):
    """A file that was only found may not be used; the first line of the message says so and why."""


def is_discovered(named: str | None, path: Path, env: Mapping[str, str]) -> bool:
    """Return whether `path` was only discovered: not named, and not in the user's configuration folder."""
    if named or env.get("SPARKTOP_CONFIG"):
        return False
    own_folder = find_folder(env, BaseFolder.CONFIG)
    return own_folder is None or os.path.realpath(path.parent) != os.path.realpath(own_folder)


def refusal(path: Path, status: os.stat_result) -> str | None:
    """Return why a discovered file is not used, whatever it says; None if only its user or root can write it.

    `status` is of the file that was read. A link, its folder and those above it count like the file itself.
    """
    if not stat.S_ISREG(status.st_mode):
        return "it is not a regular file"
    try:
        return _unsafe_path_reason(path, status)
    except OSError as error:
        return f"it cannot be examined: {reason_of(error)}"


def _unsafe_path_reason(path: Path, status: os.stat_result) -> str | None:
    """Return why others could have written a file, its link or a folder of either; None if nobody could.

    Raises:
        OSError: one of them is gone, or may not be examined.
    """
    link = path.lstat()
    if stat.S_ISLNK(link.st_mode) and link.st_uid not in {os.geteuid(), 0}:
        return "it is a link of another user"
    real = Path(os.path.realpath(path))
    if not os.path.samestat(real.stat(), status):
        return "it was replaced while it was read"
    if (reason := _unsafe_reason(real, status)) is not None:
        return f"it {reason}"
    for folder in dict.fromkeys((Path(os.path.realpath(path.parent)), real.parent)):
        for folder_above in (folder, *folder.parents):
            status = folder_above.stat()
            # Others cannot rename what is in a sticky folder, but they can put files there.
            is_sticky = folder_above != folder and bool(status.st_mode & stat.S_ISVTX)
            if (reason := _unsafe_reason(folder_above, status, is_sticky=is_sticky)) is not None:
                return f"its folder {clean(folder_above, 200)} {reason}"
    return None


def _unsafe_reason(path: Path, status: os.stat_result, *, is_sticky: bool = False) -> str | None:
    """Return why others than this user or root can write a file or folder; None if nobody can."""
    if status.st_uid not in {os.geteuid(), 0}:
        import pwd  # late: few starts find a file

        try:
            owner = clean(pwd.getpwuid(status.st_uid).pw_name, 40)
        except KeyError:
            owner = str(status.st_uid)
        return f"belongs to another user ({owner})"
    if is_sticky:
        return None
    if status.st_mode & stat.S_IWOTH:
        return "can be written by every user (chmod o-w)"
    if status.st_mode & stat.S_IWGRP and not _is_own_group(path, status.st_gid):
        return "can be written by a group (chmod g-w)"
    return None


def _is_own_group(path: Path, group_id: int) -> bool:
    """Return whether a group is of this user or of root alone, as where each user has a group of that name.

    A user whose first group it is, as far as the system lists its users, is not among its members. An access
    list can give others the rights that look like the group's.
    """
    import grp  # late: few starts find a file, and fewer one that a group can write
    import pwd

    try:
        group = grp.getgrgid(group_id)
        names = {pwd.getpwuid(os.geteuid()).pw_name, "root"}
    except KeyError:
        return False
    first_group_of = {user.pw_name for user in pwd.getpwall() if user.pw_gid == group_id}
    if group.gr_name not in names or not names.issuperset((*group.gr_mem, *first_group_of)):
        return False
    try:
        return "system.posix_acl_access" not in os.listxattr(path)
    except OSError:  # a file system without access lists
        return True


class Approvals:
    """The configuration files that the user approved, each with its path, owner and content.

    They are stored below `$XDG_STATE_HOME` or ~/.local/state; without a home directory none is.
    """

    def __init__(self, env: Mapping[str, str]) -> None:
        """Determine the path of the store from `env`; it is written with the first approval."""
        root = find_folder(env, BaseFolder.STATE)
        self.path = None if root is None else root / "trusted.json"

    def has(self, path: Path, status: os.stat_result, text: str) -> bool:
        """Return whether the file `path` was approved as it is."""
        return _approval_entry(path, status, text) in self._read()

    def add(self, path: Path, status: os.stat_result, text: str) -> None:
        """Approve the file `path` as it is.

        Raises:
            ConfigError: the approval cannot be stored.
        """
        if self.path is None:
            raise ConfigError(
                "the approval cannot be stored: there is no home directory; use it: --config FILE"
            )
        entry = _approval_entry(path, status, text)
        other_approvals = [approval for approval in self._read() if approval.get("path") != entry["path"]]
        approvals = [*other_approvals[1 - _MOST_APPROVALS :], entry]
        try:
            self.path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            write_whole(self.path, json.dumps({"trusted": approvals}, indent=1) + "\n")
        except OSError as error:
            where = clean(self.path, 300)
            raise ConfigError(f"{where}: the approval cannot be stored: {reason_of(error)}") from None

    def _read(self) -> list[dict[str, object]]:
        if self.path is None:
            return []
        try:
            body, status = read_bounded(self.path, _MOST_BYTES)
            data = json.loads(body)
        except (OSError, ValueError, RecursionError):
            return []
        is_own = status.st_uid == os.geteuid() and not status.st_mode & (stat.S_IWGRP | stat.S_IWOTH)
        listed = data.get("trusted") if isinstance(data, dict) and is_own else None
        return [item for item in listed if isinstance(item, dict)] if isinstance(listed, list) else []


def _approval_entry(path: Path, status: os.stat_result, text: str) -> dict[str, object]:
    from hashlib import sha256  # late: a file that the user names needs no approval

    return {
        "path": os.path.realpath(path),
        "owner": status.st_uid,
        "sha256": sha256(text.encode()).hexdigest(),
    }


def read_checked(named: str | None, path: Path, env: Mapping[str, str]) -> tuple[str, os.stat_result, bool]:
    """Return the text of the file that `find_config` returned, its status, and whether it was discovered.

    Raises:
        UntrustedError: it was discovered and somebody else could have written it.
        ConfigError: it cannot be read.
    """
    was_discovered = is_discovered(named, path, env)
    text, status = read_discovered(path) if was_discovered else read_config(path)
    return text, status, was_discovered


def read_discovered(path: Path) -> tuple[str, os.stat_result]:
    """Return the text and status of a file that was only discovered, unless others could have written it.

    Raises:
        UntrustedError: somebody else could have written it.
        ConfigError: it cannot be read.
    """
    with suppress(OSError):  # what cannot be examined is not read either
        if not path.is_file() and path.exists():
            raise _refusal_error(path, "it is not a regular file")
    text, status = read_config(path)
    if (reason := refusal(path, status)) is not None:
        raise _refusal_error(path, reason)
    return text, status


def _refusal_error(path: Path, reason: str) -> UntrustedError:
    file = clean(path, 300)
    return UntrustedError(
        f"{file}: not used where it is found: {reason}. Use it: --config {file}; skip it: --config /dev/null"
    )


def request_trust(
    path: Path, status: os.stat_result, text: str, sensitive: Sequence[str], env: Mapping[str, str]
) -> bool:
    """Return whether a discovered file is approved, and so counts like one that the user named.

    `sensitive` are the lines of `Config.sensitive_settings`. If there are any, the user is asked on the
    terminal, and a yes is stored: once for this content.

    Raises:
        UntrustedError: the user said no, or could not be asked.
        ConfigError: the approval cannot be stored.
    """
    approvals = Approvals(env)
    if approvals.has(path, status, text):
        return True
    if not sensitive:
        return False
    ask = _find_asker()
    if ask is None:
        raise UntrustedError(untrusted_message(path, sensitive))
    file = clean(path, 300)
    first = f"{file} was found in this folder: as others may have written it, you are asked about:"
    question = [first, *sensitive_lines(sensitive)]
    if not ask("\n".join(question)):
        raise UntrustedError(f"{file}: not used; skip it: sparktop --config /dev/null")
    approvals.add(path, status, text)
    return True


def untrusted_message(path: Path, sensitive: Sequence[str]) -> str:
    """Return the message for a discovered file that would need an approval, a line for each setting."""
    file = clean(path, 300)
    message = f"{file}: found in the current folder and not used: others may have written what needs approval"
    return "\n".join([message, *sensitive_lines(sensitive), f"{file}: {_WAYS_OUT}"])


def sensitive_lines(sensitive: Sequence[str]) -> list[str]:
    """Return the lines that list the settings which need an approval, the worst first."""
    more = len(sensitive) - _MOST_SHOWN
    return [f"  {line}" for line in sensitive[:_MOST_SHOWN]] + ([f"  and {more} more"] if more > 0 else [])


def _find_asker() -> Callable[[str], bool] | None:
    """Return a function that asks the user on the terminal; None without one."""
    if not all(stream is not None and stream.isatty() for stream in (sys.stdin, sys.stderr)):
        return None

    def ask(question: str) -> bool:
        sys.stderr.write(f"{question}\nAllow it until the file is changed? [y/N] ")
        sys.stderr.flush()
        return sys.stdin.readline().strip().lower() in {"y", "yes"}

    return ask
