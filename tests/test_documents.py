"""ARCHITECTURE.md and CONTRIBUTING.md name only what exists, and all links lead to existing targets."""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
PACKAGE = ROOT / "sparktop"
PAGES = ("ARCHITECTURE.md", "CONTRIBUTING.md")
FILE = re.compile(r"[\w./-]+(?:/|\.(?:py|toml|md|sh))|(?:tests|scripts|stage)/[\w/]+")
NAME = re.compile(r"_?[A-Z][A-Za-z_]+")


def quoted(page: str) -> set[str]:
    """Return the texts between backquotes of a page."""
    return set(re.findall(r"`([^`\n]+)`", (ROOT / page).read_text(encoding="utf-8")))


@cache
def identifiers() -> frozenset[str]:
    """Return all identifiers of the package's code."""
    return frozenset(
        word
        for path in PACKAGE.rglob("*.py")
        for word in re.findall(r"[A-Za-z_]\w*", path.read_text(encoding="utf-8"))
    )


@pytest.mark.parametrize("page", PAGES)
def test_every_named_path_exists(page: str) -> None:
    """Each path that a page names exists below the root or the package, and each link leads to a file."""
    text = (ROOT / page).read_text(encoding="utf-8")
    named = {path for path in quoted(page) if FILE.fullmatch(path)} | set(re.findall(r"\]\(([^)#]+)\)", text))
    assert len(named) > len(PAGES)
    assert [path for path in sorted(named) if not any((at / path).exists() for at in (ROOT, PACKAGE))] == []


@pytest.mark.parametrize("page", PAGES)
def test_every_named_type_and_constant_exists(page: str) -> None:
    """Each class, record or constant that a page names exists in the code."""
    named = {name for name in quoted(page) if NAME.fullmatch(name)}
    assert named - identifiers() == set()


def test_every_named_target_exists_and_every_target_is_named() -> None:
    """Every make target that a page names exists; CONTRIBUTING.md names all but help, venv and clean."""
    made = set(
        re.findall(r"^([a-z0-9-]+):.*## ", (ROOT / "Makefile").read_text(encoding="utf-8"), re.MULTILINE)
    )
    named = {
        page: {name[5:] for name in quoted(page) if re.fullmatch(r"make [a-z0-9-]+", name)} for page in PAGES
    }
    assert set().union(*named.values()) <= made
    assert made - named["CONTRIBUTING.md"] == {"help", "venv", "clean"}


def test_every_package_is_described() -> None:
    """ARCHITECTURE.md names each package, and each subpackage of `sweep` and `panels`."""
    packages = [
        f"{path.parent.relative_to(PACKAGE)}/"
        for level in ("*", "sweep/*", "panels/*")
        for path in PACKAGE.glob(f"{level}/__init__.py")
    ]
    assert sorted(set(packages) - quoted("ARCHITECTURE.md")) == []


GUIDES = sorted(f"docs/{path.name}" for path in (ROOT / "docs").glob("*.md"))


def anchors(page: Path) -> set[str]:
    """Return the anchors of a page's headings, in the form that GitHub gives them."""
    headings = re.findall(r"(?m)^#+ (.+)$", page.read_text(encoding="utf-8"))
    return {re.sub(r"[^\w -]", "", heading.lower()).replace(" ", "-") for heading in headings}


@pytest.mark.parametrize("page", ["README.md", *GUIDES])
def test_every_link_leads_to_a_file_or_a_heading(page: str) -> None:
    """Each relative link and picture of README.md and the guides leads to a file or one of its headings."""
    here = ROOT / page
    links = re.findall(r"\]\(([^)\s]+)\)", here.read_text(encoding="utf-8"))
    for link in links:
        if link.startswith("http"):
            continue
        name, _, anchor = link.partition("#")
        target = here.parent / name if name else here
        assert target.exists(), link
        assert not anchor or anchor in anchors(target), link
