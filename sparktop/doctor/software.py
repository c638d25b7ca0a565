"""Checks the versions of sparktop, Python and the libraries that sparktop needs."""

from __future__ import annotations

import platform
from collections.abc import Callable
from importlib import metadata

from sparktop import __version__
from sparktop.doctor.check import Check, Status

_TEXTUAL_MAJOR = "8"
"""The major version of Textual that is required: the screen relies on behaviour that may change in a later
one."""
_OTHERS = ("aiohttp", "httpx", "nvidia-ml-py", "pydantic")


def installed(package: str) -> str | None:
    """Return the version of an installed package; None if the package is not installed."""
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return None


def check_versions(version_of: Callable[[str], str | None] = installed) -> list[Check]:
    """Return the checks of the versions of sparktop, Textual and the other libraries.

    `version_of` returns the version of a package, or None if it is not installed.
    """
    ours = f"sparktop {__version__}, Python {platform.python_version()}, {platform.machine()}"
    textual = version_of("textual")
    others = {name: version_of(name) for name in _OTHERS}
    missing = [name for name, version in others.items() if version is None]
    shown = ", ".join(f"{name} {version}" for name, version in others.items() if version is not None)
    return [
        Check("version", Status.OK, ours),
        _check_textual(textual),
        Check("libraries", Status.FAIL, f"missing: {', '.join(missing)}", "install sparktop again")
        if missing
        else Check("libraries", Status.OK, shown),
    ]


def _check_textual(version: str | None) -> Check:
    if version is None:
        return Check("textual", Status.FAIL, "missing: no screen can be drawn", "install sparktop again")
    if version.partition(".")[0] != _TEXTUAL_MAJOR:
        advice = f"install sparktop again: it is made for Textual {_TEXTUAL_MAJOR}"
        return Check("textual", Status.WARN, f"Textual {version}", advice)
    return Check("textual", Status.OK, f"Textual {version}")
