"""Converts palettes (a colour for each role of text, such as "title") to Rich styles and Textual themes."""

from __future__ import annotations

from rich.style import Style
from rich.text import Text
from textual.theme import BUILTIN_THEMES, Theme

from sparktop.colors.palette import BOLD, Palette
from sparktop.graphics.braille import block_table

_HEAVY = str.maketrans("╭╮╰╯─│├┤", "┏┓┗┛━┃┣┫")


class RoleStyles:
    """The Rich style for each role of text, such as "title" or "warn", with the colours of a palette.

    A style is created when it is first used.
    """

    def __init__(self, palette: Palette, *, color: bool = True) -> None:
        """Use the colours of `palette`; if `color` is False, the styles differ only in bold and dim."""
        self.palette = palette
        self._color = color
        self.blocks = False
        """Whether graphs are drawn with blocks instead of braille dots."""
        self._styles: dict[str, Style] = {}

    def __getitem__(self, role: str) -> Style:
        style = self._styles.get(role)
        if style is None:
            bold = True if role in BOLD else None
            if self._color:
                background = self.palette.color("background")
                style = Style(color=self.palette.color(role), bgcolor=background, bold=bold)
            else:
                style = Style(bold=bold, dim=True if role == "stale" else None)
            self._styles[role] = style
        return style

    def text(self, text: str, role: str) -> str:
        """Return `text` as it is drawn.

        Without colours, the frame of the selected panel has heavy lines. Graphs may consist of blocks.
        """
        if self.blocks and not text.isascii():
            text = text.translate(block_table())
        return text if self._color or role != "selected" else text.translate(_HEAVY)


def textual_theme(palette: Palette) -> Theme:
    """Return a Textual theme with the colours of `palette`, for dialogs, notices and the command palette."""

    def color(role: str) -> str:
        value = palette.color(role)
        return value if value.startswith("#") else f"ansi_{value}"

    background = color("background")
    # Only with an ANSI theme does Textual leave the terminal's own background alone.
    ansi = palette.ansi or palette.transparent
    variables = {"border": color("border"), "block-cursor-background": color("cursor_background")}
    if ansi:
        # Textual's own style sheets use these variables with any ANSI theme.
        theirs = BUILTIN_THEMES["ansi-dark" if palette.dark else "ansi-light"].variables
        ours = variables | {"block-cursor-foreground": color("text")}
        # An ANSI palette keeps Textual's own colours; a transparent one has colours of its own.
        variables = variables | theirs if palette.ansi else theirs | ours
    return Theme(
        name=palette.name,
        primary=color("accent"),
        secondary=color("key"),
        accent=color("key"),
        warning=color("warn"),
        error=color("bad"),
        success=color("good"),
        foreground=color("text"),
        background=background,
        surface=background,
        panel=background if ansi else color("cursor_background"),
        dark=palette.dark,
        ansi=ansi,
        variables=variables,
    )


def key_hints(words: str, styles: RoleStyles | None) -> Text:
    """Return hints on keys such as "esc closes · tab next page" with the first word of each highlighted.

    They stand in the edge of a dialog. Without `styles` nothing is highlighted.
    """
    text = Text()
    for number, hint in enumerate(words.split(" · ")):
        key, _, action = hint.partition(" ")
        text.append(" · " if number else "")
        text.append(
            key, Style() if styles is None else Style(color=styles["key"].color, bold=styles["key"].bold)
        )
        text.append(f" {action}")
    return text
