"""The metadata of a release: version, changelog, command and licence."""

from __future__ import annotations

import re
from importlib.metadata import entry_points, version
from pathlib import Path

import sparktop

ROOT = Path(__file__).resolve().parent.parent


def test_the_installed_version_is_the_one_of_the_package() -> None:
    """The installed metadata and `sparktop.__version__` have the same version."""
    assert version("sparktop") == sparktop.__version__


def test_the_changelog_starts_with_this_version() -> None:
    """The newest version in CHANGELOG.md is the package's; a section of unreleased changes may precede it."""
    text = (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")
    found = re.search(r"^## (?:Unreleased$.*?^## )?(\S+)", text, flags=re.MULTILINE | re.DOTALL)
    assert found is not None
    assert found[1] == sparktop.__version__


def test_the_command_is_called_sparktop() -> None:
    """Installing the package provides one command, `sparktop`."""
    (script,) = [
        entry for entry in entry_points(group="console_scripts") if entry.value.startswith("sparktop")
    ]
    assert script.name == "sparktop"


def test_the_licence_is_the_whole_apache_licence() -> None:
    """LICENSE holds the full terms and the appendix, not just a reference to them."""
    text = (ROOT / "LICENSE").read_text(encoding="utf-8")
    assert "Apache License" in text
    assert "END OF TERMS AND CONDITIONS" in text
