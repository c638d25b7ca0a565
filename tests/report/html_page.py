"""A page as a browser's parser sees it."""

from __future__ import annotations

from html.parser import HTMLParser

VOID = {"meta", "link", "img", "br"}


class Page(HTMLParser):
    """Collects the tags, attributes and cells of a page, and asserts that its tags are balanced."""

    def __init__(self, text: str) -> None:
        """Parse a complete page."""
        super().__init__()
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
