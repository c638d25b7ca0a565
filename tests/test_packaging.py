"""The metadata of a release: version, changelog, command and licence."""

from __future__ import annotations

import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

import sparktop
from scripts.bundle import LIBRARY, PROGRAM
from tests.known import known

ROOT = Path(__file__).resolve().parent.parent


def test_the_changelog_starts_with_this_version() -> None:
    """The newest version in CHANGELOG.md is the package's; a section of unreleased changes may precede it."""
    text = (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")
    found = known(re.search(r"^## (?:Unreleased$.*?^## )?(\S+)", text, flags=re.MULTILINE | re.DOTALL))
    assert found[1] == sparktop.__version__


def test_a_release_is_cited_by_its_version_and_date() -> None:
    """CITATION.cff has the version of the package, and the date that CHANGELOG.md has for it."""
    citation = (ROOT / "CITATION.cff").read_text(encoding="utf-8")
    assert f"\nversion: {sparktop.__version__}\n" in citation
    changes = (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")
    dated = known(
        re.search(rf"(?m)^## {re.escape(sparktop.__version__)} \((\d{{4}}-\d{{2}}-\d{{2}})\)$", changes)
    )
    assert f'\ndate-released: "{dated[1]}"\n' in citation


def test_the_licence_is_the_whole_apache_licence() -> None:
    """LICENSE holds the full terms and the appendix, not just a reference to them."""
    text = (ROOT / "LICENSE").read_text(encoding="utf-8")
    assert "Apache License" in text
    assert "END OF TERMS AND CONDITIONS" in text


def pinned(lock: str) -> dict[str, tuple[str, int]]:
    """Return the version and the number of hashes of each package in a lock file, by name."""
    text = (ROOT / "locks" / lock).read_text(encoding="utf-8").replace("\\\n", " ")
    return {
        line.partition("==")[0]: (line.partition("==")[2].split()[0], line.count("--hash=sha256:"))
        for line in text.splitlines()
    }


@pytest.mark.parametrize("lock", ["run.txt", "build.txt", "dev.txt"])
def test_the_locks_have_a_version_and_hashes_of_all_that_is_needed(lock: str) -> None:
    """Each requirement of pyproject.toml is pinned within its bounds, with the hashes of its files."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    groups = project["dependency-groups"]
    build = groups["build"]
    assert set(project["build-system"]["requires"]) <= set(build)
    run = project["project"]["dependencies"]
    dev = [line for line in groups["dev"] if isinstance(line, str)]
    packages = pinned(lock)
    assert all(hashes for _, hashes in packages.values())
    for line in {"run.txt": run, "build.txt": build, "dev.txt": run + build + dev}[lock]:
        need = Requirement(line)
        version, _ = packages[canonicalize_name(need.name)]
        assert need.specifier.contains(version), f"{need}: {version} in {lock}; make lock renews it"


def test_all_locks_have_the_same_versions() -> None:
    """What is tested is what is installed: a package of two locks has one version."""
    dev = pinned("dev.txt")
    for lock in ("run.txt", "build.txt"):
        assert {name: dev[name] for name in pinned(lock)} == pinned(lock)


@pytest.mark.process
def test_processes_that_the_deb_starts_find_its_packages(tmp_path: Path) -> None:
    """The load generator and the demo's servers are found, though they are processes of their own."""
    package = tmp_path / LIBRARY / "sparktop"
    package.mkdir(parents=True)
    start = "import os, sys\ndef program(): os.execl(sys.executable, 'python', '-P', '-m', 'sparktop.part')\n"
    for name, text in {"__init__": "", "cli": start, "part": "print('found')\n"}.items():
        (package / f"{name}.py").write_text(text, "utf-8")
    program = tmp_path / "usr/bin/sparktop"
    program.parent.mkdir()
    program.write_text(PROGRAM.format(version="3"), "utf-8")
    done = subprocess.run(  # noqa: S603 - a file that this test has written
        [sys.executable, program], cwd=tmp_path, capture_output=True, text=True, timeout=60, check=False
    )
    assert (done.stdout, done.stderr) == ("found\n", "")
