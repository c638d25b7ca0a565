"""ARCHITECTURE.md and CONTRIBUTING.md name only what exists; links of every page lead somewhere."""

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
    """Return what stands between backquotes."""
    return set(re.findall(r"`([^`\n]+)`", (ROOT / page).read_text(encoding="utf-8")))


@cache
def identifiers() -> frozenset[str]:
    """Return every word of the product's code."""
    return frozenset(
        word
        for path in PACKAGE.rglob("*.py")
        for word in re.findall(r"[A-Za-z_]\w*", path.read_text(encoding="utf-8"))
    )


@pytest.mark.parametrize("page", PAGES)
def test_every_named_path_exists(page: str) -> None:
    """A path is below the root or below the package; a link between the pages leads to a file."""
    text = (ROOT / page).read_text(encoding="utf-8")
    named = {path for path in quoted(page) if FILE.fullmatch(path)} | set(re.findall(r"\]\(([^)#]+)\)", text))
    assert len(named) > len(PAGES)
    assert [path for path in sorted(named) if not any((at / path).exists() for at in (ROOT, PACKAGE))] == []


@pytest.mark.parametrize("page", PAGES)
def test_every_named_type_and_constant_exists(page: str) -> None:
    """A class, a record or a constant that a page names is in the code."""
    named = {name for name in quoted(page) if NAME.fullmatch(name)}
    assert named - identifiers() == set()


def test_every_named_target_exists_and_every_target_is_named() -> None:
    """CONTRIBUTING.md has each target that somebody runs for its checks or files."""
    made = set(
        re.findall(r"^([a-z0-9-]+):.*## ", (ROOT / "Makefile").read_text(encoding="utf-8"), re.MULTILINE)
    )
    named = {
        page: {name[5:] for name in quoted(page) if re.fullmatch(r"make [a-z0-9-]+", name)} for page in PAGES
    }
    assert set().union(*named.values()) <= made
    assert made - named["CONTRIBUTING.md"] == {"help", "venv", "clean"}


def test_every_package_is_described() -> None:
    """ARCHITECTURE.md has each package, and each room of the sweep and of the panels."""
    packages = [
        f"{path.parent.relative_to(PACKAGE)}/"
        for level in ("*", "sweep/*", "panels/*")
        for path in PACKAGE.glob(f"{level}/__init__.py")
    ]
    assert sorted(set(packages) - quoted("ARCHITECTURE.md")) == []


@pytest.mark.parametrize("page", PAGES)
def test_the_readme_links_the_page(page: str) -> None:
    """A newcomer finds both pages from README.md."""
    assert f"]({page})" in (ROOT / "README.md").read_text(encoding="utf-8")


GUIDES = sorted(f"docs/{path.name}" for path in (ROOT / "docs").glob("*.md"))
MOST_README_LINES = 200


def anchors(page: Path) -> set[str]:
    """Return the anchors of a page's headings, as forges make them."""
    headings = re.findall(r"(?m)^#+ (.+)$", page.read_text(encoding="utf-8"))
    return {re.sub(r"[^\w -]", "", heading.lower()).replace(" ", "-") for heading in headings}


@pytest.mark.parametrize("page", ["README.md", *GUIDES])
def test_every_link_leads_to_a_file_or_a_heading(page: str) -> None:
    """Relative links and pictures of README.md and of the guides."""
    here = ROOT / page
    links = re.findall(r"\]\(([^)\s]+)\)", here.read_text(encoding="utf-8"))
    for link in links:
        if link.startswith("http"):
            continue
        name, _, anchor = link.partition("#")
        target = here.parent / name if name else here
        assert target.exists(), link
        assert not anchor or anchor in anchors(target), link


def test_the_readme_is_short_and_links_every_guide() -> None:
    """README.md answers in a few screens; what it leaves out is a link away."""
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    assert len(text.splitlines()) <= MOST_README_LINES
    assert [page for page in GUIDES if f"]({page}" not in text] == []
