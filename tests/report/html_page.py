"""A page as a browser's parser sees it."""

from __future__ import annotations

import re
from html.parser import HTMLParser

VOID = {"meta", "link", "img", "br"}


class Page(HTMLParser):
    """Collects the tags, attributes and cells of a page, and asserts that its tags are balanced."""

    def __init__(self, text: str) -> None:
        """Parse a complete page."""
        super().__init__()
        self.text = text
        self.tags: set[str] = set()
        self.attributes: set[tuple[str, str | None]] = set()
        self.cells: list[str] = []
        self.comments: list[str] = []
        self.open: list[str] = []
        self.feed(text)
        self.close()
        assert self.open == []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Store a tag."""
        self.tags.add(tag)
        self.attributes.update(attrs)
        if tag not in VOID:
            self.open.append(tag)
        if tag in {"td", "th"}:
            self.cells.append("")

    def handle_endtag(self, tag: str) -> None:
        """Assert that the innermost open tag ends."""
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        """Collect the text of cells."""
        if {"td", "th"} & set(self.open):
            self.cells[-1] += data

    def handle_comment(self, data: str) -> None:
        """Store a comment."""
        self.comments.append(data)

    def assert_standing_alone(self) -> None:
        """Assert that it has no script, no link and nothing from elsewhere, and a policy that loads none."""
        assert not self.tags & {"script", "link", "img", "iframe", "object", "a", "base", "form"}
        assert not {name for name, _ in self.attributes} & {"src", "href", "srcset", "style", "onerror"}
        assert "default-src 'none'" in self.text
        assert not re.search(r"url\(|@import", self.text)

    def assert_shaped_as(self, usual: Page) -> None:
        """Assert that what was put into this page is text: no tag, attribute or comment that is not usual."""
        assert (self.tags, self.comments) == (usual.tags, [])
        assert {key for key, _ in self.attributes} == {key for key, _ in usual.attributes}
