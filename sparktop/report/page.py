"""HTML pages from the templates in `templates/`: all text is escaped."""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from jinja2 import Environment

COLORS = """\
:root { color-scheme: light dark; --page: #f7f8fa; --card: #ffffff; --text: #1c232c; --muted: #5b6673;
  --line: #d9dee5; --good: #2d7a3e; --warn: #9a5b00; --bad: #b3261e; --info: #0a5cc0;
  --badge: #9a5b00; }
@media screen and (prefers-color-scheme: dark) {
  :root { --page: #0e1217; --card: #161c24; --text: #d7dde5; --muted: #93a0b0; --line: #2a333f;
    --good: #7bd88f; --warn: #f5b83d; --bad: #ff7b72; --info: #6cb2ff; --badge: #f5b83d; }
}
"""
"""The colours by role, as CSS variables of a page or of an SVG file."""


@cache
def templates(package: str) -> Environment:
    """Return the templates of a package, which escape all values that are not `Markup`."""
    from jinja2 import Environment, PackageLoader, StrictUndefined  # late: most starts write no page

    return Environment(
        loader=PackageLoader(package),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )


def page(name: str, **values: object) -> str:
    """Return a self-contained page from the template `name` and its values."""
    from markupsafe import Markup

    return templates("sparktop.report").get_template(name).render(colors=Markup(COLORS), **values)  # noqa: S704 - text of this package
