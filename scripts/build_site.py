"""Build the pages of this repository as a web site with one search box, which loads nothing from elsewhere.

usage: build_site.py [FOLDER]    default: dist/site; a site is replaced, another folder is left alone
"""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from html.parser import HTMLParser
from pathlib import Path

ROOT = Path(__file__).parent.parent
SETTINGS = ROOT / "scripts" / "site"
_COPIED = (
    "README.md",
    "ARCHITECTURE.md",
    "CHANGELOG.md",
    "CONTRIBUTING.md",
    "RELEASING.md",
    "SECURITY.md",
    "LICENSE",
    "benchmarks/README.md",
    "tests/pages/README.md",
    "docs",
    "screenshots",
)
_SEARCH = "search.json"
"""The index of the search, which every site has."""
_MARKER = re.compile(r"^<!-- [a-z]+:(?:begin|end) -->$", re.MULTILINE)
_LIST = re.compile(r"^(?![ *|#>-])(.+)\n(?=[*-] )", re.MULTILINE)
_LOADED = ("src", "srcset", "data", "poster", "background")
"""Attributes whose address a browser loads without a click; of links also `href`, unless `_ONLY_SAID`."""
_ONLY_SAID = {"canonical", "next", "prev", "license", "author", "help"}
_FOREIGN = re.compile(r"^\s*(?:https?:)?//", re.IGNORECASE)
_IN_STYLES = re.compile(r"""(?:url\(|@import)\s*['"]?\s*((?:https?:)?//[^'")\s]+)""", re.IGNORECASE)


def copy_pages(project: Path) -> None:
    """Copy settings and pages to the new folder `project`, in the Markdown that Python-Markdown reads.

    In its folder `pages` every relative link of the repository's pages holds.
    """
    shutil.copytree(SETTINGS, project)
    for name in _COPIED:
        source, target = ROOT / name, project / "pages" / name
        target.parent.mkdir(parents=True, exist_ok=True)
        if source.is_dir():
            shutil.copytree(source, target)
        else:
            shutil.copyfile(source, target)
    for page in (project / "pages").rglob("*.md"):
        # Without an empty line between them, a comment's next lines are read as HTML, and a list as prose.
        text = _LIST.sub(r"\1\n\n", _MARKER.sub("", page.read_text(encoding="utf-8")))
        page.write_text(text, encoding="utf-8")


class _Loads(HTMLParser):
    """Collects what a page loads from another host."""

    def __init__(self) -> None:
        super().__init__()
        self.foreign: list[str] = []
        self._in_style = False

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self._in_style = tag == "style"
        values = {name: value or "" for name, value in attrs}
        names: tuple[str, ...] = _LOADED
        if tag == "link" and not set(values.get("rel", "").split()) & _ONLY_SAID:
            names = (*_LOADED, "href")
        parts = [part for name in names if name in values for part in values[name].split(",")]
        self.foreign += [f"<{tag}> {part.strip()}" for part in parts if _FOREIGN.match(part)]
        self.foreign += _IN_STYLES.findall(values.get("style", ""))

    def handle_data(self, data: str) -> None:
        self.foreign += _IN_STYLES.findall(data) if self._in_style else []


def foreign_loads(site: Path) -> Iterator[str]:
    """Yield what pages and style sheets of a site load from another host, each with its file."""
    for path in sorted(site.rglob("*")):
        if path.suffix == ".html":
            page = _Loads()
            page.feed(path.read_text(encoding="utf-8"))
            yield from (f"{path.relative_to(site)}: {one}" for one in page.foreign)
        elif path.suffix in {".css", ".svg"}:
            found = _IN_STYLES.findall(path.read_text(encoding="utf-8"))
            yield from (f"{path.relative_to(site)}: {one}" for one in found)


def main(folder: Path) -> int:
    """Build the site in `folder`; return the exit code, 1 where a link leads nowhere or a page loads more."""
    if folder.exists() and not (folder / _SEARCH).is_file():
        print(f"{folder}: is there and is no site", file=sys.stderr)
        return 1
    with tempfile.TemporaryDirectory() as made:
        project = Path(made) / "project"
        copy_pages(project)
        command = [str(Path(sys.executable).with_name("zensical")), "build", "--strict"]
        done = subprocess.run(command, cwd=project, capture_output=True, text=True, check=False)
        if done.returncode:
            print(done.stdout + done.stderr, file=sys.stderr)
            return 1
        foreign = list(foreign_loads(project / "site"))
        for one in foreign:
            print(one, file=sys.stderr)
        shutil.rmtree(folder, ignore_errors=True)
        shutil.copytree(project / "site", folder)
    return int(bool(foreign))


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1]) if len(sys.argv) > 1 else ROOT / "dist" / "site"))
